"""What a process is told about the others of its run, on the command line."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping

DESCRIPTION = """

Several processes, one a host (docs/pods.md):

--distributed: join the others of a TPU slice, a Slurm step or an MPI job.

--coordinator HOST:PORT --num-processes N --process-id I: join N processes by hand;
number 0 listens at HOST:PORT.

--peer-timeout-seconds S: give up on a process that has not come, or has been silent,
for so long (300)."""

_SLURM_STEP = {"SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_LOCALID"}
_PEER_TIMEOUT_SECONDS = 300
_LARGEST_PORT = 65_535


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """What a process is told about the others of its run.

    Attributes:
        peer_timeout_seconds: how long to wait for another process, at the start and
            for a sign of life later.
        coordinator: host and port of process 0; None, as the next two, if JAX is to
            find out.
        num_processes: of the run.
        process_id: which of them this is, from 0.
    """

    peer_timeout_seconds: int
    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options; they are no part of the experiment.

    Args:
        parser: of the subcommand.
    """
    parser.add_argument("--distributed", action="store_true")
    parser.add_argument("--coordinator", metavar="HOST:PORT")
    parser.add_argument("--num-processes", type=int)
    parser.add_argument("--process-id", type=int)
    parser.add_argument("--peer-timeout-seconds", type=int)
    # Given by the parent of the process that does the work.
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)


def chosen_launch(options: argparse.Namespace) -> Launch | None:
    """What the options say; None for a process that is alone.

    Args:
        options: of `add_launch_options`.

    Returns:
        The launch.

    Raises:
        ValueError: the options contradict each other, or the process is one of several
            and was not told whether it is to join them.
    """
    asked = options.peer_timeout_seconds
    timeout = _PEER_TIMEOUT_SECONDS if asked is None else asked
    if timeout < 1:
        raise ValueError(f"--peer-timeout-seconds is at least 1, got {timeout}.")
    by_hand = options.coordinator, options.num_processes, options.process_id
    if options.distributed:
        if by_hand != (None, None, None):
            raise ValueError(
                "--distributed has JAX find the other processes; leave it out, or "
                "leave out --coordinator, --num-processes and --process-id."
            )
        return Launch(peer_timeout_seconds=timeout)
    if by_hand in ((None, None, None), (None, 1, None)):
        if options.num_processes is None:
            _require_alone(os.environ)
        if asked is not None:
            raise ValueError(
                "nobody reads --peer-timeout-seconds where no other processes are "
                "joined (--distributed or --coordinator); leave it out."
            )
        return None
    return _by_hand(*by_hand, timeout)


def _by_hand(
    coordinator: str | None, count: int | None, process: int | None, timeout: int
) -> Launch:
    if coordinator is None or count is None or process is None:
        raise ValueError(
            "--coordinator HOST:PORT, --num-processes N and --process-id I are given "
            f"together, got {coordinator}, {count} and {process}."
        )
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) <= _LARGEST_PORT):
        raise ValueError(
            "--coordinator is the host of process 0 and a free port of it, such as "
            f"10.0.0.1:9876, got {coordinator!r}."
        )
    if not 0 <= process < count:
        raise ValueError(
            f"--process-id counts the processes from 0 to --num-processes - 1, got "
            f"{process} of {count}."
        )
    return Launch(
        peer_timeout_seconds=timeout,
        coordinator=coordinator,
        num_processes=count,
        process_id=process,
    )


def _require_alone(environment: Mapping[str, str]) -> None:
    """Refuses to guess what one of several processes is to do."""
    tasks = environment.get("SLURM_NTASKS", "")
    ranks = environment.get("OMPI_COMM_WORLD_SIZE", "")
    hosts = environment.get("TPU_WORKER_HOSTNAMES", "").split(",")
    if environment.keys() >= _SLURM_STEP and tasks.isdecimal() and int(tasks) > 1:
        where = f"one of {tasks} tasks of a Slurm step"
    elif ranks.isdecimal() and int(ranks) > 1:
        where = f"one of {ranks} processes of an MPI job"
    elif len(hosts) > 1:
        where = f"on one of {len(hosts)} hosts of a TPU slice"
    else:
        return
    raise ValueError(
        f"this process is {where}, and was not told what to do with the others: add "
        "--distributed to train one model with all of them, or --num-processes 1 if "
        "each trains its own."
    )
