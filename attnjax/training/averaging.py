"""The mean of several checkpoints: of which ones, and how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnjax.storage.checkpoint_tree import differences, listed
from attnjax.storage.checkpoints import Checkpoints
from attnjax.types import PyTree, Variables


def average_variables(members: Iterable[Variables]) -> dict[str, PyTree]:
    """The mean of the weights; the other collections are those of the last member.

    Those are no weights: the mean of several random projections, or of the centroids
    of several partitions, is neither.

    Args:
        members: linen collections of one model, taken one by one as `average_trees`
            takes them.

    Returns:
        The collections, ``params`` averaged.

    Raises:
        ValueError: as `average_trees`.
    """
    others: dict[str, PyTree] = {}

    def weights() -> Iterator[PyTree]:
        for variables in members:
            others.clear()
            others.update({k: v for k, v in variables.items() if k != "params"})
            params = variables["params"]
            del variables
            yield params

    params = average_trees(weights())
    return {"params": params, **others}


def average_trees(trees: Iterable[PyTree]) -> PyTree:
    """The mean of every floating-point leaf; other leaves are those of the last tree.

    ``(x_1 + ... + x_n) / n``, summed and divided in float64 on the host and rounded
    once to the leaf's own type. A sum of up to 2**29 equal float32 values has at most
    53 significant bits, so it is exact, and so is its quotient: the average of a tree
    with itself is that tree, bit for bit. A tied tensor is one leaf, averaged once.

    Args:
        trees: one or more, of the same structure, shapes and types. They are taken one
            by one: a generator that restores them keeps one tree and the sums alive.

    Returns:
        The mean, its floating-point leaves numpy arrays.

    Raises:
        ValueError: if there is no tree, or two of them differ in a leaf.
    """
    count, expected = 0, None
    totals: list[Any] = []
    for tree in trees:
        shapes = jax.tree.map(_shape, tree)
        expected = shapes if count == 0 else expected
        count += 1
        _require_alike(shapes, expected, count)
        leaves = jax.tree.leaves(tree)
        totals = [
            _added(total, leaf)
            for total, leaf in zip(totals or [None] * len(leaves), leaves, strict=True)
        ]
        del tree, leaves  # or they would live while the next one is restored
    if count == 0:
        raise ValueError("an average needs one tree of variables or more, got none.")
    sums = jax.tree.unflatten(jax.tree.structure(expected), totals)
    return jax.tree.map(lambda total, like: _mean(total, count, like), sums, expected)


def steps_to_average(
    checkpoints: Checkpoints,
    *,
    last: int | None = None,
    best: int | None = None,
    keep: int | None = None,
) -> list[int]:
    """The steps of the last k checkpoints, or of the k with the highest scores.

    Args:
        checkpoints: of the run.
        last: how many of the newest.
        best: how many of the best, the earlier of equals; give this or ``last``.
        keep: the run's ``keep_checkpoints``. What is older than so many was kept for
            its score, so it is not one of the last; None means that none is.

    Returns:
        The steps, rising.

    Raises:
        ValueError: if there are fewer checkpoints (or scores), or not exactly one of
            ``last`` and ``best`` is given, a count of 1 or more.
    """
    if (last is None) == (best is None) or (last or best or 0) < 1:
        raise ValueError(
            "an average is of the last k checkpoints or of the best k, k at least 1, "
            f"got {last=}, {best=}; give one of them."
        )
    if best is not None:
        scores = checkpoints.scores()
        ranked = sorted(scores, key=lambda step: (-scores[step], step))
        _require_enough(checkpoints, ranked, best, f"the best {best} scored")
        return sorted(ranked[:best])
    steps = checkpoints.steps()
    recent = steps if keep is None else steps[-keep:]
    _require_enough(checkpoints, recent, last or 0, f"the last {last}")
    return recent[-(last or 0) :]


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _is_floating(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _require_alike(shapes: PyTree, expected: PyTree, number: int) -> None:
    lines = differences(shapes, expected)
    found, wanted = (str(jax.tree.structure(tree)) for tree in (shapes, expected))
    if not lines and found != wanted:  # a list where there was a tuple
        lines = [f"{found} -> {wanted}"]
    if lines:
        raise ValueError(
            f"only like trees can be averaged, but tree {number} differs from the "
            f"first (its leaf -> expected):{listed(lines)}\naverage checkpoints of one "
            "model."
        )


def _added(total: Any, leaf: Any) -> Any:
    """The sum so far and a leaf, in place; a leaf that is not summed replaces it."""
    if not _is_floating(leaf):
        return leaf
    wide = np.array(leaf, np.float64)
    # The first is taken and not added to 0, or -0 would become +0.
    return wide if total is None else np.add(total, wide, out=total)


def _mean(total: Any, count: int, like: jax.ShapeDtypeStruct) -> Any:
    return np.asarray(total / count, like.dtype) if _is_floating(like) else total


def _require_enough(
    checkpoints: Checkpoints, found: Sequence[int], count: int, wanted: str
) -> None:
    if len(found) < count:
        raise ValueError(
            f"{wanted} checkpoints of {checkpoints.folder} are to be averaged, but "
            f"there are only {len(found)}: steps {sorted(found)}; average fewer, or "
            f"train with training.keep_checkpoints={count} or more."
        )
