"""The scores of checkpoints, in one small file beside them."""

from __future__ import annotations

import math
import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import jax

from attnjax.json_files import parse_json, read_bounded, shown
from attnjax.training.manifest import sealed, unsealed
from attnjax.training.storage import replace_text

_FILE = "scores.json"
_MOST_BYTES = 1 << 20


class Scores:
    """Which checkpoint is the best; a NaN never ranks.

    Attributes:
        by_step: step to score, rising by step.
    """

    def __init__(self, folder: Path) -> None:
        """Reads what is stored.

        Args:
            folder: of all steps; it need not exist.

        Raises:
            ValueError: the file is not as it was written.
        """
        self._path = folder / _FILE
        self._is_stored = True
        self.by_step = _read(self._path)

    def rank(self, step: int, score: float) -> None:
        """Takes up a score, if it is finite.

        Args:
            step: of the checkpoint.
            score: higher is better.
        """
        if math.isfinite(score):
            self._become({**self.by_step, step: float(score)})

    def keep(self, steps: Container[int]) -> None:
        """Forgets all others.

        Args:
            steps: of the checkpoints there are.
        """
        self._become({s: score for s, score in self.by_step.items() if s in steps})

    def best_of(self, steps: Sequence[int]) -> int | None:
        """The step of the highest score, the earliest of equals, None without any.

        Args:
            steps: among which.

        Returns:
            One of them.
        """
        ranked = [step for step in sorted(steps) if step in self.by_step]
        return max(ranked, key=self.by_step.__getitem__, default=None)

    def store(self) -> None:
        """Replaces the file if need be, so that a reader never sees half of it.

        Raises:
            OSError: if the storage fails; the file is then as it was.
        """
        if not self._is_stored and jax.process_index() == 0:
            content = {"scores": {str(s): score for s, score in self.by_step.items()}}
            replace_text(self._path, sealed(content))
        self._is_stored = True

    def _become(self, by_step: dict[int, float]) -> None:
        by_step = dict(sorted(by_step.items()))
        if by_step != self.by_step:
            self.by_step, self._is_stored = by_step, False


def _read(path: Path) -> dict[int, float]:
    if not path.exists():
        return {}
    text = read_bounded(path, most_bytes=_MOST_BYTES)
    stored = parse_json(text, origin=str(path))
    if isinstance(stored, dict) and "scores" in stored:
        stored = unsealed(text, origin=str(path))["scores"]
    try:
        return dict(sorted(_score(step, score) for step, score in stored.items()))
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} must hold a number for each step, got {shown(stored)}; restore it "
            "from a copy, or delete it, and then only later validations rank."
        ) from error


def _score(step: str, score: Any) -> tuple[int, float]:
    # NaN fails the comparison, and so does what is too large for a float.
    if type(score) not in (int, float) or not abs(score) <= sys.float_info.max:
        raise ValueError(f"no score: {shown(score)}")
    return int(step), float(score)
