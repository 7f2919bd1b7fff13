"""Scores outputs against references, and says whether their difference is chance."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from babel import Locale

from attnjax import config_json
from attnjax.config import DecodingConfig
from attnjax.data.corpus import load_corpora
from attnjax.data.lines import read_lines
from attnjax.evaluation.bleu import corpus_scores, tokenizer_note
from attnjax.evaluation.lines import lines_fingerprint
from attnjax.evaluation.panel import bleu_panel
from attnjax.evaluation.significance import compare_pairs, confidence_intervals
from attnjax.runs.evaluated import (
    Evaluation,
    Fingerprints,
    read_evaluation,
    search_settings,
)
from attnjax.words import base_language

# What a report tells of how its scores came about.
_DETAILS = ("members", "parameters", "tokens_per_second", "decoding")
_BY_LENGTH = ("source_words_cut_by", "bleu_by_source_words")


def scores_of(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    target_language: str,
    resamples: int = 1_000,
) -> dict[str, Any]:
    """All scores of one output: BLEU, chrF, TER, the panel of BLEUs, and intervals.

    Args:
        hypotheses: detokenised lines.
        references: one or several sets of as many lines.
        target_language: chooses the tokenizer of the headline BLEU.
        resamples: of the bootstrap; 0 leaves the intervals out.

    Returns:
        JSON values.

    Raises:
        ValueError: numbers of lines differ.
    """
    scores = corpus_scores(
        hypotheses, references, target_language=target_language, with_ter=True
    )
    panel = bleu_panel(hypotheses, references, target_language=target_language)
    report = dataclasses.asdict(scores)
    note = tokenizer_note(target_language)
    report["notes"] = [] if note is None else [note]
    report["panel"] = [dataclasses.asdict(score) for score in panel]
    if resamples:
        intervals = confidence_intervals(
            *(hypotheses, references),
            target_language=target_language,
            num_resamples=resamples,
        )
        report["intervals"] = dataclasses.asdict(intervals)
    return report


def compare(
    systems: Sequence[Path],
    references: Sequence[Path] = (),
    *,
    target_language: str | None = None,
    split: str = "test",
    resamples: int = 1_000,
) -> dict[str, Any]:
    """Compares the outputs of two or more systems, line by line on one test set.

    Args:
        systems: files of translations, run folders that were evaluated, or reports of
            evaluations in one; the first is what the others are compared with. A single
            one is only scored.
        references: files of as many lines; none means those of the first run folder.
        target_language: chooses the BLEU tokenizer; None means that of the first run
            folder, or of the ending of a file such as ``output.ja``.
        split: of run folders.
        resamples: of the paired bootstrap.

    Returns:
        As JSON values: per system BLEU and chrF with 95 % intervals, the p-value of its
        difference from the first, and what its evaluation says (``details``); the
        p-values of all pairs; the mean and spread of runs that differ in their seed
        alone; and notes on what could not be checked.

    Raises:
        ValueError: numbers of lines differ, evaluations are of different test sets, or
            there are no references.
        OSError: a file is missing.
    """
    evaluations = [read_evaluation(path, split) for path in systems]
    outputs = {each.name: each.lines for each in evaluations}
    if len(outputs) < len(systems):
        raise ValueError("the same output is named twice; name different ones.")
    columns = _references(evaluations, references, split)
    _require_one_test_set(evaluations, columns)
    language = target_language or _language(evaluations, references)
    score = _one if len(outputs) == 1 else _several
    report, notes = score(evaluations, columns, language or "", resamples)
    for each in evaluations:
        report["systems"][each.name]["details"] = _details(each)
    notes += _notes(evaluations, language)
    return {"target_language": language, **report, "notes": notes}


def _one(
    evaluations: Sequence[Evaluation],
    columns: Sequence[Sequence[str]],
    language: str,
    resamples: int,
) -> tuple[dict[str, Any], list[str]]:
    (one,) = evaluations
    scores = scores_of(
        one.lines, columns, target_language=language, resamples=resamples
    )
    notes = scores.pop("notes")
    return {"systems": {one.name: scores}}, notes


def _several(
    evaluations: Sequence[Evaluation],
    columns: Sequence[Sequence[str]],
    language: str,
    resamples: int,
) -> tuple[dict[str, Any], list[str]]:
    compared, pairs = compare_pairs(
        {each.name: each.lines for each in evaluations},
        columns,
        target_language=language,
        num_resamples=resamples,
    )
    systems = {name: dataclasses.asdict(each) for name, each in compared.items()}
    note = tokenizer_note(language)
    return {
        "systems": systems,
        "p_values": [pair._asdict() for pair in pairs],
        "seeds": _seeds(evaluations, systems),
    }, [] if note is None else [note]


def _references(
    evaluations: Sequence[Evaluation], references: Sequence[Path], split: str
) -> list[list[str]]:
    if references:
        return [read_lines(path) for path in references]
    for each in evaluations:
        if each.experiment is not None:
            name = str(each.report.get("split", split))
            corpora = load_corpora(each.experiment.data)
            return [list(corpora["valid" if name == "valid" else "test"].target)]
    raise ValueError(
        "files need references to be compared with; add --references FILE."
    )


def _require_one_test_set(
    evaluations: Sequence[Evaluation], columns: Sequence[Sequence[str]]
) -> None:
    known = [(each, each.test_set) for each in evaluations if each.test_set is not None]
    for each, test_set in known[1:]:
        first, expected = known[0]
        if test_set != expected:
            raise ValueError(
                f"{first.name} and {each.name} were scored on different test sets "
                f"({_differing(expected, test_set)}), so their scores cannot be "
                "compared; name evaluations of one test set."
            )
    given = [lines_fingerprint(column) for column in columns]
    for each, test_set in known:
        if test_set is not None and test_set.references not in given:
            raise ValueError(
                f"{each.name} was scored on other references than these (fingerprint "
                f"{test_set.references}, these have {', '.join(given)}); name those by "
                "--references, or the file of its translations to score it on others."
            )


def _differing(one: Fingerprints | None, other: Fingerprints | None) -> str:
    pairs = zip(Fingerprints._fields, one or (), other or (), strict=True)
    return ", ".join(f"{name} {a} and {b}" for name, a, b in pairs if a != b)


def _language(
    evaluations: Sequence[Evaluation], references: Sequence[Path]
) -> str | None:
    """Of the first run folder, else of the ending of a file; None if none is known."""
    for each in evaluations:
        if each.experiment is not None:
            return each.experiment.data.target_language
    names = Locale("en").languages
    for file in (*(Path(each.name) for each in evaluations), *references):
        for ending in reversed(file.suffixes):
            if base_language(ending[1:]) in names:
                return ending[1:]
    return None


def _notes(evaluations: Sequence[Evaluation], language: str | None) -> list[str]:
    notes = []
    if language is None:
        notes.append(
            "the language of the outputs is not known, so BLEU uses the tokenizer 13a; "
            "name it by --language"
        )
    folders = [each for each in evaluations if each.experiment is not None]
    for each in folders:
        if each.test_set is None:
            notes.append(
                f"the evaluation of {each.name} does not say which test set it is of, "
                "so this could not be checked; evaluate again"
            )
    notes += [
        f"{each.name} does not say which test set it is of; its lines were taken for "
        "translations of the same one"
        for each in evaluations
        if each.experiment is None and folders
    ]
    return notes


def _details(evaluation: Evaluation) -> dict[str, Any]:
    names = (*_DETAILS, *_BY_LENGTH)
    report = evaluation.report
    return {name: report[name] for name in names if name in report}


def _seeds(
    evaluations: Sequence[Evaluation], scores: dict[str, Any]
) -> list[dict[str, Any]]:
    """Runs of one config under several seeds: mean and spread of their scores.

    Ensembles have no seed; of several evaluations of a run the first counts.
    """
    groups: dict[str, dict[int, str]] = {}
    for each in evaluations:
        members = each.report.get("members", ())
        if each.experiment is None or len(members) > 1:
            continue
        alike = dataclasses.replace(
            each.experiment,
            seed=0,
            workdir=Path("."),
            decoding=DecodingConfig(),
        )
        averages = [member["average"] for member in members]
        key = config_json.to_json(alike), averages, search_settings(each.report)
        groups.setdefault(repr(key), {}).setdefault(each.experiment.seed, each.name)
    found = []
    for group in groups.values():
        if len(group) < 2:
            continue
        entry: dict[str, Any] = {"systems": [*group.values()], "seeds": [*group]}
        for metric in ("bleu", "chrf"):
            values = [scores[name][metric]["score"] for name in group.values()]
            entry[metric] = {
                "mean": statistics.fmean(values),
                "standard_deviation": statistics.stdev(values),
                "least": min(values),
                "greatest": max(values),
            }
        found.append(entry)
    return found
