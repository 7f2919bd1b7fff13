"""The main job through the public commands: train, resume, evaluate, translate."""

import io
import json
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from attnjax.cli import main
from attnjax.runs.opening import open_run
from attnjax.storage.checkpoints import Checkpoints
from attnjax.storage.orbax_manager import load, open_manager

ROOT = Path(__file__).parents[1]
TINY = [
    *("--data.source.train-pairs", "300"),
    *("--data.source.valid-pairs", "12"),
    *("--data.source.test-pairs", "15"),
    *("--data.tokenizer.vocab-size", "400"),
    *("--data.bucket-lengths", "64"),  # a program of the step, and not one a shape
    *("--data.tokens-per-batch", "512"),
    *("--decoding.max-extra-tokens", "8", "--decoding.max-source-tokens", "48"),
    *("--decoding.beam-size", "2"),
    *("--optimizer.schedule.kind", "constant"),
    *("--training.log-every", "2"),
    *("--training.evaluate-every", "4"),
    *("--training.checkpoint-every", "2"),
]
TINY_TRANSFORMER = [
    *TINY,
    *("--model.width", "16", "--model.feed-forward-width", "32"),
    *("--model.encoder-layers", "1", "--model.decoder-layers", "1"),
]
TINY_RNN = [
    *TINY,
    *("--model.embedding-width", "12", "--model.hidden-width", "16"),
    *("--model.attention-width", "8"),
]


def train(config: str, workdir: Path, steps: int, options: list[str]) -> int:
    return main(
        [
            *("train", "--config", str(ROOT / "configs" / config)),
            *("--workdir", str(workdir), "--training.num-steps", str(steps)),
            *options,
        ]
    )


@pytest.fixture(scope="module")
def transformer_run(tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("runs") / "transformer"
    assert train("quickstart.py", workdir, 8, TINY_TRANSFORMER) == 0
    return workdir


@pytest.fixture(scope="module")
def rnn_run(tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("runs") / "rnn"
    average = ("--training.ema-decay", "0.5")
    assert train("quickstart_rnn.py", workdir, 4, [*TINY_RNN, *average]) == 0
    return workdir


@pytest.mark.parametrize("name", ["transformer_run", "rnn_run"])
def test_evaluation_scores_every_line_and_draws(name, request, capsys):
    workdir = request.getfixturevalue(name)
    assert main(["evaluate", "--workdir", str(workdir), "--pictures", "1"]) == 0
    out, err = capsys.readouterr()
    (line,) = out.splitlines()
    report = json.loads(line)
    assert report["lines"] == 15
    assert sum(bucket["count"] for bucket in report["bleu_by_source_words"]) == 15
    assert 0.0 <= report["bleu"] <= 100.0
    assert "tok:13a" in report["bleu_signature"]
    assert report["tokens_per_second"] > 0
    translations = (workdir / "evaluation" / "test.en").read_bytes()
    assert translations.count(b"\n") == 15
    stored = (workdir / "evaluation" / "test.json").read_text()
    assert report == json.loads(stored, parse_float=lambda x: round(float(x), 4))
    pictures = sorted((workdir / "pictures").glob("*.png"))
    assert len(pictures) == 2
    assert all(str(picture) in err for picture in pictures)


def test_the_averaged_weights_are_what_is_opened(rnn_run):
    opened = open_run(rnn_run, checkpoint="latest")
    assert opened.step == 4
    folder = rnn_run / "checkpoints"
    manager = open_manager(folder, None)
    metadata = manager.item_metadata(4).state.tree
    target = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), metadata)
    stored, _ = load(manager, folder / "4", target)
    manager.close()
    found, averaged, raw = map(
        jax.tree.leaves, (opened.variables["params"], stored["ema"], stored["params"])
    )
    assert len(found) == len(averaged) == len(raw)
    assert all(map(np.array_equal, found, averaged))
    assert not any(map(np.array_equal, averaged, raw))


def translate(workdir: Path, text: bytes, monkeypatch, capsys, *options) -> list[str]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["translate", "--workdir", str(workdir), *options]) == 0
    out = capsys.readouterr().out
    assert out.endswith("\n") or not text
    return out.split("\n")[:-1]


def test_translate_gives_a_line_for_a_line(transformer_run, monkeypatch, capsys):
    lines = [
        "25. Oktober",
        "",
        "Dänemark und Schweden\u2028",
        "x" * 3_000,
        "\x00",
        "Juni",
    ]
    text = "\n".join(lines).encode() + b"\n"
    together = translate(transformer_run, text, monkeypatch, capsys)
    assert len(together) == len(lines)
    assert together[1] == ""
    for number, line in enumerate(lines):
        alone = translate(transformer_run, line.encode(), monkeypatch, capsys)
        assert alone == ([together[number]] if line else []), line


