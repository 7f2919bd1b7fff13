"""Alignment error rate, precision and recall."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnjax.evaluation.alignment import GoldAlignment, alignment_scores

NOTHING = frozenset()
LINKS = st.frozensets(st.tuples(st.integers(0, 3), st.integers(0, 3)))


def gold(sure, possible=()):
    return GoldAlignment(frozenset(sure), frozenset(sure) | frozenset(possible))


def test_scores_of_one_sentence_by_hand():
    truth = gold({(0, 0), (1, 2)}, {(1, 1), (3, 3)})
    predicted = frozenset({(0, 0), (1, 1), (2, 2)})  # sure, possible, wrong
    scores = alignment_scores([predicted], [truth])
    assert scores.aer == pytest.approx(1 - (1 + 2) / (3 + 2))
    assert scores.precision == pytest.approx(2 / 3)
    assert scores.recall == pytest.approx(1 / 2)
    assert scores.f1 == pytest.approx(4 / 7)
    assert (scores.num_predicted, scores.num_sure, scores.num_possible) == (3, 2, 4)


def test_counts_are_summed_over_the_corpus_before_dividing():
    predicted = [frozenset({(0, 0)}), frozenset({(0, i) for i in range(9)})]
    truth = [gold({(0, 0)}), gold({(0, 0), (1, 1)})]
    scores = alignment_scores(predicted, truth)
    assert scores.precision == pytest.approx(2 / 10)
    assert scores.recall == pytest.approx(2 / 3)
    assert scores.aer == pytest.approx(1 - 4 / 13)


def test_links_count_in_their_own_sentence_only():
    first, second = frozenset({(0, 0)}), frozenset({(1, 1)})
    scores = alignment_scores([second, first], [gold(first), gold(second)])
    assert scores.aer == 1.0


@given(st.lists(st.tuples(LINKS, LINKS), min_size=1, max_size=5))
def test_without_possible_links_it_is_one_minus_f1(pairs):
    predicted, truth = zip(*pairs, strict=True)
    scores = alignment_scores(predicted, list(map(GoldAlignment.all_sure, truth)))
    if scores.num_predicted and scores.num_sure:
        assert scores.aer == pytest.approx(1 - scores.f1)


@given(LINKS, LINKS, LINKS)
def test_no_error_between_the_sure_and_the_possible_links(sure, some, others):
    truth = GoldAlignment(sure, sure | some | others)
    assert alignment_scores([sure | some], [truth]).aer == 0.0


@pytest.mark.parametrize(
    ("predicted", "truth", "expected"),  # expected: AER, precision, recall, F1
    [
        (NOTHING, gold(NOTHING), (0, 1, 1, 1)),
        (NOTHING, gold({(0, 0)}), (1, 1, 0, 0)),
        (frozenset({(0, 0)}), gold(NOTHING), (1, 0, 1, 0)),
        (frozenset({(0, 0)}), gold(NOTHING, {(0, 0)}), (0, 1, 1, 1)),
    ],
)
def test_nothing_predicted_or_nothing_annotated(predicted, truth, expected):
    scores = alignment_scores([predicted], [truth])
    assert (scores.aer, scores.precision, scores.recall, scores.f1) == expected


def test_other_numbers_of_sentences_are_refused():
    with pytest.raises(ValueError, match="got 2 predicted and 1 gold"):
        alignment_scores([NOTHING, NOTHING], [gold(NOTHING)])
    with pytest.raises(ValueError, match="no alignments to score"):
        alignment_scores([], [])


def test_sure_links_must_be_possible():
    with pytest.raises(ValueError, match=r"lack \(1, 2\)"):
        GoldAlignment(frozenset({(1, 2)}), NOTHING)
