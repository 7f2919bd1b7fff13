"""BigBird's random blocks: what is drawn, and that it does not depend on the length."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.block_sparse import (
    BlockSparse,
    block_sparse_attention,
    random_blocks,
)
from attnjax.ops.relative import alibi
from attnjax.types import Mask

PATTERN = BlockSparse(num_global=2, num_random=3, seed=7)


def drawn(num_blocks, pattern=PATTERN, *, causal=False, own_blocks=None):
    """The drawn blocks of each block, of one sentence."""
    chosen = np.asarray(
        random_blocks(num_blocks, pattern, causal=causal, own_blocks=own_blocks)
    )
    return [{int(other) for other in row if other >= 0} for row in chosen]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("num_blocks", [1, 3, 5, 7, 8, 9, 60])
def test_every_block_draws_as_many_as_are_promised_where_they_exist(num_blocks, causal):
    chosen = random_blocks(num_blocks, PATTERN, causal=causal)
    for block, others in enumerate(drawn(num_blocks, causal=causal)):
        unseen = {
            other
            for other in range(2, block if causal else num_blocks)
            if abs(other - block) > 1 and block >= 2  # global blocks see all anyway
        }
        assert others <= unseen
        assert len(others) == min(3, len(unseen))
        assert (chosen[block] >= 0).sum() == len(others), "none is drawn twice"


def test_draws_are_even_over_all_blocks():
    """Each of the blocks that are not seen already, as often as any other."""
    counts = np.zeros((20, 20))
    for seed in range(400):
        pattern = BlockSparse(num_global=1, num_random=3, seed=seed)
        for block, others in enumerate(drawn(20, pattern)):
            counts[block, list(others)] += 1
    unseen = counts[9, [*range(1, 8), *range(11, 20)]]
    assert abs(unseen.mean() - 400 * 3 / 16) < 1e-6
    assert np.abs(unseen - unseen.mean()).max() < 4.5 * np.sqrt(unseen.mean())
    assert counts[9, [0, 8, 9, 10]].sum() == 0


def test_draw_is_the_same_for_ever():
    """A checkpoint depends on it."""
    assert drawn(12)[2:6] == [{8, 4, 5}, {8, 5, 7}, {8, 11, 6}, {11, 9, 3}]
    assert drawn(12, causal=True)[9:] == [{5, 6, 7}, {2, 3, 7}, {4, 6, 7}]
    other = BlockSparse(num_global=2, num_random=3, seed=8)
    assert drawn(50) != drawn(50, other)


@pytest.mark.parametrize("num_random", [1, 3, 40])
def test_draw_does_not_depend_on_padding(num_random):
    pattern = BlockSparse(num_random=num_random)
    own_blocks = np.array([1, 2, 5, 17, 64])
    padded = np.asarray(random_blocks(90, pattern, causal=False, own_blocks=own_blocks))
    for row, length in zip(padded, own_blocks, strict=True):
        alone = random_blocks(int(length), pattern, causal=False)
        # Draws that find nothing at this length come first, and are left out.
        found = row[:length, -alone.shape[1] :]
        np.testing.assert_array_equal(found, alone)
    longest, shorter = (random_blocks(n, pattern, causal=True) for n in (90, 17))
    np.testing.assert_array_equal(longest[:17, -shorter.shape[1] :], shorter)


@pytest.mark.parametrize("bias_heads", [None, 2])
def test_sentences_alone_equal_themselves_in_a_padded_batch(bias_heads):
    """Each has places of its own, in every head too where the facts say so."""
    inputs = np.random.default_rng(0).normal(size=(3, 2, 2, 141, 4)).astype(np.float32)
    bias = bias_heads and alibi(bias_heads)
    attend = functools.partial(block_sparse_attention, block=5, num_random=3, bias=bias)
    lengths = np.array([[83, 83], [141, 62]])
    valid = np.arange(141)[None, None] < lengths[..., None]
    padded = np.asarray(jax.jit(attend)(*inputs, Mask(valid=valid)).context)
    for row, length in ((0, 83), (1, 62)):
        alone = jax.jit(attend)(*inputs[:, row : row + 1, :, :length], Mask()).context
        np.testing.assert_allclose(
            padded[row, 1, :length], np.asarray(alone)[0, 1], atol=1e-5
        )


@pytest.mark.parametrize("options", [{"block": 0}, {"num_random": -1}, {"seed": -1}])
def test_options_out_of_range_are_refused(options):
    x = jnp.zeros((3, 2))
    with pytest.raises(ValueError, match="must be"):
        block_sparse_attention(x, x, x, Mask(), **options)
