"""What the processes of one run tell each other, beside the steps themselves.

A process that refuses to go on tells the others, so that all of them end with its
sentence and none waits for it in its next collective.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

T = TypeVar("T")

_MESSAGE_BYTES = 1000
_LONGEST_WORK_SECONDS = 7 * 24 * 3600  # such as the preparation of a data set
_meetings = itertools.count()  # names one of each, in the same order everywhere


def in_all_processes(work: Callable[[], T]) -> T:
    """Does work in every process; if it fails in one, it fails in all.

    Args:
        work: of any length, without collectives.

    Returns:
        What it returns in this process.

    Raises:
        ValueError: it failed in another process, with what that one says.
    """
    if jax.process_count() == 1:
        return work()
    failure: Exception | None = None
    try:
        result = work()
    except Exception as error:
        failure = error
    # Not by a collective: those give up on a process that works for long.
    meet(f"work {next(_meetings)}", _LONGEST_WORK_SECONDS)
    texts = _texts_of_all("" if failure is None else str(failure) or repr(failure))
    if failure is not None:
        raise failure
    for number, text in enumerate(texts):
        if text:
            raise ValueError(
                f"process {number} of {len(texts)} refuses to go on: {text}"
            )
    return result


def in_first_process(work: Callable[[], object]) -> None:
    """Does work in the first process; if it fails, it fails in all, which wait for it.

    Args:
        work: as for `in_all_processes`.

    Raises:
        ValueError: as `in_all_processes`.
    """
    is_first = jax.process_index() == 0
    in_all_processes(work if is_first else lambda: None)


def lines_of_first_process(work: Callable[[], list[str]]) -> list[str]:
    """Does work in the first process, and tells the others the lines it gives.

    Args:
        work: as for `in_all_processes`.

    Returns:
        The lines; in the others cut where they grow long.

    Raises:
        ValueError: as `in_all_processes`.
    """
    lines: list[str] = []
    in_first_process(lambda: lines.extend(work()))
    if jax.process_count() == 1:
        return lines
    told = text_of_first_process("\n".join(lines))
    return lines or told.splitlines()


def first_process_first(work: Callable[[], T]) -> T:
    """Does work in the first process, and then in the others, which find it prepared.

    Args:
        work: as for `in_all_processes`.

    Returns:
        What it returns in this process.

    Raises:
        ValueError: as `in_all_processes`.
    """
    done: list[T] = []
    in_first_process(lambda: done.append(work()))
    return in_all_processes(lambda: done[0] if done else work())


def meet(name: str, seconds: int) -> None:
    """Waits for the other processes; unlike a collective, as long as is asked for.

    Args:
        name: of the place, the same in every process and never used twice.
        seconds: to wait.

    Raises:
        jax.errors.JaxRuntimeError: one of them did not come, or is lost.
        ValueError: they were never joined, as on a TPU slice without being told to.
    """
    if not jax.distributed.is_initialized():
        raise ValueError(
            f"this is process {jax.process_index()} of {jax.process_count()}, but they "
            "have not been joined; add --distributed in every process."
        )
    barrier = ocp.multihost.get_barrier_sync_fn()
    barrier(key=f"attnjax: {name}", timeout_ms=1000 * seconds)


def wait_for_all(name: str) -> None:
    """Returns once every process of the run is here.

    Args:
        name: of the place, the same in every process.
    """
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def text_of_first_process(message: str) -> str:
    """Tells all processes what the first one has to say.

    Args:
        message: of this process.

    Returns:
        That of the first process, cut where it grows long.
    """
    return _decoded(multihost_utils.broadcast_one_to_all(_encoded(message)))


def _texts_of_all(message: str) -> list[str]:
    """The text of every process, cut at `_MESSAGE_BYTES`."""
    return [
        _decoded(row) for row in multihost_utils.process_allgather(_encoded(message))
    ]


def _encoded(message: str) -> np.ndarray:
    text = np.zeros(_MESSAGE_BYTES, np.uint8)
    encoded = np.frombuffer(message.encode()[:_MESSAGE_BYTES], np.uint8)
    text[: len(encoded)] = encoded
    return text


def _decoded(shared: np.ndarray) -> str:
    content = np.asarray(shared, np.uint8).tobytes()
    return content.rstrip(b"\0").decode(errors="replace")
