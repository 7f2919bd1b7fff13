import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnjax.ops.masks import allowed, with_rank
from attnjax.types import Mask

T, S = 5, 7


def test_no_facts_need_no_matrix():
    assert allowed(Mask(), (T, S)) is None


@pytest.mark.parametrize(
    ("num_queries", "num_keys", "allowed_keys"),
    [(2, 5, [4, 5]), (1, 7, [7]), (3, 3, [1, 2, 3]), (4, 2, [0, 0, 1, 2])],
)
def test_causal_sequences_end_together(num_queries, num_keys, allowed_keys):
    matrix_ts = allowed(Mask(causal=True), (num_queries, num_keys))
    expected = [[key < count for key in range(num_keys)] for count in allowed_keys]
    np.testing.assert_array_equal(matrix_ts, expected)


def test_causal_matrix_has_no_batch_axis():
    assert allowed(Mask(causal=True), (2, 3, T, S)).shape == (1, 1, T, S)


def test_over_heads_adds_an_axis_before_positions():
    mask = Mask(
        valid=jnp.ones((2, S), bool),
        query_segments=jnp.ones((2, T), int),
        key_segments=jnp.ones((2, S), int),
    )
    assert allowed(mask.over_heads(), (2, 3, T, S)).shape == (2, 1, T, S)


def test_rank_is_filled_from_the_left():
    assert with_rank(np.zeros((T, S)), 4).shape == (1, 1, T, S)


@settings(max_examples=30, deadline=None)
@given(
    valid=st.lists(st.booleans(), min_size=S, max_size=S),
    causal=st.booleans(),
    window=st.none() | st.tuples(st.integers(0, 3), st.integers(0, 3)),
    query_segments=st.lists(st.integers(0, 2), min_size=T, max_size=T),
    key_segments=st.lists(st.integers(0, 2), min_size=S, max_size=S),
)
def test_facts_are_joined_pair_by_pair(
    valid, causal, window, query_segments, key_segments
):
    mask = Mask(
        valid=np.array([valid]),
        causal=causal,
        window=window,
        query_segments=np.array([query_segments]),
        key_segments=np.array([key_segments]),
    )
    expected = np.zeros((1, T, S), bool)
    for query in range(T):
        for key in range(S):
            offset = key - (query + S - T)
            expected[0, query, key] = (
                valid[key]
                and (not causal or offset <= 0)
                and (window is None or -window[0] <= offset <= window[1])
                and query_segments[query] == key_segments[key]
            )
    np.testing.assert_array_equal(allowed(mask, (1, T, S)), expected)


def test_half_a_segment_mask_is_refused():
    with pytest.raises(ValueError, match="query_segments and key_segments"):
        Mask(key_segments=np.ones((2, S), int))


def test_negative_window_is_refused():
    with pytest.raises(ValueError, match=">= 0"):
        Mask(window=(-1, 2))
