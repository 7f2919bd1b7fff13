import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.config import ScorerName
from attnjax.layers.attention import MultiHeadAttention
from attnjax.ops.attend import dense_attention
from attnjax.types import Attended, Mask

B, H, T, S, D = 2, 3, 5, 7, 33
SCORERS = typing.get_args(ScorerName)


@pytest.fixture(scope="module")
def x():
    return jax.random.normal(jax.random.key(0), (B, T, D))


@pytest.fixture(scope="module")
def states():
    return jax.random.normal(jax.random.key(1), (B, S, D))


@pytest.fixture(scope="module")
def mask():
    return Mask(valid=jnp.arange(S)[None, :] < jnp.array([[S], [3]]))


def attend_self(layer, variables, x, mask, **settings):
    return layer.apply(
        variables, x, mask, method="attend_self", **({"train": False} | settings)
    )


def init_self(layer, x):
    return layer.init(jax.random.key(2), x, Mask(), train=False, method="attend_self")


def cross(layer, x, states, mask, *, train):
    """What a decoder layer does, as one method."""
    return layer.attend_memory(x, layer.prepare(states), mask, train=train)


@pytest.mark.parametrize("scorer", SCORERS)
def test_every_scorer_attends_per_head(x, states, mask, scorer):
    layer = MultiHeadAttention(D, H, scorer=scorer)
    variables = layer.init(
        jax.random.key(2), x, states, mask, train=False, method=cross
    )
    output, weights = layer.apply(variables, x, states, mask, train=False, method=cross)
    assert output.shape == (B, T, D)
    assert weights.shape == (B, H, T, S)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(weights[1, :, :, 3:], 0.0)
    assert np.any(np.abs(weights[:, 0] - weights[:, 1]) > 1e-3)
    for parameter in jax.tree.leaves(variables["params"].get("score", {})):
        assert parameter.shape[0] == H
    changed = layer.apply(
        variables, x, states.at[1, 3:].set(9.0), mask, train=False, method=cross
    )
    np.testing.assert_array_equal(output, changed.context)


@pytest.mark.parametrize("scorer", SCORERS)
def test_steps_equal_the_causal_whole(x, scorer):
    layer = MultiHeadAttention(D, H, scorer=scorer)
    variables = init_self(layer, x)
    whole = attend_self(layer, variables, x, Mask(causal=True)).context
    cache = layer.apply(variables, B, T + 2, method="begin")
    step = jax.jit(lambda *inputs: layer.apply(variables, *inputs, method="step"))
    for position in range(T):
        row, cache = step(x[:, position], cache, jnp.full(B, position))
        np.testing.assert_allclose(row, whole[:, position], atol=1e-5)


def test_rows_of_a_batch_may_stand_at_different_positions(x):
    layer = MultiHeadAttention(D, H)
    variables = init_self(layer, x)
    whole = attend_self(layer, variables, x, Mask(causal=True)).context
    cache = layer.apply(variables, B, T, method="begin")
    step = jax.jit(lambda *inputs: layer.apply(variables, *inputs, method="step"))
    for position in range(3):
        _, cache = step(x[:, position], cache, jnp.full(B, position))
    # The first row goes back to position 1, as a reordered beam might; later slots of
    # its cache are stale and must not be seen.
    position = jnp.array([1, 3])
    row, _ = step(x[jnp.arange(B), position], cache, position)
    np.testing.assert_allclose(row[0], whole[0, 1], atol=1e-5)
    np.testing.assert_allclose(row[1], whole[1, 3], atol=1e-5)


def test_mechanism_replaces_dense_attention(x, mask):
    seen = []

    def mechanism(query, key, value, mask):
        seen.append((query.shape, key.shape, value.shape, mask))
        context, _ = dense_attention(query, key, value, mask)
        return Attended(context, None)

    mask = Mask(valid=mask.valid[:, :T], causal=True)
    dense = MultiHeadAttention(D, H)
    variables = init_self(dense, x)
    given = MultiHeadAttention(D, H, mechanism=mechanism)
    output, weights = attend_self(given, variables, x, mask)
    (*shapes, mask_seen) = seen[0]
    assert shapes == [(B, H, T, D // H)] * 3
    assert mask_seen.valid.shape == (B, 1, T)
    assert mask_seen.causal
    assert weights is None
    expected = attend_self(dense, variables, x, mask).context
    np.testing.assert_allclose(output, expected, atol=1e-6)


@pytest.mark.parametrize("unseen", [{"dropout": 0.1}, {"scorer": "additive"}])
def test_mechanism_refuses_what_it_would_not_see(unseen):
    with pytest.raises(ValueError, match="mechanism"):
        MultiHeadAttention(D, H, mechanism=dense_attention, **unseen)


def test_mechanism_has_no_step(x):
    layer = MultiHeadAttention(D, H, mechanism=dense_attention)
    variables = init_self(layer, x)
    cache = layer.apply(variables, B, T, method="begin")
    with pytest.raises(ValueError, match="step attends densely"):
        layer.apply(variables, x[:, 0], cache, jnp.zeros(B, int), method="step")


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="multiple of num_heads"):
        MultiHeadAttention(D, 2)


def test_dropout_leaves_the_returned_weights_alone(x):
    layer = MultiHeadAttention(D, H, dropout=0.5)
    variables = init_self(layer, x)
    quiet = attend_self(layer, variables, x, Mask())
    rngs = {"dropout": jax.random.key(3)}
    noisy = attend_self(layer, variables, x, Mask(), train=True, rngs=rngs)
    np.testing.assert_array_equal(quiet.weights, noisy.weights)
    assert np.any(np.abs(quiet.context - noisy.context) > 1e-3)


def test_bfloat16_in_and_out_with_float32_parameters(x):
    layer = MultiHeadAttention(D, H, dtype=jnp.bfloat16)
    variables = init_self(layer, x)
    output, weights = attend_self(layer, variables, x, Mask(causal=True))
    assert output.dtype == weights.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    exact = attend_self(MultiHeadAttention(D, H), variables, x, Mask(causal=True))
    np.testing.assert_allclose(output.astype(jnp.float32), exact.context, atol=0.05)


def test_a_layer_holds_only_the_projections_it_uses(x):
    assert set(init_self(MultiHeadAttention(D, H), x)["params"]) == {
        "query_key_value",
        "output",
    }
