"""The log of a run as JSON lines, each step once however often the run was resumed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

from attnjax.storage.files import replace_text
from attnjax.training.buffered_log import BufferedLog
from attnjax.training.hooks import TRAIN, Record, RunStart

METRICS_FILE = "metrics.jsonl"


class MetricsLog(BufferedLog):
    """A hook that writes one line for each log event to ``metrics.jsonl``.

    A run that was killed has logged steps that its last checkpoint has not seen; going
    on from there, those lines are cut off before they come again.
    """

    def __init__(
        self, workdir: Path, on_failure: Literal["stop", "continue"] = "stop"
    ) -> None:
        """Names the file; nothing is opened before the run starts.

        Args:
            workdir: the run folder.
            on_failure: what a full disk means: `log` raises, or logs an error and keeps
                the line for the next time. The last failure is raised by `close`.
        """
        super().__init__(METRICS_FILE, workdir, on_failure)

    def start(self, start: RunStart) -> None:
        """Cuts off what the run has not seen, and opens the file."""
        with self._written():
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / METRICS_FILE
            kept = [line for line in _lines(path) if _is_seen(line, start)]
            replace_text(path, "".join(f"{line}\n" for line in kept))
            self._open(METRICS_FILE)

    def log(self, record: Record) -> None:
        """Writes a line, at once; JSON has no NaN, so such a number becomes null."""
        if self._file is not None:
            finite = {name: _null_if_not_finite(v) for name, v in record.items()}
            with self._written(self._on_failure):
                self._file.write((json.dumps(finite) + "\n").encode())
                self._file.flush()


def read_metrics(workdir: Path) -> list[dict[str, Any]]:
    """The records of a run, oldest first; a half-written line is left out.

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
    return path.read_text(encoding="utf-8", errors="replace").split("\n")


def _parse(line: str) -> dict[str, Any] | None:
    """The record, None if the line is half of one, or none that we wrote."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_record = isinstance(record, dict) and isinstance(record.get("event"), str)
    return record if is_record and type(record.get("step")) is int else None


def _is_seen(line: str, start: RunStart) -> bool:
    record = _parse(line)
    if record is None or record["step"] > start.step:
        return False
    return record["step"] < start.step or record["event"] == TRAIN or start.evaluated
