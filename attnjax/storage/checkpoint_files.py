"""The folders of checkpoints: which are whole, and what becomes of the others."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from attnjax.json_files import parse_json, read_json
from attnjax.storage.commit import TEMPORARY
from attnjax.storage.manifest import MANIFEST, has_its_files, verified_bytes

logger = logging.getLogger(__name__)

_JSON_FILES = {"_CHECKPOINT_METADATA", "_METADATA", "_sharding", "metadata"}
_VALUES = "extra/metadata"
_REASONS = {
    "incomplete": "incomplete and skipped",
    "damaged": "damaged and skipped",
    "left": "later than the one to go on from",
}
_PARTS = ("_CHECKPOINT_METADATA", "state/_METADATA", _VALUES)


def has_all_parts(step_folder: Path) -> bool:
    """Whether a checkpoint was written to its end.

    Its manifest is the last that is written. From before there were manifests, all that
    a restore reads first must be there.

    Args:
        step_folder: of one step.

    Returns:
        True also for a complete one that lost a file since; `verified` finds that.
    """
    parts = all((step_folder / part).exists() for part in _PARTS)
    return parts or (step_folder / MANIFEST).exists()


def has_checkpoint(folder: Path) -> bool:
    """Whether any checkpoint was written to its end.

    Args:
        folder: of all steps; it need not exist.

    Returns:
        True also if all of them were damaged since.
    """
    return any(map(has_all_parts, step_folders(folder)))


def step_folders(folder: Path) -> list[Path]:
    """The folders that have the name of a step, by rising step; whole or not.

    Args:
        folder: of all steps; it need not exist.

    Returns:
        Their paths.
    """
    named = [path for path in folder.glob("*/") if path.name.isdecimal()]
    return sorted(named, key=lambda path: int(path.name))


def stored_values(step_folder: Path) -> Any:
    """The JSON values that were saved beside a state.

    Args:
        step_folder: of one step.

    Returns:
        The values; None where they are not as they were saved.
    """
    try:
        return parse_json(
            verified_bytes(step_folder, _VALUES), origin=str(step_folder / _VALUES)
        )
    except (ValueError, OSError):
        return None


def require_plain_json(folder: Path) -> None:
    """Refuses JSON that would exhaust whoever reads it.

    Args:
        folder: of one checkpoint.

    Raises:
        ValueError: a file is too large, too deep, or no JSON.
    """
    for path in folder.rglob("*"):
        if path.name in _JSON_FILES or path.name.startswith("process_"):
            read_json(path)


def clear_incomplete(folder: Path, kept: Callable[[list[int]], set[int]]) -> None:
    """Removes what a run that was killed has half written or half removed.

    What is incomplete and should not be is set aside. All of it with a warning.

    Args:
        folder: of all steps; it need not exist.
        kept: from the steps there are to those that stay.
    """
    for path in folder.glob(f"*{TEMPORARY}*/"):
        _remove(path, "never completed (the run ended while saving)")
    steps = step_folders(folder)
    staying = kept(sorted(int(path.name) for path in steps))
    for path in steps:
        whole = has_all_parts(path)
        if int(path.name) not in staying and not (whole and has_its_files(path)):
            _remove(path, "being removed when the run ended")
        elif not whole:
            set_aside(path, "incomplete")


def go_back(folder: Path, step: int) -> None:
    """Sets aside all checkpoints behind one, so that training goes on from that.

    Args:
        folder: of all steps.
        step: the newest to stay.

    Raises:
        FileNotFoundError: if there is no complete checkpoint of that step.
    """
    steps = [int(path.name) for path in step_folders(folder)]
    if step not in steps or not has_all_parts(folder / str(step)):
        raise FileNotFoundError(
            f"there is no checkpoint of step {step} in {folder} to go on from; there "
            f"are {steps}."
        )
    for later in steps[steps.index(step) + 1 :]:
        set_aside(folder / str(later), "left")


def _remove(path: Path, why: str) -> None:
    logger.warning(
        "the checkpoint of step %s in %s was %s; it is skipped and removed",
        path.name.partition(".")[0],
        path.parent,
        why,
    )
    shutil.rmtree(path)


def remove_half_written(folder: Path) -> None:
    """Removes what a save that failed has left, as far as the disk lets it.

    Args:
        folder: of all steps; it need not exist.
    """
    for path in folder.glob(f"*{TEMPORARY}"):
        shutil.rmtree(path, ignore_errors=True)


def set_aside(path: Path, why: Literal["incomplete", "damaged", "left"]) -> None:
    """Gives a checkpoint a name under which nothing restores it, with a warning.

    Args:
        path: of one step.
        why: it ends the name.
    """
    aside = path.with_name(f"{path.name}.{why}")
    logger.warning(
        "the checkpoint of step %s in %s is %s; it is now called %s",
        path.name,
        path.parent,
        _REASONS[why],
        aside.name,
    )
    if aside.exists():
        shutil.rmtree(aside)
    path.rename(aside)
