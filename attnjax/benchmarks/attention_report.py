"""Table and picture of measured attention costs, and how fast they grow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_FIT_FROM = 1_024  # shorter sequences are ruled by what does not grow


@dataclasses.dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        mechanism: its name.
        length: n.
        direction: "forward", or "backward" for both passes.
        temporary_bytes: from the compiler.
        milliseconds: median, None if it did not fit into memory.
    """

    mechanism: str
    length: int
    direction: str
    temporary_bytes: int
    milliseconds: float | None


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """Growth of a quantity with length, the slope of a line through the logarithms.

    Args:
        points: length and quantity.

    Returns:
        p of ``quantity ~ length^p``, least squares over lengths from 1,024 on; NaN from
        fewer than two points.
    """
    fitted = [(n, value) for n, value in points if n >= _FIT_FROM and value > 0]
    if len(fitted) < 2:
        return float("nan")
    lengths, values = np.log(np.asarray(fitted, np.float64)).T
    return float(np.polyfit(lengths, values, 1)[0])


def table(rows: Sequence[Row]) -> str:
    """Both passes of each mechanism by length, as Markdown.

    Args:
        rows: measurements of any mechanisms and lengths.

    Returns:
        A line for each mechanism: milliseconds and temporary megabytes by length, and
        the fitted exponents of both.
    """
    both = [row for row in rows if row.direction == "backward"]
    lengths = sorted({row.length for row in both})
    head = "| mechanism | " + " | ".join(f"n = {n:,}" for n in lengths)
    lines = [
        f"{head} | time ~ n^ | memory ~ n^ |",
        "| --- |" + " ---: |" * (len(lengths) + 2),
    ]
    for name in dict.fromkeys(row.mechanism for row in both):
        own = {row.length: row for row in both if row.mechanism == name}
        cells = [_cell(own[n]) if n in own else "" for n in lengths]
        time = exponent(
            [(n, r.milliseconds) for n, r in own.items() if r.milliseconds is not None]
        )
        memory = exponent([(n, r.temporary_bytes) for n, r in own.items()])
        lines.append(f"| {name} | {' | '.join(cells)} | {time:.2f} | {memory:.2f} |")
    return "\n".join(lines)


def plot(rows: Sequence[Row], path: Path) -> None:
    """Time and memory of both passes over length, on logarithmic axes.

    Args:
        rows: measurements.
        path: the PNG to write.
    """
    figure = Figure(figsize=(11, 5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    time_axes, memory_axes = figure.subplots(1, 2)
    names = list(dict.fromkeys(row.mechanism for row in rows))
    markers = "os^vDPX*<>"
    for index, name in enumerate(names):
        own = [r for r in rows if r.mechanism == name and r.direction == "backward"]
        style = {
            "color": f"C{index % 10}",
            "marker": markers[index // 10 % len(markers)],
            "linestyle": ("-", "--", ":")[index // 10 % 3],
            "markersize": 4,
            "label": name,
        }
        timed = [row for row in own if row.milliseconds is not None]
        time_axes.loglog(
            [r.length for r in timed], [r.milliseconds for r in timed], **style
        )
        memory_axes.loglog(
            [r.length for r in own], [r.temporary_bytes / 1e6 for r in own], **style
        )
    for axes, title in (
        (time_axes, "forward and backward (ms)"),
        (memory_axes, "compiled temporary memory (MB)"),
    ):
        axes.set_xscale("log", base=2)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("length of the sequence")
        axes.grid(True, which="major", alpha=0.3)
    memory_axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _cell(row: Row) -> str:
    megabytes = f"{row.temporary_bytes / 1e6:,.0f} MB"
    if row.milliseconds is None:
        return f"not run, {megabytes}"
    return f"{row.milliseconds:,.0f} ms, {megabytes}"
