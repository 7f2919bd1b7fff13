"""Beam search with the penalties of Wu et al. 2016 (GNMT)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.decoding.beams import (
    repeat_for_beams,
    split_rows,
    take_each,
    where_rows,
)
from attnjax.decoding.constraints import UNCONSTRAINED, Constraints
from attnjax.decoding.continuations import best_continuations
from attnjax.decoding.greedy import greedy_search
from attnjax.decoding.hypotheses import Hypotheses, SpecialTokens
from attnjax.decoding.ranking import LengthPenaltyKind, length_penalty
from attnjax.types import Array, PyTree, Step


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSettings:
    """What a beam search keeps and how it ranks.

    Attributes:
        beam_size: live hypotheses per row; 1 is greedy search.
        length_penalty: alpha, see `length_penalty`; 0 is none.
        penalty: the kind of length penalty.
        n_best: hypotheses that are returned, at most ``beam_size``.
        bonus: gives from the states ``[N, ...]`` after each hypothesis' last step what
            is added to its score, ``[N]`` and never above 0 (a coverage penalty).
        trace: reads from such states what is returned of them; leaves ``[N, ...]``.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    penalty: LengthPenaltyKind = "gnmt"
    n_best: int = 1
    bonus: Callable[[PyTree], Array] | None = None
    trace: Callable[[PyTree], PyTree] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.n_best <= self.beam_size:
            raise ValueError(
                "a beam search needs 1 <= n_best <= beam_size, got "
                f"n_best={self.n_best}, beam_size={self.beam_size}."
            )
        if self.length_penalty < 0:
            raise ValueError(
                f"length_penalty must be 0 or more, got {self.length_penalty}."
            )

    def divisor(self, lengths: Array) -> jax.Array:
        """The length penalty of outputs of so many tokens."""
        return length_penalty(lengths, self.length_penalty, self.penalty)

    def read(self, state: PyTree) -> _Reading:
        """What a state says about the hypothesis that ends in it."""
        rows = jax.tree.leaves(state)[0].shape[0]
        bonus_n = jnp.zeros(rows) if self.bonus is None else self.bonus(state)
        return _Reading(bonus_n, None if self.trace is None else self.trace(state))


class _Reading(NamedTuple):
    bonus: Array  # [N] or [B, J]
    trace: PyTree


class _Live(NamedTuple):
    """Hypotheses that can still grow; a dead one has log-probability -inf."""

    tokens: jax.Array  # [B, J, L]
    log_probabilities: jax.Array  # [B, J], falling
    reading: _Reading  # of the states after their last step


class _Pool(NamedTuple):
    """The best finished hypotheses so far; an empty place has score -inf."""

    tokens: jax.Array  # [B, N, L]
    lengths: jax.Array  # [B, N]
    log_probabilities: jax.Array  # [B, N]
    scores: jax.Array  # [B, N], falling
    trace: PyTree  # [B, N, ...]


class _Candidates(NamedTuple):
    """The best 2J extensions of the live hypotheses of a row, falling."""

    tokens: jax.Array  # [B, 2J, L]
    beams: jax.Array  # [B, 2J], which live hypothesis was extended
    log_probabilities: jax.Array  # [B, 2J]
    ends: jax.Array  # [B, 2J] bool, the extension is </s>


class _Progress(NamedTuple):
    position: jax.Array
    last: jax.Array  # [B, J]
    live: _Live
    pool: _Pool
    done: jax.Array  # [B]
    state: PyTree


