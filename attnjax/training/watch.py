"""The steps under way, and what is done when one of them turns out to be bad."""

from __future__ import annotations

import collections
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from attnjax.training.agreement import StopVote
from attnjax.training.anomalies import Guard, Verdict
from attnjax.training.anomaly_report import (
    ADVICE,
    Anomaly,
    DivergenceError,
    describe_batches,
    where_to_go_on,
)
from attnjax.training.state import TrainState
from attnjax.types import BatchIterator

logger = logging.getLogger(__name__)


class GoBackError(Exception):
    """Because of a bad step, the run goes back to its last checkpoint.

    The batches stand behind the bad ones: they are not to be met again.
    """


class _UnderWay(NamedTuple):
    """A step that was handed to the device.

    Attributes:
        step: its number.
        verdict: on its update, to come.
        position: in the data, before its batch.
        ballot: of the vote whether to stop.
    """

    step: int
    verdict: Verdict
    position: Mapping[str, Any]
    ballot: Any


class Watch:
    """Follows the steps, oldest first, and reads what they found once they are done.

    Attributes:
        losses: of the weights that were saved and of the initial ones, by the number of
            updates; measured by the step that follows.
    """

    def __init__(
        self,
        guard: Guard,
        vote: StopVote,
        batches: BatchIterator,
        batches_per_step: int,
        workdir: Path,
        saved_steps: Callable[[], list[int]],
    ) -> None:
        """Begins with no step under way.

        Args:
            guard: the rule that judges the steps.
            vote: taken at each step.
            batches: read again to name those of a bad step.
            batches_per_step: how many a step takes.
            workdir: the run folder, for reports.
            saved_steps: of the checkpoints there are, rising.
        """
        self._guard, self._vote = guard, vote
        self._batches, self._batches_per_step = batches, batches_per_step
        self._workdir = workdir
        self._saved_steps = saved_steps
        self._latest_loss = math.inf
        self._latest_good_step = 0
        self.losses: dict[int, float] = {}
        self._under_way: collections.deque[_UnderWay] = collections.deque()

    def follow(self, step: int, verdict: Verdict, position: Mapping[str, Any]) -> None:
        """Takes up a step that was handed to the device; waits for nothing.

        Args:
            step: its number.
            verdict: on its update, still being computed.
            position: of the batches, before the step.
        """
        for fetched in (verdict.bad, verdict.loss):
            fetched.copy_to_host_async()  # type: ignore[union-attr]  # never numpy here
        self._under_way.append(_UnderWay(step, verdict, position, self._vote.cast()))

    def note_saved(self, step: int) -> None:
        """Takes the latest loss for that of the saved weights, until the next step.

        Args:
            step: of a checkpoint, all steps up to which are settled.
        """
        if math.isfinite(self._latest_loss):
            self.losses[step] = self._latest_loss

    def settle(
        self, state: TrainState, saved_step: int | None, *, under_way: int = 0
    ) -> None:
        """Waits for all steps but the latest, and acts if one was bad.

        Args:
            state: the latest, for the names of its parameters and the guard's memory.
            saved_step: of the last checkpoint.
            under_way: how many of the latest steps not to wait for.

        Raises:
            GoBackError: if the run is to go back.
            DivergenceError: if it is to end.
        """
        while len(self._under_way) > under_way:
            step = self._under_way.popleft()
            is_bad = bool(step.verdict.bad)
            self._vote.count(step.ballot)
            loss = float(step.verdict.loss)
            if math.isfinite(loss) and not is_bad:
                self._latest_loss, self._latest_good_step = loss, step.step
                if step.step - 1 in (0, saved_step):
                    self.losses[step.step - 1] = loss
            if is_bad:
                self._answer(step, state, saved_step)

    def _answer(
        self, bad: _UnderWay, state: TrainState, saved_step: int | None
    ) -> None:
        action = self._action(bad, state)
        now = self._batches.get_state()
        count = self._batches_per_step
        batches = describe_batches(self._batches, bad.position, count)
        anomaly = Anomaly.of(bad.step, bad.verdict, action, state.params, batches)
        path = anomaly.write(self._workdir)
        more = f"; more in {path}" if path else ""
        if action == "skip":
            logger.warning("left out the update: %s%s", anomaly, more)
            self._batches.set_state(now)
            return
        self._under_way.clear()
        if action == "rollback":
            latest = (
                "there is none" if saved_step is None else f"it is of step {saved_step}"
            )
            logger.warning(
                "going back to the last checkpoint (%s): %s%s", latest, anomaly, more
            )
            raise GoBackError
        losses = dict(self.losses)
        if saved_step is not None and self._latest_good_step <= saved_step:
            # No good step has shown that the saved weights are sound.
            losses[saved_step] = (
                anomaly.loss if math.isfinite(anomaly.loss) else math.inf
            )
        raise DivergenceError(
            f"{anomaly}{more}; its update was not applied, and "
            f"{where_to_go_on(losses, self._saved_steps())}. {ADVICE}"
        )

    def _action(self, bad: _UnderWay, state: TrainState) -> str:
        wanted = self._guard.on_bad_step
        if not bad.verdict.halted_at:
            return wanted
        exhausted = self._guard.is_exhausted(jax.device_get(state.guard), bad.step)
        return "stop" if wanted == "skip" or exhausted else wanted
