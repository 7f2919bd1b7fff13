"""LSH attention: each query reads the keys that share a hash bucket with it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.fields import Options, Seed, Units, UnitsOrZero
from attnjax.ops import cache
from attnjax.ops.attend import attend
from attnjax.ops.door import door
from attnjax.ops.entry import Incremental, Sizes
from attnjax.ops.masks import (
    all_of,
    allowed_at,
    leading_shape,
    refuse,
    require_self,
    with_rank,
)
from attnjax.ops.padding import real_positions, root_above, roots_above
from attnjax.ops.parts import Part, mean, union
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.types import Array, Attended, Mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class LSH(Options):
    """Attention among the positions that share a hash bucket."""

    block: Units = 64  # positions of a bucket that see each other, and the block before
    # buckets, 1 or even; 0: about the square root of each sentence's own length
    clusters: UnitsOrZero = 0
    rounds: Units = 2  # independent hashes
    seed: Seed = 0  # seed of the hashes
    attend_to_self: bool = False  # whether a query reads itself beside other keys


class _Layout(NamedTuple):
    """One round's buckets cut into blocks, of one sequence of n positions.

    Attributes:
        token: ``[blocks, block]`` int, the position at each place; n where none is.
        place: ``[n]`` int, the inverse; ``blocks * block`` for masked positions.
        code: ``[n]`` int; a query sees a key if its code is the same or one more.
    """

    token: jax.Array
    place: jax.Array
    code: jax.Array


@door
def lsh_attention(
    query: Array, key: Array, value: Array, mask: Mask, **options: Any
) -> Attended:
    """Softmax attention over the keys that share a bucket in at least one round.

    Positions are hashed by the direction of their query: the bucket is the largest of
    ``[x R; -x R]`` for random ``R``. In each round the positions of a bucket, in order,
    are cut into blocks; a query sees its own block and the one before. The rounds are
    joined by their log-sum-exp, each score less ``log N`` for a key seen in N rounds,
    so that the result is the exact softmax over all keys that any round shows. A query
    reads its own position only if it sees no other. Masked positions are in no bucket:
    they are not read, and their own context is 0.

    Source: Kitaev et al. 2020, "Reformer", section 2, eq. 3-4 and appendix A. As there,
    the hash is that of queries, and keys should be queries brought to one length. There
    blocks are cut from the whole sorted sequence; here from each bucket, so that later
    positions move no border and a causal mask holds exactly.

    Args:
        query: ``[..., n, K]``.
        key: ``[..., n, K]``.
        value: ``[..., n, V]``.
        mask: ``valid``, ``causal`` and ``window`` are honoured.
        **options: see `LSH`. With a causal mask the number of buckets must be
            given: no position knows how long its sentence will be.

    Returns:
        Context ``[..., n, V]``; no weights.

    Raises:
        ValueError: if lengths differ, the mask has segments, an option is too small, or
            ``clusters`` is 0 under a causal mask.
    """
    hashing, length = _checked(LSH(**options), mask.causal), query.shape[-2]
    require_self(length, key.shape[-2], "lsh attention")
    refuse(
        mask,
        "lsh attention",
        segments="blocks of a bucket would be cut elsewhere than in each sentence "
        "alone; do not pack, or use dense, chunked or sliding_window attention",
    )
    leading = leading_shape(query, key, value)
    valid = with_rank(real_positions(mask, length), len(leading) + 1)
    bucket = buckets(query, hashing, valid.sum(-1))
    hashing = dataclasses.replace(
        hashing,
        block=min(hashing.block, length),
        clusters=hashing.clusters or 2 * _half_of_root(length),
    )

    def attend_row(*row: jax.Array) -> jax.Array:
        return _attend_row(*row, mask=mask, hashing=hashing)

    context = jax.vmap(attend_row)(
        *(_rows(array, leading) for array in (query, key, value)),
        _rows(valid, leading, 1),
        _rows(bucket, leading),
    )
    context = context.reshape(*leading, length, value.shape[-1])
    return Attended(context.astype(value.dtype), None)


def buckets(query: Array, hashing: LSH, lengths: Array) -> jax.Array:
    """The bucket of each position in each round, by the direction of its query.

    Args:
        query: ``[..., n, K]``.
        hashing: with 0 clusters, their number follows from the lengths.
        lengths: ``[...]`` int, the real positions of each sentence.

    Returns:
        ``[..., rounds, n]`` int in ``[0, clusters)``; the same seed, the same buckets.
    """
    *leading, length, width = query.shape
    if hashing.clusters == 1:
        return jnp.zeros((*leading, hashing.rounds, length), jnp.int32)
    rng = jax.random.key(hashing.seed)
    if hashing.clusters:
        half = hashing.clusters // 2
        rotations = jax.random.normal(rng, (hashing.rounds, width, half))
        is_open: Array = jnp.ones((half,), bool)
    else:
        half = _half_of_root(length)
        # Each direction from a key of its own: few are the first ones of many.
        draw = jax.vmap(
            lambda one: jax.random.normal(
                jax.random.fold_in(rng, one), (hashing.rounds, width)
            )
        )
        rotations = jnp.moveaxis(draw(jnp.arange(half)), 0, -1)
        own_half = jnp.maximum(roots_above(lengths) // 2, 1)[..., None, None]
        is_open = with_rank(jnp.arange(half), own_half.ndim) < own_half
    query = lax.stop_gradient(query.astype(jnp.float32))

    def of_round(rotation: jax.Array) -> jax.Array:
        turned = jnp.einsum("...tk,kc->...tc", query, rotation)
        open_ = with_rank(is_open, turned.ndim)
        highest = jnp.where(open_, turned, -jnp.inf)
        lowest = jnp.where(open_, turned, jnp.inf)
        is_positive = highest.max(-1) >= -lowest.min(-1)
        return jnp.where(is_positive, highest.argmax(-1), lowest.argmin(-1) + half)

    return jnp.moveaxis(lax.map(of_round, rotations), 0, -2)


def _attend_row(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    valid: jax.Array,
    bucket: jax.Array,
    *,
    mask: Mask,
    hashing: LSH,
) -> jax.Array:
    """Context ``[n, V]`` of one sequence; arrays ``[n, *]``, bucket ``[rounds, n]``."""
    query = query.astype(jnp.float32) * query.shape[-1] ** -0.5
    arrays = (query, key.astype(jnp.float32), value.astype(jnp.float32))
    layouts = jax.vmap(functools.partial(_layout, valid=valid, hashing=hashing))(bucket)
    start = Part(
        jnp.full(valid.shape, -jnp.inf, jnp.float32),
        jnp.zeros(valid.shape, jnp.float32),
        jnp.zeros(value.shape, jnp.float32),
    )

    @jax.checkpoint
    def of_round(part: Part, layout: _Layout) -> tuple[Part, None]:
        seen = _pairs_seen(layout, layouts.code, mask, hashing)
        return union(part, _of_one_round(arrays, layout, *seen)), None

    part, _ = lax.scan(of_round, start, layouts)
    sees_none = (part.total == 0.0) & valid
    return jnp.where(sees_none[:, None], arrays[2], mean(part, jnp.float32))


def _layout(bucket: jax.Array, valid: jax.Array, hashing: LSH) -> _Layout:
    """Sorts one sequence by bucket and position, each bucket from a new block on."""
    length, block, clusters = bucket.shape[0], hashing.block, hashing.clusters
    bucket = jnp.where(valid, bucket, clusters)
    order = jnp.argsort(bucket, stable=True)
    bucket = bucket[order]
    index = jnp.arange(length)
    starts = jnp.concatenate([jnp.ones(1, bool), bucket[1:] != bucket[:-1]])
    rank = index - lax.cummax(jnp.where(starts, index, 0))
    place = (jnp.cumsum(rank % block == 0) - 1) * block + rank % block
    num_blocks = min(length, length // block + clusters)
    place = jnp.where(bucket < clusters, place, num_blocks * block)
    token = jnp.full(num_blocks * block, length).at[place].set(order, mode="drop")
    code = bucket * _blocks_apart(length, block) + rank // block
    return _Layout(
        token.reshape(num_blocks, block),
        jnp.zeros_like(place).at[order].set(place),
        jnp.zeros_like(code).at[order].set(code),
    )


def _pairs_seen(
    layout: _Layout, codes: jax.Array, mask: Mask, hashing: LSH
) -> tuple[jax.Array, jax.Array]:
    """Which of ``[blocks, block, 2 block]`` pairs are allowed, in how many rounds."""
    length = codes.shape[1]
    others = _with_previous(layout.token, length)
    offset = others[:, None, :] - layout.token[:, :, None]
    num_rounds = jnp.zeros(offset.shape, jnp.int32)
    for code in codes:
        ahead = _take(code, layout.token)[:, :, None] - _take(code, others)[:, None, :]
        num_rounds += (ahead == 0) | (ahead == 1)
    ahead = (
        _take(layout.code, layout.token)[:, :, None]
        - _take(layout.code, others)[:, None, :]
    )
    facts = [
        ((ahead == 0) | (ahead == 1)) & (others < length)[:, None, :],
        allowed_at(mask, offset, None, (None, None)),
        None if hashing.attend_to_self else offset != 0,
    ]
    allowed = all_of([fact for fact in facts if fact is not None])
    return jnp.asarray(allowed), num_rounds


def _of_one_round(
    arrays: tuple[jax.Array, ...],
    layout: _Layout,
    allowed: jax.Array,
    num_rounds: jax.Array,
) -> Part:
    """The keys of one round, each counted by its share of the rounds that show it."""
    query, key, value = (_take(array, layout.token) for array in arrays)
    key, value = _with_previous(key, 0), _with_previous(value, 0)
    scores = jnp.einsum("...tk,...sk->...ts", query, key)
    scores = scores - jnp.log(jnp.maximum(num_rounds, 1).astype(jnp.float32))
    scores = jnp.where(allowed, scores, -jnp.inf)
    highest = lax.stop_gradient(scores.max(axis=-1))
    base = jnp.where(jnp.isneginf(highest), 0.0, highest)
    weights = jnp.exp(scores - base[..., None])
    context = jnp.einsum("...ts,...sv->...tv", weights, value)

    def in_order(array: jax.Array, fill: float) -> jax.Array:
        return _take(array.reshape(-1, *array.shape[2:]), layout.place, fill)

    return Part(
        in_order(highest, -jnp.inf),
        in_order(weights.sum(-1), 0.0),
        in_order(context, 0.0),
    )


class HashedCache(NamedTuple):
    """Keys, values and codes of the positions so far; see `_Layout` for codes.

    Attributes:
        key: ``[B, H, S, K]``.
        value: ``[B, H, S, V]``.
        code: ``[B, H, S, rounds]`` int.
    """

    key: Array
    value: Array
    code: Array


def _begin(
    batch_size: int, max_tokens: int, sizes: Sizes, dtype: Any, **options: Any
) -> HashedCache:
    """An empty cache; see `Incremental`."""
    hashing = _checked(LSH(**options), True)
    shape = (batch_size, sizes.num_heads, max_tokens, hashing.rounds)
    past = cache.begin(batch_size, max_tokens, sizes, dtype)
    return HashedCache(*past, jnp.zeros(shape, jnp.int32))


def _step(
    query: Array,
    key: Array,
    value: Array,
    past: HashedCache,
    position: Array,
    **options: Any,
) -> tuple[jax.Array, HashedCache]:
    """Softmax over the earlier keys of the own buckets; see `Incremental`."""
    max_tokens = past.key.shape[2]
    hashing = _checked(LSH(**options), True)
    apart = _blocks_apart(max_tokens, hashing.block)
    bucket = buckets(query, hashing, jnp.ones((1, 1), int))
    bucket = jnp.moveaxis(bucket, -2, -1)  # [B, H, 1, rounds]
    slot = jnp.arange(max_tokens)[None, :]
    is_earlier = (slot < position[:, None])[:, None, :, None]
    rank = ((past.code // apart == bucket) & is_earlier).sum(2, keepdims=True)
    code = bucket * apart + rank // hashing.block
    ahead = code - past.code
    seen = (((ahead == 0) | (ahead == 1)) & is_earlier).any(-1)
    itself = (slot == position[:, None])[:, None, :]
    is_alone = ~seen.any(-1, keepdims=True)
    seen = seen | (itself & (hashing.attend_to_self | is_alone))
    past = HashedCache(
        cache.write(past.key, key, position),
        cache.write(past.value, value, position),
        cache.write(past.code, code, position),
    )
    scores = scaled_dot_scores(query.astype(jnp.float32), past.key.astype(jnp.float32))
    return jnp.asarray(attend(scores, past.value, Mask(valid=seen)).context), past


INCREMENTAL = Incremental(_begin, _step, "n")


def _checked(hashing: LSH, causal: bool) -> LSH:
    if hashing.clusters > 1 and hashing.clusters % 2:
        raise ValueError(
            "clusters must be 0, 1 or even, as each direction and its opposite are "
            f"buckets, got {hashing.clusters}; use {hashing.clusters + 1}."
        )
    if causal and hashing.clusters == 0:
        raise ValueError(
            "clusters 0 takes about the square root of a sentence's length, which a "
            "causal mechanism does not know beforehand; give an even number of buckets."
        )
    return hashing


def _half_of_root(length: int) -> int:
    """Half of the buckets of the longest sentence."""
    return max(root_above(length) // 2, 1)


def _blocks_apart(length: int, block: int) -> int:
    """So far apart are the codes of buckets that no code is one below another's."""
    return -(-length // block) + 1


def _rows(array: Array, leading: tuple[int, ...], rank: int = 2) -> jax.Array:
    """Broadcasts the leading axes and flattens them into one."""
    array = with_rank(array, len(leading) + rank)
    array = jnp.broadcast_to(array, (*leading, *array.shape[-rank:]))
    return array.reshape(-1, *array.shape[-rank:])


def _with_previous(blocks: jax.Array, fill: float) -> jax.Array:
    """``[blocks, block, ...]`` to ``[blocks, 2 block, ...]``, before it the last."""
    before = jnp.concatenate([jnp.full_like(blocks[:1], fill), blocks[:-1]])
    return jnp.concatenate([before, blocks], axis=1)


def _take(array: jax.Array, index: jax.Array, fill: float = 0) -> jax.Array:
    """Rows of an array; `fill` where the index lies beyond the end."""
    return jnp.take(array, index, axis=0, mode="fill", fill_value=fill)
