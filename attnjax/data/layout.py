"""Sentences of ids laid out as padded arrays, one or several in a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnjax.data.shapes import BatchShape
from attnjax.data.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from attnjax.types import PairBatch, Tokens

Sentences = Sequence[np.ndarray]  # ids without special tokens
IdPair = tuple[np.ndarray, np.ndarray]  # source and target


def lay_out(rows: Sequence[Sentences], length: int, *, packed: bool) -> Tokens:
    """Writes sentences one after the other into rows, and pads on the right.

    Args:
        rows: the sentences of each row.
        length: tokens of a row.
        packed: whether to number the sentences of a row and their positions.

    Returns:
        Arrays ``[len(rows), length]``.

    Raises:
        ValueError: a row's sentences are longer than ``length``.
    """
    ids_bt = np.full((len(rows), length), PAD_ID, np.int32)
    segments_bt = np.zeros((len(rows), length), np.int32)
    positions_bt = np.zeros((len(rows), length), np.int32)
    for row, sentences in enumerate(rows):
        start = 0
        for segment, sentence in enumerate(sentences, start=1):
            end = start + len(sentence)
            if end > length:
                raise ValueError(f"a row of {length} tokens cannot hold {end}.")
            ids_bt[row, start:end] = sentence
            segments_bt[row, start:end] = segment
            positions_bt[row, start:end] = np.arange(len(sentence))
            start = end
    valid_bt = segments_bt > 0
    if not packed:
        return Tokens(ids_bt, valid_bt)
    return Tokens(ids_bt, valid_bt, segments_bt, positions_bt)


def lay_out_sources(rows: Sequence[Sentences], length: int, *, packed: bool) -> Tokens:
    """`lay_out` of sentences that get their ``</s>`` here."""
    ended = [[np.append(sentence, EOS_ID) for sentence in row] for row in rows]
    return lay_out(ended, length, packed=packed)


def lay_out_pairs(
    rows: Sequence[Sequence[IdPair]],
    source_length: int,
    target_length: int,
    *,
    packed: bool = False,
) -> PairBatch:
    """Lays out sentence pairs; a row without pairs is padding with weight 0.

    The shift of the decoder is made in each sentence by itself, so that no sentence
    begins with the end of the one before it.

    Args:
        rows: the pairs of each row, ids without special tokens.
        source_length: tokens of a source row, with ``</s>``.
        target_length: tokens of a target row, with ``</s>``.
        packed: whether a row may hold several pairs.

    Returns:
        The batch. In unpacked batches an empty row has a lone ``</s>`` as its source
        and ``<s>`` as its input, so that attention always has a key.
    """
    blank = np.array([], np.int32)
    real = [len(row) > 0 for row in rows]
    if not packed:
        rows = [row or [(blank, blank)] for row in rows]
    targets = [[target for _, target in row] for row in rows]
    labels = lay_out_sources(targets, target_length, packed=False)
    begun = [[np.insert(target, 0, BOS_ID) for target in row] for row in targets]
    weights_bt = labels.valid & np.array(real, bool)[:, None]
    return PairBatch(
        source=lay_out_sources(
            [[source for source, _ in row] for row in rows],
            source_length,
            packed=packed,
        ),
        inputs=lay_out(begun, target_length, packed=packed),
        labels=labels.ids,
        weights=weights_bt.astype(np.float32),
    )


def full_batch(shape: BatchShape) -> PairBatch:
    """A batch without padding, to measure with.

    Args:
        shape: rows, and tokens of both sides.

    Returns:
        Arrays of that shape; every token is ``<unk>``.
    """
    source = np.full(shape.source_length - 1, UNK_ID, np.int32)
    target = np.full(shape.target_length - 1, UNK_ID, np.int32)
    rows = [[(source, target)]] * shape.rows
    return lay_out_pairs(rows, shape.source_length, shape.target_length)
