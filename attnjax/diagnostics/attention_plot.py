"""Heatmaps of attention weights, with the tokens on both axes."""

from __future__ import annotations

import itertools
import textwrap
import warnings
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

from attnjax.diagnostics.attention_map import AttentionMap
from attnjax.diagnostics.fonts import fonts_for

_INK = "#24292f"
_MUTED = "#6b7280"
_WEIGHTS = LinearSegmentedColormap.from_list(
    "attention", ["#f4f7fb", "#cfe1f5", "#8fbce8", "#4689cf", "#1f5aa0", "#0b2d5c"]
)
_CELL_INCHES = 0.24
_LONGEST_SIDE_INCHES = 40.0
_COLUMNS = 4  # panels beside each other, one for each head
_CHARACTER_INCHES = 0.085  # of the heading
_FEWEST_CHARACTERS = 40  # in a line of it
_MOST_SHAPES = 10_000  # of a panel in an SVG; one of more cells is a bitmap there
_SUFFIXES = (".png", ".svg")


def plot_attention(
    attention: AttentionMap,
    path: Path,
    title: str = "",
    sentences: Sequence[str] = (),
) -> None:
    """Draws where each query looked, as a picture.

    One cell per pair of tokens, the keys along the top, the queries down the side; with
    several heads, one panel each in one common colour scale, which runs from 0 to the
    largest weight. The picture grows with the sentences, so that tokens stay legible.

    Args:
        attention: Weights and texts.
        path: The file to write, ``.png`` or ``.svg`` (where text stays text, whatever
            fonts are installed here); its folder is made.
        title: A line above the picture.
        sentences: Texts below the title, such as the source and its translation, each
            from a line of its own on.

    Raises:
        ValueError: If the name ends otherwise.
    """
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ValueError(
            f"a picture of attention is a PNG or an SVG, got the name {path}; let it "
            f"end in one of {_SUFFIXES}."
        )
    families, texts = fonts_for(
        [*attention.keys, *attention.queries, *attention.heads, title, *sentences],
        is_svg=suffix == ".svg",
    )
    rest = iter(texts)
    keys, queries, heads = (
        list(itertools.islice(rest, len(part)))
        for part in (attention.keys, attention.queries, attention.heads)
    )
    weights_hts = np.asarray(attention.weights, np.float32)
    figure, panels = _panels(weights_hts.shape, keys, queries)
    largest = float(np.nanmax(weights_hts, initial=0.0))
    shades = Normalize(0.0, largest or 1.0)
    for head, axes in enumerate(panels):
        _draw_cells(axes, weights_hts[head], shades)
        _label_rows(axes, queries if head % _COLUMNS == 0 else [], families)
        _label_columns(axes, keys if head < _COLUMNS else [], families)
        _name_head(axes, heads[head], families)
        if head % _COLUMNS == 0:
            label = f"{attention.query_axis} (queries)"
            axes.set_ylabel(label, color=_MUTED, fontsize=10)
    figure.supxlabel(f"{attention.key_axis} (keys)", color=_MUTED, fontsize=10)
    _write_heading(figure, list(rest), families)
    _draw_scale(figure, panels, shades)
    _save(figure, path)


def _name_head(axes: Axes, name: str, families: Sequence[str]) -> None:
    axes.set_xlabel(name, labelpad=5)
    axes.xaxis.label.set(color=_MUTED, fontsize=9, fontfamily=list(families))
    axes.xaxis.label.set_parse_math(False)


def _write_heading(
    figure: Figure, texts: Sequence[str], families: Sequence[str]
) -> None:
    """The title and the sentences, in lines as long as the figure is wide."""
    most = max(_FEWEST_CHARACTERS, int(figure.get_figwidth() / _CHARACTER_INCHES))
    lines = [line for text in texts for line in textwrap.wrap(text, most)]
    if lines:
        figure.suptitle(
            "\n".join(lines),
            color=_INK,
            fontsize=11,
            fontfamily=families,
            parse_math=False,
        )


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = path.suffix.lower()
    # Without a date and with fixed names, the same weights give the same file.
    metadata = {"Date": None} if suffix == ".svg" else None
    with (
        rc_context({"svg.fonttype": "none", "svg.hashsalt": "attnjax"}),
        warnings.catch_warnings(),
    ):
        # Only measures are made with the fonts that are here; the viewer has its own.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(
            path,
            format=suffix[1:],
            bbox_inches="tight",
            pad_inches=0.2,
            metadata=metadata,
        )


def _panels(
    shape: tuple[int, ...], keys: Sequence[str], queries: Sequence[str]
) -> tuple[Figure, list[Axes]]:
    """A figure sized by its cells and labels, with one panel for each head."""
    heads, num_queries, num_keys = shape
    columns = min(heads, _COLUMNS)
    rows = -(-heads // columns)
    label_inches = 0.09
    width = columns * (num_keys * _CELL_INCHES + 0.3) + 1.0
    width += label_inches * max(map(len, queries))
    height = rows * (num_queries * _CELL_INCHES + 0.4) + 0.8
    height += label_inches * max(map(len, keys))
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
    num_queries, num_keys = weights.shape
    axes.pcolormesh(
        np.arange(num_keys + 1) - 0.5,
        np.arange(num_queries + 1) - 0.5,
        weights,
        cmap=_WEIGHTS,
        norm=shades,
        edgecolors="white",
        linewidth=0.8,
        rasterized=weights.size > _MOST_SHAPES,
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
