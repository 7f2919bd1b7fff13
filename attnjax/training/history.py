"""The sessions of a run, a JSON line each: from which step, by whom, on what machine.

The bits of a result depend on the machine: on how many cores share a sum, on the kind
and number of devices, and on the versions of the libraries. So each session says what
they were, and one that goes on elsewhere is told.
"""

from __future__ import annotations

import datetime
import getpass
import importlib.metadata
import json
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax

from attnjax.training.buffered_log import BufferedLog
from attnjax.training.hooks import Record, RunStart

HISTORY_FILE = "history.jsonl"
_LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy")
_MOST_BYTES = 1 << 20  # of the end of the file that is read


class History(BufferedLog):
    """A hook that adds a line whenever a session takes the run up."""

    def __init__(
        self,
        workdir: Path,
        changed: Sequence[str] = (),
        on_failure: Literal["stop", "continue"] = "stop",
    ) -> None:
        """Names the file; nothing is opened before the run starts.

        Args:
            workdir: the run folder.
            changed: a line, old and new, for each field that this session changes.
            on_failure: what a full disk means; see `BufferedLog`.
        """
        super().__init__(HISTORY_FILE, workdir, on_failure)
        self._changed = list(changed)

    def start(self, start: RunStart) -> None:
        """Adds the line."""
        session = {
            "from_step": start.step,
            "to_step": start.num_steps,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "user": _user(),
            "host": socket.gethostname(),
            "changed": self._changed,
            "machine": machine(),
        }
        with self._written(self._on_failure):
            self._folder.mkdir(parents=True, exist_ok=True)
            line = json.dumps(session, ensure_ascii=False) + "\n"
            self._open(HISTORY_FILE).write(line.encode(errors="replace"))
        self.close()
        self._changed = []  # what follows is the same session, gone back

    def log(self, record: Record) -> None:
        """Writes nothing."""


def machine() -> dict[str, Any]:
    """What the bits of a result depend on besides the config and the data.

    Returns:
        Usable cores, devices, the processor's architecture and versions, for JSON.
    """
    first = jax.devices()[0]
    return {
        "cores": _num_cores(),
        "devices": f"{jax.device_count()} {first.device_kind}",
        "architecture": platform.machine(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _LIBRARIES},
    }


def latest_machine(workdir: Path) -> dict[str, Any] | None:
    """What the latest session ran on.

    Args:
        workdir: the run folder.

    Returns:
        What `machine` gave then, None if nothing tells.
    """
    path = workdir / HISTORY_FILE
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MOST_BYTES))
            (*_, last) = file.read().splitlines()
        found = json.loads(last)["machine"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def differing_machine(old: Mapping[str, Any]) -> list[str]:
    """What of the machine is not as it was.

    Args:
        old: what `machine` gave.

    Returns:
        A line, old and new, for each part.
    """
    return [
        f"{name}: {old[name]} -> {value}"
        for name, value in machine().items()
        if name in old and old[name] != value
    ]


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # those that this process may use
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may know no name
        return ""
