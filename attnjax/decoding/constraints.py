"""What an output must or must not contain, whichever search produces it."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from attnjax.decoding.hypotheses import SpecialTokens
from attnjax.types import Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constraints:
    """Which tokens a search may choose next.

    A constraint forbids tokens and leaves the probabilities of the others alone, see
    `attnjax.decoding.continuations`. A prefix wins over the other constraints.

    Attributes:
        min_tokens: the fewest tokens of an output, ``</s>`` included.
        no_repeat_ngram: no sequence of so many tokens occurs twice in an output; 0
            allows all.
        prefix: ``[B, P]`` int32, the tokens that each row's output begins with, filled
            up with ``<pad>`` on the right; None forces none.
    """

    min_tokens: int = 0
    no_repeat_ngram: int = 0
    prefix: Array | None = None

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
        if not (self.min_tokens or self.no_repeat_ngram or self.prefix is not None):
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
