"""Comparisons: of one test set only, with all that is known of the systems."""

import csv
import dataclasses
import io
import json
from pathlib import Path

import pytest

from attnjax import config_json
from attnjax.config import (
    CLDRSource,
    DataConfig,
    DecodingConfig,
    Experiment,
    RNNConfig,
)
from attnjax.data.corpus import load_corpora
from attnjax.evaluation.lines import lines_fingerprint
from attnjax.runs.comparison import compare
from attnjax.runs.report_tables import comparison_text, describe_search

SOURCE = CLDRSource(train_pairs=40, valid_pairs=9, test_pairs=23)
EXPERIMENT = Experiment(data=DataConfig(source=SOURCE), model=RNNConfig())


def evaluated(folder: Path, *, wrong: int, seed: int = 0, **fields) -> Path:
    """A run folder as an evaluation leaves it, with some lines spoilt."""
    languages = fields.pop("languages", ("de", "en"))
    data = dataclasses.replace(
        EXPERIMENT.data, source_language=languages[0], target_language=languages[1]
    )
    experiment = dataclasses.replace(EXPERIMENT, data=data, seed=seed, workdir=folder)
    corpus = load_corpora(data)["test"]
    lines = ["x" if n < wrong else line for n, line in enumerate(corpus.target)]
    (folder / "evaluation").mkdir(parents=True)
    (folder / "config.json").write_text(config_json.to_json(experiment))
    output = folder / "evaluation" / f"test.{languages[1]}"
    output.write_text("".join(f"{line}\n" for line in lines))
    report = {
        "split": "test",
        "members": [{"folder": str(folder), "steps": [1600], "average": None}],
        "parameters": 1_234_567,
        "tokens_per_second": 987.6,
        "decoding": dataclasses.asdict(DecodingConfig(beam_size=3)),
        "source_words_cut_by": "spaces",
        "bleu_by_source_words": [
            {"label": "1-10", "low": 1, "high": 10, "count": 20, "bleu": 77.125},
            {"label": ">10", "low": 11, "high": None, "count": 0, "bleu": None},
        ],
        "test_set": {
            "sources": lines_fingerprint(corpus.source),
            "references": lines_fingerprint(corpus.target),
        },
    }
    (folder / "evaluation" / "test.json").write_text(json.dumps(report | fields))
    return folder


def test_evaluations_of_other_test_sets_are_refused(tmp_path):
    one = evaluated(tmp_path / "de", wrong=3)
    other = evaluated(tmp_path / "fr", wrong=3, languages=("fr", "en"))
    with pytest.raises(ValueError, match=r"de and .*fr were scored on different test"):
        compare([one, other], resamples=40)
    references = tmp_path / "references"
    references.write_text("other words\n" * 23)
    with pytest.raises(ValueError, match="scored on other references than these"):
        compare([one], [references], resamples=40)
    files = [one / "evaluation/test.en", other / "evaluation/test.en"]
    assert compare(files, [references], resamples=40)["systems"]


def test_old_evaluations_open_and_are_said_to_be_unchecked(tmp_path):
    new, old = (evaluated(tmp_path / name, wrong=3) for name in ("new", "old"))
    (old / "evaluation" / "test.json").write_text('{"split": "test"}')
    report = compare([new, old], resamples=40)
    (note,) = report["notes"]
    assert f"evaluation of {old} does not say which test set it is of" in note
    (old / "evaluation" / "test.json").unlink()
    assert compare([new, old], resamples=40)["notes"] == [note]


@pytest.mark.parametrize(
    "wrong",
    [
        '{"members": [{"steps": []}]}',
        '{"members": 3}',
        '{"tokens_per_second": NaN}',
        '{"parameters": "many"}',
        '{"bleu_by_source_words": [{"label": "1-10", "low": 1, "count": 2}]}',
        "[]",
    ],
)
def test_a_report_of_another_form_is_refused(tmp_path, wrong):
    run = evaluated(tmp_path / "run", wrong=3)
    (run / "evaluation" / "test.json").write_text(wrong)
    with pytest.raises(ValueError, match=r"test\.json is not the report of"):
        compare([run], resamples=40)


def test_files_beside_run_folders_are_said_to_be_unchecked(tmp_path):
    run = evaluated(tmp_path / "run", wrong=3)
    file = tmp_path / "output.en"
    file.write_text("y\n" * 23)
    (note,) = compare([run, file], resamples=40)["notes"]
    assert note.startswith(f"{file} does not say")


