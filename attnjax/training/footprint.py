"""What a training run would take, told by the compiler before anything is trained."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
from jax.stages import Compiled

from attnjax.training.sharding import Layout, jit_train_step
from attnjax.training.state import TrainState
from attnjax.training.step import TrainStep
from attnjax.types import PyTree

_MEGA = 1e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Footprint:
    """Sizes of one training step, per device.

    Attributes:
        num_parameters: of the model.
        parameter_bytes: of the master weights.
        optimizer_bytes: of the optimiser's state and averages of the weights.
        batch_bytes: of the batch.
        gradient_bytes: of the gradient that one micro-batch hands on.
        temporary_bytes: activations and work space of loss and gradient; None where
            the backend does not tell.
        flops: floating-point operations of loss and gradient, by the compiler's count
            (a loop's body counts once); None where it has none.
    """

    num_parameters: int
    parameter_bytes: int
    optimizer_bytes: int
    batch_bytes: int
    gradient_bytes: int
    temporary_bytes: int | None
    flops: float | None

    @property
    def peak_bytes(self) -> int | None:
        """All of it at once, which is when memory is most in use."""
        if self.temporary_bytes is None:
            return None
        parts = self.parameter_bytes, self.optimizer_bytes, self.batch_bytes
        return sum(parts) + self.gradient_bytes + self.temporary_bytes

    def describe(self) -> str:
        """The figures as lines for a reader, in units of 10^6."""
        rows = [
            ("parameters", f"{self.num_parameters:,}"),
            ("weights", _megabytes(self.parameter_bytes)),
            ("optimiser", _megabytes(self.optimizer_bytes)),
            ("gradient", _megabytes(self.gradient_bytes)),
            ("batch", _megabytes(self.batch_bytes)),
            ("activations and work space", _megabytes(self.temporary_bytes)),
            ("peak", _megabytes(self.peak_bytes)),
        ]
        if self.flops is not None:
            rows.append(("loss and gradient", f"{self.flops / 1e9:,.1f} GFLOP"))
        return "\n".join(f"{name + ':':28}{value}" for name, value in rows)


def footprint(
    step: TrainStep,
    layout: Layout,
    state: TrainState,
    batch: PyTree,
    program: Compiled | None = None,
) -> Footprint:
    """Compiles loss and gradient for a batch and asks the compiler what they take.

    Args:
        step: the train step.
        layout: where state and batch live.
        state: abstract arrays, as `attnjax.training.state.abstract_state` gives them.
        batch: numpy arrays of this process, of the largest shape.
        program: what the compiler made of it (`CompiledStep.gradient_program`), if it
            has been asked before.

    Returns:
        The sizes per device.
    """
    placed = layout.placed(state)
    if program is None:
        program = jit_train_step(step, layout).gradient_program(placed, batch)
    analysis = program.memory_analysis()
    costs: Any = program.cost_analysis()
    rest = (placed.optimizer_state, placed.ema, placed.model_state)
    return Footprint(
        num_parameters=sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        parameter_bytes=_bytes(placed.params),
        optimizer_bytes=_bytes(rest),
        batch_bytes=_bytes(layout.place_batch(batch)),
        gradient_bytes=_bytes(placed.params),
        temporary_bytes=None if analysis is None else int(analysis.temp_size_in_bytes),
        flops=costs.get("flops") if isinstance(costs, dict) else None,
    )


def memory_advice(tokens_per_batch: int, accumulate_steps: int, precision: str) -> str:
    """What to lower when a step does not fit, with values to begin with.

    Args:
        tokens_per_batch: ``data.tokens_per_batch`` of the run.
        accumulate_steps: ``training.accumulate_steps`` of the run.
        precision: ``training.precision`` of the run.

    Returns:
        A sentence.
    """
    half = max(1, tokens_per_batch // 2)
    advice = [
        f"--data.tokens-per-batch {half} with --training.accumulate-steps "
        f"{2 * accumulate_steps} (the same update in half the activations)"
    ]
    if precision != "bfloat16":
        advice.append("--training.precision bfloat16 on a GPU or TPU")
    advice.append("shorter --data.bucket-lengths, or a narrower or shallower model")
    return (
        "the step does not fit into the memory of the device; lower what it takes: "
        f"{'; '.join(advice)}. --dry-run tells what a step takes."
    )


def _bytes(tree: PyTree) -> int:
    """Of what each device holds of placed arrays."""
    sizes = []
    for leaf in jax.tree.leaves(tree):
        shape, dtype = leaf.sharding.shard_shape(leaf.shape), leaf.dtype
        if jax.numpy.issubdtype(dtype, jax.dtypes.prng_key):
            key = jax.eval_shape(jax.random.key_data, leaf)
            shape, dtype = key.shape, key.dtype
        sizes.append(math.prod(shape) * dtype.itemsize)
    return sum(sizes)


def _megabytes(count: int | None) -> str:
    return "not told by this backend" if count is None else f"{count / _MEGA:,.1f} MB"
