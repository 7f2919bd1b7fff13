"""What goes in and out of a command: lines as they come, arrays one by one."""

from __future__ import annotations

import contextlib
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from attnjax.data.lines import BLOCK_BYTES, decoded_lines, line_blocks

_PROMPT = "> "


def input_blocks(
    file: Path | None, *, block_bytes: int = BLOCK_BYTES, block_lines: int | None = None
) -> Iterator[list[str]]:
    """The lines of a file, or those of standard input as they arrive.

    On a terminal each line is a block, after a prompt.

    Args:
        file: None means standard input.
        block_bytes: as `attnjax.data.lines.line_blocks` takes it.
        block_lines: likewise.

    Yields:
        One line or more, as `attnjax.data.lines.line_blocks` reads them.

    Raises:
        ValueError: a line is not UTF-8; the lines before it have been yielded.
        OSError: the file cannot be read.
    """
    if file is None and sys.stdin.isatty():
        yield from _typed_lines(sys.stdin.buffer)
        return
    source = sys.stdin.buffer if file is None else file
    yield from line_blocks(source, block_bytes=block_bytes, block_lines=block_lines)


@contextlib.contextmanager
def arrays_file(path: Path | None) -> Iterator[Callable[[str, Any], None]]:
    """Writes arrays into an ``.npz`` file one by one, so that none is kept in memory.

    Args:
        path: of the file; None writes nothing.

    Yields:
        What writes an array under a name. When the body ends, also by an error, the
        file is complete with what it has.
    """
    if path is None:
        yield lambda name, array: None
        return
    import numpy as np

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def write(name: str, array: Any) -> None:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)

        yield write


def _typed_lines(stream: BinaryIO) -> Iterator[list[str]]:
    done = 0
    while True:
        sys.stderr.write(_PROMPT)
        sys.stderr.flush()
        line = stream.readline()
        if not line:
            return
        yield from decoded_lines(line, "<stdin>", lines_before=done)
        done += 1
