"""BLEU by source length."""

import pytest

from attnjax.evaluation.bleu import corpus_scores
from attnjax.evaluation.buckets import bleu_by_length

TEXT = "the quick brown fox jumps over the lazy dog"


def test_every_length_falls_in_its_range():
    lengths = [1, 10, 11, 20, 21, 30, 31, 50, 51, 400, 400]
    lines = [TEXT] * len(lengths)
    buckets = bleu_by_length(
        ["w " * length for length in lengths],
        lines,
        lines,
        source_language="de",
        target_language="en",
    )
    assert [(bucket.label, bucket.count) for bucket in buckets] == [
        ("1-10", 2),
        ("11-20", 2),
        ("21-30", 2),
        ("31-50", 2),
        (">50", 3),
    ]
    assert [bucket.bleu for bucket in buckets] == [100.0] * 5
    assert [(bucket.low, bucket.high) for bucket in buckets] == [
        (1, 10),
        (11, 20),
        (21, 30),
        (31, 50),
        (51, None),
    ]


def test_each_range_is_scored_as_a_corpus_of_its_own():
    sources = ["a b", "w " * 15, "c", "w " * 12]
    hypotheses = [TEXT, TEXT.replace("lazy", "sleepy"), "", TEXT + " again"]
    references = [TEXT, TEXT, "a b c d e", TEXT.replace("dog", "cat")]
    buckets = bleu_by_length(
        sources, hypotheses, references, source_language="de", target_language="en"
    )
    for bucket, rows in zip(buckets, [(0, 2), (1, 3)], strict=False):
        alone = corpus_scores(
            [hypotheses[row] for row in rows],
            [references[row] for row in rows],
            target_language="en",
        )
        assert bucket.bleu == alone.bleu
    assert [bucket.bleu for bucket in buckets[2:]] == [None, None, None]


def test_empty_sources_have_a_range_of_their_own_when_there_are_any():
    buckets = bleu_by_length(
        ["", "a b", " "],
        ["", TEXT, TEXT],
        [TEXT] * 3,
        source_language="de",
        target_language="en",
    )
    assert [(bucket.label, bucket.count) for bucket in buckets[:2]] == [
        ("0", 2),
        ("1-10", 1),
    ]
    assert buckets[1].bleu == 100.0


def test_edges_can_be_chosen():
    buckets = bleu_by_length(
        ["a", "a b", "a b c"],
        *[[TEXT] * 3] * 2,
        source_language="de",
        target_language="en",
        edges=(1, 2),
    )
    assert [(bucket.label, bucket.count) for bucket in buckets] == [
        ("1", 1),
        ("2", 1),
        (">2", 1),
    ]


def test_lines_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="1 sources, 2 hypotheses"):
        bleu_by_length(
            ["a"], ["a", "b"], ["a", "b"], source_language="de", target_language="en"
        )


def test_several_references_are_split_with_their_lines():
    sources = ["a b", "w " * 15]
    hypotheses = [TEXT, TEXT]
    sets = [["x y z", TEXT], [TEXT, "x y z"]]
    buckets = bleu_by_length(
        sources, hypotheses, sets, source_language="de", target_language="en"
    )
    assert [bucket.bleu for bucket in buckets[:2]] == [100.0, 100.0]
    first = bleu_by_length(
        sources, hypotheses, sets[0], source_language="de", target_language="en"
    )
    assert [bucket.bleu for bucket in first[:2]] == [0.0, 100.0]


def test_ranges_do_not_warn_of_lines_by_numbers_of_their_own(caplog):
    bleu_by_length(
        ["a", "b"], ["c", "d"], ["c", ""], source_language="de", target_language="en"
    )
    assert caplog.records == []


def test_lines_without_spaces_fall_where_their_words_are():
    lines = ["我们今天去学校学习新的知识。" * times for times in (1, 2, 3)]
    buckets = bleu_by_length(
        lines, lines, lines, source_language="zh", target_language="zh", edges=(8, 16)
    )
    assert [bucket.count for bucket in buckets] == [1, 1, 1]
