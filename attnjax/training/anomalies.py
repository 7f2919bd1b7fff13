"""Updates that would spoil a run, found on the device before they are applied.

An update is bad if its loss or gradient is NaN or infinite, or if its gradient norm is
a multiple of the usual one (a spike). The decision is part of the compiled step: good
steps wait for nothing, and a bad one changes neither weights, moments, averages nor
running statistics. It is `jax.lax.select` and not a product with 0, for 0 times NaN is
NaN; and not `optax.apply_if_finite`, which applies what is still bad after a few times.

A bad step that may be passed over (``on_bad_step="skip"``) counts as a step: the number
of the step moves on, so that its random numbers are not used twice, while the
optimiser's own count, hence the learning rate, stays. One that may not *halts* the
state: everything in it, the number of the step included, stays as it was before, also
through the steps that are under way, until the host looks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attnjax.config import TrainingConfig
from attnjax.types import Array, Metrics, PyTree

VERDICT = "verdict"
"""Under this name a guarded step's metrics hold a `Verdict`; see `take_verdict`."""

_USUAL_STEPS = 100  # memory of the usual gradient norm


class GuardState(NamedTuple):
    """What the guard remembers between steps.

    Attributes:
        bad_steps: ``[N]`` int32, the latest bad steps passed over or gone back from,
            oldest first, 0 where there were fewer; N is ``max_bad_steps``.
        halted_at: int32, the bad step at which the state stopped, 0 if it goes on.
        usual_norm: float32, the running mean of the gradient norms of good steps.
        num_norms: int32, how many that were.
    """

    bad_steps: Array
    halted_at: Array
    usual_norm: Array
    num_norms: Array

    def to_json(self) -> dict[str, Any]:
        """Fetches what a resumed run needs as JSON values; exact for float32."""
        return {
            "bad_steps": np.asarray(self.bad_steps).tolist(),
            "usual_norm": float(self.usual_norm),
            "num_norms": int(self.num_norms),
        }


class Verdict(NamedTuple):
    """What the guard found in one step; scalars on the device but for the last.

    Attributes:
        bad: bool, whether this step would have spoiled the run.
        halted_at: int32, as in `GuardState`, after the step.
        loss: float32, the mean loss.
        gradient_norm: float32, the global norm.
        usual_norm: float32, what was usual before the step, 0 if nothing was.
        leaf_norms: ``[L]`` float32, the norm of each leaf, in the order of the tree.
    """

    bad: Array
    halted_at: Array
    loss: Array
    gradient_norm: Array
    usual_norm: Array
    leaf_norms: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guard:
    """The rule by which a step is judged; see `TrainingConfig` for the fields.

    Attributes:
        on_bad_step: what is done about a bad one.
        max_bad_steps: at most so many are passed over (or gone back from) ...
        bad_steps_within: ... in so many steps.
        spike_factor: times the usual gradient norm is a spike; None for no such rule.
        spike_warmup_steps: good steps after which a norm is usual.
    """

    on_bad_step: Literal["stop", "skip", "rollback"] = "stop"
    max_bad_steps: int = 10
    bad_steps_within: int = 1_000
    spike_factor: float | None = None
    spike_warmup_steps: int = 100

    @staticmethod
    def of(config: TrainingConfig) -> Guard:
        """The rule that a config asks for."""
        names = [field.name for field in dataclasses.fields(Guard)]
        return Guard(**{name: getattr(config, name) for name in names})

    def begin(self, stored: Mapping[str, Any] | None = None) -> GuardState:
        """The memory before the first step, or the one that was stored.

        Args:
            stored: what `GuardState.to_json` gave, also under another
                ``max_bad_steps``; None if there is nothing.

        Returns:
            The memory, as numpy arrays on the host.
        """
        stored = {} if stored is None else stored
        bad_steps = [0] * self.max_bad_steps + [*map(int, stored.get("bad_steps", ()))]
        return GuardState(
            bad_steps=np.array(bad_steps[-self.max_bad_steps :], np.int32),
            halted_at=np.asarray(0, np.int32),
            usual_norm=np.asarray(float(stored.get("usual_norm", 0.0)), np.float32),
            num_norms=np.asarray(int(stored.get("num_norms", 0)), np.int32),
        )

    def judge(
        self, memory: GuardState, step: Array, loss: Array, gradients: PyTree
    ) -> tuple[GuardState, Verdict]:
        """Judges a step; pure, to be part of it.

        Args:
            memory: before the step.
            step: int32 scalar, its number, 1 for the first.
            loss: float32 scalar, its mean loss.
            gradients: of all devices, before any clipping.

        Returns:
            The memory after the step, and the verdict.
        """
        norm = optax.tree.norm(gradients)
        bad = ~(jnp.isfinite(loss) & jnp.isfinite(norm)) | self._is_spike(memory, norm)
        running = memory.halted_at == 0
        skipped = running & bad & self._may_skip(memory, step)
        halted_at = jnp.where(running & bad & ~skipped, step, memory.halted_at)
        good = running & ~bad
        weight = jnp.maximum(1.0 / (memory.num_norms + 1.0), 1.0 / _USUAL_STEPS)
        usual = memory.usual_norm + weight * (norm - memory.usual_norm)
        after = GuardState(
            bad_steps=jnp.where(skipped, pushed(memory, step), memory.bad_steps),
            halted_at=halted_at,
            usual_norm=jnp.where(good, usual, memory.usual_norm),
            num_norms=memory.num_norms + good,
        )
        leaf_norms = [optax.tree.norm(leaf) for leaf in jax.tree.leaves(gradients)]
        verdict = Verdict(
            bad=running & bad,
            halted_at=halted_at,
            loss=loss,
            gradient_norm=norm,
            usual_norm=memory.usual_norm,
            leaf_norms=jnp.stack(leaf_norms),
        )
        return after, verdict

    def is_exhausted(self, memory: GuardState, step: Array | int) -> Array:
        """Whether ``max_bad_steps`` were bad among the latest steps before this one.

        Args:
            memory: before the step.
            step: its number.

        Returns:
            A bool scalar.
        """
        oldest = memory.bad_steps[0]
        return (oldest > 0) & (step - oldest < self.bad_steps_within)

    def _may_skip(self, memory: GuardState, step: Array) -> Array:
        if self.on_bad_step != "skip":
            return jnp.zeros((), bool)
        return ~self.is_exhausted(memory, step)

    def _is_spike(self, memory: GuardState, norm: Array) -> Array:
        if self.spike_factor is None:
            return jnp.zeros((), bool)
        is_usual = memory.num_norms >= self.spike_warmup_steps
        return is_usual & (norm > self.spike_factor * memory.usual_norm)


def pushed(memory: GuardState, step: Array | int) -> jax.Array:
    """The latest bad steps with one more, without the oldest.

    Args:
        memory: its ``bad_steps`` are read.
        step: the number of the further one.

    Returns:
        ``[N]`` int32.
    """
    return jnp.append(memory.bad_steps[1:], jnp.asarray(step, jnp.int32))


def take_verdict(metrics: Metrics) -> tuple[Metrics, Verdict]:
    """Takes apart what a guarded step has measured and what it has judged.

    Args:
        metrics: of the step.

    Returns:
        The metrics without the verdict, and the verdict.
    """
    rest = {name: value for name, value in metrics.items() if name != VERDICT}
    return rest, cast(Any, metrics[VERDICT])
