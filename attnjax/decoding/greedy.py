"""Greedy search: the most probable token at every position."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.decoding.beams import where_rows
from attnjax.decoding.constraints import UNCONSTRAINED, Constraints
from attnjax.decoding.continuations import best_continuations
from attnjax.decoding.hypotheses import Hypotheses, SpecialTokens
from attnjax.types import Array, PyTree, Step


class _Progress(NamedTuple):
    position: jax.Array
    last: jax.Array  # [B]
    tokens: jax.Array  # [B, L]
    lengths: jax.Array  # [B]
    log_probabilities: jax.Array  # [B]
    finished: jax.Array  # [B]
    state: PyTree
    trace: PyTree  # of the state in which each row ended


def greedy_search(
    step: Step,
    state: PyTree,
    limits: Array,
    *,
    special: SpecialTokens,
    max_tokens: int,
    constraints: Constraints = UNCONSTRAINED,
    trace: Callable[[PyTree], PyTree] = lambda state: None,
) -> Hypotheses:
    r"""Takes $y_t = \arg\max_c p(c \mid y_{<t})$ until ``</s>`` or the limit.

    Pure, to be compiled by the caller; the loop ends as soon as every row has ended.

    Args:
        step: Gives the next token's logits.
        state: What `step` starts from, every leaf ``[B, ...]``.
        limits: ``[B]`` the most tokens that each row may generate, ``</s>`` included;
            cut to ``max_tokens``. A row of limit 0 stays empty.
        special: The ids of the vocabulary.
        max_tokens: L, the static size of the output.
        constraints: What an output must or must not contain.
        trace: Reads from a state what is to be returned of it for each row; leaves
            lead with the batch axis.

    Returns:
        One hypothesis per row (J = 1), whose score is its log-probability.
    """
    row_limits = jnp.clip(jnp.asarray(limits, jnp.int32), 0, max_tokens)

    def advance(progress: _Progress) -> _Progress:
        logits_bc, next_state = step(progress.state, progress.last)
        choosable_bc = constraints.choosable(
            logits_bc, progress.tokens, progress.position, special
        )
        best = best_continuations(logits_bc, 1, special, choosable_bc)
        alive = _running(progress, row_limits)
        return _advance(progress, alive, best, special, (next_state, trace(next_state)))

    end = jax.lax.while_loop(
        lambda progress: jnp.any(_running(progress, row_limits)),
        advance,
        _start(state, trace(state), row_limits, special, max_tokens),
    )
    return Hypotheses(
        tokens=end.tokens[:, None, :],
        lengths=end.lengths[:, None],
        log_probabilities=end.log_probabilities[:, None],
        scores=end.log_probabilities[:, None],
        finished=end.finished[:, None],
        trace=jax.tree.map(lambda leaf: leaf[:, None], end.trace),
    )


def _advance(
    progress: _Progress,
    running: jax.Array,
    best: tuple[jax.Array, jax.Array],
    special: SpecialTokens,
    after: tuple[PyTree, PyTree],
) -> _Progress:
    """One more token for every running row, and the state and trace after it."""
    best_b1, ids_b1 = best
    # Where every token is impossible, the row ends here, unfinished.
    alive = running & ~jnp.isneginf(best_b1[:, 0])
    last = jnp.where(alive, ids_b1[:, 0], special.pad_id)
    state, trace = after
    return _Progress(
        position=progress.position + 1,
        last=last,
        tokens=progress.tokens.at[:, progress.position].set(last),
        lengths=progress.lengths + alive,
        log_probabilities=progress.log_probabilities
        + jnp.where(alive, best_b1[:, 0], 0.0),
        finished=progress.finished | (alive & (last == special.eos_id)),
        state=state,
        trace=where_rows(alive, trace, progress.trace),
    )


def _start(
    state: PyTree,
    trace: PyTree,
    limits: jax.Array,
    special: SpecialTokens,
    max_tokens: int,
) -> _Progress:
    (batch_size,) = limits.shape
    return _Progress(
        position=jnp.int32(0),
        last=jnp.full(batch_size, special.bos_id, jnp.int32),
        tokens=jnp.full((batch_size, max_tokens), special.pad_id, jnp.int32),
        lengths=jnp.zeros(batch_size, jnp.int32),
        log_probabilities=jnp.zeros(batch_size, jnp.float32),
        finished=jnp.zeros(batch_size, bool),
        state=state,
        trace=trace,
    )


def _running(progress: _Progress, limits: jax.Array) -> jax.Array:
    # A dead end adds no token, so that the length falls behind the position.
    return (
        ~progress.finished
        & (progress.lengths == progress.position)
        & (progress.position < limits)
    )
