"""What Orbax would do in silence is loud here, and the best is never lost."""

import dataclasses
import json
import logging
import math
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from attnjax.config import OptimizerConfig
from attnjax.storage import commit
from attnjax.storage.checkpoints import Checkpoints
from attnjax.storage.manifest import DamagedCheckpointError
from attnjax.training.optimizers import make_optimizer
from attnjax.training.sharding import Layout
from attnjax.training.state import TrainState, init_state


def tree(value=0.0, num_layers=3, width=5, dtype=jnp.float32):
    layers = {
        f"layer_{i}": {"kernel": jnp.full((width, 2), value, dtype)}
        for i in range(num_layers)
    }
    return {"layers": layers, "rng": jax.random.key(7)}


def value_of(state):
    return float(state["layers"]["layer_0"]["kernel"][0, 0])


def save_all(folder, scores, keep=2):
    """Saves step 1, 2, ... with these scores; the value of a step is its number."""
    with Checkpoints(folder, keep) as checkpoints:
        for step, score in enumerate(scores, start=1):
            checkpoints.save(step, tree(step), {"number": step}, score)


@pytest.fixture
def saved(tmp_path):
    """A folder with the steps 1, 2, 3 and no scores."""
    save_all(tmp_path, [None, None, None], keep=9)
    return tmp_path


def test_a_whole_state_comes_back_bit_for_bit(tmp_path, linear_task, adam):
    layout = Layout.over()
    state = layout.place_state(init_state(linear_task(), adam, 3))
    extra = {"batches": {"epoch": 2, "order": [3, 1]}, "third": 1 / 3, "none": None}
    with Checkpoints(tmp_path, 2) as checkpoints:
        checkpoints.save(4, state, extra)
    with Checkpoints(tmp_path, None) as checkpoints:
        restored, found = checkpoints.restore(4, state)
    assert found == extra
    chex.assert_trees_all_equal(
        jax.random.key_data(restored.rng), jax.random.key_data(state.rng)
    )
    bits = [
        [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(each.replace(rng=()))]
        for each in (state, restored)
    ]
    assert bits[0] == bits[1]
    assert restored.params["kernel"].sharding == layout.replicated


def test_an_absent_part_of_a_state_leaves_no_trace(tmp_path, linear_task, adam):
    """Runs from before the part existed go on, and Orbax stores no None."""
    state = init_state(linear_task(), adam, 3)
    fields = ("step", "params", "model_state", "optimizer_state", "rng")
    older = {name: getattr(state, name) for name in fields}
    with Checkpoints(tmp_path, 2) as checkpoints:
        checkpoints.save(1, older, {})
        checkpoints.save(2, state, {})
        restored, _ = checkpoints.restore(1, state)
        assert set(checkpoints.restore(2, older)[0]) == set(fields)
    assert type(restored) is type(state)
    assert restored.ema is None
    chex.assert_trees_all_equal(restored.params, state.params)
    stored = [(tmp_path / step / "state/_METADATA").read_text() for step in "12"]
    assert stored[0] == stored[1]


def test_scores_are_of_the_steps_there_are(tmp_path):
    with Checkpoints(tmp_path, 2) as checkpoints:
        for step, score in enumerate([5.0, 1.0, math.nan, 3.0], start=1):
            checkpoints.save(step, tree(step), {}, score)
        assert checkpoints.steps() == [1, 3, 4]
        assert checkpoints.scores() == {1: 5.0, 4: 3.0}
    with Checkpoints(tmp_path, None) as checkpoints:
        assert checkpoints.scores() == {1: 5.0, 4: 3.0}


def test_a_donated_state_is_saved_as_it_was(tmp_path):
    """Saving goes on in the background while training overwrites the arrays."""
    grow = jax.jit(lambda leaf: leaf + 1, donate_argnums=0)
    array = grow(jnp.zeros((1000, 1000)))
    with Checkpoints(tmp_path, 9) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, {"array": array}, {})
            for _ in range(5):
                array = grow(array)
        for step, expected in ((1, 1.0), (2, 6.0)):
            restored, _ = checkpoints.restore(step, {"array": array})
            assert np.unique(restored["array"]).tolist() == [expected]


