"""What the table of alignment errors is made of."""

import numpy as np

from attnjax.benchmarks.alignment import items_of, reversed_pairs
from attnjax.evaluation.alignment import GoldAlignment
from attnjax.evaluation.attention_readings import AttendedPair
from attnjax.runs.alignment import KnownPairs


def test_items_are_what_is_linked_as_a_block():
    # Two words for two, one for one in reverse order, and a conjunction for nothing.
    links = frozenset({(0, 2), (0, 3), (1, 2), (1, 3), (3, 0)})
    pair = AttendedPair(
        {"a": np.ones((1, 5, 5)) / 5}, [0, 1, 2, 3, -1], [0, 1, 2, 3, -1]
    )
    found = items_of(pair, links)
    assert found.source_words == [0, 0, -1, 1, -1]
    assert found.target_words == [1, -1, 0, 0, -1]


def test_the_opposite_direction_has_the_links_turned_round():
    gold = GoldAlignment(frozenset({(0, 1)}), frozenset({(0, 1), (2, 0)}))
    found = reversed_pairs(KnownPairs(["a b c"], ["x y"], [gold], "here"))
    assert found.sources == ["x y"]
    assert found.gold[0].sure == {(1, 0)}
    assert found.gold[0].possible == {(1, 0), (0, 2)}
