"""The endless, resumable stream of planned batches, as a grain dataset.

A window is a stretch of the epoch's shuffled order. Its pairs, and those that the
window before could not place, are put into batches of a few fixed shapes, and the
batches are shuffled. Pairs that fill no batch are carried into the next window of the
epoch; its last window hands out all that are left, so that an epoch holds each pair
once, and rows without a pair have weight 0. All hosts plan the same global batches, and
each lays out its share.

The position is small and exact: where the present window began, the pairs carried into
it, and how many of its batches were handed out. Setting it plans the window again. It
carries the number of the way in which windows are planned (`_PLANNING`).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import grain
import numpy as np

from attnjax.data.encoded import EncodedPairs, lengths_of, usable_pairs
from attnjax.data.layout import IdPair, lay_out_pairs
from attnjax.data.planning import Plan, PlannedBatch, plan_buckets, plan_packed
from attnjax.data.shapes import BatchShape
from attnjax.json_files import shown
from attnjax.types import PairBatch

_LOG = logging.getLogger(__name__)
_MOST_EPOCHS = 1 << 31  # more than any run sees
# Of the order of pairs and of their batches: another number, other batches. Positions
# from before there was a number carried pairs over the end of an epoch.
_PLANNING = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """How a stream of pairs becomes batches.

    Attributes:
        shapes: of the batches, cheapest row first; packed batches all have the last.
        packed: several pairs per row.
        window_pairs: pairs that are planned together.
        seed: of the order.
    """

    shapes: Sequence[BatchShape]
    packed: bool
    window_pairs: int
    seed: int


@dataclasses.dataclass(frozen=True)
class _Window:
    """Where a window begins.

    Attributes:
        start: pairs read before, over all epochs.
        carried: numbers of pairs that wait for a batch.
        dropped: pairs left out so far in the epoch.
    """

    start: int = 0
    carried: tuple[int, ...] = ()
    dropped: int = 0


class PlannedBatches(grain.IterDataset[PairBatch]):
    """An endless dataset of batches; each host lays out its share of the rows.

    Args:
        pairs: the training pairs as ids.
        layout: how they become batches.
        process_index: which host this is.
        process_count: how many hosts share each batch.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        layout: Layout,
        process_index: int,
        process_count: int,
    ) -> None:
        super().__init__()
        self._arguments = pairs, layout, process_index, process_count

    def __iter__(self) -> grain.DatasetIterator[PairBatch]:
        return _PlannedIterator(*self._arguments)

    def describe(self, position: Mapping[str, Any]) -> list[str]:
        """Names the pairs of the batch that ends at a position, by planning it again.

        Args:
            position: what an iterator's ``get_state`` gave after that batch.

        Returns:
            Where each pair of this host's rows comes from, row by row.
        """
        iterator = _PlannedIterator(*self._arguments)
        iterator.set_state(position)
        return iterator.describe_last()


