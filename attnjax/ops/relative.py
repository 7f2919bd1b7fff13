"""Relative positions: terms of a score that depend on how far a key lies from a query.

A `Bias` is a function of the offset ``key position - query position``. Mechanisms
that score in blocks ask for the offsets of a block only, and a decoding step for those
of one query, so that no n x n array is needed and a cache changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from attnjax.ops.door import INTEGER, require_array, require_axes
from attnjax.ops.masks import key_minus_query_position, with_rank
from attnjax.types import Array

Bias = Callable[[Array], jax.Array]
"""Offsets ``[...]`` int to ``[H, ...]`` float32, added to the scores."""


def biased(scores: Array, bias: Bias | None) -> Array:
    """Adds a bias to the scores of whole sequences, which end together.

    Args:
        scores: ``[..., H, T, S]``.
        bias: a function of the offset of key from query; None adds nothing.

    Returns:
        Scores in the same dtype.
    """
    if bias is None:
        return scores
    offset_ts = key_minus_query_position(*scores.shape[-2:])
    return scores + with_rank(bias(offset_ts), scores.ndim).astype(scores.dtype)


def biased_step(scores: Array, bias: Bias | None, offset: Array) -> Array:
    """Adds a bias to the scores of one query a row, each with offsets of its own.

    Args:
        scores: ``[B, H, 1, S]``.
        bias: a function of the offset of key from query; None adds nothing.
        offset: ``[B, S]`` int.

    Returns:
        Scores in the same dtype.
    """
    if bias is None:
        return scores
    bias_bhs = jnp.moveaxis(bias(offset), 0, 1)
    return scores + bias_bhs[:, :, None].astype(scores.dtype)


def bias_at(bias: Bias, offset: Array, rank: int) -> jax.Array:
    """The bias of pairs that may lie elsewhere in each row.

    Args:
        bias: a function of the offset of key from query.
        offset: ``[T, S]`` int, or ``[..., H or 1, T, S]``.
        rank: of the scores.

    Returns:
        ``[..., H, T, S]`` of that rank.
    """
    if offset.ndim == 2:
        return jnp.asarray(with_rank(bias(offset), rank))
    per_head = jnp.moveaxis(bias(offset), 0, -3)  # [..., H or 1, H, T, S]
    if offset.shape[-3] == 1:
        return per_head[..., 0, :, :, :]
    own = jnp.diagonal(per_head, axis1=-4, axis2=-3)
    return jnp.moveaxis(own, -1, -3)


def alibi(num_heads: int) -> Bias:
    """Attention with linear biases, ``-m_h |offset|`` (Press et al. 2022).

    Head ``h`` of ``H`` has the slope ``m_h = 2^(-8 h / H)``, h from 1, for a power of
    two; for other counts the slopes of the next lower power are filled up with every
    second one of the double power, as the authors do. Keys on both sides lose by their
    distance, which for a causal mechanism is the paper's rule.

    Args:
        num_heads: H.

    Returns:
        The bias.

    Raises:
        ValueError: if there is no head.
    """
    if num_heads < 1:
        raise ValueError(f"alibi needs at least 1 head, got {num_heads}.")
    slopes = jnp.asarray(alibi_slopes(num_heads), jnp.float32)

    def bias(offset: Array) -> jax.Array:
        distance = jnp.abs(offset).astype(jnp.float32)
        return -slopes.reshape(-1, *(1,) * distance.ndim) * distance[None]

    return bias


def alibi_slopes(num_heads: int) -> list[float]:
    """Slopes of the heads, steepest first within each power of two.

    Args:
        num_heads: H.

    Returns:
        H positive numbers.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2.0 ** (-8.0 * head / power) for head in range(1, power + 1)]
    between = [2.0 ** (-4.0 * head / power) for head in range(1, 2 * power + 1, 2)]
    return slopes + between[: num_heads - power]


