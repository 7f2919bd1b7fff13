"""Transformer layers and stacks, pre- or post-norm, whole or one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from attnjax.config import TransformerConfig
from attnjax.layers.attention import Memory, MultiHeadAttention
from attnjax.layers.dropout import Dropout
from attnjax.layers.feed_forward import FeedForward
from attnjax.layers.norm import LayerNorm
from attnjax.ops.catalog import entry
from attnjax.ops.entry import Slot
from attnjax.partitioning import split_rows
from attnjax.types import Array, Attended, Mask, PyTree


class Residual(nn.Module):
    """A sublayer's normalisation, dropout and residual connection.

    Post-norm is ``norm(x + dropout(f(x)))`` (Vaswani et al. 2017, section 3.1) and
    pre-norm is ``x + dropout(f(norm(x)))`` (Xiong et al. 2020, figure 1b).

    Attributes:
        norm_position: "pre" or "post".
        dropout: rate on the sublayer's output.
        dtype: of the result.
    """

    norm_position: str
    dropout: float
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, x: Array, sublayer: Callable[[Array], tuple[Array, Any]], *, train: bool
    ) -> tuple[Array, Any]:
        """Wraps ``sublayer``, which returns its output and something to hand on."""
        norm = LayerNorm(dtype=self.dtype, name="norm")
        output, extra = sublayer(norm(x) if self.norm_position == "pre" else x)
        total = x + Dropout(self.dropout, name="dropout")(output, train=train)
        total = split_rows(norm(total) if self.norm_position == "post" else total)
        return total, extra


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward layer.

    Attributes:
        config: sizes, rates and variants.
        index: of the layer in its stack, from 0; it chooses the mechanism.
        dtype: of the computation; parameters are float32.
    """

    config: TransformerConfig
    index: int
    dtype: Any = jnp.float32

    def setup(self) -> None:
        """Makes the sublayers."""
        self.attention = _attention(self.config, "encoder", self.index, self.dtype)
        self.feed_forward = _feed_forward(self.config, self.dtype)
        self.attention_residual = _residual(self.config, self.dtype)
        self.feed_forward_residual = _residual(self.config, self.dtype)

    def __call__(
        self, x: Array, mask: Mask, *, train: bool
    ) -> tuple[Array, Array | None]:
        """Maps ``[B, S, D]`` to ``[B, S, D]`` and the weights ``[B, H, S, S]``."""

        def attend(x: Array) -> Attended:
            return self.attention.attend_self(x, mask, train=train)

        def feed_forward(x: Array) -> tuple[Array, None]:
            return self.feed_forward(x, train=train), None

        x, weights = self.attention_residual(x, attend, train=train)
        x, _ = self.feed_forward_residual(x, feed_forward, train=train)
        return x, weights


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, and a feed-forward layer.

    Attributes:
        config: sizes, rates and variants.
        index: of the layer in its stack, from 0; it chooses the mechanism.
        dtype: of the computation; parameters are float32.
    """

    config: TransformerConfig
    index: int
    dtype: Any = jnp.float32

    def setup(self) -> None:
        """Makes the sublayers."""
        self.self_attention = _attention(self.config, "decoder", self.index, self.dtype)
        self.cross_attention = _attention(self.config, "cross", self.index, self.dtype)
        self.feed_forward = _feed_forward(self.config, self.dtype)
        self.self_residual = _residual(self.config, self.dtype)
        self.cross_residual = _residual(self.config, self.dtype)
        self.feed_forward_residual = _residual(self.config, self.dtype)

    def __call__(
        self, x: Array, states: Array, self_mask: Mask, cross_mask: Mask, *, train: bool
    ) -> tuple[Array, Array | None, Array | None]:
        """Decodes all positions at once.

        Args:
            x: ``[B, T, D]``.
            states: ``[B, S, D]``, the encoder's output.
            self_mask: which target position may attend to which.
            cross_mask: which target position may attend to which source position.
            train: whether dropout acts.

        Returns:
            ``[B, T, D]``, self-attention weights ``[B, H, T, T]`` and those of the
            source ``[B, H, T, S]``.
        """

        def attend_self(x: Array) -> Attended:
            return self.self_attention.attend_self(x, self_mask, train=train)

        memory = self.prepare(states)
        x, self_weights = self.self_residual(x, attend_self, train=train)
        x, cross_weights = self._attend_source(x, memory, cross_mask, train=train)
        return x, self_weights, cross_weights

    def prepare(self, states: Array) -> Memory:
        """The encoder's output ``[B, S, D]`` as keys and values of this layer."""
        return self.cross_attention.prepare(states)

    def begin(self, batch_size: int, max_tokens: int) -> PyTree:
        """An empty cache of ``max_tokens`` positions for `step`."""
        return self.self_attention.begin(batch_size, max_tokens)

    def step(
        self, x: Array, memory: Memory, cross_mask: Mask, cache: PyTree, position: Array
    ) -> tuple[Array, PyTree, Array | None]:
        """Decodes one position; equals that row of ``__call__``.

        Args:
            x: ``[B, D]``.
            memory: from `prepare`.
            cross_mask: which source position may be attended to.
            cache: from `begin`, or the step before.
            position: ``[B]`` int.

        Returns:
            ``[B, D]``, the next cache, and the weights ``[B, H, S]`` over the source.
        """

        def attend_self(x: Array) -> tuple[Array, PyTree]:
            return self.self_attention.step(x, cache, position)

        x, cache = self.self_residual(x, attend_self, train=False)
        x, weights = self._attend_source(x[:, None], memory, cross_mask, train=False)
        return x[:, 0], cache, None if weights is None else weights[:, :, 0]

    def _attend_source(
        self, x: Array, memory: Memory, mask: Mask, *, train: bool
    ) -> tuple[Array, Array | None]:
        def attend_source(x: Array) -> Attended:
            return self.cross_attention.attend_memory(x, memory, mask, train=train)

        def feed_forward(x: Array) -> tuple[Array, None]:
            return self.feed_forward(x, train=train), None

        x, weights = self.cross_residual(x, attend_source, train=train)
        x, _ = self.feed_forward_residual(x, feed_forward, train=train)
        return x, weights


