import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.config import ScorerName
from attnjax.layers.attention import MultiHeadAttention
from attnjax.ops.catalog import CATALOG, MECHANISMS
from attnjax.ops.chunked import Chunked
from attnjax.ops.lowrank import Linformer
from attnjax.ops.lsh import LSH
from attnjax.types import Attended, Mask

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
    return Mask(valid=np.arange(S)[None, :] < np.array([[S], [3]]))


def attend_self(layer, variables, x, mask, **settings):
    return layer.apply(
        variables, x, mask, method="attend_self", **({"train": False} | settings)
    )


def init_self(layer, x):
    return layer.init(jax.random.key(2), x, Mask(), train=False, method="attend_self")


def cross(layer, x, states, mask, *, train):
    """What a decoder layer does, as one method."""
    return layer.attend_memory(x, layer.prepare(states), mask, train=train)


def random_variables(init, *arguments, **settings):
    """Variables of the shapes that `init` would make, without compiling it."""
    shapes = jax.eval_shape(lambda: init(jax.random.key(2), *arguments, **settings))
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda leaf: 0.3 * rng.normal(size=leaf.shape).astype(leaf.dtype), shapes
    )


@pytest.mark.parametrize("scorer", SCORERS)
def test_every_scorer_attends_per_head(x, states, mask, scorer):
    layer = MultiHeadAttention(D, H, scorer=scorer)
    settings = {"train": False, "method": cross}
    variables = random_variables(layer.init, x, states, mask, **settings)
    run = jax.jit(lambda *inputs: layer.apply(variables, *inputs, **settings))
    output, weights = jax.device_get(run(x, states, mask))
    assert output.shape == (B, T, D)
    assert weights.shape == (B, H, T, S)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(weights[1, :, :, 3:], 0.0)
    assert np.any(np.abs(weights[:, 0] - weights[:, 1]) > 1e-3)
    for parameter in jax.tree.leaves(variables["params"].get("score", {})):
        assert parameter.shape[0] == H
    other = np.where(mask.valid[..., None], states, np.float32(9))
    np.testing.assert_array_equal(output, run(x, other, mask).context)


def assert_steps_equal_the_whole(layer, x):
    """One program: fresh variables, all positions at once, and one after another."""

    @jax.jit
    def run(x):
        variables = init_self(layer, x)
        if "relative" in variables["params"]:  # it starts at zero
            table = variables["params"]["relative"]["table"]
            noise = jax.random.normal(jax.random.key(5), table.shape)
            variables["params"]["relative"]["table"] = noise
        whole = attend_self(layer, variables, x, Mask(causal=True)).context

        def step(cache, token):
            row, position = token
            position = jnp.full(B, position)
            row, cache = layer.apply(variables, row, cache, position, method="step")
            return cache, row

        cache = layer.apply(variables, B, T + 2, method="begin")
        tokens = x.swapaxes(0, 1), jnp.arange(T)
        return whole, jax.lax.scan(step, cache, tokens)[1].swapaxes(0, 1)

    whole, rows = run(x)
    np.testing.assert_allclose(rows, whole, atol=1e-5)


@pytest.mark.parametrize("scorer", SCORERS)
def test_steps_equal_the_causal_whole(x, scorer):
    assert_steps_equal_the_whole(MultiHeadAttention(D, H, scorer=scorer), x)


def test_rows_of_a_batch_may_stand_at_different_positions(x):
    layer = MultiHeadAttention(D, H)
    settings = {"train": False, "method": "attend_self"}
    variables = random_variables(layer.init, x, Mask(), **settings)
    attend = jax.jit(lambda x: attend_self(layer, variables, x, Mask(causal=True)))
    whole, x = jax.device_get((attend(x).context, x))
    cache = layer.apply(variables, B, T, method="begin")
    step = jax.jit(lambda *inputs: layer.apply(variables, *inputs, method="step"))
    for position in range(3):
        _, cache = step(x[:, position], cache, np.full(B, position, np.int32))
    # The first row goes back to position 1, as a reordered beam might; later slots of
    # its cache are stale and must not be seen.
    position = np.array([1, 3], np.int32)
    row, _ = step(x[np.arange(B), position], cache, position)
    np.testing.assert_allclose(row, whole[np.arange(B), position], atol=1e-5)


