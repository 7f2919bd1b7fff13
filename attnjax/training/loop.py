"""The training loop: restore, update, log, validate, save, stop.

It is the one place where the parts meet. Nothing in it depends on the clock or on how
often the run was interrupted: the resumed run is the unbroken one, bit for bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from attnjax.config import TrainingConfig
from attnjax.storage.checkpoint_tree import intact
from attnjax.storage.checkpoints import Checkpoints
from attnjax.training.agreement import StopVote, largest_over_processes
from attnjax.training.anomalies import Guard, GuardState, pushed, take_verdict
from attnjax.training.anomaly_report import DivergenceError
from attnjax.training.hooks import TRAIN, VALIDATION, Hook, RunStart
from attnjax.training.interruption import catch_interruption
from attnjax.training.metrics import LEARNING_RATE, SKIPPED_STEPS, Window, to_floats
from attnjax.training.progress import Progress
from attnjax.training.resumption import Resumption, differing_data
from attnjax.training.sharding import Layout, jit_train_step
from attnjax.training.state import TrainState, abstract_state, init_state
from attnjax.training.step import make_train_step
from attnjax.training.watch import GoBackError, Watch
from attnjax.types import BatchIterator, Task

__all__ = ["DivergenceError", "TrainResult", "train"]

logger = logging.getLogger(__name__)

CHECKPOINT_FOLDER = "checkpoints"
_STEPS_UNDER_WAY = 2  # keeps the device busy; more would delay Ctrl-C and the bar


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult:
    """How a call of `train` ended.

    Attributes:
        state: the state after the last update.
        step: updates done.
        scores: of the latest validation.
        best_score: the highest score of the run so far, None if there is none.
        best_step: the step of it.
        signal: the name of the one that ended it, None if none did.
        stopped_early: the patience ran out.
        compilations: programs compiled for the train step.
        seconds_to_first_step: from the call to the end of its first update, None if
            there was none to do.
    """

    state: TrainState
    step: int
    scores: dict[str, float]
    best_score: float | None
    best_step: int | None
    signal: str | None
    stopped_early: bool
    compilations: int
    seconds_to_first_step: float | None

    @property
    def interrupted(self) -> bool:
        """A signal ended it; the same call again goes on."""
        return self.signal is not None


def train(
    task: Task,
    optimizer: optax.GradientTransformation,
    batches: BatchIterator,
    config: TrainingConfig,
    *,
    seed: int,
    workdir: Path,
    hooks: Sequence[Hook] = (),
) -> TrainResult:
    """Trains to ``config.num_steps``, going on from the run folder's latest checkpoint.

    The first Ctrl-C, SIGTERM or SIGHUP finishes the step, saves and returns; a second
    Ctrl-C or SIGTERM ends the process at once. A bad update
    (`attnjax.training.anomalies`) is never applied.

    Args:
        task: loss and evaluation.
        optimizer: the update rule.
        batches: endless; its position is stored and restored.
        config: how long, when to look and to save.
        seed: of initial weights and dropout; a resumed run keeps its own.
        workdir: the run folder; checkpoints lie in ``checkpoints``.
        hooks: observers, such as `attnjax.training.observers.default_hooks`.

    Returns:
        The result.

    Raises:
        DivergenceError: if the loss or its gradient becomes NaN, infinite or a spike,
            and ``config`` does not have it passed over, or too many were.
        ValueError: if the checkpoint does not fit or is damaged, or `Task.evaluate`
            gives no score.
        StorageError: if a checkpoint cannot be saved, and ``config`` does not have
            training go on, or it was the last one.
    """
    with contextlib.ExitStack() as stack:
        folder = workdir / CHECKPOINT_FOLDER
        interruption = stack.enter_context(catch_interruption())
        vote = StopVote(interruption, largest_over_processes())
        checkpoints = stack.enter_context(
            Checkpoints(
                *(folder, config.keep_checkpoints),
                damaged=config.damaged_checkpoint,
                on_save_failure=config.on_save_failure,
                differing=functools.partial(differing_data, batches),
            )
        )
        run = _Run(task, optimizer, batches, config, checkpoints, vote)
        run.restore_or_init(optimizer, seed)
        for hook in hooks:
            stack.callback(hook.close)
            hook.start(run.standing())
        while (result := run.to_the_end(hooks)) is None:
            run.go_back(optimizer, seed)
            for hook in hooks:
                hook.close()
                hook.start(run.standing())
        return result


class _Run:
    """One call of `train`."""

    def __init__(
        self,
        task: Task,
        optimizer: optax.GradientTransformation,
        batches: BatchIterator,
        config: TrainingConfig,
        checkpoints: Checkpoints,
        vote: StopVote,
    ) -> None:
        self._began = time.perf_counter()
        self._task, self._batches, self._config = task, batches, config
        self._checkpoints, self._vote = checkpoints, vote
        self._guard = Guard.of(config)
        self._layout = Layout.over(parallel=config.parallel)
        step = make_train_step(
            task,
            optimizer,
            accumulate_steps=config.accumulate_steps,
            ema_decay=config.ema_decay,
            guard=self._guard,
        )
        self._update = jit_train_step(step, self._layout)
        self._extend = jax.jit(Window.extended)
        self._open_window = jax.jit(Window.of)
        self._watch = Watch(
            *(self._guard, vote, batches, config.accumulate_steps),
            workdir=checkpoints.folder.parent,
            saved_steps=checkpoints.steps,
        )
        self._window: Window | None = None
        self._progress = Progress()
        self._seconds_before = 0.0
        self._seconds_to_first_step: float | None = None
        self._saved_step: int | None = None
        self._step = 0

    def restore_or_init(
        self, optimizer: optax.GradientTransformation, seed: int
    ) -> None:
        with_ema = self._config.ema_decay is not None
        init = functools.partial(init_state, self._task, optimizer, with_ema=with_ema)
        abstract = abstract_state(self._task, optimizer, with_ema=with_ema)
        num_parameters = sum(leaf.size for leaf in jax.tree.leaves(abstract.params))
        logger.info("%s parameters", f"{num_parameters:,}")
        places = self._layout.of_state(abstract)
        target = self._layout.placed(abstract)
        resumed = self._checkpoints.resume(target)
        if resumed is None:
            self._saved_step = None
            self._state = jax.jit(init, out_shardings=places)(seed)
            self._remember(self._guard.begin())
            self._compare_scores()
            return
        self._step, self._state, extra = resumed
        with intact(self._checkpoints.folder / str(self._step)):
            stored = Resumption.of(extra, self._guard)
            self._batches.set_state(stored.batches)
        self._remember(stored.guard)
        self._saved_step = self._step
        self._progress = stored.progress
        self._watch.losses = self._progress.losses
        self._seconds_before = self._progress.seconds
        self._compare_scores()
        if stored.window is not None:
            self._window = self._layout.place_state(stored.window)
        logger.info("going on from step %d of %s", self._step, self._checkpoints.folder)

    def _compare_scores(self) -> None:
        measure = self._task.measure
        best = self._checkpoints.compare_by(measure)
        if (before := self._progress.compare_by(measure, best)) is not None:
            logger.warning(
                "scores are measured on something else from here on (%s -> %s): those "
                "of before are not compared with them, and the patience begins anew",
                before,
                measure,
            )

    def go_back(self, optimizer: optax.GradientTransformation, seed: int) -> None:
        """Restores what the last checkpoint holds, but for where the data stand."""
        position = self._batches.get_state()
        memory = jax.device_get(self._state.guard)
        bad_steps = np.asarray(pushed(memory, memory.halted_at))
        seconds = self._seconds_before
        del self._state  # room for the restored one
        self._step, self._window, self._progress = 0, None, Progress()
        self.restore_or_init(optimizer, seed)
        self._remember(self._state.guard._replace(bad_steps=bad_steps))
        self._batches.set_state(position)
        self._seconds_before = seconds  # time goes on

    def _remember(self, memory: GuardState) -> None:
        guard = self._layout.place_state(memory)
        self._state = dataclasses.replace(self._state, guard=guard)

    def standing(self) -> RunStart:
        evaluated = self._progress.evaluated_step == self._step
        return RunStart(self._step, self._config.num_steps, self._task.unit, evaluated)

    def to_the_end(self, hooks: Sequence[Hook]) -> TrainResult | None:
        """Trains on; None if a bad step asks to go back."""
        try:
            self._evaluate_if_due(hooks)  # if a signal had put it off
            while not self._is_done() and self._vote.decided is None:
                self._do_step_and_what_is_due(hooks)
            self._save()
        except GoBackError:
            return None
        return self._result()

    def _do_step_and_what_is_due(self, hooks: Sequence[Hook]) -> None:
        window = self._do_step()
        for hook in hooks:
            hook.step(self._step)
        if self._is_at(self._config.log_every):
            self._log(window, hooks)
        improved = self._evaluate_if_due(hooks)
        if improved or self._is_at(self._config.checkpoint_every):
            self._save()

    def _is_at(self, interval: int) -> bool:
        return self._step % interval == 0 or self._step == self._config.num_steps

    def _out_of_patience(self) -> bool:
        patience = self._config.patience
        return patience is not None and self._progress.stale_evaluations >= patience

    def _is_done(self) -> bool:
        return self._step >= self._config.num_steps or self._out_of_patience()

    def _do_step(self) -> Window:
        begin = time.perf_counter()
        compiled_before = self._update.compile_seconds
        position = self._batches.get_state()
        self._state, measured = self._update(self._state, self._next_batch())
        metrics, verdict = take_verdict(measured)
        self._step += 1
        if self._window is None:
            self._window = self._open_window(metrics)
        else:
            self._window = self._extend(self._window, metrics)
        self._watch.follow(self._step, verdict, position)
        if self._seconds_to_first_step is None:
            jax.block_until_ready(metrics)
            self._seconds_to_first_step = time.perf_counter() - self._began
            logger.info("first step after %.1f s", self._seconds_to_first_step)
        window = self._window
        self._settle(under_way=_STEPS_UNDER_WAY)
        compiling = self._update.compile_seconds - compiled_before
        self._progress.window_seconds += time.perf_counter() - begin - compiling
        return window

    def _settle(self, *, under_way: int = 0) -> None:
        self._watch.settle(self._state, self._saved_step, under_way=under_way)

    def _next_batch(self) -> Any:
        if self._config.accumulate_steps == 1:
            return next(self._batches)
        return [next(self._batches) for _ in range(self._config.accumulate_steps)]

    def _log(self, window: Window, hooks: Sequence[Hook]) -> None:
        begin = time.perf_counter()
        self._settle()
        metrics = jax.device_get(window.metrics)
        values = to_floats(metrics)
        values[SKIPPED_STEPS], steps = map(float, metrics[SKIPPED_STEPS])
        if values[SKIPPED_STEPS] == steps:  # nothing was measured
            kept = (LEARNING_RATE, SKIPPED_STEPS)
            values = {k: v if k in kept else math.nan for k, v in values.items()}
        if self._guard.on_bad_step != "skip":
            del values[SKIPPED_STEPS]
        seconds = self._progress.window_seconds + time.perf_counter() - begin
        unit = self._task.unit.replace(" ", "_")
        timing = {
            "steps_per_second": steps / seconds,
            f"{unit}_per_second": float(metrics["loss"].count) / seconds,
            "compilations": self._update.compilations,
        }
        self._emit(hooks, TRAIN, {"loss": values["loss"], **values}, timing)
        self._window = None
        self._progress.window_seconds = 0.0

    def _emit(
        self,
        hooks: Sequence[Hook],
        event: str,
        values: dict[str, float],
        timing: dict[str, float],
    ) -> None:
        self._progress.seconds = (
            self._seconds_before + time.perf_counter() - self._began
        )
        timing = {"seconds": self._progress.seconds, **timing}
        record = {"event": event, "step": self._step, **values, "timing": timing}
        for hook in hooks:
            hook.log(record)

    def _evaluate_if_due(self, hooks: Sequence[Hook]) -> bool:
        """Validates if this step asks for it; returns whether the score is the best."""
        due = self._is_at(self._config.evaluate_every) and self._step > 0
        if not due or self._progress.evaluated_step == self._step:
            return False
        self._settle()
        begin = time.perf_counter()
        evaluate = functools.partial(
            self._task.evaluate, self._state.evaluation_variables
        )
        measured = self._vote.attempt(evaluate)
        if measured is None:
            return False
        scores = {name: float(value) for name, value in measured.items()}
        if self._task.score not in scores:
            raise ValueError(
                f"the task ranks checkpoints by {self._task.score!r}, but its "
                f"evaluation gave {sorted(scores)}; name one of these in `score`."
            )
        score = scores[self._task.score]
        self._progress.note(self._step, scores, score)
        self._checkpoints.set_score(self._step, score)
        timing = {"evaluation_seconds": time.perf_counter() - begin}
        self._emit(hooks, VALIDATION, scores, timing)
        return self._progress.best_step == self._step

    def _save(self) -> None:
        if self._step == self._saved_step:
            return
        self._settle()
        self._watch.note_saved(self._step)
        self._progress.losses = self._watch.losses
        self._progress.seconds = (
            self._seconds_before + time.perf_counter() - self._began
        )
        position, guard = self._batches.get_state(), self._state.guard
        standing = Resumption(position, self._progress, self._window, guard)
        # Without the guard's memory, which is beside it: its size is a setting.
        bare = dataclasses.replace(self._state, guard=None)
        if self._checkpoints.save(self._step, bare, standing.to_json()):
            self._saved_step = self._step

    def _result(self) -> TrainResult:
        return TrainResult(
            state=self._state,
            step=self._step,
            scores=self._progress.scores,
            best_score=self._progress.best_score,
            best_step=self._progress.best_step,
            signal=self._vote.decided,
            stopped_early=self._out_of_patience(),
            compilations=self._update.compilations,
            seconds_to_first_step=self._seconds_to_first_step,
        )
