"""Routing attention: positions meet in the clusters whose centroids they fit best."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.fields import Options, UnitsOrZero
from attnjax.ops.door import door, require_owned
from attnjax.ops.entry import Parameter, Sizes
from attnjax.ops.masks import refuse, require_self, with_rank
from attnjax.ops.padding import over_common_axes, real_positions, root_above
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.ops.softmax import masked_softmax
from attnjax.types import Array, Attended, Mask

_RANKED = (
    "a cluster takes the best of all positions, so that a later token or another "
    "segment can push one out; use sliding_window, lsh or strided attention"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Routing(Options):
    """Attention inside clusters that are learned by k-means."""

    # clusters of queries and keys; 0: about the square root of max_positions
    clusters: UnitsOrZero = 0


@door
def routing_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    clusters: int = 0,
    centroids: Array,
) -> Attended:
    """Self-attention inside clusters of equal size.

    Each centroid takes the ``ceil(L / C)`` queries and the ``ceil(L / C)`` keys of the
    L real positions that have the largest dot product with it, as unit vectors without
    mean; these queries attend to these keys by scaled dot products, and a query in
    several clusters gets the mean of what it finds there (Roy et al. 2021, "Efficient
    Content-Based Sparse Attention with Routing Transformers", algorithm 1).
    A query that no centroid takes gets 0; padding is taken by none.

    The paper uses this in decoders too, with a causal mask inside the clusters. But
    which tokens a cluster takes depends on the later ones, so this is refused here.
    The paper also normalises the queries and keys that attend, not only those that are
    routed; here one cluster is dense attention.

    Args:
        query: ``[..., S, K]``, at the positions of the keys.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: only ``valid`` can be honoured.
        clusters: C, if it is to be checked against the centroids (not if 0).
        centroids: ``[..., C, K]``, leading axes broadcast (heads).

    Returns:
        Context ``[..., S, V]``; no weights.

    Raises:
        ValueError: for other facts, unequal numbers of queries and keys, or centroids
            of another number.
    """
    refuse(mask, "routing", causal=_RANKED, window=_RANKED, segments=_RANKED)
    num_keys = key.shape[-2]
    require_self(query.shape[-2], num_keys, "routing")
    width = query.shape[-1]
    require_owned("centroids", centroids, query, clusters=clusters or None, width=width)
    (query, key, value_sv), real = over_common_axes(query, key, value, mask=mask)
    readers = _route(query, real, centroids)
    sources = _route(key, real, centroids)
    scores = scaled_dot_scores(_members(query, readers), _members(key, sources))
    weights = masked_softmax(scores, sources.taken[..., None, :])
    found = weights @ _members(value_sv, sources)  # [..., C, W, V]
    taken = readers.taken[..., None].astype(jnp.float32)
    total = _add_up(found * taken, readers.position, num_keys)
    times = _add_up(taken, readers.position, num_keys)
    context = total / jnp.maximum(times, 1.0)
    return Attended(context.astype(value.dtype), None)


def routing_buffers(sizes: Sizes, *, clusters: int) -> Mapping[str, Parameter]:
    """Centroids in random directions, not learned by gradients.

    Args:
        sizes: heads, key width and the longest sequence.
        clusters: C; 0 means the square root of the longest sequence.

    Returns:
        ``centroids`` ``[H, C, K]``.
    """
    number = clusters or root_above(sizes.max_keys)

    def init(rng: Array, shape: tuple[int, ...]) -> jax.Array:
        return _direction(jax.random.normal(rng, shape))

    shape = (sizes.num_heads, number, sizes.key_width)
    return {"centroids": Parameter(shape, init)}


def update_centroids(
    buffers: Mapping[str, Array],
    query: Array,
    key: Array,
    mask: Mask,
    rng: Array,
    *,
    clusters: int = 0,
    decay: float = 0.999,
) -> Mapping[str, Array]:
    """Moves each centroid towards the queries and keys that it is nearest to.

    ``mu_c <- decay mu_c + (1 - decay) mean of the vectors nearest to c``, brought back
    to unit length (Roy et al. 2021, online k-means; their sum instead of the mean would
    grow with the batch). A centroid that is nearest to none stays.

    Args:
        buffers: ``centroids`` ``[H, C, K]``.
        query: ``[..., H, S, K]``.
        key: ``[..., H, S, K]``.
        mask: padding moves nothing.
        rng: not needed.
        clusters: not needed.
        decay: share of the old centroid.

    Returns:
        The new ``centroids``.
    """
    del rng, clusters
    centroids = jnp.asarray(buffers["centroids"])
    number = jnp.arange(centroids.shape[-2])
    total, size = jnp.zeros_like(centroids), jnp.zeros_like(centroids[..., :1])
    for array in (query, key):
        vector = _direction(array)
        fit = jnp.einsum(
            "...ck,...sk->...cs", with_rank(centroids, vector.ndim), vector
        )
        nearest = jnp.argmax(fit, axis=-2)[..., None, :]
        real = with_rank(real_positions(mask, array.shape[-2]), vector.ndim - 1)
        member = (nearest == with_rank(number[:, None], vector.ndim)) & real[
            ..., None, :
        ]
        member = member.astype(jnp.float32)
        total = total + _sum_to(member @ vector, total.shape)
        size = size + _sum_to(member.sum(-1, keepdims=True), size.shape)
    mean = total / jnp.maximum(size, 1.0)
    moved = _direction(decay * centroids + (1.0 - decay) * mean)
    return {"centroids": jnp.where(size > 0.0, moved, centroids)}


class _Routed(NamedTuple):
    """The positions that each cluster takes.

    Attributes:
        position: ``[..., C, W]`` int.
        taken: ``[..., C, W]`` bool, False where a cluster takes fewer.
    """

    position: jax.Array
    taken: jax.Array


def _route(array: jax.Array, real: jax.Array, centroids: Array) -> _Routed:
    """The real positions that fit each centroid best; no gradient passes."""
    vector = _direction(lax.stop_gradient(array))
    centroids = with_rank(lax.stop_gradient(centroids), vector.ndim)
    fit = jnp.einsum("...ck,...sk->...cs", centroids, vector)
    fit = jnp.where(real[..., None, :], fit, -jnp.inf)
    number = centroids.shape[-2]
    _, position = lax.top_k(fit, -(-real.shape[-1] // number))
    share = -(-real.sum(-1) // number)[..., None, None]
    rank = with_rank(jnp.arange(position.shape[-1]), position.ndim)
    return _Routed(position, jnp.broadcast_to(rank < share, position.shape))


def _members(array: jax.Array, routed: _Routed) -> jax.Array:
    """``[..., S, K]`` to ``[..., C, W, K]``."""
    flat = routed.position.reshape(*routed.position.shape[:-2], -1)
    rows = jnp.take_along_axis(array, flat[..., None], axis=-2)
    return rows.reshape(*routed.position.shape, array.shape[-1])


def _add_up(array: jax.Array, position: jax.Array, num_positions: int) -> jax.Array:
    """Adds the members ``[..., C, W, V]`` of all clusters up, ``[..., S, V]``."""
    leading, width = array.shape[:-3], array.shape[-1]
    summed = jax.vmap(lambda rows, at: jax.ops.segment_sum(rows, at, num_positions))(
        array.reshape(-1, position.shape[-2] * position.shape[-1], width),
        position.reshape(-1, position.shape[-2] * position.shape[-1]),
    )
    return summed.reshape(*leading, num_positions, width)


def _direction(array: Array) -> jax.Array:
    """Removes the mean over the last axis and scales to unit length, in float32."""
    array = jnp.asarray(array, jnp.float32)
    array = array - array.mean(-1, keepdims=True)
    return array * lax.rsqrt(jnp.square(array).sum(-1, keepdims=True) + 1e-12)


def _sum_to(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Sums over the leading axes that ``shape`` does not have."""
    return array.reshape(-1, *shape).sum(0)
