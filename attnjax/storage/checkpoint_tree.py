"""What a checkpoint holds against what the program expects, leaf by leaf."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attnjax.storage.manifest import DamagedCheckpointError
from attnjax.types import PyTree

_LISTED_DIFFERENCES = 20  # of each kind
_SHOWN_CHARACTERS = 200
_SMALL_BYTES = 1 << 20  # of an array: not worth a program for each device's share
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
    return [line for lines in _by_kind(stored, expected).values() for line in lines]


def listed(lines: Sequence[str]) -> str:
    """Differences as an indented list, cut where it grows too long to read.

    Args:
        lines: of `differences`.

    Returns:
        One line each, the first after a line break; also on one line they stay apart.
    """
    shown = list(lines[:_LISTED_DIFFERENCES])
    if len(lines) > len(shown):
        shown.append(f"... and {len(lines) - len(shown):,} more")
    return "".join(f"\n  {line};" for line in shown)


def require_fit(
    path: Path, stored: PyTree, target: PyTree, others: Sequence[str] = ()
) -> None:
    """Refuses to restore what is not, leaf for leaf, what the program expects.

    Args:
        path: of the checkpoint, for the message.
        stored: its metadata.
        target: arrays or abstract arrays.
        others: lines on what else differs, for the same message.

    Raises:
        ValueError: if any leaf is missing, extra, or of another shape or dtype, or
            anything else differs.
    """
    kinds = _by_kind(stored, target)
    counts = [f"{len(lines):,} {kind}" for kind, lines in kinds.items() if lines]
    if counts or others:
        summary = f"; leaves: {', '.join(counts)}" if counts else ""
        lines = "".join(map(listed, (others, *kinds.values())))
        raise ValueError(
            f"the checkpoint {path} does not fit this configuration (stored -> "
            f"expected{summary}):{lines}\nuse the configuration, the data and the "
            "tokenizers it was trained with, or another run folder."
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


@contextlib.contextmanager
def intact(path: Path) -> Iterator[None]:
    """Turns what values that we never wrote raise while they are read into a sentence.

    Args:
        path: of the checkpoint whose values beside the state the body reads.

    Yields:
        Nothing.

    Raises:
        DamagedCheckpointError: if the body raises any error that such values cause.
    """
    try:
        yield
    except _CONTENTS_ERRORS as error:
        raise DamagedCheckpointError(
            f"the checkpoint {path} is damaged: what it holds beside the weights is "
            f"wrong ({type(error).__name__}: {str(error)[:_SHOWN_CHARACTERS]}); "
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


def without_place(target: PyTree, stored: PyTree) -> PyTree:
    """Leaves out the optimiser's place for clipping if the checkpoint has none.

    A run that began without clipping had no such place at first.

    Args:
        target: a state, or any other tree, which stays as it is.
        stored: the metadata of the checkpoint.

    Returns:
        The target as it was then.
    """
    states = getattr(target, "optimizer_state", None)
    old = stored.get("optimizer_state") if isinstance(stored, dict) else None
    if not isinstance(states, tuple) or not isinstance(old, list | tuple):
        return target
    if len(old) + 1 != len(states) or jax.tree.leaves(states[0]):
        return target
    return dataclasses.replace(target, optimizer_state=states[1:])


def small_on_host(state: PyTree) -> PyTree:
    """Takes small arrays that several devices have copies of to the host.

    Orbax has each copy write its share, which it cuts out with a program of its own for
    each shape and device: an array of a kilobyte costs as many compilations as a large
    one, and the first save of every process waits for them.

    Args:
        state: arrays.

    Returns:
        The same values; large arrays, sharded ones, those on one device and typed PRNG
        keys are the same arrays.
    """

    def is_small(leaf: Any) -> bool:
        return (
            isinstance(leaf, jax.Array)
            and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            and leaf.nbytes < _SMALL_BYTES
            and leaf.is_fully_replicated
            and len(leaf.sharding.device_set) > 1
        )

    leaves, structure = jax.tree.flatten(state)
    small = {number: leaf for number, leaf in enumerate(leaves) if is_small(leaf)}
    for number, leaf in jax.device_get(small).items():  # all copies begin at once
        leaves[number] = leaf
    return jax.tree.unflatten(structure, leaves)


def with_parts(target: PyTree, parts: PyTree) -> PyTree:
    """Puts stored parts back into what they are parts of.

    Args:
        target: what `present_parts` was given, or its abstract values.
        parts: what it gave.

    Returns:
        The target with the values of the parts.
    """
    if not dataclasses.is_dataclass(target) or isinstance(target, type):
        return parts
    states = getattr(target, "optimizer_state", ())
    if isinstance(states, tuple) and len(parts["optimizer_state"]) < len(states):
        parts = {**parts, "optimizer_state": (states[0], *parts["optimizer_state"])}
    return dataclasses.replace(target, **parts)


def _by_kind(stored: PyTree, expected: PyTree) -> dict[str, list[str]]:
    old, new = leaves_by_name(stored), leaves_by_name(expected)
    return {
        "missing": [f"{n}: missing, expected {new[n]}" for n in new if n not in old],
        "not expected": [f"{n}: {old[n]} not expected" for n in old if n not in new],
        "of another shape or dtype": [
            f"{n}: {old[n]} -> {new[n]}" for n in new if old.get(n, new[n]) != new[n]
        ],
    }


def _name(entry: object) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _leaf(leaf: PyTree) -> Leaf:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return Leaf(tuple(leaf.shape), jnp.dtype(leaf.dtype).name)
