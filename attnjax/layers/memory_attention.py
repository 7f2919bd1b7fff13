"""Attention of a recurrent decoder over the memory that an encoder left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.config import ScorerName
from attnjax.layers.linear import Linear
from attnjax.layers.scorer import Scorer
from attnjax.ops.softmax import masked_softmax
from attnjax.types import Array

PreparedMemory = Mapping[str, Array]


class MemoryAttention(nn.Module):
    """One attention head whose weights and context are computed apart.

    The context is linear in the weights. A recurrence that needs the context only to
    multiply it by a matrix can therefore multiply the memory instead, once per
    sentence, and all contexts are formed together after the recurrence.

    The dot products need a memory as wide as the query. Where it is not (that of a
    bidirectional encoder), a learned map brings it to that width, once per sentence;
    the context is then a mean of the mapped memory.

    Attributes:
        kind: the scorer.
        query_width: D, of the decoder's hidden state.
        memory_width: N, of the encoder's states.
        width: A of the additive scorer.
        max_keys: table size of the location scorer.
        dtype: of the computation; parameters and softmax are float32.
    """

    kind: ScorerName
    query_width: int
    memory_width: int
    width: int = 256
    max_keys: int = 256
    dtype: Any = jnp.float32

    def setup(self) -> None:
        """Makes the scorer, and the map of the memory where it is needed."""
        is_dot = self.kind in ("dot", "scaled_dot")
        self.maps_memory = is_dot and self.memory_width != self.query_width
        if self.maps_memory:
            self.memory_map = Linear(self.query_width, dtype=self.dtype)
        self.scorer = Scorer(
            self.kind,
            query_width=self.query_width,
            key_width=self.query_width if self.maps_memory else self.memory_width,
            width=self.width,
            max_keys=self.max_keys,
            dtype=self.dtype,
        )

    def prepare(self, memory: Array, valid: Array) -> PreparedMemory:
        """Does all work that is the same for every query.

        Args:
            memory: ``[B, S, N]``.
            valid: ``[B, S]`` bool, True on real positions.

        Returns:
            ``value [B, S, V]``, ``key [B, S, *]`` and ``valid [B, S]``.
        """
        value = self.memory_map(memory) if self.maps_memory else memory
        return {"value": value, "key": self.scorer.prepare(value), "valid": valid}

    def __call__(self, query: Array, memory: PreparedMemory) -> jax.Array:
        """Weighs the memory for each query.

        Args:
            query: ``[B, T, D]``.
            memory: from `prepare`.

        Returns:
            ``[B, T, S]``: rows sum to 1, or to 0 for an empty sentence.
        """
        scores_bts = self.scorer(query, memory["key"])
        return masked_softmax(scores_bts, memory["valid"][:, None, :])


def weighted_mean(weights: Array, value: Array) -> jax.Array:
    """The context, ``c_t = sum_s w_ts v_s``.

    Args:
        weights: ``[B, T, S]``.
        value: ``[B, S, V]``.

    Returns:
        ``[B, T, V]``.
    """
    return jnp.einsum("bts,bsv->btv", weights, value)
