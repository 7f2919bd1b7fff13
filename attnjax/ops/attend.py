"""Dense attention: scores, one masked softmax, the weighted mean of the values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp

from attnjax.fields import Options
from attnjax.ops.door import door, require_array, require_facts
from attnjax.ops.masks import allowed
from attnjax.ops.relative import Bias, biased
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.ops.softmax import masked_softmax
from attnjax.types import Array, Attended, Mask


def attend(
    scores: Array,
    value: Array,
    mask: Mask,
    *,
    dropout: Callable[[Array], Array] | None = None,
) -> Attended:
    """Turns scores into weights, and averages the values with them.

    ``context_t = sum_s softmax_s(score_ts) v_s``

    Args:
        scores: ``[..., T, S]``, from one of `attnjax.ops.scorers`.
        value: ``[..., S, V]``.
        mask: which query may attend to which key.
        dropout: applied to the weights before the mean; the weights that are returned
            are those before it.

    Returns:
        Context ``[..., T, V]`` and weights ``[..., T, S]``; both are exactly 0 for a
        query that may attend to no key.

    Raises:
        ValueError: if scores, values and facts do not fit together.
    """
    require_array("scores", scores)
    require_array("value", value)
    if scores.ndim != value.ndim or scores.shape[-1] != value.shape[-2]:
        raise ValueError(
            "attend needs a value for each scored key, got scores "
            f"{scores.shape} and value {value.shape}."
        )
    require_facts("attend", mask, scores.shape)
    weights = masked_softmax(scores, allowed(mask, scores.shape))
    used = weights if dropout is None else dropout(weights)
    context = jnp.einsum("...ts,...sv->...tv", used.astype(value.dtype), value)
    return Attended(context, weights)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dense(Options):
    """Every query sees every key, with the model's scorer and dropout."""


@door
def dense_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    score: Callable[[Array, Array], Array] = scaled_dot_scores,
    dropout: Callable[[Array], Array] | None = None,
    bias: Bias | None = None,
) -> Attended:
    """Attention that scores every query against every key.

    With the default score this is scaled dot-product attention, Vaswani et al. 2017,
    eq. 1; heads are a leading axis like any other.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: which query may attend to which key.
        score: queries and keys to scores ``[..., T, S]``.
        dropout: applied to the weights, see `attend`.
        bias: added to the scores, a function of the offset of key from query.

    Returns:
        Context ``[..., T, V]`` and weights ``[..., T, S]``.
    """
    return attend(biased(score(query, key), bias), value, mask, dropout=dropout)
