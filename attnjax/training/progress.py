"""How a run stands besides its state: scores, patience and clocks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any


@dataclasses.dataclass
class Progress:
    """What the loop must remember to go on as if it had never stopped.

    Attributes:
        scores: of the latest validation.
        evaluated_step: the step of it, 0 before the first.
        best_score: the highest score, None before the first finite one.
        best_step: the step of it.
        stale_evaluations: validations since, without a better one.
        seconds: wall time of all sessions of the run.
        window_seconds: time spent on updates since the last log point.
        losses: of the weights that were saved; see `attnjax.training.watch.Watch`.
        latest_score: of the latest validation, None if it was measured otherwise.
        measure: what the scores are measured on, None before it is known.
    """

    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    evaluated_step: int = 0
    best_score: float | None = None
    best_step: int | None = None
    stale_evaluations: int = 0
    seconds: float = 0.0
    window_seconds: float = 0.0
    losses: dict[int, float] = dataclasses.field(default_factory=dict)
    latest_score: float | None = None
    measure: str | None = None

    def note(self, step: int, scores: Mapping[str, float], score: float) -> None:
        """Takes up the result of a validation; NaN is never better than anything.

        Args:
            step: updates done.
            scores: all results.
            score: the one that ranks.
        """
        self.scores, self.evaluated_step = dict(scores), step
        self.latest_score = score if math.isfinite(score) else None
        previous = -math.inf if self.best_score is None else self.best_score
        if math.isfinite(score) and score > previous:
            self.best_score, self.best_step = score, step
            self.stale_evaluations = 0
        else:
            self.stale_evaluations += 1

    def compare_by(self, measure: str, best: tuple[int, float] | None) -> str | None:
        """Says what the scores to come are measured on.

        If it is not what it was, earlier ones are not compared with them: best score
        and patience begin anew.

        Args:
            measure: of the task.
            best: step and score of the best so far that was measured so.

        Returns:
            What it was, if it was something else.
        """
        before, self.measure = self.measure, measure
        if before in (None, measure):
            return None
        self.best_step, self.best_score = best or (None, None)
        self.stale_evaluations, self.latest_score = 0, None
        return before

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Progress:
        """Reads what `to_json` gave.

        Args:
            stored: the fields by name.

        Returns:
            The progress.

        Raises:
            LookupError: if there is no such field.
            TypeError: if a value is of no such type, or `ValueError`.
        """
        return Progress(**{name: _READERS[name](v) for name, v in stored.items()})


def _scores(stored: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in stored.items()}


def _losses(stored: Mapping[str, Any]) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in stored.items()}


_READERS: dict[str, Callable[[Any], Any]] = {
    "scores": _scores,
    "evaluated_step": int,
    "best_score": lambda stored: None if stored is None else float(stored),
    "best_step": lambda stored: None if stored is None else int(stored),
    "latest_score": lambda stored: None if stored is None else float(stored),
    "measure": lambda stored: None if stored is None else str(stored),
    "stale_evaluations": int,
    "seconds": float,
    "window_seconds": float,
    "losses": _losses,
}
