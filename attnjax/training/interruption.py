"""A signal as a request to finish the step, not as an exception within it."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

# SIGHUP tells that the terminal was closed, twice if a shell passes it on; one that is
# ignored, as `nohup` has it, is no request.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Abandoned(BaseException):
    """Raised inside work that is given up; no Exception, so that nobody swallows it."""


class Interruption:
    """Whether the user or the scheduler has asked the run to stop.

    Attributes:
        requested: the name of the signal that came, None so far.
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self._abandoning = False

    def attempt(self, work: Callable[[], T]) -> T | None:
        """Does long work that a signal may end at once.

        Args:
            work: changes nothing that its loss would spoil, such as an evaluation.

        Returns:
            What the work returns, or None if a signal came before its end.
        """
        if self.requested is not None:
            return None
        self._abandoning = True
        try:
            try:
                return work()
            finally:
                self._abandoning = False
        except Abandoned:
            return None

    def receive(self, name: str) -> None:
        """Notes a signal.

        Args:
            name: of the signal.

        Raises:
            Abandoned: within `attempt`.
        """
        self.requested = name
        if self._abandoning:
            raise Abandoned(name)


@contextmanager
def catch_interruption() -> Iterator[Interruption]:
    """Turns the first signal into a flag; a second SIGINT or SIGTERM ends the process.

    Outside the main thread Python allows no handlers, and nothing is caught.

    Yields:
        The flag.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        # The system's own handler ends the process even while C++ code is running.
        for each in before:
            again = signal.SIG_IGN if each == signal.SIGHUP else signal.SIG_DFL
            signal.signal(each, again)
        name = signal.Signals(number).name
        logger.warning("%s: saving, then stopping; once more to exit at once", name)
        interruption.receive(name)

    before = {each: signal.getsignal(each) for each in _SIGNALS}
    if before[signal.SIGHUP] == signal.SIG_IGN:
        del before[signal.SIGHUP]
    for each in before:
        signal.signal(each, note)
    try:
        yield interruption
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def exit_code(name: str) -> int:
    """What a process that a signal ended exits with, such as 143 for SIGTERM.

    Args:
        name: of the signal.

    Returns:
        128 and its number, as a shell reports it.
    """
    return 128 + signal.Signals[name]
