"""Minimum Bayes risk: the candidate that agrees most with all the others."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Literal

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from attnjax.evaluation.bleu import bleu_tokenizer, make_bleu

_BLEU_ORDERS = 4
_BEST = 100.0  # of both utilities
_DECIMALS = 9  # what rounding leaves beyond these decides no tie


def minimum_bayes_risk(
    candidates: Sequence[str],
    weights: Sequence[float] | None = None,
    *,
    utility: Literal["bleu", "chrf"] = "chrf",
    target_language: str,
) -> int:
    """Chooses the candidate of highest expected utility under the candidates' weights.

    ``argmax_i sum_j w_j utility(candidate i; reference = candidate j)``, the Monte
    Carlo estimate of Eikema & Aziz 2020 where the candidates are unbiased
    samples of a model and the weights are equal. The candidate itself is among the
    references, as in the paper; with equal weights this changes no choice, with unequal
    ones a candidate that holds most of the weight is not chosen against. Equal texts
    agree fully, two empty ones too.

    Args:
        candidates: Translations of one sentence, as plain text, at least one; a text
            drawn several times stands there as often.
        weights: As many weights, 0 or more, not all 0; need not sum to 1. None for
            equal ones. A candidate of weight 0 can be chosen, but is no reference.
        utility: Sentence-level chrF2, or BLEU with exponential smoothing and effective
            order; both sacreBLEU's.
        target_language: Chooses the BLEU tokenizer.

    Returns:
        The index of the best candidate, of equally good ones the first.

    Raises:
        ValueError: If there is no candidate, or the weights do not fit.
    """
    masses = _masses(candidates, weights)
    texts = list(masses)
    expected = expected_utilities(
        texts, list(masses.values()), utility=utility, target_language=target_language
    )
    best = int(np.argmax(np.round(expected, _DECIMALS)))
    return list(candidates).index(texts[best])


def expected_utilities(
    texts: Sequence[str],
    weights: Sequence[float],
    *,
    utility: Literal["bleu", "chrf"] = "chrf",
    target_language: str,
) -> np.ndarray:
    """The weighted mean utility of each text against all texts as references.

    Args:
        texts: Different texts.
        weights: As many weights, 0 or more, not all 0.
        utility: See `minimum_bayes_risk`.
        target_language: Chooses the BLEU tokenizer.

    Returns:
        ``[len(texts)]`` float64, 0 to 100.
    """
    if utility == "bleu":
        tokenize = make_bleu(bleu_tokenizer(target_language)).tokenizer
        utilities = _sentence_bleu([tuple(tokenize(t.rstrip()).split()) for t in texts])
    else:
        utilities = _sentence_chrf(["".join(text.split()) for text in texts])
    np.fill_diagonal(utilities, _BEST)
    shares = np.asarray(weights, np.float64)
    return utilities @ (shares / shares.sum())


def _masses(
    candidates: Sequence[str], weights: Sequence[float] | None
) -> dict[str, float]:
    """The summed weight of each different text, in order of first appearance."""
    if isinstance(candidates, str) or not candidates:
        raise ValueError(
            f"candidates must be a list of at least one text, got {candidates!r}."
        )
    if weights is None:
        weights = [1.0] * len(candidates)
    if len(weights) != len(candidates):
        raise ValueError(
            f"each candidate needs one weight, got {len(candidates)} candidates and "
            f"{len(weights)} weights."
        )
    array = np.asarray(weights, np.float64)
    if not (np.isfinite(array).all() and (array >= 0).all() and array.sum() > 0):
        raise ValueError(
            f"weights must be finite, 0 or more and not all 0, got {list(weights)}; "
            "log-probabilities need exp first."
        )
    masses: dict[str, float] = {}
    for candidate, weight in zip(candidates, array, strict=True):
        masses[candidate] = masses.get(candidate, 0.0) + float(weight)
    return masses


def _overlaps(
    texts: Sequence[Sequence[str]], order: int
) -> tuple[np.ndarray, np.ndarray]:
    """N-grams that each two texts share, and that each has.

    The k-th occurrence of an n-gram is a feature of its own, so that the clipped count
    ``sum over n-grams of min(count i, count j)`` is a product of 0/1 matrices.

    Args:
        texts: Sequences of symbols that can be sliced into hashable n-grams.
        order: The n of the n-grams.

    Returns:
        ``[N, N]`` shared counts (the diagonal is left open) and ``[N]`` counts.
    """
    owners = collections.defaultdict(list)
    for row, text in enumerate(texts):
        seen: collections.Counter = collections.Counter()
        for start in range(len(text) - order + 1):
            ngram = text[start : start + order]
            seen[ngram] += 1
            owners[ngram, seen[ngram]].append(row)
    shared = [rows for rows in owners.values() if len(rows) > 1]
    present = np.zeros((len(texts), len(shared)), np.float32)
    for column, rows in enumerate(shared):
        present[rows, column] = 1
    counts = np.array([max(len(text) - order + 1, 0) for text in texts], np.float64)
    return (present @ present.T).astype(np.float64), counts


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """The quotient, 0 where the denominator is 0."""
    quotient = np.zeros(np.broadcast_shapes(numerator.shape, denominator.shape))
    return np.divide(numerator, denominator, out=quotient, where=denominator > 0)


def _sentence_chrf(texts: Sequence[str]) -> np.ndarray:
    """``[N, N]`` chrF2 of each text (row) against each other (column).

    The F-score of mean precision and mean recall over the orders that both texts reach
    (Popovic 2015, as sacreBLEU averages).
    """
    precision = recall = orders = np.zeros((len(texts), len(texts)))
    for order in range(1, CHRF.CHAR_ORDER + 1):
        shared, counts = _overlaps(texts, order)
        both = (counts[:, None] > 0) & (counts[None, :] > 0)
        precision = precision + both * _ratio(shared, counts[:, None])
        recall = recall + both * _ratio(shared, counts[None, :])
        orders = orders + both
    precision, recall = _ratio(precision, orders), _ratio(recall, orders)
    factor = CHRF.BETA**2
    return _BEST * _ratio(
        (1 + factor) * precision * recall, factor * precision + recall
    )


def _sentence_bleu(texts: Sequence[Sequence[str]]) -> np.ndarray:
    """``[N, N]`` sentence BLEU of each text (row) against each other (column).

    The geometric mean stops at the longest n-gram that the row has ("effective order");
    the k-th order without a match counts as ``1 / 2^k`` of one match ("exp" smoothing).
    """
    logarithms = misses = matches = np.zeros((len(texts), len(texts)))
    effective = np.zeros((len(texts), 1))
    for order in range(1, _BLEU_ORDERS + 1):
        shared, counts = _overlaps(texts, order)
        has = counts[:, None] > 0
        missed = has & (shared == 0)
        misses = misses + missed
        matches = matches + shared
        smoothed = np.where(missed, 0.5**misses, shared)
        precision = np.where(has, _ratio(smoothed, counts[:, None]), 1)
        logarithms = logarithms + np.log(precision)
        effective = effective + has
    lengths = np.array([len(text) for text in texts], np.float64)
    shortage = np.minimum(1 - _ratio(lengths[None, :], lengths[:, None]), 0)
    brevity = np.exp(shortage)
    score = _BEST * brevity * np.exp(_ratio(logarithms, effective))
    return np.where(matches > 0, score, 0)
