"""The position-wise feed-forward layer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.layers.dropout import Dropout
from attnjax.layers.linear import Linear
from attnjax.types import Array

ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "swish": jax.nn.swish,
}


class FeedForward(nn.Module):
    """``activation(x W1 + b1) W2 + b2`` at each position (Vaswani et al. 2017, eq. 2).

    Attributes:
        hidden_width: F, of the layer between.
        activation: "relu", "gelu" (exact, by the error function) or "swish".
        dropout: rate on the hidden units.
        dtype: of the computation; parameters are float32.
    """

    hidden_width: int
    activation: Literal["relu", "gelu", "swish"] = "relu"
    dropout: float = 0.0
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array, *, train: bool) -> Array:
        """Maps ``[..., D]`` to ``[..., D]``."""
        axes = "model", "feed_forward"
        hidden = Linear(self.hidden_width, dtype=self.dtype, axes=axes, name="hidden")(
            x
        )
        hidden = ACTIVATIONS[self.activation](hidden)
        hidden = Dropout(self.dropout, name="dropout")(hidden, train=train)
        output = Linear(x.shape[-1], dtype=self.dtype, axes=axes[::-1], name="output")
        return output(hidden)
