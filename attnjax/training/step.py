"""The train step: one pure function of state and batch.

It runs under `jax.jit` with sharded batches, where a sum over the batch axis is a sum
over all devices, and under `jax.pmap`, where ``axis_name`` says what to sum over.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from attnjax.training.anomalies import VERDICT, Guard, GuardState, Verdict
from attnjax.training.metrics import (
    GRADIENT_NORM,
    LEARNING_RATE,
    SKIPPED_STEPS,
    add_metrics,
    safe_divisor,
)
from attnjax.training.optimizers import latest_rate
from attnjax.training.state import TrainState
from attnjax.types import Array, Metrics, PyTree, Ratio, Task


class Gathered(NamedTuple):
    """What micro-batches have contributed to an update so far.

    Attributes:
        gradients: of the *summed* loss, in the structure of the parameters.
        metrics: sums and counts.
        model_state: the non-parameter collections after the latest micro-batch.
    """

    gradients: PyTree
    metrics: dict[str, Ratio]
    model_state: PyTree


class _Proposal(NamedTuple):
    """What an update is computed from, besides the state.

    Attributes:
        gradients: of the loss summed over all devices and micro-batches. Not yet
            divided, because what crosses into a branch is written to memory.
        divisor: scalar, of the gradients.
        norm: scalar, the global norm of the divided gradients.
        model_state: the non-parameter collections after the update.
    """

    gradients: PyTree
    divisor: Array
    norm: Array
    model_state: PyTree


@dataclasses.dataclass(frozen=True)
class TrainStep:
    """``step(state, batch) -> (state, metrics)``, and the parts it is made of.

    The parts are public so that a compiler can take them apart: `gather` depends on the
    shape of a batch, `add` and `apply` do not. Compiled apart, k micro-batches of n
    bucket shapes need n + 2 programs and not n^k.

    Attributes:
        task: the loss.
        optimizer: the update rule.
        axis_name: the mapped axis under `jax.pmap`, None under `jax.jit`.
        accumulate_steps: micro-batches per update.
        ema_decay: of the moving average of the weights, None if the state has none.
        guard: judges every update before it is applied, None if the state has no
            memory for one.
    """

    task: Task
    optimizer: optax.GradientTransformation
    axis_name: str | None = None
    accumulate_steps: int = 1
    ema_decay: float | None = None
    guard: Guard | None = None

    def __call__(
        self, state: TrainState, batch: PyTree
    ) -> tuple[TrainState, dict[str, Ratio]]:
        """One update; with accumulation ``batch`` is a sequence of micro-batches.

        Args:
            state: the state before the update.
            batch: arrays that lead with the batch axis.

        Returns:
            The state after it, and the metrics of the batch together with the gradient
            norm (before clipping) and the learning rate.
        """
        first, *others = self.micro_batches(batch)
        gathered = self.gather(state, state.model_state, first, 0)
        for index, micro_batch in enumerate(others, start=1):
            new = self.gather(state, gathered.model_state, micro_batch, index)
            gathered = self.add(gathered, new)
        return self.apply(state, gathered)

    def micro_batches(self, batch: PyTree) -> tuple[PyTree, ...]:
        """The batches of one update.

        Args:
            batch: one batch, or a sequence of them if the step accumulates.

        Returns:
            ``accumulate_steps`` batches.

        Raises:
            ValueError: if there are more or fewer.
        """
        if self.accumulate_steps == 1:
            return (batch,)
        if not isinstance(batch, list | tuple) or len(batch) != self.accumulate_steps:
            found = len(batch) if isinstance(batch, list | tuple) else "no sequence"
            raise ValueError(
                f"an update takes a list or tuple of {self.accumulate_steps} batches "
                f"(accumulate_steps), got {found}."
            )
        return tuple(batch)

    def gather(
        self, state: TrainState, model_state: PyTree, batch: PyTree, index: Array | int
    ) -> Gathered:
        """Gradients of the summed loss of one micro-batch.

        Args:
            state: the state before the update.
            model_state: the collections after the micro-batch before.
            batch: arrays that lead with the batch axis.
            index: the number of the micro-batch, 0 for the first; part of its rng.

        Returns:
            What this micro-batch contributes, on this device.
        """
        rng = jax.random.fold_in(jax.random.fold_in(state.rng, state.step), index)
        if self.axis_name is not None:
            rng = jax.random.fold_in(rng, jax.lax.axis_index(self.axis_name))

        def summed_loss(params: PyTree) -> tuple[Array, tuple[Metrics, PyTree]]:
            variables = {"params": params, **model_state}
            metrics, new_state = self.task.loss(variables, batch, rng, train=True)
            return metrics["loss"].total, (metrics, new_state)

        differentiate = jax.grad(summed_loss, has_aux=True)
        gradients, (metrics, new_state) = differentiate(state.params)
        return Gathered(gradients, dict(metrics), dict(new_state))

    def add(self, gathered: Gathered, new: Gathered) -> Gathered:
        """Adds what a further micro-batch contributes.

        Args:
            gathered: the sum so far.
            new: of the next micro-batch.

        Returns:
            The sum of both.
        """
        return Gathered(
            gradients=jax.tree.map(jnp.add, gathered.gradients, new.gradients),
            metrics=add_metrics(gathered.metrics, new.metrics),
            model_state=new.model_state,
        )

    def apply(
        self, state: TrainState, gathered: Gathered
    ) -> tuple[TrainState, dict[str, Ratio]]:
        """The update: summed gradients over the summed count, of all devices.

        Args:
            state: the state before the update.
            gathered: of all micro-batches.

        Returns:
            The state after the update, and its metrics. With a guard, `SKIPPED_STEPS`
            and under `VERDICT` a `Verdict` are among them; those of a bad step are
            empty, but for the learning rate.

        Raises:
            ValueError: if the state has an average of weights and the step no
                ``ema_decay``, or a guard's memory and the step no guard, or the other
                way round.
        """
        gradients, metrics, model_state = gathered
        if self.axis_name is not None:
            gradients, metrics = jax.lax.psum((gradients, metrics), self.axis_name)
            model_state = jax.tree.map(self._mean_over_devices, model_state)
        loss, count = metrics["loss"]
        divisor = safe_divisor(count)
        means = _divided(gradients, divisor)
        norm = optax.tree.norm(means)
        proposal = _Proposal(gradients, divisor, norm, model_state)
        metrics = {**metrics, GRADIENT_NORM: _measured(norm)}
        if (self.guard is None) != (state.guard is None):
            raise ValueError(
                "a train step with a guard needs a state with its memory, and the "
                "other way round; give make_train_step(guard=...) and "
                "state.replace(guard=guard.begin()) alike."
            )
        if self.guard is None or state.guard is None:
            new_state = self._updated(state, proposal)
        else:
            judge, step = self.guard.judge, state.step + 1
            memory, verdict = judge(state.guard, step, loss / divisor, means)
            new_state = self._updated_if_good(state, proposal, memory, verdict)
            metrics = _without_bad(metrics, verdict)
        rate = latest_rate(new_state.optimizer_state)
        if rate is not None:
            metrics[LEARNING_RATE] = _measured(rate)
        return new_state, metrics

    def _updated(self, state: TrainState, proposal: _Proposal) -> TrainState:
        gradients, divisor, norm, model_state = proposal
        optimizer = optax.with_extra_args_support(self.optimizer)
        updates, optimizer_state = optimizer.update(
            _divided(gradients, divisor),
            state.optimizer_state,
            state.params,
            gradient_norm=norm,
        )
        params = optax.apply_updates(state.params, updates)
        return dataclasses.replace(
            state,
            step=state.step + 1,
            params=params,
            model_state=model_state,
            optimizer_state=optimizer_state,
            ema=self._averaged(state, params),
        )

    def _updated_if_good(
        self,
        state: TrainState,
        proposal: _Proposal,
        memory: GuardState,
        verdict: Verdict,
    ) -> TrainState:
        """The update, or what a bad one leaves: the step's number, unless halted."""
        running = verdict.halted_at == 0

        def branch(good: Array, state: TrainState, proposal: _Proposal) -> TrainState:
            return jax.lax.cond(
                good, self._updated, lambda old, _: old, state, proposal
            )

        def select(good: Array, state: TrainState, proposal: _Proposal) -> TrainState:
            new = self._updated(state, proposal)
            return jax.tree.map(functools.partial(jax.lax.select, good), new, state)

        # A CPU would compute the moments twice, once to select from; on accelerators a
        # selection is free, and a branch makes the host wait.
        no_key: Any = ()  # a key is nothing to select from
        bare = dataclasses.replace(state, rng=no_key, guard=None)
        new_state = jax.lax.platform_dependent(
            running & ~verdict.bad, bare, proposal, cpu=branch, default=select
        )
        return dataclasses.replace(
            new_state,
            step=jax.lax.select(running, state.step + 1, state.step),
            rng=state.rng,
            guard=memory,
        )

    def _averaged(self, state: TrainState, params: PyTree) -> PyTree | None:
        if (self.ema_decay is None) != (state.ema is None):
            has = "no average" if state.ema is None else "an average"
            raise ValueError(
                f"the train step has ema_decay={self.ema_decay}, but the state has "
                f"{has} of its weights; give init_state(with_ema=...) and "
                "make_train_step(ema_decay=...) alike."
            )
        if self.ema_decay is None:
            return None
        return moving_average(state.ema, params, state.step, self.ema_decay)

    def _mean_over_devices(self, leaf: Array) -> Array:
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            return jax.lax.pmean(leaf, self.axis_name)
        return leaf


