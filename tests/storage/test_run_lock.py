"""One writer for a run folder, told apart from one that was killed: real processes."""

import errno
import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from attnjax.storage import run_lock
from attnjax.storage.run_lock import LOCK_FILE, hold_run_folder, require_free

ROOT = Path(__file__).parents[2]
HOLDER = f"""
import logging, os, sys, time
sys.path.insert(0, {str(ROOT)!r})
logging.basicConfig(format="%(message)s")
from pathlib import Path
from attnjax.storage.run_lock import hold_run_folder, require_free
folder = Path(sys.argv[1])
begin = time.monotonic()
try:
    if sys.argv[2] == "look":
        require_free(folder)
    with hold_run_folder(folder):
        if sys.argv[2] == "fork" and os.fork() == 0:
            os.close(1)
            time.sleep(60)
        print("held", flush=True)
        if sys.argv[2] != "leave":
            sys.stdin.read()
except ValueError as error:
    print(f"{{time.monotonic() - begin:.3f}} {{error}}")
"""


class Process:
    """A run, as far as the lock is concerned; without site-packages it starts fast."""

    def __init__(self, folder, manner="stay"):
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", HOLDER, str(folder), manner],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.id = self.process.pid
        self.answer = self.process.stdout.readline().strip()

    def end(self, number=signal.SIGKILL):
        """Ends it; returns what it logged."""
        if number:
            self.process.send_signal(number)
        return self.process.communicate(timeout=20)[1]


@pytest.fixture
def record(tmp_path):
    """Writes a lock file as a run would have left it."""

    def write(*, seconds_ago=0.0, **changes):
        fields = {**json.loads(run_lock._myself_as_json()), **changes}
        path = tmp_path / LOCK_FILE
        path.write_text(json.dumps(fields))
        then = time.time() - seconds_ago
        os.utime(path, (then, then))
        return path

    return write


@pytest.fixture
def no_flock(monkeypatch):
    def refuse(descriptor, kind):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


def dead_process():
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid


def test_twenty_runs_are_refused_and_twenty_stale_locks_taken_over(tmp_path):
    killed = None
    for manner in ["stay", "look"] * 10:
        holder = Process(tmp_path)
        assert holder.answer == "held"
        second = Process(tmp_path, manner)
        seconds, _, message = second.answer.partition(" ")
        assert float(seconds) < 2.0
        who = f"process {holder.id} on {socket.gethostname()}, since 20"
        assert message.startswith(f"{tmp_path} is in use: {who}")
        assert f"(kill {holder.id} on " in message
        assert message.endswith("or choose another --workdir.")
        assert second.end(number=None) == ""
        logged = holder.end()
        if killed is None:
            assert logged == ""
        else:
            assert f"taking over {tmp_path}" in logged
            assert f"of process {killed} on {socket.gethostname()}" in logged
        killed = holder.id
    assert os.listdir(tmp_path) == [LOCK_FILE]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGABRT])
def test_whatever_ends_a_process_frees_the_folder(tmp_path, number):
    Process(tmp_path).end(number)
    require_free(tmp_path)
    with hold_run_folder(tmp_path):
        pass


def test_a_forked_worker_that_outlives_the_run_holds_nothing(tmp_path):
    holder = Process(tmp_path, "fork")
    assert holder.answer == "held"
    os.kill(holder.id, signal.SIGKILL)
    holder.process.wait()
    begin = time.monotonic()
    with hold_run_folder(tmp_path):
        assert time.monotonic() - begin < 1.0


def test_a_run_that_has_ended_leaves_no_trace(tmp_path, caplog):
    folder = tmp_path / "runs" / "new"
    require_free(folder)
    assert not folder.exists()
    for _ in range(2):
        assert Process(folder, "leave").end(number=None) == ""
        assert list(folder.iterdir()) == []
    with hold_run_folder(folder) as path:
        fields = json.loads(path.read_text())
        assert fields["host"] == socket.gethostname()
        assert fields["process"] == os.getpid()
        boot = Path("/proc/sys/kernel/random/boot_id")
        assert not boot.exists() or fields["boot"] == boot.read_text().strip()
        with pytest.raises(ValueError, match=f"process {os.getpid()}"):
            require_free(folder)
    assert list(folder.iterdir()) == []
    assert caplog.text == ""


