"""Lines from files and streams, as they come."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from attnjax.data.text_files import read_lines

_BLOCK_BYTES = 1 << 16
_PROMPT = "> "


def line_blocks(file: Path | None) -> Iterator[list[str]]:
    r"""The lines of a file in one block, or those of standard input as they arrive.

    A block of standard input is what could be read without waiting for more, so that a
    slow writer gets its answers line by line and a fast one in large batches. On a
    terminal each line is a block, after a prompt.

    Args:
        file: None means standard input.

    Yields:
        One line or more, as `attnjax.data.text_files.read_lines` reads them.

    Raises:
        ValueError: a line is not UTF-8; the blocks before it have been yielded.
    """
    if file is not None:
        yield read_lines(file)
        return
    stream = sys.stdin.buffer
    if sys.stdin.isatty():
        yield from _typed_lines(stream)
        return
    name = str(getattr(stream, "name", "<stdin>"))
    done, rest = 0, b""
    while chunk := _read_available(stream):
        whole, newline, rest = (rest + chunk).rpartition(b"\n")
        if newline:
            yield _decoded(whole + newline, name, done)
            done += whole.count(b"\n") + 1
    if rest:
        yield _decoded(rest, name, done)


def _read_available(stream: BinaryIO) -> bytes:
    read = getattr(stream, "read1", stream.read)
    return read(_BLOCK_BYTES)


def _decoded(content: bytes, name: str, lines_before: int) -> list[str]:
    block = io.BytesIO(content)
    block.name = name  # type: ignore[attr-defined]
    return read_lines(block, first_line=lines_before + 1)


def _typed_lines(stream: BinaryIO) -> Iterator[list[str]]:
    done = 0
    while True:
        sys.stderr.write(_PROMPT)
        sys.stderr.flush()
        line = stream.readline()
        if not line:
            return
        yield _decoded(line, "<stdin>", done)
        done += 1
