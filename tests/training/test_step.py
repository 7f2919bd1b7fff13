"""One update is the same however its rows are spread over devices and batches."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnjax.config import OptimizerConfig
from attnjax.training.anomalies import Guard, take_verdict
from attnjax.training.metrics import to_floats
from attnjax.training.optimizers import make_optimizer
from attnjax.training.state import init_state
from attnjax.training.step import make_train_step, moving_average
from attnjax.types import Ratio

NUM_DEVICES = 8


class WeightedSum:
    """The loss of a token is its value times one weight, so gradients are read off."""

    unit, score, measure = "tokens", "none", "nothing"

    def init(self, rng):
        return {"params": {"weight": jnp.ones(())}}

    def loss(self, variables, batch, rng, *, train):
        weighted = variables["params"]["weight"] * batch["values"] * batch["weights"]
        return {"loss": Ratio(weighted.sum(), batch["weights"].sum())}, {}

    def evaluate(self, variables):
        return {}


def split(batch, parts):
    return [jax.tree.map(lambda leaf, i=i: leaf[i::parts], batch) for i in range(parts)]


def assert_close(found, expected):
    chex.assert_trees_all_close(found, expected, rtol=2e-6, atol=2e-7)


def plain(state):
    """A state without its key, which no comparison of arrays takes."""
    return state.step, state.params, state.model_state, state.optimizer_state


@pytest.fixture(scope="module")
def one_batch(linear_task, adam, batch_of):
    """The update of 48 rows on one device."""
    task, batch = linear_task(), batch_of(48, seed=1)
    state = init_state(task, adam, 3)
    after, metrics = jax.jit(make_train_step(task, adam))(state, batch)
    return task, state, batch, after, to_floats(metrics)


def test_unequal_counts_are_not_a_mean_of_means():
    """One token of loss 2.0 and nine of 0.5: 0.65, where a mean of means says 1.25."""
    values = [np.array([2.0, 0.0], "f"), np.full(9, 0.5, "f")]
    weights = [np.array([1.0, 0.0], "f"), np.ones(9, "f")]
    batches = [
        {"values": v, "weights": w} for v, w in zip(values, weights, strict=True)
    ]
    task, optimizer = WeightedSum(), optax.sgd(1.0)
    step = make_train_step(task, optimizer, accumulate_steps=2)
    after, metrics = step(init_state(task, optimizer, 0), batches)
    assert to_floats(metrics)["loss"] == pytest.approx(0.65)
    assert to_floats(metrics)["gradient_norm"] == pytest.approx(0.65)
    assert float(after.params["weight"]) == pytest.approx(0.35)


def test_padding_rows_and_columns_change_nothing():
    task, optimizer = WeightedSum(), optax.sgd(1.0)
    step = make_train_step(task, optimizer)
    real = {"values": np.array([3.0, 4.0], "f"), "weights": np.ones(2, "f")}
    padded = {name: np.pad(leaf, (0, 3)) for name, leaf in real.items()}
    padded["values"][2:] = 99.0
    state = init_state(task, optimizer, 0)
    for batch in (real, padded):
        after, metrics = step(state, batch)
        assert to_floats(metrics)["loss"] == 3.5
        assert float(after.params["weight"]) == -2.5


def test_a_batch_of_padding_alone_is_zero_and_not_nan(linear_task, adam, batch_of):
    task, state = linear_task(), init_state(linear_task(), adam, 3)
    batch = {**batch_of(8, seed=1), "weights": np.zeros(8, np.float32)}
    after, metrics = make_train_step(task, adam)(state, batch)
    assert to_floats(metrics)["loss"] == 0.0
    assert_close(after.params, state.params)


@pytest.mark.parametrize("num_parts", [2, 3])
def test_micro_batches_are_one_batch(one_batch, adam, num_parts):
    task, state, batch, expected, expected_metrics = one_batch
    step = make_train_step(task, adam, accumulate_steps=num_parts)
    after, metrics = jax.jit(step)(state, split(batch, num_parts))
    assert_close(plain(after), plain(expected))
    found = to_floats(metrics)
    for name in ("loss", "gradient_norm"):  # Adam alone would hide a scale
        assert found[name] == pytest.approx(expected_metrics[name], rel=1e-5)


def test_pmap_over_devices_is_one_device(one_batch, adam):
    task, state, batch, expected, expected_metrics = one_batch
    step = make_train_step(task, adam, axis_name="devices")
    copies = jax.tree.map(lambda leaf: jnp.stack([leaf] * NUM_DEVICES), state)
    rows = jax.tree.map(
        lambda leaf: leaf.reshape(NUM_DEVICES, -1, *leaf.shape[1:]), batch
    )
    after, metrics = jax.pmap(step, axis_name="devices")(copies, rows)
    for device in range(NUM_DEVICES):
        mine = jax.tree.map(lambda leaf, d=device: leaf[d], (after, metrics))
        # Rows seen are a running mean over devices here, a sum there.
        mine[0].model_state["statistics"]["rows"] *= NUM_DEVICES
        assert_close(plain(mine[0]), plain(expected))
        found = to_floats(mine[1])
        for name in ("loss", "gradient_norm"):
            assert found[name] == pytest.approx(expected_metrics[name], rel=1e-5)


def test_pmap_accumulates_too(one_batch, adam):
    task, state, batch, expected, expected_metrics = one_batch
    step = make_train_step(task, adam, axis_name="devices", accumulate_steps=2)
    copies = jax.tree.map(lambda leaf: jnp.stack([leaf] * NUM_DEVICES), state)
    rows = [
        jax.tree.map(lambda leaf: leaf.reshape(NUM_DEVICES, -1, *leaf.shape[1:]), part)
        for part in split(batch, 2)
    ]
    after, metrics = jax.pmap(step, axis_name="devices")(copies, rows)
    mine, found = jax.tree.map(lambda leaf: leaf[3], (after, metrics))
    assert_close(mine.params, expected.params)
    norm = to_floats(found)["gradient_norm"]
    assert norm == pytest.approx(expected_metrics["gradient_norm"], rel=1e-5)


def test_the_moving_average_by_hand():
    """Weights 1, -2.5, -6, ...; decays 1/10, 2/11, then 0.25 as configured."""
    task, optimizer = WeightedSum(), optax.sgd(1.0)
    step = jax.jit(make_train_step(task, optimizer, ema_decay=0.25), donate_argnums=0)
    state = init_state(task, optimizer, 0, with_ema=True)
    batch = {"values": np.array([3.0, 4.0], "f"), "weights": np.ones(2, "f")}
    averages = [float(state.ema["weight"])]
    for _ in range(4):
        state, _ = step(state, batch)
        averages.append(float(state.ema["weight"]))
    assert averages == pytest.approx([1.0, -2.15, -5.3, -8.45, -11.8625], rel=1e-6)
    assert float(state.evaluation_variables["params"]["weight"]) == averages[-1]
    assert float(state.variables["params"]["weight"]) == -13.0


def test_the_moving_average_moves_once_an_update():
    task, optimizer = WeightedSum(), optax.sgd(1.0)
    step = make_train_step(task, optimizer, accumulate_steps=2, ema_decay=0.25)
    batches = [
        {"values": np.full(1, v, "f"), "weights": np.ones(1, "f")} for v in (3, 4)
    ]
    after, _ = step(init_state(task, optimizer, 0, with_ema=True), batches)
    assert float(after.ema["weight"]) == pytest.approx(-2.15, rel=1e-6)


def test_a_moving_average_keeps_weights_that_rest_and_forgets_the_first():
    weights = {"w": jax.random.normal(jax.random.key(1), (99,))}
    kept = moving_average(weights, weights, jnp.int32(5), 0.999)
    chex.assert_trees_all_equal_dtypes(kept, weights)
    assert kept["w"].tobytes() == weights["w"].tobytes()
    share, update = {"w": jnp.ones(())}, jax.jit(moving_average)
    for updates_done in range(100):
        share = update(share, {"w": 0.0}, jnp.int32(updates_done), 0.999)
    assert float(share["w"]) == pytest.approx(2.3e-13, rel=0.05)


@pytest.mark.parametrize("decay", [None, 0.9])
def test_an_average_without_its_decay_is_refused(adam, linear_task, batch_of, decay):
    step = make_train_step(linear_task(), adam, ema_decay=decay)
    state = init_state(linear_task(), adam, 3, with_ema=decay is None)
    has = "an average" if decay is None else "no average"
    with pytest.raises(
        ValueError, match=rf"ema_decay={decay}, but the state has {has}"
    ):
        step(state, batch_of(8, seed=1))


def test_no_random_number_comes_twice(linear_task, adam, batch_of):
    """Each step, micro-batch and device draws its own, and the key is never spent."""
    task = linear_task()
    state, draws = init_state(task, adam, 3), []
    batch = batch_of(8, seed=1)
    step = make_train_step(task, adam, accumulate_steps=2)
    for _ in range(2):
        for index in range(2):
            gathered = step.gather(state, state.model_state, batch, index)
            draws.append(float(gathered.metrics["noise"].total))
        after, _ = step(state, [batch, batch])
        chex.assert_trees_all_equal(
            jax.random.key_data(after.rng), jax.random.key_data(state.rng)
        )
        state = after
    step = make_train_step(task, adam, axis_name="devices")
    gather = jax.vmap(
        lambda rows: step.gather(state, state.model_state, rows, 0),
        axis_name="devices",
    )
    rows = jax.tree.map(lambda leaf: leaf.reshape(2, 4, *leaf.shape[1:]), batch)
    draws += gather(rows).metrics["noise"].total.tolist()
    assert len(set(draws)) == 6


def test_the_log_has_the_norm_before_clipping_and_the_rate(
    one_batch, adam, linear_task
):
    task, state, batch, after, metrics = one_batch

    def mean_loss(params):
        variables = {"params": params, **state.model_state}
        loss = task.loss(variables, batch, state.rng, train=True)[0]["loss"]
        return loss.total / loss.count

    norm = optax.global_norm(jax.grad(mean_loss)(state.params))
    assert float(norm) > 1.0
    assert metrics["gradient_norm"] == pytest.approx(float(norm), rel=1e-5)
    assert metrics["learning_rate"] == pytest.approx(0.1 / 3)
    assert int(after.step) == 1
    chex.assert_trees_all_equal_dtypes(after, state)


def test_an_optimizer_without_a_rate_logs_none(linear_task, batch_of):
    task, optimizer = linear_task(), optax.sgd(0.1)
    step = make_train_step(task, optimizer)
    _, metrics = step(init_state(task, optimizer, 0), batch_of(8, seed=1))
    assert set(metrics) == {"loss", "noise", "gradient_norm"}


@pytest.mark.parametrize(
    ("given", "found"), [(1, "1"), (3, "3"), (None, "no sequence")]
)
def test_a_wrong_number_of_micro_batches_is_refused(adam, linear_task, given, found):
    step = make_train_step(linear_task(), adam, accumulate_steps=2)
    batch = {} if given is None else [{}] * given
    with pytest.raises(ValueError, match=rf"tuple of 2 batches.*got {found}"):
        step.micro_batches(batch)


SKIP = Guard(on_bad_step="skip", max_bad_steps=50)


@pytest.fixture(params=["cpu", "default"])
def platform(request, monkeypatch):
    """The way of a CPU, and that of accelerators."""

    def choose(*arguments, **ways):
        return ways[request.param](*arguments)

    monkeypatch.setattr(jax.lax, "platform_dependent", choose)
    return request.param


def guarded(task, optimizer, guard, **settings):
    """A step with a guard, compiled, and the state it begins with."""
    step = make_train_step(task, optimizer, guard=guard, **settings)
    state = init_state(task, optimizer, 3, with_ema="ema_decay" in settings)
    return jax.jit(step), state.replace(guard=guard.begin())


def poisoned(batch):
    outputs_bv = batch["outputs"].copy()
    outputs_bv[2, 1] = np.nan
    return {**batch, "outputs": outputs_bv, "weights": np.ones_like(batch["weights"])}


def state_bits(state, *, but=("guard",)):
    """All of a state as bytes, under the names of its fields."""
    state = state.replace(rng=jax.random.key_data(state.rng))
    return {
        field.name: [np.asarray(x).tobytes() for x in jax.tree.leaves(value)]
        for field in dataclasses.fields(state)
        if field.name not in but and (value := getattr(state, field.name)) is not None
    }


def test_a_guard_changes_no_bit_of_good_steps(platform, linear_task, adam, batch_of):
    """Of an accelerator's way, compiled for a CPU, the sums may be fused otherwise."""
    task = linear_task(noise=0.3)
    step, state = guarded(task, adam, Guard(spike_factor=9.0), ema_decay=0.9)
    plain = jax.jit(make_train_step(task, adam, ema_decay=0.9))
    expected = state.replace(guard=None)
    for seed in range(4):
        state, measured = step(state, batch_of(8, seed))
        expected, expected_metrics = plain(expected, batch_of(8, seed))
        metrics, verdict = take_verdict(measured)
        found, plain_metrics = to_floats(metrics), to_floats(expected_metrics)
        assert found.pop("skipped_steps") == 0.0
        if platform == "cpu":
            assert state_bits(state) == state_bits(expected)
            assert found == plain_metrics
        else:
            pair = (each.replace(rng=(), guard=()) for each in (state, expected))
            chex.assert_trees_all_close(*pair, rtol=1e-6, atol=1e-7)
            assert found == pytest.approx(plain_metrics, rel=1e-6)
        assert verdict.loss == pytest.approx(found["loss"])
    assert int(state.guard.num_norms) == 4


