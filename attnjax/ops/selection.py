"""Which of the scored keys a query looks at: the best few, or those around a position.

A window of keys is contiguous, so that a decoder at one position gathers its ``W`` keys
and scores no others; `local_weights` takes the scores of all keys or of such a window
and gives the same weights.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from attnjax.fields import Kinds, Options, Units
from attnjax.ops.attend import Dense
from attnjax.ops.door import (
    INTEGER,
    require_allowed,
    require_array,
    require_axes,
)
from attnjax.ops.hard import GumbelChoice, HardChoice
from attnjax.ops.masks import all_of
from attnjax.ops.softmax import masked_softmax
from attnjax.types import Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestKeys(Options):
    """The best few keys."""

    top_k: Units = 8  # keys that each query keeps


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalM(Options):
    """The keys around the query's own position (Luong et al. 2015, 3.2, local-m)."""

    window: Units = 10  # keys on each side of the centre, D


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalP(LocalM):
    """The keys around a position that the query predicts (local-p)."""


# What a recurrent decoder's query weighs, once all keys are scored.
SELECTIONS = Kinds(
    noun="selection of keys",
    classes={
        "soft": Dense,
        "top_k": BestKeys,
        "local_m": LocalM,
        "local_p": LocalP,
        "hard": HardChoice,
        "gumbel": GumbelChoice,
    },
)


def top_k_weights(scores: Array, allowed: Array | None, top_k: int) -> jax.Array:
    """Softmax over the best keys of each query, 0 for all others.

    Of equal scores the earlier key is kept, so that never more than ``top_k`` are.

    Args:
        scores: ``[..., T, S]``.
        allowed: bool, as `masked_softmax` takes it; None allows every key.
        top_k: keys that each query keeps; all of them if there are fewer.

    Returns:
        Weights ``[..., T, S]`` in the dtype of ``scores``.

    Raises:
        ValueError: if ``top_k`` is not at least 1, or the arrays do not fit together.
    """
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}.")
    require_allowed(scores, allowed)
    num_keys = scores.shape[-1]
    if top_k >= num_keys:
        return masked_softmax(scores, allowed)
    possible = scores.astype(jnp.float32)
    if allowed is not None:
        possible = jnp.where(allowed, possible, -jnp.inf)
    _, best = jax.lax.top_k(jax.lax.stop_gradient(possible), top_k)
    none = jnp.zeros(scores.shape, bool)
    kept = jnp.put_along_axis(none, best, True, axis=-1, inplace=False)
    return masked_softmax(
        scores, all_of([kept, *([] if allowed is None else [allowed])])
    )


def predicted_centre(
    query: Array, kernel: Array, vector: Array, lengths: Array
) -> jax.Array:
    """Where local-p looks, ``p_t = S_b sigmoid(v · tanh(W q))`` (Luong et al. 2015, 9).

    Args:
        query: ``[..., T, K]``.
        kernel: ``[K, A]``, W.
        vector: ``[A]``, v.
        lengths: ``[...]`` int, ``S_b``, the real keys of each sentence.

    Returns:
        ``[..., T]`` float32, a real-valued key position counted from 0.

    Raises:
        ValueError: if the arrays do not fit together.
    """
    require_array("query", query)
    require_axes("kernel", kernel, query_width=query.shape[-1], width=None)
    require_axes("vector", vector, width=kernel.shape[-1])
    _require_lengths(lengths, query.shape[:-2])
    activations = jnp.tanh(jnp.einsum("...tk,ka->...ta", query, kernel))
    raw = jnp.einsum("...ta,a->...t", activations, vector)
    share = jax.nn.sigmoid(raw.astype(jnp.float32))
    return share * lengths[..., None]


def monotonic_centre(position: Array, lengths: Array) -> jax.Array:
    """Where local-m looks, ``p_t = t`` (Luong et al. 2015, section 3.2).

    A target longer than its source stays at the last key, where the paper's rule would
    leave it without any.

    Args:
        position: ``[..., T]`` int, of the queries, 0 for the first.
        lengths: ``[...]`` int, the real keys of each sentence.

    Returns:
        ``[..., T]`` float32.

    Raises:
        ValueError: if there is not one length for each row.
    """
    require_array("position", position, INTEGER)
    _require_lengths(lengths, position.shape[:-1])
    last = jnp.maximum(lengths - 1, 0)[..., None]
    return jnp.minimum(position, last).astype(jnp.float32)


