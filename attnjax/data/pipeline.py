"""Seeded, resumable batches of sentence pairs to train on."""

from __future__ import annotations

import dataclasses
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grain
import numpy as np

from attnjax.config import DataConfig
from attnjax.data.encoded import (
    EncodedPairs,
    fingerprint,
    lengths_of,
    spread,
    usable_pairs,
)
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.shapes import BatchShape, choose_shapes, rows_of
from attnjax.data.stream import Layout, PlannedBatches
from attnjax.data.vocabulary import TokenizerPair
from attnjax.types import Longest, PairBatch

_BATCHES_AHEAD = 4  # prepared by the prefetch thread
_PAIRS_SAMPLED = 5_000  # to choose the shapes

_VALIDATION = "validation"
_CONFIG = "config"  # of the run
_ORDER = "order"  # its seed, where it is not the run's
logger = logging.getLogger(__name__)


def training_batches(
    corpus: ParallelCorpus,
    tokenizers: TokenizerPair,
    config: DataConfig,
    *,
    seed: int,
    process_index: int = 0,
    process_count: int = 1,
    validation: ParallelCorpus | None = None,
) -> TrainingBatches:
    """Endless batches over shuffled epochs of the training pairs.

    Pairs with an empty side or over the longest bucket are left out, and counted in the
    log once per epoch.

    Args:
        corpus: the training pairs.
        tokenizers: of both languages.
        config: shapes, token budget, packing.
        seed: of the order; other seeds give unrelated orders.
        process_index: which host this is.
        process_count: how many hosts share each batch.
        validation: the pairs that scores are of; if others are, they do not compare.

    Returns:
        The iterator, prepared ahead by a thread.

    Raises:
        ValueError: the hosts cannot share the rows evenly, or no pair can be used.
    """
    if config.rows_multiple % process_count:
        raise ValueError(
            f"{process_count} hosts cannot share rows evenly; data.rows_multiple must "
            f"be a multiple of that, got {config.rows_multiple}. Use a number of "
            "hosts that divides it, which may change from one session of a run to the "
            "next, or raise it for a new run."
        )
    pairs = EncodedPairs(corpus, tokenizers)
    lengths = lengths_of(pairs.read(spread(len(pairs), _PAIRS_SAMPLED)))
    shapes = _training_shapes(lengths, config, corpus)
    window_tokens = config.shuffle_buffer_batches * config.tokens_per_batch
    layout = Layout(
        shapes=shapes,
        packed=config.packing,
        window_pairs=int(window_tokens / lengths.max(axis=1).mean()) + 1,
        seed=seed,
    )
    planned = PlannedBatches(pairs, layout, process_index, process_count)
    batches = grain.experimental.ThreadPrefetchIterDataset(
        planned, prefetch_buffer_size=_BATCHES_AHEAD
    )
    identity = {
        "corpus": fingerprint(corpus),
        "vocabulary": tokenizers.fingerprint,
        "seed": str(seed),
        "batching": _described(layout),
    }
    if validation is not None:
        identity[_VALIDATION] = fingerprint(validation)
    return TrainingBatches(iter(batches), planned, shapes, identity)


def _described(layout: Layout) -> str:
    """All of a layout but for its seed."""
    shapes = [tuple(shape) for shape in layout.shapes]
    packed = ", packed" if layout.packed else ""
    return f"shapes {shapes}, windows of {layout.window_pairs} pairs{packed}"


