"""A Ctrl-C ends the work of a command wherever it comes."""

import os
import signal

import pytest

from attnjax.cli.progress import line_progress


class Interrupting:
    """Is interrupted where Python drops exceptions."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1_000):  # until the signal has come
            pass


def test_an_interrupt_that_was_dropped_comes_with_the_next_batch(capsys):
    lines = []

    def work():
        with line_progress(None) as advance:
            for number in range(3):
                lines.append(number)
                if number == 1:
                    Interrupting()
                advance(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert lines == [0, 1]
    assert capsys.readouterr().err == ""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
