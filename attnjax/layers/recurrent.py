"""Recurrent layers and the bidirectional encoder made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.layers.dropout import Dropout
from attnjax.layers.linear import Linear
from attnjax.ops.recurrence import CELL_KINDS, State, last_real, reverse_by_length
from attnjax.partitioning import named
from attnjax.types import Array, PyTree

CellName = Literal["gru", "lstm"]

# Positions written out per turn of the compiled loop: on a CPU a training step takes an
# eighth less time, against half as much again to compile. More did not gain.
_UNROLL = 4


class RecurrentCell(nn.Module):
    """One position of a recurrent layer; owns the recurrent weights.

    The kernel starts orthogonal for each gate (Saxe et al. 2014; Bahdanau et al. 2015,
    B.1), biases at 0, that of an LSTM's forget gate at 1 (Jozefowicz et al. 2015).

    Attributes:
        kind: "gru" or "lstm"; see `attnjax.ops.recurrence`.
        width: D, of the hidden state.
        dtype: of the computation; parameters are float32.
    """

    kind: CellName
    width: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, state: State, input_gates: Array) -> State:
        """Reads one position.

        Args:
            state: arrays ``[B, D]``, the hidden state first.
            input_gates: ``[B, G]``, products of the input, for all gates.

        Returns:
            The next state.
        """
        kind = CELL_KINDS[self.kind]
        num_outputs = kind.num_gates * self.width
        init = named(self._kernel_init, "model", None)
        kernel = self.param("kernel", init, (self.width, num_outputs))
        bias = self.param("bias", self._bias_init, (num_outputs,))
        hidden_gates = state[0] @ jnp.asarray(kernel, self.dtype)
        hidden_gates += jnp.asarray(bias, self.dtype)[None]
        return kind.update(input_gates, hidden_gates, state)

    def _kernel_init(self, rng: Array, shape: tuple[int, int]) -> jax.Array:
        gate_rngs = jax.random.split(rng, shape[1] // self.width)
        square = (self.width, self.width)
        gates = [nn.initializers.orthogonal()(rng, square) for rng in gate_rngs]
        return jnp.concatenate(gates, axis=1)

    def _bias_init(self, rng: Array, shape: tuple[int]) -> jax.Array:
        del rng
        gates = jnp.zeros((shape[0] // self.width, self.width))
        forget_gate = CELL_KINDS[self.kind].forget_gate
        if forget_gate is not None:
            gates = gates.at[forget_gate].set(1.0)
        return gates.reshape(shape)


class RecurrentLayer(nn.Module):
    """One layer in one direction, over whole sequences.

    Attributes:
        kind: "gru" or "lstm".
        width: D, of the hidden state.
        backward: whether to read from the end of each row's real part to its start.
        dtype: of the computation; parameters are float32.
    """

    kind: CellName
    width: int
    backward: bool = False
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, inputs: Array, lengths: Array) -> tuple[jax.Array, State]:
        """Reads sequences that are padded on the right.

        Padding comes after all that is real in either direction, so that it is never
        read before something real; the final state is that of the last real position.

        Args:
            inputs: ``[S, B, E]``, time first.
            lengths: ``[B]`` int, the real positions of each row.

        Returns:
            Hidden states ``[S, B, D]``, meaningless on padding, and the final state of
            each row, arrays ``[B, D]``: zeros for an empty row.
        """
        if self.backward:
            inputs = reverse_by_length(inputs, lengths)
        kind = CELL_KINDS[self.kind]
        num_outputs = kind.num_gates * self.width
        gates_sbg = Linear(num_outputs, dtype=self.dtype, name="input_gates")(inputs)
        start = jnp.zeros((inputs.shape[1], self.width), self.dtype)
        cell = RecurrentCell(self.kind, self.width, self.dtype, name="cell")
        carry = (start,) * kind.num_arrays
        _, states = scan_positions(_advance, cell, carry, None, gates_sbg)
        final = tuple(last_real(array_sbd, lengths) for array_sbd in states)
        hidden_sbd = states[0]
        if self.backward:
            hidden_sbd = reverse_by_length(hidden_sbd, lengths)
        return hidden_sbd, final


def scan_positions(
    position: Callable[..., Any],
    module: nn.Module,
    carry: PyTree,
    constants: PyTree,
    inputs: PyTree,
) -> tuple[PyTree, PyTree]:
    """Runs a function of one position over all positions, with `nn.scan`.

    Args:
        position: ``(module, carry, constants, inputs) -> (carry, outputs)``.
        module: owns the parameters, which all positions share.
        carry: before the first position.
        constants: shared by all positions.
        inputs: of all positions, arrays ``[T, ...]``.

    Returns:
        The carry after the last position, and outputs ``[T, ...]``.
    """
    length = jax.tree.leaves(inputs)[0].shape[0]
    scan = nn.scan(
        position,
        variable_broadcast="params",
        split_rngs={"params": False},
        in_axes=(nn.broadcast, 0),
        unroll=_UNROLL if length % _UNROLL == 0 else 1,
    )
    return scan(module, carry, constants, inputs)


def _advance(
    cell: RecurrentCell, state: State, constants: None, input_gates: Array
) -> tuple[State, State]:
    del constants
    state = cell(state, input_gates)
    return state, state


class RecurrentEncoder(nn.Module):
    """Stacked recurrent layers, in one direction or both.

    Both directions of a layer read the joined outputs of the layer below. Dropout acts
    between layers, with a new mask at every position (Zaremba et al. 2014).

    Attributes:
        kind: "gru" or "lstm".
        width: D, of each direction.
        num_layers: how many layers.
        bidirectional: whether each layer also reads backwards.
        dropout: rate between layers.
        dtype: of the computation; parameters are float32.
    """

    kind: CellName
    width: int
    num_layers: int = 1
    bidirectional: bool = True
    dropout: float = 0.0
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, inputs: Array, valid: Array, *, train: bool
    ) -> tuple[jax.Array, State]:
        """Encodes sentences.

        Args:
            inputs: ``[B, S, E]``, padded on the right.
            valid: ``[B, S]`` bool, True on real positions.
            train: whether dropout acts.

        Returns:
            The top layer's states ``[B, S, N]``, forward then backward, zero on
            padding; and the final states of all layers and directions, lowest layer
            first, joined to arrays ``[B, num_layers N]``. N is ``2 D``, or D if there
            is one direction.
        """
        lengths = jnp.sum(valid, axis=1)
        states_sbn: Array = jnp.swapaxes(inputs, 0, 1)
        finals: list[State] = []
        for index in range(self.num_layers):
            if index > 0:
                states_sbn = Dropout(self.dropout)(states_sbn, train=train)
            outputs: list[Array] = []
            for backward in (False, True) if self.bidirectional else (False,):
                direction = "backward" if backward else "forward"
                layer = RecurrentLayer(
                    *(self.kind, self.width, backward, self.dtype),
                    name=f"layer_{index}_{direction}",
                )
                output, final = layer(states_sbn, lengths)
                outputs.append(output)
                finals.append(final)
            states_sbn = jnp.concatenate(outputs, axis=-1)
        states_bsn = jnp.swapaxes(states_sbn, 0, 1)
        summary = tuple(
            jnp.concatenate(arrays, axis=-1) for arrays in zip(*finals, strict=True)
        )
        return jnp.where(valid[..., None], states_bsn, 0), summary