def test_an_abstract_target_lands_on_one_device(saved):
    with Checkpoints(saved, None) as checkpoints:
        state, _ = checkpoints.restore(None, jax.eval_shape(tree))
    assert len(state["layers"]["layer_0"]["kernel"].addressable_shards) == 1


def test_restore_by_number_latest_and_best(tmp_path):
    save_all(tmp_path, [1.0, 3.0, 2.0], keep=9)
    with Checkpoints(tmp_path, None) as checkpoints:
        found = [checkpoints.restore(which, tree()) for which in (1, None, "best")]
    assert [value_of(state) for state, _ in found] == [1.0, 3.0, 2.0]
    assert [extra["number"] for _, extra in found] == [1, 3, 2]


@pytest.mark.parametrize(
    ("scores", "best", "kept"),
    [
        ([5.0, 1.0, 2.0, 3.0], 1, [1, 3, 4]),
        ([1.0, math.nan, 0.5, math.nan], 1, [1, 3, 4]),
        ([1.0, math.inf, 0.5, -math.inf], 1, [1, 3, 4]),
        ([math.nan, math.nan, None, None], None, [3, 4]),
        ([None, None, None, None], None, [3, 4]),
        ([1.0, 2.0, 2.0, None], 2, [2, 3, 4]),
        ([1.0, 2.0, None, 7.0], 4, [3, 4]),
        ([-3.0, -1.0, -2.0, -2.0], 2, [2, 3, 4]),
    ],
)
def test_the_latest_and_the_best_are_kept(tmp_path, scores, best, kept):
    save_all(tmp_path, scores, keep=2)
    with Checkpoints(tmp_path, 2) as checkpoints:
        assert checkpoints.best_step() == best
        assert checkpoints.steps() == kept
        assert checkpoints.latest_step() == 4


def test_the_best_survives_reopening(tmp_path):
    save_all(tmp_path, [9.0, 1.0], keep=1)
    with Checkpoints(tmp_path, 1) as checkpoints:
        for step in (3, 4):
            checkpoints.save(step, tree(step), {}, 2.0)
        assert checkpoints.steps() == [1, 4]
        assert checkpoints.best_step() == 1


def test_a_saved_step_can_be_scored_later(saved):
    with Checkpoints(saved, 2) as checkpoints:
        checkpoints.set_score(2, 8.0)
    with Checkpoints(saved, 1) as checkpoints:
        assert checkpoints.best_step() == 2
        checkpoints.save(4, tree(), {})
        assert checkpoints.steps() == [2, 4]


@pytest.mark.parametrize("step", [1, 3])
def test_an_existing_or_older_step_is_refused_aloud(saved, step):
    with (
        Checkpoints(saved, 9) as checkpoints,
        pytest.raises(ValueError, match=rf"step {step}.*step 3 exists.*discard_after"),
    ):
        checkpoints.save(step, tree(), {})


def test_after_going_back_saving_works_again(saved):
    """Roll back two steps, save once more: no stale cache refuses it."""
    with Checkpoints(saved, 9) as checkpoints:
        checkpoints.set_score(3, 5.0)
        checkpoints.discard_after(1)
        assert checkpoints.steps() == [1]
        assert checkpoints.best_step() is None
        checkpoints.save(2, tree(22.0), {})
        checkpoints.save(3, tree(33.0), {})
    with Checkpoints(saved, None) as checkpoints:
        found = [value_of(checkpoints.restore(s, tree())[0]) for s in (1, 2, 3)]
        assert found == [1.0, 22.0, 33.0]
        assert checkpoints.best_step() is None


