"""The log of a run as JSON lines, each step once however often the run was resumed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TextIO

from attnjax.training.hooks import TRAIN, Record, RunStart

METRICS_FILE = "metrics.jsonl"


class MetricsLog:
    """A hook that writes one line for each log event to ``metrics.jsonl``.

    A run that was killed has logged steps that its last checkpoint has not seen; going
    on from there, those lines are cut off before they come again.
    """

    def __init__(self, workdir: Path) -> None:
        """Names the file; nothing is opened before the run starts.

        Args:
            workdir: the run folder.
        """
        self._path = workdir / METRICS_FILE
        self._file: TextIO | None = None

    def start(self, start: RunStart) -> None:
        """Cuts off what the run has not seen, and opens the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in _lines(self._path) if _is_seen(line, start)]
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        fresh.replace(self._path)
        self._file = self._path.open("a", encoding="utf-8", buffering=1)

    def step(self, step: int) -> None:
        """Writes nothing: an update alone is no log event."""

    def log(self, record: Record) -> None:
        """Writes a line, at once; JSON has no NaN, so such a number becomes null."""
        if self._file is not None:
            finite = {name: _null_if_not_finite(v) for name, v in record.items()}
            self._file.write(json.dumps(finite) + "\n")

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_metrics(workdir: Path) -> list[dict[str, Any]]:
    """The records of a run, oldest first; a half-written last line is left out.

    Args:
        workdir: the run folder.

    Returns:
        The records, empty if there is no log.
    """
    parsed = (_parse(line) for line in _lines(workdir / METRICS_FILE))
    return [record for record in parsed if record is not None]


def _null_if_not_finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return path.read_text(encoding="utf-8").split("\n")


def _parse(line: str) -> dict[str, Any] | None:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


def _is_seen(line: str, start: RunStart) -> bool:
    record = _parse(line)
    if record is None or record["step"] > start.step:
        return False
    return record["step"] < start.step or record["event"] == TRAIN or start.evaluated
