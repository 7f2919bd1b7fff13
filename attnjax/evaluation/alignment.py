"""Alignment error rate, precision and recall of word alignments."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Sequence

from attnjax.types import Alignment


@dataclasses.dataclass(frozen=True)
class GoldAlignment:
    """What annotators say about one sentence pair.

    Attributes:
        sure: Links that a good alignment has.
        possible: Links that it may have; includes the sure ones.
    """

    sure: Alignment
    possible: Alignment

    def __post_init__(self) -> None:
        missing = self.sure - self.possible
        if missing:
            raise ValueError(
                "the possible links must include all sure links, but lack "
                f"{min(missing)}; pass sure | possible."
            )

    @classmethod
    def all_sure(cls, alignment: Alignment) -> GoldAlignment:
        """The gold of an annotation that tells no sure from possible links."""
        return cls(alignment, alignment)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlignmentScores:
    """How well predicted links agree with annotated ones, over a corpus.

    Attributes:
        aer: Alignment error rate, 0 (best) to 1.
        precision: Share of predicted links that are possible.
        recall: Share of sure links that were predicted.
        f1: Harmonic mean of precision and recall.
        num_predicted: Predicted links.
        num_sure: Annotated sure links.
        num_possible: Annotated possible links, the sure ones included.
    """

    aer: float
    precision: float
    recall: float
    f1: float
    num_predicted: int
    num_sure: int
    num_possible: int


def alignment_scores(
    predicted: Sequence[Alignment], gold: Sequence[GoldAlignment]
) -> AlignmentScores:
    """Scores the links ``A`` against the sure links ``S`` and possible links ``P``.

    ``AER = 1 - (|A & S| + |A & P|) / (|A| + |S|)``, ``precision = |A & P| / |A|`` and
    ``recall = |A & S| / |S|`` (Och and Ney 2003, section 5.1), each count summed over
    the corpus before dividing. Where all links are sure, AER is 1 - F1.

    A ratio of nothing to nothing counts as faultless: without any prediction the
    precision is 1, without any sure link the recall is 1, and without either the AER
    is 0. F1 is 0 where precision and recall are.

    Args:
        predicted: The links of each sentence pair.
        gold: The annotation of the same pairs, in the same order.

    Returns:
        The scores.

    Raises:
        ValueError: If the counts of sentence pairs differ, or there are none.

    Example:
        >>> sure = frozenset({(0, 0), (1, 2)})
        >>> gold = GoldAlignment(sure, sure | {(1, 1)})
        >>> scores = alignment_scores([frozenset({(0, 0), (1, 1), (2, 2)})], [gold])
        >>> round(scores.aer, 3), round(scores.precision, 3), scores.recall
        (0.4, 0.667, 0.5)
    """
    if len(predicted) != len(gold):
        raise ValueError(
            f"each sentence pair needs a predicted and a gold alignment, got "
            f"{len(predicted)} predicted and {len(gold)} gold ones; align the same "
            "sentences in the same order."
        )
    if not gold:
        raise ValueError("there are no alignments to score; pass at least one.")
    pairs = list(zip(predicted, gold, strict=True))
    num_predicted = sum(len(links) for links in predicted)
    num_sure = sum(len(truth.sure) for truth in gold)
    sure_hits = sum(len(links & truth.sure) for links, truth in pairs)
    possible_hits = sum(len(links & truth.possible) for links, truth in pairs)
    precision = _share(possible_hits, num_predicted)
    recall = _share(sure_hits, num_sure)
    total = precision + recall
    return AlignmentScores(
        aer=1.0 - _share(sure_hits + possible_hits, num_predicted + num_sure),
        precision=precision,
        recall=recall,
        f1=2.0 * precision * recall / total if total else 0.0,
        num_predicted=num_predicted,
        num_sure=num_sure,
        num_possible=sum(len(truth.possible) for truth in gold),
    )


def gold_of_items(
    items: Alignment, num_source_words: int, num_target_words: int
) -> GoldAlignment:
    """What is known of the words where the translation of whole items is known.

    Every word of an item is linked with every word of its translation. Within an item
    of several words any of these links may be right, so they are possible; an item of
    one word on both sides is sure. Words of no item ("and") may be linked with each
    other only.

    Args:
        items: Links of all words of each item with all of its translation.
        num_source_words: Of the sentence.
        num_target_words: Of its translation.

    Returns:
        Sure and possible links.
    """
    of_source = collections.Counter(source for source, _ in items)
    of_target = collections.Counter(target for _, target in items)
    sure = frozenset(
        (source, target)
        for source, target in items
        if of_source[source] == of_target[target] == 1
    )
    free_sources = [s for s in range(num_source_words) if s not in of_source]
    free_targets = [t for t in range(num_target_words) if t not in of_target]
    free = frozenset(itertools.product(free_sources, free_targets))
    return GoldAlignment(sure, items | free)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
