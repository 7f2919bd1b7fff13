"""Recurrent layers: PyTorch's numbers, a Python loop, padding that is never read."""

import functools
from pathlib import Path

import jax
import numpy as np
import pytest

from attnjax.layers.recurrent import RecurrentCell, RecurrentEncoder, RecurrentLayer
from attnjax.ops.recurrence import CELL_KINDS

GOLDEN = Path(__file__).parents[1] / "golden"
B, S, E, D = 3, 7, 5, 11
LENGTHS = np.array([7, 4, 1])
VALID = np.arange(S)[None] < LENGTHS[:, None]


def _normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _random_variables(module, *args, **kwargs):
    shapes = jax.eval_shape(lambda rng: module.init(rng, *args, **kwargs), _rng())
    rng = np.random.default_rng(1)
    return jax.tree.map(
        lambda leaf: 0.5 * rng.normal(size=leaf.shape).astype(leaf.dtype), shapes
    )


def _rng() -> jax.Array:
    return jax.random.key(0)


@functools.cache
def _compiled(encoder):
    return jax.jit(lambda *args: encoder.apply(*args, train=False))


def _encode(encoder, variables, inputs, valid):
    # Slicing device arrays compiles; slicing numpy arrays does not.
    return jax.device_get(_compiled(encoder)(variables, inputs, valid))


