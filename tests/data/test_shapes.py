"""Batch shapes: few, within the budget, covering every pair, little padding."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnjax.data.shapes import BatchShape, assign_shapes, choose_shapes, rows_of

CANDIDATES = (4, 8, 16)


def choose(lengths, count, candidates=CANDIDATES):
    return choose_shapes(
        np.array(lengths),
        candidates,
        count,
        tokens_per_batch=64,
        rows_multiple=2,
    )


@pytest.mark.parametrize(
    ("length", "rows"), [(4, 16), (7, 8), (16, 4), (40, 2), (100, 2)]
)
def test_rows_fill_the_budget_in_multiples(length, rows):
    assert rows_of(length, 64, 2) == rows


def test_one_shape_is_the_largest():
    assert choose([(3, 3)], 1) == [BatchShape(4, 16, 16)]


def test_the_chosen_shapes_fit_the_pairs():
    lengths = [(3, 7)] * 10 + [(8, 3)] * 5 + [(16, 15)]
    assert [shape[1:] for shape in choose(lengths, 3)] == [(8, 4), (4, 8), (16, 16)]


def test_shapes_nobody_needs_are_not_made():
    assert len(choose([(3, 3)] * 5, 9)) == 2


def padding_cost(lengths, shapes):
    assigned = assign_shapes(np.array(lengths), shapes)
    return sum(shapes[number].cost for number in assigned)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(2, 16), st.integers(2, 16)), min_size=1, max_size=40)
)
def test_the_choice_is_nearly_the_best(lengths):
    chosen = choose(lengths, 3)
    assert len(chosen) <= 3
    grid = list(itertools.product(CANDIDATES, CANDIDATES))
    best = min(
        padding_cost(
            lengths,
            sorted(
                (BatchShape(2, *cell) for cell in {*others, (16, 16)}),
                key=lambda shape: shape.cost,
            ),
        )
        for others in itertools.combinations(grid, 2)
    )
    assert padding_cost(lengths, chosen) <= 1.1 * best


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=30)
)
def test_a_pair_goes_to_the_cheapest_shape_that_holds_it(lengths):
    shapes = choose([(3, 7), (8, 3), (16, 15)], 3)
    for (source, target), number in zip(
        lengths, assign_shapes(np.array(lengths), shapes), strict=True
    ):
        holding = [
            shape
            for shape in shapes
            if source <= shape.source_length and target <= shape.target_length
        ]
        expected = min(holding, key=lambda s: s.cost) if holding else None
        assert (None if number < 0 else shapes[number]) == expected
