"""Laws of dense attention, and its equation computed by loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.attend import attend, dense_attention
from attnjax.ops.scorers import dot_scores
from attnjax.types import Mask

B, H, T, S, K, V = 2, 3, 5, 7, 11, 13


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    shapes = ((B, H, T, K), (B, H, S, K), (B, H, S, V))
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


compiled = jax.jit(dense_attention, static_argnames="score")


@pytest.fixture(scope="module")
def mask():
    valid = np.arange(S)[None, :] < np.array([[S], [3]])
    return Mask(valid=valid, causal=True).over_heads()


def test_equals_the_equation_by_loops(arrays, mask):
    query, key, value = (np.asarray(array, np.float64) for array in arrays)
    context = np.zeros((B, H, T, V))
    weights = np.zeros((B, H, T, S))
    lengths = [S, 3]
    for b, h, t in np.ndindex(B, H, T):
        keys = [s for s in range(S) if s < lengths[b] and s <= t + S - T]
        scores = [query[b, h, t] @ key[b, h, s] / np.sqrt(K) for s in keys]
        weights[b, h, t, keys] = np.exp(scores) / np.exp(scores).sum()
        context[b, h, t] = sum(weights[b, h, t, s] * value[b, h, s] for s in keys)
    got = compiled(*arrays, mask)
    np.testing.assert_allclose(got.weights, weights, atol=1e-6)
    np.testing.assert_allclose(got.context, context, atol=1e-5)


def test_masked_keys_never_matter(arrays, mask):
    query, key, value = arrays
    plain = compiled(query, key, value, mask)
    key, value = key.copy(), value.copy()
    key[1, :, 3:], value[1, :, 3:] = 1e6, -1e6
    changed = compiled(query, key, value, mask)
    np.testing.assert_array_equal(plain.context, changed.context)
    np.testing.assert_array_equal(plain.weights, changed.weights)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_empty_row_is_zero_with_finite_gradients(arrays, dtype):
    low = [array.astype(dtype) for array in arrays]
    segments = np.ones((1, 1, T), np.int32)
    segments[..., 1] = 2
    ones = np.ones((1, 1, S), np.int32)
    mask = Mask(query_segments=segments, key_segments=ones)

    def total(query, key, value):
        attended = dense_attention(query, key, value, mask)
        return attended.context.astype(jnp.float32).sum(), attended

    run = jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))
    gradients, attended = jax.device_get(run(*low))
    assert attended.context.dtype == attended.weights.dtype == dtype
    np.testing.assert_array_equal(attended.context[:, :, 1], 0.0)
    np.testing.assert_array_equal(attended.weights[:, :, 1], 0.0)
    np.testing.assert_array_equal(gradients[0][:, :, 1], 0.0)
    for gradient in gradients:
        assert np.all(np.isfinite(gradient.astype(np.float32)))
    assert np.any(gradients[0][:, :, 0] != 0.0)


def test_no_future_leak(arrays):
    query, key, value = (array[0, 0] for array in arrays)

    def outputs(value):
        return dense_attention(query, key, value, Mask(causal=True)).context[:, 0]

    influence_ts = np.asarray(jax.jit(jax.jacobian(outputs))(value))[:, :, 0]
    alive = np.tri(T, S, S - T, dtype=bool)
    np.testing.assert_array_equal(influence_ts[~alive], 0.0)
    assert np.all(influence_ts[alive] > 0.0)


def test_single_query_sees_every_key_when_causal(arrays):
    query, key, value = arrays
    last = compiled(query[:, :, -1:], key, value, Mask(causal=True)).context
    whole = compiled(query, key, value, Mask(causal=True)).context
    np.testing.assert_allclose(last, np.asarray(whole)[:, :, -1:], atol=1e-6)


def test_jit_equals_eager(arrays, mask):
    eager = dense_attention(*arrays, mask)
    got = compiled(*arrays, mask)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-6), eager, got)
    assert got.context.shape == (B, H, T, V)


def test_score_is_an_argument(arrays):
    query, key, value = arrays
    unscaled = compiled(query, key, value, Mask(), score=dot_scores)
    scaled = compiled(query * np.float32(np.sqrt(K)), key, value, Mask())
    np.testing.assert_allclose(unscaled.context, scaled.context, atol=1e-5)


def test_dropout_acts_on_the_mean_and_not_on_the_returned_weights(arrays):

    @jax.jit
    def run(query, key, value):
        scores = dot_scores(query, key)
        plain = attend(scores, value, Mask())
        return plain, attend(scores, value, Mask(), dropout=lambda x: 2.0 * x)

    plain, doubled = jax.device_get(run(*arrays))
    np.testing.assert_array_equal(plain.weights, doubled.weights)
    np.testing.assert_allclose(doubled.context, 2.0 * plain.context, rtol=1e-5)


def test_float16_scores_stay_finite_at_large_inputs(arrays):
    low = [(30.0 * array).astype(jnp.float16) for array in arrays]
    context = np.asarray(compiled(*low, Mask()).context)
    assert np.all(np.isfinite(context.astype(np.float32)))
