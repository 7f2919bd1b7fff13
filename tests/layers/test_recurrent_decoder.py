"""Decoders against float64 loops from the papers, and against Python loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.config import RNNConfig
from attnjax.layers.decoder_cells import Inputs, RecurrentStack
from attnjax.layers.recurrent_decoder import RecurrentDecoder

B, T, S, E, D, A = 2, 5, 7, 3, 11, 13
N = 2 * D
VALID = np.arange(S)[None] < np.array([[7], [4]])
BAHDANAU = RNNConfig(
    embedding_width=E, hidden_width=D, attention_width=A, attention="additive"
)
LUONG = RNNConfig(
    embedding_width=E,
    hidden_width=D,
    cell="lstm",
    attention="general",
    query="current",
    input_feeding=True,
)


def _normal(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _arguments(config: RNNConfig):
    arrays = 2 if config.cell == "lstm" else 1
    summary = tuple(_normal(B, N, seed=seed) for seed in range(arrays))
    return summary, _normal(B, S, N, seed=3), _normal(B, T, E, seed=4)


def _decode(decoder, summary, memory, embedded):
    prepared = decoder.prepare(memory, VALID)
    carry = decoder.begin(summary)
    _, vectors, focus = decoder(carry, prepared, embedded, train=False)
    return vectors, focus.over(S)


def _random_variables(decoder: RecurrentDecoder, arguments):
    shapes = jax.eval_shape(
        lambda rng: decoder.init(rng, *arguments, method=_decode), jax.random.key(0)
    )
    return _random_like(shapes)


def _random_like(shapes):
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda leaf: 0.3 * rng.normal(size=leaf.shape).astype(leaf.dtype), shapes
    )


def _run(config: RNNConfig):
    decoder, arguments = RecurrentDecoder(config, N), _arguments(config)
    variables = _random_variables(decoder, arguments)
    run = jax.jit(lambda *args: decoder.apply(*args, method=_decode))
    double = jax.tree.map(lambda leaf: leaf.astype(np.float64), variables["params"])
    return double, arguments, jax.device_get(run(variables, *arguments))


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _softmax(scores):
    exponentials = np.where(VALID, np.exp(scores), 0)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _affine(params, x):
    flat = params["kernel"].reshape(x.shape[-1], -1)
    return x @ flat + params["bias"].ravel()


def test_previous_query_is_the_model_of_bahdanau():
    params, (summary, memory, embedded), (vectors, weights) = _run(BAHDANAU)
    hidden = np.tanh(_affine(params["bridges_0"], summary[0]))
    cell, scorer = params["cell"]["stack"]["cell_0"], params["attention"]["scorer"]
    key = memory @ scorer["key_kernel"] + scorer["bias"]
    for t in range(T):
        query = hidden @ scorer["query_kernel"]
        weight = _softmax(np.tanh(query[:, None] + key) @ scorer["vector"])
        context = (weight[..., None] * memory).sum(axis=1)
        x = _affine(params["input_gates"], embedded[:, t])
        hidden = _gru(cell, x + context @ params["context_gates"]["kernel"], hidden)
        joined = np.concatenate([hidden, context, embedded[:, t]], axis=-1)
        pieces = _affine(params["readout"]["join"], joined)
        np.testing.assert_allclose(weights[:, t], weight, atol=1e-5)
        expected = np.maximum(pieces[:, :E], pieces[:, E:])
        np.testing.assert_allclose(vectors[:, t], expected, atol=1e-5)


def test_input_feeding_is_the_model_of_luong():
    params, (summary, memory, embedded), (vectors, weights) = _run(LUONG)
    hidden = np.tanh(_affine(params["bridges_0"], summary[0]))
    cell_state = _affine(params["bridges_1"], summary[1])
    vector = np.zeros((B, E))
    cell, weight_qk = params["cell"], params["attention"]["scorer"]["weight"]
    for t in range(T):
        gates = _affine(params["input_gates"], embedded[:, t])
        gates = gates + vector @ cell["feed_gates"]["kernel"]
        gates = gates + _affine(cell["stack"]["cell_0"], hidden)
        write, keep, proposal, read = np.split(gates, 4, axis=-1)
        cell_state = _sigmoid(keep) * cell_state + _sigmoid(write) * np.tanh(proposal)
        hidden = _sigmoid(read) * np.tanh(cell_state)
        weight = _softmax(np.einsum("bq,qk,bsk->bs", hidden, weight_qk, memory))
        context = (weight[..., None] * memory).sum(axis=1)
        joined = np.concatenate([context, hidden], axis=-1)
        vector = np.tanh(_affine(params["readout"]["join"], joined))
        np.testing.assert_allclose(weights[:, t], weight, atol=1e-5)
        np.testing.assert_allclose(vectors[:, t], vector, atol=1e-5)


def _gru(params, gates, hidden):
    h = _affine(params, hidden)
    reset, keep = np.split(_sigmoid(gates + h)[:, : 2 * D], 2, axis=-1)
    proposal = np.tanh(gates[:, 2 * D :] + reset * h[:, 2 * D :])
    return (1 - keep) * proposal + keep * hidden


def test_each_layer_reads_the_new_state_of_the_one_below():
    config = RNNConfig(embedding_width=E, hidden_width=D, decoder_layers=3)
    states = tuple((_normal(B, D, seed=seed),) for seed in range(3))
    inputs = Inputs(_normal(B, 3 * D, seed=3), _normal(B, 2, D, seed=4))
    stack = RecurrentStack(config)
    shapes = jax.eval_shape(stack.init, jax.random.key(0), states, inputs)
    variables = _random_like(shapes)
    params = variables["params"]
    found = jax.jit(stack.apply)(variables, states, inputs)
    gates = hidden = inputs.gates
    for layer, (state,) in enumerate(states):
        if layer > 0:
            below = hidden * inputs.dropout[:, layer - 1]
            gates = _affine(params[f"input_gates_{layer}"], below)
        hidden = _gru(params[f"cell_{layer}"], gates, state)
        np.testing.assert_allclose(found[layer][0], hidden, atol=1e-5)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("layers", [(2, 2), (2, 3)])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_layers_start_from_the_encoder_layer_of_their_height(
    cell, layers, bidirectional
):
    encoder_layers, decoder_layers = layers
    width = 2 * D if bidirectional else D
    config = RNNConfig(
        embedding_width=E,
        hidden_width=D,
        cell=cell,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        bidirectional=bidirectional,
    )
    decoder = RecurrentDecoder(config, width)
    summary = tuple(
        _normal(B, encoder_layers * width, seed=seed)
        for seed in range(2 if cell == "lstm" else 1)
    )
    shapes = jax.eval_shape(
        lambda rng: decoder.init(rng, summary, method="begin"), jax.random.key(0)
    )
    variables = _random_like(shapes)
    begin = jax.jit(functools.partial(decoder.apply, method="begin"))
    carry = jax.device_get(begin(variables, summary))
    bridges = variables.get("params", {})
    assert len(carry.states) == decoder_layers
    np.testing.assert_array_equal(carry.position, np.zeros(B))
    for layer, state in enumerate(carry.states):
        for index, (array, start) in enumerate(zip(summary, state, strict=True)):
            if encoder_layers == decoder_layers:
                final = array[:, layer * width : (layer + 1) * width]
                name, part = f"bridges_{index * decoder_layers + layer}", 0
            else:
                final, name, part = array, f"bridges_{index}", layer
            if encoder_layers == decoder_layers and not bidirectional:
                assert bridges == {}
                np.testing.assert_array_equal(start, final)
                continue
            expected = (
                final @ bridges[name]["kernel"][:, part] + bridges[name]["bias"][part]
            )
            expected = np.tanh(expected) if index == 0 else expected
            np.testing.assert_allclose(start, expected, atol=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        RNNConfig(embedding_width=E, hidden_width=D, decoder_layers=3),
        RNNConfig(
            embedding_width=E,
            hidden_width=D,
            decoder_layers=3,
            attention="dot",
            query="current",
            input_feeding=True,
        ),
    ],
    ids=["previous", "input_feeding"],
)
def test_the_scan_is_its_cell_in_a_python_loop(config):
    decoder, arguments = RecurrentDecoder(config, N), _arguments(config)
    variables = _random_variables(decoder, arguments)

    @jax.jit
    def start(variables, summary, memory, embedded):
        def parts(decoder):
            prepared = decoder.prepare(memory, VALID)
            gates = decoder.input_gates(embedded)
            return decoder.begin(summary), prepared, gates

        return decoder.apply(variables, method=parts)

    @jax.jit
    def position(variables, carry, prepared, gates):
        inputs = Inputs(gates, None)
        return decoder.apply(
            variables, method=lambda decoder: decoder.cell(carry, prepared, inputs)
        )

    run = jax.jit(lambda *args: decoder.apply(*args, method=_decode))
    weights = np.asarray(run(variables, *arguments)[1])
    carry, prepared, gates = start(variables, *arguments)
    gates = np.asarray(gates)
    assert len(carry.states) == 3
    for t in range(T):
        carry, outputs = position(variables, carry, prepared, gates[:, t])
        np.testing.assert_allclose(weights[:, t], outputs.focus.weights, atol=1e-6)
    assert np.abs(weights[:, 1:] - weights[:, :-1]).max() > 1e-3


def test_dropout_between_layers_has_a_new_mask_at_every_position():
    config = RNNConfig(embedding_width=E, hidden_width=D, decoder_layers=2, dropout=0.5)
    decoder = RecurrentDecoder(config, N)
    draw = jax.jit(
        lambda rng: decoder.apply(
            {},
            jnp.ones((B, T, E)),
            train=True,
            rngs={"dropout": rng},
            method="dropout_factors",
        )
    )
    factors = np.asarray(draw(jax.random.key(0)))
    assert factors.shape == (T, B, 1, D)
    assert set(np.unique(factors)) == {0.0, 2.0}
    assert (factors[0] != factors[1]).any()


def test_dropout_between_layers_acts_while_training_only():
    config = RNNConfig(embedding_width=E, hidden_width=D, decoder_layers=2, dropout=0.5)
    decoder, arguments = RecurrentDecoder(config, N), _arguments(config)
    variables = _random_variables(decoder, arguments)

    def train(decoder, summary, memory, embedded):
        prepared = decoder.prepare(memory, VALID)
        return decoder(decoder.begin(summary), prepared, embedded, train=True)[1]

    @jax.jit
    def run(seed):
        rngs = {"dropout": jax.random.key(seed)}
        return decoder.apply(variables, *arguments, rngs=rngs, method=train)

    decode = jax.jit(functools.partial(decoder.apply, method=_decode))
    still, first, again, other = jax.device_get(
        [decode(variables, *arguments)[0], run(0), run(0), run(1)]
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0
    assert np.abs(first - still).max() > 0
