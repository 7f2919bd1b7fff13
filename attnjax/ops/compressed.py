"""Memory-compressed attention: fewer keys, each read from a block of positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attnjax.fields import Options, UnitsOrZero
from attnjax.ops import cache as full_cache
from attnjax.ops.attend import attend
from attnjax.ops.door import door, require_owned
from attnjax.ops.entry import Incremental, Parameter, Sizes
from attnjax.ops.masks import all_of, pad_axis, refuse, with_rank
from attnjax.ops.padding import real_positions, without_padding
from attnjax.ops.query_chunks import over_query_chunks
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.ops.softmax import masked_softmax
from attnjax.types import Array, Attended, Mask

PAPER_STRIDE = 3  # Liu et al. 2018, section 4.2.4: kernel size 3 with stride 3
_QUERIES_AT_ONCE = 256
_BLOCKS = (
    "a compressed key stands for a whole block of positions, which a window or a "
    "segment may cut; use sliding_window, chunked or dense attention"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryCompressed(Options):
    """Attention to keys that stand for blocks of positions."""

    stride: UnitsOrZero = 0  # positions per compressed key; 0: 3, the paper's


@door
def memory_compressed_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    stride: int = PAPER_STRIDE,
    key_kernel: Array | None = None,
    value_kernel: Array | None = None,
) -> Attended:
    """Softmax attention to keys and values that a strided convolution has compressed.

    ``k'_j = sum_i W_i k_{j stride + i}``, the same for values with a kernel of their
    own, ``context = softmax(Q K'^T / sqrt(K)) V'`` (Liu et al. 2018, "Generating
    Wikipedia by Summarizing Long Sequences", section 4.2.4). Without a kernel each
    block is the mean of its real positions. Padding adds nothing to a block, and a
    block of padding is no key.

    Under a causal mask a query sees the blocks that end no later than itself; the
    first ``stride - 1`` queries see none, and their context is 0. A model needs some
    other layer (sliding window) for what is nearer, as in the paper.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: ``valid`` and ``causal`` can be honoured.
        stride: positions per block; 0 stands for the paper's 3.
        key_kernel: ``[..., stride, K, K]``, leading axes broadcast against those of
            the key (a kernel per head); None means the mean.
        value_kernel: ``[..., stride, V, V]``, or None.

    Returns:
        Context ``[..., T, V]``; no weights, as none belongs to a single key.

    Raises:
        ValueError: for a window or segments, or a kernel of another stride.
    """
    refuse(mask, "memory_compressed", window=_BLOCKS, segments=_BLOCKS)
    stride = stride or PAPER_STRIDE
    num_queries, num_keys = query.shape[-2], key.shape[-2]
    small_key = compress(key, mask, stride, key_kernel)
    small_value = compress(value, mask, stride, value_kernel)
    number_s = jnp.arange(small_key.shape[-2])
    exists = _exist(mask, num_keys, stride)

    def of_queries(some: jax.Array, position: jax.Array) -> jax.Array:
        facts = list(exists)
        if mask.causal:
            facts.append(_complete(number_s, stride)[None, :] <= position)
        scores = scaled_dot_scores(some, small_key)
        seen = all_of([with_rank(fact, scores.ndim) for fact in facts])
        weights = masked_softmax(scores, seen)
        return weights @ small_value

    position_t = jnp.arange(num_queries) + (num_keys - num_queries)
    queries = jnp.asarray(query, jnp.float32), position_t[:, None]
    context = over_query_chunks(of_queries, *queries, chunk=_QUERIES_AT_ONCE)
    return Attended(context.astype(value.dtype), None)


def compress(array: Array, mask: Mask, stride: int, kernel: Array | None) -> jax.Array:
    """One vector per block of positions, float32.

    Args:
        array: ``[..., S, K]``.
        mask: its fact ``valid`` says which positions count.
        stride: positions per block; the last block may have fewer.
        kernel: ``[..., stride, K, K']``, or None for the mean.

    Returns:
        ``[..., ceil(S / stride), K']``.

    Raises:
        ValueError: if the kernel is for another stride.
    """
    if kernel is not None:
        width = array.shape[-1]
        require_owned(
            "kernel", kernel, array, stride=stride, width=width, new_width=None
        )
    blocks = _blocks(without_padding(array, mask), stride)
    if kernel is not None:
        kernel = with_rank(jnp.asarray(kernel, jnp.float32), blocks.ndim - 1)
        return jnp.einsum("...pwk,...wkv->...pv", blocks, kernel)
    real = _blocks(real_positions(mask, array.shape[-2])[..., None], stride)
    count = jnp.maximum(real.sum(-2), 1).astype(jnp.float32)
    return blocks.sum(-2) / with_rank(count, blocks.ndim - 1)


def memory_compressed_parameters(
    sizes: Sizes, *, stride: int
) -> Mapping[str, Parameter]:
    """A kernel per head for keys and one for values.

    Args:
        sizes: heads and widths.
        stride: positions per block; 0 stands for the paper's 3.

    Returns:
        ``key_kernel`` ``[H, stride, K, K]`` and ``value_kernel`` ``[H, stride, V, V]``.
    """

    def init(rng: Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.normal(rng, shape) * (shape[1] * shape[2]) ** -0.5

    rows = (sizes.num_heads, stride or PAPER_STRIDE)
    return {
        "key_kernel": Parameter((*rows, sizes.key_width, sizes.key_width), init),
        "value_kernel": Parameter((*rows, sizes.value_width, sizes.value_width), init),
    }


class CompressedCache(NamedTuple):
    """Compressed blocks so far, and the positions of the unfinished one.

    Attributes:
        key: ``[B, H, P, K]`` float32, of the blocks.
        value: ``[B, H, P, V]`` float32.
        recent_key: ``[B, H, stride, K]``.
        recent_value: ``[B, H, stride, V]``.
    """

    key: Array
    value: Array
    recent_key: Array
    recent_value: Array


def _begin(
    batch_size: int, max_tokens: int, sizes: Sizes, dtype: Any, *, stride: int
) -> CompressedCache:
    stride = stride or PAPER_STRIDE
    blocks = full_cache.begin(batch_size, -(-max_tokens // stride), sizes, jnp.float32)
    recent = full_cache.begin(batch_size, stride, sizes, dtype)
    return CompressedCache(*blocks, *recent)


def _step(
    query: Array,
    key: Array,
    value: Array,
    cache: CompressedCache,
    position: Array,
    **rest: Any,
) -> tuple[jax.Array, CompressedCache]:
    stride = rest["stride"] or PAPER_STRIDE
    place, number = position % stride, position // stride
    recent_key = full_cache.write(cache.recent_key, key, place)
    recent_value = full_cache.write(cache.recent_value, value, place)
    # An unfinished block also holds old positions, but no query sees it.
    small_key = compress(recent_key, Mask(), stride, rest.get("key_kernel"))
    small_value = compress(recent_value, Mask(), stride, rest.get("value_kernel"))
    keys = full_cache.write(cache.key, small_key, number)
    values = full_cache.write(cache.value, small_value, number)
    complete_s = _complete(jnp.arange(keys.shape[-2]), stride)
    seen = Mask(valid=complete_s[None, :] <= position[:, None]).over_heads()
    scores = scaled_dot_scores(query.astype(jnp.float32), keys)
    context = jnp.asarray(attend(scores, values, seen).context)
    return context.astype(value.dtype), CompressedCache(
        keys, values, recent_key, recent_value
    )


incremental = Incremental(_begin, _step, "n / stride")


def _exist(mask: Mask, num_keys: int, stride: int) -> list[jax.Array]:
    """Which blocks have a real position ``[..., 1, P]``, unless all have."""
    if mask.valid is None:
        return []
    real = _blocks(real_positions(mask, num_keys)[..., None], stride)
    return [real[..., 0].any(-1)[..., None, :]]


def _complete(number: jax.Array, stride: int) -> jax.Array:
    """The last position of each block."""
    return (number + 1) * stride - 1


def _blocks(array: jax.Array, stride: int) -> jax.Array:
    """``[..., S, K]`` to ``[..., ceil(S / stride), stride, K]``, filled with 0."""
    num_blocks = -(-array.shape[-2] // stride)
    filled = pad_axis(array, array.ndim - 2, num_blocks * stride)
    shape = (*array.shape[:-2], num_blocks, stride, array.shape[-1])
    return jnp.asarray(filled).reshape(shape)
