"""The training loop: restore, update, log, validate, save, stop.

It is the one place where the parts meet. Nothing in it depends on the clock or on how
often the run was interrupted: the resumed run is the unbroken one, bit for bit.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from attnjax.config import TrainingConfig
from attnjax.training.checkpoints import Checkpoints
from attnjax.training.hooks import TRAIN, VALIDATION, Hook, RunStart
from attnjax.training.interruption import Interruption, catch_interruption
from attnjax.training.metrics import GRADIENT_NORM, Window, to_floats
from attnjax.training.progress import Progress
from attnjax.training.sharding import Layout, jit_train_step
from attnjax.training.state import TrainState, init_state
from attnjax.training.step import make_train_step
from attnjax.types import BatchIterator, Metrics, Task

logger = logging.getLogger(__name__)

CHECKPOINT_FOLDER = "checkpoints"
_STEPS_IN_FLIGHT = 2  # keeps the device busy; more would delay Ctrl-C and the bar


class DivergenceError(ArithmeticError):
    """The loss or its gradient is no number any more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult:
    """How a call of `train` ended.

    Attributes:
        state: the state after the last update.
        step: updates done.
        scores: of the latest validation.
        best_score: the highest score of the run so far, None if there is none.
        best_step: the step of it.
        interrupted: a signal ended it; the same call again goes on.
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
    interrupted: bool
    stopped_early: bool
    compilations: int
    seconds_to_first_step: float | None


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

    The first Ctrl-C or SIGTERM finishes the step, saves and returns; a second one ends
    the process at once.

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
        DivergenceError: if the loss or its gradient becomes NaN or infinite.
        ValueError: if the checkpoint does not fit, or `Task.evaluate` gives no score.
    """
    with contextlib.ExitStack() as stack:
        folder = workdir / CHECKPOINT_FOLDER
        interruption = stack.enter_context(catch_interruption())
        checkpoints = stack.enter_context(Checkpoints(folder, config.keep_checkpoints))
        run = _Run(task, optimizer, batches, config, checkpoints)
        run.restore_or_init(optimizer, seed)
        for hook in hooks:
            stack.callback(hook.close)
            hook.start(run.standing())
        return run.to_the_end(interruption, hooks)


