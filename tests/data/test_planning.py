"""Plans: every pair exactly once, full batches only, rows that hold their pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnjax.data.planning import plan_buckets, plan_packed
from attnjax.data.shapes import BatchShape

SHAPES = [BatchShape(3, 5, 7), BatchShape(2, 11, 13)]
LENGTHS = st.lists(st.tuples(st.integers(2, 11), st.integers(2, 13)), max_size=40)


def plan(lengths, *, packed, seed=0, is_last=False):
    lengths = np.array(lengths, np.int64).reshape(-1, 2)
    rng = np.random.default_rng(seed)
    if packed:
        return plan_packed(lengths, SHAPES[-1], rng, is_last=is_last)
    return plan_buckets(lengths, SHAPES, rng, is_last=is_last)


@pytest.mark.parametrize("packed", [False, True])
@settings(max_examples=60, deadline=None)
@given(lengths=LENGTHS, is_last=st.booleans())
def test_every_pair_is_planned_once_and_fits(packed, lengths, is_last):
    made = plan(lengths, packed=packed, is_last=is_last)
    assert not (is_last and made.carried)
    placed = [pair for batch in made.batches for row in batch.rows for pair in row]
    assert sorted(placed + made.carried) == list(range(len(lengths)))
    for batch in made.batches:
        assert batch.shape in SHAPES
        assert len(batch.rows) == batch.shape.rows
        assert batch.rows[0]
        for row in batch.rows:
            assert row or is_last
            source, target = np.array([(0, 0), *(lengths[pair] for pair in row)]).sum(
                axis=0
            )
            assert source <= batch.shape.source_length
            assert target <= batch.shape.target_length


def test_buckets_hold_one_pair_a_row_and_carry_what_fills_no_batch():
    made = plan([(2, 2)] * 4 + [(9, 9)], packed=False)
    assert [batch.rows for batch in made.batches] == [[[0], [1], [2]]]
    assert made.carried == [3, 4]


def test_nothing_waits_at_the_end_of_an_epoch():
    """The long pair chooses its batch, and short ones join it before any filler."""
    lengths = [(2, 2)] * 4 + [(9, 9)]
    made = plan(lengths, packed=False, is_last=True)
    assert sorted(batch.rows for batch in made.batches) == [[[0], [1], [2]], [[4], [3]]]
    made = plan(lengths[:4], packed=False, is_last=True)
    assert sorted(batch.rows for batch in made.batches) == [
        [[0], [1], [2]],
        [[3], [], []],
    ]
    [batch] = plan([(9, 9)], packed=True, is_last=True).batches
    assert batch.rows == [[0], []]


def test_packing_takes_the_first_row_with_room_on_both_sides():
    made = plan([(6, 3), (4, 11), (5, 2), (7, 2), (2, 2)], packed=True)
    # Pair 2 fills row 0 to its 11 source tokens, pair 3 row 1; pair 4 needs a third.
    assert sorted(batch.rows for batch in made.batches) == [[[0, 2], [1, 3]]]
    assert made.carried == [4]


def test_batches_are_shuffled():
    lengths = [(2, 2)] * 60
    orders = {
        tuple(batch.rows[0][0] for batch in plan(lengths, packed=False, seed=s).batches)
        for s in range(3)
    }
    assert len(orders) == 3