def causal_layer(kind, positions="none"):
    return MultiHeadAttention(
        24,
        H,
        mechanism=MECHANISMS.fill(kind, SMALL),
        slot="decoder",
        positions=positions,
    )


def kinds_and_positions():
    """Each mechanism, and each kind of positions where it meets other code.

    Rotary ones turn queries and keys before any mechanism sees them, with projections
    of their own or with a shared one; a mechanism takes both kinds of bias alike, and
    one that takes them is not tried without again.
    """
    for kind, line in CATALOG.items():
        if "decoder" not in line.slots:
            continue
        yield kind, "relative" if line.accepts_bias else "none"
        if line.shares_query_key or kind in ("dense", "sliding_window"):
            yield kind, "rotary"
    yield "dense", "alibi"


@pytest.mark.parametrize(("kind", "positions"), kinds_and_positions())
def test_steps_of_every_mechanism_equal_the_causal_whole(x, kind, positions):
    assert_steps_equal_the_whole(causal_layer(kind, positions), x[..., :24])


@pytest.mark.parametrize("positions", ["rotary", "relative", "alibi"])
def test_relative_positions_matter_and_depend_on_offsets_only(x, positions):
    """The same tokens further to the right, after masked ones, give the same output."""
    layer = MultiHeadAttention(24, H, positions=positions)
    order = np.array([1, 2, 0, 4, 3])

    @jax.jit
    def run(x):
        variables = init_self(layer, x)
        if positions == "relative":
            table = variables["params"]["relative"]["table"]
            noise = jax.random.normal(jax.random.key(5), table.shape)
            variables["params"]["relative"]["table"] = table + noise
        shifted = jnp.concatenate([jnp.ones_like(x[:, :3]), x], axis=1)
        mask = Mask(valid=np.arange(T + 3)[None, :] >= 3)
        return jax.tree.map(
            lambda attended: attended.context,
            (
                attend_self(layer, variables, x, Mask()),
                attend_self(layer, variables, shifted, mask),
                attend_self(layer, variables, x[:, order], Mask()),
                attend_self(MultiHeadAttention(24, H), variables, x, Mask()),
            ),
            is_leaf=lambda node: isinstance(node, Attended),
        )

    plain, moved, mixed, blind = jax.device_get(run(x[..., :24]))
    np.testing.assert_allclose(plain, moved[:, 3:], atol=1e-5)
    assert np.abs(plain[:, order] - mixed).max() > 1e-3
    assert np.abs(plain - blind).max() > 1e-3


def positions_of(slot, kind, params=None):
    layer = MultiHeadAttention(24, H, slot=slot, positions=kind)
    return layer.bind({"params": {"relative": params or {}}}).relative


@pytest.mark.parametrize(
    ("slot", "buckets"),
    [
        ("decoder", {0: 0, 7: 0, -1: 1, -15: 15, -18: 16, -19: 17, -112: 30, -113: 31}),
        ("encoder", {0: 0, 7: 23, -1: 1, -11: 8, -12: 9, -90: 14, -91: 15, 91: 31}),
    ],
)
def test_relative_positions_of_a_layer_are_those_of_t5(slot, buckets):
    """32 buckets up to 128 positions; a decoder's are all of earlier keys."""
    table = np.arange(32.0)[None] + np.zeros((H, 1))
    bias = positions_of(slot, "relative", {"table": table}).bias()
    expected = np.broadcast_to([*buckets.values()], (H, len(buckets)))
    np.testing.assert_array_equal(bias(np.array([*buckets])), expected)


def test_rotary_positions_of_a_layer_turn_forward():
    x = np.zeros((1, H, 2, 8), np.float32)
    x[..., 0] = 1.0
    turned = positions_of("encoder", "rotary").turned(x, np.array([[0, 2]]))
    expected = np.zeros_like(x)
    expected[..., 0, 0] = 1.0
    expected[..., 1, :2] = np.cos(2.0), np.sin(2.0)
    np.testing.assert_allclose(turned, expected, atol=1e-6)


