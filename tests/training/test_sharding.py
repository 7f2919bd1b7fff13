"""The compiled step: many devices equal one, and no program is compiled twice."""

import chex
import jax
import numpy as np
import pytest

from attnjax.training.metrics import to_floats
from attnjax.training.sharding import Layout, jit_train_step
from attnjax.training.state import init_state
from attnjax.training.step import make_train_step


def train(task, optimizer, batches, *, num_devices, accumulate_steps=1):
    layout = Layout.over(jax.devices()[:num_devices])
    step = make_train_step(task, optimizer, accumulate_steps=accumulate_steps)
    compiled = jit_train_step(step, layout)
    state, losses = layout.place_state(init_state(task, optimizer, 3)), []
    for batch in batches:
        state, metrics = compiled(state, batch)
        found = to_floats(metrics)
        losses.append([found["loss"], found["gradient_norm"]])
    return state, losses, compiled


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_eight_devices_are_one_device_even_with_noise(
    linear_task, adam, batch_of, noise
):
    task = linear_task(noise=noise)
    batches = [batch_of(24, seed=seed) for seed in range(5)]
    many, many_losses, _ = train(task, adam, batches, num_devices=8)
    one, one_losses, _ = train(task, adam, batches, num_devices=1)
    np.testing.assert_allclose(many_losses, one_losses, rtol=2e-6)
    chex.assert_trees_all_close(
        jax.device_get(many.variables),
        jax.device_get(one.variables),
        rtol=1e-5,
        atol=1e-7,
    )


def test_accumulation_on_eight_devices_is_one_batch(linear_task, adam, batch_of):
    batch = batch_of(48, seed=1)
    parts = [jax.tree.map(lambda leaf, i=i: leaf[i::3], batch) for i in range(3)]
    whole, whole_losses, _ = train(linear_task(), adam, [batch], num_devices=8)
    split, split_losses, _ = train(
        linear_task(), adam, [parts], num_devices=8, accumulate_steps=3
    )
    np.testing.assert_allclose(split_losses, whole_losses, rtol=2e-6)
    chex.assert_trees_all_close(
        jax.device_get(split.variables),
        jax.device_get(whole.variables),
        rtol=1e-5,
        atol=1e-7,
    )


def test_compiled_apart_it_is_the_pure_step_noise_included(linear_task, adam, batch_of):
    step = make_train_step(linear_task(noise=0.3), adam, accumulate_steps=2)
    layout = Layout.over(jax.devices()[:2])
    state, batches = init_state(step.task, adam, 3), [batch_of(8, 1), batch_of(16, 2)]
    expected, expected_metrics = jax.jit(step)(state, batches)
    compiled = jit_train_step(step, layout)
    found, metrics = compiled(layout.place_state(state), batches)
    assert to_floats(metrics) == pytest.approx(to_floats(expected_metrics), rel=2e-6)
    chex.assert_trees_all_close(
        jax.device_get(found.variables), jax.device_get(expected.variables), rtol=1e-5
    )


def test_one_program_for_each_shape_and_one_for_the_update(linear_task, adam, batch_of):
    task = linear_task()
    rows = (8, 16, 24, 8, 24, 16, 8)
    batches = [batch_of(num_rows, seed) for seed, num_rows in enumerate(rows)]
    _, _, compiled = train(task, adam, batches, num_devices=8)
    assert compiled.compilations == 4
    assert task.num_traces == 3


def test_accumulation_compiles_shapes_plus_two_programs(linear_task, adam, batch_of):
    """Three shapes in any order make 5 programs, not 27."""
    task = linear_task()
    generator = np.random.default_rng(0)
    updates = [
        [batch_of(int(rows), seed=seed) for rows in generator.choice([8, 16, 24], 3)]
        for seed in range(8)
    ]
    _, _, compiled = train(task, adam, updates, num_devices=2, accumulate_steps=3)
    assert compiled.compilations == 5
    assert task.num_traces == 3


def test_the_state_is_donated_and_stays_replicated(linear_task, adam, batch_of):
    task, layout = linear_task(), Layout.over()
    compiled = jit_train_step(make_train_step(task, adam), layout)
    before = layout.place_state(init_state(task, adam, 3))
    after, _ = compiled(before, batch_of(8, seed=1))
    assert before.params["kernel"].is_deleted()
    assert after.params["kernel"].sharding == layout.replicated
    assert len(after.params["kernel"].addressable_shards) == 8


def test_a_moving_average_lives_where_the_weights_live(linear_task, adam, batch_of):
    states = []
    for num_devices in (8, 1):
        layout = Layout.over(jax.devices()[:num_devices])
        step = make_train_step(linear_task(), adam, ema_decay=0.9)
        state = layout.place_state(init_state(step.task, adam, 3, with_ema=True))
        before, compiled = state, jit_train_step(step, layout)
        for seed in range(3):
            state, _ = compiled(state, batch_of(24, seed=seed))
        assert before.ema["kernel"].is_deleted()
        assert state.ema["kernel"].sharding == layout.replicated
        states.append(jax.device_get(state))
    chex.assert_trees_all_close(states[0].ema, states[1].ema, rtol=1e-5, atol=1e-7)
    assert np.abs(states[0].ema["kernel"] - states[0].params["kernel"]).max() > 1e-3


def test_rows_lie_split_over_the_devices(batch_of):
    batch = batch_of(16, seed=1)
    placed = Layout.over().place_batch(batch)
    shards = placed["inputs"].addressable_shards
    assert [shard.data.shape for shard in shards] == [(2, 3)] * 8
    np.testing.assert_array_equal(shards[3].data, batch["inputs"][6:8])


def test_rows_that_do_not_divide_are_refused(batch_of):
    with pytest.raises(ValueError, match=r"8 parts.*\(12, 3\).*rows_multiple.*of 8"):
        Layout.over().place_batch({"inputs": batch_of(12, seed=1)["inputs"]})
    with pytest.raises(ValueError, match=r"got shape \(\)"):
        Layout.over().place_batch({"scale": np.float32(1.0)})


def test_absent_parts_of_a_batch_stay_absent(batch_of):
    placed = Layout.over().place_batch((batch_of(8, seed=1)["inputs"], None))
    assert placed[1] is None
