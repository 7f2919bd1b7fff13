"""Sentences of ids laid out as padded arrays, one or several in a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnjax.data.shapes import BatchShape
from attnjax.data.vocabulary import Tokenizer, TokenizerPair
from attnjax.types import PairBatch, Tokens

Sentences = Sequence[np.ndarray]  # ids without special tokens
IdPair = tuple[np.ndarray, np.ndarray]  # source and target


def lay_out(
    rows: Sequence[Sentences], length: int, *, pad_id: int, packed: bool
) -> Tokens:
    """Writes sentences one after the other into rows, and pads on the right.

    Args:
        rows: the sentences of each row.
        length: tokens of a row.
        pad_id: fills the rows up.
        packed: whether to number the sentences of a row and their positions.

    Returns:
        Arrays ``[len(rows), length]``.

    Raises:
        ValueError: a row's sentences are longer than ``length``.
    """
    ids_bt = np.full((len(rows), length), pad_id, np.int32)
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


def lay_out_ended(
    rows: Sequence[Sentences], length: int, tokenizer: Tokenizer, *, packed: bool
) -> Tokens:
    """`lay_out` of sentences that get the ``</s>`` of their tokenizer here."""
    end = tokenizer.eos_id
    ended = [[np.append(sentence, end) for sentence in row] for row in rows]
    return lay_out(ended, length, pad_id=tokenizer.pad_id, packed=packed)


def lay_out_pairs(
    rows: Sequence[Sequence[IdPair]],
    source_length: int,
    target_length: int,
    tokenizers: TokenizerPair,
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
        tokenizers: of both sides; they know the special tokens.
        packed: whether a row may hold several pairs.

    Returns:
        The batch. In unpacked batches an empty row has a lone ``</s>`` as its source
        and ``<s>`` as its input, so that attention always has a key.
    """
    blank = np.array([], np.int32)
    real = [len(row) > 0 for row in rows]
    if not packed:
        rows = [row or [(blank, blank)] for row in rows]
    targets = [[sentence for _, sentence in row] for row in rows]
    target = tokenizers.target
    labels = lay_out_ended(targets, target_length, target, packed=False)
    start = target.bos_id
    begun = [[np.insert(sentence, 0, start) for sentence in row] for row in targets]
    weights_bt = labels.valid & np.array(real, bool)[:, None]
    return PairBatch(
        source=lay_out_ended(
            [[source for source, _ in row] for row in rows],
            source_length,
            tokenizers.source,
            packed=packed,
        ),
        inputs=lay_out(begun, target_length, pad_id=target.pad_id, packed=packed),
        labels=labels.ids,
        weights=weights_bt.astype(np.float32),
    )


def full_batch(shape: BatchShape, tokenizers: TokenizerPair) -> PairBatch:
    """A batch without padding, to measure with.

    Args:
        shape: rows, and tokens of both sides.
        tokenizers: of both sides.

    Returns:
        Arrays of that shape; every token is ``<unk>``.
    """
    source, target = (
        np.full(length - 1, tokenizer.unk_id, np.int32)
        for length, tokenizer in zip(shape[1:], tokenizers, strict=True)
    )
    rows = [[(source, target)]] * shape.rows
    return lay_out_pairs(rows, shape.source_length, shape.target_length, tokenizers)
