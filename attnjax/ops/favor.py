"""FAVOR+: softmax attention estimated with positive orthogonal random features."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.fields import CountOrZero, Options, Units
from attnjax.ops import feature_sums
from attnjax.ops.door import door, require_owned
from attnjax.ops.entry import Incremental, Parameter, Sizes
from attnjax.ops.linear import refuse_pairs
from attnjax.ops.masks import with_rank
from attnjax.types import Array, Attended, Mask

EPSILON = 1e-6  # as the authors' TensorFlow code; their JAX code has 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Favor(Options):
    """Softmax attention estimated with random features."""

    features: Units = 128  # random features
    # training steps between new random features; 0: never
    redraw_every: CountOrZero = 1_000
    chunk: Units = 256  # positions that are computed at once


@door
def favor_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    projection: Array,
    chunk: int = 256,
    epsilon: float = EPSILON,
) -> Attended:
    """Attention whose kernel ``exp(q · k / sqrt(K))`` is estimated without bias.

    ``exp(q · k / sqrt(K)) = E_w[phi_w(q) phi_w(k)]`` for ``w ~ N(0, I)`` with
    ``phi_w(x) = exp(w · x' - |x'|^2 / 2)``, ``x' = x / K^(1/4)``; the mean over F rows
    ``w`` of the projection stands for the expectation. One feature of independent rows
    has the relative variance ``exp(|q' + k'|^2) - 1``. The error against softmax
    attention falls as ``1 / sqrt(F)`` once F is well above that, and more slowly
    before: for long queries and keys F may never get there.

    The largest ``w · x'`` is taken off in the exponent (one per query; one for all
    keys, or causal the largest so far), which cancels in the weights. Then epsilon is
    added, which does not cancel: it keeps weights positive and summing to 1 where all
    features underflow.

    Source: Choromanski et al. 2021, "Rethinking attention with Performers", lemma 1 and
    section 2.4. The authors' code takes the largest over all keys also in the causal
    case, which lets later keys in by way of epsilon.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: ``valid`` and ``causal`` are honoured.
        projection: ``[F, K]``, or ``[H, F, K]`` with heads before T and S.
        chunk: positions that a causal pass computes at once; changes no result.
        epsilon: added to each feature.

    Returns:
        Context ``[..., T, V]``; no weights.

    Raises:
        ValueError: if the mask has a window or segments.
    """
    refuse_pairs(mask, "favor attention")
    exponent, highest = feature_exponents(query, projection)
    query_features = positive_features(exponent, highest[..., None], epsilon)
    key_features, highest = _key_features(key, projection, mask, epsilon)
    if not mask.causal:
        context = feature_sums.attend_to_all(query_features, key_features, value)
    else:
        context = feature_sums.attend_to_earlier(
            query_features, key_features, value, highest, chunk=chunk
        )
    return Attended(context, None)


def feature_exponents(x: Array, projection: Array) -> tuple[jax.Array, jax.Array]:
    """Logarithms of the random features, before the division by sqrt(F).

    Args:
        x: queries or keys ``[..., T, K]``.
        projection: ``[F, K]`` or ``[H, F, K]``.

    Returns:
        ``w · x' - |x'|^2 / 2`` as ``[..., T, F]``, and the largest ``w · x'`` of each
        position ``[..., T]``, without gradient; float32, ``x' = x / K^(1/4)``.

    Raises:
        ValueError: if the projection is for another width, or for heads that are not
            there.
    """
    require_owned("projection", projection, x, features=None, width=x.shape[-1])
    x = x.astype(jnp.float32) * x.shape[-1] ** -0.25
    projection = with_rank(jnp.asarray(projection, jnp.float32), x.ndim)
    projected_tf = jnp.einsum("...tk,...fk->...tf", x, projection)
    half_square = 0.5 * jnp.square(x).sum(-1, keepdims=True)
    return projected_tf - half_square, lax.stop_gradient(projected_tf.max(-1))


def positive_features(exponent: Array, highest: Array, epsilon: float) -> jax.Array:
    """``(exp(exponent - highest) + epsilon) / sqrt(F)``.

    Args:
        exponent: ``[..., T, F]`` from `feature_exponents`.
        highest: broadcasts against it; what is taken off.
        epsilon: added to each feature.

    Returns:
        Features ``[..., T, F]``.
    """
    features = jnp.exp(exponent - highest) + epsilon
    return features * exponent.shape[-1] ** -0.5


def orthogonal_projection(rng: Array, shape: tuple[int, ...]) -> jax.Array:
    """Rows that are each distributed as ``N(0, I)``, at right angles in groups of K.

    Args:
        rng: a PRNG key.
        shape: ``(..., F, K)``; each group of up to K rows is orthogonal.

    Returns:
        Directions of random rotations with lengths of independent normal vectors.
    """
    *leading, features, width = shape
    rng_directions, rng_lengths = jax.random.split(rng)
    groups = -(-features // width)
    directions = jax.random.orthogonal(rng_directions, width, (*leading, groups))
    directions = directions.reshape(*leading, groups * width, width)
    lengths = jnp.linalg.norm(jax.random.normal(rng_lengths, shape), axis=-1)
    return directions[..., :features, :] * lengths[..., None]


def buffers(sizes: Sizes, **options: Any) -> dict[str, Parameter]:
    """The projection, and how many training steps it has seen.

    Args:
        sizes: heads and widths.
        **options: ``features`` is F.

    Returns:
        ``projection [H, F, K]`` and ``num_updates []``.
    """
    shape = (sizes.num_heads, options["features"], sizes.key_width)
    return {
        "projection": Parameter(shape, orthogonal_projection),
        "num_updates": Parameter((), lambda rng, shape: jnp.zeros(shape, jnp.int32)),
    }


def update(
    buffers: Mapping[str, Array],
    query: Array,
    key: Array,
    mask: Mask,
    rng: Array,
    **options: Any,
) -> dict[str, jax.Array]:
    """Counts a training step; draws a new projection every ``redraw_every`` of them.

    Args:
        buffers: see `buffers`.
        query: not needed.
        key: not needed.
        mask: not needed.
        rng: a PRNG key.
        **options: with ``redraw_every`` 0 the first projection stays.

    Returns:
        The buffers of this step.
    """
    del query, key, mask
    num_updates = jnp.asarray(buffers["num_updates"]) + 1
    projection = jnp.asarray(buffers["projection"])
    if options["redraw_every"]:
        projection = lax.cond(
            num_updates % options["redraw_every"] == 0,
            lambda: orthogonal_projection(rng, projection.shape),
            lambda: projection,
        )
    return {"projection": projection, "num_updates": num_updates}


@door
def favor_from_options(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    projection: Array,
    chunk: int = 256,
    **unread: Any,
) -> Attended:
    """Softmax attention estimated by positive orthogonal random features (FAVOR+).

    This is `favor_attention` as the catalog calls it, with all options and buffers.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: ``valid`` and ``causal`` are honoured.
        projection: ``[H, F, K]``.
        chunk: positions that a causal pass computes at once.
        **unread: what only `buffers` and `update` read.

    Returns:
        Context ``[..., T, V]``; no weights.

    Raises:
        ValueError: for a name that nobody reads.
    """
    unknown = set(unread) - {"features", "redraw_every", "num_updates"}
    if unknown:
        raise ValueError(f"favor attention has no option {sorted(unknown)}.")
    return favor_attention(query, key, value, mask, projection=projection, chunk=chunk)


def _key_features(
    key: Array, projection: Array, mask: Mask, epsilon: float
) -> tuple[jax.Array, jax.Array]:
    """Features of the keys, 0 where masked, and what each was divided by (its log)."""
    exponent, highest = feature_exponents(key, projection)
    if mask.valid is not None:
        valid = with_rank(mask.valid, highest.ndim)
        highest = jnp.where(valid, highest, -jnp.inf)
        # Taking a smaller number off, the exponent of a masked key could overflow.
        exponent = jnp.where(valid[..., None], exponent, -jnp.inf)
    if mask.causal:
        highest = lax.cummax(highest, axis=highest.ndim - 1)
    else:
        highest = highest.max(-1, keepdims=True)
    base = jnp.where(jnp.isneginf(highest), 0.0, highest)
    features = positive_features(exponent, base[..., None], epsilon)
    if mask.valid is not None:
        features = jnp.where(valid[..., None], features, 0.0)
    return features, highest


def _begin(
    batch_size: int, max_tokens: int, sizes: Sizes, dtype: Any, **options: Any
) -> feature_sums.Sums:
    """Sums of no keys; see `Incremental`."""
    del max_tokens, dtype
    return feature_sums.begin_sums(batch_size, sizes, options["features"])


def _step(
    query: Array,
    key: Array,
    value: Array,
    sums: feature_sums.Sums,
    position: Array,
    **options: Any,
) -> tuple[jax.Array, feature_sums.Sums]:
    """One position; the largest projection so far is part of the sums."""
    del position
    exponent, highest = feature_exponents(query, options["projection"])
    query_features = positive_features(exponent, highest[..., None], EPSILON)
    exponent, highest = feature_exponents(key, options["projection"])
    highest = jnp.maximum(sums.log_scale, highest[..., 0])
    key_features = positive_features(exponent, highest[..., None, None], EPSILON)
    return feature_sums.step(query_features, key_features, value, sums, highest)


INCREMENTAL = Incremental(_begin, _step, "features x V")
