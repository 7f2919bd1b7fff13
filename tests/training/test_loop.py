"""A run cut anywhere and taken up again is the unbroken run, bit for bit."""

import collections
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import chex
import jax
import numpy as np
import pytest

from attnjax.config import TrainingConfig
from attnjax.storage.checkpoints import Checkpoints
from attnjax.training import loop
from attnjax.training.anomaly_report import fingerprint
from attnjax.training.loop import DivergenceError, train
from attnjax.training.metrics_log import MetricsLog, read_metrics
from attnjax.training.sharding import jit_train_step

SETTINGS = {
    "num_steps": 11,
    "log_every": 3,
    "evaluate_every": 4,
    "checkpoint_every": 5,
    "keep_checkpoints": 2,
}


class CrashError(Exception):
    """Stands for whatever ends a process without a chance to save."""


class At:
    """A hook that does something after a given step."""

    def __init__(self, steps, action):
        self.steps, self.action = steps, action

    def start(self, start):
        pass

    def step(self, step):
        if step in self.steps:
            self.action()

    def log(self, record):
        pass

    def close(self):
        pass


def crash():
    raise CrashError


def send(number):
    return lambda: os.kill(os.getpid(), number)


class Session(NamedTuple):
    result: object
    batches: object
    task: object


@pytest.fixture(scope="module")
def programs():
    """What was compiled in this module, by all that a step is made of."""
    return collections.defaultdict(dict)


@pytest.fixture
def session(linear_task, fake_batches, adam, programs, monkeypatch):
    """Runs one session in a folder, as the same command would again and again."""

    def run(workdir, *hooks, task=None, batches=None, seed=3, **settings):
        task = linear_task(noise=0.2) if task is None else task
        batches = fake_batches() if batches is None else batches
        keys = "accumulate_steps", "ema_decay", "on_bad_step", "max_bad_steps"
        keys += "bad_steps_within", "spike_factor", "spike_warmup_steps"
        loss = task.loss  # of the task, or of the one that it wraps
        made_of = loss.__func__, loss.__self__.noise, *map(settings.get, keys)

        def step_with_programs(step, layout):
            compiled = jit_train_step(step, layout)
            compiled._programs = programs[made_of]
            return compiled

        monkeypatch.setattr(loop, "jit_train_step", step_with_programs)
        result = train(
            task,
            adam,
            batches,
            TrainingConfig(**{**SETTINGS, **settings}),
            seed=seed,
            workdir=workdir,
            hooks=(MetricsLog(workdir), *hooks),
        )
        return Session(result, batches, task)

    return run


def bits(state):
    """All that a state holds, as bytes."""
    key = jax.random.key_data(state.rng)
    leaves = jax.tree.leaves((state.replace(rng=()), key))
    return [np.asarray(leaf).tobytes() for leaf in leaves]


def timeless(workdir):
    """The log without what depends on the clock."""
    return [
        {name: value for name, value in record.items() if name != "timing"}
        for record in read_metrics(workdir)
    ]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, linear_task, fake_batches, adam):
    workdir = tmp_path_factory.mktemp("unbroken")
    task, batches = linear_task(noise=0.2), fake_batches()
    result = train(
        task,
        adam,
        batches,
        TrainingConfig(**SETTINGS),
        seed=3,
        workdir=workdir,
        hooks=[MetricsLog(workdir)],
    )
    return workdir, Session(result, batches, task)


def assert_same_run(workdir, result, unbroken):
    expected_dir, expected = unbroken
    assert bits(result.state) == bits(expected.result.state)
    assert timeless(workdir) == timeless(expected_dir)
    assert result.scores == expected.result.scores
    assert result.best_score == expected.result.best_score
    assert result.best_step == expected.result.best_step


def test_events_come_when_they_are_due_and_at_the_end(unbroken):
    workdir, (result, batches, _) = unbroken
    events = [(record["event"], record["step"]) for record in read_metrics(workdir)]
    assert events == [
        ("train", 3),
        ("validation", 4),
        ("train", 6),
        ("validation", 8),
        ("train", 9),
        ("train", 11),
        ("validation", 11),
    ]
    assert result.step == 11
    assert batches.given == list(range(11))
    assert not result.interrupted
    assert not result.stopped_early
    assert result.compilations == 3
    assert result.seconds_to_first_step > 0
    with Checkpoints(workdir / "checkpoints", None) as checkpoints:
        assert checkpoints.steps()[-2:] == [10, 11]
        assert checkpoints.best_step() == result.best_step


