"""REINFORCE against the exact gradient, by summing over all choices."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.hard import log_probability
from attnjax.ops.reinforce import (
    Baseline,
    advantages,
    empty_baseline,
    surrogate,
)

T, S = 3, 3  # positions, keys
CHOICES = np.array(list(itertools.product(range(S), repeat=T)))  # [27, T]
_rng = np.random.default_rng(0)
LOGITS = _rng.normal(size=(T, S)).astype(np.float32)
WEIGHTS = np.array([[1.0, 1.0, 1.0]], np.float32)


def _costs(choices: np.ndarray) -> np.ndarray:
    """A cost ``[1, T]`` at each position that depends on the choices up to there."""
    tables = np.random.default_rng(1).uniform(2.0, 4.0, size=(T, S, S, S))
    first, second, third = choices
    return np.array(
        [[tables[0, first, 0, 0], tables[1, first, second, 0],
          tables[2, first, second, third]]],
        np.float32,
    )  # fmt: skip


ALL_COSTS = np.stack([_costs(choices) for choices in CHOICES])  # [27, 1, T]
ALL_CHOSEN = np.eye(S, dtype=np.float32)[CHOICES]  # [27, T, S]


def _log_probabilities(logits):
    """``[27, 1, T]`` of every sequence of choices."""
    each = jax.vmap(lambda chosen: log_probability(logits, None, chosen))
    return each(ALL_CHOSEN)[:, None]


def _probabilities(logits):
    return jnp.exp(_log_probabilities(logits).sum((1, 2)))


@jax.jit
def _estimates(baseline):
    """The estimate ``[27, T, S]`` that each sequence of choices leads to."""

    def estimate(chosen, costs):
        advantage = advantages(costs, WEIGHTS, baseline)

        def term(logits):
            log_p = log_probability(logits, None, chosen)[None]
            return surrogate(log_p, advantage, WEIGHTS)

        return jax.grad(term)(LOGITS)

    return jax.vmap(estimate)(ALL_CHOSEN, ALL_COSTS)


@pytest.mark.parametrize("baseline", [0.0, 3.0, -5.0])
def test_the_mean_estimate_is_the_gradient_of_the_expected_cost(baseline):
    def expected_cost(logits):
        return (_probabilities(logits) * ALL_COSTS.sum((1, 2))).sum()

    exact = jax.grad(expected_cost)(LOGITS)
    estimates = _estimates(jnp.float32(baseline))
    mean = jnp.einsum("n,nts->ts", _probabilities(LOGITS), estimates)
    np.testing.assert_allclose(mean, exact, atol=1e-5)
    assert np.abs(exact).max() > 0.02


def test_the_baseline_lowers_the_variance():
    probability = np.asarray(_probabilities(LOGITS))

    def variance(baseline):
        estimates = np.asarray(_estimates(jnp.float32(baseline)))
        mean = np.einsum("n,nts->ts", probability, estimates)
        return np.einsum("n,nts->", probability, (estimates - mean) ** 2)

    usual = float(np.einsum("n,nbt->", probability, ALL_COSTS) / T)
    assert variance(usual) < 0.1 * variance(0.0)


def test_the_surrogate_is_worth_nothing_and_padding_adds_nothing():
    log_p = jnp.log(jnp.array([[0.5, 0.25, 0.125]]))
    costs = jnp.array([[1.0, 2.0, 100.0]])
    weights = jnp.array([[1.0, 1.0, 0.0]])
    advantage = advantages(costs, weights, jnp.float32(0.5))
    np.testing.assert_allclose(advantage, [[2.0, 1.5, 0.0]])
    assert surrogate(log_p, advantage, weights) == 0.0
    gradient = jax.grad(surrogate)(log_p, advantage, weights)
    np.testing.assert_allclose(gradient, [[2.0, 1.5, 0.0]])
    gradient = jax.grad(lambda c: advantages(c, weights, 0.0).sum())(costs)
    np.testing.assert_array_equal(gradient, 0.0)


def test_the_baseline_is_a_moving_mean_over_tokens():
    baseline = empty_baseline()
    assert baseline.value == 0.0
    costs = jnp.array([[1.0, 3.0], [5.0, 99.0]])
    weights = jnp.array([[1.0, 1.0], [1.0, 0.0]])
    first = baseline.moved(costs, weights, 0.9)
    np.testing.assert_allclose(first.value, 3.0, rtol=1e-6)
    second = first.moved(costs + 1.0, weights, 0.9)
    expected = (0.9 * 9 + 12) / (0.9 * 3 + 3)
    np.testing.assert_allclose(second.value, expected, rtol=1e-6)
    nothing = first.moved(costs, jnp.zeros_like(weights), 0.9)
    np.testing.assert_allclose(nothing.value, 3.0, rtol=1e-6)
    halves = [first.moved(costs[i : i + 1], weights[i : i + 1], 0.9) for i in (0, 1)]
    both = Baseline(*(sum(parts) / 2 for parts in zip(*halves, strict=True)))
    whole = first.moved(costs, weights / 2, 0.9)  # a mean over two devices
    np.testing.assert_allclose(both.value, whole.value, rtol=1e-6)
