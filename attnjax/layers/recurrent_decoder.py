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
from attnjax.layers.memory_attention import Focus, MemoryAttention, PreparedMemory
from attnjax.layers.readout import AttentionalVector, DeepOutput
from attnjax.layers.recurrent import scan_positions
from attnjax.ops import hard
from attnjax.ops.recurrence import CELL_KINDS, State
from attnjax.types import Array, PyTree


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
        self.bridges = self._make_bridges(kind.num_arrays)
        self.layer_dropout = Dropout(config.dropout)
        self.attends = config.attention != "none"
        if config.attention != "none":
            self.attention = MemoryAttention(
                config.attention,
                query_width=config.hidden_width,
                memory_width=self.memory_width,
                width=config.attention_width,
                max_keys=config.max_source_tokens,
                selection=config.selection,
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
        """Starts every layer from the encoder's final states.

        With as many layers as the encoder has, each starts from the layer of its height
        (Luong et al. 2015; Sutskever et al. 2014): from a copy of its state, or if that
        has two directions from a map of both. With another number, each starts from a
        map of all final states. Where there is a map, hidden states start as
        ``tanh(W final + b)`` (Bahdanau et al. 2015, A.2.2, who read the backward state
        only), cells of an LSTM without the tanh.

        Args:
            summary: final states of all encoder layers and directions, joined.

        Returns:
            The carry before the first position.
        """
        starts = [self._starts(index, array) for index, array in enumerate(summary)]
        states = tuple(zip(*starts, strict=True))
        rows = summary[0].shape[0]
        vector = None
        if self.config.input_feeding:
            vector = jnp.zeros((rows, self.config.embedding_width), self.dtype)
        return Carry(states, vector, jnp.zeros(rows, jnp.int32))

    def __call__(
        self, carry: Carry, memory: PreparedMemory, embedded: Array, *, train: bool
    ) -> tuple[Carry, jax.Array, Focus | None]:
        """Reads tokens, one after the other.

        Args:
            carry: from `begin`, or from the tokens before.
            memory: from `prepare`.
            embedded: ``[B, T, E]``.
            train: whether dropout acts, and keys are drawn where the selection does so.

        Returns:
            The carry after the last token, vectors ``[B, T, E]`` and where each
            position looked (None without attention).
        """
        num_tokens = embedded.shape[1]
        position_tb = carry.position[None, :] + jnp.arange(num_tokens)[:, None]
        noise_tbs = self.choice_noise(position_tb, memory, train=train)
        selection = self.config.selection
        if noise_tbs is not None and train and isinstance(selection, hard.HardChoice):
            rate, rows = selection.soft_rate, embedded.shape[:1]
            is_soft = jax.random.bernoulli(self.make_rng("dropout"), rate, rows)
            memory = {**memory, "is_soft": is_soft}
        gates_tbg = self.input_gates(jnp.swapaxes(embedded, 0, 1))
        dropout = self.dropout_factors(embedded, train=train)
        inputs = Inputs(gates_tbg, dropout, position_tb, noise_tbs)
        carry, outputs = scan_positions(_position, self.cell, carry, memory, inputs)
        carry = carry._replace(position=carry.position + num_tokens)
        hidden_btd, focus, vectors_bte = _batch_first(outputs)
        if vectors_bte is None:
            context_btv = None
            if self.attends:
                if focus is None:
                    where = _batch_first((position_tb, noise_tbs))
                    focus = self.attention(hidden_btd, memory, *where)
                context_btv = focus.mean(memory["value"])
            vectors_bte = self.readout(hidden_btd, context_btv, embedded)
        return carry, vectors_bte, focus

    def choice_noise(
        self, position: Array, memory: PreparedMemory, *, train: bool
    ) -> Array | None:
        """Draws the noise of all draws of a key before the recurrence.

        Args:
            position: ``[T, B]`` int, of the tokens.
            memory: from `prepare`.
            train: whether it is new at every call.

        Returns:
            ``[T, B, S]``; None where no key is drawn.
        """
        selection = self.config.selection
        if not isinstance(selection, hard.HardChoice | hard.GumbelChoice):
            return None
        num_keys = memory["valid"].shape[1]
        if train:
            rng = self.make_rng("dropout")
            return jax.random.gumbel(rng, (*position.shape, num_keys))
        if selection.test_choice == "argmax":
            return None
        return hard.noise_at(position, num_keys, selection.seed)

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

    @property
    def is_layer_by_layer(self) -> bool:
        """Whether each layer starts from the encoder layer of its own height."""
        return self.config.encoder_layers == self.config.decoder_layers

    def _make_bridges(self, num_arrays: int) -> list[Linear]:
        """Maps of the final states: of every array, and in each layer by layer."""
        config = self.config
        width, layers = config.hidden_width, config.decoder_layers
        if not self.is_layer_by_layer:
            return [Linear(width, layers, self.dtype) for _ in range(num_arrays)]
        if self.memory_width == width:
            return []
        return [Linear(width, 1, self.dtype) for _ in range(num_arrays * layers)]

    def _starts(self, index: int, array: Array) -> list[Array]:
        """What one array of the state starts as, ``[B, D]`` for each layer."""
        layers = self.config.decoder_layers
        finals = (
            jnp.split(array, layers, axis=-1) if self.is_layer_by_layer else [array]
        )
        if not self.bridges:
            return list(finals)
        first = index * len(finals)
        starts: list[Array] = [
            mapped_bd
            for offset, final in enumerate(finals)
            for mapped_bd in jnp.unstack(self.bridges[first + offset](final), axis=1)
        ]
        return [jnp.tanh(start) for start in starts] if index == 0 else starts


def _position(
    cell: nn.Module, carry: Carry, memory: PreparedMemory, inputs: Inputs
) -> tuple[Carry, Outputs]:
    return cell(carry, memory, inputs)


def _batch_first(outputs: PyTree) -> PyTree:
    return jax.tree.map(lambda array: jnp.swapaxes(array, 0, 1), outputs)
