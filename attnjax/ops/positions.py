"""Encodings of position."""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp

from attnjax.ops.door import INTEGER, require_array
from attnjax.types import Array


def sinusoids(
    positions: Array,
    width: int,
    layout: Literal["interleaved", "halves"] = "interleaved",
) -> jax.Array:
    """Sinusoidal position encodings (Vaswani et al. 2017, section 3.5).

    Channel pair ``i`` holds ``sin(p f_i)`` and ``cos(p f_i)``. Interleaved, as in the
    paper, sines lie at even and cosines at odd channels, and ``f_i = 10000^(-2i / D)``.
    In halves, as in Marian, the same sines fill the first half of the channels and the
    same cosines the second.

    Args:
        positions: ``[...]`` int, counted from 0.
        width: D, even.
        layout: which channels hold the sines.

    Returns:
        ``[..., D]`` float32.

    Raises:
        ValueError: if the width is odd, or positions are no integers.
    """
    require_array("positions", positions, INTEGER)
    if width % 2:
        raise ValueError(f"sinusoids need an even width, got {width=}.")
    pair = jnp.arange(0, width, 2, dtype=jnp.float32)
    frequency = jnp.exp(pair * (-math.log(10_000.0) / width))
    frequency = frequency.reshape((1,) * positions.ndim + frequency.shape)
    angle = positions.astype(jnp.float32)[..., None] * frequency
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    if layout == "halves":
        return jnp.concatenate([sine, cosine], axis=-1)
    return jnp.stack([sine, cosine], axis=-1).reshape(*positions.shape, width)
