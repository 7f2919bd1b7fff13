"""Clustered attention: queries that are alike attend together."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.fields import Options, Seed, Units, UnitsOrZero
from attnjax.ops.door import door
from attnjax.ops.masks import refuse, require_self, with_rank
from attnjax.ops.padding import over_common_axes, root_above, roots_above
from attnjax.ops.query_chunks import over_query_chunks
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.ops.softmax import masked_softmax
from attnjax.types import Array, Attended, Mask

_SHARED = (
    "the queries of a cluster share the weights of their mean, which later queries and "
    "other segments would enter; use sliding_window, lsh or chunked attention"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clustered(Options):
    """Attention of clusters of queries that are alike."""

    # clusters of queries; 0: about the square root of each sentence's own length
    clusters: UnitsOrZero = 0
    top_k: Units = 32  # best keys of a cluster, which each of its queries weighs anew
    rounds: Units = 2  # rounds of k-means
    chunk: Units = 256  # positions that are computed at once
    seed: Seed = 0  # seed of the hashes that k-means starts from


@door
def clustered_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    top_k: int = 32,
    chunk: int = 256,
    **grouping: Any,
) -> Attended:
    """Self-attention of clusters of queries, made exact on each cluster's best keys.

    With the mean query ``q_c`` of cluster c, ``A_c = softmax(q_c K^T / sqrt(K))``. Of
    the ``top_k`` largest weights of ``A_c``, at the keys ``T_c``, the sum ``m_c`` is
    shared out anew by each query i of c: its weight is
    ``m_c softmax_{s in T_c}(q_i · k_s / sqrt(K))`` on T_c and ``A_cs`` elsewhere
    (Vyas et al. 2020, "Fast Transformers with Clustered Attention", sections 3.2 and
    3.3). Padded queries read from the cluster they fit best, but belong to none. The
    paper groups hashes of the queries, here the queries themselves are grouped.

    Args:
        query: ``[..., S, K]``, at the positions of the keys: what fills up a batch is
            then known for queries too.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: only ``valid`` can be honoured.
        top_k: keys that each query scores itself; 0 is the paper's plain clustered
            attention, all keys are dense attention.
        chunk: queries that gather their keys at once.
        **grouping: ``clusters``, ``rounds``, ``seed`` of `group_queries`.

    Returns:
        Context ``[..., S, V]``; no weights.

    Raises:
        ValueError: for other facts, unequal numbers of queries and keys.
    """
    refuse(mask, "clustered", causal=_SHARED, window=_SHARED, segments=_SHARED)
    num_keys = key.shape[-2]
    require_self(query.shape[-2], num_keys, "clustered")
    (query, key, value_sv), real = over_common_axes(query, key, value, mask=mask)
    groups = group_queries(query, real, **grouping)
    size = jnp.maximum(groups.member.sum(-1, keepdims=True), 1.0)
    weights_cs = masked_softmax(
        scaled_dot_scores(groups.member @ query / size, key), real[..., None, :]
    )
    if top_k == 0:
        context = _rows(weights_cs @ value_sv, groups.own)
    else:
        top = _top_keys(weights_cs, value_sv, min(top_k, num_keys))
        context = _improve(
            (query, groups.own), (key, value_sv, real), top, min(chunk, num_keys)
        )
    return Attended(context.astype(value.dtype), None)


class Groups(NamedTuple):
    """Which cluster each query belongs to.

    Attributes:
        own: ``[..., S]`` int, the number of the cluster it is nearest to.
        member: ``[..., C, S]`` float32, 1 where a query is in a cluster; padding is
            in none.
    """

    own: jax.Array
    member: jax.Array


def group_queries(
    query: Array, real: Array, *, clusters: int = 0, rounds: int = 2, seed: int = 0
) -> Groups:
    """Groups the real queries by Lloyd's k-means, the same for the same seed.

    The first centres are queries at random places, one from each of as many equal
    stretches of the sentence as there are clusters. Padding has no part in this, so
    that a sentence is grouped alike in every batch.

    Args:
        query: ``[..., S, K]``.
        real: ``[..., S]`` bool.
        clusters: how many; 0 means ``ceil(sqrt(L))`` for L real queries.
        rounds: how often centres move to the mean of their members.
        seed: of the first centres.

    Returns:
        The clusters; no gradient passes.
    """
    query, real = lax.stop_gradient(jnp.asarray(query, jnp.float32)), jnp.asarray(real)
    number = jnp.arange(clusters or root_above(query.shape[-2]))
    length = real.sum(-1, keepdims=True)
    used = jnp.full_like(length, clusters) if clusters else roots_above(length)
    open_ = with_rank(number, real.ndim) < used  # [..., C]
    within = jax.vmap(
        lambda one: jax.random.uniform(jax.random.fold_in(jax.random.key(seed), one))
    )(number)
    share = with_rank(number + within, real.ndim) * length / used
    place = jnp.clip(share.astype(jnp.int32), 0, jnp.maximum(length - 1, 0))
    in_order = jnp.argsort(~real, axis=-1, stable=True)
    centre = _rows(query, jnp.take_along_axis(in_order, place, axis=-1))

    def assign(centre: jax.Array) -> Groups:
        distance = jnp.square(centre).sum(-1)[..., None, :] - 2.0 * jnp.einsum(
            "...sk,...ck->...sc", query, centre
        )
        own = jnp.argmin(jnp.where(open_[..., None, :], distance, jnp.inf), axis=-1)
        member = (own[..., None, :] == with_rank(number[:, None], query.ndim)) & real[
            ..., None, :
        ]
        return Groups(own, member.astype(jnp.float32))

    def move(centre: jax.Array, _: None) -> tuple[jax.Array, None]:
        member = assign(centre).member
        size = member.sum(-1, keepdims=True)
        mean = member @ query / jnp.maximum(size, 1.0)
        return jnp.where(size > 0.0, mean, centre), None

    centre, _ = lax.scan(move, centre, None, length=rounds)
    return assign(centre)


class _Top(NamedTuple):
    """Each cluster's best keys, and what it takes from all others.

    Attributes:
        keys: ``[..., C, top_k]`` int.
        mass: ``[..., C, 1]``, the sum of their weights.
        rest: ``[..., C, V]``, the other values, weighted.
    """

    keys: jax.Array
    mass: jax.Array
    rest: jax.Array


def _top_keys(weights_cs: jax.Array, value_sv: jax.Array, top_k: int) -> _Top:
    _, keys = lax.top_k(lax.stop_gradient(weights_cs), top_k)
    mass = jnp.take_along_axis(weights_cs, keys, axis=-1).sum(-1, keepdims=True)
    others = jnp.put_along_axis(weights_cs, keys, 0.0, axis=-1, inplace=False)
    return _Top(keys, mass, others @ value_sv)


def _improve(
    queries: tuple[jax.Array, jax.Array],
    sources: tuple[jax.Array, jax.Array, jax.Array],
    top: _Top,
    chunk: int,
) -> jax.Array:
    """Lets each query share out its cluster's mass on the cluster's best keys."""
    query, own = queries
    key, value_sv, real = sources
    top_k = top.keys.shape[-1]

    def of_queries(some: jax.Array, own: jax.Array) -> jax.Array:
        own = own[..., 0]
        index = _rows(top.keys, own)
        flat = index.reshape(*index.shape[:-2], -1)

        def gathered(array: jax.Array) -> jax.Array:
            rows = _rows(array, flat)
            return rows.reshape(*index.shape[:-2], -1, top_k, array.shape[-1])

        scores = jnp.einsum("...tk,...tjk->...tj", some, gathered(key))
        allowed = gathered(real[..., None])[..., 0]
        weights = masked_softmax(scores * some.shape[-1] ** -0.5, allowed)
        best = jnp.einsum("...tj,...tjv->...tv", weights, gathered(value_sv))
        return _rows(top.rest, own) + _rows(top.mass, own) * best

    return over_query_chunks(of_queries, query, own[..., None], chunk=chunk)


def _rows(array: jax.Array, index: jax.Array) -> jax.Array:
    """Rows ``index [..., P]`` of ``array [..., S, K]``: ``[..., P, K]``."""
    return jnp.take_along_axis(array, index[..., None], axis=-2)
