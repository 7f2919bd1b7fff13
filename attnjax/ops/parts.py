"""One softmax over keys that are scored in several disjoint parts.

A sparse pattern is a union: a window and a few global keys, a window and a column. Each
part is scored by blocks on its own; what the softmax needs of it are a maximum and two
sums, and those of several parts join exactly (Milakov and Gimelshein 2018, "Online
normalizer calculation for softmax"). A key that two parts held would count twice: the
pattern of one part has to leave out what the other has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from attnjax.ops.blocks import SMALLEST_BLOCK, Side, cut
from attnjax.ops.masks import all_of, allowed_at, with_rank
from attnjax.ops.relative import Bias, bias_at
from attnjax.types import Array, Mask


class Part(NamedTuple):
    """What the softmax needs to know of some of the keys, all float32.

    Attributes:
        highest: ``[..., T]``, the largest score; -inf where no key is allowed.
        total: ``[..., T]``, sum of ``exp(score - highest)``.
        context: ``[..., T, V]``, sum of the values weighted by the same.
    """

    highest: Array
    total: Array
    context: Array

    def change(self, function: Callable[[Array, int], Array]) -> Part:
        """Treats the queries of all arrays alike.

        Args:
            function: ``(array, axis of the queries)`` to the changed array; the axis
                is counted from the end.

        Returns:
            The changed part.
        """
        return Part(
            function(self.highest, -1),
            function(self.total, -1),
            function(self.context, -2),
        )


class Rule(NamedTuple):
    """Which pairs of one part are allowed, and what is added to their scores.

    Attributes:
        mask: the facts; valid and segments are read from the sides.
        pattern: query positions ``[T, 1]`` and key positions ``[1, S]`` to bool, which
            broadcasts against ``[T, S]``; None allows every pair that is scored.
        bias: a function of the offset of key from query, or None.
    """

    mask: Mask
    pattern: Callable[[Array, Array], Array] | None = None
    bias: Bias | None = None


def attend_blocks(queries: Side, keys: Side, size: int, rule: Rule) -> Part:
    """Scores each block of queries against its own block of keys.

    One block at a time, and the backward pass forms its scores again: the memory is
    that of the sides and of the scores of one block.

    Args:
        queries: of T places, not cut.
        keys: cut into as many blocks of any size as there are of queries, or into one
            that all of them read.
        size: queries of a block.
        rule: which pairs are allowed.

    Returns:
        The part of these keys, for T queries.
    """
    length = queries.position.shape[0]
    query_blocks, key_blocks = _blocks_first(cut(queries, size)), _blocks_first(keys)

    # In a loop the compiler cannot merge the forward pass with its recomputation.
    of_block = jax.checkpoint(
        lambda queries, keys: _score(queries, keys, rule), prevent_cse=False
    )

    if key_blocks.position.shape[0] == 1:
        common = jax.tree.map(lambda leaf: leaf[0], key_blocks)
        part = lax.map(lambda block: of_block(block, common), query_blocks)
    else:
        part = lax.map(lambda pair: of_block(*pair), (query_blocks, key_blocks))

    def joined(array: Array, axis: int) -> Array:
        array = jnp.moveaxis(array, 0, axis - 1)
        axis = array.ndim + axis
        shape = (*array.shape[: axis - 1], -1, *array.shape[axis + 1 :])
        return lax.slice_in_dim(array.reshape(shape), 0, length, axis=axis - 1)

    return part.change(joined)


def attend_all(queries: Side, keys: Side, rule: Rule) -> Part:
    """Scores every query against all of some keys.

    Args:
        queries: of T places, not cut.
        keys: of S places, not cut; few, or else the queries are.
        rule: which pairs are allowed.

    Returns:
        The part of these keys.
    """
    size = min(queries.position.shape[0], 2 * SMALLEST_BLOCK)
    return attend_blocks(queries, cut(keys, keys.position.shape[0]), size, rule)


def union(*parts: Part) -> Part:
    """Joins parts that have no key in common.

    Args:
        *parts: for the same queries.

    Returns:
        The part of all their keys.
    """
    highest = jnp.stack([jnp.asarray(part.highest) for part in parts]).max(axis=0)
    finite = _finite(highest)
    shrinks = [jnp.exp(part.highest - finite) for part in parts]
    pairs = list(zip(parts, shrinks, strict=True))
    total = sum(part.total * shrink for part, shrink in pairs)
    context = sum(part.context * shrink[..., None] for part, shrink in pairs)
    return Part(highest, jnp.asarray(total), jnp.asarray(context))


def mean(part: Part, dtype: Any) -> jax.Array:
    """The weighted mean of the values.

    Args:
        part: of all keys.
        dtype: of the result.

    Returns:
        ``[..., T, V]``, exactly 0 for a query that may attend to no key.
    """
    total = jnp.where(part.total == 0.0, 1.0, part.total)
    return jnp.asarray(part.context / total[..., None], dtype)


def _score(queries: Side, keys: Side, rule: Rule) -> Part:
    """The part of one block of keys for one block of queries."""
    (query_tk,), (key_sk, value_sv) = queries.arrays, keys.arrays
    scaled_tk = query_tk.astype(jnp.float32) * query_tk.shape[-1] ** -0.5
    scores = jnp.einsum("...tk,...sk->...ts", scaled_tk, key_sk.astype(jnp.float32))
    query_position = queries.position[..., :, None]
    key_position = keys.position[..., None, :]
    query_position = with_rank(query_position, key_position.ndim)
    offset_ts = key_position - query_position
    if rule.bias is not None:
        scores = scores + bias_at(rule.bias, offset_ts, scores.ndim)
    segments = (queries.segments, keys.segments)
    exists = keys.position >= 0
    facts = [allowed_at(rule.mask, offset_ts, keys.valid, segments, exists)]
    if rule.pattern is not None:
        facts.append(rule.pattern(query_position, key_position))
    allowed = all_of([fact for fact in facts if fact is not None])
    if allowed is not None:
        scores = jnp.where(with_rank(allowed, scores.ndim), scores, -jnp.inf)
    highest = lax.stop_gradient(scores.max(axis=-1))
    weights = jnp.exp(scores - _finite(highest)[..., None])
    context = jnp.einsum("...ts,...sv->...tv", weights, value_sv.astype(jnp.float32))
    return Part(highest, weights.sum(axis=-1), context)


def _finite(highest: Array) -> Array:
    """0 in place of the -inf of a row without a key, so that no inf - inf occurs."""
    return jnp.where(jnp.isneginf(highest), 0.0, highest)


def _blocks_first(side: Side) -> Side:
    """The axis of the blocks in front, where a loop takes one at a time."""
    return side.change(lambda array, axis, fill: jnp.moveaxis(array, axis - 1, 0))
