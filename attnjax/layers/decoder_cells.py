"""One position of a recurrent decoder.

Three cells share one form, ``(carry, memory, inputs) -> (carry, outputs)``:

====================  ===================================  ======================
cell                  attends                              the context enters
====================  ===================================  ======================
`PlainCell`           never, or after the recurrence       the readout
`PreviousStateCell`   with the state before the token      gates and the readout
`InputFeedingCell`    with the state after the token       the readout, and the
                                                           gates of the next token
====================  ===================================  ======================
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.config import RNNConfig
from attnjax.layers.linear import Linear
from attnjax.layers.memory_attention import Focus, MemoryAttention, PreparedMemory
from attnjax.layers.recurrent import RecurrentCell
from attnjax.ops.recurrence import CELL_KINDS, State
from attnjax.partitioning import named
from attnjax.types import Array

States = tuple[State, ...]  # of all layers, lowest first


class Inputs(NamedTuple):
    """What a cell reads at one position.

    Attributes:
        gates: ``[B, G]``, products of the embedded token for the lowest layer.
        dropout: ``[B, layers - 1, D]``, factors of what passes between layers; None
            outside training.
        position: ``[B]`` int, of the token; None where no attention reads it.
        noise: ``[B, S]``, of the draw of a key; None where none is drawn.
    """

    gates: Array
    dropout: Array | None
    position: Array | None = None
    noise: Array | None = None


class Carry(NamedTuple):
    """What a cell hands to the next position.

    Attributes:
        states: of each layer.
        vector: ``[B, E]``, the attentional vector that is fed back, else None.
        position: ``[B]`` int, of the first token that has not been read.
    """

    states: States
    vector: Array | None
    position: Array


class Outputs(NamedTuple):
    """What a cell computed at one position.

    Attributes:
        hidden: ``[B, D]``, of the top layer.
        focus: where it looked, without the axis T, if the cell attends.
        vector: ``[B, E]``, if the cell makes the readout itself.
    """

    hidden: Array
    focus: Focus | None = None
    vector: Array | None = None


class RecurrentStack(nn.Module):
    """One position of stacked recurrent layers.

    Attributes:
        config: sizes.
        dtype: of the computation; parameters are float32.
    """

    config: RNNConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, states: States, inputs: Inputs) -> States:
        """Advances every layer by one position.

        Args:
            states: of each layer, arrays ``[B, D]``.
            inputs: gates of the lowest layer, and the dropout between layers.

        Returns:
            The next states.
        """
        config = self.config
        num_outputs = CELL_KINDS[config.cell].num_gates * config.hidden_width
        gates = inputs.gates
        advanced: list[State] = []
        for index, state in enumerate(states):
            if index > 0:
                below = advanced[-1][0]
                if inputs.dropout is not None:
                    below = below * inputs.dropout[:, index - 1]
                name = f"input_gates_{index}"
                gates = Linear(num_outputs, dtype=self.dtype, name=name)(below)
            cell = RecurrentCell(
                config.cell, config.hidden_width, self.dtype, name=f"cell_{index}"
            )
            advanced.append(cell(state, gates))
        return tuple(advanced)


class PlainCell(nn.Module):
    """A position without attention; see the module's table.

    Attributes:
        stack: the recurrent layers.
    """

    stack: RecurrentStack

    def __call__(
        self, carry: Carry, memory: PreparedMemory, inputs: Inputs
    ) -> tuple[Carry, Outputs]:
        """Advances the layers."""
        del memory
        states = self.stack(carry.states, inputs)
        return carry._replace(states=states), Outputs(states[-1][0])


class PreviousStateCell(nn.Module):
    """Attends with the last state, then reads token and context (Bahdanau et al. 2015).

    Attributes:
        stack: the recurrent layers; the lowest reads the context.
        attention: over the memory.
    """

    stack: RecurrentStack
    attention: MemoryAttention

    def __call__(
        self, carry: Carry, memory: PreparedMemory, inputs: Inputs
    ) -> tuple[Carry, Outputs]:
        """Attends, then advances the layers.

        Args:
            carry: of the position before.
            memory: prepared, with ``gates [B, S, G]``, the products of each value for
                the gates, so that the context need not be multiplied at each position.
            inputs: of this position.

        Returns:
            The next carry, and hidden state and focus.
        """
        focus = _attend(self.attention, carry.states[-1][0], memory, inputs)
        gates = inputs.gates + focus.mean(memory["gates"])[:, 0]
        states = self.stack(carry.states, inputs._replace(gates=gates))
        outputs = Outputs(states[-1][0], _without_time(focus))
        return carry._replace(states=states), outputs


class InputFeedingCell(nn.Module):
    """Reads token and last attentional vector, then attends (Luong et al. 2015, 3.3).

    Attributes:
        stack: the recurrent layers; the lowest reads the attentional vector.
        attention: over the memory.
        readout: makes the attentional vector, an `AttentionalVector`.
        dtype: of the computation; parameters are float32.
    """

    stack: RecurrentStack
    attention: MemoryAttention
    readout: nn.Module
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, carry: Carry, memory: PreparedMemory, inputs: Inputs
    ) -> tuple[Carry, Outputs]:
        """Advances the layers, then attends and forms the attentional vector."""
        feed_gates = gate_product(inputs.gates.shape[-1], self.dtype, name="feed_gates")
        gates = inputs.gates + feed_gates(carry.vector)
        states = self.stack(carry.states, inputs._replace(gates=gates))
        hidden = states[-1][0]
        focus = _attend(self.attention, hidden, memory, inputs)
        vector = self.readout(hidden, focus.mean(memory["value"])[:, 0], None)
        outputs = Outputs(hidden, _without_time(focus), vector)
        return carry._replace(states=states, vector=vector), outputs


def gate_product(width: int, dtype: Any, name: str | None = None) -> nn.Dense:
    """A linear map for gates that have a bias from elsewhere.

    Args:
        width: G, of the gates.
        dtype: of the computation; the kernel is float32.
        name: of the layer, where it is not assigned in ``setup``.

    Returns:
        The layer, without a bias.
    """
    init = named(nn.initializers.xavier_uniform(), "model", None)
    return nn.Dense(width, use_bias=False, kernel_init=init, dtype=dtype, name=name)


def _attend(
    attention: MemoryAttention, hidden: Array, memory: PreparedMemory, inputs: Inputs
) -> Focus:
    """Attends with one state a row."""
    position, noise = jax.tree.map(
        lambda array: array[:, None], (inputs.position, inputs.noise)
    )
    return attention(hidden[:, None], memory, position, noise)


def _without_time(focus: Focus) -> Focus:
    return jax.tree.map(lambda array: array[:, 0], focus)
