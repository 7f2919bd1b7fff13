"""Attention over a memory: eole's numbers, and the map for the dot products."""

import functools
from pathlib import Path

import jax
import numpy as np
import pytest

from attnjax.layers.memory_attention import MemoryAttention
from attnjax.layers.readout import AttentionalVector
from attnjax.ops.hard import GumbelChoice
from attnjax.ops.selection import SELECTIONS, LocalM

GOLDEN = Path(__file__).parents[1] / "golden"
B, T, S, D = 2, 5, 7, 11


def _attend(attention: MemoryAttention, query, memory, valid):
    prepared = attention.prepare(memory, valid)
    focus = attention(query, prepared)
    return focus.weights, focus.mean(prepared["value"])


def _normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _variables(attention, *arguments, method):
    shapes = jax.eval_shape(
        lambda rng: attention.init(rng, *arguments, method=method), jax.random.key(0)
    )
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), shapes
    )


def _scorer_params(golden):
    if "param:linear_in.weight" in golden:
        return {"weight": golden["param:linear_in.weight"].T}
    if "param:v.weight" in golden:
        return {
            "query_kernel": golden["param:linear_query.weight"].T,
            "key_kernel": golden["param:linear_context.weight"].T,
            "bias": golden["param:linear_query.bias"],
            "vector": golden["param:v.weight"][0],
        }
    return {}


@pytest.mark.parametrize(
    ("name", "kind"), [("dot", "dot"), ("general", "general"), ("mlp", "additive")]
)
def test_weights_and_attentional_vector_agree_with_eole(name, kind):
    golden = np.load(GOLDEN / f"eole_attention_{name}.npz")
    states, memory = golden["decoder_states"], golden["memory"]
    width = states.shape[-1]
    valid = np.arange(memory.shape[1])[None] < golden["lengths"][:, None]
    attention = MemoryAttention(kind, width, width, width=width)
    bias = golden.get("param:linear_out.bias", np.zeros(width, np.float32))
    join = {"kernel": golden["param:linear_out.weight"].T, "bias": bias}

    @jax.jit
    def run(states, memory, valid):
        params = {"params": {"scorer": _scorer_params(golden)}}
        weights, context = attention.apply(
            params, states, memory, valid, method=_attend
        )
        params = {"params": {"join": join}}
        vector = AttentionalVector(width).apply(params, states, context, None)
        return weights, vector

    weights, vector = run(states, memory, valid)
    np.testing.assert_allclose(weights, golden["weights"], atol=1e-5)
    expected = golden["attention_vector"]
    if name == "mlp":  # eole leaves out Luong's tanh after Bahdanau's scorer
        expected = np.tanh(expected)
    np.testing.assert_allclose(vector, expected, atol=1e-5)


def test_dot_maps_a_wider_memory_once_for_keys_and_values():
    query, memory, valid = _normal(B, T, D), _normal(B, S, 2 * D), np.ones((B, S), bool)
    kernel, bias = _normal(2 * D, D, seed=1), _normal(D, seed=2)
    params = {"params": {"memory_map": {"kernel": kernel, "bias": bias}}}
    apply = functools.partial(MemoryAttention("dot", D, 2 * D).apply, method=_attend)
    weights, context = jax.jit(apply)(params, query, memory, valid)
    mapped = memory @ kernel + bias
    scores = np.exp(query @ mapped.swapaxes(1, 2))
    expected = scores / scores.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(weights, expected, atol=1e-4)
    np.testing.assert_allclose(context, expected @ mapped, atol=1e-3)


@pytest.mark.parametrize("kind", ["scaled_dot", "additive", "location"])
def test_masked_keys_never_matter_and_an_empty_row_is_zero(kind):
    attention = MemoryAttention(kind, D, D, width=3, max_keys=S)
    query, memory = _normal(B, T, D), _normal(B, S, D)
    valid = np.zeros((B, S), bool)
    valid[0, :4] = True

    variables = _variables(attention, query, memory, valid, method=_attend)

    def total(memory):
        weights, context = attention.apply(
            variables, query, memory, valid, method=_attend
        )
        return (context**2).sum(), (weights, context)

    other = np.where(valid[..., None], memory, 1e3)
    run = jax.jit(jax.grad(total, has_aux=True))
    _, (weights, context) = jax.device_get(run(memory))
    gradient, (other_weights, other_context) = jax.device_get(run(other))
    np.testing.assert_array_equal(weights, other_weights)
    np.testing.assert_array_equal(context, other_context)
    np.testing.assert_allclose(weights[0].sum(axis=-1), 1, atol=1e-6)
    np.testing.assert_array_equal(weights[1], 0)
    np.testing.assert_array_equal(context[1], 0)
    np.testing.assert_array_equal(gradient[~valid], 0)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_relaxed_choice_has_the_gradient_of_a_softmax_at_its_temperature(temperature):
    chosen = GumbelChoice(temperature=temperature)
    attention = MemoryAttention("scaled_dot", D, D, selection=chosen)
    query, memory = _normal(B, T, D), _normal(B, S, D, seed=1)
    valid = np.ones((B, S), bool)

    def found(query):
        return (attention.apply({}, query, memory, valid, method=_attend)[1] ** 2).sum()

    def softened(query, context):
        scores = query @ memory.swapaxes(1, 2) / np.sqrt(D)
        return (2 * context * (jax.nn.softmax(scores / temperature) @ memory)).sum()

    @jax.jit
    def run(query):
        context = attention.apply({}, query, memory, valid, method=_attend)[1]
        return jax.grad(found)(query), jax.grad(softened)(query, context)

    np.testing.assert_allclose(*run(query), atol=1e-4)


@pytest.mark.parametrize("kind", ["dot", "general", "concat", "location"])
@pytest.mark.parametrize("selection", ["local_m", "local_p"])
def test_a_lone_query_reads_its_window_and_finds_what_all_keys_give(kind, selection):
    chosen = SELECTIONS.fill(selection, {"window": 1})
    attention = MemoryAttention(kind, D, D, width=3, max_keys=S, selection=chosen)
    query, memory = 2 * _normal(B, T, D), _normal(B, S, D, seed=1)
    valid = np.arange(S)[None] < np.array([[7], [3]])
    position = np.broadcast_to(np.arange(T)[None], (B, T))

    def attend(attention, query, position):
        prepared = attention.prepare(memory, valid)
        focus = attention(query, prepared, position)
        return focus.over(S), focus.mean(prepared["value"]), focus.weights

    variables = _variables(attention, query, position, method=attend)
    run = jax.jit(lambda *args: attention.apply(variables, *args, method=attend))
    weights, context, _ = jax.device_get(run(query, position))
    for t in range(T):
        alone = run(query[:, t : t + 1], position[:, t : t + 1])
        alone = jax.device_get(alone)
        assert alone[2].shape == (B, 1, 3)
        np.testing.assert_allclose(alone[0][:, 0], weights[:, t], atol=1e-6)
        np.testing.assert_allclose(alone[1][:, 0], context[:, t], atol=1e-5)
    if selection == "local_m":
        near = np.abs(np.arange(S) - np.minimum(position, [[6], [2]])[..., None]) <= 1
        np.testing.assert_array_equal(weights > 0, near & valid[:, None])


def test_local_m_without_positions_is_refused():
    chosen = LocalM()
    attention = MemoryAttention("dot", D, D, selection=chosen)
    arguments = _normal(B, T, D), _normal(B, S, D), np.ones((B, S), bool)
    with pytest.raises(ValueError, match="position of a query"):
        attention.init(jax.random.key(0), *arguments, method=_attend)
