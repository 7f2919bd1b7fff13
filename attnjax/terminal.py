"""The door between a command and its user: streams, errors, exit codes.

Whoever reads may go away: what is left of standard output then has no reader, and the
command ends quietly; messages that nobody sees are dropped, and the work goes on. Text
that others wrote (file names, vocabularies, error messages) reaches a terminal with its
control characters made visible, so that it cannot move the cursor or hide a line. All
of it is UTF-8: another encoding would lack characters, and end a command halfway.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TextIO

INTERRUPTED = 130
"""The exit code of a process that SIGINT ended, as a shell reports it."""
_AGAIN_AFTER_SECONDS = 0.02

# Control characters but \t and \n, and what stands for bytes that are no UTF-8.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_OUT_OF_MEMORY = re.compile("RESOURCE_EXHAUSTED|[Oo]ut of memory|bad_alloc")


def printable(text: str) -> str:
    r"""Makes control characters visible, as Python writes them.

    Args:
        text: from anywhere.

    Returns:
        The text; of its control characters only tabs and line ends are left.

    >>> printable("run\x1b[2J of\tb\xe4r")
    'run\\x1b[2J of\tbär'
    """
    return _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)


def tell(message: str) -> None:
    """Prints a message on standard error.

    Args:
        message: a sentence, or a few lines.
    """
    print(printable(message), file=sys.stderr)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, of numpy or of XLA says that memory is exhausted.

    Args:
        error: XLA's is a `RuntimeError` that only its text tells from others.

    Returns:
        True if so.
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(_OUT_OF_MEMORY.search(str(error)))


def run_command(work: Callable[[], int | None]) -> int:
    """Runs a command as its user is to see it: errors are a sentence and an exit code.

    Args:
        work: the command; None counts as exit code 0.

    Returns:
        The exit code: that of the work, 1 if it was refused, 130 after Ctrl-C, 0 where
        the reader of standard output went away (``| head``): what it wanted is
        delivered.
    """
    with _streams(), _lasting_interrupt():
        try:
            code = work() or 0
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            return 0
        except KeyboardInterrupt:
            tell("attnjax: interrupted")
            return INTERRUPTED
        except (ValueError, OSError, ArithmeticError, MemoryError) as error:
            sentence = " ".join(str(error).split())
            if not sentence:  # as of Python's own MemoryError
                sentence = "there is not enough memory"
            tell(f"attnjax: {sentence}")
            return 1
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error).partition("\n")[0]
            tell(
                "attnjax: what is computed at once does not fit into memory; lower "
                "--tokens-per-batch, --beam-size or --num-samples, or sizes and "
                f"lengths ({reason})"
            )
            return 1


def use_plain_log() -> None:
    """Sends log messages to standard error, in a line each, as `printable` text."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_PlainFormatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


@contextlib.contextmanager
def visible_output() -> Iterator[None]:
    """While the body runs, a terminal is sent `printable` text; files are sent all."""
    output = sys.stdout
    if not output.isatty():
        yield
        return
    sys.stdout = _Visible(
        output.buffer, output.encoding, output.errors, line_buffering=True
    )
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout.detach()
        sys.stdout = output


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _Visible(io.TextIOWrapper):
    def write(self, text: str) -> int:
        return super().write(printable(text))


class _Stream(io.FileIO):
    """A standard stream that may lose its reader; what comes later is dropped."""

    def __init__(self, descriptor: int, *, is_needed: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._is_needed = is_needed
        self._is_lost = False

    def write(self, content: Any) -> int:
        if self._is_lost:
            return len(content)
        try:
            return super().write(content)
        except OSError as error:
            self._is_lost = True
            if not self._is_needed:
                return len(content)
            if error.errno == errno.EPIPE:
                raise
            raise OSError(
                f"standard output could not be written: {error.strerror}; what came "
                "before it is all there is."
            ) from error


@contextlib.contextmanager
def _lasting_interrupt() -> Iterator[None]:
    """While the body runs, a Ctrl-C raises KeyboardInterrupt where that has an effect.

    Raised while a library of C++ initialises itself it may crash the process: JAX's
    runs Python code then. Raised in a callback of the garbage collector, of which JAX
    has one too, Python drops it. In both cases an alarm sends the signal again, to
    whoever handles it by then.
    """
    usual = signal.default_int_handler
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _is_loading_library(frame):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_AFTER_SECONDS)
        else:
            usual(number, frame)

    def repeat(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    def report(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_AFTER_SECONDS)
        else:
            hook(dropped)

    hook, sys.unraisablehook = sys.unraisablehook, report
    before = signal.signal(signal.SIGALRM, repeat)
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook


def _is_loading_library(frame: FrameType | None) -> bool:
    """Whether compiled code is being initialised, whatever Python code it runs."""
    while frame is not None:
        if frame.f_code.co_qualname.startswith("ExtensionFileLoader."):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def _streams() -> Iterator[None]:
    """While the body runs, standard streams exist, and may lose their readers."""
    before = sys.stdin, sys.stdout, sys.stderr
    if None in before:  # a closed one's number would be given to the next file
        while os.open(os.devnull, os.O_RDWR) <= 2:
            pass
        sys.stdin = sys.stdin or open(0, closefd=False)
        sys.stdout = sys.stdout or open(1, "w", closefd=False)
        sys.stderr = sys.stderr or open(2, "w", closefd=False)
    sys.stdout = _tolerant(sys.stdout, 1)
    sys.stderr = _tolerant(sys.stderr, 2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # as all input is, whatever the locale
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        sys.stdin, sys.stdout, sys.stderr = before


def _tolerant(stream: TextIO, descriptor: int) -> TextIO:
    """A stream of our own in place of Python's; a test's, or another file's, stays."""
    try:
        if stream.fileno() != descriptor:
            return stream
        stream.flush()
    except (OSError, ValueError):
        return stream
    raw = _Stream(descriptor, is_needed=descriptor == 1)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=descriptor == 2 or raw.isatty(),
    )
