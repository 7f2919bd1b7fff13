"""Axial attention: along the rows of a grid, then along its columns."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.fields import Options, UnitsOrZero
from attnjax.ops.attend import dense_attention
from attnjax.ops.door import door, require_fit
from attnjax.ops.masks import leading_shape, refuse, require_self, with_rank
from attnjax.ops.padding import real_positions, root_above, roots_above
from attnjax.types import Array, Attended, Mask

_FOLDED = (
    "the sequence is folded by its length, so that positions near each other lie in "
    "different rows and a decoder does not know the grid beforehand"
)


def axial_attention_2d(
    query: Array, key: Array, value: Array, valid: Array | None = None
) -> Attended:
    """Attention along the rows of a grid, then along its columns.

    ``y_rc = sum_c' softmax_c'(q_rc · k_rc') v_rc'`` and
    ``context_rc = sum_r' softmax_r'(q_rc · k_r'c) y_r'c``, scores scaled by
    ``1 / sqrt(K)``: each cell reads every other one in two steps, at ``R + C`` scores
    instead of ``R C`` (Ho et al. 2019, "Axial Attention in Multidimensional
    Transformers", section 3.1). The paper's layers attend along one axis each, with
    projections of their own; here both steps share one set.

    Args:
        query: ``[..., R, C, K]``.
        key: ``[..., R, C, K]``.
        value: ``[..., R, C, V]``.
        valid: ``[..., R, C]`` bool, cells that are real; None if all are.

    Returns:
        Context ``[..., R, C, V]``, 0 on cells with no real one in their row or column;
        no weights.

    Raises:
        ValueError: if the arrays are not of one grid.
    """
    require_fit("axial_attention_2d", query, key, value, any_width=False)
    if (
        query.ndim < 3
        or not query.shape[-3:-1] == key.shape[-3:-1] == value.shape[-3:-1]
    ):
        raise ValueError(
            "axial_attention_2d needs arrays of one grid [..., rows, columns, width], "
            f"got {query.shape}, {key.shape} and {value.shape}."
        )
    query, key, first = (
        jnp.asarray(array, jnp.float32) for array in (query, key, value)
    )
    along_rows = dense_attention(query, key, first, Mask(valid=valid)).context
    query, key, second = (
        jnp.swapaxes(array, -2, -3) for array in (query, key, along_rows)
    )
    turned = None if valid is None else jnp.swapaxes(valid, -1, -2)
    along_columns = dense_attention(query, key, second, Mask(valid=turned)).context
    return Attended(jnp.swapaxes(along_columns, -2, -3).astype(value.dtype), None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axial(Options):
    """Attention along the rows and columns of a grid."""

    # rows of the grid that a sentence is folded into; 0: the square root of its length
    rows: UnitsOrZero = 0


@door
def axial_attention(
    query: Array, key: Array, value: Array, mask: Mask, *, rows: int = 0
) -> Attended:
    """Axial self-attention of a sequence folded into a grid, row by row.

    Each sentence is folded by its own length L, without its padding: into ``rows``
    rows of ``ceil(L / rows)`` cells, so that padding never changes the grid. See
    `axial_attention_2d` for the attention.

    Args:
        query: ``[..., S, K]``, at the positions of the keys.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: only ``valid`` can be honoured.
        rows: of the grid; 0 means ``ceil(sqrt(L))``.

    Returns:
        Context ``[..., S, V]``; no weights.

    Raises:
        ValueError: for other facts, or unequal numbers of queries and keys.
    """
    refuse(mask, "axial", causal=_FOLDED, window=_FOLDED, segments=_FOLDED)
    num_keys = key.shape[-2]
    require_self(query.shape[-2], num_keys, "axial")
    fold = _fold(real_positions(mask, num_keys), rows)
    leading = leading_shape(query, key, value)
    shape = fold.real.shape[-2:]

    def folded(array: Array) -> jax.Array:
        whole = jnp.broadcast_to(array, (*leading, *array.shape[-2:]))
        cells = _take(whole, fold.position)
        return cells.reshape(*leading, *shape, array.shape[-1])

    real = with_rank(fold.real, len(leading) + 2)
    grid = axial_attention_2d(folded(query), folded(key), folded(value), real).context
    cells = jnp.asarray(grid).reshape(*leading, -1, value.shape[-1])
    return Attended(_take(cells, fold.cell), None)


class _Fold(NamedTuple):
    """Where each position of a sequence lies on the grid of its sentence.

    Attributes:
        position: ``[..., R C]`` int, of each cell.
        real: ``[..., R, C]`` bool, cells with a real position.
        cell: ``[..., S]`` int, of each position; that of the last real position for
            what fills up the batch behind it.
    """

    position: jax.Array
    real: jax.Array
    cell: jax.Array


def _fold(real: jax.Array, rows: int) -> _Fold:
    """The smallest grid that holds every sentence, and the places on it."""
    num_keys = real.shape[-1]
    place = jnp.arange(num_keys).reshape((1,) * (real.ndim - 1) + (-1,))
    length = jnp.max(jnp.where(real, place + 1, 0), axis=-1, keepdims=True)
    own_rows = rows or roots_above(length)
    own_columns = jnp.maximum(-(-length // own_rows), 1)
    grid_rows = min(rows, num_keys) or root_above(num_keys)
    grid_columns = -(-num_keys // grid_rows)
    if not rows:  # a shorter sentence may fill a square that is one column wider
        grid_columns = max(grid_columns, int(num_keys**0.5))
    number = jnp.arange(grid_rows * grid_columns).reshape(*place.shape[:-1], -1)
    row, column = jnp.divmod(number, grid_columns)
    position = row * own_columns + column
    filled = (column < own_columns) & (position < length)
    position = jnp.minimum(position, num_keys - 1)
    filled &= jnp.take_along_axis(real, position, axis=-1)
    row, column = jnp.divmod(
        jnp.clip(place, 0, jnp.maximum(length - 1, 0)), own_columns
    )
    return _Fold(
        position,
        filled.reshape(*real.shape[:-1], grid_rows, grid_columns),
        row * grid_columns + column,
    )


def _take(array: jax.Array, index: jax.Array) -> jax.Array:
    """Rows ``index [..., P]`` of ``array [..., S, K]``: ``[..., P, K]``."""
    rows = jnp.asarray(with_rank(index[..., None], array.ndim))
    return jnp.take_along_axis(array, rows, axis=-2)
