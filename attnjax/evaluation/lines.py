"""Columns of text that belong together line by line, checked before they are scored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import cast

References = Sequence[str] | Sequence[Sequence[str]]
"""One reference per line, or several columns of them, each with all lines."""


def check_lines(**columns: Sequence[str]) -> None:
    """Refuses columns of text that do not belong together line by line.

    sacreBLEU's own interface scores two hypotheses against one reference as 100.

    Args:
        **columns: Named columns, such as ``hypotheses`` and ``references``.

    Raises:
        ValueError: If the counts differ, there is no line, or a column holds something
            other than strings.
    """
    for name, lines in columns.items():
        if isinstance(lines, str) or not all(isinstance(line, str) for line in lines):
            raise ValueError(
                f"{name} must be a sequence of strings, one per line; "
                f"got {type(lines).__name__} with other contents."
            )
    counts = {name: len(lines) for name, lines in columns.items()}
    if len(set(counts.values())) > 1:
        listing = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise ValueError(
            f"line i of each column must belong together, got {listing}; look for "
            "lines lost or added on the way, for example by splitting at U+2028."
        )
    if not all(counts.values()):
        raise ValueError(
            f"there are no lines to score: {' and '.join(counts)} are empty."
        )


def lines_fingerprint(lines: Iterable[str]) -> str:
    """A short hash of a text, which tells test sets of equal length apart.

    Args:
        lines: The text.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()[:16]


def reference_sets(
    hypotheses: Sequence[str], references: References
) -> list[Sequence[str]]:
    """The references as a list of columns, each checked against the output.

    sacreBLEU reads a list of references per *sentence* as if its first entry were the
    whole first column, and says nothing. Such lists are refused here, unless there are
    as many references as sentences: then nothing tells the two readings apart.

    Args:
        hypotheses: The output, one string per line.
        references: One column of strings, or several columns, each as long as the
            output.

    Returns:
        The columns, as given.

    Raises:
        ValueError: If a column has another number of lines, there is no line, or
            something other than strings is given.
    """
    if len(references) == 0 or any(
        isinstance(entry, str) or not isinstance(entry, Sequence)
        for entry in references
    ):
        column = cast(Sequence[str], references)
        check_lines(hypotheses=hypotheses, references=column)
        return [column]
    columns = [cast(Sequence[str], column) for column in references]
    for number, column in enumerate(columns, start=1):
        if len(column) != len(hypotheses):
            raise ValueError(_transposed(hypotheses, columns, number))
    check_lines(
        hypotheses=hypotheses,
        **{f"references of set {number}": c for number, c in enumerate(columns, 1)},
    )
    return columns


def present_references(columns: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Columns for sacreBLEU, in which an empty reference beside others is left out.

    Files with a varying number of references have empty lines where one is missing.
    sacreBLEU would take such a line for a translation of length 0, the closest one to
    an empty output, and so not count that output as too short.

    Args:
        columns: The references, as `reference_sets` gives them.

    Returns:
        The same columns; an empty line of which another column has text is None, which
        is how sacreBLEU marks a reference that is missing.
    """
    rows = []
    for row in zip(*columns, strict=True):
        some = any(line.strip() for line in row)
        rows.append([None if some and not line.strip() else line for line in row])
    return cast(list[Sequence[str]], list(zip(*rows, strict=True)))


def empty_reference_lines(columns: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Numbers of the lines, from 1, that have an empty reference in some column.

    Args:
        columns: The references, as `reference_sets` gives them.

    Returns:
        The numbers, rising.
    """
    return tuple(
        number
        for number, row in enumerate(zip(*columns, strict=True), start=1)
        if not all(line.strip() for line in row)
    )


def _transposed(
    hypotheses: Sequence[str], columns: Sequence[Sequence[str]], number: int
) -> str:
    found = len(columns[number - 1])
    message = (
        f"each set of references must have one line per hypothesis, {len(hypotheses)}, "
        f"but set {number} of {len(columns)} has {found}"
    )
    if len(columns) == len(hypotheses):
        return (
            f"{message}; this looks like one list of references per sentence: pass one "
            "list per reference instead, `list(zip(*references))`."
        )
    return f"{message}; look for lines lost or added on the way."
