"""The Pharaoh format and that of NAACL 2003."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnjax.evaluation.alignment import GoldAlignment
from attnjax.evaluation.alignment_files import (
    format_pharaoh,
    read_naacl,
    read_pharaoh,
)

LINKS = st.frozensets(st.tuples(st.integers(0, 120), st.integers(0, 120)))


def gold(sure, possible=()):
    return GoldAlignment(frozenset(sure), frozenset(sure) | frozenset(possible))


def test_pharaoh_lines():
    lines = ["0-0 1-12", "", "  0?3\t4p5  6-7 \r\n", "1?1 1-1 1p1"]
    assert read_pharaoh(lines, "gold") == [
        gold({(0, 0), (1, 12)}),
        gold(()),
        gold({(6, 7)}, {(0, 3), (4, 5)}),
        gold({(1, 1)}),
    ]


def test_pharaoh_words_may_count_from_one():
    assert read_pharaoh(["1-1 2?10"], "gold", one_based=True) == [
        gold({(0, 0)}, {(1, 9)})
    ]
    assert format_pharaoh(gold({(0, 0)}, {(1, 9)}), one_based=True) == "1-1 2?10"
    with pytest.raises(ValueError, match="counted from 1, got '0-1'"):
        read_pharaoh(["0-1"], "gold", one_based=True)
    with pytest.raises(ValueError, match="counted from 1, got '1-0'"):
        read_pharaoh(["1-0"], "gold", one_based=True)


@pytest.mark.parametrize(
    "bad",
    [
        *("0", "0-", "-1", "0-0-0", "0--1", "a-b", "0,0", "0-0;", "0–0", "0S1", "0-1p"),
        *(
            "1.0-2",
            "٣-0",
            "0-٤",
            "0-0\u20281-1",
            "0-0\x851-1",
            "0-0\0",
            "\ufeff0-0",
            "# 0-0",
        ),
        *("9" * 5000 + "-0", "0 - 0", "0-0\n1-1"),
    ],
)
def test_pharaoh_lines_that_are_none_are_refused_with_file_and_line(bad):
    with pytest.raises(ValueError, match=r"^test\.align, line 3: expected") as caught:
        read_pharaoh(["0-0", "", f"1-1 {bad}", "0-0"], "test.align")
    assert len(str(caught.value)) < 250


def test_pharaoh_links_are_written_in_order():
    links = frozenset({(10, 0), (2, 11), (2, 3), (0, 5)})
    assert format_pharaoh(links) == "0-5 2-3 2-11 10-0"
    assert format_pharaoh(gold({(2, 3)}, {(0, 1), (4, 0)})) == "0?1 2-3 4?0"
    assert format_pharaoh(frozenset()) == ""


@given(LINKS, LINKS, st.booleans())
def test_what_is_written_is_read_again(sure, others, one_based):
    truth = GoldAlignment(sure, sure | others)
    line = format_pharaoh(truth, one_based=one_based)
    assert read_pharaoh([line], "x", one_based=one_based) == [truth]


def test_naacl_lines():
    lines = [
        *("0003 1 2 P", "1 1 1", "# by hand", "", "1 2 10 S 0.75"),
        *("003 1 2 S", "3\t4  4 P 1", " 1 3 3 0.5\r\n", "3 5 5 P .5", "3 6 6 P 1.0"),
    ]
    assert read_naacl(lines, "gold", num_sentences=4) == [
        gold({(0, 0), (1, 9), (2, 2)}),
        gold(()),
        gold({(0, 1)}, {(3, 3), (4, 4), (5, 5)}),
        gold(()),
    ]


def test_the_empty_word_of_naacl_adds_no_link():
    lines = ["1 0 1 S", "1 3 0", "1 1 1"]
    assert read_naacl(lines, "gold", num_sentences=1) == [gold({(0, 0)})]


@pytest.mark.parametrize(
    "bad",
    [
        *("1 1", "1", "1 1 1 X", "1 1 1 s", "1 1 1 S P", "1 1 1 S 0.5 7", "-1 1 1"),
        *("1 1 1 S 1.5", "1 1 1 S nan", "1 1 1 0.5 S", "1,1,1", "1-1", "a 1 1 S"),
        *(
            "1 1 1\u20281 1 1",
            "1 1.5 1",
            "٣ 1 1",
            "1 ٣ 1",
            "1 1 ٣",
            "9" * 5000 + " 1 1",
            "1 1 1 # note",
        ),
    ],
)
def test_naacl_lines_that_are_none_are_refused_with_file_and_line(bad):
    with pytest.raises(ValueError, match=r"^test\.wa, line 2: expected") as caught:
        read_naacl(["1 1 1", bad], "test.wa", num_sentences=1)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("sentence", ["0", "3", "000"])
def test_naacl_sentences_beyond_the_corpus_are_refused(sentence):
    with pytest.raises(ValueError, match=f"line 1: .* from 1 to 2, got {sentence}"):
        read_naacl([f"{sentence} 1 1 S"], "test.wa", num_sentences=2)


@pytest.mark.parametrize(
    ("line", "one_based"), [("0-0 3-0", False), ("0?2", False), ("4-1", True)]
)
def test_links_outside_of_their_sentence_are_refused_with_file_and_line(
    line, one_based
):
    lengths = [(9, 9), (3, 2)]
    with pytest.raises(
        ValueError, match=r"^t\.align, line 2: .* 3 source and 2 target"
    ):
        read_pharaoh(["1-1", line], "t.align", one_based=one_based, lengths=lengths)
    with pytest.raises(ValueError, match=r"^t\.wa, line 3: '2 1 3 P' lies outside"):
        read_naacl(
            ["2 1 1", "1 9 9", "2 1 3 P"], "t.wa", num_sentences=2, lengths=lengths
        )
    assert len(read_pharaoh(["8-8", "2-1"], "t.align", lengths=lengths)) == 2
    with pytest.raises(ValueError, match="t.align has 1 lines for 2 sentence pairs"):
        read_pharaoh(["1-1"], "t.align", lengths=lengths)


def test_a_file_that_seems_to_count_from_one_is_said_to(caplog):
    read_pharaoh(["1-1 2-2", "", "1?3"], "gold", one_based=True)
    read_pharaoh(["1-1 2-2", "0-1"], "gold")
    assert caplog.text == ""
    read_pharaoh(["1-1 2-2", "", "1?3"], "gold")
    assert "--gold-base 1" in caplog.text
