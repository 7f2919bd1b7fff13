"""Readouts: from the state of a recurrent decoder to what the logits are made of."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.layers.linear import Linear
from attnjax.types import Array


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
