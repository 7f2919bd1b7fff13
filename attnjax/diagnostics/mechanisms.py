"""The catalog of attention mechanisms as a table to read."""

from __future__ import annotations

import inspect
import textwrap

from attnjax.ops.catalog import CATALOG
from attnjax.ops.entry import SLOTS, Entry

_HEADINGS = ("mechanism", "facts", "slots", "cost", "options", "paper")


def mechanism_table() -> str:
    """All mechanisms as aligned text, for a terminal.

    Returns:
        A block of lines for each mechanism.
    """
    blocks = []
    for name, line in CATALOG.items():
        cells = dict(zip(_HEADINGS, _cells(name, line), strict=True))
        rows = [f"{name}: {_summary(line)}"]
        rows += [f"  {label:8}{cells[label]}" for label in _HEADINGS[1:]]
        if line.refusal:
            rows.append(f"  {'not':8}{_other_slots(line)}: {line.refusal}")
        blocks.append("\n".join(rows))
    return "\n\n".join(blocks)


def mechanism_page() -> str:
    """The page ``docs/mechanisms.md``.

    Returns:
        Markdown: a table of all mechanisms, then a paragraph for each.
    """
    lines = [
        "# Attention mechanisms",
        "",
        "Written by `attnjax mechanisms --markdown`; a test holds it against the",
        "catalog, `attnjax/ops/catalog.py`. Facts are those of a mask that a mechanism",
        "honours (it refuses the others), slots the places where models may use it.",
        "Costs hold for n positions; docs/results/attention_cost.md has measured ones.",
        "",
        f"| {' | '.join(_HEADINGS)} |",
        "|" + " --- |" * len(_HEADINGS),
    ]
    for name, line in CATALOG.items():
        lines.append(f"| {' | '.join(_cells(name, line))} |")
    for name, line in CATALOG.items():
        lines += ["", f"## {name}", "", *textwrap.wrap(_summary(line), 88)]
        notes = []
        if line.limit_reason:
            notes.append(f"Never dense: {line.limit_reason}.")
        if line.refusal:
            notes.append(f"Not as {_other_slots(line)}: {line.refusal}.")
        if line.incremental is not None:
            notes.append(
                f"One position at a time with a state of {line.incremental.state}."
            )
        positions = ["sinusoids", "learned"]
        positions += ["rotary"] if line.pairwise else []
        positions += ["relative (T5)", "ALiBi"] if line.accepts_bias else []
        notes.append(f"Positions: {', '.join(positions)}.")
        module = inspect.unwrap(line.attend).__module__
        notes.append(f"In `{module}`, with its options `{line.options.__name__}`.")
        lines += ["", *textwrap.wrap(" ".join(notes), 88, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def _cells(name: str, line: Entry) -> tuple[str, ...]:
    return (
        name,
        ", ".join(line.facts),
        ", ".join(line.slots),
        line.cost,
        ", ".join(f"{n}={value}" for n, value in line.chosen().items()) or "none",
        line.paper,
    )


def _summary(line: Entry) -> str:
    """The first sentence of the function's docstring."""
    document = inspect.getdoc(line.attend) or ""
    return " ".join(document.split("\n\n")[0].replace("``", "").split())


def _other_slots(line: Entry) -> str:
    return ", ".join(slot for slot in SLOTS if slot not in line.slots)
