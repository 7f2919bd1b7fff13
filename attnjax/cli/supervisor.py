"""A small parent for each process of a run of several.

Where another process is lost, JAX's C++ prints a page and aborts its own process, which
Python cannot catch. So the command starts itself once more as a child, which does the
work. The parent passes signals on to it and what it writes on stderr to the user, but
for that page, of which it makes one sentence and an exit code.

Ctrl-C reaches the parent only, as the child has a session of its own; the child ends
with the parent, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import IO

from attnjax.cli.launch import Launch
from attnjax.cli.lost_peer import LOST_PEER, lost_peer
from attnjax.terminal import tell

_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from attnjax.cli.supervised import main; main(sys.argv[1:])"
)
_CPP_LINE = re.compile(
    rb"[WEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w./+-]+\.(?:h|cc):\d+\]"
)
_OWN_LINE = b"attnjax: "
_DUMP_SECONDS = 5.0  # a process that lives on after C++ has printed was not aborted
_POLL_SECONDS = 0.5
_BLOCK_BYTES = 1 << 16


def supervise(arguments: Sequence[str], launch: Launch) -> int:
    """Runs the command in a child process.

    Args:
        arguments: of the ``attnjax`` command.
        launch: the processes of the run.

    Returns:
        The exit code of the child, or `LOST_PEER`; 128 and the number of the signal if
        one ended the child.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, json.dumps(sys.path), *arguments],
        stdin=subprocess.PIPE,  # never written to: its end is that of the parent
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with _signals_passed_on(child):
        relay = _Relay()
        relay.run(child)
        code = child.wait()
    if code == -signal.SIGABRT:
        text = relay.withheld.decode(errors="replace")
        if sentence := lost_peer(text, launch):
            if not relay.has_told:
                tell(f"attnjax: {sentence}")
            return LOST_PEER
    if code != LOST_PEER:
        _write(relay.withheld)
    return 128 - code if code < 0 else code


@contextlib.contextmanager
def _signals_passed_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        child.send_signal(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as `nohup` has it
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Relay:
    """Copies lines to stderr, and withholds those from C++'s first one on.

    If the child lives on, they were no dump and follow after all.

    Attributes:
        withheld: what was not passed on.
        has_told: whether a line of our own was, with what ended the command.
    """

    def __init__(self) -> None:
        self.withheld = b""
        self.has_told = False
        self._release_at = 0.0

    def run(self, child: subprocess.Popen[bytes]) -> None:
        """Goes on until the child has ended.

        Args:
            child: its stderr is read.
        """
        stream: IO[bytes] = child.stderr  # type: ignore[assignment]  # a pipe
        rest = b""
        while True:
            ready = select.select([stream], [], [], _POLL_SECONDS)[0]
            if ready:
                chunk = os.read(stream.fileno(), _BLOCK_BYTES)
                if not chunk:
                    break
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(line + b"\n")
            elif child.poll() is not None:
                break  # a process that it left behind may keep the pipe open
            if self.withheld and time.monotonic() > self._release_at:
                _write(self.withheld)
                self.withheld = b""
        self._take(rest)

    def _take(self, line: bytes) -> None:
        if line.startswith(_OWN_LINE):
            self.has_told = True
        elif self.withheld or _CPP_LINE.match(line):
            if not self.withheld:
                self._release_at = time.monotonic() + _DUMP_SECONDS
            self.withheld += line
            return
        _write(line)


def _write(content: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody may be reading: the work goes on
        sys.stderr.buffer.write(content)
        sys.stderr.buffer.flush()
