"""The training state: data only, so that a checkpoint is the state."""

from __future__ import annotations

import functools

import flax
import jax
import jax.numpy as jnp
import optax

from attnjax.partitioning import axes_named
from attnjax.types import Array, PyTree, Task, Variables


@flax.struct.dataclass
class TrainState:
    """Everything that training changes, and nothing else.

    Attributes:
        step: int32 scalar, the number of optimiser updates done.
        params: the float32 master weights.
        model_state: the other linen collections (running statistics), often empty.
        optimizer_state: of the optax transformation.
        rng: the key of the whole run. It is never spent: a step folds its number in.
        ema: float32, the exponential moving average of ``params``; None without one.
        guard: the memory of `attnjax.training.anomalies.Guard`; None without one.
    """

    step: Array
    params: PyTree
    model_state: dict[str, PyTree]
    optimizer_state: PyTree
    rng: Array
    ema: PyTree | None = None
    guard: PyTree | None = None

    @property
    def variables(self) -> Variables:
        """The linen collections, as a task's functions take them."""
        return {"params": self.params, **self.model_state}

    @property
    def evaluation_variables(self) -> Variables:
        """The collections to validate and translate with: averaged, if they are."""
        params = self.params if self.ema is None else self.ema
        return {"params": params, **self.model_state}


def init_state(
    task: Task,
    optimizer: optax.GradientTransformation,
    seed: Array | int,
    *,
    with_ema: bool = False,
) -> TrainState:
    """The state before the first update; pure, so it runs under `jax.jit` too.

    Args:
        task: gives the initial variables.
        optimizer: gives the initial optimiser state.
        seed: integer scalar; the same seed gives the same run.
        with_ema: whether the state holds an average of its weights.

    Returns:
        A state with ``step`` 0.

    Raises:
        ValueError: if a floating-point parameter is not float32.
    """
    init_rng, run_rng = jax.random.split(jax.random.key(seed))
    variables = dict(task.init(init_rng))
    params = variables.pop("params")
    _require_float32(params)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        model_state=variables,
        optimizer_state=optimizer.init(params),
        rng=run_rng,
        # A copy, because an update donates both and a buffer can be donated but once.
        ema=jax.tree.map(jnp.copy, params) if with_ema else None,
    )


def abstract_state(
    task: Task, optimizer: optax.GradientTransformation, *, with_ema: bool = False
) -> TrainState:
    """The shapes of `init_state`, with the names of the axes that layers give.

    Args:
        task: gives the initial variables.
        optimizer: gives the initial optimiser state.
        with_ema: whether the state holds an average of its weights.

    Returns:
        A state of abstract arrays; those of named axes are boxed
        (`flax.linen.LogicallyPartitioned`), in the optimiser's state too.
    """
    init = functools.partial(init_state, task, optimizer, with_ema=with_ema)
    with axes_named():
        return jax.eval_shape(init, 0)


def _require_float32(params: PyTree) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype != jnp.float32:
            raise ValueError(
                f"master weights are float32, but params{jax.tree_util.keystr(path)} "
                f"is {leaf.dtype}; compute in {leaf.dtype} by the module's dtype and "
                "leave its param_dtype at float32."
            )
