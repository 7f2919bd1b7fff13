"""What counts as a bad step, and what is told of it."""

import json
import logging
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.config import TrainingConfig
from attnjax.training.anomalies import Guard, pushed, take_verdict
from attnjax.training.anomaly_report import (
    Anomaly,
    describe_batches,
    fingerprint,
    where_to_go_on,
)

GOOD = (0.5, [3.0, 4.0])  # a loss, and the gradients of two leaves: norm 5


def gradients(values):
    return {"a": jnp.float32([values[0]]), "b": {"c": jnp.float32([[values[1]]])}}


def judged(guard, steps, memory=None):
    """Memory and verdict after steps 1, 2, ... of these losses and gradients."""
    judge = jax.jit(guard.judge)
    memory = guard.begin() if memory is None else memory
    verdicts = []
    for number, (loss, values) in enumerate(steps, start=1):
        step = jnp.int32(number)
        memory, verdict = judge(memory, step, jnp.float32(loss), gradients(values))
        verdicts.append(jax.device_get(verdict))
    return jax.device_get(memory), verdicts


BAD = {
    "loss nan": (math.nan, [3.0, 4.0]),
    "loss inf": (-math.inf, [3.0, 4.0]),
    "gradient nan": (0.5, [3.0, math.nan]),
    "gradient inf": (0.5, [math.inf, 4.0]),
    "norm overflows": (0.5, [1e30, 4.0]),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_step_halts_and_nothing_afterwards_changes_anything(bad):
    memory, verdicts = judged(Guard(), [GOOD, bad, GOOD, bad])
    assert [bool(v.bad) for v in verdicts] == [False, True, False, False]
    assert [int(v.halted_at) for v in verdicts] == [0, 2, 2, 2]
    before, _ = judged(Guard(), [GOOD])
    for name in ("bad_steps", "usual_norm", "num_norms"):
        np.testing.assert_array_equal(getattr(memory, name), getattr(before, name))
    np.testing.assert_allclose(verdicts[0].leaf_norms, [3.0, 4.0])
    assert float(verdicts[0].gradient_norm) == 5.0
    assert verdicts[3].usual_norm == 5.0


def test_so_many_bad_steps_are_passed_over_within_so_many():
    guard = Guard(on_bad_step="skip", max_bad_steps=2, bad_steps_within=5)
    bad = BAD["gradient nan"]
    # Bad: 2, 3; then 7, which is 5 behind 2; then 8, 5 behind 3; then 9.
    steps = [GOOD, bad, bad, GOOD, GOOD, GOOD, bad, bad, bad, GOOD]
    memory, verdicts = judged(guard, steps)
    assert [int(v.halted_at) for v in verdicts] == [0] * 8 + [9, 9]
    assert [n for n, v in enumerate(verdicts, 1) if v.bad] == [2, 3, 7, 8, 9]
    assert memory.bad_steps.tolist() == [7, 8]
    assert int(memory.num_norms) == 4
    assert float(memory.usual_norm) == 5.0


def test_the_usual_norm_is_a_mean_then_a_moving_one():
    norms = np.random.default_rng(0).uniform(1, 9, 130).astype(np.float32)
    memory, verdicts = judged(Guard(), [(0.5, [n, 0.0]) for n in norms])
    expected = 0.0
    for number, norm in enumerate(norms):
        assert verdicts[number].usual_norm == pytest.approx(expected, rel=1e-5)
        expected += max(1 / (number + 1), 0.01) * (norm - expected)
    assert verdicts[100].usual_norm == pytest.approx(norms[:100].mean(), rel=1e-5)
    assert int(memory.num_norms) == 130


def test_a_spike_is_one_after_a_warm_up_and_does_not_become_usual():
    guard = Guard(on_bad_step="skip", spike_factor=3.0, spike_warmup_steps=4)
    spike, just_not = (0.5, [0.0, 15.1]), (0.5, [0.0, 15.0])
    memory, verdicts = judged(guard, [GOOD, GOOD, spike])
    assert not verdicts[2].bad
    memory, verdicts = judged(guard, [GOOD] * 4 + [spike, spike, just_not])
    assert [bool(v.bad) for v in verdicts[4:]] == [True, True, False]
    assert float(memory.usual_norm) == pytest.approx(7.0)
    assert memory.bad_steps.tolist()[-2:] == [5, 6]


def test_no_norm_is_a_spike_unless_asked():
    _, verdicts = judged(Guard(), [GOOD] * 120 + [(0.5, [1e9, 0.0])])
    assert not verdicts[-1].bad


@pytest.mark.parametrize("policy", ["stop", "rollback"])
def test_only_skip_goes_on(policy):
    _, verdicts = judged(Guard(on_bad_step=policy), [BAD["loss nan"], GOOD])
    assert [int(v.halted_at) for v in verdicts] == [1, 1]


def test_a_memory_survives_json_exactly_and_other_settings():
    guard = Guard(on_bad_step="skip", max_bad_steps=3)
    odd = (0.5, [1 / 3, 0.1])
    memory, _ = judged(guard, [odd, BAD["loss nan"], odd, GOOD, BAD["loss inf"]])
    stored = json.loads(json.dumps(memory.to_json()))
    again = guard.begin(stored)
    for old, new in zip(memory, again, strict=True):
        assert np.asarray(old).tobytes() == np.asarray(new).tobytes()
        assert np.asarray(old).dtype == np.asarray(new).dtype
    for size, expected in [(1, [5]), (2, [2, 5]), (5, [0, 0, 0, 2, 5])]:
        other = Guard(on_bad_step="skip", max_bad_steps=size)
        assert other.begin(stored).bad_steps.tolist() == expected
    assert guard.begin(None).bad_steps.tolist() == [0, 0, 0]


def test_going_back_fills_the_allowance_too():
    guard = Guard(on_bad_step="rollback", max_bad_steps=2, bad_steps_within=9)
    memory = guard.begin()
    for step in (5, 5):
        assert not guard.is_exhausted(memory, step)
        memory = memory._replace(bad_steps=np.asarray(pushed(memory, step)))
    assert guard.is_exhausted(memory, 5)
    assert guard.is_exhausted(memory, 13)
    assert not guard.is_exhausted(memory, 14)


def test_the_rule_is_that_of_the_config():
    settings = {
        "on_bad_step": "rollback",
        "max_bad_steps": 3,
        "bad_steps_within": 7,
        "spike_factor": 2.5,
        "spike_warmup_steps": 11,
    }
    assert Guard.of(TrainingConfig(**settings)) == Guard(**settings)
    assert Guard.of(TrainingConfig()) == Guard()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spike_factor": 1.0}, r"spike_factor must be greater than 1 or None"),
        ({"max_bad_steps": 0}, r"max_bad_steps must be greater than 0"),
        ({"bad_steps_within": 0}, r"bad_steps_within must be greater than 0"),
        ({"spike_warmup_steps": 0}, r"spike_warmup_steps must be greater than 0"),
    ],
)
def test_an_impossible_rule_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**changes)


