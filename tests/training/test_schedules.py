"""Learning rates by hand, at the updates where schedules go wrong."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.config import (
    CLDRSource,
    DataConfig,
    Experiment,
    OptimizerConfig,
    RNNConfig,
    ScheduleConfig,
    TransformerConfig,
)
from attnjax.experiment import build_optimizer
from attnjax.training.optimizers import latest_rate
from attnjax.training.schedules import learning_rate

KINDS = ("noam", "rsqrt", "cosine", "constant")


def rates(num_steps=20, **settings):
    schedule = learning_rate(ScheduleConfig(**settings), num_steps)
    return np.array([schedule(count) for count in range(num_steps)])


@pytest.mark.parametrize(
    ("update", "expected"), [(1, 1.7469e-7), (4000, 6.98771e-4), (16000, 3.49386e-4)]
)
def test_noam_is_that_of_the_paper(update, expected):
    config = ScheduleConfig(kind="noam", peak=1.0, warmup_steps=4000, width=512)
    rate = learning_rate(config, 100_000)(update - 1)
    assert float(rate) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("model", "set_width", "width"),
    [
        (TransformerConfig(width=256), None, 256),
        (TransformerConfig(width=256), 512, 512),
        (RNNConfig(hidden_width=96), None, 96),
    ],
)
def test_the_width_of_noam_is_the_models_unless_set(model, set_width, width):
    schedule = ScheduleConfig(kind="noam", peak=1.0, warmup_steps=4, width=set_width)
    experiment = Experiment(
        data=DataConfig(source=CLDRSource()),
        model=model,
        optimizer=OptimizerConfig(schedule=schedule),
    )
    optimizer, params = build_optimizer(experiment), {"a": jnp.ones(2)}
    _, state = optimizer.update(params, optimizer.init(params), params)
    assert latest_rate(state) == pytest.approx(width**-0.5 * 4**-1.5, rel=1e-5)
    unknown = dataclasses.replace(schedule, width=None)
    with pytest.raises(ValueError, match="noam schedule needs the model's width"):
        learning_rate(unknown, 9)


@pytest.mark.parametrize("kind", ["rsqrt", "cosine", "constant"])
def test_warmup_starts_at_base_over_warmup_and_peaks_at_its_end(kind):
    found = rates(kind=kind, peak=0.6, warmup_steps=4)
    np.testing.assert_allclose(found[:4], [0.15, 0.3, 0.45, 0.6], rtol=1e-6)
    assert found.argmax() == 3 or kind == "constant"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("warmup", [0, 1, 4])
def test_rates_are_finite_positive_and_rise_strictly_in_warmup(kind, warmup):
    found = rates(kind=kind, peak=0.5, warmup_steps=warmup, width=8, final=0.1)
    assert np.isfinite(found).all()
    assert (found > 0).all()
    assert (np.diff(found[: max(warmup, 1)]) > 0).all()
    assert found.max() == pytest.approx(found[max(warmup, 1) - 1])


def test_after_the_warmup():
    n = np.arange(1, 21)
    rsqrt = rates(kind="rsqrt", peak=0.5, warmup_steps=4)
    np.testing.assert_allclose(rsqrt[4:], 0.5 * np.sqrt(4 / n[4:]), rtol=1e-6)
    constant = rates(kind="constant", peak=0.5, warmup_steps=4)
    np.testing.assert_allclose(constant[4:], 0.5, rtol=1e-6)
    cosine = rates(kind="cosine", peak=0.5, warmup_steps=4, final=0.1)
    wave = (1 + np.cos(np.pi * (n[4:] - 4) / 16)) / 2
    np.testing.assert_allclose(cosine[4:], 0.1 + 0.4 * wave, rtol=1e-6)
    assert cosine[-1] == pytest.approx(0.1)


def test_cosine_stays_at_its_end():
    schedule = learning_rate(
        ScheduleConfig(kind="cosine", peak=0.5, warmup_steps=4, final=0.1), 20
    )
    assert float(schedule(500)) == pytest.approx(0.1)


def test_cosine_survives_a_warmup_longer_than_the_run():
    found = rates(kind="cosine", peak=0.5, warmup_steps=40)
    np.testing.assert_allclose(found, 0.5 * np.arange(1, 21) / 40, rtol=1e-6)