def test_beam_of_one_can_be_asked_for(transformer_run, monkeypatch, capsys):
    text = "Dänemark\n".encode()
    found = translate(*(transformer_run, text, monkeypatch, capsys), "--beam-size", "1")
    assert len(found) == 1


def test_a_file_is_read_like_standard_input(transformer_run, tmp_path, capsys):
    file = tmp_path / "input.de"
    file.write_bytes("\ufeffeins\r\nzwei".encode())
    assert main(["translate", "--workdir", str(transformer_run), str(file)]) == 0
    assert len(capsys.readouterr().out.split("\n")) == 3


def losses(workdir: Path) -> list[tuple[int, float]]:
    events = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [
        (event["step"], event["loss"]) for event in events if event["event"] == "train"
    ]


def test_a_resumed_run_is_the_unbroken_run_bit_for_bit(transformer_run, tmp_path):
    workdir = tmp_path / "resumed"
    for steps in (3, 8):
        assert train("quickstart.py", workdir, steps, TINY_TRANSFORMER) == 0
    whole = open_run(transformer_run, checkpoint="latest")
    resumed = open_run(workdir, checkpoint="latest")
    assert whole.step == resumed.step == 8
    jax.tree.map(np.testing.assert_array_equal, whole.variables, resumed.variables)
    logged = dict(losses(workdir))
    assert [step for step, _ in losses(workdir)] == [2, 3, 4, 6, 8]
    expected = dict(losses(transformer_run))
    assert {step: logged[step] for step in (2, 6, 8)} == {
        step: expected[step] for step in (2, 6, 8)
    }


def test_a_run_goes_on_on_another_mesh(transformer_run, tmp_path):
    """The order of batches and the losses are those of eight copies of the state."""
    workdir = shutil.copytree(transformer_run, tmp_path / "resumed")
    with Checkpoints(workdir / "checkpoints", 99) as checkpoints:
        checkpoints.discard_after(4)
    mesh = ("--training.parallel.fsdp", "2", "--training.parallel.tensor", "2")
    assert train("quickstart.py", workdir, 8, [*TINY_TRANSFORMER, *mesh]) == 0
    found, expected = losses(workdir), losses(transformer_run)
    assert [step for step, _ in found] == [step for step, _ in expected]
    assert found != expected  # sums of another order
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_a_mesh_of_another_size_is_refused(tmp_path, capsys):
    options = [*TINY_TRANSFORMER, "--training.parallel.fsdp", "3"]
    assert train("quickstart.py", tmp_path / "run", 4, options) == 1
    assert "got 3 for 8" in capsys.readouterr().err


def test_a_folder_of_another_experiment_is_refused(transformer_run, capsys):
    options = [*TINY_TRANSFORMER, "--model.num-heads", "2", "--seed", "7"]
    assert train("quickstart.py", transformer_run, 8, options) == 1
    message = capsys.readouterr().err
    assert "model.num_heads: 4 -> 2" in message
    assert "seed: 0 -> 7" in message


@pytest.mark.parametrize("command", ["evaluate", "translate"])
def test_a_missing_run_folder_is_one_sentence(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"eins\n")))
    assert main([command, "--workdir", str(tmp_path / "nothing")]) == 1
    err = capsys.readouterr().err
    assert "is not a run folder" in err
    assert err.count("\n") == 1


def test_a_run_folder_without_a_checkpoint_is_one_sentence(
    transformer_run, tmp_path, capsys
):
    workdir = tmp_path / "empty"
    workdir.mkdir()
    for name in ("config.json",):
        (workdir / name).write_bytes((transformer_run / name).read_bytes())
    (workdir / "tokenizer").mkdir()
    for file in (transformer_run / "tokenizer").iterdir():
        (workdir / "tokenizer" / file.name).write_bytes(file.read_bytes())
    assert main(["evaluate", "--workdir", str(workdir)]) == 1
    assert "checkpoint" in capsys.readouterr().err


def test_invalid_utf8_is_refused_with_its_line(transformer_run, tmp_path, capsys):
    file = tmp_path / "input.de"
    file.write_bytes(b"eins\n\xff\n")
    assert main(["translate", "--workdir", str(transformer_run), str(file)]) == 1
    message = capsys.readouterr().err
    assert "input.de" in message
    assert "2" in message
