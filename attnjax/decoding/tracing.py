"""Attention that is remembered while a search runs, in the state that it reorders."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.decoding.ranking import coverage_penalty
from attnjax.types import Array, PyTree, Step

AttendingStep = Callable[[PyTree, Array], tuple[Array, PyTree, Array]]
"""``step(state, tokens [B]) -> (logits [B, C], state, attention [B, S])``."""


class Traced(NamedTuple):
    """A model's state, and where the hypothesis has looked so far.

    Whatever reorders the state reorders the memory of it too.

    Attributes:
        model: the state of the model.
        valid: ``[B, S]`` bool, True on real source tokens.
        coverage: ``[B, S]`` float32, the attention summed over the steps.
        history: ``[B, L, S]`` float32, the attention of each step; L is 0 if it is not
            kept.
        position: ``[B]`` int32, how many steps were taken.
    """

    model: PyTree
    valid: Array
    coverage: Array
    history: Array
    position: Array


def begin_trace(state: PyTree, valid: Array, history_tokens: int = 0) -> Traced:
    """The state before the first step.

    Args:
        state: of the model, leaves ``[B, ...]``.
        valid: ``[B, S]`` bool, True on real source tokens.
        history_tokens: L, the most steps whose attention is kept; 0 keeps the sum only.

    Returns:
        The state that `traced_step` starts from.
    """
    rows, num_sources = valid.shape
    return Traced(
        model=state,
        valid=valid,
        coverage=jnp.zeros((rows, num_sources), jnp.float32),
        history=jnp.zeros((rows, history_tokens, num_sources), jnp.float32),
        position=jnp.zeros(rows, jnp.int32),
    )


def traced_step(step: AttendingStep) -> Step:
    """Makes a step of a search that remembers the attention.

    Args:
        step: gives logits, the next state and where it looked.

    Returns:
        A step over `Traced` states.
    """

    def advance(state: Traced, tokens: Array) -> tuple[Array, Traced]:
        logits, model_state, attention_bs = step(state.model, tokens)
        attention_bs = jnp.asarray(attention_bs, jnp.float32)
        rows = jnp.arange(attention_bs.shape[0])
        kept = (
            jnp.asarray(state.history)
            .at[rows, state.position]
            .set(attention_bs, mode="drop")
        )
        return logits, state._replace(
            model=model_state,
            coverage=state.coverage + attention_bs,
            history=kept,
            position=state.position + 1,
        )

    return advance


def coverage_bonus(beta: float) -> Callable[[Traced], jax.Array]:
    """What `attnjax.decoding.beam.BeamSettings.bonus` takes for a coverage penalty.

    Args:
        beta: see `attnjax.decoding.ranking.coverage_penalty`.

    Returns:
        A function from `Traced` states to ``[B]``.
    """
    return lambda state: coverage_penalty(state.coverage, state.valid, beta)
