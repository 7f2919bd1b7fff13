"""Tables of text, for terminals, Markdown, LaTeX and spreadsheets."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from attnjax.terminal import printable

TableFormat = Literal["text", "markdown", "latex", "csv"]

_LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"\textbar{}",
    "[": "{[}",  # an option of the line end before it, if it begins a row
    "*": "{*}",  # likewise
}
# What Markdown reads as more than itself; an underscore within a word is one.
_IN_MARKDOWN = re.compile(r"[\\`*<>|\[\]~&]|(?<![^\W_])_|_(?![^\W_])")


class Table(NamedTuple):
    """Cells in rows; the first column holds names, the others numbers or short text.

    Attributes:
        title: what it shows; empty if nothing need be said.
        header: names of the columns.
        rows: as many cells each.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def render_table(table: Table, form: TableFormat) -> str:
    """Writes a table.

    Args:
        table: what to write.
        form: ``text`` aligns columns by spaces, ``latex`` is a ``tabular``; ``csv`` has
            no title.

    Returns:
        Lines, without a line end after the last.

    Example:
        >>> print(render_table(Table("", ("", "BLEU"), [("a", "9.5")]), "text"))
           BLEU
        a   9.5
    """
    return _RENDERERS[form](table)


def join_tables(tables: Sequence[Table]) -> Table:
    """Puts tables about the same things side by side.

    Args:
        tables: all with the same first column.

    Returns:
        One table with the columns of all, the first one once.

    Raises:
        ValueError: first columns differ.
    """
    first, *others = tables
    header, rows = [*first.header], [[*row] for row in first.rows]
    for table in others:
        if [row[0] for row in table.rows] != [row[0] for row in first.rows]:
            raise ValueError("tables side by side need the same first column.")
        header += table.header[1:]
        for row, more in zip(rows, table.rows, strict=True):
            row += more[1:]
    return Table(first.title, header, rows)


def in_one_line(text: str) -> str:
    """Makes line ends and tabs spaces, and other control characters visible.

    Args:
        text: from anywhere, such as a file name.

    Returns:
        What stays in its line and column.
    """
    return printable(re.sub(r"[\t\n\v\f\r]", " ", text))


def _as_text(table: Table) -> str:
    rows = [[*map(in_one_line, row)] for row in (table.header, *table.rows)]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = [in_one_line(table.title)] if table.title else []
    for row in rows:
        cells = [row[0] + " " * (widths[0] - _width(row[0]))]
        cells += [
            " " * (width - _width(cell)) + cell
            for cell, width in zip(row[1:], widths[1:], strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    """Columns on a terminal."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.combining(each) > 0 for each in text)


def _as_markdown(table: Table) -> str:
    rules = ["---"] + ["---:"] * (len(table.header) - 1)
    rows = [table.header, rules, *table.rows]
    lines = [f"**{_in_markdown(table.title)}**", ""] if table.title else []
    lines += ["| " + " | ".join(map(_in_markdown, row)) + " |" for row in rows]
    return "\n".join(lines)


def _in_markdown(cell: str) -> str:
    return _IN_MARKDOWN.sub(r"\\\g<0>", in_one_line(cell))


def _as_latex(table: Table) -> str:
    title = [f"% {in_one_line(table.title)}"] if table.title else []
    head, *rows = (
        " & ".join(map(_in_latex, row)) + r" \\" for row in (table.header, *table.rows)
    )
    columns = "l" + "r" * (len(table.header) - 1)
    begin = f"\\begin{{tabular}}{{{columns}}}"
    return "\n".join([*title, begin, head, r"\hline", *rows, r"\end{tabular}"])


def _in_latex(cell: str) -> str:
    return "".join(_LATEX.get(each, each) for each in in_one_line(cell))


def _as_csv(table: Table) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.header, *table.rows])
    return text.getvalue().removesuffix("\n")


_RENDERERS: dict[str, Callable[[Table], str]] = {
    "text": _as_text,
    "markdown": _as_markdown,
    "latex": _as_latex,
    "csv": _as_csv,
}
