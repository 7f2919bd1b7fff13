"""The first signal is a request, the second one is obeyed by the system itself."""

import os
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from attnjax.training.interruption import catch_interruption, exit_code

STUBBORN = """
import os, signal, time
from attnjax.training.interruption import catch_interruption
with catch_interruption() as interruption:
    os.kill(os.getpid(), signal.SIGTERM)
    print(interruption.requested, flush=True)
    os.kill(os.getpid(), signal.{second})
    time.sleep(60)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_the_first_signal_is_a_flag(name):
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    before = [signal.getsignal(number) for number in numbers]
    with catch_interruption() as interruption:
        assert interruption.requested is None
        os.kill(os.getpid(), getattr(signal, name))
        assert interruption.requested == name
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.parametrize("second", ["SIGINT", "SIGTERM"])
def test_the_second_signal_ends_the_process_at_once(second):
    ended = subprocess.run(
        [sys.executable, "-c", STUBBORN.format(second=second)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == -getattr(signal, second)
    assert ended.stdout == "SIGTERM\n"
    assert "once more to exit at once" in ended.stderr


def test_a_closed_terminal_is_told_twice_and_saved_once():
    """By the kernel and by the shell."""
    with catch_interruption() as interruption:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
        assert interruption.requested == "SIGHUP"


def test_nohup_is_obeyed():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with catch_interruption() as interruption:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interruption.requested is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_work_that_a_signal_ends_gives_nothing():
    done = []

    def work():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("after the signal")
        return "result"

    with catch_interruption() as interruption:
        assert interruption.attempt(lambda: "result") == "result"
        assert interruption.attempt(work) is None
        assert interruption.requested == "SIGINT"
        assert interruption.attempt(lambda: "result") is None
    assert done == []


def test_work_that_fails_fails():
    with catch_interruption() as interruption, pytest.raises(ZeroDivisionError):
        interruption.attempt(lambda: 1 / 0)


def test_outside_the_main_thread_nothing_is_caught():
    seen = []
    handler = signal.getsignal(signal.SIGINT)  # ignored, if the suite is a shell's job

    def run():
        with catch_interruption() as interruption:
            seen.append((interruption.requested, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(None, handler)]


@pytest.mark.parametrize(
    ("name", "code"), [("SIGHUP", 129), ("SIGINT", 130), ("SIGTERM", 143)]
)
def test_exit_codes_are_those_of_a_shell(name, code):
    assert exit_code(name) == code


@pytest.mark.parametrize(
    ("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), (None, 0)]
)
def test_the_command_exits_with_them(monkeypatch, tmp_path, name, code):
    from attnjax import cli, experiment
    from attnjax.cli import training

    monkeypatch.setattr(training, "prepare_devices", lambda: None)
    result = types.SimpleNamespace(
        signal=name, stopped_early=False, step=3, best_step=None, best_score=None
    )
    monkeypatch.setattr(experiment, "train", lambda described, **_: result)
    config = str(Path(__file__).parents[2] / "configs" / "quickstart.py")
    found = cli.main(["train", "--config", config, "--workdir", str(tmp_path)])
    assert found == code
