"""Lines as they come: blocks, numbers of lines, and readers that go away."""

import io
import os
import sys
import threading

import numpy as np
import pytest

from attnjax.cli.streams import arrays_file, input_blocks


@pytest.fixture
def pipe(monkeypatch):
    reader, writer = os.pipe()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(reader, "rb")))
    with os.fdopen(writer, "wb", buffering=0) as stream:
        yield stream


def test_a_slow_writer_is_answered_line_by_line(pipe):
    blocks = input_blocks(None)
    for line in ("eins", "zwei", "drei"):
        pipe.write(f"{line}\n".encode())
        assert next(blocks) == [line]
    pipe.write(b"ohne Ende")
    pipe.close()
    assert list(blocks) == [["ohne Ende"]]


def test_a_line_in_pieces_is_one_line(pipe):
    text = ("ä" * 100_000 + "\n" + "x\r\n" + "\u2028\n").encode()

    def write():
        for start in range(0, len(text), 7_001):
            pipe.write(text[start : start + 7_001])
        pipe.close()

    thread = threading.Thread(target=write)
    thread.start()
    lines = [line for block in input_blocks(None) for line in block]
    thread.join()
    assert lines == ["ä" * 100_000, "x", "\u2028"]


def test_later_blocks_know_their_line(pipe):
    blocks = input_blocks(None)
    pipe.write(b"eins\nzwei\n")
    assert next(blocks) == ["eins", "zwei"]
    pipe.write(b"\xef\xbb\xbfdrei\n")
    assert next(blocks) == ["\ufeffdrei"]  # a byte order mark only at the start
    pipe.write(b"vier\n\xff\n")
    assert next(blocks) == ["vier"]
    with pytest.raises(ValueError, match="line 5, byte 1"):
        next(blocks)


def test_a_terminal_is_prompted(monkeypatch, capsys):
    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(b"eins\nzwei\n")))
    assert list(input_blocks(None)) == [["eins"], ["zwei"]]
    assert capsys.readouterr().err == "> " * 3


def test_arrays_are_in_the_file_as_soon_as_they_are_there(tmp_path):
    path = tmp_path / "soft.npz"

    def write():
        with arrays_file(path) as keep:
            keep("line_1", np.arange(6).reshape(2, 3))
            keep("line_2", np.zeros((0, 3)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    stored = np.load(path)
    assert stored.files == ["line_1", "line_2"]
    np.testing.assert_array_equal(stored["line_1"], [[0, 1, 2], [3, 4, 5]])
    assert stored["line_2"].shape == (0, 3)
