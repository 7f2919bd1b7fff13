"""Time and memory of attention mechanisms by length of the sequence."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from attnjax.config import MechanismConfig
from attnjax.ops.catalog import entry
from attnjax.ops.entry import Sizes
from attnjax.types import Mask


def temporary_bytes(name: str, length: int) -> int:
    """Compiled temporary memory of forward and backward pass (B 1, H 8, K 64).

    Args:
        name: of the mechanism.
        length: n.

    Returns:
        Bytes beyond inputs and outputs, from the compiler.
    """
    line = entry(name)
    options = dataclasses.asdict(MechanismConfig())
    sizes = Sizes(num_heads=8, key_width=64, value_width=64, max_keys=length)
    extras = line.draw(jax.random.key(0), sizes, options)
    attend = line.bind(options)

    def total(query, key, value):
        return attend(query, key, value, Mask(), **extras).context.sum()

    shape = jax.ShapeDtypeStruct((1, 8, length, 64), jnp.float32)
    compiled = jax.jit(jax.grad(total, argnums=(0, 1, 2))).lower(shape, shape, shape)
    analysis = compiled.compile().memory_analysis()
    if analysis is None:
        raise ValueError("this device's compiler does not tell how much memory is used")
    return int(analysis.temp_size_in_bytes)
