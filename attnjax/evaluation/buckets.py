"""BLEU by the length of the source sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from attnjax.evaluation.bleu import bleu_tokenizer, make_bleu
from attnjax.evaluation.lines import (
    References,
    check_lines,
    present_references,
    reference_sets,
)
from attnjax.words import words_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthBucket:
    """BLEU of the sentences whose source length lies in a range.

    Attributes:
        label: Such as ``11-20`` or ``>50``.
        low: The shortest source, in words.
        high: The longest source, in words; None for the last, open range.
        count: Sentences in the range.
        bleu: Corpus BLEU over them; None where there are none.
    """

    label: str
    low: int
    high: int | None
    count: int
    bleu: float | None


def bleu_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: References,
    *,
    source_language: str,
    target_language: str,
    edges: Sequence[int] = (10, 20, 30, 50),
) -> list[LengthBucket]:
    """Corpus BLEU within each range of source lengths.

    Words are those of the source language, see `attnjax.words`, whatever the tokenizer
    of the model, so that models can be compared. Sentences with an empty source, if
    there are any, have a range ``0`` of their own: the translation of nothing says
    nothing about short sentences.

    Args:
        sources: Source sentences as plain text.
        hypotheses: The output, one string per source.
        references: One string per source, or several such columns.
        source_language: Chooses what a word is.
        target_language: Chooses the BLEU tokenizer.
        edges: The longest length of each range but the last, rising.

    Returns:
        All ranges from short to long, also those without a sentence.

    Raises:
        ValueError: If the counts of lines differ or there are none.
    """
    check_lines(sources=sources, hypotheses=hypotheses)
    columns = reference_sets(hypotheses, references)
    lengths = [len(words_of(source, source_language)) for source in sources]
    lows = [1, *(edge + 1 for edge in edges)]
    highs: list[int | None] = [*edges, None]
    ranges = list(zip(lows, highs, strict=True))
    if 0 in lengths:
        ranges.insert(0, (0, 0))

    buckets = []
    for low, high in ranges:
        rows = [
            row
            for row, length in enumerate(lengths)
            if low <= length and (high is None or length <= high)
        ]
        buckets.append(
            LengthBucket(
                label=_label(low, high),
                low=low,
                high=high,
                count=len(rows),
                bleu=_bleu(rows, hypotheses, columns, target_language),
            )
        )
    return buckets


def _bleu(
    rows: Sequence[int],
    hypotheses: Sequence[str],
    columns: Sequence[Sequence[str]],
    target_language: str,
) -> float | None:
    if not rows:
        return None
    metric = make_bleu(bleu_tokenizer(target_language))
    score = metric.corpus_score(
        [hypotheses[row] for row in rows],
        present_references([[column[row] for row in rows] for column in columns]),
    )
    return min(score.score, 100.0)  # rounding can lead beyond


def _label(low: int, high: int | None) -> str:
    if high is None:
        return f">{low - 1}"
    return str(low) if low == high else f"{low}-{high}"
