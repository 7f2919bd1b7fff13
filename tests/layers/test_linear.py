import jax
import jax.numpy as jnp
import numpy as np

from attnjax.layers.linear import Linear

B, T, D, F = 2, 5, 11, 7


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_is_a_matrix_product_with_bias():
    x, kernel = normal(B, T, D), normal(D, F)
    bias = np.arange(F, dtype=np.float32)
    apply = jax.jit(Linear(F).apply)
    output = apply({"params": {"kernel": kernel, "bias": bias}}, x)
    expected = np.asarray(x, np.float64) @ np.asarray(kernel) + np.asarray(bias)
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_fused_parts_are_separate_maps():
    params = {"kernel": normal(D, 3, F), "bias": normal(3, F)}
    shapes = jax.eval_shape(Linear(F, parts=3).init, jax.random.key(1), normal(B, T, D))
    assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, shapes["params"])
    x, apply = normal(B, T, D), jax.jit(Linear(F).apply)
    output = np.asarray(jax.jit(Linear(F, parts=3).apply)({"params": params}, x))
    assert output.shape == (B, T, 3, F)
    for part in range(3):
        own = {"kernel": params["kernel"][:, part], "bias": params["bias"][part]}
        alone = apply({"params": own}, x)
        np.testing.assert_allclose(output[:, :, part], alone, atol=1e-5)


def test_parts_start_in_the_range_of_their_own_width():
    init = jax.jit(Linear(300, parts=3).init)
    params = jax.device_get(init(jax.random.key(0), np.zeros((1, 100), np.float32)))
    params = params["params"]
    limit = np.sqrt(6.0 / (100 + 300))
    largest = np.abs(params["kernel"]).max(axis=(0, 2))
    np.testing.assert_allclose(largest, limit, rtol=0.01)
    np.testing.assert_array_equal(params["bias"], 0.0)


def test_computes_in_its_type_and_keeps_float32_parameters():
    layer = Linear(F, dtype=jnp.bfloat16)
    output, variables = jax.eval_shape(
        layer.init_with_output, jax.random.key(0), np.ones((B, D), np.float32)
    )
    assert output.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
