"""TensorBoard event files, written without TensorFlow.

They are written here and not by tensorboardX's thread: that dies of a full disk, and
whoever hands it further events then waits for ever.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from pathlib import Path
from typing import Any, BinaryIO, Literal

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import scalar

from attnjax.training.hooks import Record, RunStart, scalars
from attnjax.training.storage import MOST_BYTES_WAITING, written

TENSORBOARD_FOLDER = "tensorboard"
_FILE_VERSION = "brain.Event:2"


class TensorBoard:
    """A hook that writes every logged number as a scalar named ``event/name``."""

    def __init__(
        self, workdir: Path, on_failure: Literal["stop", "continue"] = "stop"
    ) -> None:
        """Names the folder; nothing is opened before the run starts.

        Args:
            workdir: the run folder.
            on_failure: what a full disk means: `log` raises, or logs an error and keeps
                the numbers for the next time. The last failure is raised by `close`.
        """
        self._folder = workdir / TENSORBOARD_FOLDER
        self._on_failure = on_failure
        self._file: BinaryIO | None = None

    def start(self, start: RunStart) -> None:
        """Opens an event file; TensorBoard hides what older files hold beyond it."""
        seconds, host = int(time.time()), socket.gethostname()
        name = f"events.out.tfevents.{seconds}.{host}.{start.step}"
        with self._written():
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / name
            self._file = path.open("ab", buffering=MOST_BYTES_WAITING)
            self._write(self._file, file_version=_FILE_VERSION)
            if start.step:
                begin = SessionLog(status=SessionLog.START)
                self._write(self._file, step=start.step + 1, session_log=begin)
            self._file.flush()

    def step(self, step: int) -> None:
        """Writes nothing: an update alone is no log event."""

    def log(self, record: Record) -> None:
        """Writes the numbers of a record, rates included."""
        if self._file is not None:
            numbers = {**scalars(record), **record["timing"]}
            with self._written(self._on_failure):
                for name, value in numbers.items():
                    summary = scalar(f"{record['event']}/{name}", value)
                    self._write(self._file, step=record["step"], summary=summary)
                self._file.flush()

    def close(self) -> None:
        """Writes what is left, and closes."""
        if self._file is not None:
            file, self._file = self._file, None
            with self._written():
                file.close()

    @staticmethod
    def _write(file: BinaryIO, **content: Any) -> None:
        """Appends an event as TFRecord frames it, in one piece."""
        event = Event(wall_time=time.time(), **content).SerializeToString()
        length = struct.pack("<Q", len(event))
        checksums = (struct.pack("<I", masked_crc32c(part)) for part in (length, event))
        file.write(length + next(checksums) + event + next(checksums))

    def _written(
        self, on_failure: Literal["stop", "continue"] = "stop"
    ) -> contextlib.AbstractContextManager[None]:
        return written("TensorBoard's events", self._folder, on_failure=on_failure)
