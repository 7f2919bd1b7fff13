"""Joins the other processes of a run, and says so if one of them is lost."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Iterator

from attnjax.cli.launch import Launch
from attnjax.cli.lost_peer import LostPeerError, lost_peer

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def joined(launch: Launch | None) -> Iterator[None]:
    """Joins the other processes of a run; does nothing for one that is alone.

    Args:
        launch: of `chosen_launch`.

    Yields:
        Nothing.

    Raises:
        LostPeerError: one of them did not come, or was lost meanwhile.
        ValueError: JAX cannot tell which processes belong together.
    """
    if launch is None:
        yield
        return
    try:
        _initialize(launch)
        yield
    except Exception as error:
        if sentence := lost_peer(_whole_text(error), launch):
            raise LostPeerError(sentence) from error
        raise


def _initialize(launch: Launch) -> None:
    import jax

    seconds = launch.peer_timeout_seconds
    if launch.coordinator is None:
        # It tells the address that it has found.
        logging.getLogger("jax._src.distributed").setLevel(logging.INFO)
    else:
        logger.info(
            "process %d of %d, waiting up to %d s for the others at %s",
            *(launch.process_id, launch.num_processes, seconds, launch.coordinator),
        )
    try:
        jax.distributed.initialize(
            launch.coordinator,
            launch.num_processes,
            launch.process_id,
            initialization_timeout=seconds,
            heartbeat_timeout_seconds=seconds,
            shutdown_timeout_seconds=seconds,
        )
    except ValueError as error:
        if launch.coordinator is not None:
            raise
        raise ValueError(
            "--distributed finds no TPU slice, Slurm step or MPI job that this process "
            f"belongs to ({error}); start it there, or name the processes with "
            "--coordinator, --num-processes and --process-id."
        ) from error
    # JAX would take it for a notice that nobody reads, until the loop catches it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if jax.process_index() != 0:
        logging.getLogger().setLevel(logging.WARNING)


def _whole_text(error: BaseException | None) -> str:
    """The messages of an error and of those that it was raised from."""
    texts: list[str] = []
    while error is not None and len(texts) < 10:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(texts)
