"""Keys and values of the positions so far, for mechanisms that read all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attnjax.ops.attend import attend
from attnjax.ops.entry import Incremental, Sizes
from attnjax.ops.relative import Bias, biased_step
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.types import Array, Attended, Mask

Pattern = Callable[..., Array]
"""``(query position, key position, **options) -> bool``, of arrays that broadcast."""


Score = Callable[[Array, Array], Array]
"""``(query [..., T, K], prepared key [..., S, *]) -> scores [..., T, S]``."""

Reader = Callable[..., Attended]
"""``(scores, value, mask) -> Attended``."""


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


def append(
    cache: KeyValueCache, key: Array, value: Array, place: Array
) -> KeyValueCache:
    """Writes the key and the value of one more position.

    Args:
        cache: of the positions before.
        key: ``[B, H, 1, K]``.
        value: ``[B, H, 1, V]``.
        place: ``[B]`` int.

    Returns:
        The cache with one more position.
    """
    return KeyValueCache(write(cache.key, key, place), write(cache.value, value, place))


def attend_cached(
    query: Array,
    cache: KeyValueCache,
    offset: Array,
    allowed: Array,
    bias: Bias | None = None,
    read: Reader = attend,
    score: Score | None = None,
) -> jax.Array:
    """One query a row attends to a cache.

    Args:
        query: ``[B, H, 1, K]``.
        cache: of S places.
        offset: ``[B, S]`` int, position of what each place holds minus the query's.
        allowed: ``[B, S]`` bool, places that may be attended to.
        bias: added to the scores, a function of the offset.
        read: scores, value and mask to the context.
        score: query and keys to scores; None takes scaled dot products in float32, as
            in the pass over whole sequences.

    Returns:
        Context ``[B, H, 1, V]``.
    """
    if score is None:
        scores: Array = scaled_dot_scores(
            query.astype(jnp.float32), cache.key.astype(jnp.float32)
        )
    else:
        scores = score(query, cache.key)
    mask = Mask(valid=allowed).over_heads()
    attended = read(biased_step(scores, bias, offset), cache.value, mask)
    return jnp.asarray(attended.context)


def with_pattern(
    pattern: Pattern, state: str = "n", read: Reader | None = None
) -> Incremental:
    """The one-step form of softmax attention over a pattern of earlier positions.

    Args:
        pattern: which key position a query position may attend to, among those that
            are not later; called with the options of the mechanism.
        state: size of the cache in words.
        read: scores, value and mask to the context, called with the options too; None
            takes the softmax of all allowed keys.

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
        score = options.pop("score", None)  # of entries that accept one
        cache = append(cache, key, value, position)
        slot, position = jnp.arange(cache.value.shape[2])[None, :], position[:, None]
        seen = (slot <= position) & pattern(position, slot, **options)
        how = attend if read is None else functools.partial(read, **options)
        return attend_cached(
            query, cache, slot - position, seen, bias, how, score
        ), cache

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
