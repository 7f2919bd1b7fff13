"""Choices of one key: frequencies, probabilities and gradients."""

import functools

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
    scores = np.broadcast_to(SCORES, noise.shape)
    chosen = np.asarray(jax.jit(hard.choose)(scores, ALLOWED[None], noise))
    np.testing.assert_array_equal(
        chosen.sum(-1), ALLOWED.any(-1)[None] * np.ones((draws, 1))
    )
    expected = _probabilities()
    deviation = np.sqrt(expected * (1 - expected) / draws)
    assert np.all(np.abs(chosen.mean(0) - expected) <= 4.5 * deviation)


@jax.jit
def with_gradients(scores, chosen):
    """Log-probability and entropy, each with the gradient of its sum."""
    results = []
    for function in (
        lambda scores: hard.log_probability(scores, ALLOWED, chosen),
        lambda scores: hard.entropy(scores, ALLOWED),
    ):
        value, pull = jax.vjp(function, scores)
        results += [value, *pull(jnp.ones_like(value))]
    return results


def test_log_probability_and_entropy_are_those_of_the_softmax():
    chosen = hard.choose(SCORES, ALLOWED)
    p = _probabilities()
    log_p = np.log(np.where(p > 0, p, 1))
    got, _, entropy, _ = jax.device_get(with_gradients(SCORES, chosen))
    np.testing.assert_allclose(got, (log_p * chosen).sum(-1), atol=1e-6)
    assert got[2] == 0.0
    np.testing.assert_allclose(entropy, -(p * log_p).sum(-1), atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_gradients_are_finite_and_those_of_the_softmax(scale):
    scores = scale * SCORES
    noise = np.random.default_rng(1).gumbel(size=(T, S)).astype(np.float32)
    chosen = np.asarray(hard.choose(scores, ALLOWED, noise))
    got = jax.device_get(with_gradients(np.float32(scores), chosen))
    np.testing.assert_allclose(
        got[1], chosen - masked_softmax(scores, ALLOWED), atol=1e-6
    )
    assert np.isfinite(got[3]).all()
    np.testing.assert_array_equal(got[3][~ALLOWED], 0.0)


def test_straight_through_is_a_choice_with_the_gradient_of_a_softmax():
    noise = np.random.default_rng(2).gumbel(size=(T, S)).astype(np.float32)
    target = np.random.default_rng(1).normal(size=(T, S)).astype(np.float32)

    def chosen(scores):
        weights = hard.straight_through(scores, ALLOWED, noise, 0.5)
        return (weights * target).sum(), weights

    def relaxed(scores):
        return (masked_softmax((scores + noise) / 0.5, ALLOWED) * target).sum()

    @jax.jit
    def run(scores):
        gradient, weights = jax.grad(chosen, has_aux=True)(scores)
        return gradient, weights, jax.grad(relaxed)(scores)

    gradient, weights, expected = jax.device_get(run(SCORES))
    np.testing.assert_array_equal(weights, hard.choose(SCORES, ALLOWED, noise))
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    assert np.abs(gradient).max() > 0.01


def test_noise_at_test_time_depends_on_the_position_alone():
    position = np.array([[0, 0], [1, 1], [2, 7]], np.int32)
    noise_at = jax.jit(hard.noise_at, static_argnums=1)
    noise = np.asarray(noise_at(position, S, 3))
    assert noise.shape == (3, 2, S)
    np.testing.assert_array_equal(noise[0, 0], noise[0, 1])
    moved = np.asarray(noise_at(position[::-1], S, 3))
    np.testing.assert_array_equal(noise, moved[::-1])
    np.testing.assert_array_equal(noise, noise_at(position, 2 * S, 3)[..., :S])
    assert np.abs(noise[0] - noise[1]).min() > 0
    assert np.abs(noise - noise_at(position, S, 4)).min() > 0


@pytest.mark.parametrize("mechanism", [hard.hard_attention, hard.gumbel_attention])
def test_attention_draws_a_value_in_training_and_takes_the_best_one_else(mechanism):
    rng = np.random.default_rng(3)
    query, key = (rng.normal(size=(n, K)).astype(np.float32) for n in (T, S))
    mask = Mask(valid=np.array([1, 1, 1, 1, 0], bool))
    value = np.eye(S, V, dtype=np.float32)
    scores = query.astype(np.float64) @ key.T / K**0.5
    scores[:, 4] = -np.inf

    @jax.jit
    def run(rng):
        best = mechanism(query, key, value, mask).context
        rngs = jax.random.split(rng, 20_000)
        attend = functools.partial(mechanism, query, key, value, mask)
        return best, jax.vmap(lambda rng: attend(rng=rng).context)(rngs)

    best, draws = jax.device_get(run(jax.random.key(0)))
    np.testing.assert_array_equal(best.argmax(-1), scores.argmax(-1))
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

        return jax.device_get(jax.jit(jax.grad(total, has_aux=True))(query))

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
    attend = jax.jit(hard.hard_attention)
    whole = np.asarray(attend(query, key, value, Mask(causal=True)).context)
    query, key, value = map(np.asarray, (query, key, value))
    begin, step, _ = entry("hard").incremental
    step = jax.jit(step)
    cache = begin(4, 64, sizes, jnp.bfloat16)
    for position in range(64):
        row = [x[:, :, position : position + 1] for x in (query, key, value)]
        context, cache = step(*row, cache, np.full(4, position, np.int32))
        np.testing.assert_array_equal(
            np.asarray(context)[:, :, 0], whole[:, :, position]
        )
