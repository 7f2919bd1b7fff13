"""Strided and fixed patterns: the limits of the paper, and the stride of a decoder."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.attend import dense_attention
from attnjax.ops.catalog import CATALOG
from attnjax.ops.entry import Sizes
from attnjax.ops.sparse import fixed_attention, strided_attention
from attnjax.types import Mask


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
    inputs = [jax.random.normal(jax.random.key(i), (2, 13, 5)) for i in range(3)]
    for mask in (Mask(), Mask(causal=True)):
        got = attend(*inputs, mask, **options).context
        expected = dense_attention(*inputs, mask).context
        np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["strided", "fixed"])
def test_a_decoder_needs_a_stride_of_its_own(name):
    options = {"stride": 0, "num_global": 1}
    with pytest.raises(ValueError, match="give the stride that training"):
        CATALOG[name].incremental.begin(1, 9, Sizes(1, 2, 2, 9), jnp.float32, **options)


def test_options_out_of_range_are_refused():
    x = jnp.zeros((3, 2))
    with pytest.raises(ValueError, match="stride must be at least 0"):
        strided_attention(x, x, x, Mask(), stride=-1)
    with pytest.raises(ValueError, match="num_global must be at least 0"):
        fixed_attention(x, x, x, Mask(), num_global=-1)
