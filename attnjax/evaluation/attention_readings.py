"""Which attention weights to read as the alignment, and how.

Attention is not alignment: which layer and head look at the translated word differs
from model to model, a decoder may look at it one step after it generated the
translation, and much weight lies on ``</s>``. So every way of reading is scored on a
validation set, and the choice is stated.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from attnjax.evaluation.alignment import (
    AlignmentScores,
    GoldAlignment,
    alignment_scores,
)
from attnjax.evaluation.attention_alignment import (
    LinkMethod,
    links,
    shifted,
    word_weights,
)
from attnjax.types import Alignment, Array

Words = Literal["language", "spaces"]


class AttendedPair(NamedTuple):
    """A sentence pair and where each step of the decoder looked.

    Attributes:
        attention: Named weights, each ``[H, T, S]``; row t belongs to the step that
            generates target token t.
        source_words: For each of the S source tokens the index of its word, or -1.
        target_words: For each of the T target tokens the index of its word, or -1.
    """

    attention: Mapping[str, Array]
    source_words: Sequence[int]
    target_words: Sequence[int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """One way to read attention weights as an alignment.

    Attributes:
        name: Which weights, such as ``layer_3/cross``.
        head: Which head, from 0; None for the mean of all.
        shifted: Whether a target token has the row of the step after it, see
            `attnjax.evaluation.attention_alignment.shifted`.
        method: See `attnjax.evaluation.attention_alignment.links`.
        allow_unaligned: Likewise.
        words: What is linked: the words of each language, or whatever spaces part.
    """

    name: str
    head: int | None
    shifted: bool
    method: LinkMethod = "argmax"
    allow_unaligned: bool = False
    words: Words = "language"

    def describe(self) -> str:
        """The choice in words, for tables and logs."""
        head = "mean of heads" if self.head is None else f"head {self.head}"
        step = "shifted by one step" if self.shifted else "not shifted"
        argmax = self.method == "argmax"
        method = "argmax" if argmax else f"weight >= {self.method:g}"
        unaligned = ", words may stay unaligned" if self.allow_unaligned else ""
        words = "" if self.words == "language" else ", words parted by spaces"
        return f"{self.name}, {head}, {step}, {method}{unaligned}{words}"


def parse_reading(text: str) -> Reading:
    """Reads ``NAME[:HEAD][:shifted]``, HEAD from 0 or ``mean``.

    Args:
        text: such as ``decoder/layer_2/cross:3:shifted``.

    Returns:
        The reading, by argmax.

    Raises:
        ValueError: If a part is none of these.
    """
    match = re.fullmatch(r"([^:]+)(?::(mean|[0-9]+))?(:shifted)?", text)
    if match is None:
        raise ValueError(
            "a reading is NAME[:HEAD][:shifted], such as "
            f"decoder/layer_2/cross:3:shifted, got {text!r}."
        )
    name, head, step = match.groups()
    return Reading(
        name=name,
        head=None if head in (None, "mean") else int(head),
        shifted=step is not None,
    )


def read_alignment(pair: AttendedPair, reading: Reading) -> Alignment:
    """The links of a sentence pair.

    Args:
        pair: Attention weights and the words of their tokens.
        reading: How to read them, such as `best_reading` chose.

    Returns:
        Links between words.

    Raises:
        ValueError: If the pair has no such weights or head, or they do not fit its
            tokens.
    """
    return _links(reading_weights(pair, reading), reading)


def reading_weights(pair: AttendedPair, reading: Reading) -> np.ndarray:
    """What the links of a sentence pair are read from.

    Args:
        pair: Attention weights and the words of their tokens.
        reading: How to read them.

    Returns:
        ``[target words, source words]``.

    Raises:
        ValueError: If the pair has no such weights or head, or they do not fit its
            tokens.
    """
    names = list(pair.attention)
    if reading.name not in names:
        raise ValueError(
            f"no attention weights are called {reading.name!r}; the model has "
            f"{', '.join(names)}."
        )
    num_heads = len(pair.attention[reading.name])
    if reading.head is not None and not 0 <= reading.head < num_heads:
        raise ValueError(
            f"{reading.name} has heads 0 to {num_heads - 1}, got head {reading.head}."
        )
    weights_hts = _head_weights(pair, reading.name, reading.shifted)
    return _of_head(weights_hts, reading.head)


def compare_readings(
    pairs: Sequence[AttendedPair],
    gold: Sequence[GoldAlignment],
    *,
    methods: Sequence[LinkMethod] = ("argmax",),
    allow_unaligned: bool = False,
) -> dict[Reading, AlignmentScores]:
    """Scores every way to read the attention of a model.

    In this order: the names in theirs; not shifted, then shifted; the mean of the
    heads, then each head (a single head is its own mean); the methods in theirs.

    Args:
        pairs: Sentence pairs, all with the same names and heads.
        gold: Their annotation, in the same order.
        methods: How to find links, see
            `attnjax.evaluation.attention_alignment.links`.
        allow_unaligned: Likewise.

    Returns:
        The scores of each reading.

    Raises:
        ValueError: If the pairs differ in names or heads, there are none, or their
            number is not that of the annotations.
    """
    scores = {}
    for name, num_heads in _heads_by_name(pairs).items():
        for is_shifted in (False, True):
            weights = [_head_weights(pair, name, is_shifted) for pair in pairs]
            heads = [None, *range(num_heads)] if num_heads > 1 else [None]
            for head in heads:
                for method in methods:
                    reading = Reading(
                        name=name,
                        head=head,
                        shifted=is_shifted,
                        method=method,
                        allow_unaligned=allow_unaligned,
                    )
                    found = [
                        _links(_of_head(weights_hts, head), reading)
                        for weights_hts in weights
                    ]
                    scores[reading] = alignment_scores(found, gold)
    return scores


def best_reading(
    pairs: Sequence[AttendedPair],
    gold: Sequence[GoldAlignment],
    *,
    methods: Sequence[LinkMethod] = ("argmax",),
    allow_unaligned: bool = False,
) -> tuple[Reading, AlignmentScores]:
    """The reading with the lowest alignment error rate.

    Args:
        pairs: Sentence pairs of a validation set, all with the same names and heads.
        gold: Their annotation, in the same order.
        methods: See `compare_readings`.
        allow_unaligned: Likewise.

    Returns:
        The reading, of equal ones the first in the order of `compare_readings`, and
        its scores on these pairs.

    Raises:
        ValueError: As `compare_readings` does, or if there are no weights or methods.
    """
    scores = compare_readings(
        pairs, gold, methods=methods, allow_unaligned=allow_unaligned
    )
    if not scores:
        raise ValueError(
            "there is nothing to choose from; pass at least one method, and pairs with "
            "attention weights."
        )
    best = min(scores, key=lambda reading: scores[reading].aer)
    return best, scores[best]


def _heads_by_name(pairs: Sequence[AttendedPair]) -> dict[str, int]:
    if not pairs:
        raise ValueError("there are no sentence pairs to read; pass at least one.")
    first, *others = (
        {name: len(weights) for name, weights in pair.attention.items()}
        for pair in pairs
    )
    for number, heads in enumerate(others, start=2):
        if heads != first:
            raise ValueError(
                "all sentence pairs must have the same attention weights; pair 1 has "
                f"the heads {first}, pair {number} has {heads}."
            )
    return first


def _head_weights(pair: AttendedPair, name: str, is_shifted: bool) -> np.ndarray:
    weights_hts = np.asarray(pair.attention[name])
    if is_shifted:
        weights_hts = shifted(weights_hts)
    return word_weights(weights_hts, pair.source_words, pair.target_words)


def _links(weights_ts: np.ndarray, reading: Reading) -> Alignment:
    return links(weights_ts, reading.method, allow_unaligned=reading.allow_unaligned)


def _of_head(weights_hts: np.ndarray, head: int | None) -> np.ndarray:
    return weights_hts.mean(axis=0) if head is None else weights_hts[head]
