r"""Lines of UTF-8 text from files and streams, in blocks that memory can hold.

What is done to the bytes, and nothing else:

- lines end at ``\n`` only; a lone ``\r``, U+2028, U+0085, form feeds, tabs and NUL stay
  inside their line;
- one trailing ``\r`` of a line (Windows line ends) and a byte order mark at the start
  of the file are removed;
- invalid UTF-8, UTF-16, files that cannot be read and damaged archives are refused,
  with file and line, after the lines before the fault have been delivered.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

BLOCK_BYTES = 1 << 16

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_FEWEST_BYTES_OF_UTF_16 = 16  # of which a third being NUL is no accident
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
COMPRESSED_ENDINGS = tuple(_OPENERS)


def read_lines(file: Path | str | BinaryIO) -> list[str]:
    r"""Reads UTF-8 text as a list of lines, split on ``\n`` only.

    Args:
        file: a path, decompressed if it ends in ``.gz`` or ``.xz``, or a binary stream
            such as ``sys.stdin.buffer``.

    Returns:
        The lines without their ends. A ``\n`` at the end of the file ends the last line
        and begins no further one; an empty file has no lines.

    Raises:
        ValueError: the bytes are not UTF-8 (with file, line and byte), or the
            compressed file is damaged.
        OSError: the file cannot be read, or is a folder.
    """
    return [line for block in line_blocks(file) for line in block]


def line_blocks(
    file: Path | str | BinaryIO,
    *,
    block_bytes: int = BLOCK_BYTES,
    block_lines: int | None = None,
) -> Iterator[list[str]]:
    """Reads UTF-8 text block by block.

    A block is what could be read without waiting for more: a slow writer at the other
    end of a pipe has each line delivered at once, a file comes in blocks of about
    ``block_bytes``. Only a longer line makes a block larger.

    Args:
        file: as `read_lines` takes it.
        block_bytes: the size of a block, decompressed.
        block_lines: the most lines of a block; None is no limit.

    Yields:
        One line or more, without their ends.

    Raises:
        ValueError: as `read_lines`; the lines before the fault have been yielded.
        OSError: likewise.
    """
    if isinstance(file, Path | str):
        name = str(file)
        opened: contextlib.AbstractContextManager[BinaryIO] = _opened(Path(file))
    else:
        opened = contextlib.nullcontext(file)
        name = str(getattr(file, "name", "the input"))
    with opened as stream:
        for block in _blocks(stream, name, block_bytes):
            most = block_lines or len(block)
            for start in range(0, len(block), most):
                yield block[start : start + most]


def count_lines(file: Path) -> int | None:
    """Counts the lines of a file without keeping them.

    Args:
        file: a path, decompressed if it ends in ``.gz`` or ``.xz``.

    Returns:
        The number; None where that would use the input up (a pipe), and where the file
        cannot be read to its end.
    """
    if not file.is_file():
        return None
    newlines, last = 0, b"\n"
    try:
        with _opened(file) as stream:
            while chunk := stream.read(BLOCK_BYTES):
                newlines, last = newlines + chunk.count(b"\n"), chunk[-1:]
    except (OSError, ValueError):
        return None
    return newlines + (last != b"\n")


def in_step(
    blocks: Iterable[list[str]], others: Iterable[list[str]], names: tuple[str, str]
) -> Iterator[tuple[list[str], list[str]]]:
    """Reads two texts side by side: line i of one belongs to line i of the other.

    Args:
        blocks: of the first text.
        others: of the second text; their sizes do not matter.
        names: of both texts, for messages.

    Yields:
        The blocks of the first text, with as many lines of the second.

    Raises:
        ValueError: one of the texts ends before the other; the lines that both have
            were yielded. So too for what reading them raises.
    """
    rest: list[str] = []
    second = iter(others)
    done = 0
    for block in blocks:
        fault: Exception | None = None
        while len(rest) < len(block) and fault is None:
            try:
                rest = rest + next(second)
            except StopIteration:
                fault = _unequal(names, done + len(rest), names[1])
            except (OSError, ValueError) as error:
                fault = error
        paired, rest = rest[: len(block)], rest[len(block) :]
        done += len(paired)
        if paired:
            yield block[: len(paired)], paired
        if fault is not None:
            raise fault
    if rest or next(second, []):
        raise _unequal(names, done, names[0])


def _unequal(names: tuple[str, str], lines: int, shorter: str) -> ValueError:
    return ValueError(
        f"{names[0]} and {names[1]} need equally many lines, since line i of one "
        f"belongs to line i of the other, but {shorter} ends after line {lines:,}; "
        "find where they part and mend the files."
    )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read, with its faults as sentences."""
    try:
        with _OPENERS.get(path.suffix, open)(path, "rb") as stream:
            yield stream
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise ValueError(
            f"{path} is damaged or not a {path.suffix} file ({error}); "
            "download or compress it again."
        ) from None
    except OSError as error:
        raise type(error)(
            f"{path} cannot be read: {error.strerror}; name a file of lines that you "
            "may read."
        ) from error


def _blocks(stream: BinaryIO, name: str, block_bytes: int) -> Iterator[list[str]]:
    done, pieces = 0, list[bytes]()
    read = getattr(stream, "read1", stream.read)
    while chunk := read(block_bytes):
        whole, newline, rest = chunk.rpartition(b"\n")
        if newline:
            content = b"".join([*pieces, whole, newline])
            yield from decoded_lines(content, name, lines_before=done)
            done += content.count(b"\n")
            pieces.clear()
        pieces.append(rest)
    yield from decoded_lines(b"".join(pieces), name, lines_before=done)


def decoded_lines(
    content: bytes, name: str, *, lines_before: int
) -> Iterator[list[str]]:
    """Decodes a part of a text that begins and ends with a line.

    Args:
        content: UTF-8.
        name: of the text, for messages.
        lines_before: how many lines the text has before this part.

    Yields:
        The lines up to the first fault, if there are some.

    Raises:
        ValueError: the bytes are not UTF-8.
    """
    if not lines_before:
        content = content.removeprefix(_BYTE_ORDER_MARK)
        is_long = len(content) >= _FEWEST_BYTES_OF_UTF_16
        if is_long and content.count(b"\0") * 3 > len(content):
            raise ValueError(
                f"{name}, line 1: expected UTF-8, got so many NUL bytes that it must "
                "be UTF-16; convert the file with `iconv -f UTF-16 -t UTF-8`."
            )
    fault, end = None, len(content)
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        fault = _invalid_utf8(name, content, error, lines_before + 1)
        end = content.rfind(b"\n", 0, error.start) + 1
    if end:
        text = content[:end].decode("utf-8")
        lines = text.removesuffix("\n").split("\n")
        yield [line.removesuffix("\r") for line in lines]
    if fault is not None:
        raise ValueError(fault)


def _invalid_utf8(
    name: str, content: bytes, error: UnicodeDecodeError, first_line: int
) -> str:
    line = content.count(b"\n", 0, error.start) + first_line
    column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
    encoding = "UTF-16" if content.startswith(_UTF_16_MARKS) else "ISO-8859-1"
    return (
        f"{name}, line {line}, byte {column}: expected UTF-8, got byte "
        f"0x{content[error.start]:02x}; convert the file, for example with "
        f"`iconv -f {encoding} -t UTF-8`."
    )
