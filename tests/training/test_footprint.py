"""Sizes of a step from the compiler, against what is known of them."""

import jax
import numpy as np
import optax
import pytest

from attnjax.training.footprint import footprint, memory_advice
from attnjax.training.sharding import Layout
from attnjax.training.state import init_state
from attnjax.training.step import make_train_step


@pytest.fixture
def measured(linear_task, batch_of):
    def measure(rows, num_devices=1, with_ema=False):
        task, adam = linear_task(), optax.adam(1e-3)
        state = jax.eval_shape(lambda: init_state(task, adam, 0, with_ema=with_ema))
        decay = 0.9 if with_ema else None
        step = make_train_step(task, adam, ema_decay=decay)
        layout = Layout.over(jax.devices()[:num_devices])
        return footprint(step, layout, state, batch_of(rows, 0)), state

    return measure


def test_weights_and_optimizer_are_counted(measured):
    found, state = measured(4)
    sizes = [leaf.size for leaf in jax.tree.leaves(state.params)]
    assert found.num_parameters == sum(sizes)
    assert found.parameter_bytes == found.gradient_bytes == 4 * sum(sizes)
    # Two moments, and the counters of adam.
    assert 8 * sum(sizes) <= found.optimizer_bytes <= 8 * sum(sizes) + 16
    averaged, _ = measured(4, with_ema=True)
    assert averaged.optimizer_bytes - found.optimizer_bytes == 4 * sum(sizes)


def test_more_rows_take_more(measured):
    few, many = measured(8)[0], measured(4_096)[0]
    assert many.batch_bytes == 512 * few.batch_bytes
    assert many.temporary_bytes > few.temporary_bytes
    assert many.flops > few.flops
    assert many.peak_bytes > many.temporary_bytes + many.batch_bytes


def test_devices_share_the_batch(measured):
    alone, shared = measured(8)[0], measured(8, num_devices=2)[0]
    assert shared.batch_bytes * 2 == alone.batch_bytes
    assert shared.parameter_bytes == alone.parameter_bytes


def test_figures_are_read_by_people(measured):
    lines = measured(8)[0].describe().splitlines()
    assert lines[0].startswith("parameters:")
    assert {len(line) - len(line.split(":", 1)[1].lstrip()) for line in lines} == {28}
    assert "GFLOP" in lines[-1]


def test_advice_names_settings_and_values():
    advice = memory_advice(4_096, 2, "float32")
    assert "--data.tokens-per-batch 2048" in advice
    assert "--training.accumulate-steps 4" in advice
    assert "bfloat16" in advice
    assert "bfloat16" not in memory_advice(4_096, 2, "bfloat16")
    assert np.all([part in advice for part in ("bucket-lengths", "--dry-run")])
