"""The one place where logits are turned into next tokens."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from attnjax.decoding.hypotheses import SpecialTokens
from attnjax.types import Array


def log_probabilities(
    logits: Array, special: SpecialTokens, choosable: Array | None = None
) -> jax.Array:
    """The log-probability of every next token, -inf for ``<pad>`` and ``<s>``.

    Args:
        logits: ``[N, C]``; -inf is legal and means impossible.
        special: The ids of the vocabulary.
        choosable: As `best_continuations` takes it.

    Returns:
        ``[N, C]`` float32 in nats; what is forbidden has -inf and makes the others no
        more probable.
    """
    logits_nc = jnp.asarray(logits, jnp.float32)
    chosen_nc = logits_nc if choosable is None else jnp.asarray(choosable, jnp.float32)
    for token in _forbidden(special):
        chosen_nc = chosen_nc.at[:, token].set(-jnp.inf)
    return _normalised(chosen_nc, logits_nc)


def best_continuations(
    logits: Array, count: int, special: SpecialTokens, choosable: Array | None = None
) -> tuple[jax.Array, jax.Array]:
    r"""The most probable next tokens, without ``<pad>`` and ``<s>``.

    $\log p_c = z_c - \log \sum_{c'} \exp z_{c'}$ in float32. The sum runs over *all*
    classes: forbidding a token does not make the others more probable, so that the sums
    that a search reports are those of scoring its output by teacher forcing.

    Args:
        logits: ``[N, C]``; -inf is legal and means impossible.
        count: How many, at most C.
        special: The ids of the vocabulary.
        choosable: ``[N, C]`` the logits with further tokens forbidden by -inf; None
            forbids no more.

    Returns:
        Log-probabilities and int32 ids, both ``[N, count]``, falling; of equal ones the
        lower id comes first. Impossible tokens have -inf.
    """
    logits_nc = jnp.asarray(logits, jnp.float32)
    choosable_nc = logits_nc
    if choosable is not None:
        choosable_nc = jnp.asarray(choosable, jnp.float32)
    forbidden = _forbidden(special)
    # Taking a few more and dropping the forbidden ones spares a pass over all classes;
    # even for count = 1, top_k is several times faster than argmax on CPU.
    width = min(count + len(forbidden), logits_nc.shape[-1])
    best_nw, ids_nw = jax.lax.top_k(choosable_nc, width)
    for token in forbidden:
        best_nw = jnp.where(ids_nw == token, -jnp.inf, best_nw)
    best_nk, places_nk = jax.lax.top_k(best_nw, count)
    ids_nk = jnp.take_along_axis(ids_nw, places_nk, axis=-1)
    return _normalised(best_nk, logits_nc), ids_nk.astype(jnp.int32)


def _forbidden(special: SpecialTokens) -> set[int]:
    return {special.pad_id, special.bos_id} - {special.eos_id}


def _normalised(chosen: jax.Array, logits: jax.Array) -> jax.Array:
    log_total_n1 = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    # A row of nothing but -inf would give -inf + inf = NaN.
    return jnp.where(jnp.isneginf(chosen), -jnp.inf, chosen - log_total_n1)
