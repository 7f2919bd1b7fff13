"""What every search takes and returns, and the one place where logits are ranked."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnjax.types import Array


class SpecialTokens(NamedTuple):
    """The ids that a search must know by meaning.

    ``pad_id`` and ``bos_id`` are never generated, unless one of them is also ``eos_id``
    (some published models start with ``</s>`` or ``<pad>``).
    """

    pad_id: int
    bos_id: int
    eos_id: int


class Hypotheses(NamedTuple):
    """The outputs of a search for a batch, per row the best first.

    Finished hypotheses come before unfinished ones, and each group falls in ``scores``.
    A row that has fewer than J hypotheses at all (a tiny vocabulary) is filled up with
    absent ones: length 0, log-probability and score -inf.

    Attributes:
        tokens: ``[B, J, L]`` int32, without ``<s>``. A finished hypothesis has exactly
            one ``</s>``, its last token; ``<pad>`` follows.
        lengths: ``[B, J]`` int32, generated tokens: with ``</s>``, without ``<s>``.
        log_probabilities: ``[B, J]`` float32, the sum over the generated tokens under
            the model's own softmax, in nats.
        scores: ``[B, J]`` float32, what ranks them.
        finished: ``[B, J]`` bool; False if the length limit came before ``</s>``.
    """

    tokens: Array
    lengths: Array
    log_probabilities: Array
    scores: Array
    finished: Array


def best_continuations(
    logits: Array, count: int, special: SpecialTokens
) -> tuple[jax.Array, jax.Array]:
    r"""The most probable next tokens, without ``<pad>`` and ``<s>``.

    $\log p_c = z_c - \log \sum_{c'} \exp z_{c'}$ in float32. The sum runs over *all*
    classes: forbidding a token does not make the others more probable, so that the sums
    that a search reports are those of scoring its output by teacher forcing.

    Args:
        logits: ``[N, C]``; -inf is legal and means impossible.
        count: How many, at most C.
        special: The ids of the vocabulary.

    Returns:
        Log-probabilities and int32 ids, both ``[N, count]``, falling; of equal ones the
        lower id comes first. Impossible tokens have -inf.
    """
    logits_nc = jnp.asarray(logits, jnp.float32)
    log_total_n1 = jax.nn.logsumexp(logits_nc, axis=-1, keepdims=True)
    allowed_1c = np.ones((1, logits_nc.shape[-1]), dtype=bool)
    allowed_1c[:, list({special.pad_id, special.bos_id} - {special.eos_id})] = False
    allowed_logits_nc = jnp.where(allowed_1c, logits_nc, -jnp.inf)
    if count == 1:
        ids_nk = jnp.argmax(allowed_logits_nc, axis=-1, keepdims=True)
        best_nk = jnp.take_along_axis(allowed_logits_nc, ids_nk, axis=-1)
    else:
        best_nk, ids_nk = jax.lax.top_k(allowed_logits_nc, count)
    # A row of nothing but -inf would give -inf + inf = NaN.
    log_probabilities_nk = jnp.where(
        jnp.isneginf(best_nk), -jnp.inf, best_nk - log_total_n1
    )
    return log_probabilities_nk, ids_nk.astype(jnp.int32)
