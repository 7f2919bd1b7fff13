"""Every mechanism of the catalog inside Flax's multi-head attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from attnjax.interop.flax_attention import flax_attention_fn
from attnjax.ops.catalog import CATALOG, MECHANISMS
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
    chosen = MECHANISMS.fill(name, OPTIONS)
    arrays = line.draw(jax.random.key(1), Sizes(H, D // H, D // H, T), chosen)
    options = line.chosen(chosen)
    valid = jnp.arange(T)[None, :] < jnp.array([[T], [4], [4]])
    function = flax_attention_fn(name, Mask(valid=valid), arrays=arrays, **options)
    layer = nn.MultiHeadDotProductAttention(num_heads=H, attention_fn=function)
    x = jax.random.normal(jax.random.key(0), (B, T, D))
    # Row 2 is row 1 but for its pads.
    x = jnp.concatenate([x, x[1:].at[:, 4:].set(9.0)])
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


def flax_layer(name="dense", facts=None, **fields):
    options = fields.pop("options", {})
    function = flax_attention_fn(name, facts, **options)
    return nn.MultiHeadDotProductAttention(num_heads=H, attention_fn=function, **fields)


def test_an_array_mask_and_dropout_are_refused():
    x = jnp.ones((B, T, D))
    with pytest.raises(ValueError, match="takes mask facts, not an n x n mask"):
        flax_layer("chunked").init(
            jax.random.key(0), x, mask=jnp.ones((B, H, T, T), bool)
        )
    noisy = flax_layer("chunked", dropout_rate=0.1, deterministic=False)
    with pytest.raises(ValueError, match="no dropout on its weights"):
        noisy.init(jax.random.key(0), x)


def test_options_are_checked_and_have_the_defaults_of_the_config():
    with pytest.raises(ValueError, match="chunks has no effect.*there is none; kind"):
        flax_attention_fn("chunked", chunks=3)
    with pytest.raises(ValueError, match="chunk must be positive|chunk.*0"):
        flax_attention_fn("chunked", chunk=0)
    with pytest.raises(ValueError, match=r"needs projection; .*Entry.draw makes them"):
        flax_attention_fn("favor")(*[jnp.ones((B, T, H, 4))] * 3)
    query, key, value = jax.random.normal(jax.random.key(0), (3, 1, 60, H, 4))
    default = flax_attention_fn("strided")(query, key, value)
    # The root of 512 positions, whatever the length here.
    given = flax_attention_fn("strided", stride=23)(query, key, value)
    np.testing.assert_array_equal(default, given)


@pytest.fixture(scope="module")
def x():
    return jax.random.normal(jax.random.key(0), (B, T, D))


@pytest.fixture(scope="module", autouse=True)
def flax_promotes_ranks():
    with jax.numpy_rank_promotion("allow"):
        yield


def test_dense_takes_the_masks_that_flax_makes(x):
    """Of floats, as its makers give them, and together with our facts."""
    valid = jnp.arange(T)[None] < jnp.array([[T], [4]])
    padding = nn.make_attention_mask(valid, valid)
    causal = nn.make_causal_mask(x[..., 0])
    assert causal.dtype == jnp.float32
    theirs = nn.MultiHeadDotProductAttention(num_heads=H)
    variables = theirs.init(jax.random.key(2), x)
    expected = theirs.apply(variables, x, mask=nn.combine_masks(padding, causal))
    got = flax_layer(facts=Mask(causal=True)).apply(variables, x, mask=padding)
    np.testing.assert_allclose(got[0], expected[0], atol=1e-5)
    np.testing.assert_allclose(got[1, :4], expected[1, :4], atol=1e-5)
    with pytest.raises(ValueError, match=r"\(2, 3, 7, 7\), or 1 for any, got \(2, 7\)"):
        flax_attention_fn("dense")(*[jnp.ones((B, T, H, 4))] * 3, mask=valid)


def test_weights_are_sown_where_they_are_formed(x):
    theirs = nn.MultiHeadDotProductAttention(num_heads=H)
    variables = theirs.init(jax.random.key(2), x)

    def sown(layer):
        _, kept = layer.apply(variables, x, sow_weights=True, mutable=["intermediates"])
        return kept["intermediates"]["attention_weights"][0]

    np.testing.assert_allclose(sown(flax_layer()), sown(theirs), atol=1e-5)
    with pytest.raises(ValueError, match="chunked attention forms no weights"):
        sown(flax_layer("chunked"))


def test_linen_decodes_with_dense_attention_only(x):
    theirs = nn.MultiHeadDotProductAttention(num_heads=H, decode=True)
    variables = theirs.init(jax.random.key(2), x)

    def decoded(layer):
        cache, rows = variables["cache"], []
        for position in range(T):
            row, updated = layer.apply(
                {**variables, "cache": cache},
                x[:, position : position + 1],
                mutable=["cache"],
            )
            cache = updated["cache"]
            rows.append(row)
        return jnp.concatenate(rows, axis=1)

    expected = decoded(theirs)
    np.testing.assert_allclose(decoded(flax_layer(decode=True)), expected, atol=1e-5)
    facts = Mask(causal=True)
    got = decoded(flax_layer(facts=facts, decode=True))
    np.testing.assert_allclose(got, expected, atol=1e-5)
    with pytest.raises(ValueError, match="nor decode=True"):
        decoded(flax_layer("linear", facts, decode=True))
    with pytest.raises(ValueError, match="Put the window into the mask"):
        decoded(flax_layer(facts=Mask(window=(2, 0)), decode=True))


def nnx_layer(name, facts=None, **fields):
    function = flax_attention_fn(name, facts)
    fields = {"deterministic": True, "decode": False, **fields}
    rngs = nnx.Rngs(0)
    return nnx.MultiHeadAttention(H, D, attention_fn=function, rngs=rngs, **fields)


def test_nnx_attends_decodes_and_sows(x):
    theirs = nnx.MultiHeadAttention(H, D, decode=False, rngs=nnx.Rngs(0))
    mask = nn.make_causal_mask(x[..., 0])
    expected = theirs(x, mask=mask)
    for layer, given in (
        (nnx_layer("dense"), mask),
        (nnx_layer("dense", Mask(causal=True)), None),
        (nnx_layer("chunked", Mask(causal=True)), None),
    ):
        np.testing.assert_allclose(layer(x, mask=given), expected, atol=1e-5)
    layer = nnx_layer("dense")
    layer(x, sow_weights=True)
    (weights,) = layer.attention_weights.get_value()
    assert weights.shape == (B, H, T, T)
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
    stepping = nnx_layer("dense", decode=True)
    stepping.init_cache((B, T, D))
    rows = [stepping(x[:, t : t + 1]) for t in range(T)]
    np.testing.assert_allclose(jnp.concatenate(rows, 1), expected, atol=1e-5)


def test_what_flax_asks_for_and_nobody_reads_is_refused(x):
    arrays = [jnp.ones((B, T, H, 4))] * 3
    attend = flax_attention_fn("chunked")
    np.testing.assert_array_equal(attend(*arrays, is_causal=True), arrays[0])
    assert attend(*arrays, dtype=jnp.bfloat16).dtype == jnp.bfloat16
    with pytest.raises(ValueError, match="cannot honour Flax's precision"):
        attend(*arrays, precision=jax.lax.Precision.HIGHEST)
    with pytest.raises(ValueError, match="cannot honour the mask's causal"):
        flax_attention_fn("axial")(*arrays, is_causal=True)
    with pytest.raises(ValueError, match="no bias array"):
        attend(*arrays, jnp.ones((1, H, T, T)))
    with pytest.raises(ValueError, match="query must be an array, got list"):
        attend([1.0], *arrays[1:])
    with pytest.raises(ValueError, match="leading axes that broadcast"):
        attend(arrays[0], *[jnp.ones((B, T, 2, 4))] * 2)
