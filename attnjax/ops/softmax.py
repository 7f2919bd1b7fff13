"""The one masked softmax of the package."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from attnjax.ops.door import require_allowed
from attnjax.types import Array


def masked_softmax(scores: Array, allowed: Array | None) -> jax.Array:
    """Softmax over the allowed keys, ``w_s = exp(e_s) / sum_{s' allowed} exp(e_s')``.

    Computed in float32 whatever the input. No large negative number stands for "not
    allowed", as that overflows in float16 and makes an empty row attend everywhere: a
    key that is not allowed gets exactly 0, and so does every key of a row that allows
    none, in value and in gradient.

    Args:
        scores: ``[..., T, S]``.
        allowed: bool, of the rank of ``scores``, axes of length 1 broadcast; None
            allows every key.

    Returns:
        Weights ``[..., T, S]`` in the dtype of ``scores``; rows sum to 1, or to 0 where
        no key is allowed.

    Raises:
        ValueError: if scores are no floats, or ``allowed`` is of another rank or dtype.
    """
    require_allowed(scores, allowed)
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1, where=allowed)
    return weights.astype(scores.dtype)
