"""What ranks the hypotheses of a search: length and coverage penalties."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from attnjax.types import Array

LengthPenaltyKind = Literal["gnmt", "plain"]

_LEAST_COVERAGE = 1e-4  # its logarithm stands for that of 0


def length_penalty(
    lengths: Array, alpha: float, kind: LengthPenaltyKind = "gnmt"
) -> jax.Array:
    r"""Divides the log-probability of an output of so many tokens.

    ======  ==============================  =======================================
    kind    divisor                         source
    ======  ==============================  =======================================
    gnmt    $((5 + |y|) / 6)^\alpha$        Wu et al. 2016, eq. 14
    plain   $|y|^\alpha$                    the mean log-probability at alpha 1, as
                                            Marian, fairseq and transformers divide
    ======  ==============================  =======================================

    Args:
        lengths: Generated tokens, ``</s>`` included and ``<s>`` excluded; any shape.
        alpha: 0 gives 1, no penalty; larger values favour longer outputs.
        kind: Which of the two.

    Returns:
        Float32 divisors of the shape of ``lengths``; a length of 0 counts as 1.
    """
    tokens = jnp.maximum(jnp.asarray(lengths, jnp.float32), 1.0)
    return tokens**alpha if kind == "plain" else ((5.0 + tokens) / 6.0) ** alpha


def coverage_penalty(coverage: Array, valid: Array, beta: float) -> jax.Array:
    r"""$\beta \sum_i \log \min(\sum_j p_{ij}, 1)$, 0 where all was looked at.

    Args:
        coverage: ``[..., S]`` the attention that each source token has had in sum.
        valid: ``[..., S]`` bool, True on real source tokens.
        beta: 0 or more.

    Returns:
        ``[...]``, 0 or less, to be added to the score. A token that had less than 1e-4
        counts as that, since one token must not make the score -inf.

    Source: Wu et al. 2016, eq. 14.
    """
    covered = jnp.clip(jnp.asarray(coverage, jnp.float32), _LEAST_COVERAGE, 1.0)
    return beta * jnp.sum(jnp.where(valid, jnp.log(covered), 0.0), axis=-1)
