"""What the logs of a run that lie in a file have in common."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import BinaryIO, Literal

from attnjax.storage.faults import MOST_BYTES_WAITING, written


class BufferedLog:
    """A hook that appends to a file; what a full disk refuses waits in its buffer."""

    def __init__(
        self, what: str, folder: Path, on_failure: Literal["stop", "continue"]
    ) -> None:
        """Nothing is opened before the run starts.

        Args:
            what: is logged, for messages.
            folder: that the file lies in.
            on_failure: what a full disk means: `log` raises, or logs an error and keeps
                the content for the next time. The last failure is raised by `close`.
        """
        self._what, self._folder = what, folder
        self._on_failure = on_failure
        self._file: BinaryIO | None = None

    def step(self, step: int) -> None:
        """Writes nothing: an update alone is no log event."""

    def close(self) -> None:
        """Writes what is left, and closes the file."""
        if self._file is not None:
            file, self._file = self._file, None
            with self._written():
                file.close()

    def _open(self, name: str) -> BinaryIO:
        # What could not be written stays in the buffer, and its rest comes first.
        path = self._folder / name
        self._file = path.open("ab", buffering=MOST_BYTES_WAITING)
        return self._file

    def _written(
        self, on_failure: Literal["stop", "continue"] = "stop"
    ) -> contextlib.AbstractContextManager[None]:
        return written(self._what, self._folder, on_failure=on_failure)
