"""The attention kernel of cuDNN, where it computes exactly what is asked."""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp

from attnjax.ops.masks import leading_shape
from attnjax.types import Array, Mask

_LARGEST_WIDTH = 128  # of a head, on every GPU that has the kernel


def kernel_fits(
    query: Array, key: Array, value: Array, mask: Mask, *, has_bias: bool
) -> bool:
    """Whether the kernel would give the result of dense attention.

    It computes in float16 or bfloat16, for heads of up to 128 channels in multiples of
    8. Its causal mask is aligned at the start, ours at the end, so lengths must agree.
    It has no row without an allowed key under these masks; where keys may be padding,
    and for windows, segments and biases, it would need a T x S array.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: the facts that are asked for.
        has_bias: whether a term is added to the scores.

    Returns:
        True where the limits hold; the caller asks for the device itself.
    """
    is_half = {query.dtype, key.dtype, value.dtype} <= {
        jnp.dtype(jnp.float16),
        jnp.dtype(jnp.bfloat16),
    } and query.dtype == key.dtype == value.dtype
    width = query.shape[-1]
    widths_fit = width == value.shape[-1] and width % 8 == 0 and width <= _LARGEST_WIDTH
    facts = (mask.valid, mask.window, mask.query_segments)
    lengths_fit = not mask.causal or query.shape[-2] == key.shape[-2]
    return (
        is_half
        and widths_fit
        and lengths_fit
        and not has_bias
        and all(fact is None for fact in facts)
    )


def kernel_attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    causal: bool,
    implementation: Literal["cudnn", "xla"] = "cudnn",
) -> jax.Array:
    """Scaled dot-product attention by `jax.nn.dot_product_attention`.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, K]``.
        causal: whether a query sees no later key; T = S then.
        implementation: "xla" computes the same on any device, for comparison.

    Returns:
        Context ``[..., T, K]``.
    """
    leading = leading_shape(query, key, value)
    rows, heads = math.prod(leading[:-1]), leading[-1] if leading else 1

    def laid_out(array: Array) -> jax.Array:
        array = jnp.broadcast_to(array, (*leading, *array.shape[-2:]))
        return jnp.swapaxes(array.reshape(rows, heads, *array.shape[-2:]), 1, 2)

    context = jax.nn.dot_product_attention(
        *(laid_out(array) for array in (query, key, value)),
        is_causal=causal,
        implementation=implementation,
    )
    return jnp.swapaxes(context, 1, 2).reshape(*leading, *query.shape[-2:])
