"""A SHA-256 manifest of every file of a checkpoint: written last, verified first.

``manifest.json`` lies in the checkpoint's folder and names every other file there, with
its bytes and the digest of each block of 16 MiB, so that several threads share a large
file. (The digest of a file of one block is what ``sha256sum`` prints.) The manifest and
``scores.json`` carry a digest of themselves.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax

from attnjax.json_files import parse_json, read_bounded, read_json, shown
from attnjax.processes import text_of_first_process

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
ANNOUNCEMENT = {"manifest": MANIFEST}  # in Orbax's metadata: this step must have one
_STEP_METADATA = "_CHECKPOINT_METADATA"
_VERSION = 1
_BLOCK_BYTES = 1 << 24
_PIECE_BYTES = 1 << 18  # read at once: stays in the processor's cache
_SMALL_BYTES = (
    1 << 20
)  # names, shapes and places of arrays; verified before any is used
# What Orbax looks for by name, there or not; it meets no other file by chance.
_LOOKED_FOR = re.compile(r"(.*/)?(_[^/]*|metadata|manifest\.[^/]*|process_[^/]*)")
_SEAL = "sha256"
_THREADS = min(8, os.cpu_count() or 1)


class DamagedCheckpointError(ValueError):
    """A checkpoint is not what was saved."""


class _Recorded(NamedTuple):
    """What the manifest says of a file."""

    size: int
    digests: Sequence[str]


def sealed(content: Mapping[str, Any]) -> str:
    """JSON text that carries a digest of itself.

    Args:
        content: JSON values by name; ``sha256`` is taken.

    Returns:
        One line.
    """
    body = json.dumps(content, sort_keys=True)
    digest = hashlib.sha256(body.encode()).hexdigest()
    return json.dumps({**content, _SEAL: digest}, sort_keys=True) + "\n"


def unsealed(text: bytes, *, origin: str) -> dict[str, Any]:
    """Reads what `sealed` wrote.

    Args:
        text: UTF-8.
        origin: the file's name, for messages.

    Returns:
        The content.

    Raises:
        DamagedCheckpointError: a byte is not as it was written.
    """
    try:
        content = parse_json(text, origin=origin)
    except ValueError as error:
        raise DamagedCheckpointError(str(error)) from error
    if isinstance(content, dict):
        content.pop(_SEAL, None)
        if sealed(content).encode() == text:
            return content
    raise DamagedCheckpointError(
        f"{origin} is damaged: it does not agree with its own digest; restore it from "
        "a copy."
    )


def write_manifest(folder: Path, name: str) -> None:
    """Reads all files of a checkpoint and writes their digests beside them.

    Args:
        folder: of the checkpoint, not yet complete.
        name: that the folder is about to get; under another one it does not verify.
    """
    sizes = _files(folder)
    with ThreadPoolExecutor(_THREADS) as pool:
        digests = {
            file: [pool.submit(_digest, folder / file, at) for at in _blocks(size)]
            for file, size in sizes.items()
        }
    files = {
        file: {"bytes": sizes[file], "sha256": [each.result() for each in found]}
        for file, found in digests.items()
    }
    content = {"version": _VERSION, "name": name, "files": files}
    (folder / MANIFEST).write_text(sealed(content), encoding="utf-8")


def has_its_files(folder: Path) -> bool:
    """Whether a checkpoint has the files, and they the sizes, that it was saved with.

    Args:
        folder: of the checkpoint, under the name that it was saved under.

    Returns:
        True also for one from before there were manifests.
    """
    try:
        recorded = _recorded(folder, folder.name)
        if recorded is not None:
            _require_same_files(folder, recorded)
    except DamagedCheckpointError:
        return False
    return True


def verified_bytes(folder: Path, file: str) -> bytes:
    """Reads one small file of a checkpoint.

    Args:
        folder: of the checkpoint, under the name that it was saved under.
        file: its name relative to the folder.

    Returns:
        Its bytes; as they are, if the checkpoint is from before there were manifests.

    Raises:
        DamagedCheckpointError: it is not as it was saved.
        ValueError: it is no file, or too large.
    """
    recorded = _recorded(folder, folder.name)
    content = read_bounded(folder / file)
    if recorded is not None:
        size, digests = recorded.get(file, _Recorded(0, []))
        found = [_digest(folder / file, at) for at in _blocks(len(content))]
        if size != len(content) or found != list(digests):
            raise _damaged(folder, f"{file} does not have the digest it was saved with")
    return content


@contextlib.contextmanager
def verified(folder: Path, *, name: str | None = None) -> Iterator[None]:
    """Verifies a checkpoint while the body reads it.

    Names, sizes and small files, which say where the others are and what they hold, are
    verified before the body begins. The large ones are verified at the same time, as
    both take long; the body's result counts only if nothing is raised at its end.

    A file that was not saved with it, such as a file manager's, is passed over with a
    warning. So is a checkpoint from before there were manifests.

    Args:
        folder: of the checkpoint.
        name: that it was saved under; None accepts any.

    Yields:
        Nothing.

    Raises:
        DamagedCheckpointError: a file is missing, is not as it was saved, or was not
            there and would be read.
    """
    recorded = _recorded(folder, name)
    if recorded is None:
        logger.warning(
            "%s was saved before attnjax kept digests, so that damage to its files "
            "would not be noticed",
            folder,
        )
        yield
        return
    if strays := _require_same_files(folder, recorded):
        logger.warning(
            "%s holds what was not saved with it, such as %s; that is left unread",
            folder,
            strays[0],
        )
    small = [file for file, (size, _) in recorded.items() if size <= _SMALL_BYTES]
    large = [file for file, (size, _) in recorded.items() if size > _SMALL_BYTES]
    pool = ThreadPoolExecutor(_THREADS)
    try:
        _require_digests(folder, recorded, _start(pool, folder, recorded, small))
        started = _start(pool, folder, recorded, large)
        try:
            yield
        except Exception:
            _require_digests(folder, recorded, started)  # it may be why
            raise
        _require_digests(folder, recorded, started)
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def verified_for_all(folder: Path, *, name: str | None = None) -> Iterator[None]:
    """Verifies a checkpoint as `verified` does, in the first process of several.

    It does so before the body: if it found damage while reading, the others would wait
    for it to read on.

    Args:
        folder: of the checkpoint.
        name: that it was saved under; None accepts any.

    Yields:
        Nothing.

    Raises:
        DamagedCheckpointError: in every process, if it is damaged.
    """
    if jax.process_count() == 1:
        with verified(folder, name=name):
            yield
        return
    message = ""
    if jax.process_index() == 0:
        try:
            with verified(folder, name=name):
                pass
        except DamagedCheckpointError as damage:
            message = str(damage)
    if message := text_of_first_process(message):
        raise DamagedCheckpointError(message)
    yield


def _start(
    pool: ThreadPoolExecutor,
    folder: Path,
    recorded: Mapping[str, _Recorded],
    files: Sequence[str],
) -> dict[str, list[Future[str]]]:
    return {
        file: [
            pool.submit(_digest, folder / file, at)
            for at in _blocks(recorded[file].size)
        ]
        for file in files
    }


def _require_digests(
    folder: Path,
    recorded: Mapping[str, _Recorded],
    found: Mapping[str, list[Future[str]]],
) -> None:
    for file, digests in found.items():
        try:
            same = [each.result() for each in digests] == list(recorded[file].digests)
        except OSError as error:
            raise _damaged(folder, f"{file} cannot be read ({error})") from error
        if not same:
            raise _damaged(folder, f"{file} does not have the digest it was saved with")


def _require_same_files(folder: Path, recorded: Mapping[str, _Recorded]) -> list[str]:
    """Refuses other files than were saved; returns those that nothing will read."""
    sizes = _files(folder)
    for file, (size, _) in recorded.items():
        if file not in sizes:
            raise _damaged(folder, f"{file} is missing")
        if sizes[file] != size:
            raise _damaged(
                folder, f"{file} has {sizes[file]:,} bytes, but was saved with {size:,}"
            )
    strays = [file for file in sizes if file not in recorded]
    for file in strays:
        if _LOOKED_FOR.fullmatch(file):
            raise _damaged(folder, f"{file} was not saved with it")
    return strays


def _recorded(folder: Path, name: str | None) -> dict[str, _Recorded] | None:
    """What the manifest says, None if the checkpoint never had one."""
    path = folder / MANIFEST
    if not os.path.lexists(path):
        if _announces_manifest(folder / _STEP_METADATA):
            raise _damaged(folder, f"{MANIFEST} is missing")
        return None
    if path.is_symlink():
        raise _damaged(folder, f"{MANIFEST} is a symbolic link")
    try:
        text = read_bounded(path)
    except ValueError as error:
        raise DamagedCheckpointError(str(error)) from error
    content = unsealed(text, origin=str(path))
    if content.get("version") != _VERSION:
        version = shown(content.get("version"))
        raise _damaged(folder, f"{MANIFEST} is of version {version}, not {_VERSION}")
    if name is not None and content.get("name") != name:
        raise _damaged(folder, f"{MANIFEST} belongs to {shown(content.get('name'))}")
    try:
        return {
            file: _Recorded(int(stored["bytes"]), list(stored["sha256"]))
            for file, stored in content["files"].items()
        }
    except (ValueError, OverflowError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(folder, f"{MANIFEST} does not list files") from error


def _announces_manifest(step_metadata: Path) -> bool:
    try:
        return read_json(step_metadata)["custom_metadata"] == ANNOUNCEMENT
    except (ValueError, TypeError, KeyError):
        return False


def _files(folder: Path) -> dict[str, int]:
    """The bytes of every file but the manifest, by its name relative to the folder."""
    sizes, folders = {}, [folder]
    if folder.is_symlink():
        raise _damaged(folder, "it is a symbolic link")
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                path = Path(entry.path)
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                elif not stat.S_ISREG(status.st_mode):
                    kind = "symbolic link" if entry.is_symlink() else "special file"
                    raise _damaged(
                        folder, f"{path.relative_to(folder).as_posix()} is a {kind}"
                    )
                elif path != folder / MANIFEST:
                    sizes[path.relative_to(folder).as_posix()] = status.st_size
    return dict(sorted(sizes.items()))


def _blocks(size: int) -> range:
    return range(0, max(size, 1), _BLOCK_BYTES)


def _digest(path: Path, offset: int) -> str:
    digest, end = hashlib.sha256(), offset + _BLOCK_BYTES
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        while piece := file.read(min(_PIECE_BYTES, end - offset)):
            digest.update(piece)
            offset += len(piece)
    return digest.hexdigest()


def _damaged(folder: Path, what: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(
        f"the checkpoint {folder} is damaged: {what}; restore it from a copy, or use "
        "another one."
    )
