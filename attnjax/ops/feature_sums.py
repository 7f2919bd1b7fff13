"""Attention by features: sums over the keys in place of the n x n matrix.

With weights ``phi(q_t) · phi(k_s) / sum_s' phi(q_t) · phi(k_s')`` for some positive
feature map ``phi``, the sums over keys can be taken first:

``context_t = phi(q_t) (sum_s phi(k_s) v_s^T) / (phi(q_t) · sum_s phi(k_s))``

(Katharopoulos et al. 2020, eq. 5 and 9). Everything here is float32. The divisor has no
epsilon, so that weights sum to 1: feature maps keep their features above 0 themselves.
A key that is not allowed has features of exactly 0, and a query whose divisor is 0 sees
no key and gets 0.

Key features that would overflow are given divided by ``exp(log_scale_s)``, which may
only grow along a causal sequence; it cancels in the quotient.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.ops.entry import Sizes
from attnjax.ops.masks import leading_shape, pad_axis
from attnjax.types import Array


class Sums(NamedTuple):
    """What all keys so far amount to, float32; F features.

    Attributes:
        context: ``[..., F, V]``, the sum of ``phi(k_s) v_s^T exp(-log_scale)``.
        total: ``[..., F]``, the sum of ``phi(k_s) exp(-log_scale)``.
        log_scale: ``[...]``, of the last key.
    """

    context: jax.Array
    total: jax.Array
    log_scale: jax.Array


def attend_to_all(query: Array, key: Array, value: Array) -> jax.Array:
    """Every query sees every key, in time and memory ``O(n)``.

    Args:
        query: features ``[..., T, F]``.
        key: features ``[..., S, F]``, all of one scale, 0 where not allowed.
        value: ``[..., S, V]``.

    Returns:
        Context ``[..., T, V]`` in the dtype of the values.
    """
    context_fv = jnp.einsum("...sf,...sv->...fv", key, value.astype(jnp.float32))
    return _quotient(*_read(query, context_fv, jnp.sum(key, axis=-2))).astype(
        value.dtype
    )


def attend_to_earlier(
    query: Array, key: Array, value: Array, log_scale: Array, *, chunk: int
) -> jax.Array:
    """Every query sees the keys up to its own position; both sequences end together.

    Inside a chunk the products are formed, between chunks only the sums are carried;
    the backward pass forms the products again. Time ``O(n chunk)``, memory ``O(n)``.

    Args:
        query: features ``[..., T, F]``.
        key: features ``[..., S, F]``, divided by ``exp(log_scale)``; 0 where not
            allowed.
        value: ``[..., S, V]``.
        log_scale: ``[..., S]``, never falling along S; -inf before the first key.
        chunk: positions that are computed at once.

    Returns:
        Context ``[..., T, V]`` in the dtype of the values.

    Raises:
        ValueError: if the chunk is not at least 1.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}.")
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    length = max(num_queries, num_keys)
    chunk = min(chunk, length)
    log_scale = _fill_left(log_scale, -1, length, -jnp.inf)
    # The last chunk is filled up without a jump, which could overflow.
    missing = [(0, 0)] * (log_scale.ndim - 1) + [(0, -length % chunk)]
    pieces = (
        *(_cut(_fill_left(x, -2, length), -2, chunk) for x in (query, key, value)),
        _cut(jnp.pad(log_scale, missing, mode="edge"), -1, chunk),
    )
    leading = leading_shape(key, value)
    start = Sums(
        jnp.zeros((*leading, key.shape[-1], value.shape[-1]), jnp.float32),
        jnp.zeros((*key.shape[:-2], key.shape[-1]), jnp.float32),
        jnp.full(log_scale.shape[:-1], -jnp.inf, jnp.float32),
    )
    _, context = lax.scan(jax.checkpoint(_absorb_chunk), start, pieces)
    context = jnp.moveaxis(context, 0, -3)
    context = context.reshape(*context.shape[:-3], -1, context.shape[-1])
    return context[..., length - num_queries : length, :].astype(value.dtype)