@pytest.mark.parametrize("kind", CELL_KINDS)
def test_encoder_agrees_with_pytorch(kind):
    golden = np.load(GOLDEN / f"torch_bi{kind}.npz")

    def direction(suffix: str):
        kernel_in, kernel, bias_in, bias = (
            golden[f"param:{name}_l0{suffix}"]
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        return {
            "input_gates": {"kernel": kernel_in.T, "bias": bias_in},
            "cell": {"kernel": kernel.T, "bias": bias},
        }

    params = {
        "layer_0_forward": direction(""),
        "layer_0_backward": direction("_reverse"),
    }
    inputs, lengths = golden["inputs"], golden["lengths"]
    valid = np.arange(inputs.shape[1])[None] < lengths[:, None]
    width = golden["final_hidden"].shape[-1]
    states, summary = _encode(
        RecurrentEncoder(kind, width), {"params": params}, inputs, valid
    )
    np.testing.assert_allclose(states, golden["outputs"], atol=1e-5)
    final_hidden = np.concatenate(golden["final_hidden"], axis=-1)
    np.testing.assert_allclose(summary[0], final_hidden, atol=1e-5)


@pytest.mark.parametrize(("kind", "length"), [("gru", S), ("lstm", S + 1)])
def test_layer_is_its_cell_in_a_python_loop(kind, length):
    inputs = _normal(length, B, E)
    layer = RecurrentLayer(kind, D)
    variables = _random_variables(layer, inputs, LENGTHS)
    run = jax.jit(layer.apply)
    hidden_sbd, final = jax.device_get(run(variables, inputs, LENGTHS))

    params = variables["params"]
    gates = inputs @ params["input_gates"]["kernel"] + params["input_gates"]["bias"]
    cell = jax.jit(RecurrentCell(kind, D).apply)
    state = (np.zeros((B, D), np.float32),) * CELL_KINDS[kind].num_arrays
    for position in range(length):
        step = cell({"params": params["cell"]}, state, gates[position])
        state = jax.device_get(step)
        np.testing.assert_allclose(hidden_sbd[position], state[0], atol=1e-6)
        for row in np.flatnonzero(LENGTHS == position + 1):
            for got, expected in zip(final, state, strict=True):
                np.testing.assert_allclose(got[row], expected[row], atol=1e-6)


@pytest.mark.parametrize("kind", CELL_KINDS)
def test_a_sentence_alone_equals_itself_in_a_padded_batch(kind):
    encoder = RecurrentEncoder(kind, D, num_layers=2)
    inputs = _normal(B, S, E)
    variables = _random_variables(encoder, inputs, VALID, train=False)
    states, summary = _encode(encoder, variables, inputs, VALID)
    assert states.shape == (B, S, 2 * D)
    assert summary[0].shape == (B, 4 * D)
    for row, length in [*enumerate(LENGTHS)][1:]:  # the first has no padding
        alone, alone_summary = _encode(
            *(encoder, variables, inputs[row : row + 1, :length]),
            np.ones((1, length), bool),
        )
        np.testing.assert_allclose(states[row, :length], alone[0], atol=1e-5)
        np.testing.assert_array_equal(states[row, length:], 0)
        for array, expected in zip(summary, alone_summary, strict=True):
            np.testing.assert_allclose(array[row], expected[0], atol=1e-5)


def test_padding_is_never_read():
    encoder = RecurrentEncoder("lstm", D)
    inputs = _normal(B, S, E)
    variables = _random_variables(encoder, inputs, VALID, train=False)
    other = np.where(VALID[..., None], inputs, 1e3 * _normal(B, S, E, seed=2))

    def total(inputs):
        states, summary = encoder.apply(variables, inputs, VALID, train=False)
        return states.sum() + sum(array.sum() for array in summary), (states, summary)

    run = jax.jit(jax.grad(total, has_aux=True))
    _, expected = run(inputs)
    gradient, got = jax.device_get(run(other))
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    np.testing.assert_array_equal(gradient[~VALID], 0)
    assert np.abs(gradient[VALID]).min() > 0


def test_an_empty_sentence_has_zero_states_and_summary():
    encoder = RecurrentEncoder("gru", D)
    inputs = _normal(B, S, E)
    variables = _random_variables(encoder, inputs, VALID, train=False)
    states, (summary,) = _encode(
        encoder, variables, inputs, VALID & (LENGTHS[:, None] > 1)
    )
    np.testing.assert_array_equal(states[2], 0)
    np.testing.assert_array_equal(summary[2], 0)
    assert np.abs(summary[:2]).min() > 0


def test_one_direction_reads_forward_only():
    encoder = RecurrentEncoder("gru", D, bidirectional=False)
    inputs = _normal(B, S, E)
    variables = _random_variables(encoder, inputs, VALID, train=False)
    changed = inputs.copy()
    changed[0, 3] += 1
    before, _ = _encode(encoder, variables, inputs, VALID)
    after, _ = _encode(encoder, variables, changed, VALID)
    assert before.shape == (B, S, D)
    np.testing.assert_array_equal(before[0, :3], after[0, :3])
    assert np.abs(before[0, 3:] - after[0, 3:]).max(axis=1).min() > 0


def test_dropout_acts_between_layers_while_training():
    encoder = RecurrentEncoder("gru", D, num_layers=2, dropout=0.5)
    inputs = _normal(B, S, E)
    variables = _random_variables(encoder, inputs, VALID, train=False)

    @jax.jit
    def train(seed):
        rngs = {"dropout": jax.random.key(seed)}
        return encoder.apply(variables, inputs, VALID, train=True, rngs=rngs)[0]

    still, _ = _encode(encoder, variables, inputs, VALID)
    first, again, other = (jax.device_get(train(seed)) for seed in (0, 0, 1))
    assert np.abs(first - other).max() > 0
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - still).max() > 0


def test_parameters_start_orthogonal_with_an_open_forget_gate():
    state = (np.zeros((B, D), np.float32),) * 2
    init = jax.jit(RecurrentCell("lstm", D).init)
    gates = np.zeros((B, 4 * D), np.float32)
    variables = jax.device_get(init(_rng(), state, gates))
    gates = variables["params"]["kernel"].reshape(D, 4, D)
    for index in range(4):
        product = gates[:, index] @ gates[:, index].T
        np.testing.assert_allclose(product, np.eye(D), atol=1e-5)
    bias = variables["params"]["bias"].reshape(4, D)
    np.testing.assert_array_equal(bias.sum(axis=1), [0, D, 0, 0])
