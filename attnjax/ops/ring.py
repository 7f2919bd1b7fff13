"""A cache of bounded size: the first positions and the latest ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from attnjax.ops import cache as caches
from attnjax.ops.cache import KeyValueCache, Pattern
from attnjax.ops.entry import Incremental, Sizes
from attnjax.ops.relative import Bias
from attnjax.types import Array

Kept = Callable[..., tuple[int, int]]
"""``(**options) -> (first, latest)``, how many positions of each a cache keeps."""


def with_ring(pattern: Pattern, kept: Kept, state: str) -> Incremental:
    """The one-step form of softmax attention to the first and the latest positions.

    The latest positions share a ring of places: each overwrites the one that has just
    fallen out of reach.

    Args:
        pattern: which key position a query position may attend to, among those that
            are not later; called with the options of the mechanism. It may name none
            that is not kept.
        kept: from the options, how many first and how many latest positions.
        state: size of the cache in words.

    Returns:
        The one-step form.
    """

    def begin(
        batch_size: int, max_tokens: int, sizes: Sizes, dtype: Any, **options: Any
    ) -> KeyValueCache:
        places = min(max_tokens, sum(kept(**options)))
        return caches.begin(batch_size, places, sizes, dtype)

    def step(
        query: Array,
        key: Array,
        value: Array,
        cache: KeyValueCache,
        position: Array,
        bias: Bias | None = None,
        **options: Any,
    ) -> tuple[jax.Array, KeyValueCache]:
        first, latest = kept(**options)
        place = jnp.where(
            position < first, position, first + (position - first) % latest
        )
        cache = caches.append(cache, key, value, place)
        position = position[:, None]
        held = held_positions(position, cache.value.shape[2], first, latest)
        seen = (held >= 0) & (held <= position) & pattern(position, held, **options)
        context = caches.attend_cached(query, cache, held - position, seen, bias)
        return context, cache

    return Incremental(begin, step, state)


def held_positions(position: Array, places: int, first: int, latest: int) -> jax.Array:
    """Which position each place of the cache holds.

    Args:
        position: ``[B, 1]`` int, the last one that was written.
        places: S, of the cache.
        first: how many first positions keep their place.
        latest: size of the ring of the others.

    Returns:
        ``[B, S]`` int, negative where nothing has been written yet.
    """
    place = jnp.arange(places)[None, :]
    in_ring = position - (position - place) % latest
    in_ring = jnp.where(in_ring < first, -1, in_ring)
    return jnp.where(place < first, place, in_ring)
