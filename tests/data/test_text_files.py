"""What is done to the bytes of text files, and what is refused with file and line."""

import gzip
import io
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnjax.data.text_files import read_lines, read_text_files


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def test_lines_end_at_newline_only(write):
    text = "a\u2028b\x0bc\x0cd\x85e\r\nf\0g"  # str.splitlines finds 6 lines
    assert read_lines(write("x", text.encode())) == ["a\u2028b\x0bc\x0cd\x85e", "f\0g"]


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\n\r\ufeff", codec="utf-8")),
        min_size=1,
    )
)
def test_any_lines_come_back(lines):
    content = "".join(line + "\n" for line in lines).encode()
    assert read_lines(io.BytesIO(content)) == lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"\xef\xbb\xbf", []),
        (b"a\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\n", ["a\r"]),
        (b"a\rb\n", ["a\rb"]),
    ],
)
def test_ends_of_files_and_lines(content, lines):
    assert read_lines(io.BytesIO(content)) == lines


@pytest.mark.parametrize(
    ("ending", "compress"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)],
)
def test_plain_and_compressed_files_read_the_same(write, ending, compress):
    path = write(f"x.de{ending}", compress("größer\nkleiner\n".encode()))
    assert read_lines(path) == ["größer", "kleiner"]


def test_invalid_utf8_is_named_by_file_line_and_byte(write):
    path = write("x.de", b"fine\nf\xfcr\n")
    with pytest.raises(ValueError, match=r"x\.de, line 2, byte 2: .*0xfc"):
        read_lines(path)


def test_invalid_utf8_after_a_byte_order_mark(write):
    path = write("x.de", b"\xef\xbb\xbf\xff")
    with pytest.raises(ValueError, match="line 1, byte 1"):
        read_lines(path)


@pytest.mark.parametrize("ending", [".gz", ".xz"])
@pytest.mark.parametrize("damage", [lambda data: b"no archive", lambda data: data[:-9]])
def test_damaged_archives_are_named(write, ending, damage):
    compress = {".gz": gzip.compress, ".xz": lzma.compress}[ending]
    path = write(f"x{ending}", damage(compress(b"one line\n" * 50)))
    with pytest.raises(ValueError, match=rf"x{ending} is damaged"):
        read_lines(path)


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
