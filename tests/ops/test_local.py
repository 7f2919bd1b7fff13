"""Sliding window: packed sentences of any length, facts of a mask, options."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.local import reach, sliding_window_attention
from attnjax.types import Mask


@pytest.mark.parametrize("dilation", [1, 3])
def test_packed_sentences_across_blocks_equal_themselves_alone(dilation):
    length, border = 150, 83
    inputs = [jax.random.normal(jax.random.key(i), (length, 4)) for i in range(3)]
    segments = jnp.where(jnp.arange(length) < border, 1, 2)
    attend = jax.jit(
        lambda *x: sliding_window_attention(*x, window=6, dilation=dilation).context
    )
    packed = attend(*inputs, Mask(query_segments=segments, key_segments=segments))
    for start, stop in ((0, border), (border, length)):
        alone = attend(*(x[start:stop] for x in inputs), Mask())
        np.testing.assert_allclose(packed[start:stop], alone, atol=1e-5)


def test_no_block_is_read_that_the_mask_forbids():
    assert reach(Mask(), 6) == (6, 6)
    assert reach(Mask(causal=True), 6) == (6, 0)
    assert reach(Mask(window=(2, 9)), 6) == (2, 6)
    assert reach(Mask(causal=True, window=(7, 9)), 6, dilation=2) == (3, 0)


def test_options_out_of_range_are_refused():
    x = jnp.zeros((3, 2))
    for options in ({"window": 0}, {"dilation": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            sliding_window_attention(x, x, x, Mask(), **options)
