"""Dropout by a hash of each element's place, so cheap that it costs next to nothing."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.ops.door import require_array
from attnjax.types import Array

_WORDS = 2**32  # values of a random word


def dropout(x: Array, rate: float, rng: Array) -> Array:
    """Zeroes elements at random and scales the others by ``1 / (1 - rate)``.

    Srivastava et al. 2014, with the scaling moved to training time.

    Args:
        x: any shape.
        rate: the probability of dropping an element, in [0, 1).
        rng: a PRNG key, used up.

    Returns:
        An array like ``x``, equal to it in the mean.

    Raises:
        ValueError: if the rate is outside [0, 1), or the array has no floats.
    """
    require_array("x", x)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"a dropout rate must be in [0, 1), got {rate}.")
    if rate == 0.0:
        return x
    threshold = min(round(rate * _WORDS), _WORDS - 1)
    keep = random_words(rng, x.shape) >= jnp.uint32(threshold)
    scaled = (x.astype(jnp.float32) * (1.0 / (1.0 - rate))).astype(x.dtype)
    return jnp.where(keep, scaled, jnp.zeros((), x.dtype))


def random_words(rng: Array, shape: tuple[int, ...]) -> jax.Array:
    """Uniform 32-bit words, each a hash of its place in the array and of the rng.

    The generator of `jax.random` runs for two words only, which seed the hash. The hash
    is a short chain of elementwise operations: the compiler fuses it into whatever
    reads it, so that a dropout mask is never stored but formed again in the backward
    pass, and each device makes its own part. Good enough for dropout, not for sampling.

    The multipliers are those of "lowbias32" (Chris Wellons, hash-prospector), found by
    a search for the least bias; the second seed comes in between its two rounds, so
    that different seeds do not give shifted copies of one sequence.

    Args:
        rng: a PRNG key, used up.
        shape: of the result, fewer than 2^32 elements.

    Returns:
        uint32 array.
    """
    first_seed, second_seed = jax.random.bits(rng, (2,), jnp.uint32)
    word = jnp.full((1,) * len(shape), first_seed)
    for axis in range(len(shape)):
        stride = jnp.uint32(math.prod(shape[axis + 1 :]))
        word = word + lax.broadcasted_iota(jnp.uint32, shape, axis) * stride
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = word ^ second_seed
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return word ^ (word >> 16)