def _absorb_chunk(sums: Sums, piece: tuple[jax.Array, ...]) -> tuple[Sums, jax.Array]:
    """The context of one chunk, and the sums after it."""
    query_tf, key_sf, value_sv, log_scale = piece
    value_sv = value_sv.astype(jnp.float32)
    positions = jnp.arange(key_sf.shape[-2])
    seen_ts = positions[None, :] <= positions[:, None]
    base = _finite(log_scale)
    growth_ts = log_scale[..., None, :] - base[..., :, None]
    seen_ts = seen_ts.reshape((1,) * (growth_ts.ndim - 2) + seen_ts.shape)
    growth_ts = jnp.exp(jnp.where(seen_ts, growth_ts, -jnp.inf))
    products_ts = jnp.einsum("...tf,...sf->...ts", query_tf, key_sf) * growth_ts
    shrink = jnp.exp(sums.log_scale[..., None] - base)
    context_tv, total = _read(query_tf, sums.context, sums.total)
    context_tv = context_tv * shrink[..., None] + jnp.einsum(
        "...ts,...sv->...tv", products_ts, value_sv
    )
    total = total * shrink + products_ts.sum(-1)
    key_sf = key_sf * growth_ts[..., -1, :, None]
    after = Sums(
        sums.context * shrink[..., -1, None, None]
        + jnp.einsum("...sf,...sv->...fv", key_sf, value_sv),
        sums.total * shrink[..., -1, None] + key_sf.sum(-2),
        log_scale[..., -1],
    )
    return after, _quotient(context_tv, total)


def begin_sums(batch_size: int, sizes: Sizes, num_features: int) -> Sums:
    """The sums before the first key, for `step`.

    Args:
        batch_size: B.
        sizes: heads and widths.
        num_features: F.

    Returns:
        Zeros, every leaf ``[B, H, ...]``; the state has this size at any length.
    """
    rows = (batch_size, sizes.num_heads)
    return Sums(
        jnp.zeros((*rows, num_features, sizes.value_width), jnp.float32),
        jnp.zeros((*rows, num_features), jnp.float32),
        jnp.full(rows, -jnp.inf, jnp.float32),
    )


def step(
    query: Array, key: Array, value: Array, sums: Sums, log_scale: Array
) -> tuple[jax.Array, Sums]:
    """One more position: adds its key to the sums, then reads them with its query.

    Args:
        query: features ``[B, H, 1, F]``.
        key: features ``[B, H, 1, F]``, divided by ``exp(log_scale)``.
        value: ``[B, H, 1, V]``.
        sums: of the earlier positions.
        log_scale: ``[B, H]``, at least that of the sums.

    Returns:
        Context ``[B, H, 1, V]`` in the dtype of the values, and the sums after it.
    """
    shrink = jnp.exp(sums.log_scale - _finite(log_scale))
    new_fv = jnp.einsum("...sf,...sv->...fv", key, value.astype(jnp.float32))
    sums = Sums(
        sums.context * shrink[..., None, None] + new_fv,
        sums.total * shrink[..., None] + key.sum(-2),
        jnp.asarray(log_scale),
    )
    context = _quotient(*_read(query, sums.context, sums.total))
    return context.astype(value.dtype), sums


def _read(
    query: Array, context: jax.Array, total: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Numerator ``[..., T, V]`` and divisor ``[..., T]``."""
    return (
        jnp.einsum("...tf,...fv->...tv", query, context),
        jnp.einsum("...tf,...f->...t", query, total),
    )


def _quotient(context: jax.Array, total: jax.Array) -> jax.Array:
    return context / jnp.where(total == 0.0, 1.0, total)[..., None]


def _finite(log_scale: Array) -> jax.Array:
    """Before the first key the scale is -inf; differences are then taken from 0."""
    return jnp.where(jnp.isneginf(log_scale), 0.0, log_scale)


def _fill_left(array: Array, axis: int, length: int, fill: float = 0.0) -> jax.Array:
    axis = axis % array.ndim
    widths = [(0, 0)] * array.ndim
    widths[axis] = (length - array.shape[axis], 0)
    return jnp.pad(jnp.asarray(array), widths, constant_values=fill)


def _cut(array: jax.Array, axis: int, chunk: int) -> jax.Array:
    """Chunks of an axis, in front; the last one filled up with zeros."""
    axis = axis % array.ndim
    chunks = -(-array.shape[axis] // chunk)
    array = jnp.asarray(pad_axis(array, axis, chunks * chunk))
    shape = (*array.shape[:axis], chunks, chunk, *array.shape[axis + 1 :])
    return jnp.moveaxis(array.reshape(shape), axis, 0)