def local_weights(
    scores: Array,
    key_position: Array,
    centre: Array,
    allowed: Array | None,
    *,
    window: int,
    gaussian: bool,
) -> jax.Array:
    """Softmax over the keys within ``[p_t - D, p_t + D]``.

    With ``gaussian``, each weight is multiplied by ``exp(-(s - p_t)^2 / (2 sigma^2))``,
    ``sigma = D / 2`` (Luong et al. 2015, eq. 10). As in the paper this comes after the
    softmax, so that a row sums to less than 1; it is what the centre learns from.

    Args:
        scores: ``[..., T, W]``, of all keys or of a window that holds the interval.
        key_position: ``[..., T or 1, W]`` int, of these keys.
        centre: ``[..., T]`` float, ``p_t``.
        allowed: bool, as `masked_softmax` takes it; None allows every key.
        window: D, keys on each side.
        gaussian: whether near keys count more.

    Returns:
        Weights ``[..., T, W]`` in the dtype of ``scores``.

    Raises:
        ValueError: if the arrays do not fit together.
    """
    require_allowed(scores, allowed)
    require_array("key_position", key_position, INTEGER)
    if key_position.ndim != scores.ndim or any(
        got not in (1, want)
        for got, want in zip(key_position.shape, scores.shape, strict=True)
    ):
        raise ValueError(
            f"key_position must have the axes of the scores {scores.shape}, or 1 for "
            f"any, got {key_position.shape}."
        )
    if centre.shape != scores.shape[:-1]:
        raise ValueError(
            f"local_weights needs a centre for each query, got {centre.shape} for "
            f"scores {scores.shape}."
        )
    offset = key_position.astype(jnp.float32) - centre[..., None]
    near = jnp.abs(offset) <= window
    kept = all_of([near] if allowed is None else [near, allowed])
    weights = masked_softmax(scores, kept)
    if not gaussian:
        return weights
    bell = jnp.exp(-0.5 * jnp.square(offset / (window / 2)))
    return (weights * bell).astype(scores.dtype)


def window_width(window: int, num_keys: int) -> int:
    """How many keys a window holds, ``2 D + 1`` or all.

    Args:
        window: D, keys on each side.
        num_keys: S.

    Returns:
        W.
    """
    return min(2 * window + 1, num_keys)


def window_start(centre: Array, window: int, num_keys: int) -> jax.Array:
    """The first key of the window around a centre; every key of it exists.

    At either end the window is moved inwards, and so holds keys outside of
    ``[p_t - D, p_t + D]``, which `local_weights` gives no weight.

    Args:
        centre: ``[...]`` float, ``p_t``.
        window: D, keys on each side.
        num_keys: S.

    Returns:
        ``[...]`` int.
    """
    first = jnp.ceil(jax.lax.stop_gradient(centre) - window).astype(jnp.int32)
    return jnp.clip(first, 0, num_keys - window_width(window, num_keys))


def take_window(array: Array, start: Array, width: int) -> jax.Array:
    """The keys (or values, or anything else per key) of one window a row.

    Args:
        array: ``[..., S, *]``.
        start: ``[...]`` int, the first key.
        width: W.

    Returns:
        ``[..., W, *]``.
    """
    position = start[..., None] + jnp.arange(width).reshape((1,) * start.ndim + (-1,))
    return jnp.take_along_axis(array, position[..., None], axis=-2)


def spread_window(weights: Array, start: Array, num_keys: int) -> jax.Array:
    """Weights of windows as weights of all keys, 0 outside.

    Args:
        weights: ``[..., T, W]``.
        start: ``[..., T]`` int, the first key of each window.
        num_keys: S.

    Returns:
        ``[..., T, S]``.
    """
    width = weights.shape[-1]
    position = start[..., None] + jnp.arange(width).reshape((1,) * start.ndim + (-1,))
    none = jnp.zeros((*weights.shape[:-1], num_keys), weights.dtype)
    return jnp.put_along_axis(none, position, weights, axis=-1, inplace=False)


def _require_lengths(lengths: Array, rows: tuple[int, ...]) -> None:
    require_array("lengths", lengths, INTEGER)
    if lengths.shape != rows:
        raise ValueError(
            f"lengths must be those of the rows {rows}, got {lengths.shape}."
        )
