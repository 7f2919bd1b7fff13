"""Dropout from 8-bit random numbers."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from attnjax.types import Array

_LEVELS = 256  # of one random byte


def dropout(x: Array, rate: float, rng: Array) -> jax.Array:
    """Zeroes elements at random and scales the others up, so that the mean stays.

    Srivastava et al. 2014, with the scaling at training time. One random byte decides
    over an element, a quarter of the usual random bits. The rate is therefore rounded
    to the nearest 1/256 (0.1 becomes 26/256); the scale matches the rounded rate, so
    the mean is exact.

    Args:
        x: any shape.
        rate: the share of elements to drop, in [0, 1).
        rng: a PRNG key, used up.

    Returns:
        An array like ``x``.
    """
    dropped_levels = min(round(rate * _LEVELS), _LEVELS - 1)
    if dropped_levels == 0:
        return jnp.asarray(x)
    keep = random_bytes(rng, x.shape) >= dropped_levels
    scale = _LEVELS / (_LEVELS - dropped_levels)
    return jnp.where(keep, x * jnp.asarray(scale, x.dtype), jnp.zeros((), x.dtype))


def random_bytes(rng: Array, shape: tuple[int, ...]) -> jax.Array:
    """Uniform bytes, cut from 32-bit words.

    `jax.random.bits` spends a whole word of the generator on each byte asked for.

    Args:
        rng: a PRNG key, used up.
        shape: of the result.

    Returns:
        uint8 array of that shape.
    """
    *leading, last = shape if shape else (1,)
    words = jax.random.bits(rng, (*leading, math.ceil(last / 4)), jnp.uint32)
    octets = jax.lax.bitcast_convert_type(words, jnp.uint8)
    return octets.reshape(*leading, -1)[..., :last].reshape(shape)
