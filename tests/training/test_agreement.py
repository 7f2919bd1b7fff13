"""All processes of a run stop at the same step, though a signal reaches only one."""

import os
import signal
import socket
import subprocess
import sys
import types
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

from attnjax.storage.checkpoints import Checkpoints
from attnjax.training import agreement
from attnjax.training.agreement import StopVote, largest_over, largest_over_processes
from attnjax.training.interruption import Interruption, catch_interruption


def test_a_single_process_asks_nobody_and_stops_at_once():
    assert largest_over_processes() is None
    with catch_interruption() as interruption:
        vote = StopVote(interruption, largest_over_processes())
        assert vote.cast() is None
        vote.count(None)
        assert vote.decided is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert vote.decided == "SIGTERM"
        assert vote.attempt(lambda: "result") is None


class Ballot(NamedTuple):
    rounds: list
    index: int

    def __int__(self):
        return max(numbers[self.index] for numbers in self.rounds)


class Together:
    """Processes in lockstep: a ballot is known once all have voted."""

    def __init__(self, count):
        self.interruptions = [Interruption() for _ in range(count)]
        self.rounds = [[] for _ in range(count)]
        self.votes = [
            StopVote(
                self.interruptions[n], lambda number, n=n: self._largest(n, number)
            )
            for n in range(count)
        ]

    def _largest(self, process, number):
        self.rounds[process].append(number)
        index = len(self.rounds[process]) - 1

        return Ballot(self.rounds, index)


def test_all_decide_when_the_ballot_is_counted_and_not_before():
    together = Together(3)
    pending = []
    decided = []
    for step in range(1, 8):
        if step == 3:
            together.interruptions[1].receive("SIGTERM")
        pending.append([vote.cast() for vote in together.votes])
        if len(pending) > 2:
            for vote, ballot in zip(together.votes, pending.pop(0), strict=True):
                vote.count(ballot)
        decided.append([vote.decided for vote in together.votes])
    assert decided[:4] == [[None] * 3] * 4
    assert decided[4:] == [["SIGTERM"] * 3] * 3


def test_a_decision_stands_though_a_later_signal_is_larger():
    together = Together(2)
    together.interruptions[0].receive("SIGINT")
    ballots = [vote.cast() for vote in together.votes]
    together.interruptions[1].receive("SIGTERM")
    later = [vote.cast() for vote in together.votes]
    for vote, *both in zip(together.votes, ballots, later, strict=True):
        for ballot in both:
            vote.count(ballot)
    assert [vote.decided for vote in together.votes] == ["SIGINT"] * 2


def test_work_is_finished_if_others_would_wait():
    together = Together(2)
    interruption, vote = together.interruptions[0], together.votes[0]

    def work():
        interruption.receive("SIGINT")
        return "result"

    assert vote.attempt(work) == "result"
    assert vote.attempt(lambda: "still") == "still"  # the others do not know yet
    ballots = [each.cast() for each in together.votes]
    vote.count(ballots[0])
    assert vote.attempt(work) is None


@pytest.mark.parametrize("count", [1, 8])
def test_the_reduction_runs_over_devices(count):
    largest = largest_over(jax.devices()[:count])
    assert [int(largest(number)) for number in (0, 15, 2)] == [0, 15, 2]
    assert largest(2).sharding.is_fully_replicated


def test_the_reduction_takes_the_largest(monkeypatch):
    """One device stands for each process: they get different numbers."""
    numbers = np.array([0, 0, 2, 0, 15, 0, 0, 0], np.int32)
    fake = types.SimpleNamespace(full=lambda *_: numbers, int32=np.int32)
    monkeypatch.setattr(agreement, "np", fake)
    largest = largest_over(jax.devices())
    assert int(largest(0)) == 15


PROCESS = f"""
import os, signal, sys
number, port, workdir = int(sys.argv[1]), sys.argv[2], sys.argv[3]
sys.path[:0] = [{str(Path(__file__).parents[1])!r}]
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{{port}}", 2, number)
from pathlib import Path
from linear_problem import FakeBatches, LinearTask
from attnjax.config import OptimizerConfig, ScheduleConfig, TrainingConfig
from attnjax.training import loop, optimizers
from attnjax.training.interruption import exit_code

class Signal:
    def start(self, start): pass
    def log(self, record): pass
    def close(self): pass
    def step(self, step):
        if number == 1 and step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

adam = optimizers.make_optimizer(OptimizerConfig(schedule=ScheduleConfig()), 100)
result = loop.train(
    LinearTask(), adam, FakeBatches(),
    TrainingConfig(num_steps=50, checkpoint_every=30, evaluate_every=30),
    seed=3, workdir=Path(workdir), hooks=[Signal()],
)
print(result.step, result.signal, flush=True)
jax.distributed.shutdown()
sys.exit(exit_code(result.signal))
"""


@pytest.mark.slow
def test_two_real_processes_stop_and_save_together(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(number), port, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in (0, 1)
    ]
    told = [process.communicate(timeout=300) for process in processes]
    last_lines = [out.splitlines()[-1] for out, _ in told]  # gloo prints too
    assert last_lines == ["7 SIGTERM"] * 2, told  # cast at 5, read at 7
    assert [process.returncode for process in processes] == [143, 143]
    with Checkpoints(tmp_path / "checkpoints", None) as checkpoints:
        assert checkpoints.steps() == [7]
