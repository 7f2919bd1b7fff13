"""Scores, patience, and their way through a checkpoint."""

import json
import math

import pytest

from attnjax.training.progress import Progress


def after(*scores):
    progress = Progress()
    for step, score in enumerate(scores, start=1):
        progress.note(step, {"bleu": score}, score)
    return progress


@pytest.mark.parametrize(
    ("scores", "best", "step", "stale"),
    [
        ([], None, None, 0),
        ([2.0, 3.0], 3.0, 2, 0),
        ([3.0, 2.0, 3.0], 3.0, 1, 2),
        ([-5.0, -4.0, -6.0], -4.0, 2, 1),
        ([math.nan, 1.0, math.nan], 1.0, 2, 1),
        ([math.nan, math.nan], None, None, 2),
        ([1.0, math.inf], 1.0, 1, 1),
    ],
)
def test_only_a_better_finite_score_is_the_best(scores, best, step, stale):
    progress = after(*scores)
    assert progress.best_score == best
    assert progress.best_step == step
    assert progress.stale_evaluations == stale
    assert progress.evaluated_step == len(scores)


def test_it_survives_json():
    progress = after(1.0, 0.5)
    progress.seconds, progress.window_seconds = 1 / 3, 0.1
    stored = json.loads(json.dumps(progress.to_json()))
    assert Progress.from_json(stored) == progress
