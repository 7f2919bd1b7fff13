"""What a checkpoint holds against what the program expects, leaf by leaf."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from attnjax.types import PyTree


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


def _name(entry: object) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _leaf(leaf: PyTree) -> Leaf:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return Leaf(tuple(leaf.shape), jnp.dtype(leaf.dtype).name)
