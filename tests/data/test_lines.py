"""What is done to the bytes of text files, and what is refused with file and line."""

import functools
import gzip
import io
import itertools
import lzma
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnjax.data.lines import count_lines, in_step, line_blocks, read_lines


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


def blocks_and_fault(blocks):
    """What was delivered, and the sentence after it."""
    delivered = []
    try:
        for block in blocks:
            delivered.append(block)
    except ValueError as error:
        return delivered, str(error)
    return delivered, None


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_a_large_file_is_never_held_as_a_whole(write, ending):
    small = functools.partial(lzma.compress, preset=0)  # of a small dictionary
    compress = {"": bytes, ".gz": gzip.compress, ".xz": small}[ending]
    path = write(f"x{ending}", compress(b"a line of text\n" * 1_000_000))
    tracemalloc.start()
    lines = sum(map(len, line_blocks(path, block_bytes=1 << 12)))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lines == count_lines(path) == 1_000_000
    assert most_bytes < 1 << 20


@given(st.binary(max_size=60), st.integers(1, 9))
def test_blocks_of_any_size_are_the_same_lines(content, size):
    whole = blocks_and_fault(line_blocks(io.BytesIO(content)))
    parts = blocks_and_fault(line_blocks(io.BytesIO(content), block_bytes=size))
    assert [*itertools.chain(*parts[0])] == [*itertools.chain(*whole[0])]
    assert parts[1] == whole[1]


def test_a_block_may_be_bounded_in_lines(write):
    path = write("x", b"a\nb\nc\nd\ne")
    assert [*line_blocks(path, block_lines=2)] == [["a", "b"], ["c", "d"], ["e"]]


def test_the_lines_before_a_fault_are_delivered(write):
    invalid = write("x.de", b"a\nb\nc\xff\nd\n")
    delivered, fault = blocks_and_fault(line_blocks(invalid))
    assert delivered == [["a", "b"]]
    assert "x.de, line 3, byte 2" in fault
    whole = gzip.compress(b"".join(b"%d\n" % n for n in range(50_000)))
    delivered, fault = blocks_and_fault(line_blocks(write("x.gz", whole[:-30_000])))
    assert delivered[0][:2] == ["0", "1"]
    assert "x.gz is damaged" in fault


def test_lines_are_counted_where_that_uses_nothing_up(write):
    for content, lines in ((b"", 0), (b"a", 1), (b"a\n", 1), (b"a\n\nb", 3)):
        assert count_lines(write("x", content)) == lines
    assert count_lines(write("x.gz", b"no archive")) is None
    assert count_lines(write("x", b"").with_name("missing")) is None


def test_two_texts_go_in_step_whatever_their_blocks():
    first, second = [["a", "b"], ["c"]], [["1"], ["2", "3"]]
    assert list(in_step(first, second, ("x", "y"))) == [
        (["a", "b"], ["1", "2"]),
        (["c"], ["3"]),
    ]


def test_what_two_texts_have_in_common_comes_before_the_fault(write):
    first = [["a", "b"], ["c"]]
    delivered, fault = blocks_and_fault(in_step(first, [["1"]], ("x", "y")))
    assert delivered == [(["a"], ["1"])]
    assert "y ends after line 1;" in fault
    delivered, fault = blocks_and_fault(in_step([["a"]], [["1", "2"]], ("x", "y")))
    assert delivered == [(["a"], ["1"])]
    assert "x ends after line 1;" in fault
    invalid = line_blocks(write("y", b"1\n2\n\xff"))
    delivered, fault = blocks_and_fault(in_step(first, invalid, ("x", "y")))
    assert delivered == [(["a", "b"], ["1", "2"])]
    assert "y, line 3, byte 1" in fault
