"""Cell mathematics against float64 numpy, and order by length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.recurrence import (
    CELL_KINDS,
    gru_update,
    last_real,
    lstm_update,
    reverse_by_length,
)

B, S, D = 3, 7, 5


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _normal(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_gru_update_resets_after_the_recurrent_product():
    x, h, hidden = (
        _normal(B, 3 * D, seed=0),
        _normal(B, 3 * D, seed=1),
        _normal(B, D, seed=2),
    )
    reset = _sigmoid(x[:, :D] + h[:, :D])
    keep = _sigmoid(x[:, D : 2 * D] + h[:, D : 2 * D])
    proposal = np.tanh(x[:, 2 * D :] + reset * h[:, 2 * D :])
    expected = (1 - keep) * proposal + keep * hidden
    (got,) = gru_update(jnp.asarray(x), jnp.asarray(h), (jnp.asarray(hidden),))
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_lstm_update_has_the_gate_order_of_pytorch():
    x, h = _normal(B, 4 * D, seed=0), _normal(B, 4 * D, seed=1)
    hidden, cell = _normal(B, D, seed=2), _normal(B, D, seed=3)
    write, keep, proposal, read = (
        (x + h).reshape(B, 4, D)[:, gate] for gate in range(4)
    )
    new_cell = _sigmoid(keep) * cell + _sigmoid(write) * np.tanh(proposal)
    expected = _sigmoid(read) * np.tanh(new_cell), new_cell
    got = lstm_update(jnp.asarray(x), jnp.asarray(h), (hidden, jnp.asarray(cell)))
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("name", CELL_KINDS)
def test_cells_keep_half_precision(name):
    kind = CELL_KINDS[name]
    gates = jnp.ones((B, kind.num_gates * D), jnp.bfloat16)
    state = (jnp.ones((B, D), jnp.bfloat16),) * kind.num_arrays
    after = kind.update(gates, gates, state)
    assert [array.dtype for array in after] == [jnp.bfloat16] * kind.num_arrays


def test_reverse_by_length_leaves_padding_in_place():
    sequence = np.arange(2 * 4).reshape(2, 4).T  # rows 0 1 2 3 and 4 5 6 7
    reversed_rows = reverse_by_length(sequence, np.array([3, 0])).T
    np.testing.assert_array_equal(reversed_rows, [[2, 1, 0, 3], [4, 5, 6, 7]])


def test_reversing_twice_gives_the_sequence_back():
    sequence, lengths = jnp.asarray(_normal(S, B, D, seed=0)), jnp.array([7, 4, 1])
    twice = reverse_by_length(reverse_by_length(sequence, lengths), lengths)
    np.testing.assert_array_equal(twice, sequence)


def test_last_real_is_zero_for_an_empty_row_in_value_and_gradient():
    sequence, lengths = jnp.asarray(_normal(S, B, D, seed=0)), jnp.array([7, 4, 0])
    last, pullback = jax.vjp(lambda x: last_real(x, lengths), sequence)
    np.testing.assert_array_equal(last[:2], [sequence[6, 0], sequence[3, 1]])
    np.testing.assert_array_equal(last[2], 0)
    (gradient,) = pullback(jnp.ones_like(last))
    read = np.zeros((S, B))
    read[6, 0] = read[3, 1] = 1
    np.testing.assert_array_equal(gradient[..., 0], read)
