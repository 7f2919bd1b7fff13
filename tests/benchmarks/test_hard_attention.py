"""Hard attention learns to reverse sentences, and a baseline makes it less noisy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.benchmarks import hard_attention
from attnjax.ops.hard import HardChoice
from attnjax.ops.reinforce import Baseline


@pytest.fixture(scope="module")
def learned() -> hard_attention.Learned:
    return hard_attention.learn(HardChoice(soft_rate=0.0), updates=250)


@pytest.mark.slow
def test_it_learns_by_reinforce_alone(learned):
    assert learned.nll < 0.15
    assert learned.accuracy > 0.96


@pytest.mark.slow
def test_each_refinement_of_the_estimator_lowers_its_variance():
    task = hard_attention.task_of(HardChoice(soft_rate=0.0))
    variables = task.init(jax.random.key(0))
    # Before any update, a token costs what guessing among all costs.
    guess = np.log(hard_attention.FIRST_WORD + hard_attention.WORDS)
    usual = Baseline(cost=jnp.float32(guess), tokens=jnp.float32(1.0))
    variables = {**variables, "baseline": {"cost": usual}}
    signal, variance = hard_attention.gradient_moments(variables, draws=60)
    sentence, sentence_baseline, rest, rest_baseline = map(float, variance)
    assert list(hard_attention.ESTIMATORS)[3] == "cost from here on - baseline"
    assert sentence_baseline < 0.5 * sentence
    assert rest < sentence
    assert rest_baseline < 0.5 * rest
    assert rest_baseline < sentence_baseline
    assert np.all(np.isfinite(signal))


def test_sentences_are_written_backwards():
    batch = jax.jit(hard_attention.reversal_batch, static_argnums=1)
    batch = jax.device_get(batch(jax.random.key(0), 50))
    for row in range(50):
        source = batch.source.ids[row][batch.source.valid[row]]
        labels = batch.labels[row][batch.weights[row] == 1]
        assert source[-1] == labels[-1] == hard_attention.EOS
        np.testing.assert_array_equal(source[:-1], labels[:-1][::-1])
        assert batch.inputs.ids[row, 0] == hard_attention.BOS
        np.testing.assert_array_equal(
            batch.inputs.ids[row, 1 : len(labels)], labels[:-1]
        )
