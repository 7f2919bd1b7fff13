"""BigBird attention: blocks see their neighbours, global blocks and random ones."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from attnjax.fields import Options, Seed, Units, UnitsOrZero
from attnjax.ops.blocks import (
    FILLED,
    SMALLEST_BLOCK,
    Side,
    cut,
    first,
    neighbours,
    pick,
    sides,
)
from attnjax.ops.door import door
from attnjax.ops.masks import refuse, with_rank
from attnjax.ops.parts import Part, Rule, attend_all, attend_blocks, mean, union
from attnjax.ops.relative import Bias
from attnjax.types import Array, Attended, Mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockSparse(Options):
    """Blocks that see their neighbours, global blocks and random ones."""

    block: Units = 64  # positions that are kept or left out together
    num_global: UnitsOrZero = 1  # first blocks that see all and are seen by all
    num_random: UnitsOrZero = 2  # random blocks that each other block sees
    seed: Seed = 0  # seed of their choice


@door
def block_sparse_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    bias: Bias | None = None,
    **options: int,
) -> Attended:
    """Attention of blocks to their neighbours, to global blocks and to random ones.

    The positions of a block see those of a block before, their own and one behind, of
    the first ``num_global`` blocks and of ``num_random`` blocks that are drawn by the
    seed; the global blocks see everything (Zaheer et al. 2020, "Big Bird", section 2,
    internal transformer construction). One softmax over all of them, and no key counts
    twice. Time and memory ``O(n · block · (3 + num_global + num_random))``.

    The paper draws from all blocks of a fixed length, here `random_blocks` draws from
    those of each sentence. All heads share the draw. A causal mask hides what is later
    in any of the blocks.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., T, K]``.
        value: ``[..., T, V]``.
        mask: which query may attend to which key; valid, causal and window are
            honoured.
        bias: added to the scores, a function of the offset of key from query.
        **options: of `BlockSparse`. With a block, or global blocks, of ``T`` positions
            this is dense attention.

    Returns:
        Context ``[..., T, V]``; no weights.

    Raises:
        ValueError: if an option is out of its range, the mask has segments, or there
            are not as many queries as keys.
    """
    pattern = BlockSparse(**options)
    refuse(
        mask,
        "block_sparse",
        segments="its blocks count from the start of the row, and a packed sentence "
        "would be cut elsewhere than alone; use sliding_window, or do not pack",
    )
    length, block = query.shape[-2], pattern.block
    queries, keys = sides(query, key, value, mask, "block_sparse")
    everything = Rule(mask, None, bias)
    parts = [_attend_neighbours(queries, keys, pattern, everything)]
    num_blocks = -(-length // block)
    # Of fewer blocks, each is a global one, a neighbour or the block itself.
    if pattern.num_random and num_blocks > pattern.num_global + 2:
        parts.append(_attend_random(queries, keys, pattern, everything))
    count = min(pattern.num_global * block, length)
    if count == 0:
        return Attended(mean(union(*parts), value.dtype), None)
    parts.append(attend_all(queries, first(keys, count), everything))
    rows = attend_all(first(queries, count), keys, everything)
    others = mean(union(*parts), value.dtype)[..., count:, :]
    return Attended(jnp.concatenate([mean(rows, value.dtype), others], axis=-2), None)


def block_sparse_pattern(
    query_position: Array, key_position: Array, **options: int
) -> Array:
    """Whether a query sees a key under a causal mask.

    Args:
        query_position: ``[..., 1]`` int.
        key_position: ``[..., S]`` int, all positions from 0 on.
        **options: of `BlockSparse`.

    Returns:
        Bool ``[..., S]``; of later keys, too, which the mask forbids.
    """
    pattern = BlockSparse(**options)
    query_block = query_position // pattern.block
    key_block = key_position // pattern.block
    near = jnp.abs(key_block - query_block) <= 1
    of_global = jnp.minimum(key_block, query_block) < pattern.num_global
    num_blocks = -(-key_position.shape[-1] // pattern.block)
    chosen = random_blocks(num_blocks, pattern, causal=True)[query_block]
    return near | of_global | (chosen == key_block[..., None]).any(axis=-1)


def random_blocks(
    num_blocks: int,
    pattern: BlockSparse,
    *,
    causal: bool,
    own_blocks: Array | None = None,
) -> jax.Array:
    """The random blocks that each block sees, none of them seen already.

    A block draws from all blocks of its own sentence, or under a causal mask from the
    earlier ones, each set of ``num_random`` alike likely (Floyd's algorithm, Bentley
    and Floyd 1987); where there are fewer it takes them all. The draw depends on seed,
    block and number of candidates: not on padding, nor on what is yet to be decoded.

    Args:
        num_blocks: of the longest sentence.
        pattern: how many to draw, and the seed.
        causal: whether later blocks are out of sight.
        own_blocks: ``[...]`` int, of each sentence; None if all are the longest.

    Returns:
        ``[..., num_blocks, draws]`` int, up to num_random draws, -1 where there is none
        to draw.
    """
    end = jnp.full((1,), num_blocks) if own_blocks is None else own_blocks[..., None]
    block = with_rank(jnp.arange(num_blocks), end.ndim)
    if causal:
        end = jnp.minimum(end, block - 1)
    start = pattern.num_global
    end = jnp.maximum(end, start)
    near_start = jnp.clip(block - 1, start, end)
    num_near = jnp.clip(block + 2, start, end) - near_start
    num_candidates = end - start - num_near
    # With more draws than blocks, the first ones find nothing.
    turns = range(max(pattern.num_random - num_blocks, 0), pattern.num_random)
    picks: list[jax.Array] = []
    for turn in turns:
        last = num_candidates - pattern.num_random + turn
        word = with_rank(_random_words(num_blocks, pattern.seed, turn), last.ndim)
        drawn = (word % (jnp.maximum(last, 0) + 1).astype(jnp.uint32)).astype(jnp.int32)
        for earlier in picks:
            drawn = jnp.where(earlier == drawn, last, drawn)
        picks.append(jnp.where(last >= 0, drawn, FILLED))
    if not picks:
        return jnp.zeros((*end.shape[:-1], num_blocks, 0), jnp.int32)
    chosen = jnp.stack(picks, axis=-1)
    exists = (chosen >= 0) & (block >= start)[..., None]
    chosen = chosen + start
    skipped = jnp.where(chosen >= near_start[..., None], num_near[..., None], 0)
    return jnp.where(exists, chosen + skipped, FILLED)


def _random_words(num_blocks: int, seed: int, turn: int) -> jax.Array:
    """A random word for one draw of each block ``[num_blocks]``, the same for ever.

    A hash of seed, block and turn (lowbias32, see `attnjax.ops.dropout`): a checkpoint
    depends on the pattern, so it must not change with a library's generator.
    """
    word: np.ndarray = np.full(num_blocks, seed, np.uint32)
    for more in (np.arange(num_blocks, dtype=np.uint32), np.uint32(turn)):
        word = word ^ more
        word = (word ^ (word >> 16)) * np.uint32(0x7FEB352D)
        word = (word ^ (word >> 15)) * np.uint32(0x846CA68B)
        word = word ^ (word >> 16)
    return jnp.asarray(word)


def _own_blocks(mask: Mask, block: int) -> jax.Array | None:
    """How many blocks each sentence has, by its last real position."""
    if mask.valid is None:
        return None
    place = with_rank(jnp.arange(1, mask.valid.shape[-1] + 1), mask.valid.ndim)
    length = jnp.where(mask.valid, place, 0).max(axis=-1)
    return -(-length // block)


def _attend_random(queries: Side, keys: Side, pattern: BlockSparse, rule: Rule) -> Part:
    """The drawn blocks of each block."""
    key_blocks, causal = cut(keys, pattern.block), rule.mask.causal
    own_blocks = None if causal else _own_blocks(rule.mask, pattern.block)
    num_blocks = key_blocks.position.shape[0]
    chosen = random_blocks(num_blocks, pattern, causal=causal, own_blocks=own_blocks)
    return attend_blocks(queries, pick(key_blocks, chosen), pattern.block, rule)


def _attend_neighbours(
    queries: Side, keys: Side, pattern: BlockSparse, rule: Rule
) -> Part:
    """The blocks beside each block and itself, without the global ones."""

    def neighbour(query_position: Array, key_position: Array) -> Array:
        query_block = query_position // pattern.block
        key_block = key_position // pattern.block
        near = jnp.abs(key_block - query_block) <= 1
        return near & (key_block >= pattern.num_global)

    length = queries.position.shape[0]
    # Small blocks are scored several at once; their neighbours lie one such group away.
    size = min(length, pattern.block * -(-SMALLEST_BLOCK // pattern.block))
    left, right = (1, 0 if rule.mask.causal else 1) if size < length else (0, 0)
    near_keys = neighbours(cut(keys, size), left, right)
    return attend_blocks(queries, near_keys, size, rule._replace(pattern=neighbour))
