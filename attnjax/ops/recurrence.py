"""Recurrent cells as pure functions of one position, and order by length.

A cell sees its input only through products with matrices. Those of the input
(``input_gates``) do not depend on the recurrence, so that the caller makes them for all
positions at once; one product with the last hidden state (``hidden_gates``) remains per
position. A state is a tuple of ``[B, D]`` arrays whose first is the hidden state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.ops.door import INTEGER, require_array, require_axes
from attnjax.types import Array

State = tuple[Array, ...]


def gru_update(input_gates: Array, hidden_gates: Array, state: State) -> State:
    """One position of a gated recurrent unit (Cho et al. 2014, eq. 5 to 8).

    With ``x`` and ``h`` standing for the gates of input and hidden state::

        r = sigmoid(x_r + h_r)        z = sigmoid(x_z + h_z)
        n = tanh(x_n + r * h_n)       hidden' = (1 - z) * n + z * hidden

    As in cuDNN and PyTorch, the reset gate acts after the recurrent product; in the
    paper it acts before, which would need a second product within the position.

    Args:
        input_gates: ``[B, 3 D]``, in PyTorch's order r, z, n.
        hidden_gates: ``[B, 3 D]``, products of the hidden state, biases included.
        state: ``(hidden [B, D],)``.

    Returns:
        The next state.

    Raises:
        ValueError: if gates and state do not fit together.
    """
    _require_gates(input_gates, hidden_gates, state, 3)
    (hidden,) = state
    width = hidden.shape[-1]
    sum_r_z = input_gates[:, : 2 * width] + hidden_gates[:, : 2 * width]
    reset, keep = jnp.split(jax.nn.sigmoid(sum_r_z), 2, axis=-1)
    reset_hidden = reset * hidden_gates[:, 2 * width :]
    proposal = jnp.tanh(input_gates[:, 2 * width :] + reset_hidden)
    return (proposal + keep * (hidden - proposal),)


def lstm_update(input_gates: Array, hidden_gates: Array, state: State) -> State:
    """One position of a long short-term memory (Gers et al. 2000, with forget gate).

    With ``g = input_gates + hidden_gates``::

        cell' = sigmoid(g_f) * cell + sigmoid(g_i) * tanh(g_g)
        hidden' = sigmoid(g_o) * tanh(cell')

    Args:
        input_gates: ``[B, 4 D]``, in PyTorch's order i, f, g, o.
        hidden_gates: ``[B, 4 D]``, products of the hidden state, biases included.
        state: ``(hidden [B, D], cell [B, D])``.

    Returns:
        The next state.

    Raises:
        ValueError: if gates and state do not fit together.
    """
    _require_gates(input_gates, hidden_gates, state, 4)
    _, cell = state
    write, keep, proposal, read = jnp.split(input_gates + hidden_gates, 4, axis=-1)
    kept = jax.nn.sigmoid(keep) * cell
    cell = kept + jax.nn.sigmoid(write) * jnp.tanh(proposal)
    return jax.nn.sigmoid(read) * jnp.tanh(cell), cell


def _require_gates(
    input_gates: Array, hidden_gates: Array, state: State, num_gates: int
) -> None:
    rows, width = state[0].shape
    for part in state:
        require_axes("state", part, rows=rows, width=width)
    axes = {"rows": rows, f"{num_gates} gates": num_gates * width}
    require_axes("input_gates", input_gates, **axes)
    require_axes("hidden_gates", hidden_gates, **axes)


def _require_lengths(sequence: Array, lengths: Array) -> None:
    require_array("lengths", lengths, INTEGER)
    if lengths.shape != sequence.shape[1:2]:
        raise ValueError(
            "lengths must be [B] for a sequence [S, B, ...], got "
            f"{lengths.shape} and {sequence.shape}."
        )


class CellKind(NamedTuple):
    """What distinguishes one kind of recurrent cell from another.

    Attributes:
        update: the mathematics of one position.
        num_gates: the gates of width D that `update` expects.
        num_arrays: the arrays in its state.
        forget_gate: which gate starts with bias 1, if any.
    """

    update: Callable[[Array, Array, State], State]
    num_gates: int
    num_arrays: int
    forget_gate: int | None


CELL_KINDS = {
    "gru": CellKind(gru_update, num_gates=3, num_arrays=1, forget_gate=None),
    "lstm": CellKind(lstm_update, num_gates=4, num_arrays=2, forget_gate=1),
}


def reverse_by_length(sequence: Array, lengths: Array) -> jax.Array:
    """Reverses the real part of each row; the padding stays where it is.

    Args:
        sequence: ``[S, B, ...]``, padded on the right.
        lengths: ``[B]`` int, the real positions of each row.

    Returns:
        ``[S, B, ...]``; reversing twice gives the sequence back.

    Raises:
        ValueError: if there is not one length for each row.
    """
    _require_lengths(sequence, lengths)
    position_sb = jnp.arange(sequence.shape[0])[:, None]
    mirrored_sb = lengths[None] - 1 - position_sb
    source_sb = jnp.where(mirrored_sb >= 0, mirrored_sb, position_sb)
    return jnp.asarray(sequence)[source_sb, jnp.arange(sequence.shape[1])[None]]


def last_real(sequence: Array, lengths: Array) -> jax.Array:
    """The last real position of each row; zeros for an empty row.

    Args:
        sequence: ``[S, B, D]``, padded on the right.
        lengths: ``[B]`` int, the real positions of each row.

    Returns:
        ``[B, D]``.

    Raises:
        ValueError: if there is not one length for each row.
    """
    _require_lengths(sequence, lengths)
    rows = jnp.arange(sequence.shape[1])
    last_bd = jnp.asarray(sequence)[jnp.maximum(lengths - 1, 0), rows]
    return jnp.where(lengths[:, None] > 0, last_bd, 0)
