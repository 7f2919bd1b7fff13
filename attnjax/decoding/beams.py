"""Rows and the several outputs of each: how arrays of one are made those of the other.

``[N, ...]`` with N = B * J holds row 0's outputs, then row 1's, and so on.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from attnjax.types import Array, PyTree


def repeat_for_beams(tree: PyTree, beam_size: int) -> PyTree:
    """Repeats every row of every leaf: ``[B, ...]`` to ``[B * beam_size, ...]``.

    For what `step` closes over (projected keys, masks): the rows that a beam search
    hands to it are row 0's beams, then row 1's, and so on.
    """
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, beam_size, axis=0), tree)


def split_rows(tree: PyTree, beam_size: int) -> PyTree:
    """Leaves ``[B * J, ...]`` to ``[B, J, ...]``."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, beam_size, *leaf.shape[1:]), tree)


def take_each(leaf: Array, places: Array) -> jax.Array:
    """Picks along axis 1 by ``[B, K]`` places: ``[B, J, ...]`` to ``[B, K, ...]``."""
    trailing = (1,) * (leaf.ndim - 2)
    return jnp.take_along_axis(leaf, places.reshape(*places.shape, *trailing), axis=1)


def where_rows(chosen: Array, new: PyTree, old: PyTree) -> PyTree:
    """Takes the chosen rows from one tree and the others from another.

    Args:
        chosen: ``[B]`` bool.
        new: leaves ``[B, ...]``.
        old: leaves of the same shapes.

    Returns:
        A tree of the same structure.
    """

    def choose(new_leaf: jax.Array, old_leaf: jax.Array) -> jax.Array:
        rows = jnp.asarray(chosen).reshape(-1, *(1,) * (new_leaf.ndim - 1))
        return jnp.where(rows, new_leaf, old_leaf)

    return jax.tree.map(choose, new, old)
