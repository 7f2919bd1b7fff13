"""From the facts of a mask to the matrix of allowed pairs, for those who need it."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from attnjax.types import Array, Mask


def allowed(mask: Mask, scores: tuple[int, ...]) -> Array | None:
    """Joins the facts of a mask into one boolean matrix, as small as they permit.

    Query and key sequences end together: query ``t`` of ``T`` stands at key position
    ``t + S - T``. So a single query with a causal mask sees every key.

    Args:
        mask: the facts; True means "may attend".
        scores: their shape ``[..., T, S]``.

    Returns:
        Bool ``[..., T or 1, S]`` of the same rank, True where a query may attend to a
        key; None if every key is allowed.
    """
    offset_ts = key_minus_query_position(*scores[-2:])
    segments = (mask.query_segments, mask.key_segments)
    joined = allowed_at(mask, offset_ts, mask.valid, segments)
    return None if joined is None else with_rank(joined, len(scores))


def all_of(facts: Sequence[Array]) -> Array | None:
    """Joins boolean arrays by "and", whatever their ranks.

    Args:
        facts: that broadcast against each other from the right.

    Returns:
        Their conjunction; None if there are none.
    """
    if not facts:
        return None
    joined = facts[0]
    for fact in facts[1:]:
        rank = max(joined.ndim, fact.ndim)
        joined = with_rank(joined, rank) & with_rank(fact, rank)
    return joined


def refuse(mask: Mask, mechanism: str, **reasons: str) -> None:
    """Raises for the facts of a mask that a mechanism cannot honour.

    Args:
        mask: the facts that are asked for.
        mechanism: its name, for the message.
        **reasons: fact to why it cannot be honoured and what to use instead.

    Raises:
        ValueError: if the mask has one of the facts.
    """
    asked = {
        "valid": mask.valid is not None,
        "causal": mask.causal,
        "window": mask.window is not None,
        "segments": mask.query_segments is not None,
    }
    for fact, reason in reasons.items():
        if asked[fact]:
            raise ValueError(f"{mechanism} cannot honour the mask's {fact}: {reason}.")


def require_self(num_queries: int, num_keys: int, mechanism: str) -> None:
    """Raises unless queries and keys are the same positions.

    Args:
        num_queries: T.
        num_keys: S.
        mechanism: its name, for the message.

    Raises:
        ValueError: if T and S differ.
    """
    if num_queries != num_keys:
        raise ValueError(
            f"{mechanism} is self-attention and needs as many queries as keys, got "
            f"{num_queries} and {num_keys}; use dense, chunked or linear attention."
        )


def allowed_at(
    mask: Mask,
    offset: Array,
    valid: Array | None,
    segments: tuple[Array | None, Array | None],
    real: Array | None = None,
) -> Array | None:
    """Joins the facts for some of the pairs, gathered in any order.

    Args:
        mask: says whether causal and window are asked for.
        offset: ``[..., T, S]`` int, key position minus query position of the pairs.
        valid: ``[..., S]`` bool of these keys; None if all are real.
        segments: of these queries ``[..., T]`` and of these keys ``[..., S]``.
        real: ``[..., S]`` bool, False on keys that fill up a block; None if none do.

    Returns:
        Bool that broadcasts against the scores of the pairs; None if all are allowed.
    """
    facts: list[Array] = []
    if mask.causal:
        facts.append(offset <= 0)
    if mask.window is not None:
        left, right = mask.window
        facts.append((offset >= -left) & (offset <= right))
    query_segments, key_segments = segments
    for fact in (valid, real):
        if fact is not None:
            facts.append(fact[..., None, :])
    if query_segments is not None and key_segments is not None:
        facts.append(query_segments[..., None] == key_segments[..., None, :])
    return all_of(facts)


def with_rank(array: Array, rank: int) -> Array:
    """Adds leading axes of length 1, so that it broadcasts without rank promotion."""
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def leading_shape(*arrays: Array) -> tuple[int, ...]:
    """The common shape of all axes before the last two.

    Args:
        *arrays: ``[..., length, width]``, whose leading axes broadcast.

    Returns:
        The broadcast leading shape.
    """
    return jnp.broadcast_shapes(*(array.shape[:-2] for array in arrays))


def pad_axis(array: Array, axis: int, length: int, fill: float = 0) -> Array:
    """Fills an axis up on the right.

    Args:
        array: any.
        axis: which axis.
        length: that it should have, at least what it has.
        fill: the value of the new places (False for bool).

    Returns:
        The array with ``length`` places on that axis.
    """
    missing = length - array.shape[axis]
    if missing == 0:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return jnp.pad(array, widths, constant_values=fill)


def key_minus_query_position(num_queries: int, num_keys: int) -> jax.Array:
    """The offset of each key from each query; both sequences end together.

    Args:
        num_queries: T.
        num_keys: S.

    Returns:
        ``[T, S]`` int.
    """
    query_position_t = jnp.arange(num_queries) + (num_keys - num_queries)
    return jnp.arange(num_keys)[None, :] - query_position_t[:, None]