def test_a_log_line_is_the_mean_since_the_line_before(
    tmp_path, session, linear_task, unbroken
):
    each = session(tmp_path, log_every=1)
    lines = [r for r in read_metrics(tmp_path) if r["event"] == "train"]
    totals = [line["loss"] * rows for line, rows in zip(lines, _rows(), strict=True)]
    first = next(r for r in read_metrics(unbroken[0]) if r["event"] == "train")
    assert first["loss"] == pytest.approx(sum(totals[:3]) / sum(_rows()[:3]))
    assert first["learning_rate"] == lines[2]["learning_rate"]
    timing = first["timing"]
    assert set(timing) == {
        *("seconds", "compilations"),
        *("steps_per_second", "real_rows_per_second"),
    }
    ratio = timing["real_rows_per_second"] / timing["steps_per_second"]
    assert ratio == pytest.approx(sum(_rows()[:3]) / 3)
    assert bits(each.result.state) == bits(unbroken[1].result.state)


def _rows():
    """Real rows of the fake batches 0, 1, ..., by the rule of `linear_problem`."""
    rows = []
    for seed in range(11):
        generator = np.random.default_rng(seed)
        size = (8, 16)[seed % 2]
        generator.normal(size=(size, 3))
        rows.append(float((generator.random(size) > 0.3).sum()))
    return rows


def test_a_run_stopped_by_ctrl_c_after_every_step(tmp_path, session, unbroken):
    given = []
    for number in range(1, 13):
        every = At(range(99), send(signal.SIGINT))
        result, batches, _ = session(tmp_path, every)
        given += batches.given
        if result.step == 11 and not batches.given:
            break
        assert result.interrupted
        assert result.step == number
    assert number == 12
    assert given == list(range(11))
    assert_same_run(tmp_path, result, unbroken)


@pytest.mark.parametrize("step", [1, 4, 5, 7, 10, 11])
def test_a_run_that_crashed_once(tmp_path, session, unbroken, step):
    with pytest.raises(CrashError):
        session(tmp_path, At([step], crash))
    result, batches, _ = session(tmp_path)
    assert batches.given == list(range(batches.given[0], 11))
    assert_same_run(tmp_path, result, unbroken)


def test_a_killed_process(tmp_path, session, unbroken):
    """SIGKILL right after a save has begun in the background, in a real process."""
    script = f"""
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{str(Path(__file__).parents[1])!r}]
from linear_problem import FakeBatches, LinearTask
from attnjax.config import OptimizerConfig, ScheduleConfig, TrainingConfig
from attnjax.training import loop, optimizers
from attnjax.storage.checkpoints import Checkpoints
from attnjax.training.metrics_log import MetricsLog

save = Checkpoints.save
def save_and_die(self, step, *rest):
    save(self, step, *rest)
    if step == 10:
        os.kill(os.getpid(), signal.SIGKILL)
Checkpoints.save = save_and_die
schedule = ScheduleConfig(kind="rsqrt", peak=0.1, warmup_steps=3)
adam = optimizers.make_optimizer(OptimizerConfig(schedule=schedule), 100)
workdir = Path({str(tmp_path)!r})
loop.train(LinearTask(noise=0.2), adam, FakeBatches(),
           TrainingConfig(**{SETTINGS!r}), seed=3, workdir=workdir,
           hooks=[MetricsLog(workdir)])
"""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    killed = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        env={**os.environ, **cache},
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    result, batches, _ = session(tmp_path)
    assert batches.given[0] in (8, 10)  # the best was saved at 8
    assert_same_run(tmp_path, result, unbroken)