def test_a_verdict_is_taken_out_of_the_metrics():
    metrics = {"loss": 1, "verdict": 2}
    assert take_verdict(metrics) == ({"loss": 1}, 2)
    assert metrics == {"loss": 1, "verdict": 2}


def told(steps, batches=(), guard=None):
    guard = Guard() if guard is None else guard
    _, verdicts = judged(guard, steps)
    params = gradients([0.0, 0.0])
    return Anomaly.of(len(steps), verdicts[-1], "stop", params, list(batches))


def test_a_report_names_the_loss_and_the_first_bad_leaf():
    found = told([GOOD, (math.nan, [math.nan, math.inf])])
    assert found.reason == "the loss is nan"
    assert found.first_bad_leaf == "params.a"
    assert found.bad_leaves == ["params.a", "params.b.c"]
    found = told([GOOD, (0.5, [1.0, -math.inf])])
    assert found.reason == "the gradient norm is inf"
    assert found.first_bad_leaf == "params.b.c"
    assert (found.step, found.loss, found.usual_gradient_norm) == (2, 0.5, 5.0)


def test_a_report_of_a_spike_names_where_most_of_it_is():
    guard = Guard(spike_factor=2.0, spike_warmup_steps=1)
    found = told([GOOD, (0.5, [3.0, 40.0])], guard=guard)
    assert found.reason == "the gradient norm 40.11 is 8.022 times the usual one"
    assert found.first_bad_leaf == "params.b.c"
    assert found.bad_leaves == []
    assert "at step 2; most of it in the gradient of params.b.c" in str(found)


