"""Which sentence pairs go into which row of which batch: pure functions of lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attnjax.data.shapes import BatchShape, assign_shapes


class PlannedBatch(NamedTuple):
    """A shape, and the numbers of the pairs in each of its rows, which may be none."""

    shape: BatchShape
    rows: list[list[int]]


class Plan(NamedTuple):
    """Batches made of a window of pairs, and the pairs that wait for the next one."""

    batches: list[PlannedBatch]
    carried: list[int]


def plan_buckets(
    lengths: np.ndarray,
    shapes: Sequence[BatchShape],
    rng: np.random.Generator,
    *,
    is_last: bool,
) -> Plan:
    """One pair per row, in the cheapest shape that holds it.

    Args:
        lengths: ``[N, 2]`` tokens of source and target, with ``</s>``; all pairs fit.
        shapes: cheapest row first.
        rng: shuffles the batches.
        is_last: whether no pair may wait. What fills no batch of its own shape is then
            put into the fewest batches, in which rows may be without a pair.

    Returns:
        The batches, all of them full unless this is the last window.
    """
    assigned = assign_shapes(lengths, shapes)
    batches, carried = [], []
    for number, shape in enumerate(shapes):
        members = np.flatnonzero(assigned == number).tolist()
        full = len(members) // shape.rows * shape.rows
        for start in range(0, full, shape.rows):
            rows = [[pair] for pair in members[start : start + shape.rows]]
            batches.append(PlannedBatch(shape, rows))
        carried += members[full:]
    if is_last:
        batches += _longest_first(carried, lengths, assigned, shapes)
        carried = []
    return Plan(_shuffled(batches, rng), carried)


def plan_packed(
    lengths: np.ndarray,
    shape: BatchShape,
    rng: np.random.Generator,
    *,
    is_last: bool,
) -> Plan:
    """Several pairs per row: each goes into the first row with room on both sides.

    Args:
        lengths: ``[N, 2]`` tokens of source and target, with ``</s>``; all pairs fit.
        shape: of every batch.
        rng: shuffles the batches.
        is_last: whether no pair may wait; rows of one batch may then be without one.

    Returns:
        The batches. Late rows are the emptiest, so theirs are the pairs carried.
    """
    room = np.tile(shape[1:], (len(lengths), 1))
    rows: list[list[int]] = []
    for pair, needed in enumerate(lengths):
        # The row after the last one is still empty, so the search always succeeds.
        row = int((room[: len(rows) + 1] >= needed).all(axis=1).argmax())
        if row == len(rows):
            rows.append([])
        rows[row].append(pair)
        room[row] -= needed
    full = len(rows) if is_last else len(rows) // shape.rows * shape.rows
    batches = [
        _filled_up(shape, rows[start : min(start + shape.rows, full)])
        for start in range(0, full, shape.rows)
    ]
    return Plan(_shuffled(batches, rng), [pair for row in rows[full:] for pair in row])


def _longest_first(
    pairs: Sequence[int],
    lengths: np.ndarray,
    assigned: np.ndarray,
    shapes: Sequence[BatchShape],
) -> list[PlannedBatch]:
    """Batches of pairs that are too few for full ones of their own shapes.

    The dearest pair left chooses the shape, and the next ones join it as long as they
    fit. A batch costs about the same in each shape, so few batches are cheap ones.
    """
    batches = []
    waiting = np.array(sorted(pairs, key=lambda pair: -assigned[pair]), np.int64)
    while len(waiting):
        shape = shapes[assigned[waiting[0]]]
        fits = (lengths[waiting] <= np.array(shape[1:])).all(axis=1)
        chosen = np.flatnonzero(fits)[: shape.rows]
        batches.append(_filled_up(shape, [[pair] for pair in waiting[chosen].tolist()]))
        waiting = np.delete(waiting, chosen)
    return batches


def _filled_up(shape: BatchShape, rows: list[list[int]]) -> PlannedBatch:
    """A batch whose last rows may be without a pair."""
    return PlannedBatch(shape, rows + [[] for _ in range(shape.rows - len(rows))])


def _shuffled(
    batches: list[PlannedBatch], rng: np.random.Generator
) -> list[PlannedBatch]:
    return [batches[number] for number in rng.permutation(len(batches))]