def beam_search(
    step: Step,
    state: PyTree,
    limits: Array,
    *,
    special: SpecialTokens,
    max_tokens: int,
    settings: BeamSettings,
    constraints: Constraints = UNCONSTRAINED,
) -> Hypotheses:
    r"""Finds outputs of high $\log p(y) / ((5 + |y|) / 6)^\alpha + \text{bonus}$.

    Each step takes the best 2J extensions of the J live hypotheses. Those among the
    first J that end in ``</s>`` compete for the n-best pool; the best J that do not end
    live on, so that a row never runs out of live hypotheses. A row stops at its limit,
    or when not even the best live hypothesis, were it certain from here to the limit,
    could enter the pool: log-probabilities only fall, the penalty is largest at the
    limit and no bonus is above 0. Stopping therefore never changes the result, and the
    best hypothesis is the same for every ``n_best``. A beam of one is greedy search,
    which ends at the first ``</s>``.

    Pure, to be compiled by the caller; the loop ends as soon as every row has stopped.

    Args:
        step: Gives the next token's logits; called with ``[B * J]`` tokens and state
            leaves ``[B * J, ...]``. What it closes over must be repeated to match, see
            `repeat_for_beams`.
        state: What `step` starts from, every leaf ``[B, ...]``, not repeated.
        limits: ``[B]`` the most tokens that each row may generate, ``</s>`` included;
            cut to ``max_tokens``. A row of limit 0 stays empty.
        special: The ids of the vocabulary.
        max_tokens: L, the static size of the output.
        settings: Beam size J, ranking and n-best N.
        constraints: What an output must or must not contain.

    Returns:
        N hypotheses per row. Unfinished ones appear only where a row reached its limit
        with fewer than N finished ones.

    Source: Wu et al. 2016, sec. 7, without pruning.
    """
    row_limits = jnp.clip(jnp.asarray(limits, jnp.int32), 0, max_tokens)
    if settings.beam_size == 1:
        greedy = greedy_search(
            *(step, state, row_limits),
            special=special,
            max_tokens=max_tokens,
            constraints=constraints,
            trace=settings.read,
        )
        return _as_beam(greedy, settings)

    def advance(progress: _Progress) -> _Progress:
        return _advance(step, progress, row_limits, special, settings, constraints)

    start = _start(state, row_limits, special, max_tokens, settings)
    end = jax.lax.while_loop(lambda p: ~jnp.all(p.done), advance, start)
    return _ranked(end, row_limits, settings)


def _as_beam(greedy: Hypotheses, settings: BeamSettings) -> Hypotheses:
    ranks = greedy.log_probabilities / settings.divisor(greedy.lengths)
    bonus, trace = greedy.trace
    return greedy._replace(scores=ranks + bonus, trace=trace)


def _start(
    state: PyTree,
    limits: jax.Array,
    special: SpecialTokens,
    max_tokens: int,
    settings: BeamSettings,
) -> _Progress:
    (batch_size,) = limits.shape
    live_shape = (batch_size, settings.beam_size)
    pool_shape = (batch_size, settings.n_best)
    # One start per row: J equal ones would stay equal for ever.
    first_only_bj = jnp.full(live_shape, -jnp.inf).at[:, 0].set(0.0)
    repeated = repeat_for_beams(state, settings.beam_size)
    reading = split_rows(settings.read(repeated), settings.beam_size)
    return _Progress(
        position=jnp.int32(0),
        last=jnp.full(live_shape, special.bos_id, jnp.int32),
        live=_Live(
            tokens=jnp.full((*live_shape, max_tokens), special.pad_id, jnp.int32),
            log_probabilities=first_only_bj,
            reading=reading,
        ),
        pool=_Pool(
            tokens=jnp.full((*pool_shape, max_tokens), special.pad_id, jnp.int32),
            lengths=jnp.zeros(pool_shape, jnp.int32),
            log_probabilities=jnp.full(pool_shape, -jnp.inf),
            scores=jnp.full(pool_shape, -jnp.inf),
            trace=jax.tree.map(lambda leaf: leaf[:, : settings.n_best], reading.trace),
        ),
        done=limits <= 0,
        state=repeated,
    )


def _extend(
    progress: _Progress, logits: Array, choosable: Array | None, special: SpecialTokens
) -> _Candidates:
    batch_size, beam_size = progress.last.shape
    # No row can place more than 2J of one live hypothesis among its best 2J, so the
    # ranking of all J * C extensions needs only these.
    width = min(2 * beam_size, logits.shape[-1])
    steps_nw, ids_nw = best_continuations(logits, width, special, choosable)
    totals_bjw = progress.live.log_probabilities[:, :, None] + split_rows(
        steps_nw, beam_size
    )
    log_probabilities_bk, places_bk = jax.lax.top_k(
        totals_bjw.reshape(batch_size, beam_size * width),
        min(2 * beam_size, beam_size * width),
    )
    ids_bk = jnp.take_along_axis(
        ids_nw.reshape(batch_size, beam_size * width), places_bk, axis=1
    )
    beams_bk = places_bk // width
    tokens_bkl = take_each(progress.live.tokens, beams_bk)
    return _Candidates(
        tokens=tokens_bkl.at[:, :, progress.position].set(ids_bk),
        beams=beams_bk,
        log_probabilities=log_probabilities_bk,
        ends=ids_bk == special.eos_id,
    )


