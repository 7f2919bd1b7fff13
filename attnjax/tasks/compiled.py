"""Compiled functions of variables and batches: numpy goes in and comes out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax
from jax.sharding import NamedSharding

from attnjax.training.sharding import Layout
from attnjax.types import PyTree, Variables

_MOST_KEPT = 16  # functions; one of many shapes takes megabytes


def compiled(
    function: Callable,
    *static: Hashable,
    layout: Layout | None,
    flags: tuple[str, ...] = (),
) -> Callable:
    """Compiles a function, once for equal static arguments, if lately, in a process.

    Args:
        function: of a module; takes the static arguments, variables, and batches whose
            arrays lead with rows.
        layout: where the variables live; the rows of each batch are split as it says.
            None computes where the variables are.
        flags: names of further static arguments.
        static: its first arguments, such as a model and a config.

    Returns:
        The function of variables and numpy batches, with numpy results.
    """
    place = None if layout is None else layout.replicated
    jitted = _jitted(function, static, flags, place)

    def run(variables: Variables, *batches: PyTree, **named: Hashable) -> Any:
        if layout is None:
            return jax.device_get(jitted(variables, *batches, **named))
        placed = layout.place_shared_batch(batches)
        with jax.set_mesh(layout.mesh):
            return jax.device_get(jitted(variables, *placed, **named))

    return run


@functools.lru_cache(maxsize=_MOST_KEPT)
def _jitted(
    function: Callable,
    static: tuple[Hashable, ...],
    flags: tuple[str, ...],
    place: NamedSharding | None,
) -> Callable:
    options: dict[str, Any] = {} if place is None else {"out_shardings": place}
    bound = functools.partial(function, *static)
    return jax.jit(bound, static_argnames=flags, **options)