class Encoder(nn.Module):
    """A stack of encoder layers.

    Attributes:
        config: sizes, rates and variants.
        final_norm: whether a layer norm follows the last layer. Pre-norm needs it;
            post-norm as in the paper has none, in PyTorch it has one.
        dtype: of the computation; parameters are float32.
    """

    config: TransformerConfig
    final_norm: bool
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, x: Array, mask: Mask, *, train: bool
    ) -> tuple[Array, Mapping[str, Array]]:
        """Encodes a sequence.

        Args:
            x: ``[B, S, D]``, embedded tokens.
            mask: which position may attend to which.
            train: whether dropout acts.

        Returns:
            ``[B, S, D]``, and the weights ``[B, H, S, S]`` of "layer_0/self", ...; a
            mechanism that never forms weights is left out.
        """
        run = _rematerialised(self.config, train)
        attention = {}
        for index in range(self.config.encoder_layers):
            layer = EncoderLayer(self.config, index, self.dtype, name=f"layer_{index}")
            x, attention[f"layer_{index}/self"] = run(layer, x, mask)
        if self.final_norm:
            x = LayerNorm(dtype=self.dtype, name="norm")(x)
        return x, _formed(attention)


class Decoder(nn.Module):
    """A stack of decoder layers.

    Attributes:
        config: sizes, rates and variants.
        final_norm: whether a layer norm follows the last layer; see `Encoder`.
        dtype: of the computation; parameters are float32.
    """

    config: TransformerConfig
    final_norm: bool
    dtype: Any = jnp.float32

    def setup(self) -> None:
        """Makes the layers."""
        self.layers = [
            DecoderLayer(self.config, index, self.dtype, name=f"layer_{index}")
            for index in range(self.config.decoder_layers)
        ]
        if self.final_norm:
            self.norm = LayerNorm(dtype=self.dtype)

    def __call__(
        self, x: Array, states: Array, self_mask: Mask, cross_mask: Mask, *, train: bool
    ) -> tuple[Array, Mapping[str, Array]]:
        """Decodes all positions at once.

        Args:
            x: ``[B, T, D]``, embedded decoder inputs.
            states: ``[B, S, D]``, the encoder's output.
            self_mask: which target position may attend to which.
            cross_mask: which target position may attend to which source position.
            train: whether dropout acts.

        Returns:
            ``[B, T, D]``, and the weights of "layer_0/self", "layer_0/cross", ...
        """
        run = _rematerialised(self.config, train)
        attention = {}
        for index, layer in enumerate(self.layers):
            x, self_weights, cross_weights = run(
                layer, x, states, self_mask, cross_mask
            )
            attention[f"layer_{index}/self"] = self_weights
            attention[f"layer_{index}/cross"] = cross_weights
        return self._finish(x), _formed(attention)

    def begin(
        self, states: Array, max_tokens: int
    ) -> tuple[Mapping[str, Memory], Mapping[str, PyTree]]:
        """Prepares for `step`.

        Args:
            states: ``[B, S, D]``, the encoder's output.
            max_tokens: how many steps the caches hold.

        Returns:
            The source's keys and values, and the empty caches, both by layer.
        """
        memories, caches = {}, {}
        for index, layer in enumerate(self.layers):
            memories[f"layer_{index}"] = layer.prepare(states)
            caches[f"layer_{index}"] = layer.begin(states.shape[0], max_tokens)
        return memories, caches

    def step(
        self,
        x: Array,
        memories: Mapping[str, Memory],
        cross_mask: Mask,
        caches: Mapping[str, PyTree],
        position: Array,
    ) -> tuple[Array, Mapping[str, PyTree], Mapping[str, Array]]:
        """Decodes one position; equals that row of ``__call__``.

        Args:
            x: ``[B, D]``, the embedded last token.
            memories: from `begin`.
            cross_mask: which source position may be attended to.
            caches: from `begin`, or the step before.
            position: ``[B]`` int.

        Returns:
            ``[B, D]``, the next caches, and the named weights over the source.
        """
        following, attention = {}, {}
        for index, layer in enumerate(self.layers):
            name = f"layer_{index}"
            x, following[name], weights = layer.step(
                x, memories[name], cross_mask, caches[name], position
            )
            if weights is not None:
                attention[f"{name}/cross"] = weights
        return self._finish(x), following, attention

    def _finish(self, x: Array) -> Array:
        return self.norm(x) if self.final_norm else x