def _advance(
    step: Step,
    progress: _Progress,
    limits: jax.Array,
    special: SpecialTokens,
    settings: BeamSettings,
    constraints: Constraints,
) -> _Progress:
    """One more token for every live hypothesis."""
    logits, next_state = step(progress.state, progress.last.reshape(-1))
    choosable = constraints.choosable(
        logits, _joined(progress.live.tokens), progress.position, special
    )
    candidates = _extend(progress, logits, choosable, special)
    reading = split_rows(settings.read(next_state), settings.beam_size)
    length = progress.position + 1
    pool = _collect(progress.pool, candidates, reading, length, settings)
    live, beams_bj = _survive(candidates, reading, settings.beam_size)
    live, pool = where_rows(
        ~progress.done, (live, pool), (progress.live, progress.pool)
    )
    best_possible = live.log_probabilities[:, 0] / settings.divisor(limits)
    return _Progress(
        position=length,
        last=live.tokens[:, :, progress.position],
        live=live,
        pool=pool,
        done=progress.done | (length >= limits) | (best_possible <= pool.scores[:, -1]),
        state=_reorder(next_state, beams_bj),
    )


def _collect(
    pool: _Pool,
    candidates: _Candidates,
    reading: _Reading,
    length: jax.Array,
    settings: BeamSettings,
) -> _Pool:
    """Lets the candidates that end compete for the pool."""
    beam_size = candidates.beams.shape[1] // 2
    first = jax.tree.map(lambda leaf: leaf[:, :beam_size], candidates)
    bonus_bj, trace = jax.tree.map(lambda leaf: take_each(leaf, first.beams), reading)
    ranks_bj = first.log_probabilities / settings.divisor(length) + bonus_bj
    new = _Pool(
        tokens=first.tokens,
        lengths=jnp.full_like(first.beams, length),
        log_probabilities=first.log_probabilities,
        scores=jnp.where(first.ends, ranks_bj, -jnp.inf),
        trace=trace,
    )
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), pool, new)
    _, places_bn = jax.lax.top_k(both.scores, pool.scores.shape[1])
    return jax.tree.map(lambda leaf: take_each(leaf, places_bn), both)


def _survive(
    candidates: _Candidates, reading: _Reading, beam_size: int
) -> tuple[_Live, jax.Array]:
    """The best J candidates that do not end, and the beam that each one extends."""
    open_bk = jnp.where(candidates.ends, -jnp.inf, candidates.log_probabilities)
    log_probabilities_bj, places_bj = jax.lax.top_k(open_bk, beam_size)
    beams_bj = take_each(candidates.beams, places_bj)
    live = _Live(
        tokens=take_each(candidates.tokens, places_bj),
        log_probabilities=log_probabilities_bj,
        reading=jax.tree.map(lambda leaf: take_each(leaf, beams_bj), reading),
    )
    return live, beams_bj


def _ranked(end: _Progress, limits: jax.Array, settings: BeamSettings) -> Hypotheses:
    """The pool, filled up with what was still live at the limit."""
    bonus_bj, trace = end.live.reading
    lengths_bj = jnp.broadcast_to(limits[:, None], end.last.shape)
    ranks_bj = end.live.log_probabilities / settings.divisor(lengths_bj) + bonus_bj
    live = _Pool(
        end.live.tokens, lengths_bj, end.live.log_probabilities, ranks_bj, trace
    )
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), end.pool, live)
    finished_bn = jnp.concatenate(
        [~jnp.isneginf(end.pool.scores), jnp.zeros_like(ranks_bj, bool)], axis=1
    )
    order_bn = jnp.lexsort((-both.scores, ~finished_bn), axis=-1)
    order_bn = order_bn[:, : end.pool.scores.shape[1]]
    # Equal keys keep their order: what is absent is an empty place of the pool.
    best = jax.tree.map(lambda leaf: take_each(leaf, order_bn), both)
    return Hypotheses(
        tokens=best.tokens,
        lengths=best.lengths,
        log_probabilities=best.log_probabilities,
        scores=best.scores,
        finished=take_each(finished_bn, order_bn),
        trace=best.trace,
    )


def _joined(leaf: jax.Array) -> jax.Array:
    """``[B, J, ...]`` to ``[B * J, ...]``."""
    return leaf.reshape(-1, *leaf.shape[2:])


def _reorder(state: PyTree, beams: jax.Array) -> PyTree:
    """Gives every beam ``[B, J]`` the state of the one it extends."""
    batch_size, beam_size = beams.shape
    rows = (jnp.arange(batch_size)[:, None] * beam_size + beams).reshape(-1)
    return jax.tree.map(lambda leaf: leaf.at[rows].get(mode="promise_in_bounds"), state)
