"""A stored average comes back bit for bit, or not at all, and disturbs no training."""

import os
import shutil
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.storage.averages import average_names, load_average, save_average
from attnjax.storage.checkpoints import Checkpoints
from attnjax.storage.manifest import DamagedCheckpointError
from attnjax.training.averaging import average_variables, steps_to_average
from attnjax.training.sharding import Layout


def variables(value=1.0, width=5, dtype=np.float32):
    return {
        "params": {"kernel": np.full((width, 2), value, dtype)},
        "statistics": {"rows": np.array(7, np.int32), "rng": jax.random.key(3)},
    }


@pytest.fixture
def folder(tmp_path):
    """Holds the average "last-2" of the steps 4 and 6."""
    folder = tmp_path / "averaged"
    save_average(
        folder, "last-2", variables(1 / 3), steps=[4, 6], scores={1: 9, 6: 0.1}
    )
    return folder


def test_an_average_comes_back_with_what_it_is_made_of(folder):
    found, average = load_average(folder, "last-2", variables())
    expected = variables(1 / 3)
    kernel = found["params"]["kernel"]
    assert np.asarray(kernel).tobytes() == expected["params"]["kernel"].tobytes()
    assert kernel.dtype == jnp.float32
    assert int(found["statistics"]["rows"]) == 7
    keys = [jax.random.key_data(v["statistics"]["rng"]) for v in (found, expected)]
    assert keys[0].tolist() == keys[1].tolist()
    assert (average.name, average.steps) == ("last-2", (4, 6))
    assert average.scores == {6: 0.1}


def test_an_average_lands_where_the_target_lies(folder):
    layout = Layout.over()
    placed, _ = load_average(folder, None, layout.place_state(variables()))
    assert placed["params"]["kernel"].sharding == layout.replicated
    single, _ = load_average(folder, None, jax.eval_shape(variables))
    assert len(single["params"]["kernel"].addressable_shards) == 1


def test_from_checkpoints_to_an_average_and_back(tmp_path):
    """The whole way; training sees its own newest step as before."""
    with Checkpoints(tmp_path / "checkpoints", 3) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, variables(step), {}, score=-step)
    target = variables()
    with Checkpoints(tmp_path / "checkpoints", None) as checkpoints:
        steps = steps_to_average(checkpoints, last=3)
        mean = average_variables(checkpoints.restore(s, target)[0] for s in steps)
        save_average(
            tmp_path / "averaged",
            "last-3",
            mean,
            steps=steps,
            scores=checkpoints.scores(),
        )
        assert checkpoints.latest_step() == 3
    found, average = load_average(tmp_path / "averaged", None, target)
    assert np.unique(found["params"]["kernel"]).tolist() == [2.0]
    assert average.scores == {1: -1.0, 2: -2.0, 3: -3.0}


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ({"width": 7}, "params.kernel: float32[5, 2] -> float32[7, 2]"),
        ({"dtype": jnp.bfloat16}, "params.kernel: float32[5, 2] -> bfloat16[5, 2]"),
    ],
)
def test_an_average_that_does_not_fit_is_refused(folder, target, line):
    with pytest.raises(ValueError, match="last-2 does not fit") as caught:
        load_average(folder, "last-2", variables(**target))
    assert line in str(caught.value)
    with pytest.raises(ValueError, match=r"statistics\.rows: int32\[\] not expected"):
        load_average(folder, "last-2", {"params": variables()["params"]})


def test_a_taken_name_is_refused_and_the_average_stays(folder):
    with pytest.raises(ValueError, match="'last-2' exists already.*another name"):
        save_average(folder, "last-2", variables(5.0), steps=[8], scores={})
    assert load_average(folder, "last-2", variables())[1].steps == (4, 6)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", ".hidden", "a b", "é"])
def test_a_name_that_is_no_plain_name_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"named by letters.*last-5 would do"):
        save_average(tmp_path / "averaged", name, variables(), steps=[1, 2], scores={})
    assert not (tmp_path / "averaged").exists()


