"""Averages are means, exact where they can be, of the checkpoints that were meant."""

import math
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.storage.checkpoints import Checkpoints
from attnjax.training.averaging import (
    average_trees,
    average_variables,
    steps_to_average,
)


def random_bits(dtype):
    """Numbers of every size with their signs: no NaN, but zeros and infinities."""
    width = jnp.dtype(dtype).itemsize
    words = np.random.default_rng(0).bytes(4_000 * width)
    values = np.concatenate(
        [
            np.frombuffer(words, dtype),
            np.array([0.0, -0.0, math.inf, -math.inf, 1.0, 1 / 3], dtype),
            np.array(
                [jnp.finfo(dtype).max, jnp.finfo(dtype).smallest_subnormal], dtype
            ),
        ]
    )
    return values[~np.isnan(values.astype(np.float32))]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_two_three_is_two_also_where_a_tensor_is_tied(dtype):
    """One array under two names, as shared embeddings are, is averaged once under each.

    Adding in place, or dividing a shared sum twice, would give something else.
    """
    shared = [np.full((5, 2), value, dtype) for value in (1.0, 2.0, 3.0)]
    trees = [{"source": array, "target": array} for array in shared]
    mean = average_trees(trees)
    for name in ("source", "target"):
        np.testing.assert_array_equal(mean[name], np.full((5, 2), 2.0))
        assert mean[name].dtype == dtype
    assert [float(array[0, 0]) for array in shared] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.float16])
def test_the_average_of_a_tree_with_itself_is_that_tree_bit_for_bit(dtype):
    tree = {"kernel": random_bits(dtype), "scale": np.array(-0.0, dtype)}
    expected = {name: leaf.tobytes() for name, leaf in tree.items()}
    for count in range(1, 21):
        mean = average_trees([tree] * count)
        assert {name: leaf.tobytes() for name, leaf in mean.items()} == expected, count
        assert mean["kernel"].dtype == dtype


def test_three_copies_of_one_model_are_that_model():
    tree = {"params": {"kernel": jax.random.normal(jax.random.key(1), (7, 5))}}
    mean = average_trees(jax.tree.map(jnp.copy, tree) for _ in range(3))
    assert (
        mean["params"]["kernel"].tobytes()
        == np.asarray(tree["params"]["kernel"]).tobytes()
    )


def test_the_mean_is_rounded_once():
    """A float32 sum forgets the ones: (2**24 + 1 + 1) / 3."""
    trees = [{"scale": np.float32(value)} for value in (2.0**24, 1.0, 1.0)]
    assert average_trees(trees)["scale"] == np.float32((2**24 + 2) / 3)
    generator = np.random.default_rng(1)
    values = generator.normal(size=(5, 7, 3)).astype(np.float32)
    mean = average_trees({"kernel": each} for each in values)["kernel"]
    expected = values.astype(np.float64).mean(0).astype(np.float32)
    np.testing.assert_array_equal(mean, expected)


def test_integers_and_keys_are_those_of_the_last_tree():
    trees = [
        {
            "count": jnp.array([value, value + 5], jnp.int32),
            "seen": np.array(value > 1),
            "rng": jax.random.key(value),
            "mean": jnp.float32(value),
        }
        for value in (1, 4)
    ]
    mean = average_trees(trees)
    assert mean["count"].tolist() == [4, 9]
    assert mean["count"].dtype == jnp.int32
    assert mean["seen"] is trees[-1]["seen"]
    assert mean["rng"] is trees[-1]["rng"]
    assert mean["mean"] == 2.5


def test_what_is_no_weight_is_that_of_the_last_member():
    """The mean of FAVOR's projections is no random projection."""
    members = [
        {
            "params": {"kernel": np.full(3, value, np.float32)},
            "buffers": {"projection": np.full((2, 2), value, np.float32)},
        }
        for value in (1.0, 4.0)
    ]
    mean = average_variables(iter(members))
    assert mean["params"]["kernel"].tolist() == [2.5] * 3
    assert mean["buffers"]["projection"] is members[-1]["buffers"]["projection"]


