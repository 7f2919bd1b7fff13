"""What lies beside the state in a checkpoint: read as if a stranger had written it."""

import dataclasses
import functools
import json
import logging
import shutil

import numpy as np
import pytest

from attnjax.config import TrainingConfig
from attnjax.storage.checkpoints import Checkpoints
from attnjax.storage.manifest import DamagedCheckpointError
from attnjax.training.anomalies import Guard
from attnjax.training.loop import train
from attnjax.training.progress import Progress
from attnjax.training.resumption import Resumption

SETTINGS = {
    "num_steps": 4,
    "log_every": 3,
    "evaluate_every": 9,
    "checkpoint_every": 2,
    "keep_checkpoints": 9,
}


class IdentifiedBatches:
    """Batches that know what they are made of, in the way of `TrainingBatches`."""

    def __init__(self, batches, **identity):
        self.batches, self.identity = batches, identity

    def __next__(self):
        return next(self.batches)

    def get_state(self):
        return {"identity": self.identity, **self.batches.get_state()}

    def set_state(self, state):
        self.batches.set_state(state)

    def differences(self, state):
        stored = state["identity"].items()
        return [
            f"data.{name}: {value} -> {self.identity[name]}"
            for name, value in stored
            if self.identity[name] != value
        ]


@pytest.fixture(scope="module")
def train_in(linear_task, fake_batches, adam):
    """Runs a session in a folder."""

    def train_in(workdir, task=None, corpus="a", **settings):
        return train(
            linear_task() if task is None else task,
            adam,
            IdentifiedBatches(fake_batches(), corpus=corpus, seed="0"),
            TrainingConfig(**{**SETTINGS, **settings}),
            seed=3,
            workdir=workdir,
        )

    return train_in


@pytest.fixture(scope="module")
def trained(tmp_path_factory, train_in):
    """A run folder with the steps 2 and 4, and its last state."""
    workdir = tmp_path_factory.mktemp("trained")
    return workdir, train_in(workdir).state


@pytest.fixture
def run(tmp_path, trained, train_in):
    """Goes on in a copy of it."""
    shutil.copytree(trained[0], tmp_path, dirs_exist_ok=True)
    return functools.partial(train_in, tmp_path)


@pytest.fixture
def change_extra(tmp_path, trained, run):
    """Saves the last checkpoint anew, under a manifest of its own."""

    def change_extra(change):
        state = dataclasses.replace(trained[1], guard=None)
        with Checkpoints(tmp_path / "checkpoints", 9) as checkpoints:
            _, extra = checkpoints.restore(4, state)
            checkpoints.discard_after(2)
            checkpoints.save(4, state, change(extra))

    return change_extra


def without(name):
    return lambda extra: {key: v for key, v in extra.items() if key != name}


def with_(**values):
    return lambda extra: {**extra, **values}


def with_progress(**values):
    return lambda extra: {**extra, "progress": {**extra["progress"], **values}}


HOSTILE = {
    "no batches": without("batches"),
    "no progress": without("progress"),
    "no window": without("window"),
    "nothing": lambda extra: {},
    "batches of another kind": with_(batches=[1]),
    "batches without identity": with_(batches={"position": 2}),
    "no position": with_(batches={"identity": {"corpus": "a", "seed": "0"}}),
    "progress of another kind": with_(progress=[1, 2]),
    "unknown progress": with_progress(speed=7),
    "scores of another kind": with_progress(scores=7),
    "seconds of another kind": with_progress(seconds=[1.0]),
    "endless step": with_progress(evaluated_step=float("inf")),
    "window of another kind": with_(window=7),
    "empty window": with_(window={}),
    "numbers of another kind": with_(window={"gradient_norm": [[1, 2], 3]}),
    "bad steps of another kind": with_(guard={"bad_steps": ["x"]}),
    "norm of another kind": with_(guard={"usual_norm": [1, 2]}),
    "too large a number": with_(guard={"num_norms": 10**20}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_values_that_we_never_wrote_are_a_sentence(run, change_extra, tmp_path, name):
    change_extra(HOSTILE[name])
    with pytest.raises(DamagedCheckpointError) as caught:
        run(damaged_checkpoint="refuse")
    message = str(caught.value)
    assert message.startswith(f"the checkpoint {tmp_path}/checkpoints/4 is damaged: ")
    assert message.endswith("restore it from a copy, or use another one.")
    assert len(message) < 500


def test_values_that_do_not_say_where_the_data_stand_cost_one_checkpoint(
    run, change_extra, tmp_path, caplog
):
    change_extra(without("batches"))
    with caplog.at_level(logging.WARNING):
        assert run().step == 4
    assert "Going back to the one before it" in caplog.text
    assert (tmp_path / "checkpoints/4.damaged").is_dir()


def test_one_message_names_data_and_leaves_alike(run, linear_task):
    class Wider(linear_task):
        def init(self, rng):
            variables = super().init(rng)
            variables["params"]["bias"] = np.zeros(5, np.float32)
            return variables

    with pytest.raises(ValueError, match="does not fit") as caught:
        run(Wider(), corpus="b")
    message = str(caught.value)
    assert "data.corpus: a -> b;" in message
    assert "data.seed" not in message
    assert "params.bias: float32[2] -> float32[5];" in message
    assert "optimizer_state" in message
    with pytest.raises(
        ValueError, match=r"\(stored -> expected\):\n  data.corpus: a -> c"
    ):
        run(corpus="c")
    assert run(num_steps=5).step == 5  # and nothing was lost by asking


def test_all_of_it_comes_back_exactly():
    guard = Guard(max_bad_steps=3)
    progress = Progress(
        {"bleu": 1 / 3}, 4, 0.7, 2, 1, 3.25, 0.5, {3: 0.25}, 1 / 3, "bleu"
    )
    window = {"gradient_norm": [0.1, 3.0], "skipped_steps": [1.0, 3.0]}
    stored = {
        "batches": {"position": 7},
        "progress": progress.to_json(),
        "window": {
            name: [float(np.float32(x)) for x in v] for name, v in window.items()
        },
        "guard": {"bad_steps": [0, 5, 9], "usual_norm": 0.25, "num_norms": 8},
    }
    for each in (stored, {**stored, "window": None}):
        read = Resumption.of(json.loads(json.dumps(each)), guard)
        assert read.to_json() == each
        assert read.progress == progress


def test_what_older_versions_left_out_has_its_meaning():
    stored = {
        "batches": {},
        "progress": {"seconds": 2},
        "window": {"gradient_norm": [0.5, 3.0]},
    }
    read = Resumption.of(stored, Guard(max_bad_steps=2))
    assert read.window.to_json()["skipped_steps"] == [0.0, 3.0]
    assert read.guard.bad_steps.tolist() == [0, 0]
    assert read.progress == Progress(seconds=2.0)
