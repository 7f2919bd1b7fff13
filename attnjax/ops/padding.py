"""Which positions are real, and what follows from their number."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from attnjax.ops.masks import leading_shape, with_rank
from attnjax.types import Array, Mask


def real_positions(mask: Mask, num_keys: int) -> jax.Array:
    """The fact ``valid``, spelled out.

    Args:
        mask: the facts.
        num_keys: S.

    Returns:
        ``[..., S]`` bool, True on real positions; ``[S]`` if all are.
    """
    if mask.valid is None:
        return jnp.ones((num_keys,), bool)
    return jnp.asarray(mask.valid, bool)


def without_padding(array: Array, mask: Mask) -> jax.Array:
    """Sets the vectors of padded positions to 0, in float32.

    Args:
        array: ``[..., S, K]``.
        mask: its fact ``valid`` says which positions are real.

    Returns:
        ``[..., S, K]``.
    """
    array = jnp.asarray(array, jnp.float32)
    if mask.valid is None:
        return array
    return jnp.where(with_rank(mask.valid[..., None], array.ndim), array, 0.0)


def over_common_axes(
    *arrays: Array, mask: Mask
) -> tuple[tuple[jax.Array, ...], jax.Array]:
    """Gives all arrays and the fact ``valid`` the same leading axes.

    Args:
        mask: the facts.
        *arrays: ``[..., S, *]``, of equal rank, whose leading axes broadcast.

    Returns:
        The arrays in float32, and `real_positions` ``[..., S]``.
    """
    leading, length = leading_shape(*arrays), arrays[0].shape[-2]
    spread = tuple(
        jnp.broadcast_to(array, (*leading, *array.shape[-2:])).astype(jnp.float32)
        for array in arrays
    )
    real = with_rank(real_positions(mask, length), len(leading) + 1)
    return spread, jnp.broadcast_to(real, (*leading, length))


def root_above(count: int) -> int:
    """The smallest integer whose square is at least ``count``, and at least 1."""
    return max(1, math.isqrt(max(count, 1) - 1) + 1)


def roots_above(count: Array) -> jax.Array:
    """`root_above` of every element.

    Args:
        count: ``[...]`` int.

    Returns:
        ``[...]`` int.
    """
    count = jnp.asarray(count)
    root = jnp.sqrt(count.astype(jnp.float32)).astype(count.dtype)
    root = root - (root * root > count)  # a square root may be rounded up
    return jnp.maximum(root + (root * root < count), 1)
