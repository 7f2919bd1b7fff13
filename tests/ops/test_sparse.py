"""Strided and fixed patterns: the limits of the paper, and the stride of a decoder."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.attend import dense_attention
from attnjax.ops.catalog import CATALOG
from attnjax.ops.entry import Sizes
from attnjax.ops.sparse import fixed_attention, strided_attention
from attnjax.types import Mask

dense = jax.jit(dense_attention)


@pytest.mark.parametrize(
    ("attend", "options"),
    [
        (strided_attention, {"stride": 1}),
        (strided_attention, {"stride": 50}),
        (fixed_attention, {"stride": 50}),
        (fixed_attention, {"stride": 3, "num_global": 3}),
    ],
)
def test_limits_equal_dense(attend, options):
    inputs = np.random.default_rng(0).normal(size=(3, 2, 13, 5)).astype(np.float32)
    run = jax.jit(functools.partial(attend, **options))
    for mask in (Mask(), Mask(causal=True)):
        got = run(*inputs, mask).context
        expected = dense(*inputs, mask).context
        np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["strided", "fixed"])
def test_stride_zero_is_that_of_the_layer_and_never_of_the_batch(name):
    line, sizes = CATALOG[name], Sizes(1, 2, 2, max_keys=500)
    assert line.chosen()["stride"] == 0
    assert line.chosen(sizes=sizes)["stride"] == 23
    x = jnp.zeros((1, 9, 2))
    with pytest.raises(ValueError, match="square root of max_positions"):
        line.bind()(x, x, x, Mask())
    with pytest.raises(ValueError, match="stride must be at least 1, got 0"):
        line.incremental.begin(1, 9, sizes, jnp.float32, **line.chosen())


def test_options_out_of_range_are_refused():
    x = jnp.zeros((3, 2))
    with pytest.raises(ValueError, match="stride must be at least 1"):
        strided_attention(x, x, x, Mask(), stride=-1)
    with pytest.raises(ValueError, match="num_global must be at least 0"):
        fixed_attention(x, x, x, Mask(), stride=2, num_global=-1)