def test_a_lock_removed_while_it_is_waited_for_is_not_taken(tmp_path, monkeypatch):
    """Between opening the file and locking it, its holder ends and removes it."""
    path, flock, opened = tmp_path / LOCK_FILE, fcntl.flock, []

    def remove_first(descriptor, kind):
        opened.append(descriptor)
        if len(opened) == 1:
            path.unlink()
        flock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with hold_run_folder(tmp_path):
        assert len(opened) == 2
        assert json.loads(path.read_text())["process"] == os.getpid()


def test_one_who_only_looks_does_not_make_a_run_refuse(tmp_path):
    path = tmp_path / LOCK_FILE
    with path.open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.1, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        with hold_run_folder(tmp_path):
            pass


def test_a_holder_that_has_not_yet_written_is_refused_to_nameless(tmp_path):
    with (tmp_path / LOCK_FILE).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        begin = time.monotonic()
        with pytest.raises(ValueError, match="in use: another process writes"):
            require_free(tmp_path)
        assert time.monotonic() - begin < 2.0


LOCAL = {"boot": "another boot", "ticks": 5}
ELSEWHERE = {"host": "elsewhere", **LOCAL}


@pytest.mark.parametrize("unknown", [False, True], ids=["flock", "without"])
@pytest.mark.parametrize(
    ("changes", "seconds_ago", "live"),
    [
        (LOCAL, 0, False),
        (ELSEWHERE, 0, True),
        (ELSEWHERE, 50, True),
        (ELSEWHERE, 70, False),
    ],
    ids=["reboot", "elsewhere", "a touch missed", "untouched"],
)
def test_the_record_of_a_lock_that_flock_does_not_know(
    tmp_path, record, caplog, monkeypatch, unknown, changes, seconds_ago, live
):
    if unknown:
        monkeypatch.setattr(fcntl, "flock", _no_locks)
    path = record(**changes, seconds_ago=seconds_ago)
    before = path.read_text()
    if live:
        message = r"process \d+ on elsewhere,.*wait 60 seconds if it is gone"
        for refused in (require_free, lambda folder: hold(folder)):
            with pytest.raises(ValueError, match=message):
                refused(tmp_path)
        assert path.read_text() == before
    else:
        require_free(tmp_path)
        hold(tmp_path)
        assert f"on {changes.get('host', socket.gethostname())}" in caplog.text
        assert os.listdir(tmp_path) == []


def _no_locks(descriptor, kind):
    raise OSError(errno.ENOLCK, "no locks available")


def hold(folder):
    with hold_run_folder(folder):
        pass


def test_another_host_of_the_same_boot_is_a_container(tmp_path, record):
    """Containers share the kernel, hence its locks: granted means gone."""
    record(host="elsewhere")
    hold(tmp_path)


def test_without_flock_the_process_is_looked_up(tmp_path, no_flock, record, caplog):
    with hold_run_folder(tmp_path) as path:
        assert json.loads(path.read_text())["process"] == os.getpid()
        with pytest.raises(ValueError, match=f"process {os.getpid()} on"):
            hold(tmp_path)
    assert os.listdir(tmp_path) == []
    record(ticks=1)  # another process has got the same id since
    hold(tmp_path)
    record(process=dead_process(), ticks=1)
    hold(tmp_path)
    assert caplog.text.count("taking over") == 2


def test_without_flock_a_zombie_is_no_holder(tmp_path, no_flock, record):
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    ticks = run_lock._start_ticks(child.pid)
    assert ticks > 0
    record(process=child.pid, ticks=ticks)
    with pytest.raises(ValueError, match=f"process {child.pid} on"):
        hold(tmp_path)
    child.stdin.close()
    deadline = time.monotonic() + 5
    while run_lock._start_ticks(child.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    hold(tmp_path)
    child.wait()


def test_without_flock_the_later_of_two_that_start_at_once_has_it(
    tmp_path, no_flock, record, monkeypatch
):
    def overtake(seconds):
        record(host="faster")

    monkeypatch.setattr(run_lock.time, "sleep", overtake)
    with pytest.raises(ValueError, match="on faster"):
        hold(tmp_path)
    assert "faster" in (tmp_path / LOCK_FILE).read_text()


def test_another_error_of_the_lock_is_not_taken_for_a_missing_one(
    tmp_path, monkeypatch
):
    def fail(descriptor, kind):
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(fcntl, "flock", fail)
    message = (
        rf"cannot lock the run folder {tmp_path}: input/output error \(a few bytes "
    )
    with pytest.raises(OSError, match=message + r"needed, [\d,]+ free\); make it"):
        hold(tmp_path)


def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"Not a directory \(.* an unknown number"):
        hold(tmp_path / "file" / "run")


