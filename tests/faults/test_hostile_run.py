"""A run folder from a stranger: refused in one sentence, never executed, never huge."""

import ast
import json
import re
import shutil
from pathlib import Path

import pytest

from attnjax.cli import main
from attnjax.runs.opening import open_run, open_untrained
from attnjax.storage.averages import load_average

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/checkpoint_v0.1"
DEEP = "[" * 400 + "]" * 400
SENTENCE_CHARACTERS = 700


@pytest.fixture
def run(tmp_path):
    """A copy of a good run folder."""
    return shutil.copytree(GOLDEN, tmp_path / "run")


def refusal(run, opened=open_untrained):
    with pytest.raises((ValueError, OSError)) as caught:
        opened(run)
    message = str(caught.value)
    assert len(message) < SENTENCE_CHARACTERS
    return message


def change(path, old, new):
    text = path.read_text()
    assert re.search(old, text)
    path.write_text(re.sub(old, new, text, count=1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r'"seed": \d+', '"seed": 1e999', "seed must be a number that fits"),
        (
            r'"seed": \d+',
            f'"seed": {10**30}',
            "seed must be an int of at most",
        ),
        (r'"seed": \d+', '"seed": NaN', "seed must be a number that fits"),
        (r'"seed": \d+', '"seed": true', "seed must be a int, got True"),
        (
            r'"seed": \d+',
            f'"seed": {DEEP}',
            "nests lists and objects more than 50 deep",
        ),
        (r'"seed": \d+', f'"seed": "{"x" * 9**5}"', "must be a int, got 'xxx"),
        (r'"seed": \d+', f'"{"x" * 9**5}": 1', "has no field 'xxx"),
        (r'"beta1": [\d.]+', '"beta1": 1e400', "beta1 must be a number that fits"),
        (
            r'"hidden_width": 8',
            '"hidden_width": 9999999999',
            "at most 1,048,576, got 9",
        ),
        (r'"encoder_layers": 1', '"encoder_layers": 999999', "at most 1,000, got 99"),
        (r'"RNNConfig"', '{"a": 1}', "must be one of .*'RNNConfig'.*, got {'a': 1}"),
        (r'"RNNConfig"', '"__import__"', "must be one of .*, got '__import__'"),
        (r'"kind": "word"', '"kind": ["word"]', "must be one of .*'word'"),
        (r"\{", "[" * 99_999, "is not valid JSON"),
    ],
)
def test_an_absurd_config_is_refused(run, old, new, message):
    change(run / "config.json", old, new)
    assert re.search(message, refusal(run, open_run))


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer.source.symbols.json",
    ],
)
class TestAnyJSONFile:
    def test_of_a_hundred_megabytes_is_refused_unread(self, run, name):
        with (run / name).open("wb") as file:
            file.truncate(100_000_000)
        assert f"{run / name} has 100,000,000 bytes" in refusal(run)

    def test_out_of_the_folder_is_refused(self, run, name, tmp_path):
        (run / name).rename(tmp_path / "elsewhere.json")
        (run / name).symlink_to(tmp_path / "elsewhere.json")
        assert f"{run / name} is a link out of its folder" in refusal(run)

    @pytest.mark.parametrize(
        "text", ["", "null", "7", '"a"', "[[]]", DEEP, "\0", '{"a']
    )
    def test_of_other_content_is_refused_by_its_name(self, run, name, text):
        (run / name).write_text(text)
        assert str(run / name) in refusal(run)


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "../../etc/passwd", "joint": true}',
        '{"kind": ["word"], "joint": true}',
        '{"kind": "word", "joint": "no"}',
        '{"kind": "word"}',
    ],
)
def test_an_absurd_tokenizer_is_refused(run, text):
    (run / "tokenizer/tokenizer.json").write_text(text)
    assert "must name a kind of tokenizer" in refusal(run)


@pytest.mark.parametrize(
    "name", ["../secret", "/etc", "a/../../secret", "..", ".", "a\0b", "x" * 5_000, "é"]
)
def test_a_name_that_leads_out_of_the_folder_is_no_average(run, name):
    for checkpoint in (f"averaged/{name}",):
        with pytest.raises(FileNotFoundError, match="no complete average"):
            open_run(run, checkpoint=checkpoint)


