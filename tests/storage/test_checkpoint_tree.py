"""Differences of trees in a reader's words."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from attnjax.storage.checkpoint_tree import (
    Leaf,
    differences,
    leaves_by_name,
    require_fit,
    small_on_host,
)
from attnjax.storage.checkpoints import Checkpoints
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


def test_a_message_has_all_kinds_and_counts_what_it_leaves_out(tmp_path):
    stored = {f"old_{n}": jnp.zeros(3) for n in range(25)} | {"b": jnp.zeros(5)}
    expected = {f"new_{n}": jnp.zeros(7) for n in range(22)} | {"b": jnp.zeros(2)}
    with pytest.raises(ValueError, match="does not fit") as caught:
        require_fit(tmp_path / "600", stored, expected, ["data.corpus: a -> b"])
    message = str(caught.value)
    assert f"{tmp_path}/600" in message
    assert "22 missing, 25 not expected, 1 of another shape or dtype" in message
    assert "data.corpus: a -> b;" in message
    assert "b: float32[5] -> float32[2];" in message
    assert "new_19: missing, expected float32[7];" in message
    assert "old_19: float32[3] not expected;" in message
    assert ("... and 2 more;" in message, "... and 5 more;" in message) == (True, True)
    assert "new_9:" not in message
    require_fit(tmp_path, stored, stored)


def test_something_else_alone_is_enough_to_refuse(tmp_path):
    with pytest.raises(ValueError, match=r"\(stored -> expected\):\n  data.a: 1 -> 2;"):
        require_fit(tmp_path, {}, {}, ["data.a: 1 -> 2"])


def placed(mesh):
    """Copied to all devices: two small arrays and a large one; a key; one in parts."""
    everywhere, parts = (
        NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data",))
    )
    copied = {
        "small": jnp.arange(24.0).reshape(8, 3),
        "count": jnp.int32(7),
        "large": jnp.arange(2.0**19),
        "key": jax.random.key(5),
    }
    return {
        **jax.device_put(copied, everywhere),
        "parts": jax.device_put(jnp.arange(16.0), parts),
        "single": jnp.arange(3.0),
    }


def test_small_copies_are_taken_to_the_host_and_nothing_else():
    state = placed(jax.make_mesh((8,), ("data",)))
    found = small_on_host(state)
    assert isinstance(found["small"], np.ndarray)
    assert found["count"] == 7
    assert found["count"].dtype == jnp.int32
    np.testing.assert_array_equal(found["small"], state["small"])
    for name in ("large", "key", "parts", "single"):
        assert found[name] is state[name]


def test_small_copies_are_saved_without_a_program_for_each_device(tmp_path):
    everything = placed(jax.make_mesh((8,), ("data",)))
    state = {name: everything[name] for name in ("small", "count", "parts")}
    compiled = []
    listener = lambda event, seconds, **_: compiled.append(event)  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        with Checkpoints(tmp_path, 1) as checkpoints:
            checkpoints.save(1, state, {})
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert not [event for event in compiled if "compile" in event]
    with Checkpoints(tmp_path, None) as checkpoints:
        restored, _ = checkpoints.restore(1, state)
    assert restored["small"].sharding == state["small"].sharding
    jax.tree.map(np.testing.assert_array_equal, restored, state)
