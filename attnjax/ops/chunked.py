"""Exact attention in chunks: the n x n matrix never exists."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.fields import Options, Units
from attnjax.ops.door import door
from attnjax.ops.fused import kernel_attention, kernel_fits
from attnjax.ops.masks import allowed_at, leading_shape, pad_axis, with_rank
from attnjax.ops.relative import Bias
from attnjax.types import Array, Attended, Mask


class _Running(NamedTuple):
    """Softmax sums of the keys seen so far, all float32.

    Attributes:
        highest: ``[..., T]``, the largest score so far.
        total: ``[..., T]``, of ``exp(score - highest)``.
        context: ``[..., T, V]``, values weighted by the same.
    """

    highest: jax.Array
    total: jax.Array
    context: jax.Array


class _Side(NamedTuple):
    """One side's arrays cut into chunks, the chunk axis first.

    Attributes:
        arrays: each ``[chunks, ..., chunk, K or V]``.
        positions: ``[chunks, chunk]`` int, on the common axis of both sides.
        valid: ``[chunks, ..., chunk]`` bool, or None.
        segments: ``[chunks, ..., chunk]`` int, or None.
    """

    arrays: tuple[jax.Array, ...]
    positions: jax.Array
    valid: jax.Array | None
    segments: jax.Array | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunked(Options):
    """Dense attention that never holds the n x n matrix."""

    chunk: Units = 256  # positions that are computed at once


@door
def chunked_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    chunk: int = 256,
    bias: Bias | None = None,
) -> Attended:
    """Scaled dot-product attention, exact, in memory ``O(n · chunk)``.

    Keys are read a chunk at a time and each query keeps a running maximum and running
    sums (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax";
    Rabe and Staats 2021, "Self-attention does not need O(n^2) memory"). The backward
    pass forms each chunk's scores again instead of keeping them. Pairs of chunks that
    a causal mask or a window forbids altogether are skipped. On a GPU, cuDNN's kernel
    does the same where `attnjax.ops.fused.kernel_fits`.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: which query may attend to which key; every fact is honoured.
        chunk: queries and keys that are scored at once.
        bias: added to the scores, a function of the offset of key from query.

    Returns:
        Context ``[..., T, V]``, equal to that of dense attention; no weights.

    Raises:
        ValueError: if the chunk is not at least 1.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}.")
    on_gpu = jax.default_backend() == "gpu"
    if on_gpu and kernel_fits(query, key, value, mask, has_bias=bias is not None):
        return Attended(kernel_attention(query, key, value, causal=mask.causal), None)
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    scaled = query.astype(jnp.float32) * query.shape[-1] ** -0.5
    queries = _cut((scaled,), num_keys - num_queries, None, mask.query_segments, chunk)
    keys = _cut((key, value), 0, mask.valid, mask.key_segments, chunk)
    leading = leading_shape(query, key, value)

    @jax.checkpoint
    def of_queries(_: None, some: _Side) -> tuple[None, jax.Array]:
        start = _nothing_seen((*leading, some.positions.shape[0]), value.shape[-1])
        return None, _over_keys(start, some, keys, mask, num_keys, bias)

    _, context = lax.scan(of_queries, None, queries)
    context = jnp.moveaxis(context, 0, -3)
    context = context.reshape(*context.shape[:-3], -1, context.shape[-1])
    return Attended(context[..., :num_queries, :].astype(value.dtype), None)


def _nothing_seen(rows: tuple[int, ...], value_width: int) -> _Running:
    return _Running(
        jnp.full(rows, -jnp.inf, jnp.float32),
        jnp.zeros(rows, jnp.float32),
        jnp.zeros((*rows, value_width), jnp.float32),
    )


def _over_keys(
    start: _Running,
    queries: _Side,
    keys: _Side,
    mask: Mask,
    num_keys: int,
    bias: Bias | None,
) -> jax.Array:
    """The context of one chunk of queries, ``[..., chunk, V]`` float32."""
    has_filling = keys.positions.size != num_keys

    @jax.checkpoint
    def of_keys(running: _Running, others: _Side) -> tuple[_Running, None]:
        real = others.positions < num_keys if has_filling else None
        absorb = functools.partial(
            _absorb, queries=queries, keys=others, mask=mask, real=real, bias=bias
        )
        reachable = _reachable(mask, queries.positions, others.positions)
        if reachable is None:
            return absorb(running), None
        return lax.cond(reachable, absorb, lambda running: running, running), None

    end, _ = lax.scan(of_keys, start, keys)
    total = jnp.where(end.total == 0.0, 1.0, end.total)
    return end.context / total[..., None]


def _absorb(
    running: _Running,
    *,
    queries: _Side,
    keys: _Side,
    mask: Mask,
    real: jax.Array | None,
    bias: Bias | None,
) -> _Running:
    """Adds one chunk of keys to the running sums of one chunk of queries."""
    (query_tk,), (key_sk, value_sv) = queries.arrays, keys.arrays
    scores = jnp.einsum("...tk,...sk->...ts", query_tk, key_sk.astype(jnp.float32))
    offset_ts = keys.positions[None, :] - queries.positions[:, None]
    if bias is not None:
        scores = scores + with_rank(bias(offset_ts), scores.ndim)
    allowed = allowed_at(
        mask, offset_ts, keys.valid, (queries.segments, keys.segments), real
    )
    if allowed is not None:
        scores = jnp.where(with_rank(allowed, scores.ndim), scores, -jnp.inf)
    highest = jnp.maximum(running.highest, scores.max(axis=-1))
    # Before the first allowed key the maximum is -inf: compare with 0 instead.
    finite = lax.stop_gradient(jnp.where(jnp.isneginf(highest), 0.0, highest))
    weights = jnp.exp(scores - finite[..., None])
    shrink = jnp.exp(running.highest - finite)
    return _Running(
        lax.stop_gradient(highest),
        running.total * shrink + weights.sum(axis=-1),
        running.context * shrink[..., None]
        + jnp.einsum("...ts,...sv->...tv", weights, value_sv.astype(jnp.float32)),
    )


def _reachable(
    mask: Mask, query_position: jax.Array, key_position: jax.Array
) -> jax.Array | None:
    """Whether any query of a chunk can see any key of another; None if always."""
    nearest_key, farthest_key = key_position[0], key_position[-1]
    parts = []
    if mask.causal:
        parts.append(nearest_key <= query_position[-1])
    if mask.window is not None:
        left, right = mask.window
        parts.append(farthest_key >= query_position[0] - left)
        parts.append(nearest_key <= query_position[-1] + right)
    return jnp.all(jnp.stack(parts)) if parts else None


def _cut(
    arrays: tuple[Array, ...],
    first_position: int,
    valid: Array | None,
    segments: Array | None,
    chunk: int,
) -> _Side:
    """Cuts the position axis of everything on one side into chunks of equal size."""
    length = arrays[0].shape[-2]
    chunk = min(chunk, length)
    num_chunks = -(-length // chunk)

    def cut(array: Array, axis: int) -> jax.Array:
        array = pad_axis(array, axis, num_chunks * chunk)
        axis = axis % array.ndim
        shape = (*array.shape[:axis], num_chunks, chunk, *array.shape[axis + 1 :])
        return jnp.moveaxis(array.reshape(shape), axis, 0)

    positions = jnp.arange(num_chunks * chunk).reshape(num_chunks, chunk)
    return _Side(
        tuple(cut(array, -2) for array in arrays),
        positions + first_position,
        None if valid is None else cut(valid, -1),
        None if segments is None else cut(segments, -1),
    )