def test_shared_keys_are_queries_of_unit_mean_square(x):
    """Reformer's own code divides by the root of the mean, not of the sum."""
    everything = LSH(block=T, clusters=1, rounds=1, attend_to_self=True)
    layer = MultiHeadAttention(24, H, mechanism=everything)
    x = np.asarray(x[..., :24], np.float64)
    settings = {"train": False, "method": "attend_self"}
    variables = random_variables(layer.init, x, Mask(), **settings)
    got = jax.jit(lambda x: attend_self(layer, variables, x, Mask()))(x).context
    kernel, bias = (
        np.asarray(variables["params"]["query_key_value"][name], np.float64)
        for name in ("kernel", "bias")
    )
    query, value = (
        (x @ kernel[:, part] + bias[part]).reshape(B, T, H, 8).swapaxes(1, 2)
        for part in (0, 1)
    )
    key = query / np.sqrt(np.square(query).mean(-1, keepdims=True))
    powers = np.exp(query @ key.swapaxes(2, 3) / np.sqrt(8))
    context = powers / powers.sum(-1, keepdims=True) @ value
    joined = context.swapaxes(1, 2).reshape(B, T, 24)
    output = variables["params"]["output"]
    expected = joined @ output["kernel"].reshape(24, 24) + output["bias"].ravel()
    np.testing.assert_allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize(
    "kind", [kind for kind, line in CATALOG.items() if line.needs_rng]
)
def test_a_mechanism_draws_in_training_only(x, kind):
    layer = causal_layer(kind)
    x = x[..., :24]

    @jax.jit
    def run(x):
        variables = init_self(layer, x)
        attend = functools.partial(attend_self, layer, variables, x, Mask(causal=True))
        rngs = [{"dropout": jax.random.key(seed)} for seed in range(4)]
        return attend(), [attend(train=True, rngs=rng) for rng in rngs]

    quiet, drawn = jax.device_get(run(x))
    assert len({each.context.tobytes() for each in drawn}) == 4
    np.testing.assert_array_equal(drawn[0].weights.max(-1), quiet.weights.max(-1))


@pytest.mark.parametrize("unseen", [{"dropout": 0.1}, {"scorer": "additive"}])
def test_mechanism_refuses_what_it_would_not_see(unseen):
    with pytest.raises(ValueError, match="would not reach chunked"):
        MultiHeadAttention(D, H, mechanism=Chunked(), **unseen)


def test_mechanism_without_a_place_in_the_slot_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="cannot be the decoder attention: its keys"):
        MultiHeadAttention(D, H, mechanism=Linformer(), slot="decoder")


def test_options_that_a_decoder_cannot_step_with_are_refused_at_once():
    mechanism = LSH()  # clusters 0: about sqrt(n)
    MultiHeadAttention(D, H, mechanism=mechanism, slot="encoder")
    with pytest.raises(ValueError, match="does not know beforehand; give an even"):
        MultiHeadAttention(D, H, mechanism=mechanism, slot="decoder")


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="multiple of num_heads"):
        MultiHeadAttention(D, 2)


def test_dropout_leaves_the_returned_weights_alone(x):
    layer = MultiHeadAttention(D, H, dropout=0.5)

    @jax.jit
    def run(x):
        variables = init_self(layer, x)
        rngs = {"dropout": jax.random.key(3)}
        quiet = attend_self(layer, variables, x, Mask())
        return quiet, attend_self(layer, variables, x, Mask(), train=True, rngs=rngs)

    quiet, noisy = jax.device_get(run(x))
    np.testing.assert_array_equal(quiet.weights, noisy.weights)
    assert np.any(np.abs(quiet.context - noisy.context) > 1e-3)


def test_bfloat16_in_and_out_with_float32_parameters(x):
    layer = MultiHeadAttention(D, H, dtype=jnp.bfloat16)

    @jax.jit
    def run(x):
        variables = init_self(layer, x)
        low = attend_self(layer, variables, x, Mask(causal=True))
        exact = MultiHeadAttention(D, H)
        return variables, low, attend_self(exact, variables, x, Mask(causal=True))

    variables, (output, weights), exact = jax.device_get(run(x))
    assert output.dtype == weights.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    np.testing.assert_allclose(output.astype(np.float32), exact.context, atol=0.05)


def test_a_layer_holds_only_the_projections_it_uses(x):
    init = functools.partial(init_self, MultiHeadAttention(D, H))
    assert set(jax.eval_shape(init, x)["params"]) == {"query_key_value", "output"}
