"""Differences of trees in a reader's words."""

import jax
import jax.numpy as jnp
import optax
import pytest

from attnjax.training.checkpoint_tree import Leaf, differences, leaves_by_name
from attnjax.training.state import init_state


def test_names_do_not_tell_containers_apart():
    state = optax.ScaleByAdamState(jnp.zeros((), jnp.int32), {"w": jnp.ones(2)}, {})
    stored = [None, {"count": jnp.zeros((), jnp.int32), "mu": {"w": jnp.ones(2)}}]
    expected = (optax.EmptyState(), state)
    assert leaves_by_name(expected) == {
        "1.count": Leaf((), "int32"),
        "1.mu.w": Leaf((2,), "float32"),
    }
    assert differences(stored, expected) == []


def test_a_key_is_its_data(linear_task, adam):
    leaves = leaves_by_name(init_state(linear_task(), adam, 0))
    assert leaves["rng"] == Leaf((2,), "uint32")


def tree(**changes):
    leaves = {"a": jnp.zeros((3, 5)), "b": jnp.zeros(5, jnp.int32), **changes}
    return {name: leaf for name, leaf in leaves.items() if leaf is not None}


@pytest.mark.parametrize(
    ("stored", "expected_line"),
    [
        (tree(a=None), "a: missing, expected float32[3, 5]"),
        (tree(c=jnp.zeros(7)), "c: float32[7] not expected"),
        (tree(a=jnp.zeros((5, 3))), "a: float32[5, 3] -> float32[3, 5]"),
        (tree(a=jnp.zeros((3, 5), "bfloat16")), "a: bfloat16[3, 5] -> float32[3, 5]"),
        (tree(b=jnp.zeros(5)), "b: float32[5] -> int32[5]"),
    ],
)
def test_each_kind_of_difference_has_a_line(stored, expected_line):
    abstract = jax.eval_shape(tree)
    assert differences(stored, abstract) == [expected_line]
    assert differences(tree(), abstract) == []
