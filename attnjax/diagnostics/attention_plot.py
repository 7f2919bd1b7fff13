"""Heatmaps of attention weights, with the tokens on both axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.text import Text

from attnjax.diagnostics.fonts import fonts_for
from attnjax.types import Array

_INK = "#24292f"
_MUTED = "#6b7280"
_WEIGHTS = LinearSegmentedColormap.from_list(
    "attention", ["#f4f7fb", "#cfe1f5", "#8fbce8", "#4689cf", "#1f5aa0", "#0b2d5c"]
)
_CELL_INCHES = 0.24
_LONGEST_SIDE_INCHES = 40.0
_COLUMNS = 4  # panels beside each other, one for each head
_SUFFIXES = (".png", ".svg")


def plot_attention(
    weights: Array,
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    path: Path,
    title: str = "",
) -> None:
    """Draws where each target token looked, as a picture.

    One cell per pair of tokens, the source along the top, the target down the side;
    with heads, one panel each in one common colour scale, which runs from 0 to the
    largest weight. The picture grows with the sentences, so that tokens stay legible.

    Args:
        weights: ``[T, S]`` or ``[H, T, S]``.
        source_pieces: S tokens as text.
        target_pieces: T tokens as text.
        path: The file to write, ``.png`` or ``.svg`` (where text stays text); its
            folder is made.
        title: A line above the picture.

    Raises:
        ValueError: If the weights do not fit the tokens, there are no tokens, or the
            name ends otherwise.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise ValueError(
            f"a picture of attention is a PNG or an SVG, got the name {path}; let it "
            f"end in one of {_SUFFIXES}."
        )
    weights_hts = np.asarray(weights, np.float32)
    weights_hts = weights_hts[None] if weights_hts.ndim == 2 else weights_hts
    expected = (len(target_pieces), len(source_pieces))
    if weights_hts.ndim != 3 or weights_hts.shape[1:] != expected or not all(expected):
        raise ValueError(
            f"weights must be [T, S] or [H, T, S] with T, S = {expected} tokens, at "
            f"least one each; got shape {np.shape(weights)}."
        )
    families, texts = fonts_for([*source_pieces, *target_pieces, title])
    source_texts, target_texts = texts[: expected[1]], texts[expected[1] : -1]
    figure, panels = _panels(weights_hts.shape, source_texts, target_texts)
    largest = float(np.nanmax(weights_hts, initial=0.0))
    shades = Normalize(0.0, largest or 1.0)
    for head, axes in enumerate(panels):
        _draw_cells(axes, weights_hts[head], shades)
        _label_rows(axes, target_texts if head % _COLUMNS == 0 else [], families)
        _label_columns(axes, source_texts if head < _COLUMNS else [], families)
        if len(panels) > 1:
            axes.set_xlabel(f"head {head + 1}", color=_MUTED, fontsize=9, labelpad=5)
    if texts[-1]:
        figure.suptitle(
            texts[-1], color=_INK, fontsize=12, fontfamily=families, parse_math=False
        )
    _draw_scale(figure, panels, shades)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = path.suffix.lower()
    # Without a date and with fixed names, the same weights give the same file.
    metadata = {"Date": None} if suffix == ".svg" else None
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "attnjax"}):
        figure.savefig(
            path,
            format=suffix[1:],
            bbox_inches="tight",
            pad_inches=0.2,
            metadata=metadata,
        )


def _panels(
    shape: tuple[int, ...], source_texts: Sequence[str], target_texts: Sequence[str]
) -> tuple[Figure, list[Axes]]:
    """A figure sized by its cells and labels, with one panel for each head."""
    heads, num_targets, num_sources = shape
    columns = min(heads, _COLUMNS)
    rows = -(-heads // columns)
    label_inches = 0.09
    width = columns * (num_sources * _CELL_INCHES + 0.3) + 1.0
    width += label_inches * max(map(len, target_texts))
    height = rows * (num_targets * _CELL_INCHES + 0.4) + 0.8
    height += label_inches * max(map(len, source_texts))
    shrink = min(1.0, _LONGEST_SIDE_INCHES / max(width, height))
    figure = Figure(
        figsize=(width * shrink, height * shrink),
        dpi=150,
        facecolor="white",
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    panels = [figure.add_subplot(rows, columns, head + 1) for head in range(heads)]
    return figure, panels


def _draw_cells(axes: Axes, weights: np.ndarray, shades: Normalize) -> None:
    num_targets, num_sources = weights.shape
    axes.pcolormesh(
        np.arange(num_sources + 1) - 0.5,
        np.arange(num_targets + 1) - 0.5,
        weights,
        cmap=_WEIGHTS,
        norm=shades,
        edgecolors="white",
        linewidth=0.8,
    )
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=3)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _label_rows(axes: Axes, texts: Sequence[str], families: Sequence[str]) -> None:
    axes.set_yticks(range(len(texts)), texts)
    _style(axes.get_yticklabels(), families)


def _label_columns(axes: Axes, texts: Sequence[str], families: Sequence[str]) -> None:
    axes.set_xticks(range(len(texts)), texts)
    labels = axes.get_xticklabels()
    _style(labels, families)
    for label in labels:
        label.set(rotation=60, ha="left", va="bottom", rotation_mode="anchor")


def _style(labels: Sequence[Text], families: Sequence[str]) -> None:
    for label in labels:
        # A token such as $ is text, not the start of a formula.
        label.set(color=_INK, fontsize=9, fontfamily=list(families), parse_math=False)


def _draw_scale(figure: Figure, panels: Sequence[Axes], shades: Normalize) -> None:
    length, thickness_inches = 0.6, 0.13
    bar = figure.colorbar(
        ScalarMappable(shades, _WEIGHTS),
        ax=panels,
        shrink=length,
        aspect=max(10.0, length * figure.get_figheight() / thickness_inches),
        pad=0.02,
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=_MUTED)
    bar.set_label("attention weight", color=_MUTED, fontsize=9)
