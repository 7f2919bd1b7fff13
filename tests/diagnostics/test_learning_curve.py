"""Learning curves from logs as they really look."""

import json

import numpy as np
import pytest

from attnjax.diagnostics.learning_curve import plot_learning_curve


@pytest.fixture
def draw(tmp_path, saved_figures):
    def run(*lines, score="bleu", tail=""):
        log = tmp_path / "metrics.jsonl"
        log.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
        path = tmp_path / "new" / "curve.png"
        plot_learning_curve(log, path, score=score)
        assert path.read_bytes().startswith(b"\x89PNG")
        return {
            line.get_label(): line.get_xydata().tolist()
            for axes in saved_figures[-1].axes
            for line in axes.lines
        }

    return run


@pytest.mark.parametrize(
    "validation",
    [
        {"step": 20, "validation": {"loss": 2.0, "bleu": 31.5}},
        {"step": 20, "event": "validation", "loss": 2.0, "bleu": 31.5, "timing": {}},
    ],
)
def test_both_forms_of_a_validation_are_read(draw, validation):
    curves = draw(
        {"step": 10, "event": "train", "loss": 4.0, "learning_rate": 1e-3},
        {"step": 20, "loss": 3.0, "timing": {"seconds": 1.0}},
        validation,
    )
    assert curves["train"] == [[10, 4.0], [20, 3.0]]
    assert curves["validation"] == [[20, 2.0]]
    assert curves["bleu"] == [[20, 31.5]]


def test_costs_of_both_sides_are_of_one_kind(draw, saved_figures):
    """Training's loss is smoothed, validation's is not: both are drawn by their nll."""
    curves = draw(
        {"step": 10, "event": "train", "loss": 1.379, "nll": 0.303, "accuracy": 0.9},
        {"step": 10, "event": "validation", "loss": 0.364, "bleu": 31.5},
        {"step": 20, "event": "train", "loss": 1.3, "nll": None},
        {"step": 20, "event": "validation", "nll": 0.35, "bleu": 31.5},
    )
    assert curves["train"][0] == [10, 0.303]
    assert np.isnan(curves["train"][1][1])
    assert curves["validation"] == [[10, 0.364], [20, 0.35]]
    assert saved_figures[0].axes[0].get_ylabel() == "nll (nats per token)"


def test_the_best_score_is_marked(draw, saved_figures):
    draw(
        {"step": 10, "validation": {"loss": 2.0, "bleu": 30.0}},
        {"step": 1200, "validation": {"loss": 2.0, "bleu": 31.5}},
        {"step": 1300, "validation": {"loss": 2.0, "bleu": 29.0}},
    )
    axes = saved_figures[0].axes[1]
    assert axes.lines[1].get_xydata().tolist() == [[1200, 31.5]]
    assert axes.get_title(loc="right") == "best 31.5 at step 1,200"


def test_texts_cross_no_curve(draw, saved_figures):
    """Neither a best score in the middle of others nor a cost that rises to the end."""
    scores = [30.0, 31.5, 31.4, 31.45, 31.0, 31.49]
    draw(
        *({"step": step, "loss": float(step)} for step in range(1, 7)),
        *(
            {"step": step, "validation": {"loss": float(step), "bleu": score}}
            for step, score in enumerate(scores, start=1)
        ),
    )
    figure = saved_figures[0]
    for axes in figure.axes:
        inside = axes.get_window_extent()
        legend = axes.get_legend()
        texts = [axes.title, axes._right_title, *axes.texts]
        texts += legend.get_texts() if legend else []
        for text in texts:
            if text.get_text():
                assert text.get_window_extent().y0 >= inside.y1, text


def test_a_resumed_run_and_a_torn_line_leave_one_value_per_step(draw):
    curves = draw(
        {"step": 10, "loss": 4.0},
        {"step": 30, "loss": 9.0},
        {"step": 20, "loss": 3.5},
        {"step": 30, "loss": 3.0},
        tail='{"step": 40, "lo',
    )
    assert curves["train"] == [[10, 4.0], [20, 3.5], [30, 3.0]]


def test_numbers_that_are_not_finite_are_gaps(draw):
    curves = draw(
        {"step": 10, "loss": 4.0},
        {"step": 20, "loss": None},
        {"step": 30, "loss": float("inf")},
        {"step": 30, "validation": {"loss": 2.0, "bleu": float("nan")}},
    )
    assert np.isnan([value for _, value in curves["train"]]).tolist() == [
        *(False, True, True),
    ]
    assert np.isnan(curves["bleu"][0][1])


@pytest.mark.parametrize("score", [None, "bleu"])
def test_without_scores_there_is_one_panel(draw, saved_figures, score):
    curves = draw({"step": 10, "loss": 4.0}, score=score)
    assert len(saved_figures[0].axes) == 1
    assert set(curves) == {"train"}


def test_a_log_without_a_loss_is_refused(draw):
    with pytest.raises(ValueError, match="no line with a loss"):
        draw({"step": 10, "accuracy": 0.5}, tail="[]\n3\nnonsense\n")
