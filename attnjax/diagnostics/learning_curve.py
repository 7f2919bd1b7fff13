"""The learning curve of a run, from its log of JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

_INK = "#24292f"
_MUTED = "#6b7280"
_TRAIN = "#8fb3d9"
_VALIDATION = "#1f5aa0"
_SCORE = "#b45309"

COST = "nll"  # the name of what training and validation both measure
Series = tuple[list[int], list[float]]  # steps and values


def plot_learning_curve(
    metrics_jsonl: Path, path: Path, *, score: str | None = None
) -> None:
    """Draws the costs of training and validation, and the score, as a PNG.

    `learning_curves` says which line counts as what; a half written last line is left
    out, and a number that is null or not finite is a gap.

    Args:
        metrics_jsonl: The log; each line an object with ``step`` and named numbers.
        path: The file to write; its folder is made.
        score: The validation number of a second panel, with its best step marked; None
            draws the costs alone.

    Raises:
        ValueError: If the log holds no loss.
    """
    training, validation = learning_curves(_records(metrics_jsonl))
    costs = {"train": training.get(COST), "validation": validation.get(COST)}
    if not any(costs.values()):
        raise ValueError(
            f"{metrics_jsonl} holds no line with a loss, so there is no curve to draw."
        )
    scores = validation.get(score) if score else None
    figure = Figure(
        figsize=(7.2, 5.6 if scores else 3.4),
        dpi=150,
        facecolor="white",
        layout=ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.1, hspace=0.05),
    )
    FigureCanvasAgg(figure)
    panels = figure.subplots(2 if scores else 1, sharex=True, squeeze=False)[:, 0]
    _draw_costs(panels[0], costs)
    if scores:
        _draw_score(panels[1], scores, str(score))
    panels[-1].set_xlabel("step", color=_MUTED, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")


def learning_curves(
    records: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, Series], dict[str, Series]]:
    """Series of training and of validation, from the records of a log.

    A validation is a record whose ``event`` is ``validation``, or that keeps its
    numbers under the name ``validation``; every other one with a loss belongs to
    training. Where a step comes twice, because a run was resumed before it, the later
    one counts.

    What can be compared is called ``nll`` on both sides, the cost of a token without
    label smoothing and without what else training adds. A record that does not name it
    has a loss that is one: so older logs have their validations.

    Args:
        records: Oldest first; one without a step is left out.

    Returns:
        Name to steps and values, of training and of validation; a number that is null
        or not finite is NaN.
    """
    training: dict[int, Mapping[str, Any]] = {}
    validation: dict[int, Mapping[str, Any]] = {}
    for record in records:
        if "step" not in record:
            continue
        nested = record.get("validation")
        if isinstance(nested, dict):
            validation[record["step"]] = _with_cost(nested)
        if record.get("event") == "validation":
            validation[record["step"]] = _with_cost(record)
        elif "loss" in record:
            training[record["step"]] = _with_cost(record)
    return _series(training), _series(validation)


def _with_cost(record: Mapping[str, Any]) -> Mapping[str, Any]:
    if COST in record or "loss" not in record:
        return record
    return {COST if name == "loss" else name: value for name, value in record.items()}


def _records(path: Path) -> list[dict[str, Any]]:
    parsed = map(_parse, path.read_text(encoding="utf-8").split("\n"))
    return [record for record in parsed if record is not None]


def _parse(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


def _series(records: Mapping[int, Mapping[str, Any]]) -> dict[str, Series]:
    series: dict[str, Series] = {}
    for step, record in sorted(records.items()):
        for name, value in record.items():
            number = math.nan if value is None else value
            if isinstance(number, int | float) and name != "step":
                steps, values = series.setdefault(name, ([], []))
                steps.append(step)
                values.append(number if math.isfinite(number) else math.nan)
    return series


def _draw_costs(axes: Axes, costs: Mapping[str, Series | None]) -> None:
    _prepare(axes, "nll (nats per token)")
    if train := costs["train"]:
        axes.plot(*train, color=_TRAIN, linewidth=1.6, label="train")
    if validation := costs["validation"]:
        _draw_points(axes, validation, _VALIDATION, "validation")
    axes.legend(
        frameon=False,
        labelcolor=_INK,
        fontsize=9,
        loc="lower right",
        bbox_to_anchor=(1.0, 0.98),  # above the curves
        ncols=2,
    )


def _draw_score(axes: Axes, scores: Series, name: str) -> None:
    _prepare(axes, f"validation {name}")
    _draw_points(axes, scores, _SCORE, name)
    steps, values = scores
    if np.isnan(values).all():
        return
    best = int(np.nanargmax(values))
    axes.plot(steps[best], values[best], "o", color=_SCORE, markersize=8)
    best_text = f"best {values[best]:.4g} at step {steps[best]:,}"
    # Above the panel: inside it, some curve would cross it.
    axes.set_title(best_text, loc="right", color=_INK, fontsize=9)


def _draw_points(axes: Axes, series: Series, color: str, label: str) -> None:
    axes.plot(
        *series,
        color=color,
        linewidth=2.0,
        marker="o",
        markersize=4.5,
        markeredgecolor="white",
        label=label,
    )


def _prepare(axes: Axes, label: str) -> None:
    axes.set_ylabel(label, color=_MUTED, fontsize=9)
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.tick_params(length=0, labelsize=9, labelcolor=_MUTED)
    axes.margins(y=0.08)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#c9ced6")
