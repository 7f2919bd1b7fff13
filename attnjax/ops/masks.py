"""From the facts of a mask to the matrix of allowed pairs, for those who need it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from attnjax.types import Array, Mask


def allowed(mask: Mask, num_queries: int, num_keys: int) -> Array | None:
    """Joins the facts of a mask into one boolean matrix, as small as they permit.

    Query and key sequences end together: query ``t`` of ``T`` stands at key position
    ``t + S - T``. So a single query with a causal mask sees every key.

    Args:
        mask: the facts; True means "may attend".
        num_queries: T.
        num_keys: S.

    Returns:
        Bool ``[..., T or 1, S]``, True where a query may attend to a key; ``[T, S]``
        if no fact depends on the batch, None if every key is allowed.
    """
    facts: list[Array] = []
    if mask.causal or mask.window is not None:
        offset_ts = _key_minus_query_position(num_queries, num_keys)
        if mask.causal:
            facts.append(offset_ts <= 0)
        if mask.window is not None:
            left, right = mask.window
            facts.append((offset_ts >= -left) & (offset_ts <= right))
    if mask.valid is not None:
        facts.append(mask.valid[..., None, :])
    if mask.query_segments is not None and mask.key_segments is not None:
        facts.append(mask.query_segments[..., None] == mask.key_segments[..., None, :])
    if not facts:
        return None
    joined = facts[0]
    for fact in facts[1:]:
        rank = max(joined.ndim, fact.ndim)
        joined = with_rank(joined, rank) & with_rank(fact, rank)
    return joined


def with_rank(array: Array, rank: int) -> Array:
    """Adds leading axes of length 1, so that it broadcasts without rank promotion."""
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def _key_minus_query_position(num_queries: int, num_keys: int) -> jax.Array:
    query_position_t = jnp.arange(num_queries) + (num_keys - num_queries)
    return jnp.arange(num_keys)[None, :] - query_position_t[:, None]
