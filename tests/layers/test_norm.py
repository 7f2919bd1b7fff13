import jax
import jax.numpy as jnp
import numpy as np

from attnjax.layers.norm import LayerNorm

B, T, D = 2, 5, 11
SIGNS = jnp.float32([[-1.0, 1.0, -1.0, 1.0]])


def test_normalises_then_scales_and_shifts():
    x = np.random.default_rng(0).normal(3.0, 2.0, (B, T, D))
    params = {"scale": np.arange(1.0, D + 1), "bias": -np.arange(float(D))}
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    expected = (x - mean) / np.sqrt(variance + 1e-5) * params["scale"] + params["bias"]
    variables = {"params": jax.tree.map(jnp.float32, params)}
    output = jax.jit(LayerNorm().apply)(variables, jnp.float32(x))
    np.testing.assert_allclose(output, expected, atol=1e-4)


def test_epsilon_is_that_of_torch():
    """Where the variance is 1e-6, of which 1e-5 is more than the rest."""
    output, _ = LayerNorm().init_with_output(jax.random.key(0), 1e-3 * SIGNS)
    np.testing.assert_allclose(output, SIGNS / np.sqrt(11.0), rtol=1e-4)


def test_starts_without_scale_and_shift():
    variables = jax.jit(LayerNorm().init)(jax.random.key(0), jnp.ones((B, D)))
    np.testing.assert_array_equal(variables["params"]["scale"], 1.0)
    np.testing.assert_array_equal(variables["params"]["bias"], 0.0)


def test_large_half_precision_inputs_stay_finite():
    x = jnp.array([[6e4, -6e4, 0.0, 3e4]], jnp.float16)
    layer = LayerNorm(dtype=jnp.float16)
    output, _ = jax.jit(layer.init_with_output)(jax.random.key(0), x)
    output = np.asarray(output)
    assert output.dtype == jnp.float16
    exact = np.float64([6e4, -6e4, 0.0, 3e4])
    expected = (exact - exact.mean()) / exact.std()
    np.testing.assert_allclose(output[0].astype(np.float32), expected, atol=2e-3)


def test_a_far_mean_does_not_eat_the_variance():
    x = 1e4 + SIGNS
    output, _ = jax.jit(LayerNorm().init_with_output)(jax.random.key(0), x)
    np.testing.assert_allclose(output, SIGNS, atol=1e-3)
