"""The door of every mechanism: what comes in fits together, or a sentence says why not.

Only shapes, ranks and dtypes are looked at, so that a compiled program pays nothing.
The catalog puts a door before every entry. A public function gets one by the decorator,
so that it is as safe to call without the catalog.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from attnjax.types import Array, Mask

Function = TypeVar("Function", bound=Callable[..., Any])
_MARK = "has_door"


class _Kind(NamedTuple):
    """A kind of numbers.

    Attributes:
        dtype: abstract, of numpy.
        words: what the numbers are.
        advice: what to do about others.
    """

    dtype: Any
    words: str
    advice: str


FLOAT = _Kind(np.floating, "floats", "use .astype(jnp.float32)")
INTEGER = _Kind(np.integer, "integers", "use .astype(jnp.int32)")
BOOL = _Kind(np.bool_, "booleans, True where a key may be seen", "use array != 0")


def door(attend: Function) -> Function:
    """Checks the arguments of a mechanism before it sees them.

    Args:
        attend: ``(query, key, value, mask, ...)``, see `attnjax.types.Mechanism`.

    Returns:
        The same function behind its door; itself if it has one.
    """
    if hasattr(attend, _MARK):
        return attend
    name, keywords = attend.__name__, inspect.signature(attend).parameters.values()
    needed = [
        keyword.name
        for keyword in keywords
        if keyword.kind is keyword.KEYWORD_ONLY and keyword.default is keyword.empty
    ]

    @functools.wraps(attend)
    def checked(
        query: Array, key: Array, value: Array, mask: Mask, *more: Any, **options: Any
    ) -> Any:
        missing = [keyword for keyword in needed if options.get(keyword) is None]
        if missing:
            raise ValueError(
                f"{name} needs {' and '.join(missing)}; give every option, and pass "
                "the arrays that the mechanism owns by name: Entry.draw makes them."
            )
        require_fit(name, query, key, value, any_width="score" in options)
        leading = _broadcast(name, query=query, key=key, value=value)
        scores = (*leading, query.shape[-2], key.shape[-2])
        require_facts(name, mask, scores)
        if options.get("bias") is not None:
            require_bias(name, options["bias"], scores)
        return attend(query, key, value, mask, *more, **options)

    setattr(checked, _MARK, True)
    return checked  # type: ignore[return-value]


def step_door(step: Function) -> Function:
    """Checks the arguments of a one-step form; see `attnjax.ops.entry.Incremental`.

    Args:
        step: ``(query, key, value, cache, position, ...)``.

    Returns:
        The same function behind its door; itself if it has one.
    """
    if hasattr(step, _MARK):
        return step

    @functools.wraps(step)
    def checked(
        query: Array,
        key: Array,
        value: Array,
        cache: Any,
        position: Array,
        **options: Any,
    ) -> Any:
        require_fit("a step", query, key, value, any_width="score" in options)
        rows = query.shape[0]
        is_step = query.ndim == 4 and query.shape[-2] == key.shape[-2] == 1
        if not is_step or {array.shape[:2] for array in (key, value)} != {
            query.shape[:2]
        }:
            raise ValueError(
                "a step takes one position [B, H, 1, K] of query, key and value, got "
                f"{_shapes(query=query, key=key, value=value)}; take longer beginnings "
                "one position after another."
            )
        require_array("position", position, INTEGER)
        held = {leaf.shape[0] for leaf in jax.tree.leaves(cache)} | {rows}
        if position.shape != (rows,) or held != {rows}:
            raise ValueError(
                f"a step needs a position and a cache for each of {rows} rows, got "
                f"position {position.shape} and a cache of {sorted(held)} rows."
            )
        if options.get("bias") is not None:
            require_bias("a step", options["bias"], (*query.shape[:2], 1, 1))
        return step(query, key, value, cache, position, **options)

    setattr(checked, _MARK, True)
    return checked  # type: ignore[return-value]


def require_array(name: str, array: Any, kind: _Kind = FLOAT) -> None:
    """Raises unless something is an array of the kind.

    Args:
        name: of the argument, for the message.
        array: what was passed.
        kind: of its numbers.

    Raises:
        ValueError: if it is no array, or one of another dtype.
    """
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise ValueError(
            f"{name} must be an array, got {type(array).__name__}; use jnp.asarray."
        )
    if not jnp.issubdtype(array.dtype, kind.dtype):
        raise ValueError(
            f"{name} must hold {kind.words}, got {array.dtype} of shape {array.shape}; "
            f"{kind.advice}."
        )


def require_axes(name: str, array: Any, **axes: int | None) -> None:
    """Raises unless an array ends in some axes.

    Args:
        name: of the argument, for the message.
        array: what was passed.
        **axes: the last axes by their names, and how long they are; None for any.

    Raises:
        ValueError: if it is no array of floats that ends in them.
    """
    require_array(name, array)
    ends = array.shape[-len(axes) :]
    fits = len(ends) == len(axes) and all(
        want in (None, got) for want, got in zip(axes.values(), ends, strict=True)
    )
    if not fits:
        words = ", ".join(
            axis if size is None else f"{axis} {size}" for axis, size in axes.items()
        )
        raise ValueError(f"{name} must end in the axes [{words}], got {array.shape}.")


def require_shape(name: str, array: Any, **axes: int | None) -> None:
    """Raises unless an array has some axes, and no others.

    Args:
        name: of the argument, for the message.
        array: what was passed.
        **axes: by their names, and how long they are; None for any.

    Raises:
        ValueError: if it is no array of floats with these axes.
    """
    require_axes(name, array, **axes)
    if array.ndim > len(axes):
        raise ValueError(
            f"{name} must have the axes [{', '.join(axes)}] and no others, got "
            f"{array.shape}."
        )


def require_same_rank(name: str, **arrays: Any) -> None:
    """Raises unless arrays of floats have one rank.

    An array of fewer axes would be read as the same for all of the first ones: that of
    a batch, where batch and heads are alike in number, as that of the heads.

    Args:
        name: of the function, for the message.
        **arrays: by their names.

    Raises:
        ValueError: if one is no array of floats, or ranks differ.
    """
    for part, array in arrays.items():
        require_array(part, array)
    if len({array.ndim for array in arrays.values()}) > 1:
        raise ValueError(
            f"{name} needs arrays of one rank, got {_shapes(**arrays)}; give an axis "
            "of length 1 to what is the same for all, such as query[:, None]."
        )


def require_owned(name: str, array: Any, beside: Array, **axes: int | None) -> None:
    """Raises unless an array that a mechanism owns belongs to what it is used with.

    Args:
        name: of the argument, for the message.
        array: what was passed.
        beside: ``[..., length, width]``; its leading axes and those of the array must
            broadcast, and the array must have no more of them.
        **axes: the last axes, as for `require_axes`.

    Raises:
        ValueError: if it ends in other axes, or was made for other heads.
    """
    require_axes(name, array, **axes)
    own, other = array.shape[: -len(axes)], beside.shape[:-2]
    if len(own) > len(other) or any(
        got != want and 1 not in (got, want)
        for got, want in zip(own[::-1], other[::-1], strict=False)
    ):
        raise ValueError(
            f"{name} {array.shape} must be made for the leading axes {other} of the "
            f"array {beside.shape} that it is used with, and is for {own}."
        )


def require_same_shape(name: str, **arrays: Any) -> None:
    """Raises unless arrays are of one shape.

    Args:
        name: of the function, for the message.
        **arrays: by their names.

    Raises:
        ValueError: if shapes differ.
    """
    if len({np.shape(array) for array in arrays.values()}) > 1:
        raise ValueError(f"{name} needs equal shapes, got {_shapes(**arrays)}.")


def require_fit(
    name: str, query: Any, key: Any, value: Any, *, any_width: bool
) -> None:
    """Raises unless query, key and value belong together.

    Args:
        name: of the mechanism, for the message.
        query: ``[..., T, K]``.
        key: ``[..., S, K]``.
        value: ``[..., S, V]``.
        any_width: whether queries and keys may differ in width.

    Raises:
        ValueError: if not.
    """
    arrays = {"query": query, "key": key, "value": value}
    for part, array in arrays.items():
        require_array(f"{name}: {part}", array)
    shapes = _shapes(**arrays)
    if query.ndim < 2 or not query.ndim == key.ndim == value.ndim:
        raise ValueError(
            f"{name} needs query, key and value of one rank, [..., length, width], got "
            f"{shapes}."
        )
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"{name} needs a value for each key, got {key.shape[-2]} keys and "
            f"{value.shape[-2]} values: {shapes}."
        )
    if query.shape[-1] != key.shape[-1] and not any_width:
        raise ValueError(
            f"{name} needs queries and keys of equal width, got {query.shape[-1]} and "
            f"{key.shape[-1]}: {shapes}."
        )
    # The keys of a scorer that reads positions alone have no width.
    if 0 in (*query.shape, *key.shape[:-1], *value.shape):
        raise ValueError(
            f"{name} needs at least one query and key, and no axis of length 0, got "
            f"{shapes}."
        )


def require_facts(name: str, mask: Any, scores: tuple[int, ...]) -> None:
    """Raises unless the facts of a mask are those of some scores.

    Args:
        name: of the mechanism, for the message.
        mask: what was passed for it.
        scores: their shape ``[..., T, S]``.

    Raises:
        ValueError: if it is no `Mask`, or a fact has another rank, length or dtype.
    """
    if not isinstance(mask, Mask):
        got = f"an array {mask.shape}" if hasattr(mask, "shape") else repr(mask)
        raise ValueError(
            f"{name} takes the facts of a mask, got {got}; pass Mask(), or for real "
            "keys Mask(valid=...).over_heads()."
        )
    *leading, num_queries, num_keys = scores
    facts: tuple[tuple[str, Any, int, _Kind], ...] = (
        ("valid", mask.valid, num_keys, BOOL),
        ("query_segments", mask.query_segments, num_queries, INTEGER),
        ("key_segments", mask.key_segments, num_keys, INTEGER),
    )
    for fact, array, length, kind in facts:
        if array is None:
            continue
        require_array(f"{name}: the mask's {fact}", array, kind)
        expected = (*leading, length)
        fits = array.ndim == len(expected) and array.shape[-1] == length
        if not fits or any(
            got not in (1, want)
            for got, want in zip(array.shape, expected, strict=True)
        ):
            raise ValueError(
                f"{name}: the mask's {fact} must have the shape {expected}, or 1 for "
                f"any axis but the last, as the scores are {tuple(scores)}; got "
                f"{array.shape}. Mask.over_heads() adds the axis of the heads."
            )


def require_bias(name: str, bias: Any, scores: tuple[int, ...]) -> None:
    """Raises unless a bias is a function that has a value for each head.

    Args:
        name: of the mechanism, for the message.
        bias: see `attnjax.ops.relative.Bias`.
        scores: their shape ``[..., H, T, S]``.

    Raises:
        ValueError: if not.
    """
    if not callable(bias):
        raise ValueError(
            f"{name}: bias must be a function of offsets, such as alibi(num_heads), "
            f"got {type(bias).__name__}; see attnjax.ops.relative."
        )
    offset = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    heads = jax.eval_shape(bias, offset).shape[0]
    if scores[-3:-2] != (heads,):
        raise ValueError(
            f"{name}: the bias is one for {heads} heads, but the scores are "
            f"{tuple(scores)}, [..., heads, queries, keys]."
        )


def require_allowed(scores: Array, allowed: Array | None) -> None:
    """Raises unless a matrix of allowed pairs has the rank of its scores.

    Args:
        scores: ``[..., T, S]``.
        allowed: bool of the same rank, axes of length 1 broadcast; None allows all.

    Raises:
        ValueError: if not.
    """
    require_array("scores", scores)
    if allowed is None:
        return
    require_array("allowed", allowed, BOOL)
    if allowed.ndim != scores.ndim or any(
        got != want and 1 not in (got, want)
        for got, want in zip(allowed.shape, scores.shape, strict=True)
    ):
        raise ValueError(
            f"allowed must have the axes of the scores {scores.shape}, or 1 for any, "
            f"got {allowed.shape}; say which axes are meant with allowed[:, None]."
        )


def _broadcast(name: str, **arrays: Array) -> tuple[int, ...]:
    """The common leading axes of arrays ``[..., length, width]``."""
    try:
        return jnp.broadcast_shapes(*(array.shape[:-2] for array in arrays.values()))
    except ValueError:
        raise ValueError(
            f"{name} needs leading axes that broadcast, got {_shapes(**arrays)}."
        ) from None


def _shapes(**arrays: Any) -> str:
    return ", ".join(f"{name} {np.shape(array)}" for name, array in arrays.items())