def test_a_half_written_step_is_skipped_with_a_message(saved, caplog):
    shutil.copytree(saved / "3", saved / "4.orbax-checkpoint-tmp")
    with caplog.at_level(logging.WARNING), Checkpoints(saved, 9) as checkpoints:
        assert checkpoints.latest_step() == 3
        checkpoints.save(4, tree(4.0), {})
        assert checkpoints.steps() == [1, 2, 3, 4]
    assert "step 4" in caplog.text
    assert "never completed" in caplog.text


def test_files_of_others_keep_nobody_from_anything(saved):
    """File managers and backup programs leave theirs in every folder, disks too."""
    for folder in [saved, *saved.rglob("*/")]:
        (folder / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
        (folder / "notes (1).txt").write_text("mine")
    (saved / "9").write_text("no folder")
    (saved / "lost+found").mkdir()
    with Checkpoints(saved, 2) as checkpoints:
        assert checkpoints.resume(tree()).step == 3
        checkpoints.save(4, tree(4.0), {})
        assert checkpoints.steps() == [3, 4]
    assert (saved / "9").read_text() == "no folder"


def before_manifests(step_folder):
    """Makes of a checkpoint what it was in versions that wrote no manifest."""
    (step_folder / "manifest.json").unlink()
    metadata = step_folder / "_CHECKPOINT_METADATA"
    stored = json.loads(metadata.read_text())
    metadata.write_text(json.dumps({**stored, "custom_metadata": {}}))


LOST = ["state/_METADATA", "extra/metadata", "manifest.json", "commit_success.txt"]


@pytest.mark.parametrize("lost", LOST)
def test_the_one_before_a_damaged_step_takes_its_place(saved, caplog, lost):
    (saved / "3" / lost).unlink()
    with Checkpoints(saved, None) as reader:
        assert reader.resume(tree()).step == 2
        assert value_of(reader.restore(None, tree())[0]) == 2.0
        with pytest.raises(DamagedCheckpointError, match=f"3 is damaged: {lost} is"):
            reader.restore(3, tree())
    assert (saved / "3").exists()
    caplog.clear()
    with Checkpoints(saved, 9) as checkpoints:
        found = checkpoints.resume(tree())
        assert (found.step, value_of(found.state), found.extra["number"]) == (2, 2.0, 2)
        assert checkpoints.steps() == [1, 2]
        checkpoints.save(3, tree(33.0), {})
        assert value_of(checkpoints.restore(None, tree())[0]) == 33.0
    assert f"{lost} is missing" in caplog.text
    assert "now called 3.damaged" in caplog.text
    assert (saved / "3.damaged").is_dir()


def test_a_damaged_step_is_refused_where_that_is_the_policy(saved):
    (saved / "3/extra/metadata").write_text("{}")
    with (
        Checkpoints(saved, 9, damaged="refuse") as checkpoints,
        pytest.raises(DamagedCheckpointError, match="extra/metadata has 2 bytes"),
    ):
        checkpoints.resume(tree())
    assert (saved / "3").is_dir()


def test_where_all_are_damaged_nothing_begins_anew(saved):
    for step in "123":
        (saved / step / "extra/metadata").unlink()
    with (
        Checkpoints(saved, 9) as checkpoints,
        pytest.raises(DamagedCheckpointError, match="/1 is damaged"),
    ):
        checkpoints.resume(tree())
    assert all((saved / step).is_dir() for step in "123")


def test_the_best_is_not_replaced_by_another_one(tmp_path):
    save_all(tmp_path, [1.0, 3.0, 2.0], keep=9)
    (tmp_path / "2/extra/metadata").unlink()
    with (
        Checkpoints(tmp_path, None) as checkpoints,
        pytest.raises(DamagedCheckpointError, match="2 is damaged"),
    ):
        checkpoints.restore("best", tree())


def test_a_step_under_the_number_of_another_is_damaged(saved):
    shutil.copytree(saved / "2", saved / "7")
    with Checkpoints(saved, None) as checkpoints:
        with pytest.raises(
            DamagedCheckpointError, match="manifest.json belongs to '2'"
        ):
            checkpoints.restore(7, tree())
        assert checkpoints.resume(tree()).step == 3


def test_nothing_to_resume_is_none(tmp_path):
    with Checkpoints(tmp_path / "checkpoints", 1) as checkpoints:
        assert checkpoints.resume(tree()) is None


def test_a_step_from_before_manifests_is_read_with_a_warning(saved, caplog):
    before_manifests(saved / "3")
    with Checkpoints(saved, 9) as checkpoints:
        assert value_of(checkpoints.restore(3, tree())[0]) == 3.0
        assert checkpoints.resume(tree()).step == 3
    assert "3 was saved before attnjax kept digests" in caplog.text


@pytest.mark.parametrize("lost", ["state/_METADATA", "extra/metadata", "extra"])
def test_an_incomplete_step_from_before_manifests_is_set_aside(saved, caplog, lost):
    before_manifests(saved / "3")
    path = saved / "3" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with Checkpoints(saved, None) as reader:
        assert reader.latest_step() == 2
    assert (saved / "3").exists()
    with caplog.at_level(logging.WARNING), Checkpoints(saved, 9) as checkpoints:
        assert checkpoints.latest_step() == 2
        checkpoints.save(3, tree(33.0), {})
        assert value_of(checkpoints.restore(None, tree())[0]) == 33.0
    assert "3.incomplete" in caplog.text
    assert (saved / "3.incomplete").is_dir()


@pytest.mark.parametrize(
    "content",
    ["[" * 99_999, "[]", '{"tree_metadata": 5}', '{"tree_metadata": {"a": 5}}', "\x00"],
    ids=["deep", "list", "number", "leaf", "nul"],
)
def test_what_is_no_checkpoint_inside_is_a_sentence(saved, content):
    """Without a manifest, or with one by whoever made the folder."""
    before_manifests(saved / "3")
    (saved / "3/state/_METADATA").write_text(content)
    with (
        Checkpoints(saved, None) as checkpoints,
        pytest.raises(
            ValueError, match=f"{saved}/3.*(cannot be read|no.* JSON|not fit)"
        ),
    ):
        checkpoints.restore(3, tree())


@pytest.mark.parametrize("content", ["[]", "[" * 99_999, '{"metrics": 7}', "\xff"])
def test_damaged_metadata_of_a_step_hides_no_other_step(saved, content):
    (saved / "3/_CHECKPOINT_METADATA").write_text(content)
    with Checkpoints(saved, None) as reader:
        assert reader.resume(tree()).step == 2
    with Checkpoints(saved, 9) as checkpoints:
        assert checkpoints.resume(tree()).step == 2
        checkpoints.save(3, tree(), {})


def test_a_step_has_one_manifest_of_all_its_files(saved):
    found = [path.relative_to(saved) for path in saved.rglob("manifest.json")]
    assert sorted(map(str, found)) == [f"{step}/manifest.json" for step in (1, 2, 3)]


@pytest.mark.parametrize("failing", ["_METADATA", "manifest"])
def test_a_save_that_fails_on_the_way_leaves_no_step(saved, monkeypatch, failing):
    """Whatever is raised in the background comes up at the next call."""

    def fail(*arguments):
        raise ZeroDivisionError(failing)

    if failing == "manifest":
        monkeypatch.setattr(commit, "write_manifest", fail)
    else:
        monkeypatch.setattr(ocp.StandardCheckpointHandler, "finalize", fail)
    checkpoints = Checkpoints(saved, 9)
    checkpoints.save(4, tree(), {})
    with pytest.raises(ZeroDivisionError, match=failing):
        checkpoints.steps()
    monkeypatch.undo()
    assert checkpoints.steps() == [1, 2, 3]
    assert sorted(path.name for path in saved.glob("4*")) == []
    checkpoints.save(4, tree(44.0), {})
    assert value_of(checkpoints.restore(None, tree())[0]) == 44.0
    checkpoints.close()


@pytest.mark.parametrize(
    ("target", "lines"),
    [
        ({"num_layers": 5}, ["layers.layer_3.kernel: missing, expected float32[5, 2]"]),
        ({"num_layers": 2}, ["layers.layer_2.kernel: float32[5, 2] not expected"]),
        ({"width": 7}, ["layers.layer_0.kernel: float32[5, 2] -> float32[7, 2]"]),
        (
            {"dtype": jnp.bfloat16},
            ["layers.layer_1.kernel: float32[5, 2] -> bfloat16[5, 2]"],
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_with_all_leaves(
    saved, target, lines
):
    with (
        Checkpoints(saved, None) as checkpoints,
        pytest.raises(ValueError, match="does not fit") as caught,
    ):
        checkpoints.restore(None, jax.eval_shape(lambda: tree(**target)))
    for line in lines:
        assert line in str(caught.value)


def test_a_long_list_of_differences_is_cut(tmp_path):
    with Checkpoints(tmp_path, 1) as checkpoints:
        checkpoints.save(1, tree(num_layers=30), {})
        with pytest.raises(ValueError, match=r"and 10 more"):
            checkpoints.restore(None, tree(num_layers=0))


def test_what_is_not_there_is_a_sentence(tmp_path, saved):
    with Checkpoints(saved, None) as checkpoints:
        with pytest.raises(FileNotFoundError, match=r"step 9.*\[1, 2, 3\]"):
            checkpoints.restore(9, tree())
        with pytest.raises(FileNotFoundError, match=r"score.*\[1, 2, 3\]"):
            checkpoints.restore("best", tree())


@pytest.mark.parametrize("made", [True, False])
def test_an_empty_or_absent_folder_is_a_sentence(tmp_path, made):
    folder = tmp_path / "checkpoints"
    if made:
        folder.mkdir()
    with Checkpoints(folder, None) as checkpoints:
        assert checkpoints.latest_step() is None
        assert checkpoints.best_step() is None
        with pytest.raises(FileNotFoundError, match="no checkpoint in.*train first"):
            checkpoints.restore(None, tree())
    assert folder.exists() == made


def test_a_reader_cannot_save(saved):
    with (
        Checkpoints(saved, None) as checkpoints,
        pytest.raises(RuntimeError, match="step 4 was not saved"),
    ):
        checkpoints.save(4, tree(), {})


def test_extra_values_must_be_json(tmp_path):
    with (
        Checkpoints(tmp_path, 1) as checkpoints,
        pytest.raises(TypeError, match="JSON serializable"),
    ):
        checkpoints.save(1, tree(), {"array": np.zeros(2)})


def test_the_score_of_a_step_that_was_never_saved_is_forgotten(saved):
    with Checkpoints(saved, 9) as checkpoints:
        checkpoints.set_score(4, 9.0)  # and the process ends before the save
    with Checkpoints(saved, 9) as checkpoints:
        checkpoints.save(4, tree(), {})
        assert checkpoints.best_step() is None


def test_a_state_without_a_place_for_clipping_is_restored_into_one_with_it(tmp_path):
    """A run without clipping had no such place in its optimiser's state at first."""
    params = {"a": jnp.arange(3.0)}
    whole = TrainState(
        step=jnp.ones((), jnp.int32),
        params=params,
        model_state={},
        optimizer_state=make_optimizer(OptimizerConfig(), 9).init(params),
        rng=jax.random.key(0),
    )
    old = dataclasses.replace(whole, optimizer_state=whole.optimizer_state[1:])
    with Checkpoints(tmp_path / "c", 2) as checkpoints:
        checkpoints.save(1, old, {})
        restored, _ = checkpoints.restore(1, whole)
    assert jax.tree.structure(restored) == jax.tree.structure(whole)
    np.testing.assert_array_equal(restored.params["a"], params["a"])
