"""Recurrent sequence-to-sequence models: Sutskever, Bahdanau and Luong."""

from __future__ import annotations

from typing import Any, cast

import jax.numpy as jnp
from flax import linen as nn

from attnjax.config import RNNConfig
from attnjax.layers.dropout import Dropout
from attnjax.layers.embedding import Embedding
from attnjax.layers.recurrent import RecurrentEncoder
from attnjax.layers.recurrent_decoder import RecurrentDecoder
from attnjax.ops.hard import HardChoice
from attnjax.ops.reinforce import Baseline, advantages, empty_baseline, surrogate
from attnjax.types import (
    Array,
    Choices,
    Decoded,
    Encoded,
    Longest,
    PyTree,
    Stepped,
    Tokens,
)


class RNNSeq2Seq(nn.Module):
    """Encoder and decoder of recurrent layers; see `types.Seq2Seq`.

    =======================  =====================================================
    model                    config
    =======================  =====================================================
    Bahdanau et al. 2015     ``attention="additive", query="previous"``
    Luong et al. 2015        ``cell="lstm", query="current", input_feeding=True``,
                             any attention, ``bidirectional=False``
      its local attention    and ``selection=LocalP()``
    Sutskever et al. 2014    ``cell="lstm", attention="none"``
    Xu et al. 2015, hard     ``selection=HardChoice()``
    =======================  =====================================================

    Without attention all that the decoder learns about the source is its initial state,
    made from the encoder's final states; encoder, decoder and readout are otherwise
    those of the model with attention, so that the two can be compared.

    The vectors that the logits are made of have the width of the embeddings, so that an
    output table can always be tied to them. Weights of the attention are returned as
    "decoder/cross", with one head.

    Attributes:
        config: sizes, rates and variants.
        source_size: number of source tokens.
        target_size: number of target tokens.
        dtype: of the computation; parameters and softmax are float32.

    Raises:
        ValueError: at construction, if one table is to serve vocabularies of two sizes.
    """

    config: RNNConfig
    source_size: int
    target_size: int
    dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        """Checks the vocabulary sizes."""
        tied = self.config.tied_embeddings
        if tied == "all" and self.source_size != self.target_size:
            raise ValueError(
                "tied_embeddings='all' needs one vocabulary for source and target, got "
                f"{self.source_size} and {self.target_size} tokens; use 'decoder' or "
                "'none'."
            )
        super().__post_init__()

    @property
    def longest(self) -> Longest:
        """Where the tables of positions end."""
        return self.config.longest

    def setup(self) -> None:
        """Makes embeddings, encoder and decoder."""
        config = self.config
        self.target_embedding = self._table(self.target_size)
        if config.tied_embeddings == "all":
            self.source_embedding = self.target_embedding
        else:
            self.source_embedding = self._table(self.source_size)
        if config.tied_embeddings == "none":
            self.output_embedding = self._table(self.target_size)
        else:
            self.output_embedding = self.target_embedding
        self.encoder = RecurrentEncoder(
            config.cell,
            config.hidden_width,
            num_layers=config.encoder_layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
            dtype=self.dtype,
        )
        directions = 2 if config.bidirectional else 1
        memory_width = directions * config.hidden_width
        self.decoder = RecurrentDecoder(config, memory_width, self.dtype)
        self.dropout = Dropout(config.dropout)
        if isinstance(config.selection, HardChoice):
            self.baseline = self.variable("baseline", "cost", empty_baseline)

    def __call__(self, source: Tokens, inputs: Tokens, *, train: bool) -> Decoded:
        """``decode(encode(source), inputs)``, which is how training runs it."""
        return self.decode(self.encode(source, train=train), inputs, train=train)

    def encode(self, source: Tokens, *, train: bool) -> Encoded:
        """Encodes source sentences.

        Args:
            source: ``[B, S]`` tokens, padded on the right.
            train: whether dropout acts.

        Returns:
            Their states ``[B, S, N]``, and the final states of all layers and
            directions as the summary.

        Raises:
            ValueError: if the sources are packed.
        """
        _refuse_packed(source)
        embedded = self.dropout(self.source_embedding(source.ids), train=train)
        states, summary = self.encoder(embedded, source.valid, train=train)
        return Encoded(states, source, summary, {})

    def decode(self, encoded: Encoded, inputs: Tokens, *, train: bool) -> Decoded:
        """Scores the next token at every position of given targets.

        Args:
            encoded: the encoded sources.
            inputs: ``[B, T]`` decoder inputs, padded on the right.
            train: whether dropout acts.

        Returns:
            Logits ``[B, T, C]``, the attention weights, and in training the choices of
            hard attention.

        Raises:
            ValueError: if the inputs are packed.
        """
        _refuse_packed(inputs)
        memory = self.decoder.prepare(encoded.states, encoded.source.valid)
        carry = self.decoder.begin(encoded.final)
        embedded = self.dropout(self.target_embedding(inputs.ids), train=train)
        _, vectors, focus = self.decoder(carry, memory, embedded, train=train)
        logits = self.output_embedding.logits(self.dropout(vectors, train=train))
        if focus is None:
            return Decoded(logits, {})
        weights = focus.over(encoded.states.shape[1])
        choices = focus.choices if train else None
        return Decoded(logits, {"decoder/cross": weights[:, None]}, choices)

    def choice_loss(self, choices: Choices, costs: Array, weights: Array) -> Array:
        """What the choices of hard attention add to the objective.

        The gradient is that of REINFORCE with a moving baseline, which this moves on,
        and of the entropy (Xu et al. 2015, section 4.1)::

            lambda_r sum_t (sum_{t' >= t} c_t' - b) grad log p(s_t) - lambda_e grad H_t

        Args:
            choices: from `decode`, in training.
            costs: ``[B, T]`` of the target tokens in nats, such as ``-log p(y_t)``.
            weights: ``[B, T]``, 1 for tokens that count and 0 for padding.

        Returns:
            Float32 scalar, summed over the batch; its value is that of the entropy.
        """
        selection = cast(HardChoice, self.config.selection)
        baseline: Baseline = self.baseline.value
        self.baseline.value = baseline.moved(costs, weights, selection.baseline_decay)
        advantage = advantages(costs, weights, baseline.value)
        learned = surrogate(choices.log_probability, advantage, weights)
        entropy = jnp.sum(choices.entropy * weights)
        return selection.cost_weight * learned - selection.entropy_weight * entropy

    def begin(self, encoded: Encoded, max_tokens: int) -> tuple[PyTree, PyTree]:
        """Prepares for `step`.

        Args:
            encoded: the encoded sources.
            max_tokens: not needed, since a recurrent state does not grow.

        Returns:
            Constants (the prepared memory and its mask) and the recurrent state.
        """
        del max_tokens
        memory = self.decoder.prepare(encoded.states, encoded.source.valid)
        return memory, self.decoder.begin(encoded.final)

    def step(self, constants: PyTree, state: PyTree, tokens: Array) -> Stepped:
        """Scores the next token after one more token.

        Args:
            constants: from `begin`.
            state: from `begin`, or the step before.
            tokens: ``[B]`` the last tokens.

        Returns:
            Logits ``[B, C]``, the next state, and the weights over the source.
        """
        embedded = self.target_embedding(tokens[:, None])
        state, vectors, focus = self.decoder(state, constants, embedded, train=False)
        logits = self.output_embedding.logits(vectors[:, 0])
        if focus is None:
            return Stepped(logits, state, {})
        weights = focus.over(constants["value"].shape[1])
        return Stepped(logits, state, {"decoder/cross": weights})

    def _table(self, size: int) -> Embedding:
        return Embedding(size, self.config.embedding_width, dtype=self.dtype)


def _refuse_packed(tokens: Tokens) -> None:
    if tokens.segments is not None:
        raise ValueError(
            "a recurrent model reads one sentence per row, got packed rows; set "
            "data.packing=False."
        )