def test_one_tree_lives_at_a_time():
    alive = []

    def restored():
        for value in range(4):
            assert all(reference() is None for reference in alive)
            leaf = np.full(3, value, np.float32)
            alive.append(weakref.ref(leaf))
            yield {"kernel": leaf}
            del leaf

    assert average_trees(restored())["kernel"].tolist() == [1.5] * 3
    assert len(alive) == 4


def test_trees_that_differ_are_refused_with_their_leaves():
    first = {"kernel": np.zeros((2, 3), "f"), "bias": np.zeros(3, "f")}
    other = {"kernel": np.zeros((2, 5), "f"), "scale": np.zeros(3, "f")}
    with pytest.raises(ValueError, match=r"tree 3 differs from the first") as caught:
        average_trees([first, first, other])
    for line in (
        "kernel: float32[2, 5] -> float32[2, 3]",
        "bias: missing, expected float32[3]",
        "scale: float32[3] not expected",
    ):
        assert line in str(caught.value)
    half = {**first, "bias": np.zeros(3, np.float16)}
    with pytest.raises(ValueError, match=r"bias: float16\[3\] -> float32\[3\]"):
        average_trees([first, half])
    lists = [{"layers": [np.zeros(2)]}, {"layers": (np.zeros(2),)}]
    with pytest.raises(ValueError, match=r"\(\*,\).* -> .*\[\*\]"):
        average_trees(lists)
    with pytest.raises(ValueError, match="one tree of variables or more, got none"):
        average_trees([])


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Steps 2, 4, 5, 6, 7; the first was kept for its score, 4 and 6 are as good."""
    folder = tmp_path_factory.mktemp("checkpoints")
    scores = {1: 1.0, 2: 9.0, 3: 2.0, 4: 3.0, 5: None, 6: 3.0, 7: 4.0}
    with Checkpoints(folder, 4) as writer:
        for step, score in scores.items():
            writer.save(step, {"kernel": jnp.full(2, step, jnp.float32)}, {}, score)
    with Checkpoints(folder, None) as reader:
        assert reader.steps() == [2, 4, 5, 6, 7]
        yield reader


@pytest.mark.parametrize(
    ("wanted", "steps"),
    [
        ({"last": 1}, [7]),
        ({"last": 4, "keep": 4}, [4, 5, 6, 7]),
        ({"last": 5}, [2, 4, 5, 6, 7]),
        ({"last": 5, "keep": 9}, [2, 4, 5, 6, 7]),
        ({"best": 1}, [2]),
        ({"best": 2}, [2, 7]),
        ({"best": 3}, [2, 4, 7]),
        ({"best": 4, "keep": 4}, [2, 4, 6, 7]),
    ],
)
def test_the_last_and_the_best_are_those_meant(checkpoints, wanted, steps):
    assert steps_to_average(checkpoints, **wanted) == steps


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"last": 6}, r"last 6 checkpoints .*only 5: steps \[2, 4, 5, 6, 7\].*=6"),
        ({"last": 5, "keep": 4}, r"last 5 .*only 4: steps \[4, 5, 6, 7\].*=5"),
        ({"best": 5}, r"best 5 scored .*only 4: steps \[2, 4, 6, 7\].*=5"),
        ({}, "last=None, best=None; give one"),
        ({"last": 1, "best": 1}, "last=1, best=1; give one"),
        ({"last": 0}, "k at least 1, got last=0"),
        ({"best": -1}, "k at least 1, got last=None, best=-1"),
    ],
)
def test_fewer_than_asked_for_is_a_sentence(checkpoints, wanted, message):
    with pytest.raises(ValueError, match=message):
        steps_to_average(checkpoints, **wanted)


def test_a_run_that_has_not_begun_has_nothing_to_average(tmp_path):
    with (
        Checkpoints(tmp_path / "none", None) as checkpoints,
        pytest.raises(ValueError, match=r"only 0: steps \[\]"),
    ):
        steps_to_average(checkpoints, last=2)
