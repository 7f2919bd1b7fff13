"""Dropout as a layer."""

from __future__ import annotations

from flax import linen as nn

from attnjax.ops.dropout import dropout
from attnjax.types import Array


class Dropout(nn.Module):
    """Drops elements while training, with the "dropout" rng; see `ops.dropout`.

    Attributes:
        rate: the share of elements to drop, in [0, 1).
    """

    rate: float

    @nn.compact
    def __call__(self, x: Array, *, train: bool) -> Array:
        """Returns ``x`` with some elements zeroed if ``train``, else ``x`` itself."""
        if not train or self.rate == 0.0:
            return x
        return dropout(x, self.rate, self.make_rng("dropout"))
