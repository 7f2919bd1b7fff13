"""Sums and counts: one division, at the end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.training.metrics import Window, add_metrics, safe_divisor, to_floats
from attnjax.types import Ratio


def ratio(total, count):
    return Ratio(jnp.float32(total), jnp.float32(count))


def measured(loss, *, rate=0.1, norm=2.0, count=1.0):
    return {
        "loss": ratio(loss, count),
        "gradient_norm": ratio(norm, 1),
        "learning_rate": ratio(rate, 1),
    }


def test_a_mean_of_two_parts_is_not_a_mean_of_means():
    total = add_metrics({"loss": ratio(2.0, 1)}, {"loss": ratio(4.5, 9)})
    assert to_floats(total) == {"loss": pytest.approx(0.65)}


def test_an_empty_count_gives_zero():
    assert to_floats({"loss": ratio(0.0, 0)}) == {"loss": 0.0}
    assert float(safe_divisor(jnp.float32(0.0))) == 1.0


def test_a_count_below_one_still_divides():
    assert float(safe_divisor(jnp.float32(0.25))) == 0.25
    assert to_floats({"loss": ratio(0.5, 0.25)}) == {"loss": 2.0}


def test_a_window_sums_but_keeps_the_latest_rate():
    window = Window.of(measured(3.0, rate=0.1, norm=1.0))
    window = window.extended(measured(5.0, rate=0.2, norm=2.0, count=3.0))
    found = to_floats(window.metrics)
    assert found["loss"] == 2.0
    assert found["gradient_norm"] == 1.5
    assert found["learning_rate"] == pytest.approx(0.2)


def test_a_window_works_without_a_learning_rate():
    metrics = measured(1.0)
    del metrics["learning_rate"]
    window = Window.of(metrics).extended(metrics)
    assert float(window.metrics["loss"].count) == 2.0


def test_a_window_of_another_version_takes_the_names_of_the_next_step():
    of_before = {"old": ratio(7.0, 1.0), **measured(3.0)}
    del of_before["gradient_norm"]
    window = Window.of(of_before).extended(measured(5.0, norm=2.0))
    assert set(window.metrics) == set(measured(0.0))
    assert to_floats(window.metrics)["loss"] == 4.0
    assert to_floats(window.metrics)["gradient_norm"] == 2.0


def test_a_window_survives_json_exactly():
    window = Window.of(measured(np.float32(1) / 3, rate=1e-7))
    again = Window.from_json(window.to_json())
    for old, new in zip(jax.tree.leaves(window), jax.tree.leaves(again), strict=True):
        assert np.asarray(old).tobytes() == np.asarray(new).tobytes()
