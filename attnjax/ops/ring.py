"""A cache of bounded size: the first positions and the latest ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from attnjax.ops import cache as caches
from attnjax.ops.attend import attend
from attnjax.ops.cache import KeyValueCache, Pattern
from attnjax.ops.entry import Incremental, Sizes
from attnjax.ops.masks import with_rank
from attnjax.ops.relative import Bias
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.types import Array, Mask

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
        cache = KeyValueCache(
            caches.write(cache.key, key, place), caches.write(cache.value, value, place)
        )
        position = position[:, None]
        held = held_positions(position, cache.value.shape[2], first, latest)
        valid = (held >= 0) & (held <= position) & pattern(position, held, **options)
        scores = scaled_dot_scores(
            query.astype(jnp.float32), cache.key.astype(jnp.float32)
        )
        if bias is not None:  # [H, B, S] -> [B, H, 1, S]
            added = jnp.moveaxis(bias(held - position), 0, 1)[:, :, None]
            scores = scores + with_rank(added, scores.ndim)
        mask = Mask(valid=valid).over_heads()
        return jnp.asarray(attend(scores, cache.value, mask).context), cache

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
