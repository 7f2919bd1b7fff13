"""What an output must or must not contain, whichever search produces it."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.decoding.hypotheses import SpecialTokens
from attnjax.types import Array


class Spelling(NamedTuple):
    """A text that each row's output must spell behind its prefix, with any tokens.

    Attributes:
        states: ``[B, R]`` int32: which row of ``allowed`` rules the next token when so
            many bytes of the text are written; 0 from its end on, and in the last
            column.
        allowed: ``[N, C]`` bool, the tokens that may come in each state.
        sizes: ``[C]`` int32, bytes that each token adds to the text.
    """

    states: Array
    allowed: Array
    sizes: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constraints:
    """Which tokens a search may choose next.

    A constraint forbids tokens and leaves the probabilities of the others alone, see
    `attnjax.decoding.continuations`. A forced beginning wins over the others.

    Attributes:
        min_tokens: the fewest tokens of an output, ``</s>`` included.
        no_repeat_ngram: no sequence of so many tokens occurs twice in an output; 0
            allows all.
        prefix: ``[B, P]`` int32, the tokens that each row's output begins with, filled
            up with ``<pad>`` on the right; None forces none.
        spelling: the text that follows the prefix; None forces none.
    """

    min_tokens: int = 0
    no_repeat_ngram: int = 0
    prefix: Array | None = None
    spelling: Spelling | None = None

    def __post_init__(self) -> None:
        for name in ("min_tokens", "no_repeat_ngram"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"{name} must be 0 or more tokens, got {getattr(self, name)}."
                )

    def choosable(
        self, logits: Array, tokens: Array, position: Array, special: SpecialTokens
    ) -> Array | None:
        """The logits, with -inf at the tokens that may not come next.

        Args:
            logits: ``[N, C]``, the rows of a prefix repeated in place (its beams).
            tokens: ``[N, L]`` the outputs so far.
            position: int scalar, how many tokens each of them has.
            special: the ids of the vocabulary.

        Returns:
            ``[N, C]``, or None where nothing is ever forbidden.
        """
        forced = self.prefix is not None or self.spelling is not None
        if not (self.min_tokens or self.no_repeat_ngram or forced):
            return None
        choosable_nc = jnp.asarray(logits, jnp.float32)
        if self.min_tokens:
            too_short = position + 1 < self.min_tokens
            ends_nc = choosable_nc.at[:, special.eos_id].set(-jnp.inf)
            choosable_nc = jnp.where(too_short, ends_nc, choosable_nc)
        if self.no_repeat_ngram:
            choosable_nc = _without_repeats(
                choosable_nc, tokens, position, self.no_repeat_ngram
            )
        if self.spelling is not None:
            starts_b = jnp.zeros(len(self.spelling.states), jnp.int32)
            if self.prefix is not None:
                starts_b = jnp.sum(jnp.asarray(self.prefix) != special.pad_id, axis=1)
            choosable_nc = _spelled(
                (logits, choosable_nc), self.spelling, jnp.asarray(tokens), starts_b
            )
        if self.prefix is not None:
            choosable_nc = _forced(
                logits, choosable_nc, self.prefix, position, special.pad_id
            )
        return choosable_nc


UNCONSTRAINED = Constraints()


def _without_repeats(
    choosable: jax.Array, tokens: Array, position: Array, order: int
) -> jax.Array:
    """Forbids what would complete an n-gram that the output has already."""
    num_rows, num_classes = choosable.shape
    num_windows = tokens.shape[1] - order + 1
    if num_windows <= 0:
        return choosable
    starts_w = jnp.arange(num_windows)
    ngrams_nwk = jnp.asarray(tokens)[:, starts_w[:, None] + jnp.arange(order)[None, :]]
    before = jnp.maximum(position - order + 1 + jnp.arange(order - 1), 0)
    latest_n1k = jnp.asarray(tokens)[:, before][:, None, :]
    is_repeat_nw = jnp.all(ngrams_nwk[:, :, :-1] == latest_n1k, axis=-1)
    is_whole_w = starts_w + order <= position  # then there are order - 1 tokens too
    next_nw = ngrams_nwk[:, :, -1]
    banned_nw = jnp.where(is_repeat_nw & is_whole_w[None, :], next_nw, num_classes)
    rows_n1 = jnp.arange(num_rows)[:, None]
    return choosable.at[rows_n1, banned_nw].set(-jnp.inf, mode="drop")


def _forced(
    logits: Array, choosable: jax.Array, prefix: Array, position: Array, pad_id: int
) -> jax.Array:
    """Leaves only the token of the prefix, in rows whose prefix has not ended."""
    prefix_bp = jnp.asarray(prefix)
    beams = logits.shape[0] // prefix_bp.shape[0]
    last = prefix_bp.shape[1] - 1
    forced_b = prefix_bp[:, jnp.minimum(position, last)]
    forced_n1 = jnp.repeat(forced_b, beams)[:, None]
    is_forced_n1 = (position <= last) & (forced_n1 != pad_id)
    is_the_token_nc = jnp.arange(logits.shape[-1])[None, :] == forced_n1
    only_nc = jnp.where(is_the_token_nc, jnp.asarray(logits, jnp.float32), -jnp.inf)
    return jnp.where(is_forced_n1, only_nc, choosable)


def _spelled(
    either: tuple[Array, Array], spelling: Spelling, tokens: Array, starts: Array
) -> jax.Array:
    """Leaves only tokens that spell the text, in rows that have not written it all.

    Args:
        either: the logits ``[N, C]``, and those of them that may be chosen elsewhere.
        spelling: what to spell.
        tokens: ``[N, L]`` the outputs so far, filled up with ``<pad>``.
        starts: ``[B]`` tokens of each row that come before the text.

    Returns:
        ``[N, C]``.
    """
    logits, choosable = either
    states_br, allowed_uc, sizes_c = map(jnp.asarray, spelling)
    beams = tokens.shape[0] // states_br.shape[0]
    starts_n1 = jnp.repeat(starts, beams)[:, None]
    behind_nl = jnp.arange(tokens.shape[1])[None, :] >= starts_n1
    written_n1 = jnp.sum(jnp.where(behind_nl, sizes_c[tokens], 0), 1, keepdims=True)
    places_n1 = jnp.minimum(written_n1, states_br.shape[1] - 1)
    states_nr = jnp.repeat(states_br, beams, axis=0)
    state_n1 = jnp.take_along_axis(states_nr, places_n1, axis=1)
    only_nc = jnp.where(
        allowed_uc[state_n1[:, 0]], jnp.asarray(logits, jnp.float32), -jnp.inf
    )
    return jnp.where(state_n1 > 0, only_nc, choosable)
