"""Beam search with the length penalty of Wu et al. 2016 (GNMT)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.decoding.continuations import best_continuations
from attnjax.decoding.greedy import greedy_search
from attnjax.decoding.hypotheses import Hypotheses, SpecialTokens
from attnjax.types import Array, PyTree, Step


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSettings:
    """What a beam search keeps and how it ranks."""

    beam_size: int = 4  # live hypotheses per row; 1 is greedy search
    length_penalty: float = 0.6  # alpha of Wu et al. 2016, eq. 14; 0 is none
    n_best: int = 1  # hypotheses that are returned, at most beam_size

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


class _Live(NamedTuple):
    """Hypotheses that can still grow; a dead one has log-probability -inf."""

    tokens: jax.Array  # [B, J, L]
    log_probabilities: jax.Array  # [B, J], falling


class _Pool(NamedTuple):
    """The best finished hypotheses so far; an empty place has score -inf."""

    tokens: jax.Array  # [B, N, L]
    lengths: jax.Array  # [B, N]
    log_probabilities: jax.Array  # [B, N]
    scores: jax.Array  # [B, N], falling


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


def repeat_for_beams(tree: PyTree, beam_size: int) -> PyTree:
    """Repeats every row of every leaf: ``[B, ...]`` to ``[B * beam_size, ...]``.

    For what `step` closes over (projected keys, masks): the rows that a beam search
    hands to it are row 0's beams, then row 1's, and so on.
    """
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, beam_size, axis=0), tree)


def length_penalty(lengths: Array, alpha: float) -> jax.Array:
    r"""$((5 + \text{length}) / 6)^\alpha$, which divides the log-probability.

    Args:
        lengths: Generated tokens, ``</s>`` included and ``<s>`` excluded; any shape.
        alpha: 0 gives 1, no penalty; larger values favour longer outputs.

    Returns:
        Float32 divisors of the shape of ``lengths``.

    Source: Wu et al. 2016, eq. 14.
    """
    return ((5.0 + jnp.asarray(lengths, jnp.float32)) / 6.0) ** alpha


def beam_search(
    step: Step,
    state: PyTree,
    limits: Array,
    *,
    special: SpecialTokens,
    max_tokens: int,
    settings: BeamSettings,
) -> Hypotheses:
    r"""Finds outputs of high $\log p(y) / ((5 + |y|) / 6)^\alpha$.

    Each step takes the best 2J extensions of the J live hypotheses. Those among the
    first J that end in ``</s>`` compete for the n-best pool; the best J that do not end
    live on, so that a row never runs out of live hypotheses. A row stops at its limit,
    or when not even the best live hypothesis, were it certain from here to the limit,
    could enter the pool: log-probabilities only fall and the penalty is largest at the
    limit. Stopping therefore never changes the result, and the best hypothesis is the
    same for every ``n_best``. A beam of one is greedy search, which ends at the first
    ``</s>``.

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
        settings: Beam size J, alpha and n-best N.

    Returns:
        N hypotheses per row. Unfinished ones appear only where a row reached its limit
        with fewer than N finished ones.

    Source: Wu et al. 2016, sec. 7, without pruning and coverage penalty.
    """
    row_limits = jnp.clip(jnp.asarray(limits, jnp.int32), 0, max_tokens)
    alpha = settings.length_penalty
    if settings.beam_size == 1:
        greedy = greedy_search(
            step, state, row_limits, special=special, max_tokens=max_tokens
        )
        divisors = length_penalty(greedy.lengths, alpha)
        return greedy._replace(scores=greedy.log_probabilities / divisors)

    end = jax.lax.while_loop(
        lambda progress: ~jnp.all(progress.done),
        lambda progress: _advance(step, progress, row_limits, special, settings),
        _start(state, row_limits, special, max_tokens, settings),
    )
    return _ranked(end, row_limits, alpha)


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
    return _Progress(
        position=jnp.int32(0),
        last=jnp.full(live_shape, special.bos_id, jnp.int32),
        live=_Live(
            tokens=jnp.full((*live_shape, max_tokens), special.pad_id, jnp.int32),
            log_probabilities=first_only_bj,
        ),
        pool=_Pool(
            tokens=jnp.full((*pool_shape, max_tokens), special.pad_id, jnp.int32),
            lengths=jnp.zeros(pool_shape, jnp.int32),
            log_probabilities=jnp.full(pool_shape, -jnp.inf),
            scores=jnp.full(pool_shape, -jnp.inf),
        ),
        done=limits <= 0,
        state=repeat_for_beams(state, settings.beam_size),
    )


def _advance(
    step: Step,
    progress: _Progress,
    limits: jax.Array,
    special: SpecialTokens,
    settings: BeamSettings,
) -> _Progress:
    """One more token for every live hypothesis."""
    alpha = settings.length_penalty
    logits, next_state = step(progress.state, progress.last.reshape(-1))
    candidates = _extend(progress, logits, special)
    pool = _collect(progress.pool, candidates, progress.position + 1, alpha)
    live, beams_bj = _survive(candidates, settings.beam_size)
    live, pool = _unless(progress.done, (live, pool), (progress.live, progress.pool))
    best_possible = live.log_probabilities[:, 0] / length_penalty(limits, alpha)
    return _Progress(
        position=progress.position + 1,
        last=live.tokens[:, :, progress.position],
        live=live,
        pool=pool,
        done=progress.done
        | (progress.position + 1 >= limits)
        | (best_possible <= pool.scores[:, -1]),
        state=_reorder(next_state, beams_bj),
    )


def _extend(progress: _Progress, logits: Array, special: SpecialTokens) -> _Candidates:
    batch_size, beam_size = progress.last.shape
    # No row can place more than 2J of one live hypothesis among its best 2J, so the
    # ranking of all J * C extensions needs only these.
    width = min(2 * beam_size, logits.shape[-1])
    steps_nw, ids_nw = best_continuations(logits, width, special)
    totals_bjw = progress.live.log_probabilities[:, :, None] + steps_nw.reshape(
        batch_size, beam_size, width
    )
    log_probabilities_bk, places_bk = jax.lax.top_k(
        totals_bjw.reshape(batch_size, beam_size * width),
        min(2 * beam_size, beam_size * width),
    )
    ids_bk = jnp.take_along_axis(
        ids_nw.reshape(batch_size, beam_size * width), places_bk, axis=1
    )
    beams_bk = places_bk // width
    tokens_bkl = _take(progress.live.tokens, beams_bk)
    return _Candidates(
        tokens=tokens_bkl.at[:, :, progress.position].set(ids_bk),
        beams=beams_bk,
        log_probabilities=log_probabilities_bk,
        ends=ids_bk == special.eos_id,
    )


def _collect(
    pool: _Pool, candidates: _Candidates, length: jax.Array, alpha: float
) -> _Pool:
    """Lets the candidates that end compete for the pool."""
    beam_size = candidates.beams.shape[1] // 2
    first = jax.tree.map(lambda leaf: leaf[:, :beam_size], candidates)
    new = _Pool(
        tokens=first.tokens,
        lengths=jnp.full_like(first.beams, length),
        log_probabilities=first.log_probabilities,
        scores=jnp.where(
            first.ends,
            first.log_probabilities / length_penalty(length, alpha),
            -jnp.inf,
        ),
    )
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), pool, new)
    _, places_bn = jax.lax.top_k(both.scores, pool.scores.shape[1])
    return jax.tree.map(lambda leaf: _take(leaf, places_bn), both)


def _survive(candidates: _Candidates, beam_size: int) -> tuple[_Live, jax.Array]:
    """The best J candidates that do not end, and the beam that each one extends."""
    open_bk = jnp.where(candidates.ends, -jnp.inf, candidates.log_probabilities)
    log_probabilities_bj, places_bj = jax.lax.top_k(open_bk, beam_size)
    live = _Live(
        tokens=_take(candidates.tokens, places_bj),
        log_probabilities=log_probabilities_bj,
    )
    return live, _take(candidates.beams, places_bj)


def _ranked(end: _Progress, limits: jax.Array, alpha: float) -> Hypotheses:
    """The pool, filled up with what was still live at the limit."""
    lengths_bj = jnp.broadcast_to(limits[:, None], end.last.shape)
    live_scores_bj = end.live.log_probabilities / length_penalty(lengths_bj, alpha)
    live = _Pool(
        end.live.tokens, lengths_bj, end.live.log_probabilities, live_scores_bj
    )
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), end.pool, live)
    finished_bn = jnp.concatenate(
        [~jnp.isneginf(end.pool.scores), jnp.zeros_like(live_scores_bj, bool)], axis=1
    )
    order_bn = jnp.lexsort((-both.scores, ~finished_bn), axis=-1)
    order_bn = order_bn[:, : end.pool.scores.shape[1]]
    # Equal keys keep their order: what is absent is an empty place of the pool.
    best = jax.tree.map(lambda leaf: _take(leaf, order_bn), both)
    return Hypotheses(
        tokens=best.tokens,
        lengths=best.lengths,
        log_probabilities=best.log_probabilities,
        scores=best.scores,
        finished=_take(finished_bn, order_bn),
    )


def _take(leaf: jax.Array, places: jax.Array) -> jax.Array:
    """Picks along axis 1 by ``[B, K]`` places: ``[B, J, ...]`` to ``[B, K, ...]``."""
    trailing = (1,) * (leaf.ndim - 2)
    return jnp.take_along_axis(leaf, places.reshape(*places.shape, *trailing), axis=1)


def _unless(done: jax.Array, new: PyTree, old: PyTree) -> PyTree:
    """Rows that are done keep the old values."""

    def choose(new_leaf: jax.Array, old_leaf: jax.Array) -> jax.Array:
        stays = done.reshape(-1, *(1,) * (new_leaf.ndim - 1))
        return jnp.where(stays, old_leaf, new_leaf)

    return jax.tree.map(choose, new, old)


def _reorder(state: PyTree, beams: jax.Array) -> PyTree:
    """Gives every beam ``[B, J]`` the state of the one it extends."""
    batch_size, beam_size = beams.shape
    rows = (jnp.arange(batch_size)[:, None] * beam_size + beams).reshape(-1)
    return jax.tree.map(lambda leaf: leaf.at[rows].get(mode="promise_in_bounds"), state)
