"""Whole sets of sentences in batches of few shapes, to score and to translate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attnjax.data.encoded import lengths_of
from attnjax.data.layout import IdPair, lay_out, lay_out_ended, lay_out_pairs
from attnjax.data.shapes import rows_of
from attnjax.data.vocabulary import Tokenizer, TokenizerPair
from attnjax.types import Longest, PairBatch, Tokens

_SHORTEST_LENGTH = 16  # padded lengths are this, doubled as often as needed
_FEWEST_TOKENS = 64  # of a batch: fewer take no less time, but programs of their own
_ENDLESS = Longest()
_ROWS_FACTOR = 8  # between the numbers of rows that a small batch may have


def evaluation_batches(
    sources: Sequence[Sequence[int]],
    tokenizer: Tokenizer,
    *,
    tokens_per_batch: int,
    rows_multiple: int = 1,
    longest: Longest = _ENDLESS,
) -> Iterator[tuple[np.ndarray, Tokens]]:
    """All sentences, longest first, in batches of few shapes; nothing is left out.

    Full batches have one shape for each padded length. The last batch is smaller where
    its sentences are few (1, 8, 64, ... rows), so that a line alone costs what a line
    costs. After other batches it has the shape of the one before, if it fits.

    Args:
        sources: ids without special tokens.
        tokenizer: that made them.
        tokens_per_batch: padded tokens of a batch; one sentence may be longer.
        rows_multiple: rows of each batch are a multiple of this.
        longest: no batch is padded beyond it; no sentence may be longer.

    Yields:
        ``(indices, tokens)``: row ``i`` is sentence ``indices[i]``, ended by ``</s>``;
        rows beyond are fillers, a lone ``</s>``.
    """
    sentences = [np.asarray(ids, np.int32) for ids in sources]
    lengths = np.array([len(ids) + 1 for ids in sentences], np.int64)
    for indices, rows, length in _longest_first(
        lengths, tokens_per_batch, rows_multiple
    ):
        filled = [[sentences[index]] for index in indices]
        blank = [[np.array([], np.int32)]] * (rows - len(filled))
        length = min(length, longest.source)
        yield indices, lay_out_ended(filled + blank, length, tokenizer, packed=False)


def pair_batches(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    tokenizers: TokenizerPair,
    *,
    tokens_per_batch: int,
    rows_multiple: int = 1,
    longest: Longest = _ENDLESS,
) -> Iterator[tuple[np.ndarray, PairBatch]]:
    """All pairs, longest first, in batches of few shapes; nothing is left out.

    Args:
        pairs: ids of source and target without special tokens.
        tokenizers: that made them.
        tokens_per_batch: padded tokens of the longer side; one pair may be longer.
        rows_multiple: rows of each batch are a multiple of this.
        longest: no side is padded beyond it; no sentence may be longer.

    Yields:
        ``(indices, batch)``: row ``i`` is pair ``indices[i]``; both sides have equal
        lengths, but for ``longest``, and filler rows have weight 0.
    """
    arrays = _as_arrays(pairs)
    longer = lengths_of(arrays).max(axis=1)
    for indices, rows, length in _longest_first(
        longer, tokens_per_batch, rows_multiple
    ):
        filled = [[arrays[index]] for index in indices]
        blank: list[list[IdPair]] = [[]] * (rows - len(filled))
        lengths = min(length, longest.source), min(length, longest.target)
        yield indices, lay_out_pairs(filled + blank, *lengths, tokenizers)


def lay_out_prefixes(
    prefixes: Sequence[Sequence[int]], rows: int, length: int, pad_id: int
) -> np.ndarray:
    """Beginnings of outputs as one array, padded on the right.

    Args:
        prefixes: ids without special tokens, of the first rows.
        rows: of the array; those beyond have no prefix.
        length: tokens of a row, at least as many as the longest prefix has.
        pad_id: fills the rows up.

    Returns:
        ``[rows, length]`` int32.
    """
    filled = [[np.asarray(ids, np.int32)] for ids in prefixes]
    blank: list[list[np.ndarray]] = [[]] * (rows - len(filled))
    laid_out = lay_out(filled + blank, length, pad_id=pad_id, packed=False)
    return np.asarray(laid_out.ids)


def padded_length(length: int) -> int:
    """The shortest of the few lengths that batches are padded to that holds this."""
    padded = _SHORTEST_LENGTH
    while padded < length:
        padded *= 2
    return padded


def _as_arrays(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> list[IdPair]:
    return [
        (np.asarray(source, np.int32), np.asarray(target, np.int32))
        for source, target in pairs
    ]


def _longest_first(
    lengths: np.ndarray, tokens_per_batch: int, rows_multiple: int
) -> Iterator[tuple[np.ndarray, int, int]]:
    """``(indices, rows, padded length)`` of batches; only the last has filler rows."""
    order = np.argsort(-lengths, kind="stable")
    start, rows, length = 0, 0, 0
    while start < len(order):
        left = len(order) - start
        if left > rows:  # else the shape of the batch before, which spares a program
            length = padded_length(int(lengths[order[start]]))
            rows = rows_of(length, tokens_per_batch, rows_multiple)
            if left < rows:
                rows = _few_rows(left, rows, rows_multiple)
                length = max(length, _FEWEST_TOKENS // rows)
        yield order[start : start + rows], rows, length
        start += rows


def _few_rows(needed: int, most: int, rows_multiple: int) -> int:
    rows = rows_multiple
    while rows < needed:
        rows *= _ROWS_FACTOR
    return min(rows, most)
