"""Keys and values of the positions so far, for mechanisms that read all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attnjax.ops.attend import attend
from attnjax.ops.entry import Incremental, Sizes
from attnjax.ops.masks import with_rank
from attnjax.ops.relative import Bias
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.types import Array, Attended, Mask

Pattern = Callable[..., Array]
"""``(query position, key position, **options) -> bool``, of arrays that broadcast."""


class KeyValueCache(NamedTuple):
    """One place for every position that will be decoded.

    Attributes:
        key: ``[B, H, S, K]``.
        value: ``[B, H, S, V]``.
    """

    key: Array
    value: Array


def begin(
    batch_size: int, max_tokens: int, sizes: Sizes, dtype: Any, **options: Any
) -> KeyValueCache:
    """An empty cache.

    Args:
        batch_size: B.
        max_tokens: S, how many steps it holds.
        sizes: heads and widths.
        dtype: of keys and values.
        **options: of the mechanism; not needed here.

    Returns:
        The cache.
    """
    del options
    rows = (batch_size, sizes.num_heads, max_tokens)
    return KeyValueCache(
        jnp.zeros((*rows, sizes.key_width), dtype),
        jnp.zeros((*rows, sizes.value_width), dtype),
    )


def write(cache: Array, new: Array, place: Array) -> jax.Array:
    """Puts ``new[b] [H, 1, *]`` at ``place[b]`` of ``cache[b] [H, S, *]``.

    Args:
        cache: ``[B, H, S, *]``.
        new: ``[B, H, 1, *]``.
        place: ``[B]`` int.

    Returns:
        The cache with one more position.
    """
    rows = jnp.arange(cache.shape[0])
    return jnp.asarray(cache).at[rows, :, place].set(new[:, :, 0].astype(cache.dtype))


def with_pattern(
    pattern: Pattern,
    state: str = "n",
    attend: Callable[[Array, Array, Mask], Attended] = attend,
) -> Incremental:
    """The one-step form of softmax attention over a pattern of earlier positions.

    Args:
        pattern: which key position a query position may attend to, among those that
            are not later; called with the options of the mechanism.
        state: size of the cache in words.
        attend: scores, value and mask to the context, if not by a softmax.

    Returns:
        The one-step form: a cache of all positions, and one row of scores a step.
    """

    def step(
        query: Array,
        key: Array,
        value: Array,
        cache: KeyValueCache,
        position: Array,
        bias: Bias | None = None,
        **options: Any,
    ) -> tuple[jax.Array, KeyValueCache]:
        cache = KeyValueCache(
            write(cache.key, key, position), write(cache.value, value, position)
        )
        slot = jnp.arange(cache.value.shape[2])[None, :]
        position = position[:, None]
        valid = (slot <= position) & pattern(position, slot, **options)
        scores = scaled_dot_scores(query, cache.key)
        if bias is not None:  # [H, B, S] -> [B, H, 1, S]
            added = jnp.moveaxis(bias(slot - position), 0, 1)[:, :, None]
            scores = scores + with_rank(added, scores.ndim).astype(scores.dtype)
        mask = Mask(valid=valid).over_heads()
        return jnp.asarray(attend(scores, cache.value, mask).context), cache

    return Incremental(begin, step, state)


def every_position(query_position: Array, key_position: Array, **options: Any) -> Array:
    """The pattern of dense attention.

    Args:
        query_position: int.
        key_position: int.
        **options: of the mechanism; not needed here.

    Returns:
        True everywhere.
    """
    del options
    shape = jnp.broadcast_shapes(query_position.shape, key_position.shape)
    return jnp.ones(shape, bool)
