"""Longformer attention: a sliding window, and a few tokens that all see."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from attnjax.fields import Options, Units, UnitsOrZero
from attnjax.ops.blocks import Side, first, sides
from attnjax.ops.door import door
from attnjax.ops.local import attend_near, reach, window_pattern
from attnjax.ops.masks import refuse
from attnjax.ops.parts import Rule, attend_all, mean, union
from attnjax.ops.relative import Bias
from attnjax.types import Array, Attended, Mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalGlobal(Options):
    """A sliding window, and first tokens that all see."""

    window: Units = 128  # positions on each side (left only if causal) that are seen
    num_global: UnitsOrZero = 1  # first tokens that see all and are seen by all


class GlobalProjections(NamedTuple):
    """Second projections of the sequence, by which global tokens look at it.

    Attributes:
        query: ``[..., T, K]``; only the global tokens' are read.
        key: ``[..., T, K]``.
        value: ``[..., T, V]``.
    """

    query: Array
    key: Array
    value: Array


@door
def local_global_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    window: int = 128,
    num_global: int = 1,
    bias: Bias | None = None,
) -> Attended:
    """Attention to the neighbours and to the first tokens, which see everything.

    Query ``i`` sees key ``j`` if ``|i - j| <= window``, or one of them is among the
    first ``num_global`` (Beltagy et al. 2020, "Longformer", section 3.1, "global
    attention"). One softmax over all keys that a query sees. Time and memory
    ``O(n · (window + num_global))``.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., T, K]``.
        value: ``[..., T, V]``.
        mask: which query may attend to which key; valid, causal and window are
            honoured. A causal mask leaves of the global tokens' view what is earlier.
        window: positions on each side; from ``T - 1`` on this is dense attention.
        num_global: first tokens that see all and are seen by all; from ``T`` on this
            is dense attention.
        bias: added to the scores, a function of the offset of key from query.

    Returns:
        Context ``[..., T, V]``; no weights.

    Raises:
        ValueError: if an option is too small, the mask has segments, or there are not
            as many queries as keys.
    """
    pair = sides(query, key, value, mask, "local_global")
    options = (window, num_global)
    return _attend(pair, pair, mask, options, bias)


@door
def longformer_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    projections: GlobalProjections,
    *,
    window: int = 128,
    num_global: int = 1,
) -> Attended:
    """`local_global_attention` whose global tokens look through projections of theirs.

    So does the model of Beltagy et al. 2020, section 3.1, "linear projections for
    global attention": other tokens see the global ones by the ordinary projections.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., T, K]``.
        value: ``[..., T, V]``.
        mask: as for `local_global_attention`.
        projections: the second query, key and value.
        window: positions on each side; the paper's and Hugging Face's is twice this.
        num_global: first tokens that see all and are seen by all.

    Returns:
        Context ``[..., T, V]``; no weights.

    Raises:
        ValueError: as `local_global_attention` does.
    """
    pair = sides(query, key, value, mask, "local_global")
    of_global = sides(*projections, mask, "local_global")
    return _attend(pair, of_global, mask, (window, num_global), None)


def local_global_pattern(
    query_position: Array, key_position: Array, *, window: int, num_global: int
) -> Array:
    """Whether a query sees a key.

    Args:
        query_position: int.
        key_position: int, broadcasts against it.
        window: positions on each side.
        num_global: first tokens that see all and are seen by all.

    Returns:
        Bool.
    """
    either_global = (key_position < num_global) | (query_position < num_global)
    return window_pattern(query_position, key_position, window=window) | either_global


def kept_positions(*, window: int, num_global: int) -> tuple[int, int]:
    """How many first and latest positions a causal step needs.

    Args:
        window: positions on the left.
        num_global: first tokens that all see.

    Returns:
        Both counts, the query's own position included.
    """
    return num_global, window + 1


def _attend(
    pair: tuple[Side, Side],
    of_global: tuple[Side, Side],
    mask: Mask,
    options: tuple[int, int],
    bias: Bias | None,
) -> Attended:
    """Window part, and global part both ways."""
    window, num_global = options
    if window < 1 or num_global < 0:
        raise ValueError(
            "window must be at least 1 and num_global at least 0, got "
            f"{window=}, {num_global=}."
        )
    refuse(
        mask,
        "local_global",
        segments="its global tokens are the first of a row, and only the first of "
        "several packed sentences would have them; use sliding_window or chunked, or "
        "do not pack",
    )
    queries, keys = pair
    dtype = keys.arrays[-1].dtype
    count = min(num_global, queries.position.shape[0])

    def near_and_not_global(query_position: Array, key_position: Array) -> Array:
        near = window_pattern(query_position, key_position, window=window)
        return near & (key_position >= count)

    rule = Rule(mask, near_and_not_global, bias)
    seen = attend_near(queries, keys, reach(mask, window), rule)
    if count == 0:
        return Attended(mean(seen, dtype), None)
    everything = Rule(mask, None, bias)
    seen = union(seen, attend_all(queries, first(keys, count), everything))
    global_queries, all_keys = of_global
    rows = attend_all(first(global_queries, count), all_keys, everything)
    contexts = mean(rows, dtype), mean(seen, dtype)[..., count:, :]
    return Attended(jnp.concatenate(contexts, axis=-2), None)
