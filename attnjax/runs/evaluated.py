"""Evaluations as they lie in run folders: what each one is of, kept and read again."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from attnjax.config import Experiment
from attnjax.data.lines import read_lines
from attnjax.data.parallel import ParallelCorpus
from attnjax.evaluation.lines import lines_fingerprint
from attnjax.json_files import read_json
from attnjax.run_folder import RunFolder, read_config, require_run
from attnjax.runs.opening import TrainedRun
from attnjax.types import Variables

logger = logging.getLogger(__name__)

SPEED_ONLY = "tokens_per_batch"
"""A search setting that changes no output."""

_FIGURES = ("parameters", "tokens_per_second")


class Fingerprints(NamedTuple):
    """Which lines an evaluation was scored on.

    Attributes:
        sources: of the source lines.
        references: of the references.
    """

    sources: str
    references: str


class Evaluation(NamedTuple):
    """A system's output, and what is known of how it came about.

    Attributes:
        name: as the user named it.
        lines: of the output.
        report: as `attnjax.runs.evaluation.evaluate` wrote it; empty of a plain file.
        experiment: config of the run; None of a plain file.
    """

    name: str
    lines: list[str]
    report: Mapping[str, Any]
    experiment: Experiment | None

    @property
    def test_set(self) -> Fingerprints | None:
        """None where it was not recorded."""
        return _test_set(self.report)


def provenance(run: TrainedRun, corpus: ParallelCorpus) -> dict[str, Any]:
    """What an evaluation is of.

    Args:
        run: the opened run.
        corpus: the set that is scored.

    Returns:
        JSON values: ``members``, the folders, steps and averages; ``weights``, their
        fingerprint; ``parameters``, how many there are; ``test_set``, where it comes
        from and fingerprints of its sides.
    """
    params = jax.tree.leaves(run.variables.get("params", {}))
    return {
        "members": [
            {
                "folder": str(member.folder),
                "steps": list(member.steps),
                "average": member.average,
            }
            for member in run.members
        ],
        "weights": weights_fingerprint(run.variables),
        "parameters": sum(int(np.size(leaf)) for leaf in params),
        "test_set": {
            "origin": corpus.origin,
            "languages": list(run.languages),
            "sources": lines_fingerprint(corpus.source),
            "references": lines_fingerprint(corpus.target),
        },
    }


def weights_fingerprint(variables: Variables) -> str:
    """A short hash of all arrays of a model with their names.

    Args:
        variables: the linen collections.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(variables):
        array = np.ascontiguousarray(jax.device_get(leaf))
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def keep_other(report_file: Path, hypotheses: Path, report: Mapping[str, Any]) -> None:
    """Moves an evaluation aside that a new one of other weights would replace.

    Args:
        report_file: where the new report is to go.
        hypotheses: where its translations are to go.
        report: the new one.
    """
    if not report_file.is_file():
        return
    try:
        before, now = _identity(_read_report(report_file)), _identity(report)
        other = [f"other {name}" for name in now if before[name] != now[name]]
        if not other:
            return
        known = None not in before.values()
        reason = "is of " + ", ".join(other) if known else "does not say what it is of"
    except ValueError as error:
        reason = f"cannot be read ({error})"
    number = 1
    while (kept := report_file.with_stem(f"{report_file.stem}.{number}")).exists():
        number += 1
    if hypotheses.is_file():
        hypotheses.rename(hypotheses.with_stem(kept.stem))
    report_file.rename(kept)
    logger.warning("the evaluation before %s; it is kept as %s", reason, kept)


def read_evaluation(path: Path, split: str) -> Evaluation:
    """Reads what is to be compared.

    Args:
        path: a run folder, the report of an evaluation in one (``.json``), or a file
            of translations.
        split: whose evaluation of a run folder.

    Returns:
        The output, with its report where there is one.

    Raises:
        ValueError: the folder has no evaluation of that set, or it is damaged.
        OSError: the file cannot be read.
    """
    if path.is_dir():
        folder, report_file = RunFolder(path), path / "evaluation" / f"{split}.json"
    elif path.suffix == ".json" and (path.parent.parent / "config.json").is_file():
        folder, report_file = RunFolder(path.parent.parent), path
    else:
        return Evaluation(str(path), read_lines(path), {}, None)
    require_run(folder)
    experiment = read_config(folder)
    lines = report_file.with_suffix(f".{experiment.data.target_language}")
    if not lines.is_file():
        raise ValueError(
            f"{path} has no translations of its {split} set ({lines}); make them: "
            f"attnjax evaluate --workdir {folder.path} --split {split}"
        )
    report = _read_report(report_file) if report_file.is_file() else {}
    return Evaluation(str(path), read_lines(lines), report, experiment)


def search_settings(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """How an evaluation searched.

    Args:
        report: of it.

    Returns:
        The settings that can change an output; None where the report does not say.
    """
    search = report.get("decoding")
    if not isinstance(search, dict):
        return None
    return {name: search[name] for name in search if name != SPEED_ONLY}


def _identity(report: Mapping[str, Any]) -> dict[str, Any]:
    """What an evaluation is of, None where the report does not say."""
    return {
        "weights": report.get("weights"),
        "search settings": search_settings(report),
        "test set": _test_set(report),
    }


def _test_set(report: Mapping[str, Any]) -> Fingerprints | None:
    found = report.get("test_set")
    if not isinstance(found, dict) or not {*Fingerprints._fields} <= set(found):
        return None
    return Fingerprints(*(str(found[name]) for name in Fingerprints._fields))


def _read_report(file: Path) -> dict[str, Any]:
    report = read_json(file)
    if not isinstance(report, dict) or not _is_readable(report):
        raise ValueError(
            f"{file} is not the report of an evaluation; restore it from a copy, or "
            "evaluate again."
        )
    return report


def _is_readable(report: Mapping[str, Any]) -> bool:
    """Whether what others read of a report is of the right kind."""
    try:
        members = report.get("members", ())
        buckets = report.get("bleu_by_source_words", ())
        figures = [report.get(name, 0) for name in _FIGURES]
        figures += [step for member in members for step in member["steps"]]
        figures += [bucket[name] for bucket in buckets for name in ("low", "count")]
        figures += [bucket["bleu"] or 0 for bucket in buckets]
        return (
            all(map(math.isfinite, figures))
            and all(member["steps"] and "average" in member for member in members)
            and all(isinstance(bucket["label"], str) for bucket in buckets)
            and isinstance(report.get("source_words_cut_by", ""), str)
        )
    except (TypeError, LookupError, OverflowError):
        return False
