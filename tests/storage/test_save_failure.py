"""What a run does when it cannot save, and when what it saved is damaged."""

import logging
import time

import chex
import pytest

from attnjax.config import TrainingConfig
from attnjax.storage.checkpoints import Checkpoints
from attnjax.storage.faults import StorageError
from attnjax.storage.manifest import DamagedCheckpointError
from attnjax.training.loop import train

SETTINGS = {
    "num_steps": 8,
    "log_every": 4,
    "evaluate_every": 8,
    "checkpoint_every": 2,
    "keep_checkpoints": 9,
}


class After:
    """A hook that does something after a given step."""

    def __init__(self, step, action):
        self.at, self.action = step, action

    def start(self, start):
        pass

    def step(self, step):
        if step == self.at:
            self.action()

    def log(self, record):
        pass

    def close(self):
        pass


@pytest.fixture
def run(tmp_path, linear_task, fake_batches, adam):
    """Trains in a folder, as the same command would again and again."""

    def run(*hooks, workdir=tmp_path / "run", **settings):
        config = TrainingConfig(**{**SETTINGS, **settings})
        return train(
            *(linear_task(), adam, fake_batches(), config),
            seed=3,
            workdir=workdir,
            hooks=hooks,
        )

    return run


@pytest.fixture
def disk(tmp_path):
    """The folder of checkpoints as a disk that can be taken away and put back."""

    class Disk:
        here, away = tmp_path / "run/checkpoints", tmp_path / "away"

        def take(self):
            while list(self.here.glob("*.orbax-checkpoint-tmp")):
                time.sleep(0.01)  # until the save under way is done
            self.here.rename(self.away)

        def put_back(self):
            self.away.rename(self.here)

    return Disk()


def test_a_lost_disk_ends_the_run(run, disk):
    with pytest.raises(StorageError, match=r"of step 6 .*: the folder does not exist"):
        run(After(5, disk.take))
    disk.put_back()
    assert run().step == 8


def test_training_goes_on_without_a_lost_disk_until_it_is_back(run, disk, tmp_path):
    hooks = [After(3, disk.take), After(7, disk.put_back)]
    result = run(*hooks, on_save_failure="continue")
    with Checkpoints(tmp_path / "run/checkpoints", None) as checkpoints:
        assert checkpoints.steps() == [2, 8]
    unbroken = run(workdir=tmp_path / "unbroken")
    chex.assert_trees_all_equal(result.state.params, unbroken.state.params)


def test_a_run_whose_last_save_failed_has_not_ended_well(run, disk):
    """Even if it was to go on: there is nothing left to go on with."""
    with pytest.raises(StorageError, match="of step 8 could not be written"):
        run(After(5, disk.take), on_save_failure="continue")


def test_a_save_that_failed_is_tried_again_at_the_end(run, disk, tmp_path):
    told = []

    class Repair(logging.Handler):
        def emit(self, record):
            told.append(record.getMessage())
            if "the checkpoint of step 8" in told[-1]:
                disk.put_back()

    repair = Repair(logging.ERROR)
    logging.getLogger("attnjax.storage.checkpoints").addHandler(repair)
    try:
        result = run(After(7, disk.take), on_save_failure="continue")
    finally:
        logging.getLogger("attnjax.storage.checkpoints").removeHandler(repair)
    assert result.step == 8
    assert ["score" in each for each in told] == [True, False]
    with Checkpoints(tmp_path / "run/checkpoints", None) as checkpoints:
        assert checkpoints.latest_step() == checkpoints.best_step() == 8


def test_a_failure_to_save_hides_no_other_one(run, disk, caplog):
    def fail():
        raise ZeroDivisionError

    hooks = [After(5, disk.take), After(7, fail)]
    with pytest.raises(ZeroDivisionError):
        run(*hooks, on_save_failure="continue")
    errors = [each for each in caplog.records if each.levelname == "ERROR"]
    told = [each for each in errors if "of step 6 could not" in each.getMessage()]
    assert len(told) == 2  # when it failed, and when the run ended


def test_a_damaged_checkpoint_costs_the_steps_since_the_one_before(
    run, tmp_path, caplog
):
    unbroken = run(workdir=tmp_path / "unbroken")
    run(num_steps=6)
    damaged = tmp_path / "run/checkpoints/6/state/_METADATA"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(DamagedCheckpointError, match="6 is damaged: state/_METADATA"):
        run(damaged_checkpoint="refuse")
    result = run()
    assert (
        "going on from step 4" in caplog.text or "Going back to the one" in caplog.text
    )
    chex.assert_trees_all_equal(result.state.params, unbroken.state.params)
    assert (tmp_path / "run/checkpoints/6.damaged").is_dir()
    assert (tmp_path / "run/checkpoints/6").is_dir()
