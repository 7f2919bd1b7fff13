"""Lines as they come: blocks, numbers of lines, and readers that go away."""

import io
import os
import sys
import threading

import pytest

from attnjax.cli.streams import line_blocks


@pytest.fixture
def pipe(monkeypatch):
    reader, writer = os.pipe()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(reader, "rb")))
    with os.fdopen(writer, "wb", buffering=0) as stream:
        yield stream


def test_a_slow_writer_is_answered_line_by_line(pipe):
    blocks = line_blocks(None)
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
    lines = [line for block in line_blocks(None) for line in block]
    thread.join()
    assert lines == ["ä" * 100_000, "x", "\u2028"]


def test_later_blocks_know_their_line(pipe):
    blocks = line_blocks(None)
    pipe.write(b"eins\nzwei\n")
    assert next(blocks) == ["eins", "zwei"]
    pipe.write(b"\xef\xbb\xbfdrei\n")
    assert next(blocks) == ["\ufeffdrei"]  # a byte order mark only at the start
    pipe.write(b"vier\n\xff\n")
    with pytest.raises(ValueError, match="line 5, byte 1"):
        next(blocks)


def test_a_terminal_is_prompted(monkeypatch, capsys):
    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(b"eins\nzwei\n")))
    assert list(line_blocks(None)) == [["eins"], ["zwei"]]
    assert capsys.readouterr().err == "> " * 3