def test_accumulation_resumes_too(tmp_path, session):
    straight = session(tmp_path / "straight", num_steps=4, accumulate_steps=3)
    session(
        tmp_path / "cut",
        At([2], send(signal.SIGINT)),
        num_steps=4,
        accumulate_steps=3,
    )
    resumed = session(tmp_path / "cut", num_steps=4, accumulate_steps=3)
    assert straight.batches.given == list(range(12))
    assert resumed.batches.given == list(range(6, 12))
    assert bits(resumed.result.state) == bits(straight.result.state)
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "straight")
    assert straight.result.compilations == 4


def test_a_moving_average_resumes_too_and_is_what_is_validated(
    tmp_path, session, unbroken
):
    straight = session(tmp_path / "straight", ema_decay=0.9)
    session(tmp_path / "cut", At([5], send(signal.SIGINT)), ema_decay=0.9)
    with pytest.raises(CrashError):
        session(tmp_path / "cut", At([9], crash), ema_decay=0.9)
    resumed = session(tmp_path / "cut", ema_decay=0.9)
    state = straight.result.state
    assert len(bits(state)) == len(bits(unbroken[1].result.state)) + 2
    assert bits(resumed.result.state) == bits(state)
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "straight")
    chex.assert_trees_all_close(state.params, unbroken[1].result.state.params)
    distances = [
        -float(np.abs(np.asarray(params["kernel"]) - 1.0).max())
        for params in (state.ema, state.params)
    ]
    assert straight.result.scores["closeness"] == distances[0] != distances[1]


@pytest.mark.parametrize(
    ("first", "then", "line"),
    [
        (None, 0.9, r"ema\.bias: missing, expected float32\[2\]"),
        (0.9, None, r"ema\.bias: float32\[2\] not expected"),
    ],
)
def test_a_moving_average_is_on_or_off_for_the_whole_run(
    tmp_path, session, first, then, line
):
    session(tmp_path, num_steps=1, ema_decay=first)
    with pytest.raises(
        ValueError, match=rf"does not fit this configuration.*\n *{line}"
    ):
        session(tmp_path, ema_decay=then)


def test_a_finished_run_does_nothing_more(tmp_path, session, unbroken):
    session(tmp_path)
    result, batches, task = session(tmp_path)
    assert batches.given == []
    assert task.evaluated == []
    assert result.seconds_to_first_step is None
    assert_same_run(tmp_path, result, unbroken)


def test_a_longer_run_goes_on_from_a_shorter_one(tmp_path, session, unbroken):
    session(tmp_path, num_steps=8, log_every=4)
    result, batches, _ = session(tmp_path)
    assert batches.given == [8, 9, 10]
    assert bits(result.state) == bits(unbroken[1].result.state)


def test_sigterm_saves_like_ctrl_c(tmp_path, session):
    handlers = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
    result, _, _ = session(tmp_path, At([2], send(signal.SIGTERM)))
    assert result.interrupted
    with Checkpoints(tmp_path / "checkpoints", None) as checkpoints:
        assert checkpoints.latest_step() == 2
    after = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
    assert after == handlers


def test_a_signal_within_an_evaluation_puts_it_off(
    tmp_path, session, linear_task, unbroken
):
    class Slow(linear_task):
        def evaluate(self, variables):
            if int(variables["statistics"]["rows"]) > 0 and not self.evaluated:
                self.evaluated.append("begun")
                send(signal.SIGINT)()
            return super().evaluate(variables)

    result, _, task = session(tmp_path, task=Slow(noise=0.2))
    assert result.interrupted
    assert result.step == 4
    assert task.evaluated == ["begun"]
    resumed, batches, task = session(tmp_path)
    assert batches.given == list(range(4, 11))
    assert len(task.evaluated) == 3
    assert_same_run(tmp_path, resumed, unbroken)


class Scripted:
    """Gives a task scores from a list, by the number of the validation."""

    def __init__(self, task, scores, measure="all lines"):
        self.task, self.scores, self.measure = task, scores, measure
        self.unit, self.score = task.unit, "scripted"
        self.init, self.loss = task.init, task.loss
        self.evaluations = 0

    def evaluate(self, variables):
        step = round(float(variables["statistics"]["rows"]))
        index = int(np.searchsorted(np.cumsum(_rows()), step))
        self.evaluations += 1
        return {"scripted": self.scores[index]}


