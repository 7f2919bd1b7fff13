"""A run cut anywhere and taken up again is the unbroken run, bit for bit."""

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
from attnjax.training.checkpoints import Checkpoints
from attnjax.training.loop import DivergenceError, train
from attnjax.training.metrics_log import MetricsLog, read_metrics

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


@pytest.fixture
def session(linear_task, fake_batches, adam):
    """Runs one session in a folder, as the same command would again and again."""

    def run(workdir, *hooks, task=None, batches=None, seed=3, **settings):
        task = linear_task(noise=0.2) if task is None else task
        batches = fake_batches() if batches is None else batches
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
    """Real rows of the fake batches 0, 1, ..., by the rule of the conftest."""
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
sys.path[:0] = [{str(Path(__file__).parent)!r}]
from conftest import FakeBatches, LinearTask
from attnjax.config import OptimizerConfig, ScheduleConfig, TrainingConfig
from attnjax.training import loop, optimizers
from attnjax.training.checkpoints import Checkpoints
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

    def __init__(self, task, scores):
        self.task, self.scores = task, scores
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


@pytest.mark.parametrize("bad_step", [1, 6, 7])
def test_a_nan_stops_the_run_and_is_never_saved(
    tmp_path, session, linear_task, fake_batches, bad_step
):
    class Poisoned(fake_batches):
        def __next__(self):
            batch = super().__next__()
            if self.given[-1] == bad_step - 1:
                batch["outputs"] = np.full_like(batch["outputs"], np.nan)
            return batch

    with pytest.raises(DivergenceError, match=rf"at step {bad_step};.*peak"):
        session(tmp_path, batches=Poisoned(), checkpoint_every=1, log_every=50)
    with Checkpoints(tmp_path / "checkpoints", None) as checkpoints:
        assert checkpoints.latest_step() == (bad_step - 1 or None)


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
