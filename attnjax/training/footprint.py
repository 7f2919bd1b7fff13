"""What a training run would take, told by the compiler before anything is trained."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from attnjax.training.sharding import Layout
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
    step: TrainStep, layout: Layout, state: TrainState, batch: PyTree
) -> Footprint:
    """Compiles loss and gradient for a batch and asks the compiler what they take.

    Args:
        step: the train step.
        layout: where state and batch live.
        state: abstract arrays, as `jax.eval_shape` gives them.
        batch: numpy arrays of this process, of the largest shape.

    Returns:
        The sizes per device.
    """
    placed = jax.tree.map(_placed, state, layout.of_state(state))
    compiled = (
        jax.jit(step.gather)
        .lower(placed, placed.model_state, layout.place_batch(batch), np.int32(0))
        .compile()
    )
    analysis = compiled.memory_analysis()
    costs: Any = compiled.cost_analysis()
    rest = (state.optimizer_state, state.ema, state.model_state)
    return Footprint(
        num_parameters=sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        parameter_bytes=_bytes(state.params),
        optimizer_bytes=_bytes(rest),
        batch_bytes=_bytes(batch) // layout.mesh.local_mesh.size,
        gradient_bytes=_bytes(state.params),
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


def _placed(leaf: Any, place: jax.sharding.Sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)


def _bytes(tree: PyTree) -> int:
    sizes = []
    for leaf in jax.tree.leaves(tree):
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.eval_shape(jax.random.key_data, leaf)
        sizes.append(int(np.prod(leaf.shape)) * leaf.dtype.itemsize)
    return sum(sizes)


def _megabytes(count: int | None) -> str:
    return "not told by this backend" if count is None else f"{count / _MEGA:,.1f} MB"
