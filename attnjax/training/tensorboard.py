"""TensorBoard event files, written without TensorFlow."""

from __future__ import annotations

from pathlib import Path

from tensorboardX import SummaryWriter

from attnjax.training.hooks import Record, RunStart, scalars

TENSORBOARD_FOLDER = "tensorboard"


class TensorBoard:
    """A hook that writes every logged number as a scalar named ``event/name``."""

    def __init__(self, workdir: Path) -> None:
        """Names the folder; nothing is opened before the run starts.

        Args:
            workdir: the run folder.
        """
        self._folder = workdir / TENSORBOARD_FOLDER
        self._writer: SummaryWriter | None = None

    def start(self, start: RunStart) -> None:
        """Opens an event file; TensorBoard hides what older files hold beyond it."""
        first = start.step + 1 if start.step else None
        self._writer = SummaryWriter(str(self._folder), purge_step=first)

    def step(self, step: int) -> None:
        """Writes nothing: an update alone is no log event."""

    def log(self, record: Record) -> None:
        """Writes the numbers of a record, rates included."""
        if self._writer is not None:
            numbers = {**scalars(record), **record["timing"]}
            for name, value in numbers.items():
                tag = f"{record['event']}/{name}"
                self._writer.add_scalar(tag, value, record["step"])

    def close(self) -> None:
        """Writes what is buffered, and closes."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
