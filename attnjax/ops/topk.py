"""Top-k attention: each query reads only the keys that fit it best."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.fields import Options, Units
from attnjax.ops import cache
from attnjax.ops.door import door
from attnjax.ops.masks import allowed, allowed_at, leading_shape, with_rank
from attnjax.ops.query_chunks import over_query_chunks
from attnjax.ops.relative import Bias
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.ops.softmax import masked_softmax
from attnjax.types import Array, Attended, Mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopK(Options):
    """The best few keys of each query."""

    top_k: Units = 32  # keys that each query keeps
    chunk: Units = 256  # queries that are scored at once


@door
def top_k_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    top_k: int = 32,
    chunk: int = 256,
    bias: Bias | None = None,
) -> Attended:
    """Softmax attention over the ``top_k`` best allowed keys of each query.

    ``context_t = sum_{s in best_t} softmax_{s in best_t}(q_t · k_s / sqrt(K)) v_s``

    Among equal scores the earlier key is kept. Every pair is scored, a chunk of queries
    at a time, and again in the backward pass, so that memory is ``O(n · chunk)``;
    gradients reach the kept keys only.

    Sources: Zhao et al. 2019, "Explicit sparse transformer", eq. 3-5 (which keeps all
    keys that tie with the last); Gupta et al. 2021, "Memory-efficient transformers via
    top-k attention", section 3 (the chunks).

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: which query may attend to which key; every fact is honoured.
        top_k: keys that each query keeps; all if there are fewer.
        chunk: queries that are scored at once.
        bias: added to the scores, a function of the offset of key from query.

    Returns:
        Context ``[..., T, V]``; no weights.

    Raises:
        ValueError: if `top_k` or `chunk` is not at least 1.
    """
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}.")
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    leading = leading_shape(query, key, value)
    key = key.astype(jnp.float32)
    value = jnp.broadcast_to(value, (*leading, *value.shape[-2:]))
    position = jnp.arange(num_queries) + num_keys - num_queries
    of_queries = [query.astype(jnp.float32), position[:, None]]
    if mask.query_segments is not None:
        of_queries.append(mask.query_segments[..., None])

    def attend_some(query: Array, position: Array, *segments: Array) -> jax.Array:
        scores = scaled_dot_scores(query, key)
        scores = jnp.broadcast_to(scores, (*leading, *scores.shape[-2:]))
        offset_ts = jnp.arange(num_keys)[None, :] - position
        if bias is not None:
            scores = scores + with_rank(bias(offset_ts), scores.ndim)
        both = (segments[0][..., 0] if segments else None, mask.key_segments)
        among = allowed_at(mask, offset_ts, mask.valid, both)
        return mean_of_best(scores, value, among, top_k)

    return Attended(over_query_chunks(attend_some, *of_queries, chunk=chunk), None)


def mean_of_best(
    scores: Array, value: Array, allowed: Array | None, top_k: int
) -> jax.Array:
    """Averages the values of the best keys.

    Args:
        scores: ``[..., T, S]`` float32.
        value: ``[..., S, V]``, leading axes as the scores.
        allowed: bool, broadcasts against the scores; None allows every key.
        top_k: how many keys each row keeps at most.

    Returns:
        Context ``[..., T, V]`` in the dtype of the values.
    """
    if allowed is not None:
        scores = jnp.where(with_rank(allowed, scores.ndim), scores, -jnp.inf)
    best, place = lax.top_k(scores, min(top_k, scores.shape[-1]))
    kept = ~jnp.isneginf(best)
    weights = masked_softmax(jnp.where(kept, best, 0.0), kept)

    def read(some_value: Array, some_place: Array) -> Array:
        return some_value[some_place]

    for _ in range(scores.ndim - 2):
        read = jax.vmap(read)
    chosen = read(value, place).astype(jnp.float32)
    return jnp.einsum("...ts,...tsv->...tv", weights, chosen).astype(value.dtype)


def _read_best(
    scores: Array, value: Array, mask: Mask, *, top_k: int, **options: Any
) -> Attended:
    """`mean_of_best` for a step; see `cache.with_pattern`."""
    del options
    among = allowed(mask, scores.shape)
    return Attended(mean_of_best(scores, value, among, top_k), None)


INCREMENTAL = cache.with_pattern(cache.every_position, read=_read_best)