@pytest.mark.parametrize("cut", [None, 3, 4, 5])
def test_patience_counts_on_over_a_resume(tmp_path, session, linear_task, cut):
    """Scores by step; the best at 2, NaN is no better, patience 3 ends it at 5."""
    scores = [0.0, 1.0, math.nan, 1.0, 0.5, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]
    settings = {"evaluate_every": 1, "patience": 3, "keep_checkpoints": 1}

    def task():
        return Scripted(linear_task(), scores)

    if cut is not None:
        session(tmp_path, At([cut], send(signal.SIGINT)), task=task(), **settings)
    for _ in range(2):
        result, _, _ = session(tmp_path, task=task(), **settings)
        assert result.stopped_early
        assert result.step == 5
        assert (result.best_step, result.best_score) == (2, 1.0)
    steps = [r["step"] for r in read_metrics(tmp_path) if r["event"] == "validation"]
    assert steps == [1, 2, 3, 4, 5]
    with Checkpoints(tmp_path / "checkpoints", None) as checkpoints:
        assert checkpoints.steps() == [2, 5]
        assert checkpoints.best_step() == 2


def test_scores_of_another_measure_are_not_compared(
    tmp_path, session, linear_task, caplog
):
    """An easy validation of one session is not the best for ever, nor is it lost."""
    scores = [0.0, 9.0, 8.0, 1.0, 2.0, 0.5, 7.0, 7.0, 7.0, 7.0, 7.0]
    settings = {"evaluate_every": 1, "patience": 2, "keep_checkpoints": 1}
    best = []
    for measure, num_steps in [("easy", 3), ("hard", 6), ("easy", 7)]:
        task = Scripted(linear_task(), scores, measure)
        result, _, _ = session(tmp_path, task=task, num_steps=num_steps, **settings)
        assert result.step == num_steps
        with Checkpoints(tmp_path / "checkpoints", None) as stored:
            best.append((result.best_step, stored.best_step(), stored.scores()))
    assert best == [
        (2, 2, {2: 9.0, 3: 8.0}),
        (5, 5, {5: 2.0, 6: 0.5}),
        (2, 2, {2: 9.0, 7: 7.0}),
    ]
    assert [m for m in caplog.messages if "(easy -> hard)" in m]


@pytest.mark.parametrize(
    "content", [None, "{}", '{"3": 9e9}', "spoilt"], ids=["lost", "empty", "edited", ""]
)
def test_the_best_is_what_the_checkpoints_know(
    tmp_path, session, linear_task, caplog, content
):
    settings = {"evaluate_every": 1, "keep_checkpoints": 1}
    task = Scripted(linear_task(), [1.0, 5.0, 2.0, 3.0, 0.0])
    session(tmp_path, task=task, num_steps=3, **settings)
    path = tmp_path / "checkpoints/scores.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with Checkpoints(tmp_path / "checkpoints", None) as stored:
        assert stored.best_step() == 2
    result, _, _ = session(tmp_path, task=task, num_steps=5, **settings)
    assert (result.best_step, result.best_score) == (2, 5.0)
    with Checkpoints(tmp_path / "checkpoints", None) as stored:
        assert stored.steps() == [2, 5]
        assert stored.scores() == {2: 5.0, 5: 0.0}
    assert (content in (None, "{}")) == ("scores.json" not in caplog.text)


@pytest.fixture
def poisoned(fake_batches):
    """Batches of which some are spoilt, by their number from 0 on."""

    class Poisoned(fake_batches):
        def __init__(self, bad, scale=math.nan):
            super().__init__()
            self.bad, self.scale = bad, scale

        def __next__(self):
            batch = super().__next__()
            if self.given[-1] in self.bad:
                batch["outputs"] = np.full_like(batch["outputs"], self.scale)
            return batch

        def describe_last(self):
            return [f"line {self.given[-1]}", "another"]

    return Poisoned


