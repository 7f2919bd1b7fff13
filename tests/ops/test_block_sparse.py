"""BigBird's random blocks: what is drawn, and that it does not depend on the length."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.block_sparse import (
    BlockPattern,
    block_sparse_attention,
    random_blocks,
)
from attnjax.types import Mask

PATTERN = BlockPattern(num_global=2, num_random=3, seed=7)


def test_no_block_is_drawn_twice_or_seen_already():
    chosen = random_blocks(100, PATTERN)
    for block, row in enumerate(chosen):
        drawn = row[row >= 0]
        assert len(set(drawn)) == len(drawn)
        assert block >= 2 or len(drawn) == 0, "global blocks see all anyway"
        assert np.all((drawn >= 2) & (drawn < 100) & (abs(drawn - block) > 1))
    assert (chosen[64:] >= 0).mean() > 0.6  # draws beyond the end are lost
    assert (chosen[8:64] >= 0).all()


def test_draw_is_the_same_for_ever():
    """A checkpoint depends on it; from the frozen generator, by hand."""
    drawn = np.random.RandomState([7, 5]).permutation(8)  # noqa: NPY002
    expected = [block for block in drawn if block in (2, 3, 7)]
    np.testing.assert_array_equal(random_blocks(8, PATTERN)[5], expected)
    other = BlockPattern(num_global=2, num_random=3, seed=8)
    assert np.any(random_blocks(50, PATTERN) != random_blocks(50, other))


@pytest.mark.parametrize("num_random", [1, 3, 40])
def test_draw_does_not_depend_on_the_length(num_random):
    pattern = BlockPattern(num_random=num_random)
    longest = random_blocks(90, pattern)
    for num_blocks in (1, 2, 5, 17, 64):
        for row, long_row in zip(
            random_blocks(num_blocks, pattern), longest, strict=False
        ):
            inside = long_row[(long_row >= 0) & (long_row < num_blocks)]
            np.testing.assert_array_equal(row[row >= 0], inside)


def test_sentence_alone_equals_itself_in_a_longer_batch():
    inputs = np.random.default_rng(0).normal(size=(3, 2, 141, 4)).astype(np.float32)
    attend = jax.jit(functools.partial(block_sparse_attention, block=5, num_random=3))
    valid = np.arange(141)[None] < 83
    padded = np.asarray(attend(*inputs, Mask(valid=valid)).context)
    alone = attend(*inputs[:, :, :83], Mask()).context
    np.testing.assert_allclose(padded[:, :83], alone, atol=1e-5)


@pytest.mark.parametrize("options", [{"block": 0}, {"num_random": -1}, {"seed": -1}])
def test_options_out_of_range_are_refused(options):
    x = jnp.zeros((3, 2))
    with pytest.raises(ValueError, match="must be"):
        block_sparse_attention(x, x, x, Mask(), **options)
