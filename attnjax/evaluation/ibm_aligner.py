"""IBM Model 1, with or without a diagonal prior: the baseline of alignment tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attnjax.types import Alignment

Words = Sequence[str]

_LEAST_PROBABILITY = 1e-9  # of a translation; also that of words that never met
_NULL = 0  # the id of the empty word, to which words without a partner belong


@dataclasses.dataclass(frozen=True, kw_only=True)
class IBMConfig:
    """How the aligner is trained; the defaults are those of Dyer et al. 2013.

    Attributes:
        iterations: Rounds of expectation maximisation.
        tension: Lambda of the diagonal prior; None is the flat prior of Model 1, under
            which the empty word is as likely as each source word.
        null_probability: p0, the prior of the empty word beside a diagonal prior.
        dirichlet: Alpha of the symmetric Dirichlet prior over the translations of a
            source word (variational Bayes); 0 is maximum likelihood.
    """

    iterations: int = 5
    tension: float | None = 4.0
    null_probability: float = 0.08
    dirichlet: float = 0.01

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ValueError(f"iterations must be 1 or more, got {self.iterations}.")
        if self.tension is not None and self.tension < 0:
            raise ValueError(f"tension must be 0 or more, got {self.tension}.")
        if not 0 < self.null_probability < 1:
            raise ValueError(
                "null_probability must lie between 0 and 1, got "
                f"{self.null_probability}."
            )
        if self.dirichlet < 0:
            raise ValueError(f"dirichlet must be 0 or more, got {self.dirichlet}.")


class TranslationTable(NamedTuple):
    """What was learnt: how probable a target word is, given a source word.

    Attributes:
        source_ids: ids of the source words, from 1; 0 is the empty word.
        target_ids: ids of the target words, from 0.
        pairs: ``[P]`` int, rising: ``source id * (target words + 1) + target id`` of
            the pairs that met in a sentence pair.
        probabilities: ``[P]`` float64, of each pair.
    """

    source_ids: dict[str, int]
    target_ids: dict[str, int]
    pairs: np.ndarray
    probabilities: np.ndarray


class IBMAligner:
    r"""A trained aligner: each target word comes from one source word, or from none.

    $p(t_j, a_j = i \mid s) = p(a_j = i \mid j, m, n)\, p(t_j \mid s_i)$ for the m words
    of the target and the n words of the source. The first factor is the prior,
    $\propto \exp(-\lambda\,|i/n - j/m|)$ or flat, the second a table.

    Source: Brown et al. 1993, section 4.1; Dyer et al. 2013, eq. 1 and 2.
    """

    def __init__(self, table: TranslationTable, config: IBMConfig) -> None:
        """Joins a table and a prior.

        Args:
            table: What `train_ibm_aligner` learnt.
            config: Gives the prior.
        """
        self.table = table
        self.config = config

    def align(self, source: Words, target: Words) -> Alignment:
        """The most probable link of each target word.

        Args:
            source: Words of a sentence, seen in training or not.
            target: Words of its translation.

        Returns:
            Links; a target word that most probably comes from the empty word has none.
        """
        pairs, probabilities = self.table.pairs, self.table.probabilities
        keys_ts = _keys(self.table, source, target)
        places_ts = np.searchsorted(pairs, keys_ts).clip(max=len(pairs) - 1)
        known_ts = pairs[places_ts] == keys_ts
        table_ts = np.where(known_ts, probabilities[places_ts], _LEAST_PROBABILITY)
        scores_ts = table_ts * _prior(len(source), len(target), self.config)
        return frozenset(
            (int(column) - 1, row)
            for row, column in enumerate(scores_ts.argmax(axis=1))
            if column != _NULL
        )


def train_ibm_aligner(
    sources: Sequence[Words],
    targets: Sequence[Words],
    config: IBMConfig | None = None,
) -> IBMAligner:
    """Learns translations of words from sentence pairs, without any annotation.

    As is usual, the sentences to be aligned may be among those of the training. A
    million target words in sentences of 20 source words take some 15 seconds and
    1.5 GB.

    Args:
        sources: The words of each source sentence.
        targets: The words of each target sentence, in the same order.
        config: Prior and iterations; None for the defaults.

    Returns:
        The aligner. It links each target word to one source word at most; for the other
        direction train another one with the sides exchanged.

    Raises:
        ValueError: If the counts of sentences differ, or the targets have no word.
    """
    config = config or IBMConfig()
    if len(sources) != len(targets):
        raise ValueError(
            f"sources and targets must be equally many sentences, got {len(sources)} "
            f"and {len(targets)}; sentence i of one must translate that of the other."
        )
    if not any(targets):
        raise ValueError("the target sentences have no word to learn from.")
    meetings, table = _meet(sources, targets, config)
    source_of_pair = table.pairs // (len(table.target_ids) + 1)
    probabilities = np.ones(len(table.pairs))
    for _ in range(config.iterations):
        counts = _expected_counts(meetings, probabilities)
        probabilities = _normalised(counts, source_of_pair, config.dirichlet)
    probabilities = np.maximum(probabilities, _LEAST_PROBABILITY)
    return IBMAligner(table._replace(probabilities=probabilities), config)


class _Meetings(NamedTuple):
    """Every target word of the corpus with every source word of its sentence, or none.

    The M meetings of one target word follow each other.
    """

    pair: np.ndarray  # [M], which of the P pairs of words met
    prior: np.ndarray  # [M]
    starts: np.ndarray  # of the meetings of each target word
    sizes: np.ndarray  # number of meetings of each target word


def _meet(
    sources: Sequence[Words], targets: Sequence[Words], config: IBMConfig
) -> tuple[_Meetings, TranslationTable]:
    table = TranslationTable(
        {word: index for index, word in enumerate(_distinct(sources), start=1)},
        {word: index for index, word in enumerate(_distinct(targets))},
        np.empty(0, np.int64),
        np.empty(0),
    )
    both = list(zip(sources, targets, strict=True))
    keys = [_keys(table, *pair).ravel() for pair in both]
    priors = [
        _prior(len(source), len(target), config).ravel() for source, target in both
    ]
    sizes = np.repeat([1 + len(words) for words in sources], [*map(len, targets)])
    pairs, pair = np.unique(np.concatenate(keys), return_inverse=True)
    starts = np.cumsum(sizes) - sizes
    meetings = _Meetings(pair, np.concatenate(priors), starts, sizes)
    return meetings, table._replace(pairs=pairs)


def _distinct(sentences: Sequence[Words]) -> list[str]:
    return list(dict.fromkeys(word for sentence in sentences for word in sentence))


def _keys(table: TranslationTable, source: Words, target: Words) -> np.ndarray:
    """``[T, 1 + S]``, the empty word first; a word not in the table is in no pair."""
    unknown_source, unknown_target = len(table.source_ids) + 1, len(table.target_ids)
    sources = [_NULL, *(table.source_ids.get(word, unknown_source) for word in source)]
    targets = [table.target_ids.get(word, unknown_target) for word in target]
    rows = np.array(sources, np.int64) * (unknown_target + 1)
    return np.add.outer(np.array(targets, np.int64), rows)


def _prior(num_sources: int, num_targets: int, config: IBMConfig) -> np.ndarray:
    """``[T, 1 + S]``: of the empty word, and of each source word."""
    if config.tension is None:
        return np.full((num_targets, 1 + num_sources), 1 / (1 + num_sources))
    prior_ts = np.full((num_targets, 1 + num_sources), config.null_probability)
    if not num_sources:
        return prior_ts
    places_t = np.arange(1, num_targets + 1) / max(num_targets, 1)
    places_s = np.arange(1, num_sources + 1) / num_sources
    logits_ts = -config.tension * np.abs(np.subtract.outer(places_t, places_s))
    weights_ts = np.exp(logits_ts - logits_ts.max(axis=1, keepdims=True))
    weights_ts *= (1 - config.null_probability) / weights_ts.sum(axis=1, keepdims=True)
    prior_ts[:, 1:] = weights_ts
    return prior_ts


def _expected_counts(meetings: _Meetings, probabilities: np.ndarray) -> np.ndarray:
    """How often each pair of words is linked, in expectation."""
    joint = probabilities[meetings.pair] * meetings.prior
    totals = np.add.reduceat(joint, meetings.starts)
    joint /= np.repeat(totals, meetings.sizes)
    return np.bincount(meetings.pair, weights=joint, minlength=len(probabilities))


def _normalised(
    counts: np.ndarray, source_of_pair: np.ndarray, dirichlet: float
) -> np.ndarray:
    smoothed = counts + dirichlet
    totals = np.bincount(source_of_pair, weights=smoothed)[source_of_pair]
    if dirichlet == 0:
        return smoothed / totals
    return np.exp(_digamma(smoothed) - _digamma(totals))


def _digamma(values: np.ndarray) -> np.ndarray:
    """The derivative of log gamma, to about 1e-9 for values above 0."""
    shift = np.zeros_like(values)
    for step in range(8):  # the series below wants large values
        shift -= 1 / (values + step)
    large = values + 8
    inverse = 1 / large**2
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse / 252))
    return np.log(large) - 0.5 / large - series + shift
