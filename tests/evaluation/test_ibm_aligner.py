"""The IBM model: against plain loops, on toy text, and at the edges."""

import math

import numpy as np
import pytest

from attnjax.evaluation.ibm_aligner import IBMConfig, train_ibm_aligner

SOURCES = [line.split() for line in ("das haus", "das buch", "ein buch", "", "ja ja")]
TARGETS = [line.split() for line in ("the house", "the book", "a book", "oh", "")]
MODEL_1 = {"tension": None, "dirichlet": 0.0}


def digamma(value, width=1e-4):
    """From the definition: how fast log gamma rises."""
    slope = math.lgamma(value * (1 + width)) - math.lgamma(value * (1 - width))
    return slope / (2 * width * value)


def prior(config, row, size_t, size_s):
    if config.tension is None:
        return [1 / (size_s + 1)] * (size_s + 1)
    weights = [
        math.exp(-config.tension * abs((column + 1) / size_s - (row + 1) / size_t))
        for column in range(size_s)
    ]
    real = 1 - config.null_probability
    return [config.null_probability, *(real * w / sum(weights) for w in weights)]


def train_by_loops(config):
    """Expectation maximisation with dictionaries; the empty word is None."""
    table = {}
    for source, target in zip(SOURCES, TARGETS, strict=True):
        table |= {(s, t): 1.0 for s in (None, *source) for t in target}
    for _ in range(config.iterations):
        counts = dict.fromkeys(table, config.dirichlet)
        for source, target in zip(SOURCES, TARGETS, strict=True):
            for row, t in enumerate(target):
                priors = prior(config, row, len(target), len(source))
                words = (None, *source)
                joint = [p * table[s, t] for p, s in zip(priors, words, strict=True)]
                for value, s in zip(joint, words, strict=True):
                    counts[s, t] += value / sum(joint)
        totals = {}
        for (s, _), count in counts.items():
            totals[s] = totals.get(s, 0.0) + count
        for (s, t), count in counts.items():
            if config.dirichlet:
                table[s, t] = math.exp(digamma(count) - digamma(totals[s]))
            else:
                table[s, t] = count / totals[s]
    return table


def learnt(aligner):
    ids, words = aligner.table.source_ids, list(aligner.table.target_ids)
    names = {index: word for word, index in ids.items()} | {0: None}
    return {
        (names[pair // (len(words) + 1)], words[pair % (len(words) + 1)]): probability
        for pair, probability in zip(*aligner.table[2:], strict=True)
    }


@pytest.mark.parametrize(
    "settings",
    [MODEL_1, {"tension": None}, {"dirichlet": 0.0}, {}, {"tension": 1.0}],
    ids=str,
)
def test_as_plain_loops_compute_it(settings):
    config = IBMConfig(iterations=3, **settings)
    found = learnt(train_ibm_aligner(SOURCES, TARGETS, config))
    expected = train_by_loops(config)
    assert set(found) == set(expected)
    for pair, probability in expected.items():
        assert found[pair] == pytest.approx(max(probability, 1e-9), rel=1e-4), pair


def test_maximum_likelihood_gives_distributions():
    totals = {}
    for (source, _), probability in learnt(
        train_ibm_aligner(SOURCES, TARGETS, IBMConfig(**MODEL_1))
    ).items():
        totals[source] = totals.get(source, 0.0) + probability
    assert list(totals.values()) == pytest.approx([1.0] * 5)


@pytest.mark.parametrize("settings", [MODEL_1, {}], ids=str)
def test_translations_are_told_apart_by_the_company_they_keep(settings):
    config = IBMConfig(iterations=20, **settings)
    aligner = train_ibm_aligner(SOURCES[:3], TARGETS[:3], config)
    assert (1, 1) in aligner.align(["das", "haus"], ["the", "house"])
    assert aligner.align(["buch", "ein"], ["a", "book"]) == {(1, 0), (0, 1)}


def test_words_never_seen_follow_the_diagonal():
    aligner = train_ibm_aligner(SOURCES, TARGETS)
    assert aligner.align(["x", "y", "z"], ["u", "v", "w"]) == {(0, 0), (1, 1), (2, 2)}
    assert aligner.align(["x"], ["u", "v"]) == {(0, 0), (0, 1)}


def test_words_never_seen_stay_unaligned_without_a_diagonal():
    aligner = train_ibm_aligner(SOURCES, TARGETS, IBMConfig(**MODEL_1))
    assert aligner.align(["x", "y", "z"], ["u", "v", "w"]) == frozenset()
    # ja, last of the sources, and oh, last of the targets, never met.
    assert aligner.align(["ja"], ["oh"]) == frozenset()
    assert aligner.align(["ja"], ["zzz"]) == frozenset()
    assert aligner.align(["haus", "das"], ["zzz", "house"]) == {(0, 1)}


def test_empty_sentences():
    aligner = train_ibm_aligner(SOURCES, TARGETS)
    assert aligner.align([], ["the", "house"]) == frozenset()
    assert aligner.align(["das"], []) == frozenset()
    assert aligner.align([], []) == frozenset()


def test_a_steep_diagonal_stays_finite():
    config = IBMConfig(tension=1e6)
    aligner = train_ibm_aligner([["a", "b", "c"]], [["x", "y"]], config)
    assert np.isfinite(aligner.table.probabilities).all()
    assert aligner.align(["a", "b", "c"], ["x", "y"]) == {(1, 0), (2, 1)}


def test_text_that_cannot_be_learnt_from_is_refused():
    with pytest.raises(ValueError, match="got 2 and 1"):
        train_ibm_aligner([["a"], ["b"]], [["x"]])
    with pytest.raises(ValueError, match="no word to learn from"):
        train_ibm_aligner([["a"]], [[]])


@pytest.mark.parametrize(
    "settings",
    [
        {"iterations": 0},
        {"tension": -1.0},
        {"null_probability": 0.0},
        {"null_probability": 1.0},
        {"dirichlet": -0.1},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        IBMConfig(**settings)