@pytest.mark.parametrize("bad_step", [1, 6, 7])
def test_a_nan_stops_the_run_and_is_never_saved(tmp_path, session, poisoned, bad_step):
    bad = poisoned([bad_step - 1])
    with pytest.raises(DivergenceError, match=rf"at step {bad_step};.*peak") as error:
        session(tmp_path, batches=bad, checkpoint_every=1, log_every=50)
    assert f"(line {bad_step - 1}, and 1 more)" in str(error.value)
    with Checkpoints(tmp_path / "checkpoints", None) as checkpoints:
        assert checkpoints.latest_step() == (bad_step - 1 or None)
    told = json.loads((tmp_path / f"anomaly_{bad_step}.json").read_text())
    assert told["step"] == bad_step
    assert told["action"] == "stop"
    assert told["reason"] == "the loss is nan"
    assert told["first_bad_leaf"] == "params.bias"
    bad.set_state({"position": bad_step - 1})
    assert told["batches"] == [
        {
            "fingerprint": fingerprint(next(bad)),
            "lines": [f"line {bad_step - 1}", "another"],
        }
    ]


def skipping(session, poisoned, workdir, *hooks, bad=(1, 2, 6), **settings):
    settings = {"on_bad_step": "skip", "max_bad_steps": 4, **settings}
    return session(workdir, *hooks, batches=poisoned(bad), ema_decay=0.9, **settings)


@pytest.mark.parametrize("cut", [1, 2, 3, 6, 7, 8])
def test_skipped_steps_are_counted_and_resume_bit_for_bit(
    tmp_path, session, poisoned, cut
):
    straight = skipping(session, poisoned, tmp_path / "straight")
    assert straight.result.step == 11
    lines = [r for r in read_metrics(tmp_path / "straight") if r["event"] == "train"]
    assert [line["skipped_steps"] for line in lines] == [2.0, 0.0, 1.0, 0.0]
    assert all(math.isfinite(line["loss"]) for line in lines)
    # Rows are counted by the model state: those of bad steps are none of them.
    good = sum(rows for n, rows in enumerate(_rows()) if n not in (1, 2, 6))
    assert straight.result.scores["rows"] == good
    told = sorted(path.name for path in (tmp_path / "straight").glob("anomaly*"))
    assert told == ["anomaly_2.json", "anomaly_3.json", "anomaly_7.json"]
    folder = tmp_path / "cut"
    with pytest.raises(CrashError):
        skipping(session, poisoned, folder, At([cut], crash))
    skipping(session, poisoned, folder, At([cut], send(signal.SIGINT)))
    resumed = skipping(session, poisoned, folder)
    assert bits(resumed.result.state) == bits(straight.result.state)
    assert timeless(folder) == timeless(tmp_path / "straight")


def test_a_log_line_of_skipped_steps_alone_has_no_loss(tmp_path, session, poisoned):
    skipping(session, poisoned, tmp_path, bad=(3,), log_every=1, num_steps=5)
    lines = [r for r in read_metrics(tmp_path) if r["event"] == "train"]
    assert [line["loss"] is None for line in lines] == [False] * 3 + [True, False]
    assert [line["skipped_steps"] for line in lines] == [0.0, 0.0, 0.0, 1.0, 0.0]
    assert lines[3]["learning_rate"] == lines[2]["learning_rate"]
    assert lines[4]["learning_rate"] > 0


@pytest.mark.parametrize("cut", [None, 4])
def test_one_bad_step_too_many_ends_a_run_that_skips(tmp_path, session, poisoned, cut):
    settings = {"bad": (1, 2, 5, 8), "max_bad_steps": 2, "bad_steps_within": 6}
    if cut:
        stop = At([cut], send(signal.SIGINT))
        skipping(session, poisoned, tmp_path, stop, **settings)
    # Step 6 is 4 steps behind the older of two, step 9 would be 6 behind 3.
    with pytest.raises(DivergenceError, match="at step 6;"):
        skipping(session, poisoned, tmp_path, **settings)
    assert json.loads((tmp_path / "anomaly_6.json").read_text())["action"] == "stop"
    settings["bad"] = (1, 2, 8)
    result = skipping(session, poisoned, tmp_path / "sparse", **settings).result
    assert result.step == 11


def rolling(session, poisoned, workdir, *hooks, bad=(6,), **settings):
    settings = {"on_bad_step": "rollback", **settings}
    return session(workdir, *hooks, batches=poisoned(bad), **settings)


