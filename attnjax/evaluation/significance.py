"""How sure a score and a difference of scores are, by sacreBLEU's own resampling."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, cast

from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from attnjax.evaluation.bleu import bleu_tokenizer, make_bleu
from attnjax.evaluation.lines import (
    References,
    check_lines,
    present_references,
    reference_sets,
)

_ALONE = "output"
_SEED_VARIABLE = "SACREBLEU_SEED"  # the only way to tell sacreBLEU a seed
_FEWEST_RESAMPLES = 40  # below, sacreBLEU's 95 % interval is the whole range
_BLEU, _CHRF = "BLEU", "chrF2"  # sacreBLEU's names of the results
_TESTS = {"bootstrap": "bs", "randomization": "ar"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreInterval:
    """A corpus score with its uncertainty from the choice of the test sentences.

    Attributes:
        score: Of the whole test set, 0 to 100.
        mean: Over the resampled test sets.
        half_width: Half of the width of the 95 % interval: ``mean ± half_width``.
        p_value: How likely a difference from the baseline this large is if both systems
            are equally good; None for the baseline, and without one.
        signature: How it was computed, with the number of resamples and the seed.
    """

    score: float
    mean: float
    half_width: float
    p_value: float | None = None
    signature: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SystemScores:
    """BLEU and chrF of one system.

    Attributes:
        bleu: By the tokenizer of the target language.
        chrf: chrF2 on characters.
    """

    bleu: ScoreInterval
    chrf: ScoreInterval


class PairedTestResult(NamedTuple):
    """How likely the difference of two systems is if both are equally good.

    Attributes:
        systems: Their names.
        bleu: The p-value of the difference in BLEU.
        chrf: The p-value of the difference in chrF.
    """

    systems: tuple[str, str]
    bleu: float | None
    chrf: float | None


def confidence_intervals(
    hypotheses: Sequence[str],
    references: References,
    *,
    target_language: str,
    num_resamples: int = 1000,
    seed: int = 12345,
) -> SystemScores:
    """BLEU and chrF with 95 % intervals, by bootstrap over the lines (Koehn 2004).

    Test sets of the same size are drawn from the lines with replacement; the interval
    leaves out the lowest and the highest fortieth of their scores. The same lines and
    seed give the same numbers. Memory: about 100 bytes per line and resample.

    Args:
        hypotheses: The output as plain text, one string per line.
        references: As many strings, or several such columns.
        target_language: Chooses the BLEU tokenizer.
        num_resamples: Test sets that are drawn, 40 or more.
        seed: Of the draws, 1 or more.

    Returns:
        Both scores; there is no p-value, as there is nothing to compare with.

    Raises:
        ValueError: If the counts of lines differ, there are none, or a number is out of
            its range.
    """
    _check_numbers(num_resamples=num_resamples, seed=seed)
    present = present_references(reference_sets(hypotheses, references))
    # Not through corpus_score, whose own mean fails where a resample scores exactly 0.
    with _sacrebleu_seed(seed):
        alone = PairedTest(
            [(_ALONE, list(hypotheses))],
            _metrics(target_language),
            present,
            test_type=_TESTS["bootstrap"],
            n_samples=num_resamples,
            n_jobs=1,
        )
    return _by_system(alone)[_ALONE]


def compare_systems(
    systems: Mapping[str, Sequence[str]],
    references: References,
    *,
    target_language: str,
    test: Literal["bootstrap", "randomization"] = "bootstrap",
    num_resamples: int = 1000,
    seed: int = 12345,
) -> dict[str, SystemScores]:
    """Compares systems with a baseline, line by line on the same test set.

    ``bootstrap`` is the paired bootstrap (Koehn 2004): how often the difference on
    resampled test sets, centred at 0, exceeds the observed one. ``randomization`` is
    approximate randomisation (Riezler & Maxwell 2005): how often it does after lines
    were swapped between both systems at random; the more exact test, and twice the
    work. A difference of exactly 0 has the p-value 1; sacreBLEU, which counts strictly
    larger differences only, would report ``1 / (num_resamples + 1)`` for a system
    against itself.

    Args:
        systems: The outputs by name, at least two; the first is the baseline.
        references: One string per line of each output, or several such columns.
        target_language: Chooses the BLEU tokenizer.
        test: Where the p-value comes from; the intervals are bootstrapped in both.
        num_resamples: Test sets, or random swaps, that are drawn, 40 or more.
        seed: Of the draws, 1 or more.

    Returns:
        Scores of each system in the given order, all but the first with p-values.

    Raises:
        ValueError: If counts of lines differ, there are none, there is one system only,
            or a number is out of its range.
    """
    _check_numbers(num_resamples=num_resamples, seed=seed)
    if len(systems) < 2:
        raise ValueError(
            f"a comparison needs at least two systems, got {list(systems)}; name a "
            "baseline and another."
        )
    check_lines(**{f"lines of {name}": lines for name, lines in systems.items()})
    first, *_ = systems.values()
    with _sacrebleu_seed(seed):
        paired = PairedTest(
            list(systems.items()),
            _metrics(target_language),
            present_references(reference_sets(first, references)),
            test_type=_TESTS[test],
            n_samples=num_resamples,
            n_ar_confidence=num_resamples if test == "randomization" else -1,
        )
    return _by_system(paired)


def compare_pairs(
    systems: Mapping[str, Sequence[str]],
    references: References,
    *,
    target_language: str,
    num_resamples: int = 1000,
    seed: int = 12345,
) -> tuple[dict[str, SystemScores], list[PairedTestResult]]:
    """Compares every system with every other one, by the paired bootstrap.

    The p-values are of each pair by itself: among many pairs some are small by chance.

    Args:
        systems: As of `compare_systems`.
        references: Likewise.
        target_language: Likewise.
        num_resamples: Likewise.
        seed: Likewise.

    Returns:
        The scores of `compare_systems`, and a result for each pair: the first system
        with all others, then the second one, and so on.

    Raises:
        ValueError: As `compare_systems` does.
    """
    names = list(systems)
    scores: dict[str, SystemScores] = {}
    results = []
    for number in range(max(len(names) - 1, 1)):
        baseline, *others = names[number:]
        found = compare_systems(
            {name: systems[name] for name in (baseline, *others)},
            references,
            target_language=target_language,
            num_resamples=num_resamples,
            seed=seed,
        )
        scores = scores or found
        for other in others:
            p_values = found[other].bleu.p_value, found[other].chrf.p_value
            results.append(PairedTestResult((baseline, other), *p_values))
    return scores, results


def _by_system(paired: PairedTest) -> dict[str, SystemScores]:
    """Runs the test; its table has a column of names and one for each metric."""
    signatures, columns = paired()
    compared = {}
    for number, name in enumerate(columns["System"]):
        intervals = {}
        for metric, signature in signatures.items():
            figures = cast(list[Result], columns[metric])
            intervals[metric] = _interval(figures, number, signature)
        compared[str(name)] = SystemScores(bleu=intervals[_BLEU], chrf=intervals[_CHRF])
    return compared


def _interval(
    figures: Sequence[Result], number: int, signature: Signature
) -> ScoreInterval:
    baseline, result = figures[0], figures[number]
    mean, half_width = cast(tuple[float, float], (result.mean, result.ci))
    p_value = result.p_value
    if p_value is not None and result.score == baseline.score:
        p_value = 1.0
    return ScoreInterval(
        score=min(result.score, 100.0),
        mean=min(float(mean), 100.0),
        half_width=float(half_width),
        p_value=p_value,
        signature=str(signature),
    )


def _metrics(target_language: str) -> dict[str, Metric]:
    return {_BLEU: make_bleu(bleu_tokenizer(target_language)), _CHRF: CHRF()}


def _check_numbers(*, num_resamples: int, seed: int) -> None:
    if num_resamples < _FEWEST_RESAMPLES:
        raise ValueError(
            f"num_resamples must be at least {_FEWEST_RESAMPLES}, so that a fortieth "
            f"of them can be left out on each side, got {num_resamples}; 1000 is usual."
        )
    if seed < 1:
        raise ValueError(
            f"seed must be 1 or more, got {seed}; sacreBLEU reads 0 as no seed."
        )


@contextlib.contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Sets sacreBLEU's seed, and puts back whatever the environment held."""
    before = os.environ.get(_SEED_VARIABLE)
    os.environ[_SEED_VARIABLE] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SEED_VARIABLE]
        else:
            os.environ[_SEED_VARIABLE] = before
