"""Scoring functions: how well each key fits each query, before mask and softmax.

All take ``[..., T, K]`` queries and ``[..., S, K]`` keys (or projections of them) and
return ``[..., T, S]`` scores; heads are one more leading axis. Whatever depends on the
key alone is a function of its own, so that it is computed once per sentence.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from attnjax.ops.door import require_array, require_axes, require_same_rank
from attnjax.types import Array


def dot_scores(query: Array, key: Array) -> jax.Array:
    """Dot product, ``score = q · k`` (Luong et al. 2015, eq. 8, "dot").

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.

    Returns:
        ``[..., T, S]``.

    Raises:
        ValueError: if they are no arrays of floats, or differ in rank or width.
    """
    require_same_rank("a dot product", query=query, key=key)
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            "a dot product needs queries and keys of equal width, got "
            f"{query.shape[-1]} and {key.shape[-1]}; project one of them, or use the "
            "general or additive scorer."
        )
    return jnp.einsum("...tk,...sk->...ts", query, key)


def scaled_dot_scores(query: Array, key: Array) -> jax.Array:
    """Scaled dot product, ``score = q · k / sqrt(K)`` (Vaswani et al. 2017, eq. 1).

    The query is scaled, not the scores: ``T K`` products instead of ``T S``.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.

    Returns:
        ``[..., T, S]``.

    Raises:
        ValueError: if they are no arrays of floats, or differ in rank or width.
    """
    require_array("query", query)
    return dot_scores(query * query.shape[-1] ** -0.5, key)


def general_keys(key: Array, weight: Array) -> jax.Array:
    """The part of the general score that depends on the key alone, ``W k``.

    Args:
        key: ``[..., S, K_key]``.
        weight: ``[..., K_query, K_key]``, leading axes broadcast (heads).

    Returns:
        ``[..., S, K_query]``; their dot product with a query is the general score.

    Raises:
        ValueError: if the weight is for keys of another width.
    """
    require_array("key", key)
    require_axes("weight", weight, query_width=None, key_width=key.shape[-1])
    return jnp.einsum("...sk,...qk->...sq", key, weight)


def general_scores(query: Array, key: Array, weight: Array) -> jax.Array:
    """Bilinear form, ``score = q W k`` (Luong et al. 2015, eq. 8, "general").

    Args:
        query: ``[..., T, K_query]``.
        key: ``[..., S, K_key]``.
        weight: ``[..., K_query, K_key]``, leading axes broadcast (heads).

    Returns:
        ``[..., T, S]``.
    """
    return dot_scores(query, general_keys(key, weight))


def additive_scores(
    query_projected: Array, key_projected: Array, vector: Array
) -> jax.Array:
    """Additive score, ``v · tanh(W_q q + W_k k + b)`` (Bahdanau et al. 2015, A.1.2).

    Takes the projections, since that of the keys is the same for all queries. The
    ``[..., T, S, A]`` activations are not kept for the backward pass but formed again.

    Args:
        query_projected: ``[..., T, A]``, ``W_q q``.
        key_projected: ``[..., S, A]``, ``W_k k + b``.
        vector: ``[..., A]``, leading axes broadcast (heads).

    Returns:
        ``[..., T, S]``.

    Raises:
        ValueError: if the three differ in width, the projections in rank, or they are
            no floats.
    """
    projected = {"query_projected": query_projected, "key_projected": key_projected}
    require_same_rank("the additive score", **projected)
    width = query_projected.shape[-1]
    require_axes("key_projected", key_projected, positions=None, width=width)
    require_axes("vector", vector, width=width)
    return _additive_scores(query_projected, key_projected, vector)


@jax.checkpoint
def _additive_scores(query: Array, key: Array, vector: Array) -> jax.Array:
    activations_tsa = jnp.tanh(query[..., :, None, :] + key[..., None, :, :])
    return jnp.einsum("...tsa,...a->...ts", activations_tsa, vector)


def concat_scores(query: Array, key: Array, weight: Array, vector: Array) -> jax.Array:
    """Score of the joined vectors, ``v · tanh(W [q; k])`` (Luong et al. 2015, eq. 8).

    The paper's "concat". It differs from the additive score in two points: one matrix
    maps the concatenation, so that it starts as one matrix of the joined width does,
    and there is no bias. Since ``W [q; k] = W_q q + W_k k``, no pair is ever joined.

    Args:
        query: ``[..., T, K_query]``.
        key: ``[..., S, K_key]``.
        weight: ``[..., K_query + K_key, A]``, leading axes broadcast (heads).
        vector: ``[..., A]``, likewise.

    Returns:
        ``[..., T, S]``.

    Raises:
        ValueError: if the weight is for other widths.
    """
    require_array("query", query)
    require_array("key", key)
    joined = query.shape[-1] + key.shape[-1]
    require_axes("weight", weight, joined_width=joined, width=None)
    of_query, of_key = concat_parts(weight, query.shape[-1])
    return additive_scores(
        jnp.einsum("...tk,...ka->...ta", query, of_query),
        jnp.einsum("...sk,...ka->...sa", key, of_key),
        vector,
    )


def concat_parts(weight: Array, query_width: int) -> tuple[Array, Array]:
    """The parts of the concat scorer's matrix that meet the query and the key.

    Args:
        weight: ``[..., K_query + K_key, A]``.
        query_width: K_query.

    Returns:
        ``[..., K_query, A]`` and ``[..., K_key, A]``.
    """
    return weight[..., :query_width, :], weight[..., query_width:, :]


def location_scores(query: Array, table: Array, num_keys: int) -> jax.Array:
    """Positional score, ``score = (q W)[s]``, blind to what the keys contain.

    The "location" of Luong et al. 2015, eq. 9: a query names the positions it wants
    from a table of fixed length.

    Args:
        query: ``[..., T, K]``.
        table: ``[..., K, P]``, one column per key position; leading axes broadcast.
        num_keys: S, the number of keys.

    Returns:
        ``[..., T, S]``.

    Raises:
        ValueError: if there are more keys than columns in the table, or it is for
            queries of another width.
    """
    require_array("query", query)
    require_axes("table", table, query_width=query.shape[-1], positions=None)
    if num_keys > table.shape[-1]:
        raise ValueError(
            f"the location scorer knows {table.shape[-1]} key positions, got "
            f"{num_keys} keys; shorten the source or train with a longer table."
        )
    return jnp.einsum("...tk,...kp->...tp", query, table[..., :num_keys])
