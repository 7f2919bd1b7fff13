"""Intervals and p-values: sacreBLEU's numbers by loops of our own, seeds, refusals."""

import os

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from attnjax.evaluation.bleu import corpus_scores
from attnjax.evaluation.significance import compare_systems, confidence_intervals

WORDS = (
    "the a small red dog cat house river runs sees likes very not under over".split()
)
DRAWS = {"num_resamples": 60, "seed": 7}


def noisy(lines, rate, seed):
    rng = np.random.default_rng(seed)
    return [
        " ".join(
            rng.choice(WORDS) if rng.random() < rate else word for word in line.split()
        )
        for line in lines
    ]


REFERENCES = noisy([" ".join("x" * 9)] * 23, 1.0, 1)
GOOD, BAD = noisy(REFERENCES, 0.2, 2), noisy(REFERENCES, 0.6, 3)
OTHER = noisy(REFERENCES, 0.2, 4)


def resampled_scores(metric, lines, resamples):
    """The score of each resampled test set, scored from its text."""
    return np.array(
        [
            metric.corpus_score(
                [lines[row] for row in rows], [[REFERENCES[row] for row in rows]]
            ).score
            for rows in resamples
        ]
    )


@pytest.fixture(scope="module")
def resamples():
    rng = np.random.default_rng(DRAWS["seed"])
    return rng.choice(len(REFERENCES), size=(60, len(REFERENCES)), replace=True)


@pytest.mark.parametrize(("name", "metric"), [("bleu", BLEU()), ("chrf", CHRF())])
def test_intervals_are_those_of_a_loop_over_resampled_texts(resamples, name, metric):
    intervals = confidence_intervals(GOOD, REFERENCES, target_language="en", **DRAWS)
    interval = getattr(intervals, name)
    scores = np.sort(resampled_scores(metric, GOOD, resamples))
    assert interval.mean == pytest.approx(scores.mean(), abs=1e-4)
    assert interval.half_width == pytest.approx((scores[-2] - scores[1]) / 2, abs=1e-4)
    whole = corpus_scores(GOOD, REFERENCES, target_language="en")
    assert interval.score == getattr(whole, name)
    assert interval.p_value is None
    assert "bs:60|seed:7" in interval.signature
    assert type(interval.mean) is type(interval.half_width) is float


@pytest.mark.parametrize(("name", "metric"), [("bleu", BLEU()), ("chrf", CHRF())])
def test_p_values_are_those_of_a_loop_over_resampled_texts(resamples, name, metric):
    compared = compare_systems(
        {"good": GOOD, "other": OTHER}, REFERENCES, target_language="en", **DRAWS
    )
    baseline, other = (getattr(scores, name) for scores in compared.values())
    differences = np.abs(
        resampled_scores(metric, OTHER, resamples)
        - resampled_scores(metric, GOOD, resamples)
    )
    observed = abs(other.score - baseline.score)
    larger = (differences - differences.mean() > observed).sum()
    assert 0 < larger < 60
    assert other.p_value == pytest.approx((larger + 1) / 61)
    alone = confidence_intervals(OTHER, REFERENCES, target_language="en", **DRAWS)
    assert other.mean == pytest.approx(getattr(alone, name).mean, abs=1e-4)
    assert other.half_width == pytest.approx(getattr(alone, name).half_width, abs=1e-4)
    assert other.score == getattr(alone, name).score


def test_randomization_swaps_lines():
    compared = compare_systems(
        {"good": GOOD, "other": OTHER},
        REFERENCES,
        target_language="en",
        test="randomization",
        **DRAWS,
    )
    rng = np.random.default_rng(DRAWS["seed"])
    swaps = rng.integers(2, size=(60, len(REFERENCES)), dtype=bool)

    def score(lines):
        return BLEU().corpus_score(lines, [REFERENCES]).score

    larger = 0
    for swap in swaps:
        pairs = [
            pair if kept else pair[::-1]
            for kept, *pair in zip(swap, GOOD, OTHER, strict=True)
        ]
        first, second = (score(lines) for lines in zip(*pairs, strict=True))
        larger += abs(first - second) > abs(score(GOOD) - score(OTHER))
    assert compared["other"].bleu.p_value == pytest.approx((larger + 1) / 61)
    assert compared["good"].bleu.half_width > 0
    assert "ar:60" in compared["other"].bleu.signature


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
def test_a_system_against_itself_and_against_a_worse_one(test):
    compared = compare_systems(
        {"good": GOOD, "again": list(GOOD), "bad": BAD},
        REFERENCES,
        target_language="en",
        test=test,
        num_resamples=200,
    )
    assert list(compared) == ["good", "again", "bad"]
    for name in ("bleu", "chrf"):
        good, again, bad = (getattr(scores, name) for scores in compared.values())
        assert good.p_value is None
        assert again.p_value == 1.0
        assert again.score == good.score
        assert bad.p_value < 0.05
        assert bad.score + bad.half_width < good.score - good.half_width
        assert "seed:12345" in bad.signature


