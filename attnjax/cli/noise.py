"""What libraries print beside the errors that they raise."""

from __future__ import annotations

import logging
import sys
from typing import Any

_TALKATIVE = ("jax", "orbax", "grain", "sacrebleu", "matplotlib")
_REPEATING = ("absl", "asyncio")
_CLOSED_LOOP = "Event loop is closed"


def silence_libraries() -> None:
    """Leaves of the log what a user can act on, for the rest of the process.

    Orbax logs, through absl, the traceback of whatever it raises. It also ends its
    event loop at the first write that fails: of the others under way, asyncio logs that
    nobody asked for them, and TensorStore's threads find the loop closed, a traceback
    each.
    """
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in _REPEATING:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _print_unless_loop_is_closed


def _print_unless_loop_is_closed(unraisable: Any) -> None:
    error = unraisable.exc_value
    if not (isinstance(error, RuntimeError) and str(error) == _CLOSED_LOOP):
        sys.__unraisablehook__(unraisable)