def make_train_step(
    task: Task,
    optimizer: optax.GradientTransformation,
    *,
    axis_name: str | None = None,
    accumulate_steps: int = 1,
    ema_decay: float | None = None,
    guard: Guard | None = None,
) -> TrainStep:
    """The train step of a task; a pure function to be compiled by the caller.

    The gradient is that of the loss summed over all devices and micro-batches, divided
    by the count of the same: a mean of means would weigh short sentences more.

    Args:
        task: the loss.
        optimizer: the update rule.
        axis_name: the mapped axis under `jax.pmap`; None under `jax.jit`.
        accumulate_steps: micro-batches per update; above 1, ``batch`` is a sequence of
            as many batches, of any shapes.
        ema_decay: of the moving average of the weights (`moving_average`), which the
            state then holds; None for none.
        guard: judges every update; the state then holds its memory
            (`Guard.begin`). None applies whatever comes.

    Returns:
        ``step(state, batch) -> (state, metrics)``.
    """
    return TrainStep(task, optimizer, axis_name, accumulate_steps, ema_decay, guard)


def moving_average(
    average: PyTree, params: PyTree, step: Array, decay: float
) -> PyTree:
    """The exponential moving average of the weights, taken on by one update.

    ``average + (1 - d) (params - average)`` with ``d = min(decay, (1 + t) / (10 + t))``
    after ``t`` updates. The average starts at the initial weights; under a constant
    decay of 0.999 their share would still be 0.37 after 1,000 updates. The rising one
    leaves 2e-13 of it after 100 and follows at a tenth of the updates done (their mean
    age), until that reaches ``1 / (1 - decay)``.

    The source of averaging is Polyak and Juditsky 1992, who weigh all steps alike; the
    rising decay is that of TensorFlow's ``ExponentialMovingAverage(num_updates=t)``.

    Args:
        average: before the update, float32.
        params: after it, of the same structure.
        step: int32 scalar ``t``, the updates done before this one.
        decay: greater than 0 and less than 1.

    Returns:
        The average after it.
    """
    # 1 - decay is taken in Python: in float32 it would lose three of its digits.
    rate = jnp.maximum(1.0 - decay, 9.0 / (10.0 + step.astype(jnp.float32)))
    return jax.tree.map(lambda old, new: old + rate * (new - old), average, params)


def _divided(gradients: PyTree, divisor: Array) -> PyTree:
    return jax.tree.map(lambda g: g / divisor.astype(g.dtype), gradients)


def _without_bad(metrics: dict[str, Ratio], verdict: Verdict) -> dict[str, Any]:
    """Sums and counts that a bad step adds nothing to, and the verdict."""
    running = verdict.halted_at == 0
    good, skipped = running & ~verdict.bad, running & verdict.bad
    taken: dict[str, Any] = {
        name: Ratio(*(jnp.where(good, part, 0) for part in ratio))
        for name, ratio in metrics.items()
    }
    taken[SKIPPED_STEPS] = Ratio(
        skipped.astype(jnp.float32), running.astype(jnp.float32)
    )
    return {**taken, VERDICT: verdict}


def _measured(value: Array) -> Ratio:
    return Ratio(value.astype(jnp.float32), jnp.ones((), jnp.float32))