@pytest.mark.parametrize("guard", [Guard(), Guard(on_bad_step="rollback"), SKIP])
@pytest.mark.parametrize("kind", ["adam", "adamw", "adafactor"])
def test_a_bad_step_changes_no_bit_of_the_state(
    platform, linear_task, batch_of, guard, kind
):
    optimizer = make_optimizer(
        OptimizerConfig(kind=kind, weight_decay=0.1 if kind == "adamw" else 0.0), 100
    )
    step, state = guarded(linear_task(), optimizer, guard, ema_decay=0.9)
    state, _ = step(state, batch_of(8, seed=1))
    before = state_bits(state, but=("guard", "step"))
    after, measured = step(state, poisoned(batch_of(8, seed=2)))
    assert state_bits(after, but=("guard", "step")) == before
    skips = guard is SKIP
    assert int(after.step) == 2 if skips else 1
    metrics, verdict = take_verdict(measured)
    assert verdict.bad
    assert np.isnan(verdict.loss)
    assert np.isnan(verdict.leaf_norms).all()
    assert float(metrics["loss"].total) == float(metrics["loss"].count) == 0.0
    assert float(metrics["gradient_norm"].count) == 0.0
    assert float(metrics["skipped_steps"].total) == float(skips)
    assert to_floats(metrics)["learning_rate"] > 0.0
    last, measured = step(after, batch_of(8, seed=3))
    assert (state_bits(last, but=("guard", "step")) == before) != skips
    assert float(measured["skipped_steps"].count) == float(skips)


