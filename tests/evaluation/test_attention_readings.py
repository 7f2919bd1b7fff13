"""Which weights to read: the choice by the error rate on a validation set."""

import numpy as np
import pytest

from attnjax.evaluation.alignment import GoldAlignment
from attnjax.evaluation.attention_readings import (
    AttendedPair,
    Reading,
    best_reading,
    compare_readings,
    parse_reading,
    read_alignment,
)

ORDERS = [(2, 0, 1), (1, 0), (0, 1, 3, 2)]  # the source word of each target word
GOLD = [
    GoldAlignment.all_sure(
        frozenset((source, target) for target, source in enumerate(order))
    )
    for order in ORDERS
]


def looks_at(order, late=0):
    """``[T, S]``: each step at the word of the target ``late`` steps earlier."""
    size = len(order) + 1  # </s>
    steps = [*[len(order)] * late, *order, len(order)][:size]
    return np.eye(size)[steps] * 0.7 + 0.3 / size


def make_pairs(make_heads):
    return [
        AttendedPair(
            {"first/cross": looks_at(order[::-1])[None], "second": make_heads(order)},
            [*range(len(order)), -1],
            [*range(len(order)), -1],
        )
        for order in ORDERS
    ]


@pytest.mark.parametrize("late", [0, 1])
def test_the_right_layer_head_and_shift_are_found(late):
    pairs = make_pairs(
        lambda order: np.stack([looks_at(order[::-1], late), looks_at(order, late)])
    )
    reading, scores = best_reading(pairs, GOLD)
    assert reading == Reading(name="second", head=1, shifted=bool(late))
    assert scores.aer == 0.0
    for pair, truth in zip(pairs, GOLD, strict=True):
        assert read_alignment(pair, reading) == truth.sure


def test_the_mean_of_heads_can_be_best():
    def halves(order):
        right_hts = np.stack([looks_at(order)] * 2)
        right_hts[0, ::2] = right_hts[1, 1::2] = 1 / (len(order) + 1)
        return right_hts

    reading, scores = best_reading(make_pairs(halves), GOLD)
    assert (reading.name, reading.head, scores.aer) == ("second", None, 0.0)
    pair = make_pairs(halves)[0]
    assert read_alignment(pair, reading) == GOLD[0].sure


def test_the_best_reading_has_the_lowest_error_rate_and_not_the_highest_f1():
    """One finds the sure link and two wrong ones, one nothing but possible links."""
    sure, possible = {(0, 0)}, {(1, 0), (1, 1), (1, 2)}
    gold = GoldAlignment(frozenset(sure), frozenset(sure | possible))
    weights = {
        "sure": looks_at((0, 2, 2))[None],
        "possible": looks_at((1, 1, 1))[None],
    }
    pair = AttendedPair(weights, [0, 1, 2, -1], [0, 1, 2, -1])
    compared = compare_readings([pair], [gold])
    found = {
        reading.name: (scores.aer, scores.f1)
        for reading, scores in compared.items()
        if not reading.shifted
    }
    assert found == {"sure": (0.5, 0.5), "possible": (0.25, 0.0)}
    assert best_reading([pair], [gold])[0].name == "possible"


def test_all_readings_are_scored_in_a_fixed_order():
    pairs = make_pairs(lambda order: np.stack([looks_at(order)] * 2))
    compared = compare_readings(pairs, GOLD, methods=("argmax", 0.5))
    assert [
        (reading.name, reading.shifted, reading.head, reading.method)
        for reading in compared
    ] == [
        (name, is_shifted, head, method)
        for name, heads in (("first/cross", (None,)), ("second", (None, 0, 1)))
        for is_shifted in (False, True)
        for head in heads
        for method in ("argmax", 0.5)
    ]
    reading, scores = best_reading(pairs, GOLD, methods=("argmax", 0.5))
    assert reading == Reading(name="second", head=None, shifted=False)  # first of equal
    assert compared[reading] == scores


def test_scores_are_those_of_the_links_that_are_read():
    pairs = make_pairs(lambda order: np.stack([looks_at(order), looks_at(order, 1)]))
    compared = compare_readings(pairs, GOLD, methods=(0.2,), allow_unaligned=True)
    for reading, scores in compared.items():
        found = [read_alignment(pair, reading) for pair in pairs]
        assert scores.num_predicted == sum(map(len, found))
        assert reading.allow_unaligned


def test_subwords_are_merged():
    weights_hts = np.array([[[0.3, 0.3, 0.4], [0.1, 0.0, 0.9], [0.0, 0.0, 1.0]]])
    pair = AttendedPair({"cross": weights_hts}, [0, 0, 1], [0, 0, -1])
    reading = Reading(name="cross", head=0, shifted=False)
    assert read_alignment(pair, reading) == {(1, 0)}
    pair = pair._replace(target_words=[0, 1, -1])
    assert read_alignment(pair, reading) == {(0, 0), (1, 1)}
    reading = Reading(name="cross", head=0, shifted=False, method=0.4)
    assert read_alignment(pair, reading) == {(0, 0), (1, 0), (1, 1)}


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (
            Reading(name="layer_3/cross", head=5, shifted=True),
            "layer_3/cross, head 5, shifted by one step, argmax",
        ),
        (
            Reading(name="cross", head=None, shifted=False, method=0.25),
            "cross, mean of heads, not shifted, weight >= 0.25",
        ),
        (
            Reading(name="cross", head=0, shifted=False, allow_unaligned=True),
            "cross, head 0, not shifted, argmax, words may stay unaligned",
        ),
    ],
)
def test_a_reading_says_what_it_is(reading, expected):
    assert reading.describe() == expected


def test_weights_or_heads_that_are_missing_are_refused():
    pair = make_pairs(lambda order: np.stack([looks_at(order)] * 2))[0]
    with pytest.raises(ValueError, match="'third'; the model has first/cross, second"):
        read_alignment(pair, Reading(name="third", head=None, shifted=False))
    for head in (2, -1):
        with pytest.raises(ValueError, match=f"heads 0 to 1, got head {head}"):
            read_alignment(pair, Reading(name="second", head=head, shifted=False))


def test_pairs_that_do_not_belong_together_are_refused():
    pairs = make_pairs(lambda order: np.stack([looks_at(order)] * len(order)))
    with pytest.raises(ValueError, match="pair 1 has .* pair 2 has"):
        best_reading(pairs, GOLD)
    with pytest.raises(ValueError, match="got 1 predicted and 3 gold"):
        best_reading(pairs[:1], GOLD)
    with pytest.raises(ValueError, match="no sentence pairs"):
        best_reading([], [])
    with pytest.raises(ValueError, match="nothing to choose from"):
        best_reading(pairs[:1], GOLD[:1], methods=())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/cross", ("a/cross", None, False)),
        ("a/cross:mean:shifted", ("a/cross", None, True)),
        ("a/cross:shifted", ("a/cross", None, True)),
        ("a/cross:12", ("a/cross", 12, False)),
    ],
)
def test_a_reading_is_named_on_the_command_line(text, expected):
    reading = parse_reading(text)
    assert (reading.name, reading.head, reading.shifted) == expected


@pytest.mark.parametrize("text", ["", "a:x", "a:1:2", "a:shifted:1", ":1", "a:\u0661"])
def test_a_malformed_reading_is_refused(text):
    with pytest.raises(ValueError, match=r"NAME\[:HEAD\]\[:shifted\]"):
        parse_reading(text)