@pytest.mark.parametrize("unknown", [False, True], ids=["flock", "without"])
@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"3",
        b"null",
        b'{"host": "h"}',
        b"\xff\xfe",
        b"[" * 4000,
        b'{"host": "' + b"h" * 100_000 + b'"}',
    ],
    ids=["open", "list", "number", "null", "part", "bytes", "deep", "long"],
)
def test_a_file_that_is_none_of_ours_holds_nothing(
    tmp_path, caplog, monkeypatch, unknown, content
):
    if unknown:
        monkeypatch.setattr(fcntl, "flock", _no_locks)
        monkeypatch.setattr(run_lock, "_RACE_SECONDS", 0.0)
    (tmp_path / LOCK_FILE).write_bytes(content)
    require_free(tmp_path)
    hold(tmp_path)
    assert caplog.text == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "\x1b]0;title\x07"},
        {"host": "two\nlines"},
        {"host": 3},
        {"host": "h" * 256},
        {"process": "1; rm"},
        {"process": -1},
        {"process": True},
        {"ticks": 1.5},
        {"started": None},
        {"more": 1},
    ],
    ids=str,
)
def test_a_record_that_is_not_what_we_write_is_not_shown(
    tmp_path, record, caplog, changes
):
    record(**{**ELSEWHERE, **changes})
    hold(tmp_path)
    assert caplog.text == ""


def test_the_holder_touches_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock, "TOUCH_SECONDS", 0.02)
    with hold_run_folder(tmp_path) as path:
        os.utime(path, (1.0, 1.0))
        deadline = time.monotonic() + 5
        while path.stat().st_mtime == 1.0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert time.time() - path.stat().st_mtime < 5
        path.unlink()  # an impatient user
        time.sleep(0.1)
    assert os.listdir(tmp_path) == []
    assert not [t for t in threading.enumerate() if t.name == "run-lock"]


def test_a_lock_that_was_taken_over_is_not_removed_by_its_first_holder(tmp_path):
    """The user deleted the lock file, another run began: its lock stays."""
    with hold_run_folder(tmp_path) as path:
        path.unlink()
        second = Process(tmp_path)
        assert second.answer == "held"
    assert json.loads(path.read_text())["process"] == second.id
    second.end()


def test_a_second_training_is_refused_before_anything_is_written(tmp_path, caplog):
    from attnjax import experiment
    from attnjax.config import CLDRSource, DataConfig, Experiment, RNNConfig

    tiny = Experiment(
        data=DataConfig(source=CLDRSource()), model=RNNConfig(), workdir=tmp_path
    )
    caplog.set_level(logging.INFO)
    with hold_run_folder(tmp_path):
        begin = time.monotonic()
        with pytest.raises(ValueError, match=f"process {os.getpid()} on"):
            experiment.train(tiny)
        assert time.monotonic() - begin < 2.0
        assert os.listdir(tmp_path) == [LOCK_FILE]


def test_a_second_command_is_refused_before_the_trainer_is_loaded(tmp_path):
    script = """
import sys
from attnjax.cli import main
code = main(["train", "--config", sys.argv[1], "--workdir", sys.argv[2]])
print(code, "attnjax.experiment" in sys.modules)
"""
    config = str(ROOT / "configs" / "quickstart.py")
    with hold_run_folder(tmp_path):
        ended = subprocess.run(
            [sys.executable, "-c", script, config, str(tmp_path)],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
    assert ended.stdout == "1 False\n", ended.stderr
    expected = f"attnjax: {tmp_path} is in use: process {os.getpid()} on "
    assert ended.stderr.startswith(expected)
    assert ended.stderr.count("\n") == 1
