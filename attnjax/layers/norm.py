"""Layer normalisation in float32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from attnjax.types import Array


class LayerNorm(nn.Module):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` (Ba et al. 2016, eq. 4).

    Attributes:
        epsilon: added to the variance.
        dtype: of the result; the computation is in float32 always.
    """

    epsilon: float = 1e-5
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Normalises the last axis of ``[..., D]``."""
        width = x.shape[-1]
        shape = (1,) * (x.ndim - 1) + (width,)
        scale = self.param("scale", nn.initializers.ones, (width,)).reshape(shape)
        bias = self.param("bias", nn.initializers.zeros, (width,)).reshape(shape)
        x = x.astype(jnp.float32)
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = jnp.square(centred).mean(axis=-1, keepdims=True)
        normal = centred * jax.lax.rsqrt(variance + self.epsilon)
        return (normal * scale + bias).astype(self.dtype)
