"""What a checkpoint holds beside the state, read as if a stranger had written it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from attnjax.training.anomalies import Guard, GuardState
from attnjax.training.metrics import GRADIENT_NORM, SKIPPED_STEPS, Window
from attnjax.training.progress import Progress
from attnjax.types import BatchIterator


class Resumption(NamedTuple):
    """Where a run stands besides its state.

    Attributes:
        batches: the position in the data.
        progress: scores, patience and clocks.
        window: the metrics since the last log point, None right behind one.
        guard: the memory of bad steps.
    """

    batches: Mapping[str, Any]
    progress: Progress
    window: Window | None
    guard: GuardState

    @staticmethod
    def of(extra: Mapping[str, Any], guard: Guard) -> Resumption:
        """Reads what `to_json` gave.

        Args:
            extra: the values.
            guard: the rule of the present session.

        Returns:
            The standing.

        Raises:
            LookupError: if a value is missing.
            TypeError: if one is of another type, or `ValueError` or `ArithmeticError`.
        """
        window = extra["window"]
        if window is not None:  # of an older version: nothing was skipped
            window = {SKIPPED_STEPS: [0.0, window[GRADIENT_NORM][1]], **window}
        return Resumption(
            batches=extra["batches"],
            progress=Progress.from_json(extra["progress"]),
            window=None if window is None else Window.from_json(window),
            guard=guard.begin(extra.get("guard")),
        )

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "batches": dict(self.batches),
            "progress": self.progress.to_json(),
            "window": None if self.window is None else self.window.to_json(),
            "guard": self.guard.to_json(),
        }


def differing_data(batches: BatchIterator, extra: Mapping[str, Any]) -> list[str]:
    """What of the data is not as it was when a checkpoint was saved.

    Args:
        batches: the data of the present session.
        extra: what was saved beside the state.

    Returns:
        A line, old and new, for each difference; none where the batches cannot tell.
    """
    differences = getattr(batches, "differences", None)
    return [] if differences is None else differences(extra["batches"])
