"""The commands over a run folder, with a run that learned nothing much."""

import dataclasses
import io
import json
import logging
import shlex
import shutil
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest

from attnjax import config_json
from attnjax.cli import main
from attnjax.cli.training import tell_the_end
from attnjax.evaluation.alignment_files import read_pharaoh
from attnjax.evaluation.attention_readings import best_reading
from attnjax.experiment import TrainResult, train
from attnjax.runs.translation import TranslatedLine
from attnjax.tasks.outputs import Hypothesis

ROOT = Path(__file__).parents[2]
LINES = ["25. Oktober", "", "Dänemark und Schweden", "Juni"]
SPEED = ["--max-extra-tokens", "4", "--beam-size", "2"]


def trained(workdir: Path, *more: str) -> Path:
    """A run folder with two checkpoints."""
    options = [
        *("--training.num-steps", "4", "--training.checkpoint-every", "2"),
        *("--training.evaluate-every", "9", "--training.log-every", "2"),
        *("--data.source.train-pairs", "300", "--data.source.valid-pairs", "8"),
        *("--data.source.test-pairs", "9", "--data.tokenizer.vocab-size", "400"),
        *("--data.bucket-lengths", "64", "--data.tokens-per-batch", "512"),
        *("--model.embedding-width", "12", "--model.hidden-width", "16"),
        *("--model.attention-width", "8", "--decoding.max-extra-tokens", "4"),
        *("--decoding.beam-size", "2", "--decoding.max-source-tokens", "48"),
        *("--workdir", str(workdir), *more),
    ]
    config = str(ROOT / "configs" / "quickstart_rnn.py")
    assert main(["train", "--config", config, *options]) == 0
    return workdir


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run folder with two checkpoints, evaluated once."""
    workdir = trained(tmp_path_factory.mktemp("runs") / "tiny")
    assert main(["evaluate", "--workdir", str(workdir), "--pictures", "2"]) == 0
    return workdir


@pytest.fixture
def call(run, monkeypatch, capsys):
    """Runs a command on the run folder; gives exit code, output lines and messages."""

    def invoke(command, *arguments, text=b"", workdir=run):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        folder = [] if workdir is None else ["--workdir", str(workdir)]
        code = main([command, *folder, *map(str, arguments)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out.split("\n")[:-1], err

    return invoke


def encoded(lines):
    return "".join(f"{line}\n" for line in lines).encode()


def test_n_best_scores_and_links_are_columns(call, caplog):
    options = ["--n-best", "2", "--scores", "--alignments"]
    with caplog.at_level(logging.INFO):
        code, rows, _ = call("translate", *options, text=encoded(LINES))
    assert code == 0
    assert "reading chosen on 8 pairs" in caplog.text
    columns = [row.split("\t") for row in rows]
    assert {len(row) for row in columns} == {5}
    assert [row[0] for row in columns] == ["1", "1", "2", "3", "3", "4", "4"]
    assert columns[2][1:] == ["", "0.000000", "0.000000", ""]
    for better, worse in ((0, 1), (3, 4), (5, 6)):
        assert float(columns[better][2]) >= float(columns[worse][2])
    for number, row in enumerate(columns, start=1):
        read_pharaoh([row[4]], f"row {number}")


def test_plain_output_is_a_line_for_a_line_whatever_else_is_asked(call):
    _, plain, _ = call("translate", text=encoded(LINES))
    _, rows, _ = call("translate", "--json", "--attention", text=encoded(LINES))
    found = [json.loads(row) for row in rows]
    assert [line["source"] for line in found] == LINES
    assert [line["translations"][0]["text"] for line in found] == plain
    for line in found:
        for each in line["translations"]:
            attention = np.array(each.get("attention", []))
            assert len(attention) == each["tokens"]
            if each["tokens"]:
                np.testing.assert_allclose(attention.sum(-1), 1.0, atol=0.01)


def test_scoring_a_translation_gives_the_score_it_was_found_with(call, tmp_path):
    _, rows, _ = call("translate", "--json", text=encoded(LINES))
    best = [json.loads(row)["translations"][0] for row in rows]
    ended = [number for number, each in enumerate(best) if each["finished"]]
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(encoded(LINES[number] for number in ended))
    target.write_bytes(encoded(best[number]["text"] for number in ended))
    code, rows, _ = call("score", source, target)
    assert code == 0
    for number, row in zip(ended, rows, strict=True):
        score, total, tokens = row.split("\t")
        if int(tokens) == best[number]["tokens"]:  # not split into other pieces
            np.testing.assert_allclose(float(score), best[number]["score"], rtol=1e-3)
            assert float(total) <= float(score) <= 0
    _, rows, _ = call("score", "--json", source, target)
    for row in map(json.loads, rows):
        assert row["tokens"][-1][0] == "</s>"
        np.testing.assert_allclose(
            sum(p for _, p in row["tokens"]), row["log_probability"], rtol=1e-4
        )


def test_links_stay_within_their_lines(call, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(encoded(["drei Tage", "", "Juni"]))
    target.write_bytes(encoded(["three long days", "", ""]))
    gold, soft = tmp_path / "gold", tmp_path / "soft.npz"
    gold.write_bytes(encoded(["0-0 1-2 0?1", "", ""]))
    options = ["--soft", soft, "--gold", gold, "--reading", "decoder/cross:0:shifted"]
    code, rows, err = call("align", source, target, *options)
    assert code == 0
    assert rows[1:] == ["", ""]
    (links, *_) = read_pharaoh(rows, "output")
    assert {target for _, target in links.sure} <= {0, 1, 2}
    assert "alignment error rate" in err
    assert np.load(soft)["line_1"].shape == (3, 2)


def test_links_may_count_from_one_but_not_beyond_their_sentence(call, tmp_path):
    source, target, gold = (tmp_path / name for name in ("s", "t", "g"))
    source.write_bytes(encoded(["drei Tage", "Juni"]))
    target.write_bytes(encoded(["three days", "June"]))
    judge = [source, target, "--threshold", "0.01", "--gold", gold]
    gold.write_bytes(encoded(["1-1 2-2", "1-1"]))
    code, rows, err = call("align", *judge, "--gold-base", "1")
    assert code == 0
    assert "recall 1.0000" in err
    assert rows == ["0-0 0-1 1-0 1-1", "0-0"]
    code, rows, err = call("align", *judge)
    assert code == 1
    assert f"{gold}, line 1: '2-2' lies outside" in err
    choose = [source, target, "--validation", source, target, gold]
    assert call("align", *choose, "--gold-base", "1")[0] == 0
    code, _, err = call("align", *choose)
    assert code == 1
    assert f"{gold}, line 1" in err


def test_japanese_is_cut_into_words_and_what_is_missing_is_said(call, tmp_path):
    japanese = "--data.target-language", "ja", "--data.tokenizer.vocab-size", "700"
    folder = trained(tmp_path / "ja", *japanese)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(encoded(["drei Tage"]))
    target.write_bytes(encoded(["三 日間、眠る。"]))
    for words, count in (("language", 5), ("spaces", 2)):
        options = ["--words", words, "--threshold", "1e-6"]
        code, rows, _ = call("align", source, target, *options, workdir=folder)
        (links,) = read_pharaoh(rows, "output")
        assert code == 0
        assert {word for _, word in links.sure} == set(range(count))
    assert call("evaluate", "--pictures", "0", workdir=folder)[0] == 0
    report = json.loads((folder / "evaluation" / "test.json").read_text())
    assert "tok:char" in report["bleu_signature"]
    assert any("sacrebleu[ja]" in note for note in report["notes"])
    assert report["source_words_cut_by"] == "spaces"


def test_links_are_judged_in_both_formats_and_may_be_many(call, tmp_path):
    source, target, gold = (tmp_path / name for name in ("s", "t", "g"))
    source.write_bytes(encoded(["drei Tage"]))
    target.write_bytes(encoded(["three days"]))
    gold.write_bytes(encoded(["1 1 1 S", "1 2 2 P"]))
    judged = ["--gold", gold, "--gold-format", "naacl", "--threshold", "0.01"]
    options = [*judged, "--reading", "decoder/cross"]
    code, rows, err = call("align", source, target, *options)
    assert code == 0
    assert rows == ["0-0 0-1 1-0 1-1"]
    assert "precision 0.5000, recall 1.0000, 4 links" in err


def test_any_layer_is_drawn_also_of_a_run_without_a_log(call, run):
    log = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text("")  # as of one that ended before it logged
    options = ["--pictures", "1", "--format", "svg", "--layer"]
    code, _, err = call("evaluate", *options, "decoder/cross", "--split", "valid")
    assert code == 0
    (picture,) = (run / "pictures").glob("valid_*.svg")
    assert str(picture) in err
    code, _, err = call("evaluate", *options, "decoder/layer_7/cross")
    assert code == 1
    assert "the model has decoder/cross" in err
    (run / "metrics.jsonl").write_text(log)


def test_validation_files_choose_the_reading(call, tmp_path, caplog):
    source, target, gold = (tmp_path / name for name in ("s", "t", "g"))
    source.write_bytes(encoded(["drei Tage"]))
    target.write_bytes(encoded(["three days"]))
    gold.write_bytes(encoded(["0-0 1-1"]))
    validation = ["--validation", source, target, gold]
    with caplog.at_level(logging.INFO):
        code, _, _ = call("align", source, target, *validation)
    assert code == 0
    assert "reading chosen on 1 pairs" in caplog.text
    source.write_bytes(encoded(["drei Tage", "x"]))
    code, _, err = call("align", target, target, *validation)
    assert code == 1
    assert "they have 2, 1 and 1" in err


def test_the_reading_is_chosen_once(call, run, tmp_path, monkeypatch, caplog):
    source, target, gold = (tmp_path / name for name in ("s", "t", "g"))
    source.write_bytes(encoded(["drei Tage"]))
    target.write_bytes(encoded(["three days"]))
    gold.write_bytes(encoded(["0-0 1-1"]))
    kept = run / "readings.json"
    chosen = []

    def counted(*given):
        chosen.append(given)
        return best_reading(*given)

    monkeypatch.setattr("attnjax.runs.alignment.best_reading", counted)

    def choices(*options):
        """How many readings a call chooses, and that it says which and finds links."""
        before = len(chosen)
        caplog.clear()
        with caplog.at_level(logging.INFO):
            code, rows, _ = call("align", source, target, *options)
        assert (code, len(rows)) == (0, 1)
        assert "reading chosen on" in caplog.text
        return len(chosen) - before

    kept.unlink(missing_ok=True)
    assert [choices(), choices()] == [1, 0]
    assert [choices("--checkpoint", "2") for _ in range(2)] == [1, 0]
    validation = ["--validation", source, target, gold]
    assert [choices(*validation) for _ in range(2)] == [1, 0]
    gold.write_bytes(encoded(["1-1"]))
    assert [choices(*validation), choices(), choices("--checkpoint", "2")] == [1, 0, 0]
    content = kept.read_bytes()
    kept.write_bytes(content.replace(b"decoder/cross", b"decoder/crass"))
    assert [choices(), choices()] == [1, 0]
    kept.unlink()
    kept.mkdir()  # where nothing can be written
    assert [choices(), choices()] == [1, 1]
    kept.rmdir()


def test_both_directions_are_joined(call, run, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(encoded(["drei Tage"]))
    target.write_bytes(encoded(["three days"]))
    joined = ["--reverse", run, "--symmetrize"]
    links = {
        method: read_pharaoh(call("align", source, target, *joined, method)[1], method)[
            0
        ].sure
        for method in ("intersection", "union")
    }
    assert links["intersection"] <= links["union"]
    assert links["union"]


def test_an_average_is_stored_once_and_used(call, run):
    code, _, err = call("average", "--last", "2")
    assert code == 0
    assert "the mean of steps 2, 4" in err
    code, rows, _ = call("translate", "--checkpoint", "averaged", text=encoded(LINES))
    assert code == 0
    assert len(rows) == len(LINES)
    code, _, err = call("average", "--last", "2")
    assert code == 1
    assert "'last-2' exists already" in err
    code, _, err = call("average", "--last", "9")
    assert code == 1
    assert "9" in err
    assert not (run / "checkpoints" / "last-2").exists()


def test_an_ensemble_of_a_run_with_itself_is_the_run(call, run):
    _, alone, _ = call("translate", text=encoded(LINES))
    code, twice, _ = call("translate", "--workdir", run, text=encoded(LINES))
    assert code == 0
    assert twice == alone
    _, steps, _ = call(
        *("translate", "--checkpoint", "2", "--checkpoint", "4"), text=encoded(LINES)
    )
    assert len(steps) == len(LINES)


def test_samples_are_the_same_for_the_same_seed(call):
    options = ["--method", "sampling", "--n-best", "3", "--seed", "5"]
    _, rows, _ = call("translate", *options, text=encoded(LINES))
    _, again, _ = call("translate", *options, text=encoded(LINES))
    assert rows == again
    _, other, _ = call("translate", *options[:-1], "6", text=encoded(LINES))
    assert other != rows


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("translate --method sampling --length-penalty 3", "length_penalty cannot"),
        ("translate --temperature 2 --top-p 0.5", "temperature and top_p cannot"),
        ("translate --method mbr --beam-size 2", "set method to beam"),
        ("evaluate --num-samples 9", "num_samples cannot be set where method is beam"),
        ("translate --attention", "nobody reads --attention without --json"),
        ("translate --reading decoder/cross", "--reading without --alignments"),
        ("translate --threshold 0.1", "--threshold without --alignments"),
        ("align a b --symmetrize union", "--symmetrize without --reverse"),
        ("align a b --gold-format naacl", "--gold-format without --gold"),
        ("align a b --beam-size 3", "unrecognized arguments: --beam-size 3"),
        ("score a b --temperature 3", "unrecognized arguments: --temperature 3"),
        ("evaluate --pictures 0 --format svg", "--format without --pictures"),
        ("align a b --reading x --validation a b c", "not allowed with"),
        ("align a b --gold c --gold-format naacl --gold-base 1", "nobody reads --gold"),
        ("draw a --target b --beam-size 2 --seed 1", "--beam-size, --seed beside"),
        ("compare a.en b.en --split valid", "nobody reads --split here"),
        ("train --config quickstart --dry-run --from-step 3", "reads --from-step"),
        ("bench attention --options.window 7 --mechanisms linear", "linear read chunk"),
    ],
)
def test_what_nobody_reads_is_refused(run, command, named, capsys):
    name, *options = command.split()
    folder = [] if name in ("compare", "bench") else ["--workdir", str(run)]
    try:
        code = main([name, *options, *folder])
    except SystemExit as refused:
        code = refused.code
    assert code in (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert named in err


def test_prefixes_are_kept_and_counted(call, tmp_path):
    prefixes = tmp_path / "prefixes"
    prefixes.write_bytes(encoded(["Oct", "", "Den", "J"]))
    code, rows, _ = call("translate", "--prefixes", prefixes, text=encoded(LINES))
    assert code == 0
    for prefix, row in zip(["Oct", "", "Den", "J"], rows, strict=True):
        assert row.startswith(prefix)
    prefixes.write_bytes(b"Oct\n")
    code, short, err = call("translate", "--prefixes", prefixes, text=encoded(LINES))
    assert code == 1
    assert short == rows[:1]
    assert f"{prefixes} ends after line 1" in err
    file = tmp_path / "file"
    file.write_bytes(encoded(LINES))
    code, rows, err = call("translate", file, "--prefixes", prefixes)
    assert (code, rows) == (1, [])
    assert "they have 1 and 4 lines" in err


def test_outputs_are_compared(call, run, tmp_path):
    first, second, reference = (tmp_path / name for name in ("a", "b", "r"))
    words = [f"the cat number {n} sat on mat {n}" for n in range(40)]
    reference.write_bytes(encoded(words))
    first.write_bytes(encoded(words))
    second.write_bytes(encoded(["a dog" if n % 2 else w for n, w in enumerate(words)]))
    options = ["--references", reference, "--resamples", "40"]
    code, rows, _ = call("compare", first, second, *options, workdir=None)
    assert code == 0
    assert rows[2].split()[:2] == [str(first), "100.00"]
    assert rows[3].split()[4].startswith("0.0")
    code, rows, _ = call(
        *("compare", first, second, *options, "--format", "csv"), workdir=None
    )
    assert [row.split(",")[0] for row in rows] == ["system", str(first), str(second)]
    code, rows, _ = call("compare", first, *options, workdir=None)
    assert any("TER" in row for row in rows)
    code, rows, _ = call("compare", run, "--json", "--resamples", "40", workdir=None)
    assert code == 0
    assert json.loads(rows[0])["systems"][str(run)]["panel"]
    second.write_bytes(b"one line\n")
    code, _, err = call("compare", first, second, *options, workdir=None)
    assert code == 1
    assert "40" in err
    assert " 1 " in err


def test_evaluation_writes_the_page(run):
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "13a" in page
    assert "decoder/cross" in page
    report = json.loads((run / "evaluation" / "test.json").read_text())
    assert {"ter", "panel", "intervals", "bleu_by_source_words"} <= set(report)


class Terminal(io.BytesIO):
    """What a person reads."""

    def isatty(self):
        return True


def test_an_evaluation_ends_in_tables_on_a_terminal_and_json_elsewhere(
    run, call, tmp_path, monkeypatch
):
    folder = shutil.copytree(run, tmp_path / "copy")
    code, rows, _ = call("evaluate", "--pictures", "0", workdir=folder)
    assert code == 0
    (printed,) = map(json.loads, rows)
    stored = json.loads((folder / "evaluation" / "test.json").read_text())
    assert printed["chrf"] == round(stored["chrf"], 4) != stored["chrf"]
    assert printed["members"] == stored["members"]
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(terminal, "utf-8"))
    assert main(["evaluate", "--workdir", str(folder), "--pictures", "0"]) == 0
    text = terminal.getvalue().decode()
    assert f"{folder}, test set of 9 lines" in text
    for known in ("BLEU 13a ", "1-10 ", "tokens/s ", "weights ", "tok:13a"):
        assert known in text
    assert text.endswith(f"in a browser: {folder / 'report.html'}\n")


def test_training_ends_with_the_score_its_place_and_what_comes_next(
    run, tmp_path, caplog, monkeypatch
):
    caplog.set_level(logging.INFO)
    folder = shutil.copytree(run, tmp_path / "it's")
    trained(folder)
    assert "best validation bleu: 0." in caplog.text
    assert f"at step 4, saved in {folder / 'checkpoints' / '4'}" in caplog.text
    quoted = shlex.quote(str(folder))
    assert caplog.messages[-1] == f"next: attnjax evaluate --workdir {quoted}"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"best_step": None, "best_score": None}, "no validation yet"),
        ({"best_step": 3}, "at step 3, whose checkpoint is not there"),
        ({"best_step": 2}, "latest checkpoint: "),
        ({"signal": "SIGINT"}, "stopped by SIGINT at step 4 of 4; the same command"),
        ({"stopped_early": True}, "stopped at step 4 of 4: the score did not rise"),
    ],
)
def test_training_that_ends_otherwise_says_so(run, caplog, changes, said):
    caplog.set_level(logging.INFO)
    experiment = config_json.from_json((run / "config.json").read_text(), origin="")
    fields = dict.fromkeys(field.name for field in dataclasses.fields(TrainResult))
    standing = {"step": 4, "best_step": 4, "best_score": 1.5, "stopped_early": False}
    result = TrainResult(**{**fields, **standing, **changes})
    tell_the_end(dataclasses.replace(experiment, workdir=run), result)
    assert said in caplog.text


def test_an_evaluation_of_other_weights_replaces_none_unseen(
    run, call, tmp_path, caplog
):
    folder = tmp_path / "copy"
    shutil.copytree(run, folder)
    before = (folder / "evaluation" / "test.json").read_bytes()
    ensemble = ["--pictures", "0", "--checkpoint", "2", "--checkpoint", "4"]
    assert call("evaluate", *ensemble, workdir=folder)[0] == 0
    kept = folder / "evaluation" / "test.1.json"
    assert kept.read_bytes() == before
    assert f"is of other weights; it is kept as {kept}" in caplog.text
    report = json.loads((folder / "evaluation" / "test.json").read_text())
    assert [member["steps"] for member in report["members"]] == [[2], [4]]
    first = json.loads(before)
    assert first["members"][0]["average"] is None
    assert first["test_set"] == report["test_set"]
    assert report["parameters"] == 2 * first["parameters"]
    assert call("evaluate", *ensemble, workdir=folder)[0] == 0
    assert len([*kept.parent.glob("test*.json")]) == 2
    compared = ["compare", folder, kept, "--resamples", "40"]
    code, rows, _ = call(*compared, workdir=None)
    assert code == 0
    assert any("step 2 + step 4" in row for row in rows)


def test_an_evaluation_that_does_not_fit_is_a_sentence(call, run, files_of_at_most):
    before = (run / "evaluation/test.json").read_bytes()
    with files_of_at_most(10):
        code, rows, err = call("evaluate", "--pictures", "0")
    assert code == 1
    assert rows == []
    assert f"the evaluation could not be written to {run}: File too large" in err
    assert (run / "evaluation/test.json").read_bytes() == before


HOSTILE = {
    "nothing": (b"", 0),
    "only empty lines": (b"\n\n\n", 3),
    "no end of line": (b"Juni", 1),
    "windows line ends": (b"Juni\r\nMai\r\n", 2),
    "byte order mark": (b"\xef\xbb\xbfJuni\n", 1),
    "separators that are no line ends": ("a\u2028b\x0bc\x0cd\x85e\r\nf".encode(), 2),
    "nul": (b"a\x00b\n", 1),
    "unknown script": ("ᚠᛇᚻ 𓀀\n".encode(), 1),
    "100,000 characters": (b"x" * 100_000 + b"\nJuni\n", 2),
    "spaces": (b"   \n", 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_gives_as_many_lines(call, name):
    text, count = HOSTILE[name]
    code, rows, _ = call("translate", *SPEED, text=text)
    assert code == 0
    assert len(rows) == count


def test_invalid_text_is_named_and_what_came_before_is_kept(call, tmp_path):
    code, rows, err = call("translate", text=b"Juni\n\xff\n")
    assert code == 1
    assert "line 2, byte 1: expected UTF-8, got byte 0xff" in err
    file = tmp_path / "bad.de"
    file.write_bytes(b"a\nb\nx\xc3\n")
    for command in (["translate", file], ["score", file, file], ["align", file, file]):
        code, rows, err = call(*command)
        assert code == 1
        assert len(rows) == 2
        assert f"{file}, line 3, byte 2" in err


@pytest.fixture
def shouted(monkeypatch):
    """Lines are translated by shouting; the number of lines of each call is noted."""
    calls = []

    def shout(run, lines, *, progress, **_):
        del run
        if "stop" in lines:
            raise KeyboardInterrupt
        calls.append(len(lines))
        progress(len(lines))
        return [
            TranslatedLine(line, [Hypothesis(text=line.upper())], None)
            for line in lines
        ]

    monkeypatch.setattr("attnjax.runs.translation.translated_lines", shout)
    return calls


def test_a_file_is_delivered_block_by_block_until_an_interrupt(call, shouted, tmp_path):
    file = tmp_path / "many"
    lines = [f"line {number}" for number in range(100)]
    small = ["--tokens-per-batch", "16"]  # so that a block is a few lines
    file.write_bytes(encoded([*lines, "stop", *lines]))
    code, rows, err = call("translate", file, *small)
    assert code == 130
    assert "interrupted" in err
    assert rows == [line.upper() for line in lines[: sum(shouted)]]
    assert 80 < len(rows) <= 100
    assert max(shouted) < 20


@pytest.mark.usefixtures("shouted")
def test_progress_is_for_a_terminal(call, run, tmp_path, monkeypatch, capsys):
    file = tmp_path / "some"
    file.write_bytes(encoded(LINES))
    assert call("translate", file)[2] == ""
    monkeypatch.setattr(
        "attnjax.cli.progress.sys",
        types.SimpleNamespace(
            stderr=types.SimpleNamespace(isatty=lambda: True),
            stdout=io.StringIO(),
        ),
    )
    _, rows, err = call("translate", file)
    assert len(rows) == 4
    assert "4/4 lines" in err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Terminal(encoded(LINES))))
    assert main(["translate", "--workdir", str(run)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == rows
    assert err == 5 * "> "  # which a bar would hide


@pytest.mark.usefixtures("shouted")
def test_an_ascii_terminal_gets_utf8(run, monkeypatch):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("東京".encode())))
    assert main(["translate", "--workdir", str(run)]) == 0
    assert main(["translate", "--workdir", "größer"]) == 1
    streams[1].flush()
    out, err = (stream.buffer.getvalue().decode("utf-8") for stream in streams)
    assert out == "東京\n"
    assert "größer is not a run folder" in err


def test_files_of_unequal_length_are_refused(call, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"a\n")
    two.write_bytes(b"a\nb\n")
    for command in ("score", "align"):
        code, _, err = call(command, one, two)
        assert code == 1
        assert "2 and 1 lines" in err


@pytest.mark.parametrize("command", ["translate", "evaluate", "average"])
def test_a_folder_that_is_no_run_is_refused(call, run, command, tmp_path):
    options = ["--last", "1"] if command == "average" else []
    code, _, err = call(command, *options, workdir=tmp_path / "none")
    assert code == 1
    assert "is not a run folder" in err
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    shutil.rmtree(broken / "checkpoints")
    code, _, err = call(command, *options, workdir=broken)
    assert code == 1
    assert "checkpoint" in err
    (broken / "config.json").write_text('{"type": "Experiment", "seed": ')
    code, _, err = call(command, *options, workdir=broken)
    assert code == 1
    assert "not valid JSON" in err


def test_checkpoints_that_do_not_exist_are_refused(call):
    code, _, err = call("translate", "--checkpoint", "newest", text=b"x\n")
    assert code == 1
    assert "got 'newest'" in err
    code, _, err = call("translate", "--checkpoint", "7", text=b"x\n")
    assert code == 1
    assert "[2, 4]" in err
    code, _, err = call("translate", "--checkpoint", "averaged/no", text=b"x\n")
    assert code == 1
    assert "average" in err


def test_a_dry_run_tells_what_a_step_takes_and_writes_nothing(tmp_path, capsys):
    workdir = tmp_path / "never"
    options = [
        *("--data.source.train-pairs", "300", "--data.tokenizer.vocab-size", "400"),
        *("--data.bucket-lengths", "32", "64", "--data.tokens-per-batch", "512"),
        *("--model.embedding-width", "12", "--model.hidden-width", "16"),
        *("--model.attention-width", "8"),
    ]
    config = str(ROOT / "configs" / "quickstart_rnn.py")
    command = ["train", "--dry-run", "--config", config, "--workdir", str(workdir)]
    assert main([*command, *options]) == 0
    out = capsys.readouterr().out
    assert "activations and work space:" in out
    assert "16 rows of 32 source and 32 target tokens" in out
    assert "tokens of an update:        512 " in out
    assert not workdir.exists()


def test_too_little_memory_becomes_advice(run, monkeypatch, capsys):
    def exhausted(*_, **__):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory, 9 bytes")

    monkeypatch.setattr("attnjax.experiment.run_loop", exhausted)
    config = (run / "config.json").read_text()
    experiment = config_json.from_json(config, origin="config.json")
    with pytest.raises(MemoryError, match="--data.tokens-per-batch 256"):
        train(experiment)
