"""All processes of a run have one folder and one config."""

import dataclasses
import runpy
from pathlib import Path

import pytest

from attnjax import experiment
from attnjax.experiment import RunFolder

ROOT = Path(__file__).parents[1]


@pytest.fixture
def described(tmp_path):
    made = runpy.run_path(str(ROOT / "configs" / "quickstart.py"))["experiment"]
    return dataclasses.replace(made, workdir=tmp_path / "run")


def test_a_folder_that_is_not_shared_is_refused(described):
    folder = RunFolder(described.workdir)
    with pytest.raises(ValueError, match="not the run folder of the first process"):
        experiment._require_claimed(folder, described)
    experiment._claim(folder, described)
    experiment._require_claimed(folder, described)


def test_another_config_than_the_first_ones_is_refused(described):
    folder = RunFolder(described.workdir)
    experiment._claim(folder, described)
    training = dataclasses.replace(described.training, num_steps=7)
    other = dataclasses.replace(described, training=training, seed=3)
    with pytest.raises(ValueError, match="training.num_steps: .* -> 7") as refused:
        experiment._require_claimed(folder, other)
    assert "seed: 0 -> 3" in str(refused.value)
