"""Linear attention: parallel = in chunks = recurrent = the explicit quadratic form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops import feature_sums
from attnjax.ops.entry import Sizes
from attnjax.ops.linear import INCREMENTAL, elu_features, linear_attention
from attnjax.types import Mask

B, H, T, S, K, V = 2, 3, 5, 7, 11, 13


def arrays(num_queries=T, num_keys=S, seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((B, H, num_queries, K), (B, H, num_keys, K), (B, H, num_keys, V))
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


attend = jax.jit(linear_attention, static_argnames="chunk")


def quadratic(query, key, value, allowed):
    """All weights one by one, in float64, by the authors' elu(x) + 1."""

    def phi(x):
        x = np.asarray(x, np.float64)
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) + 1e-6

    weights = np.einsum("bhtk,bhsk->bhts", phi(query), phi(key)) * allowed
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return weights @ np.asarray(value, np.float64)


@pytest.mark.parametrize("chunk", [1, 3, 256])
@pytest.mark.parametrize(("num_queries", "num_keys"), [(S, S), (T, S), (S, T), (1, S)])
@pytest.mark.parametrize("causal", [False, True])
def test_sums_equal_the_quadratic_form(causal, num_queries, num_keys, chunk):
    inputs = arrays(num_queries, num_keys)
    valid = np.ones((B, num_keys), bool)
    valid[1, 3:] = False
    allowed = np.broadcast_to(
        valid[:, None, None, :], (B, 1, num_queries, num_keys)
    ).copy()
    if causal:  # both sequences end together
        allowed &= np.tri(num_queries, num_keys, num_keys - num_queries, dtype=bool)
    mask = Mask(valid=valid, causal=causal).over_heads()
    got = attend(*inputs, mask, chunk=chunk).context
    np.testing.assert_allclose(got, quadratic(*inputs, allowed), atol=1e-5)


def test_recurrence_equals_the_quadratic_form_in_bounded_state():
    inputs = arrays(S, S)
    expected = quadratic(*inputs, np.tri(S, dtype=bool))
    sizes = Sizes(H, K, V, S)
    sums = INCREMENTAL.begin(B, S, sizes, jnp.bfloat16)
    longer = INCREMENTAL.begin(B, 1000 * S, sizes, jnp.bfloat16)
    assert jax.tree.map(jnp.shape, sums) == jax.tree.map(jnp.shape, longer)
    assert {leaf.dtype for leaf in jax.tree.leaves(sums)} == {jnp.dtype("float32")}
    step = jax.jit(INCREMENTAL.step, static_argnames="chunk")
    for t in range(S):
        row = [x[:, :, t : t + 1] for x in inputs]
        context, sums = step(*row, sums, np.full(B, t, np.int32), chunk=2)
        np.testing.assert_allclose(context, expected[:, :, t : t + 1], atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_weights_sum_to_1_even_where_all_features_underflow(causal):
    query, key, _ = arrays(S, S)
    ones = np.ones((B, H, S, V), np.float32)
    got = attend(query - 200, key - 200, ones, Mask(causal=causal)).context
    np.testing.assert_allclose(got, 1.0, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_features_and_sums_of_bfloat16_inputs_are_float32(causal):
    """With float32 values the result shows every bit that was lost on the way."""
    query, key, value = (x[:1, :1] for x in arrays(1024, 1024))
    query, key = query.astype(jnp.bfloat16), key.astype(jnp.bfloat16)
    mask = Mask(causal=causal)
    exact = [x.astype(np.float32) for x in (query, key)]
    expected = attend(*exact, value, mask).context
    got = attend(query, key, value, mask).context
    np.testing.assert_allclose(got, expected, atol=1e-6)
    low = attend(query, key, value.astype(jnp.bfloat16), mask).context
    assert low.dtype == jnp.bfloat16


def test_features_are_positive_and_smooth_enough():
    x = jnp.array([-100.0, -1.0, 0.0, 1.0, 7.0])
    expected = [1e-6, np.exp(-1) + 1e-6, 1.0, 2.0, 8.0]
    np.testing.assert_allclose(elu_features(x, 1e-6), expected, rtol=2e-6)
    slopes = jax.vmap(jax.grad(lambda x: elu_features(x, 1e-6)))(x)
    np.testing.assert_allclose(slopes, [0, np.exp(-1), 1, 1, 1], atol=1e-6)


def test_scales_of_keys_cancel():
    """Features divided by exp(log_scale) give what the features themselves give."""
    query, key, value = arrays(S, S)
    query, key = (np.asarray(elu_features(x, 1e-6)) for x in (query, key))
    zero = np.zeros((B, H, S), np.float32)
    steps = np.random.default_rng(3).normal(size=zero.shape).astype(np.float32)
    growing = np.cumsum(np.abs(steps), -1)
    run = jax.jit(feature_sums.attend_to_earlier, static_argnames="chunk")
    plain = run(query, key, value, zero, chunk=3)
    scaled = key * np.exp(-growing)[..., None]
    for chunk in (1, 3, 7):
        got = run(query, scaled, value, growing, chunk=chunk)
        np.testing.assert_allclose(got, plain, atol=1e-5)


def test_a_scale_that_jumps_overflows_nowhere():
    """From exp(-1000) to exp(1000): the gradient is finite and masked rows are 0."""
    query, key, value = (np.abs(x) for x in arrays(S, S))
    log_scale = np.linspace(-1000.0, 1000.0, S, dtype=np.float32)[None, None]
    log_scale[..., :2] = -np.inf
    seen = np.isfinite(log_scale)[..., None]

    def total(query, key, value):
        features = jnp.where(seen, key, 0.0)
        context = feature_sums.attend_to_earlier(
            query, features, value, jnp.broadcast_to(log_scale, (B, H, S)), chunk=3
        )
        return jnp.square(context).sum(), context

    run = jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))
    gradients, context = jax.device_get(run(query, key, value))
    np.testing.assert_array_equal(context[..., :2, :], 0.0)
    np.testing.assert_allclose(context[..., 2:, :], value[..., 2:, :], rtol=1e-4)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
