"""Logits to next tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.decoding.continuations import best_continuations
from attnjax.decoding.hypotheses import SpecialTokens

SPECIAL = SpecialTokens(pad_id=0, bos_id=1, eos_id=2)


def test_best_tokens_have_the_log_probabilities_of_the_whole_softmax():
    logits = np.random.default_rng(0).normal(size=(5, 13)).astype(np.float32)
    logits[:, [0, 1]] += 4.0  # the forbidden ones weigh in the softmax all the same
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    order = 2 + np.argsort(-logits[:, 2:], axis=-1)[:, :7]

    log_probabilities, ids = best_continuations(logits, 7, SPECIAL)

    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(
        log_probabilities, np.take_along_axis(expected, order, -1), rtol=1e-5
    )


@pytest.mark.parametrize("count", [1, 3])
def test_padding_and_start_are_never_best(count):
    logits = jnp.array([[9.0, 8.0, -3.0, -4.0, -5.0]])
    _, ids = best_continuations(logits, count, SPECIAL)
    assert ids.tolist() == [[2, 3, 4][:count]]


@pytest.mark.parametrize("count", [1, 2])
def test_equal_logits_give_the_lowest_ids(count):
    _, ids = best_continuations(jnp.zeros((1, 7)), count, SPECIAL)
    assert ids.tolist() == [[2, 3][:count]]


def test_an_end_that_is_also_start_or_padding_is_allowed():
    logits = jnp.array([[0.0, 2.0, 1.0]])
    _, ids = best_continuations(logits, 1, SpecialTokens(pad_id=0, bos_id=1, eos_id=1))
    assert ids.tolist() == [[1]]


def test_impossible_tokens_give_minus_infinity_never_nan():
    logits = jnp.array([[-jnp.inf, 0.0, -jnp.inf, 1.0, -jnp.inf], [-jnp.inf] * 5])
    log_probabilities, ids = best_continuations(logits, 5, SPECIAL)
    assert ids[0, 0] == 3
    np.testing.assert_allclose(
        log_probabilities[0, 0], -np.log1p(np.exp(-1)), rtol=1e-6
    )
    assert np.all(np.isneginf(log_probabilities[0, 1:]))
    assert np.all(np.isneginf(log_probabilities[1]))


def test_bfloat16_logits_are_ranked_in_float32():
    logits = jax.random.normal(jax.random.key(0), (2, 13), jnp.bfloat16)
    log_probabilities, _ = best_continuations(logits, 3, SPECIAL)
    exact, _ = best_continuations(logits.astype(jnp.float32), 3, SPECIAL)
    assert log_probabilities.dtype == jnp.float32
    np.testing.assert_array_equal(log_probabilities, exact)
