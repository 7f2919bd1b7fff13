"""One writer for a run folder: a lock that a killed process lets go at once.

The lock is the operating system's, `flock` on ``lock.json``, so that it ends with the
process in whatever way that ends. What the file says (host, process, its start, the
boot) is for the message to a second run, and for file systems where `flock` is missing
or known to one machine only. There the age of the file decides: the holder touches it
every 10 seconds, and 60 seconds without a touch make it stale.

=========  ==========================  ===========================================
flock      the file names              then the lock is
=========  ==========================  ===========================================
refused    anything                    live
granted    nothing                     free
granted    this boot                   stale: its process is gone
granted    this host, another boot     stale: the machine has been restarted
granted    another host                live while it is touched: `flock` may be local
unknown    this host and boot          live if a process of that id and start exists
unknown    this host, another boot     stale
unknown    another host                live while it is touched
=========  ==========================  ===========================================

Where `flock` is unknown, two runs that start within 0.3 seconds are told apart by
reading the file again after that time.

Only the standard library is imported, so that a run is refused before it loads JAX.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import functools
import json
import logging
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from attnjax.storage.files import replace_file

logger = logging.getLogger(__name__)

LOCK_FILE = "lock.json"
TOUCH_SECONDS = 10.0  # between two touches by the holder
STALE_SECONDS = 60.0  # without a touch

_RACE_SECONDS = 0.3
_LOOK_SECONDS = 0.2  # for one who only looks (`require_free`) to be done
_READ_SECONDS = 1.0  # for a holder to write what it has just begun to hold
_MOST_BYTES = 4096  # of a lock file that is read
_LONGEST_NAME = 255
_WITHOUT_FLOCK = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_held: set[int] = set()  # descriptors, for children to close


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holder:
    """Who holds a lock.

    Attributes:
        host: its name.
        process: the process id.
        started: UTC time at which the lock was taken.
        boot: identifies the machine's present boot; empty where unknown.
        ticks: the process's start in ticks since boot, so that another process of the
            same id is not taken for it; 0 where unknown.
    """

    host: str
    process: int
    started: str
    boot: str
    ticks: int

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, since {self.started}"


@contextlib.contextmanager
def hold_run_folder(folder: Path) -> Iterator[Path]:
    """Holds a run folder for writing; of a run of several processes, one does so.

    Args:
        folder: made if it does not exist; nothing else in it is touched.

    Yields:
        The lock file, which is removed afterwards.

    Raises:
        ValueError: if another run holds it, naming its host and process.
        OSError: if the folder cannot be written to, in one sentence.
    """
    path = folder / LOCK_FILE
    with _told_in_a_sentence(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _take(path)
    ended = threading.Event()
    beat = threading.Thread(
        target=_touch, args=(path, ended), name="run-lock", daemon=True
    )
    beat.start()
    try:
        yield path
    finally:
        ended.set()
        beat.join()
        _let_go(path, descriptor)


def require_free(folder: Path) -> None:
    """Refuses a folder that another run holds, in time before anything heavy is loaded.

    Args:
        folder: a run folder, which need not exist; nothing in it is changed.

    Raises:
        ValueError: if another run holds it.
    """
    path = folder / LOCK_FILE
    with _told_in_a_sentence(folder):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            locked = _flock(descriptor, path, fcntl.LOCK_SH)
            if holder := _live_holder(path, locked):
                raise ValueError(_refusal(path, holder, by_age=True))
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _told_in_a_sentence(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        free = "an unknown number of"
        with contextlib.suppress(OSError):
            free = f"{shutil.disk_usage(folder).free:,}"
        raise OSError(
            f"cannot lock the run folder {folder}: {error.strerror} (a few bytes "
            f"needed, {free} free); make it writable, or choose another --workdir."
        ) from error


def _take(path: Path) -> int | None:
    """The descriptor that has the lock, None if only the file's content has it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            locked = _flock(descriptor, path, fcntl.LOCK_EX)
            if locked and not _is_file_at(descriptor, path):
                os.close(
                    descriptor
                )  # its holder removed it meanwhile: take the new one
                continue
            if holder := _live_holder(path, locked):
                raise ValueError(_refusal(path, holder, by_age=True))
            if stale := _read(path):
                logger.warning(
                    "taking over %s: its lock is of %s, which is gone",
                    path.parent,
                    stale,
                )
            if not locked:
                _write_and_look_again(path)
                os.close(descriptor)
                return None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _myself_as_json(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        _close_in_children()
        _held.add(descriptor)
        return descriptor


def _let_go(path: Path, descriptor: int | None) -> None:
    with contextlib.suppress(OSError):  # the folder may be gone
        if descriptor is None or _is_file_at(descriptor, path):
            path.unlink()
    if descriptor is not None:
        _held.discard(descriptor)
        os.close(descriptor)


def _flock(descriptor: int, path: Path, kind: int) -> bool:
    """Locks the file; returns whether the file system can.

    Raises:
        ValueError: if another process has the lock.
    """
    end = time.monotonic() + _LOOK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                holder = _read_patiently(path)
                raise ValueError(_refusal(path, holder, by_age=False)) from None
            time.sleep(_LOOK_SECONDS / 5)
        except OSError as error:
            if error.errno not in _WITHOUT_FLOCK:
                raise
            return False
        else:
            return True


def _live_holder(path: Path, locked: bool) -> Holder | None:
    """Who holds the lock although `flock` let us pass; see the module's table."""
    holder, myself = _read(path), _myself()
    if holder is None:
        return None
    same_host = holder.host == myself.host
    same_boot = bool(myself.boot) and holder.boot == myself.boot
    if same_boot and (locked or same_host):
        alive = not locked and _start_ticks(holder.process) == holder.ticks
    elif same_host and myself.boot and holder.boot:
        alive = False
    else:
        alive = _seconds_untouched(path) < STALE_SECONDS
    return holder if alive else None


def _refusal(path: Path, holder: Holder | None, *, by_age: bool) -> str:
    who = "another process" if holder is None else str(holder)
    advice = "" if holder is None else f" (kill {holder.process} on {holder.host})"
    wait = f", wait {STALE_SECONDS:.0f} seconds if it is gone"
    return (
        f"{path.parent} is in use: {who} writes to this run folder; let it finish, end "
        f"it{advice}{wait if by_age else ''}, or choose another --workdir."
    )


def _write_and_look_again(path: Path) -> None:
    mine = _myself_as_json()
    replace_file(path, mine, fresh=str(os.getpid()))
    time.sleep(_RACE_SECONDS)
    if (found := _read_bytes(path)) != mine:
        raise ValueError(_refusal(path, _parse(found), by_age=True))


def _touch(path: Path, ended: threading.Event) -> None:
    while not ended.wait(TOUCH_SECONDS):
        with contextlib.suppress(OSError):  # the next touch may succeed
            os.utime(path)


def _seconds_untouched(path: Path) -> float:
    # By the clock of the file system: those of two hosts may differ.
    with tempfile.TemporaryFile(dir=path.parent) as now:
        return abs(os.fstat(now.fileno()).st_mtime - path.stat().st_mtime)


def _is_file_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _read_patiently(path: Path) -> Holder | None:
    end = time.monotonic() + _READ_SECONDS
    while (holder := _read(path)) is None and time.monotonic() < end:
        time.sleep(0.05)
    return holder


def _read(path: Path) -> Holder | None:
    return _parse(_read_bytes(path))


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except FileNotFoundError:
        return b""


def _parse(content: bytes) -> Holder | None:
    """The holder, None if we did not write this.

    It comes from a run folder and may hold anything, also tricks on a terminal.
    """
    try:
        holder = Holder(**json.loads(content))
    except (ValueError, TypeError, RecursionError):
        return None
    names = holder.host, holder.started, holder.boot
    numbers = holder.process, holder.ticks
    if not all(type(number) is int and number >= 0 for number in numbers):
        return None
    if not all(isinstance(n, str) and len(n) <= _LONGEST_NAME for n in names):
        return None
    return holder if all(name.isprintable() for name in names) else None


def _myself() -> Holder:
    return Holder(
        host=socket.gethostname(),
        process=os.getpid(),
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        boot=_boot(),
        ticks=_start_ticks(os.getpid()),
    )


def _myself_as_json() -> bytes:
    return json.dumps(dataclasses.asdict(_myself())).encode() + b"\n"


@functools.cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _start_ticks(process: int) -> int:
    """Field 22 of proc(5)'s ``stat``; 0 if no such process runs."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
    except OSError:
        return 0
    state, *rest = stat.rpartition(")")[2].split()
    return 0 if state in "ZX" else int(rest[18])  # a zombie has ended


@functools.cache
def _close_in_children() -> None:
    # A forked child shares the lock: a data worker that outlives the killed run would
    # go on holding it.
    os.register_at_fork(after_in_child=_close_held)


def _close_held() -> None:
    while _held:
        os.close(_held.pop())