def test_a_run_with_bad_batches_is_the_run_without_them(linear_task, adam, batch_of):
    """Twelve in a row, where `optax.apply_if_finite` would have applied the fourth."""
    step, state = guarded(linear_task(), adam, SKIP, ema_decay=0.9)
    good = [batch_of(8, seed) for seed in range(4)]
    bad = [poisoned(batch_of(8, seed)) for seed in range(12)]
    expected = state
    for batch in good:
        expected, _ = step(expected, batch)
    for batch in [bad[0], *good[:2], *bad, *good[2:]]:
        state, _ = step(state, batch)
    but = ("guard", "step", "ema")  # the average's decay follows the step
    assert state_bits(state, but=but) == state_bits(expected, but=but)
    assert np.isfinite(state.ema["kernel"]).all()
    assert int(state.step) == 17
    assert int(expected.step) == 4
    assert float(state.guard.usual_norm) == float(expected.guard.usual_norm)


def test_one_bad_micro_batch_or_device_spoils_the_update_everywhere(
    platform, linear_task, adam, batch_of
):
    task, good = linear_task(), batch_of(8, seed=1)
    step, state = guarded(task, adam, SKIP, accumulate_steps=2)
    before = state_bits(state, but=("guard", "step"))
    after, _ = step(state, [good, poisoned(good)])
    assert state_bits(after, but=("guard", "step")) == before
    mapped = make_train_step(task, adam, guard=SKIP, axis_name="devices")
    rows = jax.tree.map(lambda *leaves: np.stack(leaves), good, poisoned(good))
    after, measured = jax.vmap(mapped, in_axes=(None, 0), axis_name="devices")(
        state, rows
    )
    assert np.asarray(measured["verdict"].bad).tolist() == [True, True]
    for device in (0, 1):
        mine = jax.tree.map(lambda leaf, d=device: leaf[d], after)
        assert state_bits(mine, but=("guard", "step")) == before


@pytest.mark.parametrize("guard", [None, Guard()])
def test_a_guard_without_its_memory_is_refused(linear_task, adam, batch_of, guard):
    step = make_train_step(linear_task(), adam, guard=guard)
    state = init_state(linear_task(), adam, 3)
    if guard is None:
        state = state.replace(guard=Guard().begin())
    with pytest.raises(ValueError, match=r"make_train_step\(guard=\.\.\.\)"):
        step(state, batch_of(8, seed=1))
