"""A mechanism of the catalog as a layer: it owns what the pure function is given."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.fields import Options
from attnjax.ops.catalog import MECHANISMS, entry
from attnjax.ops.entry import Entry, Incremental, Parameter, Sizes, Slot
from attnjax.ops.relative import Bias
from attnjax.types import Array, Attended, Mask, PyTree

COLLECTION = "mechanism"  # of linen: arrays that training changes without gradients


class CatalogAttention(nn.Module):
    """A mechanism with its options, parameters and buffers.

    Attributes:
        mechanism: its options, which say which one it is.
        sizes: heads and widths.
    """

    mechanism: Options
    sizes: Sizes

    def setup(self) -> None:
        """Makes the arrays that the mechanism owns; most own none."""
        line = self.line
        self.options = line.chosen(self.mechanism, self.sizes)
        self.learned = {
            name: self.param(name, parameter.init, parameter.shape)
            for name, parameter in _made(line.parameters, self.sizes, self.options)
        }
        self.kept = {
            name: self.variable(COLLECTION, name, self._first_value, parameter)
            for name, parameter in _made(line.buffers, self.sizes, self.options)
        }

    @property
    def line(self) -> Entry:
        """The catalog's entry."""
        return entry(self.mechanism)

    def __call__(
        self,
        query: Array,
        key: Array,
        value: Array,
        mask: Mask,
        *,
        bias: Bias | None = None,
        train: bool,
        **scoring: Any,
    ) -> Attended:
        """Attends with every query.

        Args:
            query: ``[B, H, T, K]``.
            key: ``[B, H, S, K]``.
            value: ``[B, H, S, V]``.
            mask: over heads.
            bias: added to the scores; only for mechanisms that accept one.
            train: whether buffers move on and random choices are made.
            **scoring: ``score`` and ``dropout``; only for mechanisms that accept them.

        Returns:
            Context ``[B, H, T, V]``, and weights if the mechanism forms them.
        """
        if train:
            self._update(query, key, mask)
        more = scoring if bias is None else {**scoring, "bias": bias}
        if self.line.needs_rng:
            more["rng"] = self.make_rng("dropout") if train else None
        return self.line.attend(query, key, value, mask, **self._bound(), **more)

    def begin(
        self, batch_size: int, max_tokens: int, key_width: int, dtype: Any
    ) -> PyTree:
        """An empty cache for `step`.

        Args:
            batch_size: B.
            max_tokens: how many steps it holds.
            key_width: of one head's keys, as `step` gets them.
            dtype: of keys and values.

        Returns:
            What the mechanism keeps; see `attnjax.ops.entry.Incremental`.
        """
        sizes = self.sizes._replace(key_width=key_width)
        begin = self._incremental.begin
        return begin(batch_size, max_tokens, sizes, dtype, **self.options)

    def step(
        self,
        inputs: tuple[Array, Array, Array],
        cache: PyTree,
        position: Array,
        *,
        bias: Bias | None = None,
        **scoring: Any,
    ) -> tuple[jax.Array, PyTree]:
        """Attends causally with one position.

        Args:
            inputs: query, key and value ``[B, H, 1, *]`` of the position.
            cache: from `begin`, or the step before.
            position: ``[B]`` int.
            bias: as in training.
            **scoring: ``score``; only for mechanisms that accept it.

        Returns:
            Context ``[B, H, 1, V]`` and the next cache.
        """
        more = scoring if bias is None else {**scoring, "bias": bias}
        step = self._incremental.step
        return step(*inputs, cache, position, **self._bound(), **more)

    @property
    def _incremental(self) -> Incremental:
        if self.line.incremental is None:
            raise ValueError(refusal(self.mechanism, "decoder"))
        return self.line.incremental

    def _bound(self) -> dict[str, Any]:
        return {**self.options, **self.learned, **self._buffers()}

    def _buffers(self) -> dict[str, Array]:
        return {name: variable.value for name, variable in self.kept.items()}

    def _first_value(self, parameter: Parameter) -> jax.Array:
        return parameter.init(self.make_rng("params"), parameter.shape)

    def _update(self, query: Array, key: Array, mask: Mask) -> None:
        if self.line.update is None or self.is_initializing():
            return
        if not self.is_mutable_collection(COLLECTION):
            return
        updated = self.line.update(
            *jax.lax.stop_gradient((self._buffers(), query, key)),
            mask,
            self.make_rng("dropout"),
            **self.options,
        )
        for name, variable in self.kept.items():
            variable.value = jnp.asarray(updated[name])


def require_slot(mechanism: Options, slot: Slot, sizes: Sizes) -> None:
    """Raises where a mechanism has no place, before anything is trained.

    Args:
        mechanism: its options.
        slot: where it is asked for.
        sizes: heads and widths.

    Raises:
        ValueError: if the catalog does not list the slot for it, or a decoder could not
            go step by step with these options.
    """
    line = entry(mechanism)
    if slot not in line.slots:
        raise ValueError(refusal(mechanism, slot))
    if slot == "decoder" and line.incremental is not None:
        options = line.chosen(mechanism, sizes)
        begin = functools.partial(line.incremental.begin, **options)
        jax.eval_shape(lambda: begin(1, 1, sizes, jnp.float32))


def refusal(mechanism: Options, slot: Slot) -> str:
    """Why a mechanism cannot be used in a slot, in one sentence."""
    kind, line = MECHANISMS.name(mechanism), entry(mechanism)
    return (
        f"{kind} attention cannot be the {slot} attention: {line.refusal}. It may be "
        f"used as: {', '.join(line.slots)}."
    )


def _made(
    make: Any, sizes: Sizes, options: dict[str, Any]
) -> list[tuple[str, Parameter]]:
    return [] if make is None else list(make(sizes, **options).items())
