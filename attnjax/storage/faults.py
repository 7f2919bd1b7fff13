"""What the storage could not do, in one sentence with path, bytes needed and free."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import jax

from attnjax.types import PyTree

logger = logging.getLogger(__name__)

MOST_BYTES_WAITING = 1 << 20  # of a log, for room on the disk

_ADVICE = {
    errno.ENOSPC: "free some space, or lower training.keep_checkpoints",
    errno.EDQUOT: "free some of your quota, or lower training.keep_checkpoints",
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f)",
    errno.EROFS: "make the folder writable, or choose another --workdir",
    errno.EACCES: "make the folder writable, or choose another --workdir",
    errno.EPERM: "make the folder writable, or choose another --workdir",
    errno.ENOENT: "the folder must stay where it is while a run writes to it",
    errno.ENOTDIR: "the folder must stay where it is while a run writes to it",
    errno.ESTALE: "the folder must stay where it is while a run writes to it",
    errno.EIO: "the disk or its connection fails; choose another --workdir",
}
_TENSORSTORE_CODE = re.compile(r"os_error_code='(\d+)'|\[OS error (\d+)")


class StorageError(OSError):
    """Something could not be written, for want of space, permission or a folder."""


def storage_error(
    error: BaseException, what: str, path: Path, needed_bytes: int | None = None
) -> StorageError | None:
    """Says what went wrong with the storage.

    Args:
        error: of Python, or of TensorStore, which has the system's code in its text.
        what: that was to be written, such as ``the checkpoint of step 7``.
        path: where to.
        needed_bytes: about how many it takes; None if they are few.

    Returns:
        The sentence; None if it is no fault of the storage.
    """
    code = _system_code(error)
    if code is None:
        return None
    reason = os.strerror(code)
    if not os.path.isdir(path):  # False on any failure to ask
        code, reason = errno.ENOENT, "the folder does not exist any more"
    needed = "a few" if needed_bytes is None else f"about {needed_bytes:,}"
    return StorageError(
        f"{what} could not be written to {path}: {reason} ({needed} bytes needed, "
        f"{free_bytes(path):,} free); {_ADVICE[code]}."
    )


@contextlib.contextmanager
def written(
    what: str, path: Path, *, on_failure: Literal["stop", "continue"] = "stop"
) -> Iterator[None]:
    """Turns a fault of the storage while something small is written into a sentence.

    Args:
        what: that is written, such as ``config.json``.
        path: of the folder it lies in.
        on_failure: whether the sentence is raised, or logged as an error.

    Yields:
        Nothing.

    Raises:
        StorageError: if the body meets a fault of the storage, unless training is to
            continue.
    """
    try:
        yield
    except OSError as error:
        failure = storage_error(error, what, path)
        if failure is None:
            raise
        if on_failure == "stop":
            raise failure from error
        logger.error("%s Training continues without it.", failure)


def require_folder(path: Path) -> None:
    """Refuses to make a folder anew that has gone.

    It may be the mount point of a disk that has gone: what is written there then fills
    another one, and is not found when the disk comes back.

    Args:
        path: of a folder that existed.

    Raises:
        FileNotFoundError: if it does not.
    """
    if not os.path.isdir(path):
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(path))


def free_bytes(path: Path) -> int:
    """The free bytes of the disk that holds a path.

    Args:
        path: of a folder; the nearest one above it that exists is asked.

    Returns:
        What an ordinary user may write.
    """
    folder = path.absolute()
    while not os.path.isdir(folder) and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def size_bytes(tree: PyTree) -> int:
    """About how many bytes a tree takes on disk, compression left aside.

    Args:
        tree: arrays.

    Returns:
        The bytes of all its leaves.
    """
    return sum(
        math.prod(leaf.shape) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
        if hasattr(leaf, "dtype")
    )


def _system_code(error: BaseException | None) -> int | None:
    """The system's code of what is known as a fault of the storage."""
    while error is not None:
        found = _TENSORSTORE_CODE.search(str(error))
        code = getattr(error, "errno", None)
        if found:
            code = int(found[1] or found[2])
        if code in _ADVICE:
            return code
        error = error.__cause__ or error.__context__
    return None
