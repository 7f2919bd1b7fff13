"""Two files side by side: pairs of lines, and what is refused."""

import gzip

import pytest

from attnjax.data.text_files import read_text_files


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def test_pairs_of_lines(write, tmp_path):
    write("train.de", b"eins\n\nzwei\n")
    write("train.en.gz", gzip.compress(b"one\nempty\n\n"))
    corpus = read_text_files(tmp_path / "train", "de", "en")
    assert [corpus[i] for i in range(3)] == [
        ("eins", "one"),
        ("", "empty"),
        ("zwei", ""),
    ]
    assert corpus.describe(1).endswith("train.en.gz, line 2")


def test_unequal_line_counts_are_refused(write, tmp_path):
    write("train.de", b"eins\nzwei\n")
    write("train.en", b"one\n")
    with pytest.raises(
        ValueError, match=r"train\.de has 2, .*train\.en ends after line 1"
    ):
        read_text_files(tmp_path / "train", "de", "en")


def test_an_empty_file_is_refused(write, tmp_path):
    write("train.de", b"")
    write("train.en", b"")
    with pytest.raises(ValueError, match=r"train\.de is empty"):
        read_text_files(tmp_path / "train", "de", "en")


def test_a_missing_file_is_named(write, tmp_path):
    write("train.de", b"eins\n")
    with pytest.raises(FileNotFoundError, match=r"no .*train\.en, nor .*\.gz or \.xz"):
        read_text_files(tmp_path / "train", "de", "en")
