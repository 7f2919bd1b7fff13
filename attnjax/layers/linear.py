"""Linear maps, laid out so that each is one large matrix product."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from attnjax.partitioning import named
from attnjax.types import Array


class Linear(nn.Module):
    """``y = x W + b``, or several such maps of one input in a single product.

    All leading axes of the input are flattened to one, since a compiler multiplies two
    matrices faster than it contracts arrays. Weights start Xavier-uniform (Glorot and
    Bengio 2010, eq. 16), each of the fused maps by its own width; biases start at 0.

    Attributes:
        width: F, of one output.
        parts: how many maps are fused; None means one, and no axis for it.
        dtype: of the computation; parameters are float32.
        axes: the names of D and F; see `attnjax.partitioning`.
    """

    width: int
    parts: int | None = None
    dtype: Any = jnp.float32
    axes: tuple[str, str | None] = ("model", None)

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps ``[..., D]`` to ``[..., F]``, or to ``[..., parts, F]``."""
        parts = () if self.parts is None else (self.parts,)
        init = nn.initializers.variance_scaling(
            1.0,
            "fan_avg",
            "uniform",
            in_axis=0,
            out_axis=-1,
            batch_axis=(1,) * len(parts),
        )
        before, after = self.axes
        fused = (None,) * len(parts)
        kernel_init = named(init, before, *fused, after)
        bias_init = named(nn.initializers.zeros, *fused, after)
        kernel = self.param("kernel", kernel_init, (x.shape[-1], *parts, self.width))
        bias = self.param("bias", bias_init, (*parts, self.width))
        rows = x.astype(self.dtype).reshape(-1, x.shape[-1])
        product = jnp.tensordot(rows, kernel.astype(self.dtype), axes=1)
        product = product + bias.astype(self.dtype)[None]
        return product.reshape(*x.shape[:-1], *parts, self.width)
