"""The process that does the work of a command, as the child of `supervise`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import NoReturn

from attnjax.cli import main as command
from attnjax.cli.lost_peer import LOST_PEER

_SECONDS_TO_END = 300  # between the first process that is done and the last
_SECONDS_TO_FAIL = 10  # the same where one fails; perhaps the others do not


def main(arguments: Sequence[str]) -> NoReturn:
    """Runs the command and ends the process.

    Args:
        arguments: of the ``attnjax`` command.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        code = command([*arguments, "--supervised"])
    except SystemExit as request:  # of an argument parser
        code = request.code if isinstance(request.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if code != LOST_PEER:
        _part(_SECONDS_TO_FAIL if code == 1 else _SECONDS_TO_END)
    logging.shutdown()
    # What JAX does at exit waits for processes that may be gone.
    os._exit(code)


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def _part(seconds: int) -> None:
    """Leaves the run together with the others, or alone if they do not leave it."""
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return
    from attnjax.processes import meet

    try:
        meet("the end", seconds)
        jax.distributed.shutdown()
    except jax.errors.JaxRuntimeError:
        pass  # the broken connection will tell them
