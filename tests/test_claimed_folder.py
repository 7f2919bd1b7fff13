"""Whose a run folder is: free until there is something in it, then of one config."""

import dataclasses
import runpy
from pathlib import Path

import pytest

from attnjax.cli import main
from attnjax.run_folder import RunFolder, claim, digest_of, held, require_same

ROOT = Path(__file__).parents[1]
TINY = [
    *("--data.source.train-pairs", "300", "--data.source.valid-pairs", "8"),
    *("--data.source.test-pairs", "9", "--data.tokenizer.vocab-size", "400"),
    *("--data.bucket-lengths", "64", "--data.tokens-per-batch", "512"),
]


@pytest.fixture
def described(tmp_path):
    made = runpy.run_path(str(ROOT / "configs" / "quickstart.py"))["experiment"]
    return dataclasses.replace(made, workdir=tmp_path / "run")


def train(workdir, *options, config="quickstart"):
    file = str(ROOT / f"configs/{config}.py")
    return main(["train", "--config", file, "--workdir", str(workdir), *options])


def test_a_folder_that_is_not_shared_is_refused(described):
    folder = RunFolder(described.workdir)
    digest = digest_of(described)
    with pytest.raises(ValueError, match="not the run folder of the first process"):
        require_same(folder, described, digest)
    claim(folder, described)
    require_same(folder, described, digest)


def test_another_config_than_the_first_ones_is_refused(described):
    folder = RunFolder(described.workdir)
    claim(folder, described)
    training = dataclasses.replace(described.training, num_steps=7)
    other = dataclasses.replace(described, training=training, seed=3)
    with pytest.raises(ValueError, match="training.num_steps: .* -> 7") as refused:
        require_same(folder, other, digest_of(described))
    assert "seed: 0 -> 3" in str(refused.value)


FAILING = {
    "a mechanism that cannot have rotary positions": (
        ["--model.encoder-attention.kind", "linear"],
        "rotary positions need scores",
    ),
    "weight decay that adam does not read": (
        ["--optimizer.weight-decay", "0.1"],
        "optimizer.weight_decay=0.1 has no effect, because it needs kind adamw",
    ),
    "a rate that is infinite": (
        ["--optimizer.schedule.peak", "inf"],
        "ScheduleConfig.peak must be a finite number",
    ),
    "a mesh of more devices than there are": (
        [*TINY, "--training.parallel.fsdp", "3"],
        "got 3 for 8",
    ),
    "a vocabulary too small for the text": (
        [*TINY, "--data.tokenizer.vocab-size", "7"],
        "attnjax: ",
    ),
}


@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize("name", FAILING)
def test_a_start_that_fails_leaves_nothing_behind(name, existed, tmp_path, capsys):
    options, message = FAILING[name]
    if existed:
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs/notes.txt").write_text("mine")
    workdir = tmp_path / ("runs" if existed else "runs/one/two")
    try:
        code = train(workdir, *options)
    except SystemExit as stop:  # of the parser
        code = stop.code
    assert code in (1, 2)
    error = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in error
    assert "Traceback" not in error
    left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
    assert sorted(left) == (["runs", "runs/notes.txt"] if existed else [])


def test_a_typo_in_a_path_leaves_nothing_behind(tmp_path, capsys):
    paths = [
        f"--data.source.{split}={tmp_path}/corpus/{split}"
        for split in ("train", "valid", "test")
    ]
    assert train(tmp_path / "run", *paths, config="text_files") == 1
    assert f"{tmp_path}/corpus/train" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_folder_without_checkpoint_and_log_is_free(described):
    """As a start leaves it that was killed; its tokenizers are of other data."""
    folder = RunFolder(described.workdir)
    claim(folder, described)
    folder.tokenizer.mkdir()
    other = dataclasses.replace(described, seed=3)
    assert claim(folder, other) == []
    assert folder.tokenizer.exists()
    source = dataclasses.replace(described.data.source, max_words=7)
    data = dataclasses.replace(described.data, source=source)
    assert claim(folder, dataclasses.replace(described, data=data)) == []
    assert not folder.tokenizer.exists()
    folder.metrics.write_text("{}\n")
    with pytest.raises(ValueError, match="max_words: 7 -> 60"):
        claim(folder, described)
    folder.config.unlink()
    with pytest.raises(ValueError, match=r"holds a run, but no config\.json"):
        claim(folder, described)


def test_a_file_of_that_name_that_is_not_ours_stays(described):
    described.workdir.mkdir()
    folder = RunFolder(described.workdir)
    folder.config.write_text('{"model_type": "marian"}')
    with pytest.raises(ValueError, match="experiment must be a Experiment"):
        claim(folder, described)
    assert "marian" in folder.config.read_text()


def test_what_says_why_a_start_failed_stays(described):
    folder = RunFolder(described.workdir)

    def diverge():
        with held(folder):
            claim(folder, described)
            (folder.path / "anomaly_1.json").write_text("{}")
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        diverge()
    assert [path.name for path in folder.path.iterdir()] == ["anomaly_1.json"]
