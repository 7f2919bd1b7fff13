"""BigBird attention: blocks see their neighbours, global blocks and random ones."""

from __future__ import annotations

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np

from attnjax.ops.blocks import (
    SMALLEST_BLOCK,
    Side,
    cut,
    first,
    neighbours,
    pick,
    sides,
)
from attnjax.ops.masks import refuse
from attnjax.ops.parts import Part, Rule, attend_all, attend_blocks, mean, union
from attnjax.ops.relative import Bias
from attnjax.types import Array, Attended, Mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockPattern:
    """Which blocks see each other.

    Attributes:
        block: positions of a block.
        num_global: first blocks that see all and are seen by all.
        num_random: random blocks that each other block sees.
        seed: of their choice.

    Raises:
        ValueError: if a number is too small, or the seed has more than 32 bits.
    """

    block: int = 64
    num_global: int = 1
    num_random: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.block < 1 or min(self.num_global, self.num_random) < 0:
            raise ValueError(
                "block must be at least 1, num_global and num_random at least 0, got "
                f"{self}."
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be in [0, 2^32), got {self.seed}.")


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

    The paper draws from all blocks of a fixed length, here see `random_blocks`. All
    heads share the draw. A causal mask hides what is later in any of the blocks.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., T, K]``.
        value: ``[..., T, V]``.
        mask: which query may attend to which key; valid, causal and window are
            honoured.
        bias: added to the scores, a function of the offset of key from query.
        **options: of `BlockPattern`. With a block, or global blocks, of ``T`` positions
            this is dense attention.

    Returns:
        Context ``[..., T, V]``; no weights.

    Raises:
        ValueError: if an option is out of its range, the mask has segments, or there
            are not as many queries as keys.
    """
    pattern = BlockPattern(**options)
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
    chosen = random_blocks(-(-length // block), pattern)
    if (chosen >= 0).any():
        random_keys = pick(cut(keys, block), chosen)
        parts.append(attend_blocks(queries, random_keys, block, everything))
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
    """Whether a query sees a key.

    Args:
        query_position: ``[..., 1]`` int.
        key_position: ``[..., S]`` int, all positions from 0 on.
        **options: of `BlockPattern`.

    Returns:
        Bool ``[..., S]``.
    """
    pattern = BlockPattern(**options)
    query_block = query_position // pattern.block
    key_block = key_position // pattern.block
    near = jnp.abs(key_block - query_block) <= 1
    of_global = jnp.minimum(key_block, query_block) < pattern.num_global
    num_blocks = -(-key_position.shape[-1] // pattern.block)
    chosen = jnp.asarray(random_blocks(num_blocks, pattern))[query_block]
    return near | of_global | (chosen == key_block[..., None]).any(axis=-1)


@functools.lru_cache(maxsize=64)
def random_blocks(num_blocks: int, pattern: BlockPattern) -> np.ndarray:
    """The random blocks that each block sees, none of them seen already.

    Block ``i`` draws from the first ``2^p`` blocks, the least power of two above ``i``,
    and what it draws beyond the end of the sequence is lost. So a sentence has the same
    pattern alone and in a longer, padded batch, and while it is decoded step by step.

    Args:
        num_blocks: of the sequence.
        pattern: how many to draw, and the seed.

    Returns:
        ``[num_blocks, picks]`` int, -1 where there is none to draw.
    """
    picks = min(pattern.num_random, num_blocks)
    chosen = np.full((num_blocks, picks), -1, np.int32)
    for block in range(pattern.num_global, num_blocks):
        # The stream of the old generator is frozen: a checkpoint keeps its pattern.
        generator = np.random.RandomState([pattern.seed, block])
        drawn = generator.permutation(1 << block.bit_length())
        is_new = (drawn >= pattern.num_global) & (abs(drawn - block) > 1)
        drawn = drawn[is_new][: pattern.num_random]
        drawn = drawn[drawn < num_blocks]
        chosen[block, : len(drawn)] = drawn
    chosen.flags.writeable = False
    return chosen


def _attend_neighbours(
    queries: Side, keys: Side, pattern: BlockPattern, rule: Rule
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
