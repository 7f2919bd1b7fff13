"""Numbers that say how an attention head looks: how sharply, and how far."""

from __future__ import annotations

import numpy as np

from attnjax.types import Array


def attention_entropy_nats(weights: Array) -> np.ndarray:
    r"""How spread out each query's attention is: $-\sum_s a_s \ln a_s$.

    0 is a query that looks at one key; $\ln S$ one that looks at S keys alike.

    Args:
        weights: ``[..., T, S]``, rows that sum to 1, or to 0 where nothing is attended.

    Returns:
        ``[..., T]`` float64 in nats; 0 for an empty row.
    """
    weights_ts = np.asarray(weights, np.float64)
    logarithms_ts = np.log(
        weights_ts, out=np.zeros_like(weights_ts), where=weights_ts > 0
    )
    return -np.sum(weights_ts * logarithms_ts, axis=-1) + 0.0  # no -0.0


def attention_distance_tokens(weights: Array) -> np.ndarray:
    r"""How far each query looks on average: $\sum_s a_s\,|t - s|$.

    Query and key positions both count from 0, which suits self-attention, and
    cross-attention as far as the two sentences run in parallel.

    Args:
        weights: ``[..., T, S]``, rows that sum to 1, or to 0 where nothing is attended.

    Returns:
        ``[..., T]`` float64 in tokens; 0 for an empty row.
    """
    weights_ts = np.asarray(weights, np.float64)
    num_queries, num_keys = weights_ts.shape[-2:]
    distances_ts = np.abs(np.arange(num_queries)[:, None] - np.arange(num_keys))
    return np.sum(weights_ts * distances_ts, axis=-1)
