r"""Parallel text files: line i of one file translates line i of the other.

`attnjax.data.lines` says what is a line. Unequal numbers of lines and empty files are
refused, with file and line.
"""

from __future__ import annotations

from pathlib import Path

from attnjax.data.lines import COMPRESSED_ENDINGS, read_lines
from attnjax.data.parallel import ParallelCorpus

__all__ = ["read_lines", "read_text_files"]

_ENDINGS = ("", *COMPRESSED_ENDINGS)  # of a corpus's files, in order of preference


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