def test_a_report_is_one_sentence_and_a_file(tmp_path):
    batches = [{"fingerprint": "12ab", "lines": ["corpus, line 7", "corpus, line 9"]}]
    found = told([(math.inf, [math.nan, 4.0])], batches)
    assert str(found) == (
        "the loss is inf at step 1; first in the gradient of params.a, batch 12ab "
        "(corpus, line 7, and 1 more)"
    )
    path = found.write(tmp_path)
    assert path == tmp_path / "anomaly_1.json"
    text = path.read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    fields = json.loads(text)
    assert fields["loss"] == "inf"
    assert fields["gradient_norm"] == "nan"
    assert fields["usual_gradient_norm"] == 0.0
    assert fields["first_bad_leaf"] == "params.a"
    assert fields["batches"] == batches
    assert fields["action"] == "stop"
    assert "optimizer.schedule.peak" in fields["advice"]
    assert [file.name for file in tmp_path.iterdir()] == ["anomaly_1.json"]


def test_a_report_that_cannot_be_written_does_not_hide_what_it_tells(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        assert told([(math.nan, [1.0, 1.0])]).write(tmp_path / "deleted") is None
    assert "cannot write" in caplog.text


def test_each_process_has_its_own_report(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda: 3)
    path = told([(math.nan, [1.0, 1.0])]).write(tmp_path)
    assert path.name == "anomaly_1_process_3.json"


def test_batches_are_read_again_to_name_them(fake_batches, batch_of):
    class Named(fake_batches):
        def describe_last(self):
            return [f"line {self.given[-1]}"]

    batches = Named()
    for _ in range(5):
        next(batches)
    found = describe_batches(batches, {"position": 1}, 2)
    assert [batch["lines"] for batch in found] == [["line 1"], ["line 2"]]
    assert found[0]["fingerprint"] == fingerprint(batch_of(16, seed=1))
    assert batches.get_state() == {"position": 3}
    plain = fake_batches()
    assert describe_batches(plain, {"position": 1}, 1) == [
        {"fingerprint": found[0]["fingerprint"]}
    ]


def test_a_fingerprint_sees_every_bit_shape_and_type():
    batch = {"ids": np.arange(6, dtype=np.int32), "none": None}
    others = [
        {**batch, "ids": np.array([0, 1, 2, 3, 4, 6], np.int32)},
        {**batch, "ids": batch["ids"].reshape(2, 3)},
        {**batch, "ids": batch["ids"].view(np.float32)},
    ]
    assert len({fingerprint(each) for each in [batch, *others]}) == 4
    transposed = np.arange(6, dtype=np.int32).reshape(2, 3).T
    assert fingerprint(transposed) == fingerprint(transposed.copy())
    assert len(fingerprint(batch)) == 16


@pytest.mark.parametrize(
    ("losses", "steps", "told"),
    [
        ({}, [], "there is no checkpoint yet"),
        ({0: 6.0, 2: 5.0, 4: 4.0}, [2, 4], r"is from before \(it is of step 4\)"),
        ({0: 6.0, 2: 5.0, 4: 90.0}, [2, 4], "of step 4, seems to be damaged.*step 2"),
        (
            {0: 6.0, 2: 5.0, 4: math.inf},
            [2, 4],
            "of step 4, seems to be damaged.*step 2",
        ),
        ({0: 6.0, 2: 50.0, 4: 900.0}, [2, 4], "before the first checkpoint"),
        # A batch that is harder than the others is no damage if it passes.
        ({0: 6.0, 2: 1.0, 4: 9.0, 6: 0.9}, [2, 4, 6], "it is of step 6"),
        ({0: 6.0, 2: 1.0, 4: 9.0, 6: 9.0}, [4, 6], "before the first checkpoint"),
        ({0: 6.0}, [2, 4], "it is of step 4"),  # of a version that measured none
    ],
)
def test_training_goes_on_from_before_the_damage(losses, steps, told):
    assert re.search(told, where_to_go_on(losses, steps))
