"""Some queries at a time, where the scores of all of them would need much memory."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from attnjax.ops.masks import pad_axis
from attnjax.types import Array


def over_query_chunks(
    attend: Callable[..., jax.Array], *arrays: Array, chunk: int
) -> jax.Array:
    """Calls a function on chunks of the query axis, one after another.

    The backward pass computes each chunk again instead of keeping what it formed.

    Args:
        attend: ``(*chunks [..., chunk, *]) -> [..., chunk, V]``, where each query
            depends on itself only.
        chunk: queries at once.
        *arrays: ``[..., T, *]``; the last chunk is filled up with zeros.

    Returns:
        ``[..., T, V]``.

    Raises:
        ValueError: if the chunk is not at least 1.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}.")
    num_queries = arrays[0].shape[-2]
    chunk = min(chunk, num_queries)
    num_chunks = -(-num_queries // chunk)

    def cut(array: Array) -> jax.Array:
        array = pad_axis(array, array.ndim - 2, num_chunks * chunk)
        shape = (*array.shape[:-2], num_chunks, chunk, array.shape[-1])
        return jnp.moveaxis(array.reshape(shape), -3, 0)

    context = jax.lax.map(
        jax.checkpoint(lambda chunks: attend(*chunks)),
        tuple(cut(array) for array in arrays),
    )
    context = jnp.moveaxis(context, 0, -3)
    context = context.reshape(*context.shape[:-3], -1, context.shape[-1])
    return context[..., :num_queries, :]
