"""Recurrent decoders: a cell for one position, unrolled over all by `nn.scan`.

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
from attnjax.layers.dropout import Dropout
from attnjax.layers.linear import Linear
from attnjax.layers.memory_attention import (
    MemoryAttention,
    PreparedMemory,
    weighted_mean,
)
from attnjax.layers.recurrent import RecurrentCell, unrolled
from attnjax.ops.recurrence import CELL_KINDS, State
from attnjax.types import Array

States = tuple[State, ...]  # of all layers, lowest first


class Inputs(NamedTuple):
    """What a cell reads at one position.

    Attributes:
        gates: ``[B, G]``, products of the embedded token for the lowest layer.
        dropout: ``[B, layers - 1, D]``, factors of what passes between layers; None
            outside training.
    """

    gates: Array
    dropout: Array | None


class Carry(NamedTuple):
    """What a cell hands to the next position.

    Attributes:
        states: of each layer.
        vector: ``[B, E]``, the attentional vector that is fed back, else None.
    """

    states: States
    vector: Array | None


class Outputs(NamedTuple):
    """What a cell computed at one position.

    Attributes:
        hidden: ``[B, D]``, of the top layer.
        weights: ``[B, S]``, if the cell attends.
        vector: ``[B, E]``, if the cell makes the readout itself.
    """

    hidden: Array
    weights: Array | None = None
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
        return Carry(states, None), Outputs(states[-1][0])


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
            The next carry, and hidden state and weights.
        """
        query_btd = carry.states[-1][0][:, None]
        weights_bts = self.attention(query_btd, memory)
        context_gates = weighted_mean(weights_bts, memory["gates"])[:, 0]
        gates = inputs.gates + context_gates
        states = self.stack(carry.states, inputs._replace(gates=gates))
        return Carry(states, None), Outputs(states[-1][0], weights_bts[:, 0])


class InputFeedingCell(nn.Module):
    """Reads token and last attentional vector, then attends (Luong et al. 2015, 3.3).

    Attributes:
        stack: the recurrent layers; the lowest reads the attentional vector.
        attention: over the memory.
        readout: makes the attentional vector.
        dtype: of the computation; parameters are float32.
    """

    stack: RecurrentStack
    attention: MemoryAttention
    readout: AttentionalVector
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, carry: Carry, memory: PreparedMemory, inputs: Inputs
    ) -> tuple[Carry, Outputs]:
        """Advances the layers, then attends and forms the attentional vector."""
        feed_gates = _product(inputs.gates.shape[-1], self.dtype, name="feed_gates")
        gates = inputs.gates + feed_gates(carry.vector)
        states = self.stack(carry.states, inputs._replace(gates=gates))
        hidden = states[-1][0]
        weights_bts = self.attention(hidden[:, None], memory)
        context = weighted_mean(weights_bts, memory["value"])[:, 0]
        vector = self.readout(hidden, context, None)
        return Carry(states, vector), Outputs(hidden, weights_bts[:, 0], vector)


class AttentionalVector(nn.Module):
    """Readout of Luong et al. 2015, eq. 5: ``tanh(W [context; hidden] + b)``.

    Attributes:
        width: E, of the result.
        dtype: of the computation; parameters are float32.
    """

    width: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, hidden: Array, context: Array | None, embedded: Array | None
    ) -> jax.Array:
        """Joins what is known at each position into what the logits are made of.

        Args:
            hidden: ``[..., D]``.
            context: ``[..., V]``; None without attention.
            embedded: not read.

        Returns:
            ``[..., E]``.
        """
        del embedded
        parts = [hidden] if context is None else [context, hidden]
        joined = jnp.concatenate(parts, axis=-1)
        return jnp.tanh(Linear(self.width, dtype=self.dtype, name="join")(joined))


class DeepOutput(nn.Module):
    """Readout of Bahdanau et al. 2015, A.2.2: maxout of hidden, context and token.

    ``max(W_1 [hidden; context; token] + b_1, W_2 [...] + b_2)``, element by element.

    Attributes:
        width: E, of the result.
        dtype: of the computation; parameters are float32.
    """

    width: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, hidden: Array, context: Array | None, embedded: Array
    ) -> jax.Array:
        """Joins what is known at each position into what the logits are made of.

        Args:
            hidden: ``[..., D]``.
            context: ``[..., V]``; None without attention.
            embedded: ``[..., E]``, the last token.

        Returns:
            ``[..., E]``.
        """
        contexts = [] if context is None else [context]
        joined = jnp.concatenate([hidden, *contexts, embedded], axis=-1)
        pieces = Linear(self.width, parts=2, dtype=self.dtype, name="join")(joined)
        return jnp.max(pieces, axis=-2)


