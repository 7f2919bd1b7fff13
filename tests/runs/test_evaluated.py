"""What an evaluation is of, and that none is replaced unseen."""

import json

import numpy as np
import pytest

from attnjax.runs.evaluated import (
    keep_other,
    read_evaluation,
    weights_fingerprint,
)

REPORT = {
    "weights": "0123",
    "decoding": {"method": "beam", "beam_size": 4, "tokens_per_batch": 64},
    "test_set": {"sources": "45", "references": "67", "origin": "here"},
}


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        ({"decoding": {**REPORT["decoding"], "tokens_per_batch": 8}}, None),
        ({"weights": "9"}, "is of other weights;"),
        ({"decoding": {"method": "mbr"}, "weights": "9"}, "weights, other search set"),
        ({"test_set": {"sources": "45", "references": "0"}}, "of other test set;"),
        ({"test_set": None, "weights": None}, "does not say what it is of"),
    ],
)
def test_another_evaluation_is_kept(tmp_path, caplog, stored, reason):
    report_file, lines = tmp_path / "test.json", tmp_path / "test.en"
    text = json.dumps(REPORT | stored)
    report_file.write_text(text)
    lines.write_text("a\n")
    (tmp_path / "test.1.json").write_text("{}")
    keep_other(report_file, lines, REPORT)
    assert report_file.exists() == lines.exists() == (reason is None)
    if reason is not None:
        assert (tmp_path / "test.2.json").read_text() == text
        assert (tmp_path / "test.2.en").read_text() == "a\n"
        assert reason in caplog.text


def test_a_damaged_report_is_kept_too(tmp_path, caplog):
    report_file = tmp_path / "test.json"
    report_file.write_text('{"weights": ')
    keep_other(report_file, tmp_path / "test.en", REPORT)
    assert (tmp_path / "test.1.json").exists()
    assert "cannot be read" in caplog.text


def test_weights_are_told_apart_by_values_names_and_types():
    values = np.arange(4.0)
    variants = [
        {"params": {"a": values}},
        {"params": {"b": values}},
        {"params": {"a": values + 1}},
        {"params": {"a": values.astype(np.float32)}},
        {"params": {"a": values}, "stats": {"a": values}},
    ]
    assert len({weights_fingerprint(each) for each in variants}) == len(variants)
    assert weights_fingerprint({"params": {"a": values.copy()}}) == (
        weights_fingerprint(variants[0])
    )


@pytest.mark.parametrize(
    ("files", "advice"), [([], "train first"), (["metrics.jsonl"], "restore that file")]
)
def test_a_folder_without_a_config_is_no_evaluation(tmp_path, files, advice):
    for name in files:
        (tmp_path / name).write_text("{}\n")
    with pytest.raises(ValueError, match=rf"is not a run folder .*{advice}"):
        read_evaluation(tmp_path, "test")
