"""Update rules on optax, each with its learning rate kept in the state for the log."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from attnjax.config import OptimizerConfig
from attnjax.training.schedules import Schedule, learning_rate
from attnjax.types import Array, PyTree

_NOT_DECAYED = ("bias", "scale")  # fused biases have rank 2, so rank alone misleads


class RateState(NamedTuple):
    """State of `scale_by_rate`.

    Attributes:
        num_updates: int32, updates done.
        learning_rate: float32, the rate of the latest update.
    """

    num_updates: Array
    learning_rate: Array


def make_optimizer(
    config: OptimizerConfig, num_steps: int
) -> optax.GradientTransformation:
    """Clipping by the global norm, then the update rule, then the learning rate.

    Adafactor (Shazeer and Stern 2018) uses its own second-moment decay and, as there,
    multiplies the rate by the scale of each parameter; it reads no beta and no epsilon.

    Args:
        config: the rule and its constants.
        num_steps: updates of the whole run, for the schedule.

    Returns:
        The transformation; its state holds a `RateState`.

    Raises:
        ValueError: if weight decay is asked of a rule other than AdamW.
    """
    if config.weight_decay and config.kind != "adamw":
        raise ValueError(
            f"weight_decay belongs to adamw, got weight_decay={config.weight_decay} "
            f"with kind={config.kind!r}; set kind='adamw' or weight_decay=0."
        )
    # None keeps its place, so that a run may begin to clip on the way.
    none = optax.identity()
    parts = [none if config.clip_norm is None else clip_by_norm(config.clip_norm)]
    match config.kind:
        case "adam" | "adamw":
            parts.append(
                optax.scale_by_adam(config.beta1, config.beta2, config.epsilon)
            )
            if config.weight_decay:
                parts.append(
                    optax.add_decayed_weights(config.weight_decay, mask=decay_mask)
                )
        case "adafactor":
            parts += [
                optax.scale_by_factored_rms(),
                optax.clip_by_block_rms(1.0),
                optax.scale_by_param_block_rms(),
            ]
    parts.append(scale_by_rate(learning_rate(config.schedule, num_steps)))
    return optax.chain(*parts)


def decay_mask(params: PyTree) -> PyTree:
    """True where weight decay applies: on matrices, not on biases and norm scales.

    Args:
        params: the parameters, named as linen names them.

    Returns:
        A tree of bools of the same structure.
    """

    def is_decayed(path: tuple, leaf: Array) -> bool:
        name = getattr(path[-1], "key", None) if path else None
        return jnp.ndim(leaf) > 1 and name not in _NOT_DECAYED

    return jax.tree_util.tree_map_with_path(is_decayed, params)


def clip_by_norm(most: float) -> optax.GradientTransformationExtraArgs:
    """`optax.clip_by_global_norm`, which need not compute the norm if it is known.

    Args:
        most: a larger norm is scaled down to this.

    Returns:
        The transformation; its update takes the norm as ``gradient_norm``, or computes
        it.
    """

    def init(params: PyTree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: PyTree,
        state: optax.EmptyState,
        params: PyTree = None,
        *,
        gradient_norm: Array | None = None,
        **others: Any,
    ) -> tuple[PyTree, optax.EmptyState]:
        del params, others
        norm = optax.tree.norm(updates) if gradient_norm is None else gradient_norm

        def clip(update: Array) -> Array:
            scaled = (update / norm.astype(update.dtype)) * most
            return jax.lax.select(norm < most, update, scaled)

        return jax.tree.map(clip, updates), state

    return optax.GradientTransformationExtraArgs(init, update)


def scale_by_rate(schedule: Schedule) -> optax.GradientTransformation:
    """Multiplies updates by minus the learning rate, and keeps the rate in its state.

    Args:
        schedule: count of updates done to the rate.

    Returns:
        The transformation, to be the last of a chain.
    """

    def init(params: PyTree) -> RateState:
        del params
        return RateState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32))

    def update(
        updates: PyTree, state: RateState, params: PyTree = None
    ) -> tuple[PyTree, RateState]:
        del params
        rate = jnp.asarray(schedule(state.num_updates), jnp.float32)
        scaled = jax.tree.map(lambda u: (-rate * u).astype(u.dtype), updates)
        return scaled, RateState(optax.safe_increment(state.num_updates), rate)

    return optax.GradientTransformation(init, update)


def latest_rate(optimizer_state: PyTree) -> Array | None:
    """The rate of the latest update, or None if the state holds no `RateState`.

    Args:
        optimizer_state: of any optax transformation.

    Returns:
        A float32 scalar or None.
    """
    leaves = jax.tree.leaves(optimizer_state, is_leaf=_is_rate_state)
    rates = [leaf.learning_rate for leaf in leaves if _is_rate_state(leaf)]
    return rates[-1] if rates else None


def _is_rate_state(node: PyTree) -> bool:
    return isinstance(node, RateState)
