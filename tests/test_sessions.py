"""What a run lets its user change on the way, and what it says and keeps of that."""

import json
import logging
import shutil
from pathlib import Path

import pytest

from attnjax.cli import main
from attnjax.run_folder import RunFolder, read_config

ROOT = Path(__file__).parents[1]
TINY = [
    *("--data.source.train-pairs", "300", "--data.source.valid-pairs", "8"),
    *("--data.source.test-pairs", "9", "--data.tokenizer.vocab-size", "400"),
    *("--data.bucket-lengths", "64", "--data.tokens-per-batch", "512"),
    *("--model.embedding-width", "12", "--model.hidden-width", "16"),
    *("--model.attention-width", "8", "--decoding.max-extra-tokens", "4"),
    *("--decoding.beam-size", "2", "--training.log-every", "2"),
    *("--training.checkpoint-every", "2", "--training.evaluate-every", "9"),
    *("--optimizer.schedule.warmup-steps", "1", "--evaluation.max-pairs", "2"),
]


def train(workdir, steps, *options):
    config = str(ROOT / "configs/quickstart_rnn.py")
    steps = ["--training.num-steps", str(steps), "--workdir", str(workdir)]
    return main(["train", "--config", config, *steps, *TINY, *options])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "run"
    assert train(workdir, 4) == 0
    assert main(["average", "--workdir", str(workdir), "--last", "1"]) == 0
    return workdir


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def history(run):
    return [json.loads(line) for line in (run / "history.jsonl").open()]


def content(run):
    """All files, but for TensorBoard's, which has one for each session."""
    files = [path for path in run.rglob("*") if path.is_file()]
    return {p: p.read_bytes() for p in files if p.parent.name != "tensorboard"}


def edit(run, old, new):
    text = (run / "config.json").read_text()
    assert old in text
    (run / "config.json").write_text(text.replace(old, new))


def test_a_run_says_who_began_it_and_on_what(run):
    (first,) = history(run)
    assert (first["from_step"], first["to_step"], first["changed"]) == (0, 4, [])
    assert first["machine"]["cores"] >= 1
    assert {"jax", "python", "devices"} < set(first["machine"])
    assert first["host"]


def test_rate_clipping_and_order_may_change_on_the_way_and_are_kept(run, caplog):
    options = ["--optimizer.schedule.peak", "0.001", "--optimizer.clip-norm", "None"]
    with caplog.at_level(logging.INFO):
        assert train(run, 6, *options, "--training.order-seed", "7") == 0
    changed = [
        "optimizer.clip_norm: 1.0 -> None",
        "optimizer.schedule.peak: 0.002 -> 0.001",
        "training.num_steps: 4 -> 6",
        "training.order_seed: None -> 7",
    ]
    second = history(run)[1]
    assert (second["from_step"], second["changed"]) == (4, changed)
    for line in changed:
        assert f"from step 4 on {line}" in caplog.text
    assert "the batches come in the order of seed 7, from its beginning" in caplog.text
    assert read_config(RunFolder(run)).optimizer.clip_norm is None
    # The cosine of 4 steps had ended.
    assert "the learning rate of update 5 is 9.549e-05 by the schedule" in caplog.text
    assert "was to be 0, after 0 at update 4" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):  # and back to clipping, and nothing else
        assert train(run, 8, *options[:2], "--training.order-seed", "7") == 0
    assert "from its beginning" not in caplog.text
    assert history(run)[2]["changed"] == [
        "optimizer.clip_norm: None -> 1.0",
        "training.num_steps: 6 -> 8",
    ]


def test_fewer_steps_than_are_done_change_nothing_and_say_so(run, caplog):
    before = content(run)
    assert train(run, 2) == 0
    assert "there is nothing to do" in caplog.text
    assert "has done 4 updates, and training.num_steps is 2" in caplog.text
    assert content(run) == before


def test_another_seed_and_another_model_are_refused(run, capsys):
    before = content(run)
    assert train(run, 6, "--seed", "3", "--model.cell", "lstm") == 1
    error = capsys.readouterr().err
    assert "seed: 0 -> 3;" in error
    assert error.count("model.cell: gru -> lstm") == 1
    assert content(run) == before


def test_another_machine_is_told(run, caplog):
    text = (run / "history.jsonl").read_text()
    cores = json.loads(text)["machine"]["cores"]
    (run / "history.jsonl").write_text(text.replace(f": {cores},", ": 99,"))
    with caplog.at_level(logging.WARNING):
        assert train(run, 4) == 0  # nothing is done, so nothing is told
        assert "another machine" not in caplog.text
        assert train(run, 5) == 0
    assert f"session before (cores: 99 -> {cores})" in caplog.text


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('"type": "Dense"', '"type": "BestKeys"', "model.selection: Dense -> BestKeys"),
        ('"attention": "additive"', '"attention": "concat"', "model.attention: add"),
        ('"query": "previous"', '"query": "current"', "model.query: previous -> curr"),
        ('"target_language": "en"', '"target_language": "fr"', "data.target_language"),
    ],
)
def test_a_config_that_was_edited_by_hand_is_refused(run, capsys, old, new, line):
    edit(run, old, new)
    for command in (
        ["translate", "--workdir", str(run), "--checkpoint", "latest"],
        ["translate", "--workdir", str(run), "--checkpoint", "averaged"],
        ["average", "--workdir", str(run), "--last", "2"],
    ):
        assert main(command) == 1
        assert line in capsys.readouterr().err
    option, value = line.split(":")[0], new.split('"')[3]
    if option == "model.selection":
        option, value = "model.selection.kind", "top_k"
    assert train(run, 6, f"--{option.replace('_', '-')}", value) == 1
    assert line in capsys.readouterr().err


def test_paths_may_differ_and_what_nobody_reads_is_none(run):
    """As it was when no config was asked for what it does not read."""
    edit(run, '"max_source_tokens": 256', '"max_source_tokens": 9')
    assert read_config(RunFolder(run)).model.max_source_tokens == 256
    command = ["score", str(run / "config.json"), str(run / "config.json")]
    assert main([*command, "--workdir", str(run)]) == 0


def test_a_run_without_its_config_is_refused(run, capsys):
    (run / "config.json").unlink()
    before = content(run)
    assert train(run, 6) == 1
    assert "holds a run, but no config.json" in capsys.readouterr().err
    assert content(run) == before


def test_training_goes_on_from_an_earlier_checkpoint(run, capsys):
    assert train(run, 6, "--from-step", "3") == 1
    assert "no checkpoint of step 3" in capsys.readouterr().err
    assert train(run, 4, "--from-step", "2") == 0
    assert history(run)[1]["from_step"] == 2
    steps = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert {"2", "4", "4.left"} <= set(steps)