def test_the_same_seed_gives_the_same_numbers_and_another_gives_others():
    def run(**settings):
        settings = DRAWS | settings
        one = confidence_intervals(GOOD, REFERENCES, target_language="en", **settings)
        two = compare_systems(
            {"good": GOOD, "other": OTHER},
            REFERENCES,
            target_language="en",
            **settings,
        )
        return one, two

    assert run() == run()
    (one, two), (other_one, other_two) = run(), run(seed=8)
    assert one.bleu.mean != other_one.bleu.mean
    assert two["other"].bleu.mean != other_two["other"].bleu.mean


@pytest.mark.parametrize("before", [None, "none", "99"])
def test_the_environment_neither_matters_nor_changes(monkeypatch, before):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    expected = confidence_intervals(GOOD, REFERENCES, target_language="en", **DRAWS)
    systems = {"good": GOOD, "other": OTHER}
    compared = compare_systems(systems, REFERENCES, target_language="en", **DRAWS)
    if before is not None:
        monkeypatch.setenv("SACREBLEU_SEED", before)
    assert expected == confidence_intervals(
        GOOD, REFERENCES, target_language="en", **DRAWS
    )
    assert compared == compare_systems(
        systems, REFERENCES, target_language="en", **DRAWS
    )
    assert os.environ.get("SACREBLEU_SEED") == before


def test_several_references():
    sets = [REFERENCES, BAD]
    intervals = confidence_intervals(BAD, sets, target_language="en", **DRAWS)
    assert (intervals.bleu.score, intervals.bleu.half_width) == (100.0, 0.0)
    compared = compare_systems(
        {"good": GOOD, "bad": BAD}, sets, target_language="en", **DRAWS
    )
    assert compared["bad"].chrf.score == 100.0
    assert "nrefs:2" in compared["bad"].chrf.signature


def test_the_target_language_chooses_the_tokenizer():
    hypotheses, references = ["我们今天去学校学习新的"], ["我们今天去学校学习旧的"]
    one = confidence_intervals(hypotheses, references, target_language="zh", **DRAWS)
    assert one.bleu.score > 70
    assert "tok:zh" in one.bleu.signature


@pytest.mark.parametrize(
    ("systems", "settings", "named"),
    [
        ({"a": GOOD}, {}, "at least two systems"),
        ({}, {}, "at least two systems"),
        ({"a": GOOD, "b": GOOD[1:]}, {}, "23 lines of a, 22 lines of b"),
        ({"a": GOOD[1:], "b": GOOD[1:]}, {}, "22 hypotheses, 23 references"),
        ({"a": GOOD, "b": [None] * 23}, {}, "lines of b must be"),
        ({"a": GOOD, "b": BAD}, {"num_resamples": 39}, "at least 40"),
        ({"a": GOOD, "b": BAD}, {"seed": 0}, "seed must be 1 or more"),
    ],
)
def test_comparisons_without_meaning_are_refused(systems, settings, named):
    with pytest.raises(ValueError, match=named):
        compare_systems(systems, REFERENCES, target_language="en", **settings)


@pytest.mark.parametrize(
    ("references", "settings", "named"),
    [
        (REFERENCES[1:], {}, "23 hypotheses, 22 references"),
        (REFERENCES, {"num_resamples": 1}, "at least 40"),
        (REFERENCES, {"seed": 0}, "seed must be 1 or more"),
    ],
)
def test_intervals_without_meaning_are_refused(references, settings, named):
    with pytest.raises(ValueError, match=named):
        confidence_intervals(GOOD, references, target_language="en", **settings)


def test_a_resample_without_any_match_does_no_harm():
    # One line in nine matches, so that some resamples score exactly 0 and others not.
    found = confidence_intervals(
        ["a b c d"] * 8 + ["x y z w"], ["x y z w"] * 9, target_language="en"
    )
    assert 0 < found.bleu.score < 100
    assert found.bleu.half_width > 0
