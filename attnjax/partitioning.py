"""What layers say about splitting their arrays over devices, without knowing any.

A layer names the axes of each of its parameters ("heads", "vocabulary", ...);
`attnjax.training.sharding` has rules that map names to a mesh. The names are needed
once, before there is any parameter. So they are boxed
(`flax.linen.LogicallyPartitioned`) within `axes_named` only, and every other tree of
parameters is one of plain arrays.

Of activations it suffices to say that their rows are split: a compiler that is told
where weights and rows belong finds a place for everything else.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
from flax import linen as nn
from jax.sharding import PartitionSpec

from attnjax.types import Array

ROW_AXES = ("data", "fsdp")  # of the mesh, that the rows of a batch are split over

_wanted = contextvars.ContextVar("wanted", default=False)


@contextlib.contextmanager
def axes_named() -> Iterator[None]:
    """Within it, new parameters come boxed with the names of their axes."""
    token = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(token)


def named(init: Callable[..., Any], *axes: str | None) -> Callable[..., Any]:
    """Names the axes of what an initialiser makes.

    Args:
        init: of a parameter.
        axes: a name for each axis; None for one that is never split.

    Returns:
        An initialiser of the same values, boxed within `axes_named`.
    """
    boxed = nn.with_logical_partitioning(init, axes)

    def initialise(*arguments: Any, **named_arguments: Any) -> Any:
        chosen = boxed if _wanted.get() else init
        return chosen(*arguments, **named_arguments)

    return initialise


def split_rows(x: Array) -> Array:
    """Keeps the rows of an activation split over the mesh, and its other axes whole.

    Left alone, a compiler might split an activation as the weights are that it meets,
    and send activations round where the smaller weights would do.

    Args:
        x: ``[B, ...]``.

    Returns:
        The same array; outside `jax.set_mesh` nothing is done.
    """
    return _constrained(x, PartitionSpec(ROW_AXES))


def whole(x: Array) -> Array:
    """Puts all of a weight on every device, for a use that could not split it well.

    Args:
        x: the weight.

    Returns:
        The same array; outside `jax.set_mesh` nothing is done.
    """
    return _constrained(x, PartitionSpec())


def _constrained(x: Array, specification: PartitionSpec) -> Array:
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return x
    return jax.lax.with_sharding_constraint(x, specification)
