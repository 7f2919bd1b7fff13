"""A full disk, a folder that is read-only or gone: one sentence, and nothing lost."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attnjax import experiment
from attnjax.config import TextFilesSource, TokenizerConfig
from attnjax.data.tokenizers import has_tokenizers
from attnjax.run_folder import RunFolder, read_config, write_config
from attnjax.storage.faults import StorageError

GOLDEN = Path(__file__).parents[1] / "golden/checkpoint_v0.1"
SCRIPT = Path(__file__).with_name("storage_scenarios.py")
IN_NAMESPACE = ["unshare", "--map-root-user", "--mount"]
MOUNTING = [
    *("full", "full_at_the_end", "full_for_many_arrays", "full_for_a_score"),
    "full_for_an_average",
    *("read_only", "read_only_from_the_start"),
]
OTHERS = ["deleted", "deleted_while_saving", "too_large_a_file"]
LARGE_BYTES = "about 1,200,000 bytes needed"
both = pytest.mark.parametrize("policy", ["stop", "continue"])


def run_scenarios(folder, names, prefix=()):
    """All in one process, which must end by itself: nothing hangs."""
    done = subprocess.run(
        [*prefix, sys.executable, SCRIPT, folder, *names],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "XLA_FLAGS": ""},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return {(result["name"], result["policy"]): result for result in results}


@pytest.fixture(scope="module")
def mounted(tmp_path_factory):
    try:
        subprocess.run(
            [*IN_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine lets nobody mount in a namespace of his own")
    return run_scenarios(tmp_path_factory.mktemp("disks"), MOUNTING, IN_NAMESPACE)


@pytest.fixture(scope="module")
def unmounted(tmp_path_factory):
    return run_scenarios(tmp_path_factory.mktemp("folders"), OTHERS)


def is_sentence(message, what, reason):
    """Whether it says what, where, why, the bytes needed and free, and what to do."""
    pattern = (
        rf"{what} could not be written to /\S+: {reason} "
        r"\((about [\d,]+|a few) bytes needed, [\d,]+ free\); .*\."
    )
    return re.fullmatch(pattern, message, re.DOTALL) and "\n" not in message


def test_a_full_disk_stops_the_run_at_the_next_save(mounted):
    found = mounted["full", "stop"]
    next_save, at_close = found["errors"]
    assert is_sentence(next_save, "the checkpoint of step 2", "No space left on device")
    assert LARGE_BYTES in next_save
    assert at_close is None
    assert found["entries"] == ["1", "scores.json"]  # and no half-written one
    assert found["restored"] == [1, True]


def test_a_full_disk_lets_the_run_go_on_and_what_fits_is_saved(mounted):
    found = mounted["full", "continue"]
    assert found["errors"] == [None, None]
    assert found["entries"] == ["1", "3", "scores.json"]
    assert found["restored"] == [3, True]
    (line,) = found["log"]
    assert is_sentence(
        line.removesuffix(" Training continues without it."),
        *("the checkpoint of step 2", "No space left on device"),
    )


@both
def test_a_last_save_that_failed_is_not_swallowed(mounted, policy):
    found = mounted["full_at_the_end", policy]
    when_told = {"stop": [True, False], "continue": [False, True]}[policy]
    assert [error is not None for error in found["errors"]] == when_told
    message = next(filter(None, found["errors"]))
    assert is_sentence(message, "the checkpoint of step 2", "No space left on device")
    assert found["restored"] == [1, True]


@both
def test_of_many_arrays_that_do_not_fit_there_is_one_sentence(mounted, policy):
    found = mounted["full_for_many_arrays", policy]
    (message,) = found["errors"]
    assert is_sentence(message, "the checkpoint of step 2", "No space left on device")
    assert found["restored"] == [1, True]


@both
def test_a_score_that_does_not_fit_leaves_the_others(mounted, policy):
    found = mounted["full_for_a_score", policy]
    told = found["errors"][0] if policy == "stop" else found["log"][0]
    assert "the score of step 1 could not be written" in told
    assert "No space left on device (a few bytes needed, 0 free)" in told
    assert found["scores"] == [{"1": 1.0}, {"1": 2.0}]
    assert "scores.json.new" not in found["entries"]


@both
def test_an_average_that_does_not_fit_leaves_the_others(mounted, policy):
    found = mounted["full_for_an_average", policy]
    (message,) = found["errors"]
    assert is_sentence(message, "the average 'large'", "No space left on device")
    assert LARGE_BYTES in message
    assert found["entries"] == ["good"]
    assert found["restored"] == [1, True]


def test_a_read_only_folder_stops_the_run_or_is_passed_over(mounted):
    reason = ("the checkpoint of step 2", "Read-only file system")
    stopped = mounted["read_only", "stop"]
    assert is_sentence(stopped["errors"][0], *reason)
    assert stopped["errors"][1:] == [None, None]
    went_on = mounted["read_only", "continue"]
    assert went_on["errors"] == [None, None, None]
    assert is_sentence(went_on["log"][0].partition(" Training")[0], *reason)
    for found in (stopped, went_on):
        assert found["entries"] == ["1", "3", "scores.json"]
        assert found["restored"] == [3, True]


@both
def test_a_folder_that_cannot_be_made_is_a_sentence(mounted, policy):
    (message,) = mounted["read_only_from_the_start", policy]["errors"]
    assert is_sentence(message, "checkpoints", "(Read-only file system|the folder .*)")


def test_a_folder_that_has_gone_is_not_made_anew(unmounted):
    reason = "the folder does not exist any more"
    stopped = unmounted["deleted", "stop"]
    assert is_sentence(stopped["errors"][0], "the checkpoint of step 2", reason)
    assert is_sentence(stopped["errors"][1], "the checkpoint of step 3", reason)
    went_on = unmounted["deleted", "continue"]
    assert went_on["errors"][:2] == [None, None]
    assert is_sentence(went_on["errors"][2], "the checkpoint of step 3", reason)
    assert len(went_on["log"]) == 2
    for found in (stopped, went_on):
        assert found["entries"] == []
        assert found["restored"] is None


@both
def test_a_folder_that_goes_while_it_is_written_to_is_told(unmounted, policy):
    (message,) = unmounted["deleted_while_saving", policy]["errors"]
    reason = "(the folder does not exist any more|No such file or directory)"
    assert is_sentence(message, "the checkpoint of step 2", reason)


def test_a_limit_on_the_size_of_a_file_is_a_fault_like_any_other(unmounted):
    stopped = unmounted["too_large_a_file", "stop"]
    reason = ("the checkpoint of step 2", "File too large")
    assert is_sentence(stopped["errors"][0], *reason)
    assert stopped["restored"] == [1, True]
    went_on = unmounted["too_large_a_file", "continue"]
    assert went_on["errors"] == [None, None]
    assert went_on["restored"] == [3, True]


def golden_experiment(workdir):
    return dataclasses.replace(read_config(RunFolder(GOLDEN)), workdir=workdir)


def test_a_config_that_does_not_fit_leaves_the_old_one(tmp_path, files_of_at_most):
    """It is written anew when a run goes on with something that may change."""
    run = shutil.copytree(GOLDEN, tmp_path / "run")
    before = (run / "config.json").read_bytes()
    with files_of_at_most(1_000), pytest.raises(StorageError) as caught:
        write_config(RunFolder(run), golden_experiment(run))
    assert is_sentence(str(caught.value), "config.json", "File too large")
    assert (run / "config.json").read_bytes() == before
    assert {path.name for path in run.iterdir()} == {p.name for p in GOLDEN.iterdir()}


def test_a_tokenizer_that_does_not_fit_is_trained_again(
    tmp_path, files_of_at_most, monkeypatch
):
    monkeypatch.setattr(experiment, "run_loop", lambda *_, **__: "trained")
    for language in ("de", "en"):
        words = "\n".join(f"{language} word{n}" for n in range(2_000))
        (tmp_path / f"train.{language}").write_text(words)
    text = TextFilesSource(
        **dict.fromkeys(("train", "valid", "test"), tmp_path / "train")
    )
    stored = golden_experiment(tmp_path / "run")
    tokenizer = TokenizerConfig(kind="word", vocab_size=2_010, joint=False)
    data = dataclasses.replace(stored.data, source=text, tokenizer=tokenizer)
    fresh = dataclasses.replace(stored, data=data)
    with files_of_at_most(9_000), pytest.raises(StorageError) as caught:
        experiment.train(fresh)
    assert is_sentence(str(caught.value), "the tokenizer", "File too large")
    assert not has_tokenizers(tmp_path / "run/tokenizer")
    assert experiment.train(fresh) == "trained"
    assert has_tokenizers(tmp_path / "run/tokenizer")
