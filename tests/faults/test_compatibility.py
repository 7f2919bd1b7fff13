"""A run folder that attnjax 0.1 wrote opens in this version, and says the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from attnjax.runs.opening import open_run
from attnjax.runs.translation import translated_lines

GOLDEN = Path(__file__).parents[1] / "golden"
EXPECTED = json.loads((GOLDEN / "checkpoint_v0.1.json").read_text())


@pytest.fixture(scope="module")
def run():
    return open_run(GOLDEN / "checkpoint_v0.1")


def test_it_is_opened_verified_and_without_a_warning(caplog):
    run = open_run(GOLDEN / "checkpoint_v0.1")
    assert run.step == EXPECTED["step"]
    assert [each for each in caplog.records if each.name.startswith("attnjax")] == []


def test_it_gives_the_same_probabilities(run):
    ids = run.translator.encode_targets(EXPECTED["targets"])
    found = run.translator.score(run.variables, EXPECTED["sources"], ids)
    np.testing.assert_allclose(
        [each.log_probability for each in found],
        EXPECTED["log_probabilities"],
        rtol=1e-3,
        atol=1e-4,
    )


def test_it_gives_the_same_translations(run):
    found = translated_lines(run, EXPECTED["sources"])
    assert [line.hypotheses[0].text for line in found] == EXPECTED["translations"]


@pytest.mark.parametrize("checkpoint", ["latest", 600, "averaged", "averaged/last-1"])
def test_each_of_its_checkpoints_is_the_same_one(run, checkpoint):
    """There is but one step, and the average is of it alone."""
    other = open_run(GOLDEN / "checkpoint_v0.1", checkpoint=checkpoint)
    assert other.step == EXPECTED["step"]
    ours, theirs = (r.variables["params"] for r in (run, other))
    flat, expected = (
        np.concatenate([*map(np.ravel, leaves(p))]) for p in (theirs, ours)
    )
    np.testing.assert_array_equal(flat, expected)


def leaves(tree):
    if not hasattr(tree, "items"):
        return [np.asarray(tree)]
    return [leaf for _, branch in sorted(tree.items()) for leaf in leaves(branch)]