class _PlannedIterator(grain.DatasetIterator[PairBatch]):
    def __init__(
        self,
        pairs: EncodedPairs,
        layout: Layout,
        process_index: int,
        process_count: int,
    ) -> None:
        super().__init__()
        self._pairs, self._layout = pairs, layout
        self._process_index, self._process_count = process_index, process_count
        self._window = _Window()
        self._emitted = 0
        self._planned: tuple[Plan, list[IdPair], _Window] | None = None
        self._numbers: list[int] = []  # of the planned pairs

    def __next__(self) -> PairBatch:
        plan, pairs, following = self._planned or self._plan_window()
        while self._emitted == len(plan.batches):
            self._window, self._emitted = following, 0
            plan, pairs, following = self._plan_window()
        if self._emitted > len(plan.batches):
            raise ValueError(
                f"batch {self._emitted} was to be the last one handed out, but its "
                f"window has {len(plan.batches)}; the stored position is damaged."
            )
        batch = plan.batches[self._emitted]
        self._emitted += 1
        return self._lay_out(batch, pairs)

    def get_state(self) -> dict[str, Any]:
        return {
            "start": self._window.start,
            "carried": list(self._window.carried),
            "dropped": self._window.dropped,
            "emitted": self._emitted,
            "planning": _PLANNING,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        carried = tuple(map(int, state["carried"]))
        window = _Window(int(state["start"]), carried, int(state["dropped"]))
        emitted, num_pairs = int(state["emitted"]), len(self._pairs)
        is_possible = (
            0 <= window.start < _MOST_EPOCHS * num_pairs
            and all(0 <= number < num_pairs for number in carried)
            and min(window.dropped, emitted) >= 0
        )
        if not is_possible:
            raise ValueError(
                f"{num_pairs:,} pairs have no such position: {shown(dict(state))}."
            )
        if state.get("planning") != _PLANNING:
            _LOG.warning(
                "this run began with a version that ordered the training pairs in "
                "another way: it goes on in the present order, from the beginning of "
                "the stretch of pairs that it was in"
            )
            emitted = 0
        self._window, self._emitted, self._planned = window, emitted, None

    def describe_last(self) -> list[str]:
        if not self._emitted:
            return []
        plan, _, _ = self._planned or self._plan_window()
        rows = self._share_of(plan.batches[self._emitted - 1])
        return [self._pairs.describe(self._numbers[n]) for row in rows for n in row]

    def _plan_window(self) -> tuple[Plan, list[IdPair], _Window]:
        """Plans the present window; also returns its pairs and the window after it."""
        window, layout = self._window, self._layout
        epoch = window.start // len(self._pairs)
        epoch_start, epoch_end = (
            number * len(self._pairs) for number in (epoch, epoch + 1)
        )
        end = min(window.start + layout.window_pairs, epoch_end)
        order = _order_of_epoch(len(self._pairs), layout.seed, epoch)
        read = [order[n - epoch_start] for n in range(window.start, end)]
        numbers = np.array([*window.carried, *read], np.int64)
        pairs = self._pairs.read(numbers.tolist())
        lengths = lengths_of(pairs)
        usable = np.flatnonzero(usable_pairs(lengths, layout.shapes[-1]))
        rng = np.random.default_rng([layout.seed, window.start])
        is_last = end == epoch_end
        if layout.packed:
            plan = plan_packed(lengths[usable], layout.shapes[-1], rng, is_last=is_last)
        else:
            plan = plan_buckets(lengths[usable], layout.shapes, rng, is_last=is_last)
        dropped = window.dropped + len(pairs) - len(usable)
        if window.start == 0 or is_last:
            _log_dropped(dropped, end - epoch_start, layout.shapes[-1])
        self._numbers = numbers[usable].tolist()
        following = _Window(
            end,
            tuple(self._numbers[number] for number in plan.carried),
            0 if is_last else dropped,
        )
        self._planned = plan, [pairs[number] for number in usable], following
        return self._planned

    def _lay_out(self, batch: PlannedBatch, pairs: list[IdPair]) -> PairBatch:
        return lay_out_pairs(
            [[pairs[n] for n in row] for row in self._share_of(batch)],
            batch.shape.source_length,
            batch.shape.target_length,
            self._pairs.tokenizers,
            packed=self._layout.packed,
        )

    def _share_of(self, batch: PlannedBatch) -> list[list[int]]:
        share = batch.shape.rows // self._process_count
        first = self._process_index * share
        return batch.rows[first : first + share]


def _order_of_epoch(num_pairs: int, seed: int, epoch: int) -> grain.MapDataset[int]:
    """The numbers of all pairs, shuffled anew for each seed and epoch.

    grain would add the epoch to the seed, so that the epochs of two seeds can meet, and
    are then the same ones for ever; a hash of both keeps them apart.
    """
    mixed = int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
    return grain.MapDataset.range(num_pairs).shuffle(mixed)


def _log_dropped(dropped: int, seen: int, largest: BatchShape) -> None:
    if dropped == 0:
        return
    _LOG.info(
        "%s of %s training pairs read in this epoch (%.1f %%) are not trained on: a "
        "side is empty, or has more than %d tokens (the last of data.bucket_lengths)",
        f"{dropped:,}",
        f"{seen:,}",
        100 * dropped / seen,
        largest.source_length,
    )
