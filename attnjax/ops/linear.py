"""Linear attention: the softmax replaced by a positive feature map."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from attnjax.fields import Options, Units
from attnjax.ops import feature_sums
from attnjax.ops.door import door
from attnjax.ops.entry import Incremental, Sizes
from attnjax.ops.masks import refuse
from attnjax.ops.padding import without_padding
from attnjax.types import Array, Attended, Mask

EPSILON = 1e-6  # the authors add as much to the divisor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear(Options):
    """Attention with a feature map in place of the softmax."""

    chunk: Units = 256  # positions that are computed at once


@door
def linear_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    chunk: int = 256,
    epsilon: float = EPSILON,
) -> Attended:
    """Attention with ``phi(q) · phi(k)`` in place of ``exp(q · k / sqrt(K))``.

    ``context_t = phi(q_t) sum_s phi(k_s) v_s^T / (phi(q_t) · sum_s phi(k_s))`` with
    ``phi(x) = elu(x) + 1 + epsilon``; causal, the sums end at ``s = t``.

    Source: Katharopoulos et al. 2020, "Transformers are RNNs", eq. 5-7, 10-12. There
    epsilon stands in the divisor, where it makes the weights sum to less than 1; here
    it keeps the features above 0, so that they always sum to 1. As there, queries are
    not scaled.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: ``valid`` and ``causal`` are honoured.
        chunk: positions that a causal pass computes at once; changes no result.
        epsilon: the smallest feature.

    Returns:
        Context ``[..., T, V]``; no weights.

    Raises:
        ValueError: if the mask has a window or segments.
    """
    refuse_pairs(mask, "linear attention")
    query = elu_features(query, epsilon)
    key = without_padding(elu_features(key, epsilon), mask)
    if not mask.causal:
        return Attended(feature_sums.attend_to_all(query, key, value), None)
    log_scale = jnp.zeros((1,) * (key.ndim - 2) + key.shape[-2:-1], jnp.float32)
    context = feature_sums.attend_to_earlier(query, key, value, log_scale, chunk=chunk)
    return Attended(context, None)


def elu_features(x: Array, epsilon: float) -> jax.Array:
    """``elu(x) + 1 + epsilon``: positive, linear above 0, exponential below.

    Args:
        x: any.
        epsilon: the smallest feature.

    Returns:
        Features in float32, shaped as ``x``.
    """
    x = jnp.asarray(x, jnp.float32)
    return jnp.where(x > 0.0, x + 1.0, jnp.exp(jnp.where(x > 0.0, 0.0, x))) + epsilon


def refuse_pairs(mask: Mask, mechanism: str) -> None:
    """Raises for facts that differ from pair to pair.

    Args:
        mask: the facts that are asked for.
        mechanism: its name, for the message.

    Raises:
        ValueError: if the mask has a window or segments.
    """
    refuse(
        mask,
        mechanism,
        window="all keys are summed before a query reads them; use sliding_window",
        segments="all keys of a row are summed before a query reads them; do not pack, "
        "or use dense, chunked or sliding_window attention",
    )


def _begin(
    batch_size: int, max_tokens: int, sizes: Sizes, dtype: Any, **options: Any
) -> feature_sums.Sums:
    """Sums of no keys; see `Incremental`."""
    del max_tokens, dtype, options
    return feature_sums.begin_sums(batch_size, sizes, sizes.key_width)


def _step(
    query: Array,
    key: Array,
    value: Array,
    sums: feature_sums.Sums,
    position: Array,
    **options: Any,
) -> tuple[jax.Array, feature_sums.Sums]:
    """One position of the recurrence, eq. 16-20; see `Incremental`."""
    del position
    epsilon = options.get("epsilon", EPSILON)
    query, key = elu_features(query, epsilon), elu_features(key, epsilon)
    log_scale = jnp.zeros(sums.log_scale.shape, jnp.float32)
    return feature_sums.step(query, key, value, sums, log_scale)


INCREMENTAL = Incremental(_begin, _step, "K x V")