def test_the_language_comes_from_the_ending_of_a_file_or_is_asked_for(tmp_path):
    for name, tokenizer, notes in (
        ("x.zh", "zh", 0),
        ("x.de.out", "13a", 0),
        ("x.unknown", "13a", 1),
    ):
        file = tmp_path / name
        file.write_text("我们今天去学校学习新的\n" * 3)
        report = compare([file], [file], resamples=40)
        assert len(report["notes"]) == notes
        (scores,) = report["systems"].values()
        assert f"tok:{tokenizer}|" in scores["bleu_signature"]
    assert "--language" in report["notes"][0]
    named = compare([file], [file], target_language="zh", resamples=40)
    assert named["notes"] == []


def test_the_table_tells_what_is_known_of_each_system(tmp_path):
    good, bad = (
        evaluated(tmp_path / name, wrong=wrong)
        for name, wrong in (("good", 2), ("bad", 15))
    )
    report = compare([good, bad], resamples=40)
    text = comparison_text(report)
    assert "tok:13a" in text
    assert "bs:40" in text
    assert "77.12 (20)  - (0)" in text
    assert text.count("1,234,567") == 2
    assert text.count("987.6  step 1,600  beam, beam_size 3, length_penalty 0.6") == 2
    assert len([line for line in text.split("\n") if line.startswith(str(bad))]) == 3
    one = comparison_text(compare([good], resamples=40))
    assert "BLEU 13a lower-cased" in one
    assert "TER" in one
    assert "1,234,567" in one


def test_every_pair_has_a_p_value_in_every_format(tmp_path):
    paths = [
        evaluated(tmp_path / name, wrong=wrong)
        for name, wrong in (("a", 2), ("b", 3), ("c", 20))
    ]
    report = compare(paths, resamples=60)
    found = {tuple(pair["systems"]): pair["bleu"] for pair in report["p_values"]}
    a, b, c = map(str, paths)
    assert list(found) == [(a, b), (a, c), (b, c)]
    assert found[b, c] < 0.05 < found[a, b]
    again = compare(paths[1:], resamples=60)["systems"][c]["bleu"]["p_value"]
    assert found[b, c] == again
    assert f"{b} - {c}" in comparison_text(report)
    rows = [*csv.DictReader(io.StringIO(comparison_text(report, "csv")))]
    assert [row["system"] for row in rows] == [a, b, c]
    assert float(rows[1][f"p bleu against {c}"]) == pytest.approx(again, abs=1e-4)
    assert rows[1][f"p bleu against {b}"] == ""
    assert rows[0]["parameters"] == "1234567"
    assert rows[0]["1-10"] == "77.12"
    markdown = comparison_text(report, "markdown")
    assert markdown.count("| --- |") == 4
    latex = comparison_text(report, "latex")
    assert latex.count(r"\begin{tabular}") == 4
    assert "\n% signature of BLEU: nrefs:1" in latex


def test_seeds_of_one_config_have_a_mean_and_a_spread(tmp_path):
    paths = [
        evaluated(tmp_path / f"seed_{seed}", wrong=2 * seed, seed=seed)
        for seed in (1, 2, 4)
    ]
    other = evaluated(
        tmp_path / "other_search", wrong=9, seed=8, decoding={"method": "mbr"}
    )
    again = evaluated(tmp_path / "same_seed", wrong=9, seed=4)
    members = [{"folder": "", "steps": [4], "average": None}] * 2
    ensembles = [
        evaluated(tmp_path / f"ensemble_{seed}", wrong=9, seed=seed, members=members)
        for seed in (5, 7)
    ]
    average = evaluated(
        tmp_path / "average", wrong=9, seed=6, members=[members[0] | {"average": "a"}]
    )
    report = compare([*paths, other, again, *ensembles, average], resamples=40)
    (group,) = report["seeds"]
    assert group["seeds"] == [1, 2, 4]
    assert group["systems"] == [str(path) for path in paths]
    values = [report["systems"][str(path)]["bleu"]["score"] for path in paths]
    mean = sum(values) / 3
    assert group["bleu"]["mean"] == pytest.approx(mean)
    variance = sum((value - mean) ** 2 for value in values) / 2
    assert group["bleu"]["standard_deviation"] == pytest.approx(variance**0.5)
    assert f"{mean:.2f} ± {variance**0.5:.2f}" in comparison_text(report)


def test_search_settings_in_words():
    assert describe_search({"method": "beam", "beam_size": 4}) == "beam, beam_size 4"
    sampled = dataclasses.asdict(DecodingConfig(method="sampling", top_p=0.9))
    assert describe_search(sampled) == "sampling, top_p 0.9, seed 0"
    assert describe_search(None) == "-"