@pytest.mark.parametrize("crashed_at", [None, 3, 7, 9])
@pytest.mark.parametrize(("every", "last"), [(5, 5), (99, 0)])
def test_a_run_goes_back_and_on_behind_the_bad_batch(
    tmp_path, session, poisoned, fake_batches, every, last, crashed_at
):
    """Batch 6 is bad: up to the last checkpoint as ever, then on with batch 7."""
    order = [*range(last), *range(7, 20)]
    settings = {"checkpoint_every": every, "evaluate_every": 11}

    class Ordered(fake_batches):
        def __next__(self):
            number, self.position = self.position, order[self.position]
            batch = super().__next__()
            self.position = number + 1
            return batch

    expected = session(tmp_path / "expected", batches=Ordered(), **settings)
    folder = tmp_path / "run"
    if crashed_at:
        with pytest.raises(CrashError):
            rolling(session, poisoned, folder, At([crashed_at], crash), **settings)
    found = rolling(session, poisoned, folder, **settings)
    assert found.result.step == 11
    assert bits(found.result.state.replace(guard=None)) == bits(
        expected.result.state.replace(guard=None)
    )
    assert found.result.state.guard.bad_steps.tolist() == [0] * 9 + [7]
    assert timeless(folder) == timeless(tmp_path / "expected")
    assert found.batches.position == 7 + 11 - last
    assert json.loads((folder / "anomaly_7.json").read_text())["action"] == "rollback"


def test_a_run_that_ran_away_names_the_checkpoint_from_before(
    tmp_path, session, fake_batches
):
    """Batches of growing scale stand for weights that grow; their loss ends in NaN."""

    class Growing(fake_batches):
        def __next__(self):
            batch = super().__next__()
            excess = max(0, self.given[-1] - 4)
            batch["outputs"] = batch["outputs"] * np.float32(10.0 ** (5 * excess))
            return batch

    settings = {"checkpoint_every": 2, "keep_checkpoints": 9}
    with pytest.raises(
        DivergenceError, match=r"of step \d+, seems to be damaged"
    ) as error:
        session(tmp_path, batches=Growing(), **settings)
    assert "go on from that of step 4 with --from-step 4" in str(error.value)


def test_weights_that_no_good_step_has_used_are_no_place_to_go_on_from(
    tmp_path, session, poisoned
):
    """The update of step 5 made them; that its own loss was fine tells nothing."""
    settings = {"checkpoint_every": 1, "keep_checkpoints": 9}
    for _ in range(2):  # and when the same is tried again
        with pytest.raises(DivergenceError, match=r"at step 6;.*") as error:
            session(tmp_path, batches=poisoned((5,)), **settings)
        assert "step 5, seems to be damaged already" in str(error.value)
        assert "--from-step 4" in str(error.value)


def test_going_back_without_end_ends(tmp_path, session, poisoned):
    with pytest.raises(DivergenceError, match=r"at step 6;.*is of step 5"):
        rolling(session, poisoned, tmp_path, bad=range(6, 999), max_bad_steps=3)
    with Checkpoints(tmp_path / "checkpoints", None) as checkpoints:
        assert checkpoints.latest_step() == 5


def test_a_second_way_back_leads_past_both(tmp_path, session, poisoned):
    """Batch 6 as step 7, back to 5, then batch 9 as step 8, and back to 5 again."""
    found = rolling(session, poisoned, tmp_path, bad=(6, 9), evaluate_every=11)
    assert found.result.step == 11
    assert found.result.state.guard.bad_steps.tolist()[-3:] == [0, 7, 8]
    assert found.batches.position == 10 + 6
    steps = [r["step"] for r in read_metrics(tmp_path) if r["event"] == "train"]
    assert steps == [3, 6, 9, 11]


def test_a_spike_is_passed_over_if_asked_and_resumes(tmp_path, session, poisoned):
    settings = {"spike_factor": 20.0, "spike_warmup_steps": 5}

    def run(workdir, *hooks, **settings):
        batches = poisoned([7], scale=1e4)
        return session(workdir, *hooks, batches=batches, **settings)

    assert run(tmp_path / "applied").result.step == 11
    with pytest.raises(DivergenceError, match=r"the gradient norm .* times the usual"):
        run(tmp_path / "stopped", **settings)
    settings["on_bad_step"] = "skip"
    straight = run(tmp_path / "straight", **settings).result
    assert straight.state.guard.bad_steps.tolist()[-2:] == [0, 8]
    run(tmp_path / "cut", At([6], send(signal.SIGINT)), **settings)
    resumed = run(tmp_path / "cut", **settings).result
    assert bits(resumed.state) == bits(straight.state)
    late = {**settings, "spike_warmup_steps": 8}
    assert run(tmp_path / "late", **late).result.state.guard.bad_steps.max() == 0


