"""Heatmaps: what they show, in which order, with which tokens."""

import subprocess
import sys
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from attnjax.diagnostics.attention_map import AttentionMap
from attnjax.diagnostics.attention_plot import plot_attention

SOURCE = ["▁Ein", "Hund", "$x$", "läuft", "</s>"]
TARGET = ["▁A", "dog", "</s>"]


def _weights(*shape):
    weights = np.random.default_rng(0).random(shape)
    return weights / weights.sum(-1, keepdims=True)


def _map(weights, keys=SOURCE, queries=TARGET, **named):
    weights = np.asarray(weights)
    weights = weights[None] if weights.ndim == 2 else weights
    return AttentionMap(weights=weights, queries=queries, keys=keys, **named)


def _labels(ticks):
    return [label.get_text() for label in ticks]


def _mesh(axes):
    return axes.collections[0].get_array()


def test_cells_and_tokens_are_those_that_were_given(tmp_path, saved_figures):
    weights = _weights(3, 5)
    path = tmp_path / "new" / "picture.png"
    plot_attention(_map(weights), path, "sentence 1", ["Ein Hund", "A $dog$"])

    (figure,) = saved_figures
    axes = figure.axes[0]
    np.testing.assert_allclose(_mesh(axes), weights, rtol=1e-6)
    assert _labels(axes.get_xticklabels()) == SOURCE
    assert _labels(axes.get_yticklabels()) == TARGET
    assert axes.get_yticks().tolist() == [0, 1, 2]
    assert axes.yaxis_inverted()
    assert figure.get_suptitle() == "sentence 1\nEin Hund\nA $dog$"
    assert axes.get_ylabel() == "target (queries)"
    assert figure.get_supxlabel() == "source (keys)"
    assert axes.get_xlabel() == ""
    assert axes.collections[0].get_clim() == (0.0, pytest.approx(weights.max()))
    assert path.read_bytes().startswith(b"\x89PNG")


def test_heads_are_panels_of_one_scale(tmp_path, saved_figures):
    weights = _weights(5, 3, 5)
    plot_attention(_map(weights), tmp_path / "heads.png")
    panels = saved_figures[0].axes[:5]
    for head, axes in enumerate(panels):
        np.testing.assert_allclose(_mesh(axes), weights[head], rtol=1e-6)
        assert axes.get_xlabel() == f"head {head}"
        assert axes.collections[0].get_clim() == (0.0, pytest.approx(weights.max()))
    assert [bool(_labels(axes.get_yticklabels())) for axes in panels] == [
        *(True, False, False, False),
        True,
    ]


def test_an_svg_keeps_its_texts_and_comes_out_the_same_twice(tmp_path):
    source = ["▁Ein", "<b>&", "$x$", "\x00a\xa0b", "我\ue000\ud800</s>"]
    paths = [tmp_path / "new" / "one.svg", tmp_path / "two.SVG"]
    for path in paths:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plot_attention(_map(_weights(2, 3, 5), source), path, "sentence <1>")
    root = ElementTree.parse(paths[0]).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = ["".join(node.itertext()) for node in root.iter(f"{root.tag[:-3]}text")]
    assert texts[:5] == ["▁Ein", "<b>&", "$x$", " a b", "我\ue000\ufffd</s>"]
    assert {*TARGET, "head 0", "head 1", "sentence <1>"} <= set(texts)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_cells_of_a_long_sentence_are_a_bitmap_in_an_svg(tmp_path):
    long = [f"w{position}" for position in range(101)]
    path = tmp_path / "long.svg"
    plot_attention(_map(_weights(101, 101), long, long), path)
    text = path.read_text()
    assert "<image" in text
    assert ">w100</text>" in text
    assert len(text) < 1_000_000


@pytest.mark.parametrize("name", ["picture", "picture.jpg", "picture.svg.gz"])
def test_other_kinds_of_picture_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"a PNG or an SVG, got the name .*picture"):
        plot_attention(_map(_weights(3, 5)), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_pixels_are_dark_where_the_weight_is(tmp_path):
    def dark_blue_centre(row, column):
        weights = np.zeros((2, 2))
        weights[row, column] = 1.0
        path = tmp_path / "picture.png"
        plot_attention(_map(weights, ["a", "b"], ["c", "d"]), path)
        red, _, blue, _ = np.moveaxis(imread(path), -1, 0)
        return np.mean(np.nonzero((blue - red > 0.2) & (blue < 0.5)), axis=-1)

    top_left, top_right = dark_blue_centre(0, 0), dark_blue_centre(0, 1)
    bottom_left = dark_blue_centre(1, 0)
    np.testing.assert_allclose(top_right[0], top_left[0], atol=1)
    np.testing.assert_allclose(bottom_left[1], top_left[1], atol=1)
    assert top_right[1] > top_left[1] + 10
    assert bottom_left[0] > top_left[0] + 10


@pytest.mark.parametrize("length", [1, 60])
def test_the_picture_grows_so_that_tokens_stay_legible(tmp_path, length):
    path = tmp_path / "picture.png"
    tokens = ["▁token"] * length
    plot_attention(_map(_weights(length, length), tokens, tokens), path)
    height, width, _ = imread(path).shape
    assert width >= length * 30
    assert height >= length * 30


def test_no_token_warns_and_formulas_stay_text(tmp_path, saved_figures):
    tokens = ["$\\frac$", "a$b", "\U0010fffd", "\n", "\x00", "a\xa0b"]
    path = tmp_path / "p.png"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_attention(_map(_weights(6, 6), tokens, tokens), path, "$title$")
    labels = saved_figures[0].axes[0].get_xticklabels()
    assert _labels(labels)[:2] == ["$\\frac$", "a$b"]
    assert _labels(labels)[2:] == ["□", " ", " ", "a b"]
    assert not any(label.get_parse_math() for label in labels)


def test_empty_rows_and_all_zero_weights_are_drawn(tmp_path, saved_figures):
    plot_attention(_map(np.zeros((3, 5))), tmp_path / "zero.png")
    assert saved_figures[0].axes[0].collections[0].get_clim() == (0.0, 1.0)


def test_drawing_leaves_pyplot_and_its_global_state_alone():
    code = (
        "import sys, attnjax.diagnostics.attention_plot, "
        "attnjax.diagnostics.learning_curve; "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
