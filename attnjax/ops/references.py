"""What mechanisms compute, in plain float64: their equations, with no regard to cost.

A mechanism that no option turns into dense attention has a reference here, or in its
own file, which `attnjax.ops.entry.Entry.reference` names; a law holds the mechanism
against it. A reference gets one sentence without padding, imports numpy alone and takes

    ``(query [H, T, K], key [H, S, K], value [H, S, V], causal, **options, **arrays)``

with the options and arrays of the mechanism, and returns the context ``[H, T, V]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def linformer(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    causal: bool,
    **arrays: Any,
) -> np.ndarray:
    """``softmax(Q (E K)^T / sqrt(K)) F V`` (Wang et al. 2020, eq. 7).

    Args:
        query: ``[H, T, K]``.
        key: ``[H, S, K]``.
        value: ``[H, S, V]``.
        causal: never.
        **arrays: E and F.

    Returns:
        Context ``[H, T, V]``.
    """
    del causal
    num_keys = key.shape[1]
    mix_key, mix_value = (
        arrays[f"{name}_projection"][..., :num_keys] for name in ("key", "value")
    )
    return _weights(query, mix_key @ key) @ (mix_value @ value)


def nystrom(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    causal: bool,
    *,
    rank: int,
) -> np.ndarray:
    """Landmarks and the iterated inverse of Xiong et al. 2021, algorithm 1.

    Args:
        query: ``[H, S, K]``.
        key: ``[H, S, K]``.
        value: ``[H, S, V]``.
        causal: never.
        rank: number of landmarks.

    Returns:
        Context ``[H, S, V]``.
    """
    del causal
    length = key.shape[1]
    count = min(rank, length)
    segment = np.arange(length) * count // length
    mean = np.stack([segment == number for number in range(count)]).astype(np.float64)
    mean /= mean.sum(-1, keepdims=True)
    near = _weights(query, mean @ key)
    between = _weights(mean @ query, mean @ key)
    far = _weights(mean @ query, key)
    scale = between.sum(-2).max(-1) * between.sum(-1).max(-1)
    inverse = between.swapaxes(1, 2) / scale[:, None, None]
    one = np.eye(count)
    for _ in range(6):
        product = between @ inverse
        inner = 15 * one - product @ (7 * one - product)
        inverse = inverse @ (13 * one - product @ inner) / 4
    return near @ inverse @ far @ value


def memory_compressed(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    causal: bool,
    **rest: Any,
) -> np.ndarray:
    """A strided convolution of keys and values (Liu et al. 2018, section 4.2.4).

    Args:
        query: ``[H, T, K]``.
        key: ``[H, S, K]``.
        value: ``[H, S, V]``.
        causal: whether a query sees the blocks that end no later than itself alone.
        **rest: the stride and the two kernels.

    Returns:
        Context ``[H, T, V]``.
    """
    stride, num_keys = rest["stride"], key.shape[1]
    starts = range(0, num_keys, stride)

    def blocks(array: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        parts = [
            sum(
                array[:, position, None] @ kernel[:, position - start]
                for position in range(start, min(start + stride, num_keys))
            )
            for start in starts
        ]
        return np.concatenate(parts, axis=1)

    ends = np.array([start + stride - 1 for start in starts])
    seen = ends[None, :] <= _positions(query, key)[:, None]
    weights = _weights(query, blocks(key, rest["key_kernel"]), seen if causal else None)
    return weights @ blocks(value, rest["value_kernel"])


def best_key(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    causal: bool,
    **options: Any,
) -> np.ndarray:
    """The value of the key with the largest score, as when nothing is drawn.

    Args:
        query: ``[H, T, K]``.
        key: ``[H, S, K]``.
        value: ``[H, S, V]``.
        causal: whether later keys are left out.
        **options: of the gradient.

    Returns:
        Context ``[H, T, V]``.
    """
    del options
    scores = query @ key.swapaxes(1, 2)
    scores = np.where(_allowed(query, key, causal), scores, -np.inf)
    return np.take_along_axis(value, scores.argmax(-1)[..., None], axis=1)


def linear(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    causal: bool,
    **options: Any,
) -> np.ndarray:
    """All weights ``phi(q) phi(k)``, ``phi = elu + 1`` (Katharopoulos et al. 2020).

    Args:
        query: ``[H, T, K]``.
        key: ``[H, S, K]``.
        value: ``[H, S, V]``.
        causal: whether later keys are left out.
        **options: none changes the result.

    Returns:
        Context ``[H, T, V]``.
    """
    del options
    query, key = (
        np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) + 1e-6 for x in (query, key)
    )
    return _mean(query @ key.swapaxes(1, 2) * _allowed(query, key, causal), value)


def favor(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    causal: bool,
    **arrays: Any,
) -> np.ndarray:
    """All weights by random features (Choromanski et al. 2021, lemma 1).

    To each feature of a key 1e-6 is added, as a share of the largest there is of
    ``exp(w · x)``: among all keys, or if causal among those up to the key's own.

    Args:
        query: ``[H, T, K]``.
        key: ``[H, S, K]``.
        value: ``[H, S, V]``.
        causal: whether later keys are left out.
        **arrays: the projection, and options that do not change the result.

    Returns:
        Context ``[H, T, V]``.
    """
    rows = arrays["projection"].swapaxes(1, 2)  # [H, K, F]
    features = {}
    for name, x in (("query", query), ("key", key)):
        x = x * x.shape[-1] ** -0.25
        exponent = x @ rows - np.square(x).sum(-1, keepdims=True) / 2
        features[name] = np.exp(exponent), np.exp((x @ rows).max(-1))
    of_query, largest = features["query"]
    of_query = of_query + 1e-6 * largest[..., None]
    of_key, largest = features["key"]
    so_far = np.maximum.accumulate(largest, axis=-1)
    of_key = of_key + 1e-6 * (so_far if causal else so_far[:, -1:])[..., None]
    weights = of_query @ of_key.swapaxes(1, 2)
    return _mean(weights * _allowed(query, key, causal), value)


def _positions(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Of the queries among the keys: both sequences end together."""
    return np.arange(query.shape[1]) + key.shape[1] - query.shape[1]


def _allowed(query: np.ndarray, key: np.ndarray, causal: bool) -> np.ndarray:
    """Which keys each query sees, ``[T, S]`` bool."""
    earlier = np.arange(key.shape[1])[None, :] <= _positions(query, key)[:, None]
    return earlier | (not causal)


def _weights(
    query: np.ndarray, key: np.ndarray, allowed: np.ndarray | None = None
) -> np.ndarray:
    """Softmax of the scaled dot products; a query that sees no key weighs none."""
    powers = np.exp(query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1]))
    return _shares(powers if allowed is None else powers * allowed)


def _mean(weights: np.ndarray, value: np.ndarray) -> np.ndarray:
    return _shares(weights) @ value


def _shares(weights: np.ndarray) -> np.ndarray:
    total = weights.sum(-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
