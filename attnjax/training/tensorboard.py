"""TensorBoard event files, written without TensorFlow.

They are written here and not by tensorboardX's thread: that dies of a full disk, and
whoever hands it further events then waits for ever.
"""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path
from typing import Any, BinaryIO, Literal

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import scalar

from attnjax.training.buffered_log import BufferedLog
from attnjax.training.hooks import Record, RunStart, scalars

TENSORBOARD_FOLDER = "tensorboard"
_FILE_VERSION = "brain.Event:2"


class TensorBoard(BufferedLog):
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
        folder = workdir / TENSORBOARD_FOLDER
        super().__init__("TensorBoard's events", folder, on_failure)

    def start(self, start: RunStart) -> None:
        """Opens an event file; TensorBoard hides what older files hold beyond it."""
        seconds, host = int(time.time()), socket.gethostname()
        name = f"events.out.tfevents.{seconds}.{host}.{start.step}"
        with self._written():
            self._folder.mkdir(parents=True, exist_ok=True)
            file = self._open(name)
            self._write(file, file_version=_FILE_VERSION)
            # Also at step 0: a run that was killed before its first checkpoint has
            # left events.
            begin = SessionLog(status=SessionLog.START)
            self._write(file, step=start.step + 1, session_log=begin)
            file.flush()

    def log(self, record: Record) -> None:
        """Writes the numbers of a record, rates included."""
        if self._file is not None:
            numbers = {**scalars(record), **record["timing"]}
            with self._written(self._on_failure):
                for name, value in numbers.items():
                    summary = scalar(f"{record['event']}/{name}", value)
                    self._write(self._file, step=record["step"], summary=summary)
                self._file.flush()

    @staticmethod
    def _write(file: BinaryIO, **content: Any) -> None:
        """Appends an event as TFRecord frames it, in one piece."""
        event = Event(wall_time=time.time(), **content).SerializeToString()
        length = struct.pack("<Q", len(event))
        checksums = (struct.pack("<I", masked_crc32c(part)) for part in (length, event))
        file.write(length + next(checksums) + event + next(checksums))
