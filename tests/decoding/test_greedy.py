"""Greedy search against a Python loop over toy models."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnjax.decoding.greedy import greedy_search

PAD, BOS, EOS = 0, 1, 2
LIMIT = 5


@pytest.fixture(scope="module")
def search(toy):
    return jax.jit(
        functools.partial(
            greedy_search, toy.step, special=toy.special, max_tokens=LIMIT
        )
    )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    end=st.sampled_from([-3.0, 0.0, 3.0]),
    limits=st.tuples(st.integers(0, LIMIT + 1), st.integers(1, LIMIT)),
)
def test_equals_a_python_loop(search, random_toy, reference, seed, end, limits):
    model = random_toy(seed, end=end)
    found = search(model.state, jnp.array(limits))
    for row, limit in enumerate(limits):
        expected = reference.greedy(model, row, min(limit, LIMIT))
        length = len(expected)
        assert found.lengths[row, 0] == length
        assert found.tokens[row, 0].tolist() == expected + [PAD] * (LIMIT - length)
        assert found.finished[row, 0] == (EOS in expected)
        np.testing.assert_allclose(
            found.log_probabilities[row, 0],
            model.log_probability(row, expected),
            rtol=1e-5,
            atol=1e-5,
        )
    np.testing.assert_array_equal(found.scores, found.log_probabilities)


def test_a_row_alone_equals_itself_in_a_batch(search, random_toy, toy):
    model = random_toy(0, end=1.0)
    together = search(model.state, jnp.array([LIMIT, 3]))
    for row, limit in enumerate([LIMIT, 3]):
        alone = search(toy(model.table[row : row + 1]).state, jnp.array([limit]))
        assert alone.tokens[0].tolist() == together.tokens[row].tolist()
        assert alone.scores[0] == together.scores[row]


def test_a_model_that_loves_padding_never_prints_it(search, random_toy, toy):
    model = random_toy(0, end=-99.0)
    table = model.table.copy()
    table[:, :, [PAD, BOS]] = 50.0
    found = search(toy(table).state, jnp.array([LIMIT, 3]))
    assert not found.finished.any()
    assert found.lengths.tolist() == [[LIMIT], [3]]
    assert np.all(np.asarray(found.tokens[0]) > EOS)
    assert np.all(np.asarray(found.tokens[1, 0, 3:]) == PAD)


def test_ends_as_soon_as_every_row_has_ended(scripted_toy, count_steps):
    model = scripted_toy({(): {3: 1.0}, (3,): {4: 1.0}})
    step, calls = count_steps(model.step)
    found = greedy_search(
        step, model.state, jnp.array([50]), special=model.special, max_tokens=50
    )
    jax.block_until_ready(found)
    jax.effects_barrier()
    assert found.tokens[0, 0, :4].tolist() == [3, 4, EOS, PAD]
    assert len(calls) == 3


def test_a_dead_end_is_unfinished_and_not_nan(scripted_toy, search):
    model = scripted_toy({(): {3: 1.0}, (3,): {}}, classes=7)
    found = search(model.state, jnp.array([LIMIT]))
    assert found.tokens[0, 0].tolist() == [3] + [PAD] * (LIMIT - 1)
    assert (found.lengths[0, 0], found.log_probabilities[0, 0]) == (1, 0.0)
    assert not found.finished[0, 0]


def test_compiles_once_per_shape(random_toy):
    traces = []

    @jax.jit
    def search(state, limits):
        traces.append(limits.shape)
        return greedy_search(
            random_toy(0).step,
            state,
            limits,
            special=random_toy(0).special,
            max_tokens=LIMIT,
        )

    for seed in range(3):
        search(random_toy(seed).state, jnp.array([LIMIT, seed]))
    search(random_toy(0, batch=3).state, jnp.array([LIMIT, 1, 2]))
    assert traces == [(2,), (3,)]
