"""The factorised patterns of the Sparse Transformer: strided and fixed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from attnjax.fields import Options, UnitsOrZero
from attnjax.ops import cache
from attnjax.ops.blocks import (
    SMALLEST_BLOCK,
    Side,
    by_residue,
    cut,
    in_order,
    last_of_each,
    sides,
)
from attnjax.ops.door import door
from attnjax.ops.entry import Incremental, Sizes
from attnjax.ops.local import attend_near, reach, window_pattern
from attnjax.ops.masks import refuse
from attnjax.ops.padding import root_above
from attnjax.ops.parts import Part, Rule, attend_all, attend_blocks, mean, union
from attnjax.ops.relative import Bias
from attnjax.types import Array, Attended, Mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class Strided(Options):
    """The latest positions, and every stride-th one before."""

    stride: UnitsOrZero = 0  # period; 0: the square root of max_positions


@door
def strided_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    stride: int,
    bias: Bias | None = None,
) -> Attended:
    """Attention to the last ``stride`` positions and to every ``stride``-th one.

    Query ``i`` sees key ``j`` if ``|i - j| <= stride`` or ``(i - j) mod stride = 0``
    (Child et al. 2019, "Generating Long Sequences with Sparse Transformers", section
    4.3, strided). Both parts stand in one softmax, the paper's "merged head" (eq. 8),
    and a key that is in both counts once. The paper is causal; without a causal mask
    the pattern is the same on both sides. With ``stride`` about ``sqrt(n)`` each query
    sees about ``3 sqrt(n)`` keys: time ``O(n sqrt(n))``.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., T, K]``.
        value: ``[..., T, V]``.
        mask: which query may attend to which key; every fact is honoured.
        stride: ``l`` of the paper; from ``T`` on this is dense attention, and at 1.
        bias: added to the scores, a function of the offset of key from query.

    Returns:
        Context ``[..., T, V]``; no weights.

    Raises:
        ValueError: if the stride is less than 1, or there are not as many queries as
            keys.
    """
    _require_stride(stride)
    length = query.shape[-2]
    queries, keys = sides(query, key, value, mask, "strided")
    near = functools.partial(window_pattern, window=stride)
    seen = attend_near(queries, keys, reach(mask, stride), Rule(mask, near, bias))
    if stride < length - 1:
        column = _attend_columns(queries, keys, stride, Rule(mask, None, bias))
        seen = union(seen, column)
    return Attended(mean(seen, value.dtype), None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fixed(Options):
    """The own stretch of positions, and the last ones of the stretches before."""

    stride: UnitsOrZero = 0  # period; 0: the square root of max_positions
    num_global: UnitsOrZero = 1  # last positions of each period that all later ones see


@door
def fixed_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    stride: int,
    num_global: int = 1,
    bias: Bias | None = None,
) -> Attended:
    """Attention within blocks, and to the last positions of all blocks.

    Query ``i`` sees key ``j`` if both are in the same block of ``stride`` positions, or
    ``j mod stride >= stride - num_global``: those positions can pass on what their
    block holds (Child et al. 2019, section 4.3, fixed). Both parts stand in one
    softmax, and a key that is in both counts once. The paper is causal; without a
    causal mask later blocks are seen alike. Time ``O(n sqrt(n))`` for a stride of about
    ``sqrt(n)``.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., T, K]``.
        value: ``[..., T, V]``.
        mask: which query may attend to which key; valid, causal and window are
            honoured.
        stride: ``l`` of the paper, positions of a block; from ``T`` on this is dense
            attention.
        num_global: ``c`` of the paper, positions at the end of each block that all
            see; from ``stride`` on this is dense attention.
        bias: added to the scores, a function of the offset of key from query.

    Returns:
        Context ``[..., T, V]``; no weights.

    Raises:
        ValueError: if an option is too small, the mask has segments, or there are not
            as many queries as keys.
    """
    _require_stride(stride)
    if num_global < 0:
        raise ValueError(f"num_global must be at least 0, got {num_global}.")
    refuse(
        mask,
        "fixed",
        segments="its blocks count from the start of the row, and a packed sentence "
        "would be cut elsewhere than alone; use strided, or do not pack",
    )
    length = query.shape[-2]
    stride = min(stride, length)
    queries, keys = sides(query, key, value, mask, "fixed")
    same_block = functools.partial(_same_block, stride=stride)
    size = min(length, stride * -(-SMALLEST_BLOCK // stride))
    seen = attend_blocks(queries, cut(keys, size), size, Rule(mask, same_block, bias))
    count = min(num_global, stride)
    if count and stride < length:
        others = Rule(mask, lambda *positions: ~same_block(*positions), bias)
        summaries = last_of_each(cut(keys, stride), count)
        seen = union(seen, attend_all(queries, summaries, others))
    return Attended(mean(seen, value.dtype), None)


def strided_pattern(
    query_position: Array, key_position: Array, *, stride: int
) -> Array:
    """Whether a query sees a key in `strided_attention`.

    Args:
        query_position: int.
        key_position: int, broadcasts against it.
        stride: at least 1.

    Returns:
        Bool.
    """
    offset = key_position - query_position
    return (jnp.abs(offset) <= stride) | (offset % stride == 0)


def fixed_pattern(
    query_position: Array, key_position: Array, *, stride: int, num_global: int
) -> Array:
    """Whether a query sees a key in `fixed_attention`.

    Args:
        query_position: int.
        key_position: int, broadcasts against it.
        stride: at least 1.
        num_global: positions at the end of each block that all see.

    Returns:
        Bool.
    """
    summary = key_position % stride >= stride - num_global
    return _same_block(query_position, key_position, stride) | summary


def stepwise(pattern: Callable[..., Array]) -> Incremental:
    """The one-step form of a pattern with a stride.

    Args:
        pattern: of the query and key positions and the options.

    Returns:
        The one-step form. Its ``begin`` raises if the stride is less than 1.
    """
    every = cache.with_pattern(pattern)

    def begin(*arguments: Any, stride: int, **options: Any) -> cache.KeyValueCache:
        _require_stride(stride)
        return cache.begin(*arguments, stride=stride, **options)

    return Incremental(begin, every.step, every.state)


def stride_of(sizes: Sizes) -> int:
    """The stride where a config says 0.

    Args:
        sizes: of the layer.

    Returns:
        About the square root of the longest sequence, as in the paper.
    """
    return root_above(sizes.max_keys)


def _require_stride(stride: int) -> None:
    if stride < 1:
        raise ValueError(
            f"stride must be at least 1, got {stride}. Only in a model's config may it "
            "be 0, for the square root of max_positions: the length of a batch would "
            "make a sentence depend on what it is padded with."
        )


def _same_block(query_position: Array, key_position: Array, stride: int) -> Array:
    return query_position // stride == key_position // stride


def _attend_columns(queries: Side, keys: Side, stride: int, rule: Rule) -> Part:
    """Positions a multiple of the stride apart, but for those next to each other."""

    def far_in_column(query_position: Array, key_position: Array) -> Array:
        offset = key_position - query_position
        return (jnp.abs(offset) > stride) & (offset % stride == 0)

    length = queries.position.shape[0]
    rows = -(-length // stride)
    column = attend_blocks(
        by_residue(queries, stride),
        cut(by_residue(keys, stride), rows),
        rows,
        rule._replace(pattern=far_in_column),
    )
    return column.change(lambda array, axis: in_order(array, axis, stride, length))
