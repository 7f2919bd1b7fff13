r"""Parallel text files: line i of one file translates line i of the other.

What is done to the bytes, and nothing else:

- lines end at ``\n`` only; a lone ``\r``, U+2028, U+0085, form feeds, tabs and NUL stay
  inside their line;
- one trailing ``\r`` of a line (Windows line ends) and a byte order mark at the start
  of the file are removed;
- invalid UTF-8, UTF-16, unequal numbers of lines, files that are empty or cannot be
  read, and damaged archives are refused, with file and line.
"""

from __future__ import annotations

import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from attnjax.data.parallel import ParallelCorpus

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_FEWEST_BYTES_OF_UTF_16 = 16  # of which a third being NUL is no accident
_DECOMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
}
_ENDINGS = ("", *_DECOMPRESSORS)  # of the files of a corpus, in order of preference


def read_lines(file: Path | str | BinaryIO, *, first_line: int = 1) -> list[str]:
    r"""Reads UTF-8 text as a list of lines, split on ``\n`` only.

    Args:
        file: a path, decompressed if it ends in ``.gz`` or ``.xz``, or a binary stream
            such as ``sys.stdin.buffer``.
        first_line: the number of the first line, where a stream is read in parts.

    Returns:
        The lines without their ends. A ``\n`` at the end of the file ends the last line
        and begins no further one; an empty file has no lines.

    Raises:
        ValueError: the bytes are not UTF-8 (with file, line and byte), or the
            compressed file is damaged.
        OSError: the file cannot be read, or is a folder.
    """
    if isinstance(file, Path | str):
        name, content = str(file), _read_bytes(Path(file))
    else:
        name, content = str(getattr(file, "name", "the input")), file.read()
    if first_line == 1:
        content = content.removeprefix(_BYTE_ORDER_MARK)
    if not content:
        return []
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(_invalid_utf8(name, content, error, first_line)) from None
    lines = text.removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def read_text_files(
    prefix: Path, source_language: str, target_language: str
) -> ParallelCorpus:
    """Reads ``prefix.<language>`` of both languages, plain or ``.gz`` or ``.xz``.

    Args:
        prefix: the path without ``.<language>``.
        source_language: the suffix of the source file.
        target_language: the suffix of the target file.

    Returns:
        The pairs, in the order of the files.

    Raises:
        ValueError: a file is empty or not UTF-8, or the numbers of lines differ.
        OSError: a file exists in none of the three forms, or cannot be read.
    """
    source_path = _find(prefix, source_language)
    target_path = _find(prefix, target_language)
    source, target = read_lines(source_path), read_lines(target_path)
    for path, lines in ((source_path, source), (target_path, target)):
        if not lines:
            raise ValueError(
                f"{path} is empty; a corpus needs at least one line in each file."
            )
    if len(source) != len(target):
        shorter, longer = sorted(
            [(len(source), source_path), (len(target), target_path)]
        )
        raise ValueError(
            f"parallel files must have equal numbers of lines: {longer[1]} has "
            f"{longer[0]}, but {shorter[1]} ends after line {shorter[0]}. Line i of "
            r"one must translate line i of the other (lines end at \n only); find "
            "where they part and mend the files."
        )
    return ParallelCorpus(source, target, origin=f"{source_path} and {target_path}")


def _find(prefix: Path, language: str) -> Path:
    candidates = [Path(f"{prefix}.{language}{ending}") for ending in _ENDINGS]
    for path in candidates:
        if path.exists():
            return path
    raise FileNotFoundError(
        f"found no {candidates[0]}, nor the same with .gz or .xz; the path of a text "
        f"corpus is a prefix that .{language} follows."
    )


def _read_bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise type(error)(
            f"{path} cannot be read: {error.strerror}; name a file of lines that you "
            "may read."
        ) from error
    try:
        content = _DECOMPRESSORS.get(path.suffix, bytes)(content)
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise ValueError(
            f"{path} is damaged or not a {path.suffix} file ({error}); "
            "download or compress it again."
        ) from None
    is_long = len(content) >= _FEWEST_BYTES_OF_UTF_16
    if is_long and content.count(b"\0") * 3 > len(content):
        raise ValueError(
            f"{path}, line 1: expected UTF-8, got so many NUL bytes that it must be "
            "UTF-16; convert the file with `iconv -f UTF-16 -t UTF-8`."
        )
    return content


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
