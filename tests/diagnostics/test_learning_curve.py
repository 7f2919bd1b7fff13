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


def test_the_best_score_is_marked(draw, saved_figures):
    draw(
        {"step": 10, "validation": {"loss": 2.0, "bleu": 30.0}},
        {"step": 1200, "validation": {"loss": 2.0, "bleu": 31.5}},
        {"step": 1300, "validation": {"loss": 2.0, "bleu": 29.0}},
    )
    (text,) = saved_figures[0].axes[1].texts
    assert text.get_text() == "best 31.5 at step 1,200"
    assert text.xy == (1200, 31.5)


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