class _Run:
    """One call of `train`."""

    def __init__(
        self,
        task: Task,
        optimizer: optax.GradientTransformation,
        batches: BatchIterator,
        config: TrainingConfig,
        checkpoints: Checkpoints,
    ) -> None:
        self._began = time.perf_counter()
        self._task, self._batches, self._config = task, batches, config
        self._checkpoints = checkpoints
        self._layout = Layout.over()
        step = make_train_step(
            task,
            optimizer,
            accumulate_steps=config.accumulate_steps,
            ema_decay=config.ema_decay,
        )
        self._update = jit_train_step(step, self._layout)
        self._extend = jax.jit(Window.extended)
        self._open_window = jax.jit(Window.of)
        self._in_flight: collections.deque[Metrics] = collections.deque()
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
        abstract = jax.eval_shape(init, seed)
        num_parameters = sum(leaf.size for leaf in jax.tree.leaves(abstract.params))
        logger.info("%s parameters", f"{num_parameters:,}")
        places = self._layout.of_state(abstract)
        self._saved_step = self._checkpoints.latest_step()
        if self._saved_step is None:
            self._state = jax.jit(init, out_shardings=places)(seed)
            return
        target = jax.tree.map(_placed, abstract, places)
        self._state, extra = self._checkpoints.restore(self._saved_step, target)
        self._step = self._saved_step
        self._batches.set_state(extra["batches"])
        self._progress = Progress.from_json(extra["progress"])
        self._seconds_before = self._progress.seconds
        if extra["window"] is not None:
            window = Window.from_json(extra["window"])
            self._window = self._layout.place_state(window)
        logger.info("going on from step %d of %s", self._step, self._checkpoints.folder)

    def standing(self) -> RunStart:
        evaluated = self._progress.evaluated_step == self._step
        return RunStart(self._step, self._config.num_steps, self._task.unit, evaluated)

    def to_the_end(
        self, interruption: Interruption, hooks: Sequence[Hook]
    ) -> TrainResult:
        self._evaluate_if_due(interruption, hooks)  # if a signal had put it off
        while not self._is_done() and not interruption.requested:
            window = self._do_step()
            for hook in hooks:
                hook.step(self._step)
            if self._is_at(self._config.log_every):
                self._log(window, hooks)
            improved = self._evaluate_if_due(interruption, hooks)
            if improved or self._is_at(self._config.checkpoint_every):
                self._save()
        self._save()
        return self._result(interruption)

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
        self._state, metrics = self._update(self._state, self._next_batch())
        self._step += 1
        number = np.int32(self._step)
        if self._window is None:
            window = self._open_window(metrics, number)
        else:
            window = self._extend(self._window, metrics, number)
        self._window = window
        self._in_flight.append(metrics)
        if self._seconds_to_first_step is None:
            jax.block_until_ready(metrics)
            self._seconds_to_first_step = time.perf_counter() - self._began
            logger.info("first step after %.1f s", self._seconds_to_first_step)
        if len(self._in_flight) > _STEPS_IN_FLIGHT:
            jax.block_until_ready(self._in_flight.popleft())
        compiling = self._update.compile_seconds - compiled_before
        self._progress.window_seconds += time.perf_counter() - begin - compiling
        return window

    def _next_batch(self) -> Any:
        if self._config.accumulate_steps == 1:
            return next(self._batches)
        return [next(self._batches) for _ in range(self._config.accumulate_steps)]

    def _log(self, window: Window, hooks: Sequence[Hook]) -> None:
        begin = time.perf_counter()
        self._require_finite()
        metrics = jax.device_get(window.metrics)
        values = to_floats(metrics)
        seconds = self._progress.window_seconds + time.perf_counter() - begin
        unit = self._task.unit.replace(" ", "_")
        timing = {
            "steps_per_second": float(metrics[GRADIENT_NORM].count) / seconds,
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

    def _require_finite(self) -> None:
        bad_step = 0 if self._window is None else int(self._window.first_bad_step)
        if bad_step:
            raise DivergenceError(
                f"the loss or its gradient became NaN or infinite at step {bad_step}; "
                f"the latest checkpoint in {self._checkpoints.folder} is of step "
                f"{self._saved_step}. Lower optimizer.schedule.peak, raise "
                "optimizer.schedule.warmup_steps, set optimizer.clip_norm, or train "
                "with training.precision='float32'."
            )

    def _evaluate_if_due(
        self, interruption: Interruption, hooks: Sequence[Hook]
    ) -> bool:
        """Validates if this step asks for it; returns whether the score is the best."""
        due = self._is_at(self._config.evaluate_every) and self._step > 0
        if not due or self._progress.evaluated_step == self._step:
            return False
        self._require_finite()
        begin = time.perf_counter()
        evaluate = functools.partial(
            self._task.evaluate, self._state.evaluation_variables
        )
        measured = interruption.attempt(evaluate)
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
        self._require_finite()
        self._progress.seconds = (
            self._seconds_before + time.perf_counter() - self._began
        )
        extra = {
            "batches": dict(self._batches.get_state()),
            "progress": self._progress.to_json(),
            "window": None if self._window is None else self._window.to_json(),
        }
        self._checkpoints.save(self._step, self._state, extra)
        self._saved_step = self._step

    def _result(self, interruption: Interruption) -> TrainResult:
        return TrainResult(
            state=self._state,
            step=self._step,
            scores=self._progress.scores,
            best_score=self._progress.best_score,
            best_step=self._progress.best_step,
            interrupted=interruption.requested is not None,
            stopped_early=self._out_of_patience(),
            compilations=self._update.compilations,
            seconds_to_first_step=self._seconds_to_first_step,
        )


def _placed(leaf: Any, place: jax.sharding.Sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)