def _attention(
    config: TransformerConfig, slot: Slot, layer: int, dtype: Any
) -> MultiHeadAttention:
    mechanism = config.mechanism(slot, layer)
    takes_scorer = entry(mechanism).accepts_score
    return MultiHeadAttention(
        width=config.width,
        num_heads=config.num_heads,
        scorer=config.scorer if takes_scorer else "scaled_dot",
        max_keys=config.max_positions,
        mechanism=mechanism,
        slot=slot,
        positions="none" if slot == "cross" else config.positions,
        dropout=config.attention_dropout if takes_scorer else 0.0,
        dtype=dtype,
    )


def _feed_forward(config: TransformerConfig, dtype: Any) -> FeedForward:
    return FeedForward(
        hidden_width=config.feed_forward_width,
        activation=config.activation,
        dropout=config.feed_forward_dropout,
        dtype=dtype,
    )


def _residual(config: TransformerConfig, dtype: Any) -> Residual:
    return Residual(config.norm_position, config.dropout, dtype)


def _rematerialised(config: TransformerConfig, train: bool) -> Callable[..., PyTree]:
    """How to run a layer; with ``remat`` the backward pass recomputes its inside."""

    def run(layer: nn.Module, *inputs: PyTree) -> PyTree:
        return layer(*inputs, train=train)

    return nn.remat(run) if config.remat and train else run


def _formed(attention: Mapping[str, Array | None]) -> Mapping[str, Array]:
    return {name: weights for name, weights in attention.items() if weights is not None}
