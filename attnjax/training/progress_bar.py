"""What a person at the terminal sees of a run; elsewhere plain lines."""

from __future__ import annotations

import datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from attnjax.training.hooks import TRAIN, Record, RunStart, scalars


class ProgressBar:
    """A hook: a bar with loss, rates and time left, and a line for each validation."""

    def __init__(self, console: Console | None = None) -> None:
        """Chooses where to write.

        Args:
            console: of rich; None means standard error.
        """
        self._console = Console(stderr=True) if console is None else console
        self._progress: Progress | None = None
        self._bar = TaskID(0)
        self._num_steps = 0

    def start(self, start: RunStart) -> None:
        """Shows the bar, if there is a terminal."""
        self._num_steps = start.num_steps
        if not self._console.is_terminal:
            return
        self._progress = Progress(
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            console=self._console,
            refresh_per_second=4,
            expand=True,
        )
        self._bar = self._progress.add_task(
            "", completed=start.step, total=start.num_steps, status="compiling"
        )
        self._progress.start()
        self._console.show_cursor(True)  # a second Ctrl-C ends us without a chance to

    def step(self, step: int) -> None:
        """Moves the bar."""
        if self._progress is not None:
            self._progress.update(self._bar, completed=step)

    def log(self, record: Record) -> None:
        """Shows a record beside the bar, or as a line."""
        text = self._describe(record)
        if self._progress is not None and record["event"] == TRAIN:
            self._progress.update(self._bar, status=text)
            return
        head = f"step {record['step']:,}/{self._num_steps:,} {record['event']}"
        self._console.print(f"{head}: {text}", highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leaves the bar as it stands."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _describe(self, record: Record) -> str:
        words = [f"{name} {value:.4g}" for name, value in scalars(record).items()]
        for name, value in record["timing"].items():
            if name.endswith("_per_second"):
                unit = name.removesuffix("_per_second").replace("_", " ")
                words.append(f"{value:,.1f} {unit}/s")
        rate = record["timing"].get("steps_per_second")
        if rate:
            seconds = round((self._num_steps - record["step"]) / rate)
            words.append(f"{datetime.timedelta(seconds=seconds)} left")
        return ", ".join(words)
