"""WMT 2014 prepared from fake archives without TensorFlow; failures in one sentence."""

import sys
import time

import pytest

from attnjax.config import DataConfig, TFDSSource
from attnjax.data.corpus import load_corpora
from attnjax.data.tfds import load_tfds


@pytest.fixture
def unreachable(monkeypatch):
    """A network that is not there, and that counts how often it was tried."""
    import requests

    attempts = []

    def refuse(*arguments, **keywords):
        attempts.append(arguments)
        raise requests.exceptions.ConnectionError("no network")

    monkeypatch.setattr(requests, "head", refuse)
    monkeypatch.setattr(requests.Session, "get", refuse)
    return attempts


@pytest.fixture
def prepared(fake_wmt, tmp_path, unreachable):
    source = TFDSSource(data_dir=tmp_path / "sets", manual_dir=fake_wmt)
    load_tfds(source, "de", "en")
    assert unreachable == []
    return TFDSSource(data_dir=tmp_path / "sets")


def test_first_preparation_to_sentences(fake_wmt, tmp_path, capfd):
    config = DataConfig(
        source=TFDSSource(data_dir=tmp_path / "sets", manual_dir=fake_wmt),
        source_language="en",
        target_language="de",
    )
    corpora = load_corpora(config)
    assert {split: len(corpus) for split, corpus in corpora.items()} == {
        "train": 120,
        "valid": 5,
        "test": 4,
    }
    train = corpora["train"]
    parts = {text.split()[0] for text in train.source}
    assert parts == {"ep", "cc", "nc"}
    for corpus in corpora.values():
        for english, german in (corpus[index] for index in range(len(corpus))):
            assert english.split()[:2] == german.split()[:2]
            assert english.split()[2] in ("The", "We")
            assert german.split()[2] in ("Das", "Der", "Wir")
    assert corpora["test"].describe(2) == "wmt14_translate/de-en test, line 3"
    assert capfd.readouterr().out == ""  # stdout is for results
    assert "tensorflow" not in sys.modules


def test_a_prepared_set_needs_neither_archives_nor_network(prepared, unreachable):
    train, valid, test = load_tfds(prepared, "de", "en")
    assert (len(train), len(valid), len(test)) == (120, 5, 4)
    assert unreachable == []


def test_slices_of_splits(prepared):
    source = TFDSSource(data_dir=prepared.data_dir, train_split="train[:10%]")
    assert len(load_tfds(source, "de", "en")[0]) == 12


def test_large_splits_are_read_on_demand(prepared, monkeypatch):
    from attnjax.data import tfds

    whole = load_tfds(prepared, "de", "en")[0]
    monkeypatch.setattr(tfds, "_MOST_PAIRS_READ_AT_ONCE", 10)
    lazy = load_tfds(prepared, "de", "en")[0]
    assert not isinstance(lazy.source, list)
    assert list(lazy.source) == whole.source
    assert lazy.target[3:7] == whole.target[3:7]
    assert lazy.target[-1] == whole.target[-1]
    with pytest.raises(IndexError):
        lazy.source[120]


def test_no_archive_and_no_network_is_said_at_once(fake_wmt, tmp_path, unreachable):
    source = TFDSSource(data_dir=tmp_path / "sets")
    started = time.monotonic()
    with pytest.raises(ConnectionError) as caught:
        load_tfds(source, "de", "en")
    assert time.monotonic() - started < 5
    assert len(unreachable) == 1
    message = str(caught.value)
    assert "\n" not in message
    assert "wmt14_translate/de-en" in message
    assert "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz" in message
    assert "manual_dir" in message


def test_the_missing_archive_is_the_one_named(fake_wmt, tmp_path, unreachable):
    (fake_wmt / "dev.tgz").unlink()
    source = TFDSSource(data_dir=tmp_path / "sets", manual_dir=fake_wmt)
    with pytest.raises(ConnectionError, match=r"/dev\.tgz cannot be reached"):
        load_tfds(source, "de", "en")


def test_a_failed_preparation_can_be_repeated(fake_wmt, tmp_path, unreachable):
    source = TFDSSource(data_dir=tmp_path / "sets", manual_dir=fake_wmt)
    archive = fake_wmt / "dev.tgz"
    content = archive.read_bytes()
    archive.unlink()
    with pytest.raises(ConnectionError):
        load_tfds(source, "de", "en")
    archive.write_bytes(content)
    assert len(load_tfds(source, "de", "en")[1]) == 5


def test_a_damaged_archive_is_named(fake_wmt, tmp_path):
    archive = fake_wmt / "dev.tgz"
    archive.write_bytes(archive.read_bytes() + b"!")
    source = TFDSSource(data_dir=tmp_path / "sets", manual_dir=fake_wmt)
    with pytest.raises(ValueError, match=r"dev\.tgz.* wrong checksum; it is damaged"):
        load_tfds(source, "de", "en")


def test_the_library_is_left_as_it_was(prepared):
    from tensorflow_datasets.core.download import download_manager, extractor

    assert type(extractor.tf).__name__ != "SimpleNamespace"
    assert download_manager.DownloadManager._download.__name__ == "_download"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "no_such_set"}, "no set 'no_such_set'; expected a name"),
        ({"name": "wmt14_translate/en-de"}, "only cs-en, de-en, .*source_language"),
        ({"manual_dir": "missing"}, "missing is no folder"),
    ],
)
def test_wrong_settings_are_explained(tmp_path, fields, message):
    if "manual_dir" in fields:
        fields = {"manual_dir": tmp_path / fields["manual_dir"]}
    source = TFDSSource(**{"data_dir": tmp_path / "sets"} | fields)
    with pytest.raises(ValueError, match=message):
        load_tfds(source, "de", "en")


def test_wrong_splits_and_languages_are_explained(prepared):
    source = TFDSSource(data_dir=prepared.data_dir, valid_split="dev")
    with pytest.raises(
        ValueError, match="no split 'dev', only train, validation, test"
    ):
        load_tfds(source, "de", "en")
    with pytest.raises(ValueError, match="no language 'fr', only de, en"):
        load_tfds(prepared, "fr", "en")