def test_which_average_is_asked_for(folder, tmp_path):
    save_average(folder, "best-1", variables(), steps=[4], scores={})
    assert average_names(folder) == ["best-1", "last-2"]
    with pytest.raises(ValueError, match=r"2 averages.*\['best-1', 'last-2'\]"):
        load_average(folder, None, variables())
    with pytest.raises(FileNotFoundError, match=r"'last-9'.*\['best-1', 'last-2'\]"):
        load_average(folder, "last-9", variables())
    for absent in (tmp_path / "absent", tmp_path):
        with pytest.raises(FileNotFoundError, match="no average in .*attnjax average"):
            load_average(absent, None, variables())


@pytest.mark.parametrize("lost", ["variables/_METADATA", "manifest.json"])
def test_a_damaged_average_is_refused_by_the_name_of_the_file(folder, lost):
    (folder / "last-2" / lost).unlink()
    with pytest.raises(DamagedCheckpointError, match=f"last-2 is damaged: {lost} is"):
        load_average(folder, None, variables())
    assert average_names(folder) == ["last-2"]


def test_a_folder_of_another_kind_of_name_is_no_average(folder):
    for name in (".hidden", "a b", "é", "last-2~", "-x"):
        shutil.copytree(folder / "last-2", folder / name)
    assert average_names(folder) == ["last-2"]


def test_an_average_may_be_renamed(folder):
    (folder / "last-2").rename(folder / "final")
    assert load_average(folder, "final", variables())[1].name == "final"


def test_an_average_from_before_manifests_is_read_with_a_warning(folder, caplog):
    (folder / "last-2/manifest.json").unlink()
    (folder / "last-2/_CHECKPOINT_METADATA").write_text("{}")
    assert load_average(folder, "last-2", variables())[1].steps == (4, 6)
    assert "last-2 was saved before attnjax kept digests" in caplog.text
    (folder / "last-2/description/metadata").unlink()
    assert average_names(folder) == []
    with pytest.raises(FileNotFoundError, match="no average"):
        load_average(folder, "last-2", variables())


@pytest.mark.parametrize(
    "description",
    [
        '{"steps": [], "scores": {}}',
        '{"steps": 5, "scores": {}}',
        '{"steps": [1e999], "scores": {}}',
        '{"steps": [1], "scores": {"one": 1}}',
        '{"steps": [1], "scores": {"1": [1]}}',
        "[]",
        "{}",
    ],
)
def test_a_description_that_is_none_is_a_sentence(folder, description):
    (folder / "last-2/manifest.json").unlink()
    (folder / "last-2/_CHECKPOINT_METADATA").write_text("{}")
    (folder / "last-2/description/metadata").write_text(description)
    with pytest.raises(ValueError, match=r"last-2 cannot be read \(\w+: .*another one"):
        load_average(folder, "last-2", variables())


def test_a_half_written_average_is_none_and_can_be_written_again(folder):
    """As if the process had ended just before the name became the final one."""
    (folder / "last-2").rename(folder / "last-2.orbax-checkpoint-tmp")
    assert average_names(folder) == []
    save_average(folder, "last-2", variables(5.0), steps=[1, 2], scores={})
    assert average_names(folder) == ["last-2"]
    assert load_average(folder, None, variables())[1].steps == (1, 2)


def test_a_process_killed_while_saving_leaves_no_average(tmp_path):
    script = f"""
import os, signal
from pathlib import Path
import numpy as np
import orbax.checkpoint as ocp
from attnjax.storage.averages import save_average

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
ocp.CompositeCheckpointHandler.finalize = die
tree = {{"params": {{"kernel": np.ones((5, 2), np.float32)}}}}
save_average(Path({str(tmp_path)!r}), "last-2", tree, steps=[1, 2], scores={{}})
"""
    killed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, env=os.environ
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert list(tmp_path.iterdir())
    assert average_names(tmp_path) == []
    save_average(tmp_path, "last-2", variables(), steps=[1, 2], scores={})
    assert average_names(tmp_path) == ["last-2"]
