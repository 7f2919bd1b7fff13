"""Choices of one key: frequencies, probabilities and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops import hard
from attnjax.ops.catalog import entry
from attnjax.ops.entry import Sizes
from attnjax.ops.softmax import masked_softmax
from attnjax.types import Mask

T, S, K, V = 3, 5, 4, 5
ALLOWED = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]], bool)
SCORES = np.random.default_rng(0).normal(size=(T, S)).astype(np.float32)


def _probabilities() -> np.ndarray:
    exponentials = np.where(ALLOWED, np.exp(SCORES.astype(np.float64)), 0)
    total = exponentials.sum(-1, keepdims=True)
    return exponentials / np.where(total > 0, total, 1)


def test_the_best_key_is_chosen_among_those_allowed():
    scores = np.array([[1.0, 9.0, 2.0, 2.0, 50.0]] * T, np.float32)
    chosen = hard.choose(scores, ALLOWED)
    np.testing.assert_array_equal(chosen[0], [0, 0, 0, 0, 1])
    np.testing.assert_array_equal(chosen[1], [0, 0, 1, 0, 0])  # the first of equals
    np.testing.assert_array_equal(chosen[2], 0)


def test_draws_have_the_probabilities_of_the_softmax():
    draws = 40_000
    noise = jax.random.gumbel(jax.random.key(0), (draws, T, S))
    chosen = hard.choose(jnp.broadcast_to(SCORES, noise.shape), ALLOWED, noise)
    np.testing.assert_array_equal(
        chosen.sum(-1), ALLOWED.any(-1)[None] * np.ones((draws, 1))
    )
    expected = _probabilities()
    deviation = np.sqrt(expected * (1 - expected) / draws)
    assert np.all(np.abs(chosen.mean(0) - expected) <= 4.5 * deviation)


def test_log_probability_and_entropy_are_those_of_the_softmax():
    chosen = hard.choose(SCORES, ALLOWED)
    p = _probabilities()
    log_p = np.log(np.where(p > 0, p, 1))
    got = hard.log_probability(SCORES, ALLOWED, chosen)
    np.testing.assert_allclose(got, (log_p * chosen).sum(-1), atol=1e-6)
    assert got[2] == 0.0
    np.testing.assert_allclose(
        hard.entropy(SCORES, ALLOWED), -(p * log_p).sum(-1), atol=1e-6
    )


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_gradients_are_finite_and_those_of_the_softmax(scale):
    scores = scale * SCORES
    chosen = hard.choose(scores, ALLOWED, jax.random.gumbel(jax.random.key(1), (T, S)))

    def log_probability(scores):
        return hard.log_probability(scores, ALLOWED, chosen).sum()

    gradient = jax.grad(log_probability)(scores)
    np.testing.assert_allclose(
        gradient, chosen - masked_softmax(scores, ALLOWED), atol=1e-6
    )
    gradient = jax.grad(lambda scores: hard.entropy(scores, ALLOWED).sum())(scores)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(np.asarray(gradient)[~ALLOWED], 0.0)


def test_straight_through_is_a_choice_with_the_gradient_of_a_softmax():
    noise = jax.random.gumbel(jax.random.key(2), (T, S))
    target = jnp.asarray(np.random.default_rng(1).normal(size=(T, S)), jnp.float32)

    def chosen(scores):
        weights = hard.straight_through(scores, ALLOWED, noise, 0.5)
        return (weights * target).sum(), weights

    def relaxed(scores):
        return (masked_softmax((scores + noise) / 0.5, ALLOWED) * target).sum()

    gradient, weights = jax.grad(chosen, has_aux=True)(jnp.asarray(SCORES))
    np.testing.assert_array_equal(weights, hard.choose(SCORES, ALLOWED, noise))
    np.testing.assert_allclose(
        gradient, jax.grad(relaxed)(jnp.asarray(SCORES)), atol=1e-6
    )
    assert np.abs(gradient).max() > 0.01


def test_noise_at_test_time_depends_on_the_position_alone():
    position = jnp.array([[0, 0], [1, 1], [2, 7]])
    noise = hard.noise_at(position, S, seed=3)
    assert noise.shape == (3, 2, S)
    np.testing.assert_array_equal(noise[0, 0], noise[0, 1])
    np.testing.assert_array_equal(noise[2, 0], hard.noise_at(jnp.array([2]), S, 3)[0])
    np.testing.assert_array_equal(noise, hard.noise_at(position, 2 * S, 3)[..., :S])
    assert np.abs(noise[0] - noise[1]).min() > 0
    assert np.abs(noise - hard.noise_at(position, S, seed=4)).min() > 0


@pytest.mark.parametrize("mechanism", [hard.hard_attention, hard.gumbel_attention])
def test_attention_draws_a_value_in_training_and_takes_the_best_one_else(mechanism):
    rng = np.random.default_rng(3)
    query, key = (rng.normal(size=(n, K)).astype(np.float32) for n in (T, S))
    mask = Mask(valid=np.array([1, 1, 1, 1, 0], bool))
    value = np.eye(S, V, dtype=np.float32)
    scores = query.astype(np.float64) @ key.T / K**0.5
    scores[:, 4] = -np.inf
    best, _ = mechanism(query, key, value, mask)
    np.testing.assert_array_equal(best.argmax(-1), scores.argmax(-1))
    draws = jax.vmap(lambda rng: mechanism(query, key, value, mask, rng=rng).context)(
        jax.random.split(jax.random.key(0), 20_000)
    )
    np.testing.assert_array_equal(np.sort(draws, -1)[..., :-1], 0.0)
    exponentials = np.exp(scores)
    expected = exponentials / exponentials.sum(-1, keepdims=True)
    np.testing.assert_allclose(draws.mean(0), expected, atol=0.015)


def test_the_two_mechanisms_differ_in_their_gradient():
    rng = np.random.default_rng(4)
    query, key = (rng.normal(size=(n, K)).astype(np.float32) for n in (T, S))
    value = rng.normal(size=(S, V)).astype(np.float32)
    noise = jax.random.key(5)

    def gradient(mechanism, **options):
        def total(query):
            context = mechanism(query, key, value, Mask(), rng=noise, **options).context
            return jnp.square(context).sum(), context

        return jax.grad(total, has_aux=True)(query)

    (plain, drawn), (noisy, same) = map(
        gradient, (hard.hard_attention, hard.gumbel_attention)
    )
    np.testing.assert_array_equal(drawn, same)
    assert np.abs(plain - noisy).max() > 1e-3
    hot, _ = gradient(hard.gumbel_attention, temperature=1e4)
    assert np.abs(hot).max() < 1e-2


def test_steps_in_bfloat16_choose_the_keys_of_the_whole():
    """Scores that were rounded to bfloat16 would tie, and another key be the best."""
    sizes = Sizes(num_heads=1, key_width=8, value_width=3, max_keys=64)
    query, key, value = (
        jax.random.normal(rng, (4, 1, 64, width), jnp.bfloat16)
        for rng, width in zip(
            jax.random.split(jax.random.key(3), 3), (8, 8, 3), strict=True
        )
    )
    key = 1.0 + 0.01 * key  # scores that lie close together
    whole = hard.hard_attention(query, key, value, Mask(causal=True)).context
    begin, step, _ = entry("hard").incremental
    step = jax.jit(step)
    cache = begin(4, 64, sizes, jnp.bfloat16)
    for position in range(64):
        row = [x[:, :, position : position + 1] for x in (query, key, value)]
        context, cache = step(*row, cache, jnp.full(4, position))
        np.testing.assert_array_equal(context[:, :, 0], whole[:, :, position])