def bucketed_bias(
    table: Array, *, bidirectional: bool, max_distance: int = 128
) -> Bias:
    """Learned bias per bucket of offsets (Raffel et al. 2020, "T5", section 2.1).

    Args:
        table: ``[H, buckets]``.
        bidirectional: whether later keys have buckets of their own; if not, all later
            keys share that of offset 0.
        max_distance: offsets from here on share the last bucket.

    Returns:
        The bias.

    Raises:
        ValueError: if the table is no array ``[H, buckets]`` of floats.
    """
    require_axes("table", table, heads=None, buckets=None)

    def bias(offset: Array) -> jax.Array:
        bucket = relative_bucket(
            offset,
            num_buckets=table.shape[-1],
            bidirectional=bidirectional,
            max_distance=max_distance,
        )
        return jnp.take(jnp.asarray(table, jnp.float32), bucket, axis=-1)

    return bias


def relative_bucket(
    offset: Array, *, num_buckets: int, bidirectional: bool, max_distance: int
) -> jax.Array:
    """The bucket of an offset: exact for near keys, logarithmic for far ones.

    Half of the buckets of a direction hold one distance each; the others grow by a
    constant factor up to ``max_distance``.

    Args:
        offset: ``[...]`` int, key position minus query position.
        num_buckets: in all; of both directions together if bidirectional.
        bidirectional: whether later keys have the upper half of the buckets.
        max_distance: from here on all distances share the last bucket.

    Returns:
        ``[...]`` int, in ``[0, num_buckets)``.

    Raises:
        ValueError: if there are too few buckets, or none would grow.
    """
    per_direction = num_buckets // 2 if bidirectional else num_buckets
    exact = per_direction // 2
    if exact < 1 or max_distance <= exact:
        raise ValueError(
            "relative buckets need at least 2 in each direction and max_distance above "
            f"half of them, got {num_buckets=}, {bidirectional=}, {max_distance=}."
        )
    offset = jnp.asarray(offset)
    first = jnp.where(offset > 0, per_direction, 0) if bidirectional else 0
    distance = jnp.abs(offset) if bidirectional else jnp.maximum(-offset, 0)
    ratio = jnp.maximum(distance, 1).astype(jnp.float32) / exact
    growth = jnp.log(ratio) / math.log(max_distance / exact)
    far = exact + (growth * (per_direction - exact)).astype(jnp.int32)
    far = jnp.minimum(far, per_direction - 1)
    return first + jnp.where(distance < exact, distance, far)


def rotate(x: Array, positions: Array, *, base: float = 10_000.0) -> jax.Array:
    """Rotary position embedding (Su et al. 2021, "RoFormer", eq. 34).

    Channel pairs ``(2i, 2i+1)`` turn by ``p base^(-2i / K)``, so that the dot product
    of a rotated query and key depends on their offset only. Any mechanism that reads
    queries and keys through dot products can be given rotated ones.

    Args:
        x: ``[..., T, K]`` queries or keys, K even.
        positions: ``[T]`` int, or of the rank of ``[..., T]``, axes of length 1
            broadcast.
        base: of the frequencies.

    Returns:
        ``[..., T, K]`` in the dtype of ``x``.

    Raises:
        ValueError: if the width is odd, or the positions are not those of ``x``.
    """
    require_array("x", x)
    require_array("positions", positions, INTEGER)
    fits = positions.shape == x.shape[-2:-1] or (
        positions.ndim == x.ndim - 1
        and all(
            got in (1, want)
            for got, want in zip(positions.shape, x.shape[:-1], strict=True)
        )
    )
    if not fits:
        raise ValueError(
            f"positions must be [T] or have the axes {x.shape[:-1]} of x, or 1 for "
            f"any, got {positions.shape}; with heads, pass positions[:, None]."
        )
    width = x.shape[-1]
    if width % 2:
        raise ValueError(f"rotary positions need an even head width, got {width}.")
    frequency = base ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    positions = jnp.asarray(positions, jnp.float32)[..., None]
    angle = positions * frequency.reshape((1,) * (positions.ndim - 1) + (-1,))
    angle = angle.reshape((1,) * (x.ndim - angle.ndim) + angle.shape)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    even, odd = (x[..., part::2].astype(jnp.float32) for part in (0, 1))
    turned = jnp.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1)
    return turned.reshape(x.shape).astype(x.dtype)
