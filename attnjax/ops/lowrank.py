"""Attention through a matrix of low rank: projected keys, or landmarks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.fields import Options, Units
from attnjax.ops.attend import attend
from attnjax.ops.door import door, require_owned
from attnjax.ops.entry import Parameter, Sizes
from attnjax.ops.masks import refuse, require_self, with_rank
from attnjax.ops.padding import real_positions, without_padding
from attnjax.ops.scorers import scaled_dot_scores
from attnjax.ops.softmax import masked_softmax
from attnjax.types import Array, Attended, Mask

_MIXED = (
    "mixes all positions into each of its few keys, so that it cannot leave out some "
    "of them for some queries; use sliding_window, linear or chunked attention"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linformer(Options):
    """Attention to a few learned mixtures of all positions."""

    rank: Units = 64  # projected keys


@door
def linformer_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    rank: int | None = None,
    key_projection: Array,
    value_projection: Array,
) -> Attended:
    """Attention to a few learned mixtures of all positions.

    ``context = softmax(Q (E K)^T / sqrt(K)) F V`` with E and F ``[rank, S]`` (Wang et
    al. 2020, "Linformer: Self-Attention with Linear Complexity", eq. 7). A shorter
    sequence uses the first columns of E and F. Padded positions add nothing to the
    mixtures; if no position is real, all values are 0 and so is the context.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: only ``valid`` can be honoured.
        rank: number of mixtures, if it is to be checked against the projections.
        key_projection: E ``[..., rank, max_keys]``; leading axes broadcast against
            those of the key, so that heads have one each or share one.
        value_projection: F, the same for values; the paper may share E and F.

    Returns:
        Context ``[..., T, V]``; no weights, as none belongs to a single key.

    Raises:
        ValueError: for other facts, more keys than the projections have columns, or
            projections of another rank.
    """
    refuse(mask, "linformer", causal=_MIXED, window=_MIXED, segments=_MIXED)
    name = "a linformer projection"
    for array, projection in ((key, key_projection), (value, value_projection)):
        require_owned(name, projection, array, rank=rank, max_keys=None)
    projected_key = _project(key, key_projection, mask)
    projected_value = _project(value, value_projection, mask)
    scores = scaled_dot_scores(query.astype(jnp.float32), projected_key)
    context = attend(scores, projected_value, Mask()).context
    return Attended(context.astype(value.dtype), None)


def linformer_parameters(sizes: Sizes, *, rank: int) -> Mapping[str, Parameter]:
    """One E and one F per head, such that mixtures are as large as what they mix.

    Args:
        sizes: heads and the longest key sequence.
        rank: rows of E and F.

    Returns:
        ``key_projection`` and ``value_projection``, each ``[H, rank, max_keys]``.
    """
    shape = (sizes.num_heads, rank, sizes.max_keys)

    def init(rng: Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.normal(rng, shape) * shape[-1] ** -0.5

    return {
        "key_projection": Parameter(shape, init),
        "value_projection": Parameter(shape, init),
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nystrom(Options):
    """Attention through landmarks, the means of segments."""

    rank: Units = 64  # landmarks


@door
def nystrom_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    rank: int = 64,
    iterations: int = 6,
) -> Attended:
    """Self-attention approximated from landmarks by the Nyström method.

    ``context = softmax(Q K'^T) softmax(Q' K'^T)^+ softmax(Q' K^T) V``, scores scaled
    by ``1 / sqrt(K)``; Q' and K' are the means of ``rank`` segments of queries and of
    keys, ``^+`` is the pseudo-inverse (Xiong et al. 2021, "Nyströmformer", algorithm
    1). The p-th of L real positions belongs to segment ``floor(p rank / L)``, as in
    the paper if ``rank`` divides L; a shorter sentence has a landmark per position.
    The paper's convolution over the values is a layer of its own and left out.

    Args:
        query: ``[..., S, K]``, at the positions of the keys.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        mask: only ``valid`` can be honoured.
        rank: number of landmarks.
        iterations: of `pseudo_inverse`.

    Returns:
        Context ``[..., S, V]``; no weights, as they would be a full matrix.

    Raises:
        ValueError: for other facts, or unequal numbers of queries and keys.
    """
    refuse(mask, "nystrom", causal=_MIXED, window=_MIXED, segments=_MIXED)
    require_self(query.shape[-2], key.shape[-2], "nystrom")
    num_keys = key.shape[-2]
    query, key, value_sv = (
        jnp.asarray(array, jnp.float32) for array in (query, key, value)
    )
    real = jnp.asarray(with_rank(real_positions(mask, num_keys), query.ndim - 1))
    mean_ws, exists = _segments(real, min(rank, num_keys))
    landmark_query, landmark_key = (
        jnp.einsum("...ws,...sk->...wk", with_rank(mean_ws, array.ndim), array)
        for array in (query, key)
    )
    some = exists[..., None, :]
    near = masked_softmax(scaled_dot_scores(query, landmark_key), some)
    between = masked_softmax(
        scaled_dot_scores(landmark_query, landmark_key),
        some & exists[..., :, None],
    )
    far = masked_softmax(scaled_dot_scores(landmark_query, key), real[..., None, :])
    inverse = pseudo_inverse(between, iterations)
    context = near @ _exact(inverse, far @ value_sv)
    return Attended(context.astype(value.dtype), None)


def pseudo_inverse(matrix: Array, iterations: int = 6) -> jax.Array:
    """Moore-Penrose inverse by iteration, without a decomposition.

    ``Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4`` from
    ``Z = A^T / (|A|_1 |A|_inf)`` (Razavi et al. 2014; Xiong et al. 2021). A
    singular value's share grows by 13/4 per iteration until it is 1, so that six
    find the large ones only, and twenty blow up the rounding of one that is 0. The
    paper's code takes the norms over a whole batch; here they are each matrix's own,
    so that no sentence depends on another. Rows and columns of zeros stay zero.

    Args:
        matrix: A ``[..., W, W]``, not negative, float32.
        iterations: how often.

    Returns:
        Z ``[..., W, W]``.
    """
    matrix = jnp.asarray(matrix)
    row = jnp.abs(matrix).sum(-1).max(-1)
    column = jnp.abs(matrix).sum(-2).max(-1)
    scale = jnp.where(row * column == 0.0, 1.0, row * column)
    inverse = jnp.swapaxes(matrix, -1, -2) / scale[..., None, None]
    identity = with_rank(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.ndim)
    for _ in range(iterations):
        product = _exact(matrix, inverse)
        inner = 15.0 * identity - _exact(product, 7.0 * identity - product)
        inverse = _exact(inverse, 13.0 * identity - _exact(product, inner)) / 4.0
    return inverse


def _exact(left: Array, right: Array) -> jax.Array:
    """A product in full float32: fast modes of accelerators do not converge."""
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)


def _segments(real: jax.Array, num_segments: int) -> tuple[jax.Array, jax.Array]:
    """Means over segments of the real positions, as a matrix ``[..., W, S]``.

    Also returns which segments have a position, ``[..., W]`` bool.
    """
    length = jnp.maximum(real.sum(-1, keepdims=True), 1)
    segment = (jnp.cumsum(real, axis=-1) - 1) * num_segments // length
    number = with_rank(jnp.arange(num_segments)[:, None], real.ndim + 1)
    member_ws = (segment[..., None, :] == number) & real[..., None, :]
    size = member_ws.sum(-1)
    mean_ws = member_ws / jnp.maximum(size, 1)[..., None]
    return mean_ws.astype(jnp.float32), size > 0


def _project(array: Array, projection: Array, mask: Mask) -> jax.Array:
    """Mixes the real positions: ``[..., S, K]`` to ``[..., rank, K]``, float32."""
    num_keys, max_keys = array.shape[-2], projection.shape[-1]
    if num_keys > max_keys:
        raise ValueError(
            f"linformer has projections for {max_keys} keys, got {num_keys}; make it "
            "with a larger number of positions, or cut the sequence."
        )
    array = without_padding(array, mask)
    projection = jnp.asarray(projection, jnp.float32)[..., :num_keys]
    projection = with_rank(projection, array.ndim)
    return jnp.einsum("...ws,...sk->...wk", projection, array)
