"""Scores outputs against references, and says whether their difference is chance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnjax.data.corpus import load_corpora
from attnjax.data.text_files import read_lines
from attnjax.evaluation.bleu import corpus_scores, tokenizer_note
from attnjax.evaluation.panel import bleu_panel
from attnjax.evaluation.significance import compare_systems, confidence_intervals
from attnjax.experiment import RunFolder, read_config


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
        systems: files of translations, or run folders that were evaluated; the first
            is what the others are compared with. A single one is only scored.
        references: files of as many lines; none means those of the first run folder.
        target_language: chooses the BLEU tokenizer; None means that of the first run
            folder, or 13a.
        split: of run folders.
        resamples: of the paired bootstrap.

    Returns:
        Per system BLEU and chrF with 95 % intervals and the p-value of its difference
        from the first, as JSON values.

    Raises:
        ValueError: numbers of lines differ, or there are no references.
        OSError: a file is missing.
    """
    folders = [RunFolder(path) for path in systems if path.is_dir()]
    experiment = read_config(folders[0]) if folders else None
    if target_language is None:
        target_language = "" if experiment is None else experiment.data.target_language
    outputs = {str(path): read_lines(_output_file(path, split)) for path in systems}
    if len(outputs) < len(systems):
        raise ValueError("the same output is named twice; name different ones.")
    if references:
        columns = [read_lines(path) for path in references]
    elif folders:
        columns = [_reference_of(folders[0], split)]
    else:
        raise ValueError(
            "files need references to be compared with; add --references FILE."
        )
    if len(outputs) == 1:
        ((name, lines),) = outputs.items()
        scores = scores_of(
            lines, columns, target_language=target_language, resamples=resamples
        )
        return {"systems": {name: scores}}
    compared = compare_systems(
        outputs, columns, target_language=target_language, num_resamples=resamples
    )
    return {
        "systems": {name: dataclasses.asdict(each) for name, each in compared.items()}
    }


def table(report: Mapping[str, Any]) -> str:
    """The report of `compare` as lines for a reader."""
    lines = []
    for name, scores in report["systems"].items():
        if "panel" in scores:
            lines += _single(name, scores)
            continue
        for metric in ("bleu", "chrf"):
            interval = scores[metric]
            p_value = interval["p_value"]
            against = "" if p_value is None else f"  p = {p_value:.4f}"
            spread = f"{interval['mean']:.2f} +- {interval['half_width']:.2f}"
            score = f"{interval['score']:.2f} (95 % interval {spread})"
            lines.append(f"{name}  {metric} {score}{against}")
    return "\n".join(lines)


def _single(name: str, scores: Mapping[str, Any]) -> list[str]:
    lines = [f"{name}  {each['bleu']:.2f}  {each['name']}" for each in scores["panel"]]
    lines.append(f"{name}  {scores['chrf']:.2f}  chrF2")
    lines.append(f"{name}  {scores['ter']:.2f}  TER")
    if scores["zero_reason"] is not None:
        lines.append(f"{name}  BLEU reads 0.0: {scores['zero_reason']}")
    return lines


def _output_file(path: Path, split: str) -> Path:
    if not path.is_dir():
        return path
    language = read_config(RunFolder(path)).data.target_language
    file = RunFolder(path).evaluation / f"{split}.{language}"
    if not file.is_file():
        raise ValueError(
            f"{path} has no translations of its {split} set ({file}); make them: "
            f"attnjax evaluate --workdir {path} --split {split}"
        )
    return file


def _reference_of(folder: RunFolder, split: str) -> list[str]:
    corpora = load_corpora(read_config(folder).data)
    return list(corpora["valid" if split == "valid" else "test"].target)
