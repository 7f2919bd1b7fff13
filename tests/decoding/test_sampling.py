"""Samples against the probabilities of toy models."""

import collections
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.decoding.sampling import SamplingSettings, sample_outputs

PAD, BOS, EOS = 0, 1, 2
LIMIT = 4


@functools.partial(jax.jit, static_argnames=("toy", "settings"))
def draw(toy, state, rngs, settings, limits=None):
    limits = jnp.full(len(rngs), LIMIT) if limits is None else limits
    return sample_outputs(
        *(toy.step, state, limits, rngs),
        special=toy.special,
        settings=settings,
    )


def settings_of(**fields):
    return SamplingSettings(max_tokens=LIMIT, **fields)


def keys(*seeds):
    return jax.vmap(jax.random.key)(jnp.array(seeds))


def first_tokens(found):
    return collections.Counter(np.asarray(found.tokens)[0, :, 0].tolist())


def test_tokens_come_as_often_as_they_are_probable(scripted_toy, toy):
    model = scripted_toy({(): {3: 0.5, 4: 0.3, 5: 0.2}})
    found = draw(toy, model.state, keys(0), settings_of(num_samples=4_000))
    counts = first_tokens(found)
    for token, probability in ((3, 0.5), (4, 0.3), (5, 0.2)):
        assert abs(counts[token] / 4_000 - probability) < 0.03


def test_tokens_of_an_output_are_drawn_apart(scripted_toy, toy):
    even = {3: 0.5, 4: 0.5}
    model = scripted_toy({(): even, (3,): even, (4,): even})
    found = draw(toy, model.state, keys(0), settings_of(num_samples=4_000))
    counts = collections.Counter(map(tuple, found.tokens[0, :, :2].tolist()))
    for pair in itertools.product((3, 4), repeat=2):
        assert abs(counts[pair] / 4_000 - 0.25) < 0.03


@pytest.mark.parametrize("limits", [{}, {"top_k": 2}, {"top_p": 0.9}])
@pytest.mark.parametrize("temperature", [1e-38, 1e-300])
def test_the_smallest_temperatures_are_greedy_search(
    scripted_toy, toy, temperature, limits
):
    """Divided by it, all logits were -inf, and every output empty."""
    model = scripted_toy({(): {3: 0.3, 4: 0.5, 5: 0.2}, (4,): {5: 0.9, EOS: 0.1}})
    settings = settings_of(num_samples=3, temperature=temperature, **limits)
    found = draw(toy, model.state, keys(0), settings)
    assert found.tokens[0, :, :2].tolist() == [[4, 5]] * 3


def test_temperature_sharpens(scripted_toy, toy):
    model = scripted_toy({(): {3: 0.5, 4: 0.3, 5: 0.2}})
    settings = settings_of(num_samples=4_000, temperature=0.5)
    counts = first_tokens(draw(toy, model.state, keys(0), settings))
    for token, probability in ((3, 0.25), (4, 0.09), (5, 0.04)):
        assert abs(counts[token] / 4_000 - probability / 0.38) < 0.03


@pytest.mark.parametrize(
    ("fields", "possible"),
    [
        ({"top_k": 1}, {3}),
        ({"top_k": 2}, {3, 4}),
        ({"top_p": 0.6}, {3, 4}),
        ({"top_k": 3, "top_p": 0.6}, {3, 4}),
    ],
)
def test_limits_leave_the_most_probable(scripted_toy, toy, fields, possible):
    model = scripted_toy({(): {3: 0.5, 4: 0.3, 5: 0.2}})
    settings = settings_of(num_samples=200, **fields)
    found = draw(toy, model.state, keys(0), settings)
    assert set(first_tokens(found)) == possible
    # Scores stay those of the model.
    best = np.asarray(found.log_probabilities)[0, 0]
    np.testing.assert_allclose(best, np.log(0.5), rtol=1e-5)


def test_a_row_depends_on_its_own_key_alone(random_toy, toy):
    model, settings = random_toy(4), settings_of(num_samples=3)
    together = draw(toy, model.state, keys(7, 8), settings)
    turned = draw(toy, toy(model.table[::-1]).state, keys(8, 7), settings)
    np.testing.assert_array_equal(together.tokens, turned.tokens[::-1])
    alone = draw(toy, toy(model.table[1:]).state, keys(8), settings)
    np.testing.assert_array_equal(together.tokens[1], alone.tokens[0])
    other = draw(toy, model.state, keys(7, 9), settings)
    assert (np.asarray(other.tokens[1]) != np.asarray(together.tokens[1])).any()


def test_scores_are_log_probabilities_and_fall(random_toy, toy):
    model = random_toy(6, end=1.0)
    limits = LIMIT, 2
    settings = settings_of(num_samples=5)
    found = draw(toy, model.state, keys(1, 2), settings, jnp.array(limits))
    for row in range(2):
        for place in range(5):
            tokens = found.tokens[row, place, : found.lengths[row, place]].tolist()
            assert not {PAD, BOS} & set(tokens)
            assert tokens.count(EOS) == found.finished[row, place]
            np.testing.assert_allclose(
                found.scores[row, place],
                model.log_probability(row, tokens),
                rtol=1e-5,
                atol=1e-5,
            )
        ended = np.asarray(found.finished[row])
        lengths = np.asarray(found.lengths[row])
        assert (lengths <= limits[row]).all()
        assert (lengths[~ended] == limits[row]).all()
        assert ended.tolist() == sorted(ended, reverse=True)
        for group in (ended, ~ended):
            assert (np.diff(np.asarray(found.scores[row])[group]) <= 0).all()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"num_samples": 0}, "num_samples"),
        ({"temperature": 0.0}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
    ],
)
def test_impossible_settings_are_refused(fields, named):
    with pytest.raises(ValueError, match=named):
        settings_of(**fields)
