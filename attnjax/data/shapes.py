"""The few batch shapes that training compiles, chosen so that little is padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

# A decoder position also attends to the source and is scored against the vocabulary.
_TARGET_COST = 2.0  # of a padded target token, in padded source tokens
_MOST_EXCHANGES = 100  # it takes a few dozen


class BatchShape(NamedTuple):
    """Rows of a global batch, and the padded lengths of both sides with ``</s>``."""

    rows: int
    source_length: int
    target_length: int

    @property
    def cost(self) -> float:
        """The work of one row, in source tokens."""
        return self.source_length + _TARGET_COST * self.target_length


def rows_of(length: int, tokens_per_batch: int, rows_multiple: int) -> int:
    """Rows of ``length`` tokens that fit the budget, a multiple of ``rows_multiple``.

    Args:
        length: padded tokens of a row.
        tokens_per_batch: the budget.
        rows_multiple: the fewest rows, even if they exceed the budget.

    Returns:
        The number of rows.
    """
    rows = tokens_per_batch // length // rows_multiple * rows_multiple
    return max(rows_multiple, rows)


def choose_shapes(
    lengths: np.ndarray,
    candidates: Sequence[int],
    count: int,
    *,
    tokens_per_batch: int,
    rows_multiple: int,
) -> list[BatchShape]:
    """Chooses the shapes that pad given sentence pairs least.

    From all pairs of candidate lengths, shapes are added one by one, each the one that
    saves most padding, and then exchanged one by one as long as that saves more. The
    largest shape is always there, so that every admitted pair fits.

    Args:
        lengths: ``[N, 2]`` tokens of source and target of a sample, with ``</s>``.
        candidates: the lengths a side may be padded to, rising.
        count: the number of shapes, at most.
        tokens_per_batch: padded tokens of the longer side of a batch.
        rows_multiple: rows are a multiple of this.

    Returns:
        The shapes, cheapest row first.
    """
    grid = np.asarray(candidates)
    admitted = lengths[(lengths <= grid[-1]).all(axis=1)]
    cells = np.searchsorted(grid, admitted)
    histogram = np.zeros((len(grid), len(grid)))
    np.add.at(histogram, (cells[:, 0], cells[:, 1]), 1)
    padding = _Padding(histogram, grid)
    chosen = _exchange(padding, _add_one_by_one(padding, count - 1))
    largest = len(grid) - 1, len(grid) - 1
    shapes = []
    for source_cell, target_cell in {*chosen, largest}:
        source_length, target_length = int(grid[source_cell]), int(grid[target_cell])
        longer = max(source_length, target_length)
        rows = rows_of(longer, tokens_per_batch, rows_multiple)
        shapes.append(BatchShape(rows, source_length, target_length))
    return sorted(shapes, key=lambda shape: (shape.cost, shape))


_Cell = tuple[int, int]  # indices of the candidate lengths of source and target


class _Padding:
    """What shapes cost on a histogram of pairs over the grid of candidate lengths."""

    def __init__(self, histogram: np.ndarray, grid: np.ndarray) -> None:
        self._histogram = histogram
        self._costs = grid[:, None] + _TARGET_COST * grid[None, :]

    def row_costs(self, shapes: Iterable[_Cell]) -> np.ndarray:
        """The cost of a pair of each cell, in the cheapest shape that holds it."""
        costs = np.full(self._costs.shape, self._costs[-1, -1])
        for source, target in shapes:
            covered = costs[: source + 1, : target + 1]
            np.minimum(covered, self._costs[source, target], out=covered)
        return costs

    def total(self, shapes: Iterable[_Cell]) -> float:
        """The cost of all pairs."""
        return float((self._histogram * self.row_costs(shapes)).sum())

    def best_addition(self, shapes: Iterable[_Cell]) -> _Cell | None:
        """The shape that saves most beside the given ones; None if none saves."""
        row_costs = self.row_costs(shapes)
        best, most_saved = None, 0.0
        for source, target in np.ndindex(self._costs.shape):
            corner = np.s_[: source + 1, : target + 1]
            saved = np.maximum(row_costs[corner] - self._costs[source, target], 0.0)
            total_saved = float((self._histogram[corner] * saved).sum())
            if total_saved > most_saved:
                best, most_saved = (source, target), total_saved
        return best


def _add_one_by_one(padding: _Padding, count: int) -> list[_Cell]:
    """At most ``count`` shapes, each the best beside those before it."""
    shapes: list[_Cell] = []
    while len(shapes) < count:
        addition = padding.best_addition(shapes)
        if addition is None:
            break
        shapes.append(addition)
    return shapes


def _exchange(padding: _Padding, shapes: list[_Cell]) -> list[_Cell]:
    """Replaces one shape after the other by a better one, until none can be."""
    kept_in_a_row = 0
    for _ in range(_MOST_EXCHANGES):
        if kept_in_a_row >= len(shapes):
            break
        oldest, *others = shapes
        shapes = [*others, padding.best_addition(others) or oldest]
        if padding.total(shapes) < padding.total([*others, oldest]):
            kept_in_a_row = 0
        else:
            kept_in_a_row += 1
            shapes = [*others, oldest]
    return shapes


def assign_shapes(lengths: np.ndarray, shapes: Sequence[BatchShape]) -> np.ndarray:
    """Finds the cheapest shape that holds each pair.

    Args:
        lengths: ``[N, 2]`` tokens of source and target, with ``</s>``.
        shapes: cheapest row first, as `choose_shapes` returns them.

    Returns:
        ``[N]`` indices into ``shapes``; -1 for pairs that fit none.
    """
    sizes = np.array([shape[1:] for shape in shapes])
    fits_ne = np.all(lengths[:, None] <= sizes[None], axis=-1)
    return np.where(fits_ne.any(axis=1), fits_ne.argmax(axis=1), -1)
