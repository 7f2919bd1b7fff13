"""The files of a checkpoint folder: which are whole, and the scores beside them."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

logger = logging.getLogger(__name__)

TEMPORARY = ".orbax-checkpoint-tmp"  # in the name of a step until it is complete
_SET_ASIDE = ".incomplete"
_PARTS = ("_CHECKPOINT_METADATA", "state/_METADATA", "extra/metadata")
_SCORES = "scores.json"


def has_all_parts(step_folder: Path) -> bool:
    """Whether a checkpoint was written to its end.

    Args:
        step_folder: of one step.

    Returns:
        True if all that a restore reads first is there.
    """
    return all((step_folder / part).exists() for part in _PARTS)


def clear_incomplete(folder: Path) -> None:
    """Removes half-written checkpoints and sets damaged ones aside, with a warning.

    Args:
        folder: of all steps; it need not exist.
    """
    for path in sorted(folder.glob("*")):
        if path.is_dir() and TEMPORARY in path.name:
            logger.warning(
                "the checkpoint of step %s in %s was never completed (the run ended "
                "while saving); it is skipped and removed",
                path.name.partition(".")[0],
                folder,
            )
            shutil.rmtree(path)
        elif path.name.isdecimal() and not has_all_parts(path):
            _set_aside(path)


def read_scores(folder: Path) -> dict[int, float]:
    """The scores of checkpoints by step.

    Args:
        folder: of all steps; it need not exist.

    Returns:
        Step to score, empty if none was ever written.
    """
    path = folder / _SCORES
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {int(step): float(score) for step, score in stored.items()}


def write_scores(folder: Path, scores: Mapping[int, float]) -> None:
    """Replaces the scores, so that a reader never sees half a file.

    Args:
        folder: of all steps.
        scores: step to score.
    """
    path = folder / _SCORES
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(scores), encoding="utf-8")
    fresh.replace(path)


def _set_aside(path: Path) -> None:
    aside = path.with_name(path.name + _SET_ASIDE)
    logger.warning(
        "the checkpoint of step %s in %s is incomplete; it is skipped and moved to %s",
        path.name,
        path.parent,
        aside.name,
    )
    if aside.exists():
        shutil.rmtree(aside)
    path.rename(aside)