def test_bad_micro_batches_are_all_named(tmp_path, session, poisoned):
    with pytest.raises(DivergenceError, match="at step 2;"):
        session(tmp_path, batches=poisoned([3]), accumulate_steps=2)
    told = json.loads((tmp_path / "anomaly_2.json").read_text())
    assert [batch["lines"][0] for batch in told["batches"]] == ["line 2", "line 3"]


def test_a_checkpoint_from_before_the_guard_is_taken_up(
    tmp_path, session, unbroken, monkeypatch
):
    session(tmp_path, At([5], send(signal.SIGINT)))
    restore = Checkpoints.restore

    def as_it_was(self, step, target):
        state, extra = restore(self, step, target)
        del extra["guard"], extra["window"]["skipped_steps"]
        return state, extra

    monkeypatch.setattr(Checkpoints, "restore", as_it_was)
    result = session(tmp_path).result
    assert bits(result.state.replace(guard=None)) == bits(
        unbroken[1].result.state.replace(guard=None)
    )
    assert timeless(tmp_path) == timeless(unbroken[0])


def test_the_guard_is_no_part_of_the_stored_state(unbroken):
    with Checkpoints(unbroken[0] / "checkpoints", None) as checkpoints:
        folder = checkpoints.folder / str(checkpoints.latest_step())
    stored = [path.name for path in folder.rglob("*")]
    assert not [name for name in stored if "guard" in name]


def test_processes_stop_at_the_same_step_though_one_has_the_signal(
    tmp_path, session, linear_task, monkeypatch
):
    """The signal comes within the validation of step 4; the others' would hang."""

    class Slow(linear_task):
        def evaluate(self, variables):
            if not self.evaluated:
                send(signal.SIGTERM)()
            return super().evaluate(variables)

    ballots = []

    def first(number):
        ballots.append(number)
        return number

    monkeypatch.setattr(loop, "largest_over_processes", lambda: first)
    one = session(tmp_path / "one", task=Slow(noise=0.2))
    assert ballots == [0] * 4 + [signal.SIGTERM] * (len(ballots) - 4)
    told = iter(ballots)
    monkeypatch.setattr(
        loop, "largest_over_processes", lambda: lambda mine: max(mine, next(told))
    )
    other = session(tmp_path / "other")
    for result, _, task in (one, other):
        assert result.signal == "SIGTERM"
        assert result.interrupted
        assert result.step == 5  # cast and, before it is saved, counted
        assert len(task.evaluated) == 1
    assert bits(one.result.state) == bits(other.result.state)


def test_a_run_that_nobody_interrupts_has_no_signal(unbroken):
    assert unbroken[1].result.signal is None


def test_a_score_that_evaluation_does_not_give_is_named(tmp_path, session, linear_task):
    class Misnamed(linear_task):
        score = "closenes"

    with pytest.raises(ValueError, match=r"'closenes'.*\['closeness', 'rows'\]"):
        session(tmp_path, task=Misnamed())


def test_a_checkpoint_of_another_task_is_refused(tmp_path, session, linear_task):
    session(tmp_path, num_steps=1)

    class Wider(linear_task):
        def init(self, rng):
            variables = super().init(rng)
            variables["params"]["scale"] = variables["params"]["bias"]
            return variables

    with pytest.raises(ValueError, match=r"params\.scale: missing, expected"):
        session(tmp_path, task=Wider())


def test_hooks_are_closed_in_whatever_way_it_ends(tmp_path, session):
    closed = []

    class Closing(At):
        def close(self):
            closed.append(self.steps)

    with pytest.raises(CrashError):
        session(tmp_path, Closing([], None), Closing([2], crash))
    assert sorted(closed) == [[], [2]]
