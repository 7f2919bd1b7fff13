"""JSON from files that nobody vouches for: bounded in size and depth, or one sentence.

A run folder may come from a stranger or from a failing disk. What is read from it is
never executed, never larger than a bound, and wrong in at most one sentence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 24  # a thousand times what attnjax writes into such a file
MOST_LEVELS = 50  # of lists and objects within each other
_SHOWN_CHARACTERS = 80


def read_json(path: Path, *, most_bytes: int = MOST_BYTES) -> Any:
    """Reads a JSON file of bounded size and depth.

    Args:
        path: of a regular file.
        most_bytes: that it may have.

    Returns:
        The value.

    Raises:
        ValueError: it is too large, too deep, no JSON, or no file.
    """
    return parse_json(read_bounded(path, most_bytes=most_bytes), origin=str(path))


def read_bounded(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Reads a file of bounded size; a device or a pipe is refused, not waited for.

    Args:
        path: of a regular file, or of a link to one in the same folder.
        most_bytes: that it may have.

    Returns:
        Its bytes.

    Raises:
        ValueError: it is too large, no file, or a link to somewhere else.
    """
    if not path.is_file():
        raise ValueError(f"{path} must be a regular file; restore it from a copy.")
    if path.is_symlink() and path.resolve().parent != path.parent.resolve():
        raise ValueError(
            f"{path} is a link out of its folder; put a copy of the file in its place."
        )
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(
            f"{path} has {path.stat().st_size:,} bytes, but at most {most_bytes:,} are "
            "read from such a file; restore it from a copy."
        )
    return content


def parse_json(text: str | bytes, *, origin: str) -> Any:
    """Reads JSON text of bounded depth.

    Args:
        text: UTF-8 if bytes.
        origin: the file's name, for messages.

    Returns:
        The value.

    Raises:
        ValueError: it is no JSON, or too deep.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{origin} is not valid JSON ({error}); attnjax wrote it, so restore it "
            "from a copy."
        ) from error
    if _levels(value) > MOST_LEVELS:
        raise ValueError(
            f"{origin} nests lists and objects more than {MOST_LEVELS} deep; restore "
            "it from a copy."
        )
    return value


def shown(value: Any) -> str:
    """A value in a message, cut where it grows too long to read.

    Args:
        value: of JSON, at most `MOST_LEVELS` deep.

    Returns:
        Its Python notation.
    """
    text = repr(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]}... ({len(text):,} characters)"


def _levels(value: Any) -> int:
    """How deep lists and objects nest, counted without recursion up to the bound."""
    levels, layer = 0, [value]
    while layer and levels <= MOST_LEVELS:
        inner = [each for each in layer if isinstance(each, list | dict)]
        layer = [
            member
            for each in inner
            for member in (each.values() if isinstance(each, dict) else each)
        ]
        levels += bool(inner)
    return levels
