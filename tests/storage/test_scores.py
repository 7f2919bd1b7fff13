"""Scores survive a failing disk as they were, or are refused."""

import json
import math

import numpy as np
import pytest

from attnjax.storage.scores import Scores


@pytest.fixture
def folder(tmp_path):
    """A folder with the scores of steps 5 and 40."""
    scores = Scores(tmp_path)
    scores.rank(40, 0.25)
    scores.rank(5, -1.5)
    scores.store()
    return tmp_path


def test_scores_come_back_by_rising_step(folder):
    assert list(Scores(folder).by_step.items()) == [(5, -1.5), (40, 0.25)]


def test_no_file_is_no_score(tmp_path):
    assert Scores(tmp_path / "absent").by_step == {}


def test_what_is_not_finite_never_ranks(folder):
    scores = Scores(folder)
    for score in (math.nan, math.inf, -math.inf):
        scores.rank(7, score)
    assert 7 not in scores.by_step


def test_the_earliest_of_equals_is_the_best_of_those_asked_for(folder):
    scores = Scores(folder)
    scores.rank(60, 0.25)
    assert scores.best_of([5, 60, 40, 80]) == 40
    assert scores.best_of([5, 60]) == 60
    assert scores.best_of([80]) is None


def test_scores_are_compared_with_those_measured_as_the_newest(tmp_path):
    scores = Scores(tmp_path)
    for step, measure, score in [(1, "a", 9.0), (2, "b", 1.0), (3, "a", 2.0)]:
        assert scores.compare_by(measure) == (None if step < 3 else (1, 9.0))
        scores.rank(step, score)
    for each in (scores, stored_anew(scores, tmp_path)):
        assert each.best_of([1, 2, 3]) == 1
        assert each.best_of([1, 2]) == 2
        assert each.comparable([3, 2, 1]) == {1: 9.0, 3: 2.0}
        assert each.best_of_each_measure([1, 2, 3, 4]) == {1, 2}


def test_scores_from_before_measures_were_kept_are_of_the_first_one(folder):
    scores = Scores(folder)
    assert scores.compare_by("a") == (40, 0.25)
    assert stored_anew(scores, folder).compare_by("b") is None


def stored_anew(scores, folder):
    scores.store()
    return Scores(folder)


def test_others_are_forgotten(folder):
    scores = Scores(folder)
    scores.keep([40, 80])
    scores.store()
    assert Scores(folder).by_step == {40: 0.25}


def test_a_file_from_before_the_seal_is_read(tmp_path):
    (tmp_path / "scores.json").write_text('{"500": 12.5, "1000": 13}')
    assert Scores(tmp_path).by_step == {500: 12.5, 1000: 13.0}


def test_any_flipped_bit_is_refused(folder):
    """Otherwise a digit becomes another, and the best is no longer kept."""
    path = folder / "scores.json"
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="scores.json"):
            Scores(folder)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "null",
        "7",
        '{"one": 1}',
        '{"1": "high"}',
        '{"1": true}',
        '{"1": NaN}',
        '{"1": 1e999}',
        '{"1": 1' + "0" * 400 + "}",
        '{"1": [' + "[" * 500 + "]" * 500 + "]}",
        '{"1":' * 99_999,
        '{"1' + "0" * 5000 + '": 1}',
        "",
        "\x00" * 40,
    ],
    ids=lambda content: content[:12],
)
def test_what_is_no_list_of_scores_is_refused_in_a_sentence(tmp_path, content):
    (tmp_path / "scores.json").write_text(content)
    with pytest.raises(ValueError, match="scores.json") as caught:
        Scores(tmp_path)
    assert len(str(caught.value)) < 500


def test_a_hundred_megabytes_are_refused_unread(tmp_path):
    with (tmp_path / "scores.json").open("wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(
        ValueError, match="has 100,000,000 bytes, but at most 1,048,576"
    ):
        Scores(tmp_path)


def test_a_link_to_elsewhere_is_refused(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text('{"1": 2}')
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "scores.json").symlink_to(secret)
    with pytest.raises(ValueError, match="scores.json is a link out of its folder"):
        Scores(folder)


def test_a_failure_leaves_the_old_scores_and_the_new_ones_to_store(folder, monkeypatch):
    scores = Scores(folder)
    scores.rank(50, 9.0)
    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="no space"):
        scores.store()
    assert Scores(folder).by_step == {5: -1.5, 40: 0.25}
    assert [path.name for path in folder.iterdir()] == ["scores.json"]
    monkeypatch.undo()
    scores.store()
    assert Scores(folder).by_step == {5: -1.5, 40: 0.25, 50: 9.0}


def fail(*arguments):
    raise OSError(28, "no space left on device")


def test_nothing_is_written_where_nothing_changed(folder, monkeypatch):
    scores = Scores(folder)
    monkeypatch.setattr("pathlib.Path.replace", fail)
    scores.rank(40, 0.25)
    scores.rank(41, math.nan)
    scores.keep([5, 40])
    scores.store()
    assert set(json.loads((folder / "scores.json").read_text())) == {"scores", "sha256"}
