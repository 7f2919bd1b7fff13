import jax
import jax.numpy as jnp
import numpy as np

from attnjax.layers.linear import Linear

B, T, D, F = 2, 5, 11, 7


def test_is_a_matrix_product_with_bias():
    x = jax.random.normal(jax.random.key(0), (B, T, D))
    kernel = jax.random.normal(jax.random.key(1), (D, F))
    bias = jnp.arange(float(F))
    output = Linear(F).apply({"params": {"kernel": kernel, "bias": bias}}, x)
    expected = np.asarray(x, np.float64) @ np.asarray(kernel) + np.asarray(bias)
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_fused_parts_are_separate_maps():
    x = jax.random.normal(jax.random.key(0), (B, T, D))
    params = Linear(F, parts=3).init(jax.random.key(1), x)["params"]
    params["bias"] = jnp.arange(3.0 * F).reshape(3, F)
    output = Linear(F, parts=3).apply({"params": params}, x)
    assert output.shape == (B, T, 3, F)
    for part in range(3):
        own = {"kernel": params["kernel"][:, part], "bias": params["bias"][part]}
        alone = Linear(F).apply({"params": own}, x)
        np.testing.assert_allclose(output[:, :, part], alone, atol=1e-5)


def test_parts_start_in_the_range_of_their_own_width():
    params = Linear(300, parts=3).init(jax.random.key(0), jnp.zeros((1, 100)))["params"]
    limit = np.sqrt(6.0 / (100 + 300))
    largest = np.abs(params["kernel"]).max(axis=(0, 2))
    np.testing.assert_allclose(largest, limit, rtol=0.01)
    np.testing.assert_array_equal(params["bias"], 0.0)


def test_computes_in_its_type_and_keeps_float32_parameters():
    x = jnp.ones((B, D), jnp.float32)
    layer = Linear(F, dtype=jnp.bfloat16)
    variables = layer.init(jax.random.key(0), x)
    assert layer.apply(variables, x).dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
