"""Sliding-window attention: each position sees its neighbours."""

from __future__ import annotations

import dataclasses
import functools

import jax.numpy as jnp

from attnjax.fields import Options, Units
from attnjax.ops.blocks import (
    SMALLEST_BLOCK,
    Side,
    by_residue,
    cut,
    in_order,
    neighbours,
    sides,
)
from attnjax.ops.door import door
from attnjax.ops.parts import Part, Rule, attend_blocks, mean
from attnjax.ops.relative import Bias
from attnjax.types import Array, Attended, Mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlidingWindow(Options):
    """Attention to the neighbours of each position."""

    window: Units = 128  # positions on each side (left only if causal) that are seen
    dilation: Units = 1  # distance between the positions of a window


@door
def sliding_window_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    *,
    window: int = 128,
    dilation: int = 1,
    bias: Bias | None = None,
) -> Attended:
    """Scaled dot-product attention to the neighbours, ``|i - j| <= window · dilation``.

    Query ``i`` sees key ``j`` if ``j - i`` is a multiple of ``dilation`` and at most
    ``window`` such steps away: ``2 · window + 1`` keys, or ``window + 1`` if causal
    (Beltagy et al. 2020, "Longformer", section 3.1, whose window counts both sides
    together). Blocks of ``window`` queries read their own block of keys and the two
    beside it: time and memory ``O(n · window)``.

    Args:
        query: ``[..., T, K]``.
        key: ``[..., T, K]``.
        value: ``[..., T, V]``.
        mask: which query may attend to which key; every fact is honoured, and a window
            of the mask narrows this one.
        window: steps on each side; from ``T - 1`` on this is dense attention.
        dilation: positions of a step.
        bias: added to the scores, a function of the offset of key from query.

    Returns:
        Context ``[..., T, V]``; no weights.

    Raises:
        ValueError: if an option is less than 1, or there are not as many queries as
            keys.
    """
    if window < 1 or dilation < 1:
        raise ValueError(
            f"window and dilation must be at least 1, got {window=}, {dilation=}."
        )
    length = query.shape[-2]
    queries, keys = sides(query, key, value, mask, "sliding_window")
    stride = min(dilation, length)
    pattern = functools.partial(window_pattern, window=window, dilation=dilation)
    near = attend_near(
        by_residue(queries, stride),
        by_residue(keys, stride),
        reach(mask, window, dilation),
        Rule(mask, pattern, bias),
    )
    context = mean(near, value.dtype)
    return Attended(in_order(context, -2, stride, length), None)


def window_pattern(
    query_position: Array, key_position: Array, *, window: int, dilation: int = 1
) -> Array:
    """Whether a key lies in the window of a query.

    Args:
        query_position: int.
        key_position: int, broadcasts against it.
        window: steps on each side.
        dilation: positions of a step.

    Returns:
        Bool.
    """
    offset = key_position - query_position
    near = jnp.abs(offset) <= window * dilation
    return near if dilation == 1 else near & (offset % dilation == 0)


def kept_positions(*, window: int, dilation: int = 1) -> tuple[int, int]:
    """How many first and latest positions a causal window needs of the past.

    Args:
        window: steps on the left.
        dilation: positions of a step.

    Returns:
        Both counts, the query's own position included.
    """
    return 0, window * dilation + 1


def reach(mask: Mask, window: int, dilation: int = 1) -> tuple[int, int]:
    """How many steps a window reaches on each side, narrowed by the mask.

    Args:
        mask: its causal and window facts.
        window: steps on each side.
        dilation: positions of a step.

    Returns:
        Steps to the left and to the right.
    """
    left, right = mask.window or (window * dilation, window * dilation)
    return (
        min(window, left // dilation),
        0 if mask.causal else min(window, right // dilation),
    )


def attend_near(queries: Side, keys: Side, steps: tuple[int, int], rule: Rule) -> Part:
    """Scores queries against the keys at nearby places.

    Args:
        queries: of T places, not cut.
        keys: of the same places.
        steps: places to the left and right that must be scored; more will be, so that
            the rule has to leave out those too far.
        rule: which pairs are allowed.

    Returns:
        The part of these keys.
    """
    length = queries.position.shape[0]
    size = min(length, max(*steps, SMALLEST_BLOCK))
    left, right = (min(1, step) if size < length else 0 for step in steps)
    return attend_blocks(queries, neighbours(cut(keys, size), left, right), size, rule)
