"""The contract between the loop and those who watch it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

TRAIN = "train"
VALIDATION = "validation"

Record = Mapping[str, Any]
"""One log event: ``event`` ("train" or "validation"), ``step``, named floats, and under
``timing`` what depends on the machine: ``seconds`` since the run began, rates."""


class RunStart(NamedTuple):
    """Where a run stands when the loop takes it up.

    Attributes:
        step: updates done, 0 for a new run.
        num_steps: updates of the whole run.
        unit: what the rates count ("target tokens").
        evaluated: whether the validation of this very step is done.
    """

    step: int
    num_steps: int
    unit: str
    evaluated: bool


class Hook(Protocol):
    """An observer. Only what reaches `log` has been fetched from the device."""

    def start(self, start: RunStart) -> None:
        """The loop begins or goes on."""
        ...

    def step(self, step: int) -> None:
        """An update has been handed to the device."""
        ...

    def log(self, record: Record) -> None:
        """A log point or a validation."""
        ...

    def close(self) -> None:
        """The loop has ended, in whatever way."""
        ...


def scalars(record: Record) -> dict[str, float]:
    """The named numbers of a record, without its event, step and timing.

    Args:
        record: a log event.

    Returns:
        Name to value, in the order of the record.
    """
    fixed = ("event", "step", "timing")
    return {name: value for name, value in record.items() if name not in fixed}
