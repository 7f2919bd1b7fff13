"""Ancestral sampling: outputs drawn from the model, one token after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.decoding.beams import repeat_for_beams, split_rows, take_each, where_rows
from attnjax.decoding.constraints import UNCONSTRAINED, Constraints
from attnjax.decoding.continuations import log_probabilities
from attnjax.decoding.hypotheses import Hypotheses, SpecialTokens
from attnjax.types import Array, PyTree, Step


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """From which distribution tokens are drawn, and how often.

    Attributes:
        max_tokens: L, the static size of the outputs.
        num_samples: outputs per row.
        temperature: divides the logits; 1 is the model's own distribution, and towards
            0 sampling becomes greedy search.
        top_k: only so many most probable tokens can be drawn; 0 is no limit.
        top_p: only the fewest most probable tokens that together have this probability
            can be drawn (Holtzman et al. 2020, "nucleus"); 1 is no limit.
        trace: reads from the states ``[N, ...]`` that outputs end in what is returned
            of them; leaves ``[N, ...]``.
    """

    max_tokens: int
    num_samples: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    trace: Callable[[PyTree], PyTree] = lambda state: None

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise ValueError(f"num_samples must be 1 or more, got {self.num_samples}.")
        if self.temperature <= 0:
            raise ValueError(
                f"temperature must be greater than 0, got {self.temperature}; for the "
                "most probable token at every position use a beam of 1."
            )
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 or more, got {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise ValueError(
                f"top_p must be greater than 0 and at most 1, got {self.top_p}."
            )


class _Progress(NamedTuple):
    position: jax.Array
    last: jax.Array  # [N], N = B * num_samples
    tokens: jax.Array  # [N, L]
    lengths: jax.Array  # [N]
    log_probabilities: jax.Array  # [N]
    open: jax.Array  # [N] bool
    finished: jax.Array  # [N] bool
    state: PyTree
    trace: PyTree


def sample_outputs(
    step: Step,
    state: PyTree,
    limits: Array,
    rngs: jax.Array,
    *,
    special: SpecialTokens,
    settings: SamplingSettings,
    constraints: Constraints = UNCONSTRAINED,
) -> Hypotheses:
    r"""Draws $y_t \sim p(\cdot \mid y_{<t})$ until ``</s>`` or the limit.

    The draw of a row depends on its own key alone: on neither the batch that it is in,
    nor its place there. Pure, to be compiled by the caller.

    Args:
        step: Gives the next token's logits; called with ``[B * J]`` tokens and state
            leaves ``[B * J, ...]``, J = ``num_samples``. What it closes over must be
            repeated to match.
        state: What `step` starts from, every leaf ``[B, ...]``, not repeated.
        limits: ``[B]`` the most tokens that each row may generate, ``</s>`` included;
            cut to ``settings.max_tokens``. A row of limit 0 stays empty.
        rngs: ``[B]`` typed keys, one for each row.
        special: The ids of the vocabulary.
        settings: Distribution and number of samples.
        constraints: What an output must or must not contain.

    Returns:
        J hypotheses per row as they were drawn, the most probable first; their scores
        are their log-probabilities under the model (temperature 1, no limits).
    """
    num_samples, length = settings.num_samples, settings.max_tokens
    limits_n = jnp.repeat(jnp.clip(jnp.asarray(limits), 0, length), num_samples)
    rngs_n = jax.vmap(lambda rng: jax.random.split(rng, num_samples))(rngs).reshape(-1)

    def advance(progress: _Progress) -> _Progress:
        logits_nc, next_state = step(progress.state, progress.last)
        choosable_nc = constraints.choosable(
            logits_nc, progress.tokens, progress.position, special
        )
        values_nc = log_probabilities(logits_nc, special, choosable_nc)
        now_n = jax.vmap(jax.random.fold_in, (0, None))(rngs_n, progress.position)
        drawn_n = _draw(now_n, values_nc, settings)
        chosen_n = jnp.take_along_axis(values_nc, drawn_n[:, None], axis=1)[:, 0]
        after = next_state, settings.trace(next_state)
        return _advance(progress, (drawn_n, chosen_n), limits_n, special, after)

    start = _start(repeat_for_beams(state, num_samples), limits_n, special, settings)
    end = jax.lax.while_loop(lambda progress: jnp.any(progress.open), advance, start)
    return _sorted(end, num_samples)


def _advance(
    progress: _Progress,
    drawn: tuple[jax.Array, jax.Array],
    limits: jax.Array,
    special: SpecialTokens,
    after: tuple[PyTree, PyTree],
) -> _Progress:
    """Appends drawn tokens to the open rows; the state and trace after them."""
    tokens_n, values_n = drawn
    # Where every token is impossible, the row ends here, unfinished.
    alive = progress.open & ~jnp.isneginf(values_n)
    last = jnp.where(alive, tokens_n, special.pad_id)
    ended = alive & (last == special.eos_id)
    position = progress.position + 1
    state, trace = after
    return _Progress(
        position=position,
        last=last,
        tokens=progress.tokens.at[:, progress.position].set(last),
        lengths=progress.lengths + alive,
        log_probabilities=progress.log_probabilities + jnp.where(alive, values_n, 0.0),
        open=alive & ~ended & (position < limits),
        finished=progress.finished | ended,
        state=state,
        trace=where_rows(alive, trace, progress.trace),
    )


def _start(
    state: PyTree,
    limits: jax.Array,
    special: SpecialTokens,
    settings: SamplingSettings,
) -> _Progress:
    (rows,) = limits.shape
    return _Progress(
        position=jnp.int32(0),
        last=jnp.full(rows, special.bos_id, jnp.int32),
        tokens=jnp.full((rows, settings.max_tokens), special.pad_id, jnp.int32),
        lengths=jnp.zeros(rows, jnp.int32),
        log_probabilities=jnp.zeros(rows, jnp.float32),
        open=limits > 0,
        finished=jnp.zeros(rows, bool),
        state=state,
        trace=settings.trace(state),
    )


def _draw(rngs: jax.Array, values: jax.Array, settings: SamplingSettings) -> jax.Array:
    """Tokens ``[N]`` drawn from log-probabilities ``[N, C]``."""
    # Relative to the best token, so that a temperature near 0 sends the others to -inf
    # and not all of them. The devices take what is below the smallest normal for 0.
    temperature = max(settings.temperature, float(jnp.finfo(jnp.float32).tiny))
    scaled_nc = (values - values.max(-1, keepdims=True)) / temperature
    if settings.top_k:
        count = min(settings.top_k, values.shape[-1])
        best_nk, tokens_nk = jax.lax.top_k(scaled_nc, count)
        places_n = _draw_nucleus(rngs, best_nk, settings.top_p)
        return jnp.take_along_axis(tokens_nk, places_n[:, None], axis=1)[:, 0]
    if settings.top_p < 1:
        tokens_nc = jnp.argsort(scaled_nc, axis=-1, descending=True)
        falling_nc = jnp.take_along_axis(scaled_nc, tokens_nc, axis=1)
        places_n = _draw_nucleus(rngs, falling_nc, settings.top_p)
        return jnp.take_along_axis(tokens_nc, places_n[:, None], axis=1)[:, 0]
    return jax.vmap(jax.random.categorical)(rngs, scaled_nc)


def _draw_nucleus(rngs: jax.Array, falling: jax.Array, top_p: float) -> jax.Array:
    """Places ``[N]`` drawn from the first of falling logits that hold ``top_p``."""
    shares_nk = jax.nn.softmax(falling, where=~jnp.isneginf(falling))
    before_nk = jnp.cumsum(shares_nk, axis=-1) - shares_nk
    kept_nk = jnp.where(before_nk < top_p, falling, -jnp.inf)
    return jax.vmap(jax.random.categorical)(rngs, kept_nk)


def _sorted(end: _Progress, num_samples: int) -> Hypotheses:
    """Finished ones first, each group by falling log-probability."""
    drawn = Hypotheses(
        tokens=end.tokens,
        lengths=end.lengths,
        log_probabilities=end.log_probabilities,
        scores=end.log_probabilities,
        finished=end.finished,
        trace=end.trace,
    )
    drawn = split_rows(drawn, num_samples)
    order_bj = jnp.lexsort((-drawn.scores, ~drawn.finished), axis=-1)
    return jax.tree.map(lambda leaf: take_each(leaf, order_bj), drawn)
