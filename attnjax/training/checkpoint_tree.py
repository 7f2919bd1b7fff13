"""What a checkpoint holds against what the program expects, leaf by leaf."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attnjax.types import PyTree

_LISTED_DIFFERENCES = 20
_CONTENTS_ERRORS = (
    *(ArithmeticError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError),
)


class Leaf(NamedTuple):
    """The abstract value of one leaf.

    Attributes:
        shape: lengths of the axes.
        dtype: name of the element type.
    """

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def leaves_by_name(tree: PyTree) -> dict[str, Leaf]:
    """Every leaf of a tree under a dotted name that outlives serialisation.

    A dataclass field, a dictionary key and a named tuple's field look the same, as do
    list and tuple positions, because a stored tree no longer tells them apart. A typed
    PRNG key counts as what it is stored as, its uint32 data.

    Args:
        tree: arrays, abstract shapes, or a checkpoint's metadata.

    Returns:
        Name to shape and dtype.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {".".join(map(_name, path)): _leaf(leaf) for path, leaf in leaves}


def differences(stored: PyTree, expected: PyTree) -> list[str]:
    """One line for each leaf that is missing, extra, or of another shape or dtype.

    Args:
        stored: the tree of a checkpoint, or its metadata.
        expected: the tree to be restored, or its abstract shapes.

    Returns:
        Lines for a reader; empty if the trees agree.
    """
    old, new = leaves_by_name(stored), leaves_by_name(expected)
    lines = [
        f"{name}: missing, expected {new[name]}" for name in new if name not in old
    ]
    lines += [f"{name}: {old[name]} not expected" for name in old if name not in new]
    lines += [
        f"{name}: {old[name]} -> {new[name]}"
        for name in new
        if name in old and old[name] != new[name]
    ]
    return lines


def listed(lines: list[str]) -> str:
    """Differences as an indented list, cut where it grows too long to read.

    Args:
        lines: of `differences`.

    Returns:
        One line each, the first after a line break.
    """
    shown = lines[:_LISTED_DIFFERENCES]
    if len(lines) > len(shown):
        shown.append(f"... and {len(lines) - len(shown)} more")
    return "".join(f"\n  {line}" for line in shown)


def require_fit(path: Path, stored: PyTree, target: PyTree) -> None:
    """Refuses to restore what is not, leaf for leaf, what the program expects.

    Args:
        path: of the checkpoint, for the message.
        stored: its metadata.
        target: arrays or abstract arrays.

    Raises:
        ValueError: if any leaf is missing, extra, or of another shape or dtype.
    """
    if lines := differences(stored, target):
        raise ValueError(
            f"the checkpoint {path} does not fit this configuration (stored -> "
            f"expected):{listed(lines)}\nuse the configuration it was trained with, or "
            "another run folder."
        )


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns what Orbax raises over contents that are no checkpoint into a sentence.

    Args:
        path: of the checkpoint, for the message.

    Yields:
        Nothing.

    Raises:
        ValueError: if the body raises any error that such contents cause; too little
            memory is none of them.
    """
    try:
        yield
    except _CONTENTS_ERRORS as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"the checkpoint {path} cannot be read ({type(error).__name__}: {reason}); "
            "restore it from a copy, or use another one."
        ) from error


def abstract_leaf(leaf: Any) -> jax.ShapeDtypeStruct:
    """What to restore and where: as the target says, else on the first device.

    Args:
        leaf: an array or abstract array.

    Returns:
        Its shape, dtype and place.
    """
    place = getattr(leaf, "sharding", None)
    place = place or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)


def present_parts(state: PyTree) -> PyTree:
    """The fields of a state that are not None, by name.

    Orbax stores that a part is None; without it a new optional part of the state leaves
    the checkpoints of runs that do not use it as they were.

    Args:
        state: a dataclass, or any other tree, which stays as it is.

    Returns:
        What is stored of it.
    """
    if not dataclasses.is_dataclass(state) or isinstance(state, type):
        return state
    fields = {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
    return {name: value for name, value in fields.items() if value is not None}


def with_parts(target: PyTree, parts: PyTree) -> PyTree:
    """Puts stored parts back into what they are parts of.

    Args:
        target: what `present_parts` was given, or its abstract values.
        parts: what it gave.

    Returns:
        The target with the values of the parts.
    """
    if dataclasses.is_dataclass(target) and not isinstance(target, type):
        return dataclasses.replace(target, **parts)
    return parts


def _name(entry: object) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _leaf(leaf: PyTree) -> Leaf:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return Leaf(tuple(leaf.shape), jnp.dtype(leaf.dtype).name)
