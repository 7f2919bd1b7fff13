"""A command outlives its readers, errs in a sentence, and sends no escapes."""

import io
import logging
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from attnjax import terminal
from attnjax.cli import main
from attnjax.terminal import printable, run_command, visible_output

SCRIPT = """
import os, sys
from pathlib import Path
from attnjax.terminal import run_command

def work():
{work}
    Path(sys.argv[1]).write_text("done")

sys.exit(run_command(work))
"""
CHATTY = """
    from rich.console import Console
    for number in range(5_000):
        Console(stderr=True).print("step", number)
        print("step", number, file=sys.stderr)
"""
PRINTING = """
    for number in range(50_000):
        print("line", number)
"""


@pytest.fixture
def command(tmp_path):
    """Runs a script's work as a command; gives its exit code, messages and file."""

    def run(work, streams="", **options):
        done = tmp_path / "done"
        shell = f'exec "$0" -c "$1" "$2" {streams}'
        arguments = [sys.executable, SCRIPT.format(work=work), str(done)]
        process = subprocess.run(
            ["sh", "-c", shell, *arguments],
            text=True,
            **({"stderr": subprocess.PIPE} | options),
        )
        return process.returncode, process.stderr, done.exists() and done.read_text()

    return run


@pytest.fixture
def unread():
    """A pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_work_goes_on_without_whoever_read_its_messages(command, unread):
    """Rich would end the process with code 1, and a terminal that closed with EIO."""
    assert command(CHATTY, stderr=unread)[::2] == (0, "done")
    assert command(CHATTY, "2> /dev/full")[::2] == (0, "done")


@pytest.mark.parametrize(
    "work", [PRINTING, "    print(1)", "    print(1); sys.exit(0)"]
)
def test_output_that_nobody_reads_ends_a_command_quietly(command, unread, work):
    assert command(work, stdout=unread)[:2] == (0, "")


@pytest.mark.parametrize("work", [PRINTING, "    print(1)"])
def test_output_that_does_not_fit_is_a_sentence(command, work):
    code, told, _ = command(work, "> /dev/full")
    assert code == 1
    assert told == (
        "attnjax: standard output could not be written: No space left on device; what "
        "came before it is all there is.\n"
    )


def test_closed_streams_leave_their_numbers_to_no_file(command):
    """C++ writes its messages to number 2, whatever lies there."""
    code, _, done = command(
        """
    print(sys.stdin.read(), "nobody", file=sys.stderr)
    assert os.open(os.devnull, os.O_RDONLY) > 2
""",
        "<&- >&- 2>&-",
    )
    assert (code, done) == (0, "done")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("a\n  b \x1b[2J"), r"attnjax: a b \x1b[2J"),
        (MemoryError(), "attnjax: there is not enough memory"),
        (
            RuntimeError("INTERNAL: Error: Out of memory allocating 9 bytes.\nmore"),
            "attnjax: what is computed at once does not fit into memory; lower "
            "--tokens-per-batch, --beam-size or --num-samples, or sizes and lengths "
            "(INTERNAL: Error: Out of memory allocating 9 bytes.)",
        ),
        (KeyboardInterrupt(), "attnjax: interrupted"),
    ],
)
def test_an_error_is_one_line(capsys, error, sentence):
    def fail():
        raise error

    assert run_command(fail) == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert capsys.readouterr().err == sentence + "\n"


def test_an_error_of_our_own_is_a_traceback():
    def fail():
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        run_command(fail)


def test_what_others_wrote_cannot_move_the_cursor(tmp_path, capsys):
    evil = tmp_path / "e\x1b[2Jvil\x9b2J\udcff"
    assert main(["translate", "--workdir", str(evil)]) == 1
    with pytest.raises(SystemExit):
        main(["translate", "--workdir", "x", f"--{evil}"])
    for line in capsys.readouterr().err.splitlines():
        assert line == printable(line)
        assert "usage" in line or r"e\x1b[2Jvil\x9b2J\udcff" in line


def test_the_log_is_printable(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    terminal.use_plain_log()
    logging.getLogger("attnjax").info("wrote %s", "e\x1b[2Jvil")
    assert capsys.readouterr().err == "wrote e\\x1b[2Jvil\n"


def test_a_terminal_is_sent_what_is_visible_and_a_file_everything(monkeypatch):
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        with visible_output():
            print("Ä\x1b[31m\tb")
        assert sys.stdout is screen
        assert os.read(ours, 99).decode() == "Ä\\x1b[31m\tb\r\n"
    os.close(ours)
    file = io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    with visible_output():
        print("Ä\x1b[31m\tb")
    assert file.getvalue() == "Ä\x1b[31m\tb\n"


class Finalised:
    """Is interrupted where Python drops exceptions."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1_000):  # until the signal has come
            pass


class ExtensionFileLoader:
    """Is interrupted where the importer initialises compiled code."""

    is_done = False

    def exec_module(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        self.is_done = True


def test_an_interrupt_that_was_dropped_comes_again(capsys):
    def work():
        Finalised()
        time.sleep(10)

    started = time.monotonic()
    assert run_command(work) == 130
    assert time.monotonic() - started < 5
    assert capsys.readouterr().err == "attnjax: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_waits_until_a_library_is_loaded():
    loader = ExtensionFileLoader()

    def work():
        loader.exec_module()
        time.sleep(10)

    assert run_command(work) == 130
    assert loader.is_done


def test_a_command_loads_what_it_needs_where_an_interrupt_ends_it_quietly():
    script = "import sys, attnjax.cli; print('attnjax.cli.arguments' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stdout == "False\n"