class TrainingBatches:
    """An endless iterator over batches whose exact position can be stored.

    Attributes:
        shapes: every global shape that a batch can have.
    """

    def __init__(
        self,
        batches: grain.DatasetIterator[PairBatch],
        planned: PlannedBatches,
        shapes: Sequence[BatchShape],
        identity: Mapping[str, str],
    ) -> None:
        self.shapes = tuple(shapes)
        # At exit, grain's destructor runs too late and complains: stop before.
        self._batches = [batches]
        self._planned = planned
        weakref.finalize(self, _stop, self._batches)
        self._beginning = batches.get_state()
        self._identity: dict[str, Any] = dict(identity)
        self._changed: Callable[[Any], list[str]] = lambda config: []

    def __iter__(self) -> TrainingBatches:
        return self

    def __next__(self) -> PairBatch:
        return next(self._batches[0])

    def get_state(self) -> dict[str, Any]:
        """The position after the last batch, and the identity of the data, for JSON."""
        return {"identity": self._identity, "position": self._batches[0].get_state()}

    def belong_to(
        self, seed: int, config: Mapping[str, Any], changed: Callable[[Any], list[str]]
    ) -> None:
        """Keeps whose batches they are with every position, and refuses another's.

        Args:
            seed: of the run; if the order has another one, that may change on the way.
            config: of the run, as JSON values.
            changed: from the config kept with a state (None of old ones) to a line, old
                and new, for each thing that is not as it was.
        """
        order = self._identity["seed"]
        self._identity |= {"seed": str(seed), _CONFIG: config}
        if order != str(seed):
            self._identity[_ORDER] = order
        self._changed = changed

    def differences(self, state: Mapping[str, Any]) -> list[str]:
        """What is not as it was where a state comes from.

        Args:
            state: what `get_state` gave.

        Returns:
            One line, old and new, for each part of the identity that differs, behind
            those on the run's config. The seed of the order may differ.
        """
        stored, present = dict(state["identity"]), self._identity
        return self._changed(stored.get(_CONFIG)) + [
            f"data.{part}: {stored.get(part)} -> {present.get(part)}"
            for part in {**present, **stored}
            if part not in (_CONFIG, _ORDER)
            and stored.get(part) != present.get(part)
            # Not kept at first, and not known to who only reads the batches.
            and (part != _VALIDATION or (part in stored and part in present))
        ]

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes to a stored position of the same data, batched in the same way.

        Args:
            state: what `get_state` gave, also on another number of hosts.

        Raises:
            ValueError: the state belongs to other data or another batching, or there is
                no such position.
        """
        identity = state["identity"]
        if lines := self.differences(state):
            raise ValueError(
                f"cannot resume with other data (stored -> present): {'; '.join(lines)}"
                ". Resume with the same data and configuration, or begin in a new run "
                "folder."
            )
        position = dict(state["position"])
        stored, present = (each.get(_ORDER) for each in (identity, self._identity))
        if stored != present:
            logger.warning(
                "from here on the batches come in the order of seed %s, from its "
                "beginning",
                present or self._identity["seed"],
            )
            position = self._beginning
        self._batches[0].set_state(position)

    def describe_last(self) -> list[str]:
        """Where each pair of the latest batch comes from, for a message.

        Returns:
            Origin and line, row by row; empty before the first batch.
        """
        return self._planned.describe(self._batches[0].get_state())

    def close(self) -> None:
        """Stops the thread that prepares batches."""
        _stop(self._batches)


def _stop(batches: list[grain.DatasetIterator[PairBatch]]) -> None:
    while batches:
        batches.pop().close()


def shortened(config: DataConfig, longest: Longest) -> DataConfig:
    """Ends the bucket lengths where a model's sentences end.

    Args:
        config: its buckets may reach farther than the model does.
        longest: sentences that the model can take.

    Returns:
        The config with no bucket that the model could not read; what it leaves out is
        said in the log.
    """
    most, lengths = min(longest[:2]), config.bucket_lengths
    if lengths[-1] <= most:
        return config
    logger.info(
        "training pairs over %d tokens are left out: the model takes no more (%s), "
        "though data.bucket_lengths reaches to %d",
        most,
        longest.setting,
        lengths[-1],
    )
    kept = [length for length in lengths if length < most]
    return dataclasses.replace(config, bucket_lengths=(*kept, most))


def _training_shapes(
    lengths: np.ndarray, config: DataConfig, corpus: ParallelCorpus
) -> list[BatchShape]:
    longest = config.bucket_lengths[-1]
    rows = rows_of(longest, config.tokens_per_batch, config.rows_multiple)
    largest = BatchShape(rows, longest, longest)
    usable = usable_pairs(lengths, largest)
    if not usable.any():
        raise ValueError(
            f"{corpus.origin}: of {len(lengths)} training pairs looked at none can be "
            f"used, for each has an empty side or more than {longest} tokens; raise "
            "data.bucket_lengths, or mend the text."
        )
    if config.packing:
        return [largest]
    return choose_shapes(
        lengths[usable],
        config.bucket_lengths,
        config.bucket_shapes,
        tokens_per_batch=config.tokens_per_batch,
        rows_multiple=config.rows_multiple,
    )
