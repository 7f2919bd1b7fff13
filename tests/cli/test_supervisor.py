"""The parent of a process that may be aborted: what it passes on, and what it says."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnjax.cli import supervisor
from attnjax.cli.launch import Launch

ROOT = Path(__file__).parents[2]
LAUNCH = Launch(
    peer_timeout_seconds=20, coordinator="h:1", num_processes=2, process_id=0
)
DUMP = (
    "E1130 05:57:50.207157    5003 coordination_service.cc:1549] [90] Use error "
    "polling to propagate the following error to all tasks: UNAVAILABLE: The following "
    "tasks are unhealthy (stopped sending heartbeats):\\n1\\nF1130 05:57:50.207939    "
    "5014 client.h:80] Terminating process because the JAX distributed service "
    "detected fatal errors. absl::Status: UNAVAILABLE: tasks\\n*** Check failure stack "
    "trace: ***\\n    @     0x7fd506e40634  absl::SendToLog()\\n"
)
PREPARE = "import os, signal, sys, time; sys.argv.pop(1); tell = sys.stderr.write; "


@pytest.fixture
def supervise(monkeypatch, capfdbinary):
    """Supervises a script; returns its exit code and what was told."""

    def run(script):
        monkeypatch.setattr(supervisor, "_CHILD", PREPARE + script)
        code = supervisor.supervise(["one", "two"], LAUNCH)
        return code, capfdbinary.readouterr().err.decode()

    return run


@pytest.mark.parametrize("code", [0, 1, 2, 75, 130, 143])
def test_code_and_words_of_the_child_are_passed_on(supervise, code):
    script = f"tell('{{}}\\nno newline'.format(sys.argv[1:])); sys.exit({code})"
    assert supervise(script) == (code, "['one', 'two']\nno newline")


def test_of_a_dump_one_sentence_is_made(supervise):
    code, told = supervise(f"tell('step 1\\n' + '''{DUMP}'''); os.abort()")
    assert code == 75
    first, sentence = told.splitlines()
    assert first == "step 1"
    assert sentence.startswith(
        "attnjax: process 1 of 2 did not answer at h:1 within 20"
    )


def test_what_the_child_has_said_is_not_said_twice(supervise):
    script = f"tell('''{DUMP}''' + 'attnjax: I know\\n'); os.abort()"
    assert supervise(script) == (75, "attnjax: I know\n")
    script = f"tell('attnjax: I know\\n' + '''{DUMP}'''); sys.exit(75)"
    assert supervise(script) == (75, "attnjax: I know\n")


def test_another_dump_is_shown_as_it_is(supervise):
    line = "F1130 05:57:50.207939    5014 cuda.cc:80] Check failed: driver"
    assert supervise(f"tell('{line}\\n'); os.abort()") == (134, line + "\n")
    assert supervise(f"tell('''{DUMP}'''); sys.exit(1)")[1].count("\n") == 5


def test_who_lives_on_was_not_aborted(supervise, monkeypatch):
    monkeypatch.setattr(supervisor, "_DUMP_SECONDS", 0.2)
    monkeypatch.setattr(supervisor, "_POLL_SECONDS", 0.05)
    line = "W1130 05:57:50.207939    5014 client.h:80] a warning"
    script = f"tell('{line}\\nmore\\n'); time.sleep(0.6); tell('on\\n'); os.abort()"
    assert supervise(script) == (134, f"{line}\nmore\non\n")


def test_nobody_waits_for_what_the_child_leaves_behind(supervise):
    begin = time.monotonic()
    script = "os.fork() == 0 and time.sleep(30); tell('left\\n'); os._exit(0)"
    assert supervise(script) == (0, "left\n")
    assert time.monotonic() - begin < 20


def test_an_end_by_a_signal_is_that_of_a_shell(supervise):
    assert supervise("os.kill(os.getpid(), signal.SIGTERM)") == (143, "")


PARENT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from attnjax.cli import supervisor
from attnjax.cli.launch import Launch
supervisor._CHILD = {PREPARE!r} + '''
from attnjax.cli import supervised
supervised.command = lambda arguments: wait()
def note(number, frame):
    tell(signal.Signals(number).name + "\\\\n")
def wait():
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, note)
    tell(str(os.getpid()) + "\\\\n")
    for _ in range(100):
        time.sleep(0.1)
supervised.main([])
'''
sys.exit(supervisor.supervise([], Launch(peer_timeout_seconds=20)))
"""


@pytest.fixture
def family():
    """A parent and the process id of its child, which waits for signals."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stderr=subprocess.PIPE, text=True
    )
    yield parent, int(parent.stderr.readline())
    parent.kill()
    parent.communicate()


def test_signals_are_passed_on_once(family):
    parent, child = family
    assert os.getpgid(child) != os.getpgid(parent.pid)  # out of a terminal's reach
    for name in ("SIGINT", "SIGTERM", "SIGTERM", "SIGHUP"):
        parent.send_signal(getattr(signal, name))
        assert parent.stderr.readline() == name + "\n"


def test_the_child_ends_with_the_parent(family):
    parent, child = family
    parent.kill()
    parent.wait()
    end = time.monotonic() + 10
    while Path(f"/proc/{child}/stat").exists():
        assert time.monotonic() < end
        if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break  # nobody may be there to reap it
        time.sleep(0.02)
