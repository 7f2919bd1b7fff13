"""Sequences cut into blocks, and the blocks that each block of queries reads.

What the sparse mechanisms share. A `Side` carries the positions and mask facts of its
places along, so that places may be cut, gathered and put into another order without
losing what the mask says of them. Lengths need no divisor: missing places are filled up
and have the position -1, which `attnjax.ops.parts` never attends to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.ops.masks import pad_axis, require_self, with_rank
from attnjax.types import Array, Mask

FILLED = -1  # position of a place that is not in the sequence
SMALLEST_BLOCK = 64  # queries that are scored at once, lest there be too many turns


class Side(NamedTuple):
    """The queries, or the keys and values, of a sequence.

    The places lie on one axis ``n``, or once cut on two, ``blocks, size``.

    Attributes:
        arrays: each ``[..., n, K or V]``.
        position: ``[n]`` int, of each place in the sequence; -1 on filled up places.
            With axes before it where rows of a batch have places of their own.
        valid: ``[..., n]`` bool, or None.
        segments: ``[..., n]`` int, or None.
    """

    arrays: tuple[Array, ...]
    position: Array
    valid: Array | None
    segments: Array | None

    def change(self, function: Callable[[Array, int, int], Array]) -> Side:
        """Treats the places of all arrays alike.

        Args:
            function: ``(array, axis of the places, value of a filled up place)`` to the
                changed array; of two axes of places, the second is named.

        Returns:
            The changed side.
        """

        def change(fact: Array | None, fill: int) -> Array | None:
            return None if fact is None else function(fact, fact.ndim - 1, fill)

        return Side(
            tuple(function(array, array.ndim - 2, 0) for array in self.arrays),
            function(self.position, self.position.ndim - 1, FILLED),
            change(self.valid, 0),
            change(self.segments, 0),
        )


def sides(
    query: Array, key: Array, value: Array, mask: Mask, mechanism: str
) -> tuple[Side, Side]:
    """Both sides of a self-attention, not yet cut.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., T, K]``.
        value: ``[..., T, V]``.
        mask: its valid keys and segments go along.
        mechanism: name, for the message.

    Returns:
        The queries, and the keys with their values.

    Raises:
        ValueError: if there are not as many queries as keys.
    """
    require_self(query.shape[-2], key.shape[-2], mechanism)
    position = jnp.arange(query.shape[-2])
    queries = Side((query,), position, None, mask.query_segments)
    return queries, Side((key, value), position, mask.valid, mask.key_segments)


def cut(side: Side, size: int) -> Side:
    """Cuts the places into blocks.

    Args:
        side: of n places.
        size: places of a block; the last one is filled up.

    Returns:
        The side with its places on the axes ``blocks, size``.
    """

    def change(array: Array, axis: int, fill: int) -> Array:
        num_blocks = -(-array.shape[axis] // size)
        array = pad_axis(array, axis, num_blocks * size, fill)
        shape = array.shape
        return array.reshape(*shape[:axis], num_blocks, size, *shape[axis + 1 :])

    return side.change(change)


def neighbours(side: Side, left: int, right: int) -> Side:
    """Joins to each block the ones before and behind it.

    Args:
        side: cut into blocks.
        left: blocks before; filled up at the start.
        right: blocks behind; filled up at the end.

    Returns:
        As many blocks, each ``left + 1 + right`` times as large.
    """

    def change(array: Array, axis: int, fill: int) -> Array:
        num_blocks = array.shape[axis - 1]
        widths = [(0, 0)] * array.ndim
        widths[axis - 1] = (left, right)
        array = jnp.pad(array, widths, constant_values=fill)
        shifted = [
            jax.lax.slice_in_dim(array, shift, shift + num_blocks, axis=axis - 1)
            for shift in range(left + 1 + right)
        ]
        return jnp.concatenate(shifted, axis)

    return side.change(change)


def pick(side: Side, chosen: Array) -> Side:
    """Gathers any blocks.

    Args:
        side: cut into blocks.
        chosen: ``[..., blocks, picks]`` int, which blocks each one gets; -1 for none.

    Returns:
        The picked blocks of each block, side by side on the axis of their places.
    """
    chosen = jnp.asarray(chosen)
    *leading, num_blocks, _ = chosen.shape
    flat = jnp.maximum(chosen, 0).reshape(*leading, -1)

    def change(array: Array, axis: int, fill: int) -> Array:
        behind = array.shape[axis:]
        index = with_rank(flat, axis)
        index = index.reshape(*index.shape, *(1,) * len(behind))
        picked = jnp.take_along_axis(array, index, axis=axis - 1)
        return picked.reshape(
            *picked.shape[: axis - 1], num_blocks, -1, *array.shape[axis + 1 :]
        )

    facts = side.valid, side.segments
    position = jnp.where(chosen[..., None] < 0, FILLED, side.position[chosen])
    position = position.reshape(*leading, num_blocks, -1)
    return Side(
        tuple(change(array, array.ndim - 2, 0) for array in side.arrays),
        position,
        *(fact if fact is None else change(fact, fact.ndim - 1, 0) for fact in facts),
    )


def first(side: Side, count: int) -> Side:
    """The first places.

    Args:
        side: of n places.
        count: how many of them.

    Returns:
        A side of ``count`` places.
    """
    return side.change(
        lambda array, axis, fill: jax.lax.slice_in_dim(array, 0, count, axis=axis)
    )


def last_of_each(side: Side, count: int) -> Side:
    """The last places of each block, in one row.

    Args:
        side: cut into blocks.
        count: of each block.

    Returns:
        A side of ``blocks · count`` places on one axis.
    """

    def change(array: Array, axis: int, fill: int) -> Array:
        size = array.shape[axis]
        array = jax.lax.slice_in_dim(array, size - count, size, axis=axis)
        return array.reshape(*array.shape[: axis - 1], -1, *array.shape[axis + 1 :])

    return side.change(change)


def by_residue(side: Side, stride: int) -> Side:
    """Puts positions that lie a multiple of the stride apart next to each other.

    Position ``r · stride + c`` comes to place ``c · rows + r``: what was a dilated
    window becomes a plain one, and a column of the strided pattern becomes a block.

    Args:
        side: of n places in their natural order.
        stride: distance of positions that become neighbours.

    Returns:
        A side of ``rows · stride`` places, ``rows = ceil(n / stride)``.
    """

    def change(array: Array, axis: int, fill: int) -> Array:
        rows = -(-array.shape[axis] // stride)
        array = pad_axis(array, axis, rows * stride, fill)
        return _transposed(array, axis, rows, stride)

    return side if stride == 1 else side.change(change)


def in_order(array: Array, axis: int, stride: int, length: int) -> Array:
    """Undoes `by_residue`.

    Args:
        array: any, with the places of such a side on one axis.
        axis: which axis.
        stride: as given to `by_residue`.
        length: n.

    Returns:
        The array with n places in their natural order.
    """
    axis = axis % array.ndim
    rows = -(-length // stride)
    array = _transposed(array, axis, stride, rows)
    return jax.lax.slice_in_dim(array, 0, length, axis=axis)


def _transposed(array: Array, axis: int, rows: int, columns: int) -> Array:
    """Reads the places of an axis as a matrix, and puts its transpose there."""
    before, behind = array.shape[:axis], array.shape[axis + 1 :]
    matrix = array.reshape(*before, rows, columns, *behind)
    return jnp.swapaxes(matrix, axis, axis + 1).reshape(*before, -1, *behind)
