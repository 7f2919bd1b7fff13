"""Recurrent decoders: a cell for one position, unrolled over all by `nn.scan`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.config import RNNConfig
from attnjax.layers.decoder_cells import (
    Carry,
    InputFeedingCell,
    Inputs,
    Outputs,
    PlainCell,
    PreviousStateCell,
    RecurrentStack,
    gate_product,
)
from attnjax.layers.dropout import Dropout
from attnjax.layers.linear import Linear
from attnjax.layers.memory_attention import (
    MemoryAttention,
    PreparedMemory,
    weighted_mean,
)
from attnjax.layers.readout import AttentionalVector, DeepOutput
from attnjax.layers.recurrent import scan_positions
from attnjax.ops.recurrence import CELL_KINDS, State
from attnjax.types import Array


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
        if config.attention != "none":
            self.attention = MemoryAttention(
                config.attention,
                query_width=config.hidden_width,
                memory_width=self.memory_width,
                width=config.attention_width,
                max_keys=config.max_source_tokens,
                dtype=self.dtype,
            )
        readout = DeepOutput if config.query == "previous" else AttentionalVector
        self.readout: nn.Module = readout(config.embedding_width, self.dtype)
        self.cell: nn.Module
        stack = RecurrentStack(config, self.dtype)
        if config.input_feeding:
            self.cell = InputFeedingCell(
                stack, self.attention, self.readout, self.dtype
            )
        elif self.attends and config.query == "previous":
            self.context_gates = gate_product(num_outputs, self.dtype)
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
        carry, outputs = scan_positions(_position, self.cell, carry, memory, inputs)
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


def _position(
    cell: nn.Module, carry: Carry, memory: PreparedMemory, inputs: Inputs
) -> tuple[Carry, Outputs]:
    return cell(carry, memory, inputs)
