"""A save copies the state and lets training go on; nothing of its promises is lost."""

import threading

import numpy as np
import pytest

from attnjax.config import TrainingConfig
from attnjax.storage import commit
from attnjax.storage.checkpoints import Checkpoints
from attnjax.training.loop import train

SETTINGS = {
    "num_steps": 6,
    "log_every": 6,
    "evaluate_every": 6,
    "checkpoint_every": 3,
    "keep_checkpoints": 9,
}
PATIENCE_SECONDS = 30


class Commits:
    """Stands before each manifest until it may be written; remembers the threads."""

    def __init__(self, monkeypatch):
        self.may_go_on = threading.Event()
        self.threads, self.waited = [], []
        write = commit.write_manifest

        def wait_and_write(*arguments):
            self.threads.append(threading.current_thread())
            self.waited.append(self.may_go_on.wait(PATIENCE_SECONDS))
            write(*arguments)

        monkeypatch.setattr(commit, "write_manifest", wait_and_write)


@pytest.fixture
def commits(monkeypatch):
    return Commits(monkeypatch)


class Steps:
    """A hook that does something after each step."""

    def __init__(self, action):
        self.step = action

    def start(self, start):
        pass

    def log(self, record):
        pass

    def close(self):
        pass


def test_training_goes_on_while_a_save_is_under_way(
    tmp_path, commits, linear_task, fake_batches, adam
):
    seen = {}

    def look(step):
        seen[step] = sorted(path.name for path in (tmp_path / "checkpoints").glob("3*"))
        if step == 5:
            commits.may_go_on.set()

    parts = linear_task(), adam, fake_batches(), TrainingConfig(**SETTINGS)
    train(*parts, seed=3, workdir=tmp_path, hooks=[Steps(look)])
    assert seen[5] == ["3.orbax-checkpoint-tmp"]
    assert commits.waited == [True, True]
    assert threading.main_thread() not in commits.threads
    with Checkpoints(tmp_path / "checkpoints", None) as checkpoints:
        assert checkpoints.steps() == [3, 6]  # the end has waited for its own


def test_the_next_save_waits_for_the_one_before(tmp_path, commits):
    timer = threading.Timer(0.5, commits.may_go_on.set)
    with Checkpoints(tmp_path, 9) as checkpoints:
        checkpoints.save(1, {"kernel": np.zeros(5)}, {})
        assert not (tmp_path / "1").exists()
        timer.start()
        checkpoints.save(2, {"kernel": np.ones(5)}, {})
        assert (tmp_path / "1").exists()
    assert (tmp_path / "2").exists()


def test_an_array_of_the_host_may_change_once_save_returns(tmp_path, commits):
    kernel = np.zeros(5)
    with Checkpoints(tmp_path, 9) as checkpoints:
        checkpoints.save(1, {"kernel": kernel}, {})
        kernel += 1.0
        commits.may_go_on.set()
        restored, _ = checkpoints.restore(1, {"kernel": kernel})
    assert not restored["kernel"].any()
