"""What became of another process of the run, read from the words of JAX's libraries.

JAX knows of it in three ways, none meant for the user of a command: an exception with
the text of the collective library, an exception with that of the coordination service,
or, mostly, C++ that prints a page and aborts the process, which Python cannot catch.
"""

from __future__ import annotations

import re

from attnjax.cli.launch import Launch

LOST_PEER = 75
"""The exit code: a failure that the same command again may cure (``EX_TEMPFAIL``)."""

_LOST = re.compile(
    "JAX distributed service detected fatal errors"
    "|CoordinationService"
    "|Gloo [^:]*failed"
    "|remote process exited|ncclRemoteError|Connection closed by remote peer"
)
_SILENT = re.compile("DEADLINE_EXCEEDED|heartbeat|[Tt]imed? ?out")
_NAMED = re.compile(
    r"(?:Task |unhealthy \(stopped sending heartbeats\):\s+|timed out task names:\s+)"
    r"(?:/job:\w+/replica:\d+/task:)?(\d+)"
)


class LostPeerError(ConnectionError):
    """Another process of the run did not come, or is gone."""


def lost_peer(text: str, launch: Launch) -> str | None:
    """Says which process was lost, and what to do.

    Args:
        text: of the exceptions, or that C++ printed.
        launch: what is known of the processes.

    Returns:
        A sentence; None if the text tells of something else.
    """
    if not _LOST.search(text):
        return None
    where = "" if launch.coordinator is None else f" at {launch.coordinator}"
    if _SILENT.search(text):
        what = f"did not answer{where} within {launch.peer_timeout_seconds} s"
    else:
        what = f"has ended, or its connection{where} is broken"
    return (
        f"{_name(text, launch)} {what}; its own output says why, if it was started: "
        "then run the same command again in every process, and training goes on from "
        "the last checkpoint."
    )


def _name(text: str, launch: Launch) -> str:
    of_all = "" if launch.num_processes is None else f" of {launch.num_processes}"
    named = [int(number) for number in _NAMED.findall(text)]
    others = [number for number in named if number != launch.process_id]
    if others:
        return f"process {others[0]}{of_all}"
    if launch.num_processes == 2 and launch.process_id is not None:
        return f"process {1 - launch.process_id}{of_all}"
    return f"another process{of_all}"
