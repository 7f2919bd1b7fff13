"""Every mechanism of the catalog inside Flax's multi-head attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from attnjax.interop.flax_attention import flax_attention_fn
from attnjax.ops.catalog import CATALOG
from attnjax.ops.entry import Sizes
from attnjax.types import Mask

B, H, T, D = 2, 3, 7, 24
OPTIONS = {
    **{"window": 2, "dilation": 1, "block": 2, "num_global": 1, "num_random": 1},
    **{"rank": 3, "stride": 2, "chunk": 3, "clusters": 2, "top_k": 2, "rounds": 2},
    **{"features": 8, "rows": 2, "redraw_every": 2, "seed": 0, "temperature": 1.0},
    "attend_to_self": False,
}


@pytest.mark.parametrize("name", CATALOG)
def test_every_mechanism_runs_inside_flax_and_honours_its_mask(name):
    line = CATALOG[name]
    options = line.chosen(OPTIONS)
    arrays = line.draw(jax.random.key(1), Sizes(H, D // H, D // H, T), options)
    valid = jnp.arange(T)[None, :] < jnp.array([[T], [4], [4]])
    function = flax_attention_fn(name, Mask(valid=valid), arrays=arrays, **options)
    layer = nn.MultiHeadDotProductAttention(num_heads=H, attention_fn=function)
    x = jax.random.normal(jax.random.key(0), (B, T, D))
    # Row 2 is row 1 but for its pads.
    x = jnp.concatenate([x, x[1:].at[:, 4:].set(9.0)])
    with jax.numpy_rank_promotion("allow"):
        run = jax.jit(layer.init_with_output)
        output = jax.device_get(run(jax.random.key(2), x)[0])
    assert output.shape == (3, T, D)
    assert np.abs(output[0, :4] - output[1, :4]).max() > 1e-3
    np.testing.assert_allclose(output[1, :4], output[2, :4], atol=1e-5)


def test_dense_equals_what_flax_computes():
    x = jax.random.normal(jax.random.key(0), (B, T, D))
    ours = nn.MultiHeadDotProductAttention(
        num_heads=H, attention_fn=flax_attention_fn("dense", Mask(causal=True))
    )
    theirs = nn.MultiHeadDotProductAttention(num_heads=H)
    with jax.numpy_rank_promotion("allow"):
        variables = theirs.init(jax.random.key(2), x)
        expected = theirs.apply(variables, x, mask=nn.make_causal_mask(x[..., 0]))
        np.testing.assert_allclose(ours.apply(variables, x), expected, atol=1e-5)


def test_an_array_mask_and_dropout_are_refused():
    x = jnp.ones((B, T, D))
    function = flax_attention_fn("chunked", chunk=3)
    layer = nn.MultiHeadDotProductAttention(num_heads=H, attention_fn=function)
    with pytest.raises(ValueError, match="takes mask facts, not an n x n mask"):
        layer.init(jax.random.key(0), x, mask=jnp.ones((B, H, T, T), bool))
    noisy = nn.MultiHeadDotProductAttention(
        num_heads=H, attention_fn=function, dropout_rate=0.1, deterministic=False
    )
    with pytest.raises(ValueError, match="no dropout on its weights"):
        noisy.init(jax.random.key(0), x)


def test_options_are_checked():
    with pytest.raises(ValueError, match="missing: chunk, unknown: chunks"):
        flax_attention_fn("chunked", chunks=3)
