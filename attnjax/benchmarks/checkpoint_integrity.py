"""What the digests of a checkpoint cost: seconds to restore it with and without them.

    python -m attnjax.benchmarks.checkpoint_integrity --megabytes 500 [--cold]
                                                      [--spare-core]

A run that is started again mostly finds its files on the disk, which is what ``--cold``
measures; without it they are in the memory of the operating system already. Both ways
are measured in turn, several times, and the shortest times compared: those that other
work on the machine disturbed least. Digests are computed while Orbax reads, so they
cost time only where no core is free. ``--spare-core`` shows it (on Linux): one core is
kept from all of restoring, and the digests have that one alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
import tyro

from attnjax.storage.checkpoints import Checkpoints
from attnjax.storage.manifest import verified
from attnjax.storage.orbax_manager import load, open_manager
from attnjax.terminal import run_command

_WIDTH = 1024
_LARGEST_ROWS = 32_768  # of one array: an embedding


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to measure."""

    megabytes: int = 500  # of float32 values, about; random, so that nothing shrinks
    repeats: int = 5  # of each way
    cold: bool = False  # have the system forget the files before each restore
    spare_core: bool = False  # that only the digests may use
    folder: Path = Path(tempfile.gettempdir())  # on the disk in question


def main() -> None:
    """Prints one JSON object: seconds, and the share of the verification."""
    arguments = tyro.cli(Arguments, description=__doc__)
    least = min(arguments.megabytes, arguments.repeats)
    if least < 1:
        sys.exit(f"--megabytes and --repeats must be at least 1, got {least}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        try:
            measured = measure(
                *(Path(folder), arguments.megabytes, arguments.repeats),
                cold=arguments.cold,
                spare_core=arguments.spare_core,
            )
        except _NoSpareCoreError as error:
            sys.exit(f"--spare-core: {error}")
    print(json.dumps(measured))


def measure(
    folder: Path,
    megabytes: int,
    repeats: int,
    *,
    cold: bool = False,
    spare_core: bool = False,
) -> dict[str, float]:
    """Saves a checkpoint and restores it both ways.

    Args:
        folder: an empty one.
        megabytes: of float32 values, about.
        repeats: of each way.
        cold: whether the files are to be read from the disk each time.
        spare_core: whether the digests have the last CPU for themselves, and
            everything else the others; needs two.

    Returns:
        The shortest times in seconds, and ``verification_share``: the time that
        verifying adds, as a share of restoring without it.

    Raises:
        ValueError: if a CPU is to be spared, but threads cannot be bound, or there is
            only one.
    """
    cores = _cores() if spare_core else _Cores()
    target, save_seconds = _saved(folder, megabytes)
    manager = open_manager(folder, None)

    def prepare() -> None:
        _bind(cores.restoring, all_threads=True)
        if cold:
            _forget(folder)

    try:
        ways = _ways(manager, folder, target, cores)
        restore, verifying, digests = _shortest(ways, repeats, prepare)
    finally:
        _bind(cores.restoring + cores.digesting, all_threads=True)
        manager.close()
    sizes = [leaf.size * leaf.dtype.itemsize for leaf in target.values()]
    return {
        "megabytes": sum(sizes) / 1e6,
        "cpus": os.cpu_count() or 1,
        "save_seconds": save_seconds,
        "restore_seconds": restore,
        "verified_restore_seconds": verifying,
        "digests_alone_seconds": digests,
        "verification_share": verifying / restore - 1.0,
    }


class _NoSpareCoreError(ValueError):
    """The digests cannot have a core for themselves here."""


class _Cores(NamedTuple):
    """Which CPUs what may use; none: any."""

    restoring: list[int] = []
    digesting: list[int] = []


def _saved(
    folder: Path, megabytes: int
) -> tuple[dict[str, jax.ShapeDtypeStruct], float]:
    """Saves step 1; what is in it, and the seconds that it took."""
    state = _state(megabytes)
    begin = time.perf_counter()
    with Checkpoints(folder, 1) as checkpoints:
        checkpoints.save(1, state, {})
    seconds = time.perf_counter() - begin
    target = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in state.items()}
    return target, seconds


def _ways(
    manager: ocp.CheckpointManager,
    folder: Path,
    target: dict[str, jax.ShapeDtypeStruct],
    cores: _Cores,
) -> tuple[Callable[[], None], ...]:
    """To restore without digests, to restore with them, and to compute them alone."""

    def plain() -> None:
        jax.block_until_ready(load(manager, folder / "1", target)[0])

    def with_digests() -> None:
        _bind(cores.digesting)  # the threads that this one starts stay there
        with verified(folder / "1", name="1"):
            _bind(cores.restoring)
            plain()

    def digests_alone() -> None:
        _bind(cores.digesting)
        with verified(folder / "1", name="1"):
            pass

    return plain, with_digests, digests_alone


def _shortest(
    ways: Sequence[Callable[[], None]], repeats: int, prepare: Callable[[], None]
) -> list[float]:
    """The shortest seconds of each way, all measured in turn."""
    for way in ways:
        way()  # the files are in memory from now on, unless they are forgotten
    seconds: list[list[float]] = [[] for _ in ways]
    for _ in range(repeats):
        for way, times in zip(ways, seconds, strict=True):
            prepare()
            begin = time.perf_counter()
            way()
            times.append(time.perf_counter() - begin)
    return list(map(min, seconds))


def _state(megabytes: int) -> dict[str, np.ndarray]:
    """Arrays of a model's sizes: few large ones, many of a few megabytes."""
    rng = np.random.default_rng(0)
    rows = math.ceil(megabytes * 1e6 / (4 * _WIDTH))
    sizes: list[int] = []
    while rows:
        sizes.append(min(rows, _LARGEST_ROWS if len(sizes) < 2 else 2 * _WIDTH))
        rows -= sizes[-1]
    return {
        f"array_{index}": rng.standard_normal((size, _WIDTH), np.float32)
        for index, size in enumerate(sizes)
    }


def _forget(folder: Path) -> None:
    """Writes files out and drops them from the system's memory."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _cores() -> _Cores:
    """The last of this process's CPUs for the digests, the others for the rest."""
    if sys.platform != "linux":
        raise _NoSpareCoreError(
            f"threads can be bound to cores on Linux, not {sys.platform}"
        )
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise _NoSpareCoreError("a spare core needs two CPUs, but this process has one")
    return _Cores(cpus[:-1], cpus[-1:])


def _bind(cpus: Collection[int], *, all_threads: bool = False) -> None:
    """Lets this thread, or all, run only on these CPUs; no CPUs: leaves them."""
    if cpus:
        for thread in os.listdir("/proc/self/task") if all_threads else ["0"]:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(thread), cpus)


if __name__ == "__main__":
    sys.exit(run_command(main))