def test_a_folder_of_such_a_name_is_no_step(run):
    for name in ("0600", "6e2", "-600", "600.damaged", "٦٠٠", "1" * 30, " 600"):
        shutil.copytree(run / "checkpoints/600", run / "checkpoints" / name)
    assert open_run(run, checkpoint="best").step == 600
    assert open_run(run, checkpoint="latest").step == 600


def test_a_step_that_is_a_link_is_refused(run, tmp_path):
    (run / "checkpoints/600").rename(tmp_path / "600")
    (run / "checkpoints/600").symlink_to(tmp_path / "600")
    assert "600 is damaged: it is a symbolic link" in refusal(run, open_run)


def test_a_folder_of_checkpoints_on_another_disk_is_welcome(run, tmp_path):
    (run / "checkpoints").rename(tmp_path / "disk")
    (run / "checkpoints").symlink_to(tmp_path / "disk")
    assert open_run(run).step == 600


ABSURD = ("[" * 99_999, "null", "", "\0" * 9, '{"files": {"../../x": 1}}')


def test_an_absurd_manifest_is_refused(run):
    name = "checkpoints/600/manifest.json"
    for text in ABSURD:
        (run / name).write_text(text)
        assert name in refusal(run, open_run)


def test_absurd_scores_are_told_and_those_of_the_checkpoints_taken(run, caplog):
    for text in ABSURD:
        (run / "checkpoints/scores.json").write_text(text)
        caplog.clear()
        assert open_run(run).step == 600
        (message,) = [m for m in caplog.messages if "scores.json" in m]
        assert len(message) < SENTENCE_CHARACTERS


def test_a_manifest_is_not_needed_to_survive_what_it_vouches_for(run):
    """Whoever makes the folder makes the manifest; here it is as if there were none."""
    shutil.rmtree(run / "averaged")
    step = run / "checkpoints/600"
    (step / "manifest.json").unlink()
    (step / "_CHECKPOINT_METADATA").write_text("{}")
    good = (step / "extra/metadata").read_text()
    for text in ("[" * 99_999, DEEP, "null", "[1", "7"):
        (step / "extra/metadata").write_text(text)
        assert str(step) in refusal(run, open_run)
    with (step / "extra/metadata").open("wb") as file:
        file.truncate(100_000_000)
    assert "extra/metadata has 100,000,000 bytes" in refusal(run, open_run)
    (step / "extra/metadata").write_text(good)
    assert open_run(run).step == 600


def test_the_command_prints_one_line(run, capsys):
    change(run / "config.json", r'"seed": \d+', f'"seed": {"9" * 5_000}')
    assert main(["translate", "--workdir", str(run), "/dev/null"]) == 1
    captured = capsys.readouterr()
    assert re.fullmatch(r"attnjax: .*config\.json .*\n", captured.err)
    assert captured.out == ""


def test_nothing_unpickles():
    """Neither by name, nor through numpy, nor by a loader that does so by default."""
    for file in (ROOT / "attnjax").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            where = f"{file}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.keyword):
                safe = SAFE.get(node.arg or "")
                assert safe is None or ast.literal_eval(node.value) is safe, where
            if isinstance(node, ast.Attribute):
                called = ast.unparse(node)
                assert called not in UNSAFE, where


SAFE = {"allow_pickle": False, "weights_only": True}
UNSAFE = {
    "pickle.load",
    "pickle.loads",
    "joblib.load",
    "torch.load",
    "yaml.load",
    "eval",
}


def test_numpy_refuses_a_pickle_by_default(tmp_path):
    import numpy as np

    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        np.load(tmp_path / "a.npy")


def test_load_average_by_hand_is_as_strict(run):
    with pytest.raises(FileNotFoundError, match="no complete average"):
        load_average(run / "averaged", "../averaged/last-1", {})
    assert (
        json.loads((run / "averaged/last-1/manifest.json").read_text())["version"] == 1
    )
