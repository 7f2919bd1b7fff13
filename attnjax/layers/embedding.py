"""Token embeddings, which may double as the output layer."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from attnjax.partitioning import named, split_rows, whole
from attnjax.types import Array


class Embedding(nn.Module):
    """A table of one vector per token.

    Vectors are scaled by ``sqrt(D)`` when read (Vaswani et al. 2017, section 3.4) and
    start with variance ``1 / D``; so they have unit variance as inputs, and the table
    is well scaled as an output layer too.

    Attributes:
        size: C, number of tokens.
        width: D.
        dtype: of the computation; the table is float32.
    """

    size: int
    width: int
    dtype: Any = jnp.float32

    def setup(self) -> None:
        """Makes the table."""
        init = named(nn.initializers.normal(self.width**-0.5), "vocabulary", "model")
        self.table = self.param("table", init, (self.size, self.width))

    def __call__(self, ids: Array) -> Array:
        """Reads the vectors of tokens.

        An id outside the table cannot be refused inside a compiled function; it gives a
        vector of NaN, never that of another token.

        Args:
            ids: ``[...]`` int.

        Returns:
            ``[..., D]``.
        """
        ids = jnp.where(ids < 0, self.size, ids)  # a negative index would wrap round
        table = whole(self.table)  # rows anywhere may be read by any device
        vectors = jnp.take(table, ids, axis=0, mode="fill", fill_value=jnp.nan)
        scale = jnp.asarray(math.sqrt(self.width), self.dtype)
        return split_rows(vectors.astype(self.dtype) * scale)

    def logits(self, states: Array) -> Array:
        """Scores every token, ``states · table``.

        Args:
            states: ``[..., D]``.

        Returns:
            ``[..., C]``.
        """
        rows = states.astype(self.dtype).reshape(-1, self.width)
        logits = rows @ self.table.astype(self.dtype).T
        return logits.reshape(*states.shape[:-1], self.size)
