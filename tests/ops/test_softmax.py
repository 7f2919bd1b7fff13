import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops import softmax

masked_softmax = jax.jit(softmax.masked_softmax)
FLOATS = (jnp.float32, jnp.bfloat16, jnp.float16)


def test_forbidden_keys_get_exactly_nothing():
    scores = jnp.array([[1.0, 2.0, 3.0]])
    weights = masked_softmax(scores, jnp.array([[True, True, False]]))
    np.testing.assert_allclose(weights, [[0.26894142, 0.73105858, 0.0]], rtol=1e-6)
    assert weights[0, 2] == 0.0


def test_forbidden_scores_do_not_matter_even_if_infinite():
    allow = np.array([[True, True, False]])
    plain = masked_softmax(np.float32([[1.0, 2.0, 0.0]]), allow)
    for score in (1e30, jnp.inf, -jnp.inf):
        other = masked_softmax(np.float32([[1.0, 2.0, score]]), allow)
        np.testing.assert_array_equal(other, plain)


@pytest.mark.parametrize("dtype", FLOATS)
def test_empty_row_is_zero_with_zero_gradient(dtype):
    scores = np.zeros((2, 4), dtype)
    allow = np.array([[True, True, True, False], [False] * 4])

    def total(scores):
        weights = masked_softmax(scores, allow)
        weigh = jnp.arange(8.0).reshape(2, 4)
        return (weights.astype(jnp.float32) * weigh).sum(), weights

    run = jax.jit(jax.grad(total, has_aux=True))
    gradient, weights = jax.device_get(run(scores))
    assert weights.dtype == gradient.dtype == dtype
    np.testing.assert_array_equal(weights[1], 0.0)
    np.testing.assert_array_equal(gradient[1], 0.0)
    assert np.all(np.isfinite(gradient.astype(np.float32)))
    assert np.any(gradient[0] != 0.0)
    np.testing.assert_array_equal(gradient[0, 3], 0.0)


def test_low_precision_is_computed_in_float32():
    scores = (jnp.arange(300.0) / 300.0).astype(jnp.bfloat16)[None]
    weights = masked_softmax(scores, None)
    exact = jax.nn.softmax(scores.astype(jnp.float32))
    assert weights.dtype == jnp.bfloat16
    np.testing.assert_array_equal(weights, exact.astype(jnp.bfloat16))


def test_matrix_without_batch_axes_serves_all_rows():
    scores_bhts = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype(np.float32)
    lower = np.tri(5, dtype=bool)
    weights = np.asarray(masked_softmax(scores_bhts, lower[None, None]))
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(np.where(lower, 0.0, weights), 0.0)
    one = masked_softmax(scores_bhts[1, 2], lower)
    np.testing.assert_allclose(weights[1, 2], one, rtol=1e-6)


def test_large_scores_do_not_overflow():
    weights = masked_softmax(jnp.array([[6e4, 6e4, -6e4]], jnp.float16), None)
    np.testing.assert_array_equal(weights, [[0.5, 0.5, 0.0]])
