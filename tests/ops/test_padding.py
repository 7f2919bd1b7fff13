"""What follows from the number of real positions."""

import math

import jax.numpy as jnp
import numpy as np

from attnjax.ops.padding import (
    real_positions,
    root_above,
    roots_above,
    without_padding,
)
from attnjax.types import Mask


def test_roots_are_the_smallest_whose_square_is_enough():
    squares = np.arange(2, 4_000) ** 2
    counts = np.unique([*range(50), *squares - 1, *squares, *squares + 1])
    expected = [max(1, math.ceil(math.sqrt(int(count)))) for count in counts]
    np.testing.assert_array_equal(roots_above(jnp.asarray(counts)), expected)
    assert [root_above(int(count)) for count in counts] == expected


def test_padding_becomes_zero_for_every_head():
    mask = Mask(valid=jnp.asarray([[True, False], [True, True]])).over_heads()
    array = jnp.ones((2, 3, 2, 4), jnp.bfloat16)
    got = without_padding(array, mask)
    assert got.dtype == jnp.float32
    np.testing.assert_array_equal(got[:, :, :, 0], [[[1, 0]] * 3, [[1, 1]] * 3])
    np.testing.assert_array_equal(real_positions(mask, 2), mask.valid)
    np.testing.assert_array_equal(real_positions(Mask(), 2), [True, True])