class RecurrentDecoder(nn.Module):
    """Reads embedded target tokens and gives one vector per position for the logits.

    Attributes:
        config: cell, attention and sizes.
        memory_width: N, of the encoder's states.
        dtype: of the computation; parameters and softmax are float32.
    """

    config: RNNConfig
    memory_width: int
    dtype: Any = jnp.float32

    def setup(self) -> None:
        """Puts together the cell and the readout that the config names."""
        config = self.config
        kind = CELL_KINDS[config.cell]
        num_outputs = kind.num_gates * config.hidden_width
        self.input_gates = Linear(num_outputs, dtype=self.dtype)
        self.bridges = [
            Linear(config.hidden_width, parts=config.decoder_layers, dtype=self.dtype)
            for _ in range(kind.num_arrays)
        ]
        self.layer_dropout = Dropout(config.dropout)
        self.attends = config.attention != "none"
        if self.attends:
            self.attention = MemoryAttention(
                config.attention,
                query_width=config.hidden_width,
                memory_width=self.memory_width,
                width=config.attention_width,
                max_keys=config.max_source_tokens,
                dtype=self.dtype,
            )
        readout = DeepOutput if config.query == "previous" else AttentionalVector
        self.readout = readout(config.embedding_width, self.dtype)
        stack = RecurrentStack(config, self.dtype)
        if config.input_feeding:
            self.cell = InputFeedingCell(
                stack, self.attention, self.readout, self.dtype
            )
        elif self.attends and config.query == "previous":
            self.context_gates = _product(num_outputs, self.dtype)
            self.cell = PreviousStateCell(stack, self.attention)
        else:
            self.cell = PlainCell(stack)

    def prepare(self, memory: Array, valid: Array) -> PreparedMemory:
        """Does all work that is the same at every position.

        Args:
            memory: ``[B, S, N]``.
            valid: ``[B, S]`` bool, True on real positions.

        Returns:
            Arrays that lead with ``[B, S]``; empty without attention.
        """
        if not self.attends:
            return {}
        prepared = dict(self.attention.prepare(memory, valid))
        if isinstance(self.cell, PreviousStateCell):
            prepared["gates"] = self.context_gates(prepared["value"])
        return prepared

    def begin(self, summary: State) -> Carry:
        """Starts every layer from the encoder's summary.

        Hidden states start as ``tanh(W summary + b)`` (Bahdanau et al. 2015, A.2.2, who
        read the backward state only), cells of an LSTM without the tanh.

        Args:
            summary: final states of all encoder layers and directions, joined.

        Returns:
            The carry before the first position.
        """
        hidden_bld, *cells = (
            bridge(array) for bridge, array in zip(self.bridges, summary, strict=True)
        )
        arrays = (jnp.tanh(hidden_bld), *cells)
        states = tuple(
            tuple(array_bld[:, index] for array_bld in arrays)
            for index in range(self.config.decoder_layers)
        )
        if not self.config.input_feeding:
            return Carry(states, None)
        rows = summary[0].shape[0]
        return Carry(states, jnp.zeros((rows, self.config.embedding_width), self.dtype))

    def __call__(
        self, carry: Carry, memory: PreparedMemory, embedded: Array, *, train: bool
    ) -> tuple[Carry, jax.Array, jax.Array | None]:
        """Reads tokens, one after the other.

        Args:
            carry: from `begin`, or from the tokens before.
            memory: from `prepare`.
            embedded: ``[B, T, E]``.
            train: whether dropout acts.

        Returns:
            The carry after the last token, vectors ``[B, T, E]`` and attention weights
            ``[B, T, S]`` (None without attention).
        """
        gates_tbg = self.input_gates(jnp.swapaxes(embedded, 0, 1))
        inputs = Inputs(gates_tbg, self.dropout_factors(embedded, train=train))
        carry, outputs = unrolled(_position)(self.cell, carry, memory, inputs)
        outputs = jax.tree.map(lambda array: jnp.swapaxes(array, 0, 1), outputs)
        hidden_btd, weights_bts, vectors_bte = outputs
        if vectors_bte is None:
            context_btv = None
            if self.attends:
                if weights_bts is None:
                    weights_bts = self.attention(hidden_btd, memory)
                context_btv = weighted_mean(weights_bts, memory["value"])
            vectors_bte = self.readout(hidden_btd, context_btv, embedded)
        return carry, vectors_bte, weights_bts

    def dropout_factors(self, embedded: Array, *, train: bool) -> Array | None:
        """Draws the dropout between layers for all positions before the recurrence.

        Args:
            embedded: ``[B, T, E]``.
            train: whether dropout acts.

        Returns:
            Factors ``[T, B, layers - 1, D]``, a new mask at every position as in the
            encoder; None where nothing is dropped.
        """
        config = self.config
        if not train or config.decoder_layers == 1 or config.dropout == 0.0:
            return None
        shape = (config.decoder_layers - 1, config.hidden_width)
        ones = jnp.ones((embedded.shape[1], embedded.shape[0], *shape), self.dtype)
        return self.layer_dropout(ones, train=train)


def _product(width: int, dtype: Any, name: str | None = None) -> nn.Dense:
    """A further product for gates that have a bias already."""
    init = nn.initializers.xavier_uniform()
    return nn.Dense(width, use_bias=False, kernel_init=init, dtype=dtype, name=name)


def _position(
    cell: nn.Module, carry: Carry, memory: PreparedMemory, inputs: Inputs
) -> tuple[Carry, Outputs]:
    return cell(carry, memory, inputs)
