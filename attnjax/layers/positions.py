"""Where a token stands: encodings that are added, and terms between two positions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.config import PositionsName
from attnjax.ops.positions import sinusoids
from attnjax.ops.relative import Bias, alibi, bucketed_bias, rotate
from attnjax.types import Array

_BUCKETS = 32  # of T5's relative positions, in all
_FARTHEST = 128  # offset from which on they share a bucket


class AbsolutePositions(nn.Module):
    """Encodings that are added to the embedded tokens.

    Attributes:
        kind: "interleaved" or "halves" (sinusoids) or "learned"; others add nothing.
        width: D.
        max_positions: rows of the learned table.
        dtype: of the result; the table is float32.
    """

    kind: PositionsName
    width: int
    max_positions: int
    dtype: Any = jnp.float32

    def setup(self) -> None:
        """Makes the table of learned positions."""
        if self.kind == "learned":
            init = nn.initializers.normal(0.02)
            shape = (self.max_positions, self.width)
            self.table = self.param("table", init, shape)

    def __call__(self, positions: Array) -> jax.Array:
        """Encodes positions ``[...]`` as ``[..., D]``; NaN past a learned table's end.

        Callers that know the length refuse it earlier, by `require_length`.
        """
        match self.kind:
            case "interleaved" | "halves":
                encoding = sinusoids(positions, self.width, self.kind)
            case "learned":
                encoding = jnp.take(
                    self.table, positions, axis=0, mode="fill", fill_value=jnp.nan
                )
            case _:
                encoding = jnp.zeros((*positions.shape, self.width))
        return encoding.astype(self.dtype)

    def require_length(self, length: int) -> None:
        """Refuses a sequence that is longer than the learned table."""
        if self.kind == "learned" and length > self.max_positions:
            raise ValueError(
                f"learned positions end at {self.max_positions}, got a sequence padded "
                f"to {length} tokens; cut it, or train with a larger "
                "model.max_positions."
            )


class RelativePositions(nn.Module):
    """What one attention layer adds for the offset between two positions.

    Attributes:
        kind: "rotary" turns queries and keys, "relative" (T5; a table for each layer,
            where T5 shares one) and "alibi" add to the scores; any other does nothing.
        num_heads: H.
        bidirectional: whether later keys are told from earlier ones.
    """

    kind: PositionsName
    num_heads: int
    bidirectional: bool

    def setup(self) -> None:
        """Makes the table of relative positions."""
        if self.kind == "relative":
            init = nn.initializers.normal(0.02)
            self.table = self.param("table", init, (self.num_heads, _BUCKETS))

    def bias(self) -> Bias | None:
        """The term of the scores, or None."""
        match self.kind:
            case "relative":
                return bucketed_bias(
                    self.table,
                    bidirectional=self.bidirectional,
                    max_distance=_FARTHEST,
                )
            case "alibi":
                return alibi(self.num_heads)
            case _:
                return None

    def turned(self, x: Array, positions: Array) -> Array:
        """Turns queries or keys ``[B, H, T, K]`` by their positions ``[B or 1, T]``."""
        return rotate(x, positions[:, None]) if self.kind == "rotary" else x
