"""Multi-head attention with any scorer or mechanism, whole or one step at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import linen as nn

from attnjax.config import ScorerName
from attnjax.layers.dropout import Dropout
from attnjax.layers.linear import Linear
from attnjax.layers.scorer import Scorer
from attnjax.ops.attend import attend
from attnjax.types import Array, Attended, Mask, Mechanism


class Memory(NamedTuple):
    """Keys and values of a sequence, split into heads and ready to be attended to.

    Attributes:
        key: ``[B, H, S, *]``, prepared by the scorer.
        value: ``[B, H, S, K]``.
    """

    key: Array
    value: Array


class MultiHeadAttention(nn.Module):
    """Attention of H heads, each on its own projections (Vaswani et al. 2017, 3.2.2).

    ``head_h = attention(x W_q, y W_k, y W_v); output = [head_1 ... head_H] W_o``

    One instance either attends to its own input (`attend_self`, and for decoding
    `begin` and `step`) or to a memory (`prepare`, once per sentence, and
    `attend_memory`). Masks carry no head axis.

    Attributes:
        width: D, of input and output.
        num_heads: H; each head is ``D / H`` wide.
        scorer: how a query scores a key.
        max_keys: longest memory of the location scorer; no limit for the others.
        mechanism: attention to use instead of the dense one with `scorer`; called with
            query, key and value ``[B, H, T or S, K]`` and a mask over heads.
        dropout: rate on the attention weights (dense only).
        dtype: of the computation; parameters are float32.

    Raises:
        ValueError: at construction, if the heads do not divide the width, or a
            mechanism is combined with a scorer or dropout, which it would not see.
    """

    width: int
    num_heads: int
    scorer: ScorerName = "scaled_dot"
    max_keys: int = 256
    mechanism: Mechanism | None = None
    dropout: float = 0.0
    dtype: Any = jnp.float32

    def __post_init__(self) -> None:
        """Checks the fields."""
        if self.width % self.num_heads:
            raise ValueError(
                f"width must be a multiple of num_heads, got {self.width=}, "
                f"{self.num_heads=}."
            )
        if self.mechanism is not None and (self.dropout or self.scorer != "scaled_dot"):
            raise ValueError(
                "scorer and dropout belong to dense attention and would not reach the "
                f"given mechanism, got {self.scorer=}, {self.dropout=}; leave both at "
                "their defaults, or the mechanism at None."
            )
        super().__post_init__()

    def setup(self) -> None:
        """Names the projections; one that is never used takes no parameters."""
        self.query_key_value = Linear(self.width, parts=3, dtype=self.dtype)
        self.query = Linear(self.width, dtype=self.dtype)
        self.key_value = Linear(self.width, parts=2, dtype=self.dtype)
        self.output = Linear(self.width, dtype=self.dtype)
        self.weight_dropout = Dropout(self.dropout)
        head_width = self.width // self.num_heads
        self.score = Scorer(
            kind=self.scorer,
            query_width=head_width,
            key_width=head_width,
            num_heads=self.num_heads,
            width=head_width,
            max_keys=self.max_keys,
            dtype=self.dtype,
        )

    def attend_self(self, x: Array, mask: Mask, *, train: bool) -> Attended:
        """Attends from every position of a sequence to that sequence.

        Args:
            x: ``[B, T, D]``.
            mask: which position may attend to which.
            train: whether dropout acts.

        Returns:
            ``[B, T, D]`` and the weights ``[B, H, T, T]``.
        """
        query, key, value = self._split_heads(self.query_key_value(x))
        memory = Memory(self._prepare_key(key), value)
        return self._attend(query, memory, mask, train=train)

    def prepare(self, states: Array) -> Memory:
        """Projects what is attended to, once for all queries.

        Args:
            states: ``[B, S, D]``.

        Returns:
            Keys and values per head.
        """
        key, value = self._split_heads(self.key_value(states))
        return Memory(self._prepare_key(key), value)

    def attend_memory(
        self, x: Array, memory: Memory, mask: Mask, *, train: bool
    ) -> Attended:
        """Attends to a memory made by `prepare`.

        Args:
            x: ``[B, T, D]``.
            memory: keys and values.
            mask: which position may attend to which of the memory.
            train: whether dropout acts.

        Returns:
            ``[B, T, D]`` and the weights ``[B, H, T, S]``.
        """
        (query,) = self._split_heads(self.query(x)[:, :, None])
        return self._attend(query, memory, mask, train=train)

    def begin(self, batch_size: int, max_tokens: int) -> Memory:
        """An empty cache for `step`.

        Args:
            batch_size: B.
            max_tokens: how many steps it holds.

        Returns:
            Keys and values of `max_tokens` positions, to be filled in.
        """
        head_width = self.width // self.num_heads
        empty = jnp.zeros(
            (batch_size, self.num_heads, max_tokens, head_width), self.dtype
        )
        return Memory(self._prepare_key(empty), empty)

    def step(self, x: Array, cache: Memory, position: Array) -> tuple[Array, Memory]:
        """Causal self-attention for one position; equals that row of `attend_self`.

        Args:
            x: ``[B, D]``, the input at this position.
            cache: keys and values of the earlier positions.
            position: ``[B]`` int, the position in each row, below ``max_tokens``.

        Returns:
            ``[B, D]``, and the cache that includes this position.

        Raises:
            ValueError: if a mechanism is set; its mask facts have no one-step form.
        """
        if self.mechanism is not None:
            raise ValueError(
                "step attends densely and would bypass the given mechanism; decode by "
                "attend_self, or use mechanism=None in the decoder."
            )
        query, key, value = self._split_heads(self.query_key_value(x[:, None]))
        cache = Memory(
            _write(cache.key, self._prepare_key(key), position),
            _write(cache.value, value, position),
        )
        slots = jnp.arange(cache.value.shape[2])
        mask = Mask(valid=slots[None, :] <= position[:, None])
        attended = self._attend(query, cache, mask, train=False)
        return attended.context[:, 0], cache

    def _prepare_key(self, key: Array) -> Array:
        return key if self.mechanism is not None else self.score.prepare(key)

    def _attend(
        self, query: Array, memory: Memory, mask: Mask, *, train: bool
    ) -> Attended:
        mask = mask.over_heads()
        if self.mechanism is not None:
            context, weights = self.mechanism(query, memory.key, memory.value, mask)
        else:
            context, weights = attend(
                self.score(query, memory.key),
                memory.value,
                mask,
                dropout=lambda weights: self.weight_dropout(weights, train=train),
            )
        joined = context.swapaxes(1, 2).reshape(context.shape[0], -1, self.width)
        return Attended(self.output(joined), weights)

    def _split_heads(self, projected: Array) -> tuple[Array, ...]:
        """``[B, T, parts, D]`` to one ``[B, H, T, K]`` for each part."""
        batch, length, parts, _ = projected.shape
        split = projected.reshape(batch, length, parts, self.num_heads, -1)
        return tuple(jnp.transpose(split, (2, 0, 3, 1, 4)))


def _write(cache: Array, new: Array, position: Array) -> Array:
    """Puts ``new[b] [H, 1, *]`` at ``position[b]`` of ``cache[b] [H, S, *]``."""
    rows = jnp.arange(cache.shape[0])
    return jnp.asarray(cache).at[rows, :, position].set(new[:, :, 0])
