"""The Transformer of Vaswani et al. 2017, "Attention is all you need"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from attnjax.config import TransformerConfig
from attnjax.layers.dropout import Dropout
from attnjax.layers.embedding import Embedding
from attnjax.layers.positions import AbsolutePositions
from attnjax.layers.transformer import Decoder, Encoder
from attnjax.partitioning import named
from attnjax.types import (
    Array,
    Decoded,
    Encoded,
    Longest,
    Mask,
    PyTree,
    Stepped,
    Tokens,
)


class Transformer(nn.Module):
    """Encoder and decoder of attention and feed-forward layers; see `types.Seq2Seq`.

    Post-norm stacks end as in the paper, pre-norm stacks in one more layer norm. The
    attention weights of every layer and head are always returned, under names such as
    "encoder/layer_0/self" and "decoder/layer_1/cross": a compiled function that does
    not read them does not keep them.

    Attributes:
        config: sizes, rates and variants.
        source_size: number of source tokens.
        target_size: number of target tokens.
        dtype: of the computation; parameters, softmax and norms are float32.
        has_logits_bias: whether each token's logit has a bias (Marian; not the paper).

    Raises:
        ValueError: at construction, if one table is to serve vocabularies of two sizes.
    """

    config: TransformerConfig
    source_size: int
    target_size: int
    dtype: Any = jnp.float32
    has_logits_bias: bool = False

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
        """Makes the embeddings and stacks."""
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
        if self.has_logits_bias:
            init = named(nn.initializers.zeros, "vocabulary")
            self.logits_bias = self.param("logits_bias", init, (self.target_size,))
        final_norm = config.norm_position == "pre"
        self.encoder = Encoder(config, final_norm, dtype=self.dtype)
        self.decoder = Decoder(config, final_norm, dtype=self.dtype)
        self.embedding_dropout = Dropout(config.dropout)
        self.positions = AbsolutePositions(
            config.positions, config.width, config.max_positions, self.dtype
        )

    def __call__(self, source: Tokens, inputs: Tokens, *, train: bool) -> Decoded:
        """``decode(encode(source), inputs)``, which is how training runs it."""
        return self.decode(self.encode(source, train=train), inputs, train=train)

    def encode(self, source: Tokens, *, train: bool) -> Encoded:
        """Encodes source sentences.

        Args:
            source: ``[B, S]`` tokens, padded or packed.
            train: whether dropout acts.

        Returns:
            Their states ``[B, S, D]`` and self-attention weights ``[B, H, S, S]``.
        """
        x = self._embed(self.source_embedding, source, train=train)
        states, attention = self.encoder(x, _attends(source, source), train=train)
        return Encoded(states, source, None, _prefixed("encoder", attention))

    def decode(self, encoded: Encoded, inputs: Tokens, *, train: bool) -> Decoded:
        """Scores the next token at every position of given targets.

        Args:
            encoded: the encoded sources.
            inputs: ``[B, T]`` decoder inputs, padded or packed as the sources are.
            train: whether dropout acts.

        Returns:
            Logits ``[B, T, C]`` and the attention weights.
        """
        # Padding lies to the right of every real position: being causal excludes it.
        self_mask = Mask(
            causal=True, query_segments=inputs.segments, key_segments=inputs.segments
        )
        x, attention = self.decoder(
            self._embed(self.target_embedding, inputs, train=train),
            encoded.states,
            self_mask,
            _attends(inputs, encoded.source),
            train=train,
        )
        return Decoded(self._logits(x), _prefixed("decoder", attention))

    def begin(self, encoded: Encoded, max_tokens: int) -> tuple[PyTree, PyTree]:
        """Prepares for `step`.

        Args:
            encoded: the encoded sources, not packed.
            max_tokens: the most steps that will be taken.

        Returns:
            Constants (projected keys and values of the source and its mask) and the
            state (caches and the position of each row).

        Raises:
            ValueError: if the sources are packed, or learned positions end too early.
        """
        if encoded.source.segments is not None:
            raise ValueError(
                "stepwise decoding needs one sentence per row, got packed sources; "
                "encode them unpacked."
            )
        self.positions.require_length(max_tokens)
        memories, caches = self.decoder.begin(encoded.states, max_tokens)
        position = jnp.zeros(encoded.states.shape[0], jnp.int32)
        constants = {"memories": memories, "valid": encoded.source.valid}
        state = {
            "caches": caches,
            "position": position,
            "last": jnp.full_like(position, max_tokens - 1),
        }
        return constants, state

    def step(self, constants: PyTree, state: PyTree, tokens: Array) -> Stepped:
        """Scores the next token after one more token.

        A step beyond ``max_tokens`` cannot be refused inside a compiled function; its
        logits are NaN.

        Args:
            constants: from `begin`.
            state: from `begin`, or the step before.
            tokens: ``[B]`` the last tokens.

        Returns:
            Logits ``[B, C]``, the next state, and the weights over the source.
        """
        position = state["position"]
        x = self.target_embedding(tokens) + self.positions(position)
        x = jnp.where((position <= state["last"])[:, None], x, jnp.nan)
        x, caches, attention = self.decoder.step(
            x,
            constants["memories"],
            Mask(valid=constants["valid"]),
            state["caches"],
            position,
        )
        state = {**state, "caches": caches, "position": position + 1}
        return Stepped(self._logits(x), state, _prefixed("decoder", attention))

    def _logits(self, x: Array) -> Array:
        logits = self.output_embedding.logits(x)
        if not self.has_logits_bias:
            return logits
        shape = (1,) * (logits.ndim - 1) + (self.target_size,)
        return logits + self.logits_bias.astype(self.dtype).reshape(shape)

    def _table(self, size: int) -> Embedding:
        return Embedding(size, self.config.width, dtype=self.dtype)

    def _embed(self, table: Embedding, tokens: Tokens, *, train: bool) -> Array:
        length = tokens.ids.shape[1]
        self.positions.require_length(length)
        encoding = self.positions(jnp.arange(length)[None, :])
        if tokens.positions is not None:
            encoding = encoding[0][tokens.positions]
        return self.embedding_dropout(table(tokens.ids) + encoding, train=train)


def _attends(queries: Tokens, keys: Tokens) -> Mask:
    """Every real key, of the own segment if packed."""
    if (queries.segments is None) != (keys.segments is None):
        raise ValueError(
            "source and target must both be packed or both be plain; one has segments, "
            "the other has none."
        )
    return Mask(
        valid=keys.valid,
        query_segments=queries.segments,
        key_segments=keys.segments,
    )


def _prefixed(prefix: str, attention: Mapping[str, Array]) -> Mapping[str, Array]:
    return {f"{prefix}/{name}": weights for name, weights in attention.items()}
