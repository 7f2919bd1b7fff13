"""The scores of checkpoints: what they hold themselves, and one small file beside them.

Each checkpoint tells its own score and that of the best one so far, under its digests.
``scores.json`` adds those that came after the save; where it is lost, damaged or says
something else, the checkpoints are right.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from attnjax.json_files import parse_json, read_bounded, shown
from attnjax.storage.checkpoint_files import step_folders, stored_values
from attnjax.storage.files import replace_text
from attnjax.storage.manifest import sealed, unsealed

logger = logging.getLogger(__name__)

_FILE = "scores.json"
_MOST_BYTES = 1 << 20
_STEPS = "evaluated_step", "best_step"  # of what a checkpoint remembers, and
_SCORES = "latest_score", "best_score"  # the scores at them


class _Scored(NamedTuple):
    """A score, and what it was measured on, None of one from before that was kept."""

    score: float
    measure: str | None


class Scores:
    """Which checkpoint is the best; a NaN never ranks.

    Scores of different measures (`attnjax.types.Task.measure`) are not compared: those
    count that were measured as the newest was.
    """

    def __init__(self, folder: Path) -> None:
        """Reads what is stored.

        Args:
            folder: of all steps; it need not exist.

        Raises:
            ValueError: the file is not as it was written, and no checkpoint knows
                better.
        """
        self._path = folder / _FILE
        self._measure: str | None = None
        recorded = _recorded(folder)
        try:
            stored = _read(self._path)
        except ValueError as error:
            if not recorded:
                raise
            logger.warning("%s Until then the checkpoints tell their scores.", error)
            stored = {}
        for step, (score, measure) in recorded.items():
            known = stored.get(step, _Scored(score, measure))
            if known.score != score:
                logger.warning(
                    "%s says %g of step %d, but the checkpoints say %g, which counts",
                    self._path,
                    known.score,
                    step,
                    score,
                )
            recorded[step] = _Scored(score, measure or known.measure)
        self._scored = dict(sorted({**stored, **recorded}.items()))
        self._is_stored = self._scored == stored

    @property
    def by_step(self) -> dict[int, float]:
        """All scores, rising by step."""
        return {step: each.score for step, each in self._scored.items()}

    def compare_by(self, measure: str) -> tuple[int, float] | None:
        """Says what the scores to come are measured on.

        Args:
            measure: of the task; those of which it was not kept are taken for such.

        Returns:
            Step and score of the best that was measured so, None without any.
        """
        self._measure = measure
        self._become(
            {
                step: each._replace(measure=each.measure or measure)
                for step, each in self._scored.items()
            }
        )
        alike = [s for s, each in self._scored.items() if each.measure == measure]
        best = self.best_of(alike)
        return None if best is None else (best, self._scored[best].score)

    def rank(self, step: int, score: float) -> None:
        """Takes up a score, if it is finite.

        Args:
            step: of the checkpoint.
            score: higher is better.
        """
        if math.isfinite(score):
            scored = _Scored(float(score), self._measure)
            self._become({**self._scored, step: scored})

    def keep(self, steps: Container[int]) -> None:
        """Forgets all others.

        Args:
            steps: of the checkpoints there are.
        """
        self._become({s: each for s, each in self._scored.items() if s in steps})

    def comparable(self, steps: Sequence[int]) -> dict[int, float]:
        """The scores that were measured as that of the newest step.

        Args:
            steps: among which.

        Returns:
            Step to score, rising by step.
        """
        scored = {s: self._scored[s] for s in sorted(steps) if s in self._scored}
        newest = scored[max(scored)].measure if scored else None
        return {s: each.score for s, each in scored.items() if each.measure == newest}

    def best_of(self, steps: Sequence[int]) -> int | None:
        """The step of the highest comparable score, the earliest of equals.

        Args:
            steps: among which.

        Returns:
            One of them, None if none has a score.
        """
        scores = self.comparable(steps)
        return max(scores, key=scores.__getitem__, default=None)

    def best_of_each_measure(self, steps: Sequence[int]) -> set[int]:
        """The best steps, whatever the scores were measured on.

        Args:
            steps: among which.

        Returns:
            One step for each measure.
        """
        rest, best = [step for step in steps if step in self._scored], set()
        while (step := self.best_of(rest)) is not None:
            best.add(step)
            alike = self.comparable(rest)
            rest = [step for step in rest if step not in alike]
        return best

    def store(self) -> None:
        """Replaces the file if need be, so that a reader never sees half of it.

        Raises:
            OSError: if the storage fails; the file is then as it was.
        """
        if not self._is_stored and jax.process_index() == 0:
            measures = {s: each.measure for s, each in self._scored.items()}
            named = {str(s): measure for s, measure in measures.items() if measure}
            scores = {str(s): score for s, score in self.by_step.items()}
            content = {"scores": scores} | ({"measures": named} if named else {})
            replace_text(self._path, sealed(content))
        self._is_stored = True

    def _become(self, scored: Mapping[int, _Scored]) -> None:
        if scored != self._scored:
            self._scored, self._is_stored = dict(sorted(scored.items())), False


def _recorded(folder: Path) -> dict[int, _Scored]:
    """What the checkpoints say, the newest last."""
    found: dict[int, _Scored] = {}
    for step_folder in step_folders(folder):
        found |= _told(stored_values(step_folder))
    return found


def _told(values: Any) -> dict[int, _Scored]:
    """The latest and the best score that a checkpoint tells of, by step.

    Args:
        values: saved beside the state; nothing is expected of them.

    Returns:
        The finite ones, empty where there are none.
    """
    try:
        progress = values["progress"]
        known = {
            int(progress[step]): _Scored(_score(score), progress.get("measure"))
            for step, score in zip(_STEPS, map(progress.get, _SCORES), strict=True)
            if score is not None
        }
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return {}
    return known


def _read(path: Path) -> dict[int, _Scored]:
    if not path.exists():
        return {}
    text = read_bounded(path, most_bytes=_MOST_BYTES)
    stored, measures = parse_json(text, origin=str(path)), {}
    if isinstance(stored, dict) and "scores" in stored:
        content = unsealed(text, origin=str(path))
        stored, measures = content["scores"], content.get("measures", {})
    try:
        return dict(
            sorted(
                (int(step), _Scored(_score(score), measures.get(step)))
                for step, score in stored.items()
            )
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} must hold a number for each step, and by step what they were "
            f"measured on, got {shown(stored)}; restore it from a copy, or delete it."
        ) from error


def _score(score: Any) -> float:
    # NaN fails the comparison, and so does what is too large for a float.
    if type(score) not in (int, float) or not abs(score) <= sys.float_info.max:
        raise ValueError(f"no score: {shown(score)}")
    return float(score)
