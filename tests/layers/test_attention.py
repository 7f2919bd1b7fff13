import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.config import MechanismConfig, ScorerName
from attnjax.layers.attention import MultiHeadAttention
from attnjax.ops.catalog import CATALOG
from attnjax.types import Mask

B, H, T, S, D = 2, 3, 5, 7, 33
SCORERS = typing.get_args(ScorerName)
# Options small enough to matter for a handful of positions.
SMALL = {"window": 2, "block": 2, "stride": 2, "chunk": 2, "clusters": 2, "top_k": 2}


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


def causal_layer(kind, positions="none"):
    return MultiHeadAttention(
        24,
        H,
        mechanism=MechanismConfig(kind=kind, **SMALL),
        slot="decoder",
        positions=positions,
    )


@pytest.mark.parametrize(
    ("kind", "positions"),
    [
        (name, positions)
        for name, line in CATALOG.items()
        if "decoder" in line.slots
        for positions in ("none", "rotary", "relative", "alibi")
        if line.pairwise or positions != "rotary"
        if line.accepts_bias or positions in ("none", "rotary")
    ],
)
def test_steps_of_every_mechanism_equal_the_causal_whole(x, kind, positions):
    layer = causal_layer(kind, positions)
    inputs = x[..., :24]
    variables = init_self(layer, inputs)
    whole = attend_self(layer, variables, inputs, Mask(causal=True)).context
    cache = layer.apply(variables, B, T + 2, method="begin")
    step = jax.jit(lambda *inputs: layer.apply(variables, *inputs, method="step"))
    for position in range(T):
        row, cache = step(inputs[:, position], cache, jnp.full(B, position))
        np.testing.assert_allclose(row, whole[:, position], atol=1e-5)


@pytest.mark.parametrize("positions", ["rotary", "relative", "alibi"])
def test_relative_positions_matter_and_depend_on_offsets_only(x, positions):
    """The same tokens further to the right, after masked ones, give the same output."""
    x = x[..., :24]
    layer = MultiHeadAttention(24, H, positions=positions)
    variables = init_self(layer, x)
    if positions == "relative":
        table = variables["params"]["relative"]["table"]
        noise = jax.random.normal(jax.random.key(5), table.shape)
        variables["params"]["relative"]["table"] = table + noise
    plain = attend_self(layer, variables, x, Mask()).context
    shifted = jnp.concatenate([jnp.ones_like(x[:, :3]), x], axis=1)
    mask = Mask(valid=jnp.arange(T + 3)[None, :] >= 3)
    moved = attend_self(layer, variables, shifted, mask).context[:, 3:]
    np.testing.assert_allclose(plain, moved, atol=1e-5)
    order = np.array([1, 2, 0, 4, 3])
    mixed = attend_self(layer, variables, x[:, order], Mask()).context
    assert np.abs(plain[:, order] - mixed).max() > 1e-3
    blind = attend_self(MultiHeadAttention(24, H), variables, x, Mask()).context
    assert np.abs(plain - blind).max() > 1e-3


@pytest.mark.parametrize("unseen", [{"dropout": 0.1}, {"scorer": "additive"}])
def test_mechanism_refuses_what_it_would_not_see(unseen):
    with pytest.raises(ValueError, match="would not reach chunked"):
        MultiHeadAttention(D, H, mechanism=MechanismConfig(kind="chunked"), **unseen)


def test_mechanism_without_a_place_in_the_slot_is_refused_with_the_reason():
    mechanism = MechanismConfig(kind="chunked")
    with pytest.raises(ValueError, match="cannot be the rnn attention: a recurrent"):
        MultiHeadAttention(D, H, mechanism=mechanism, slot="rnn")


@pytest.mark.parametrize("kind", ["strided", "fixed", "lsh"])
def test_options_that_a_decoder_cannot_step_with_are_refused_at_once(kind):
    mechanism = MechanismConfig(kind=kind)  # stride 0, clusters 0: about sqrt(n)
    MultiHeadAttention(D, H, mechanism=mechanism, slot="encoder")
    with pytest.raises(ValueError, match="which a decoder does not know step by step"):
        MultiHeadAttention(D, H, mechanism=mechanism, slot="decoder")


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
