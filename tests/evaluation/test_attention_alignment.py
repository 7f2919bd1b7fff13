"""Attention weights over subwords to links between words."""

import ml_dtypes
import numpy as np
import pytest

from attnjax.evaluation.attention_alignment import links, shifted, word_weights

# Source: a word of two pieces, a space, a word of one, </s>. Target: a word of one
# piece, a word of two, </s>.
SOURCE_WORDS = (0, 0, -1, 1, -1)
TARGET_WORDS = (0, 1, 1, -1)
WEIGHTS = np.array(
    [
        [0.3, 0.2, 0.1, 0.4, 0.0],
        [0.1, 0.0, 0.0, 0.2, 0.7],
        [0.0, 0.1, 0.2, 0.6, 0.1],
        [0.0, 0.0, 0.0, 0.0, 1.0],
    ]
)
MERGED = np.array([[0.5, 0.4], [0.1, 0.4]])


def test_source_pieces_add_up_and_target_pieces_are_averaged():
    merged = word_weights(WEIGHTS, SOURCE_WORDS, TARGET_WORDS)
    np.testing.assert_allclose(merged, MERGED, atol=1e-12)


def test_heads_are_merged_each_for_itself():
    weights_hts = np.stack([WEIGHTS, WEIGHTS[:, ::-1]])
    merged_hts = word_weights(weights_hts, SOURCE_WORDS, TARGET_WORDS)
    assert merged_hts.shape == (2, 2, 2)
    np.testing.assert_allclose(merged_hts[0], MERGED, atol=1e-12)
    np.testing.assert_allclose(
        merged_hts[1], word_weights(weights_hts[1], SOURCE_WORDS, TARGET_WORDS)
    )


def test_half_precision_is_summed_in_full():
    weights_ts = np.full((1, 300), 1 / 256, ml_dtypes.bfloat16)
    assert word_weights(weights_ts, [0] * 300, [0]) == pytest.approx(300 / 256)


def test_sentences_without_words():
    assert word_weights(np.ones((1, 1)), [-1], [-1]).shape == (0, 0)
    assert word_weights(np.ones((2, 1)), [-1], [0, -1]).shape == (1, 0)
    assert word_weights(np.ones((1, 2)), [0, -1], [-1]).shape == (0, 1)
    for shape in ((0, 0), (1, 0), (0, 1)):
        for method in ("argmax", 0.1):
            assert links(np.ones(shape), method) == frozenset()


@pytest.mark.parametrize(
    ("weights", "source_words", "message"),
    [
        (WEIGHTS.T, SOURCE_WORDS, r"T, S = \(4, 5\) tokens, got shape \(5, 4\)"),
        (WEIGHTS, SOURCE_WORDS[:-1], r"T, S = \(4, 4\) tokens, got shape \(4, 5\)"),
        (WEIGHTS[0], SOURCE_WORDS, r"got shape \(5,\)"),
        (WEIGHTS * np.nan, SOURCE_WORDS, "finite"),
        (WEIGHTS, (0, 0, -2, 1, -1), "count from 0, .* got -2"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, source_words, message):
    with pytest.raises(ValueError, match=message):
        word_weights(weights, source_words, TARGET_WORDS)


def test_argmax_links_each_target_word_once():
    weights_ts = np.array([[0.1, 0.6, 0.3], [0.5, 0.2, 0.2], [0.4, 0.4, 0.1]])
    assert links(weights_ts) == {(1, 0), (0, 1), (0, 2)}  # (source, target)


def test_a_row_without_weight_links_nothing():
    assert links(np.array([[0.0, 0.0], [0.0, 0.1]])) == {(1, 1)}


def test_a_word_may_stay_unaligned_if_more_lies_outside_all_words():
    weights_ts = np.array([[0.45, 0.1], [0.4, 0.1], [0.2, 0.0]])  # outside .45 .5 .8
    assert links(weights_ts) == {(0, 0), (0, 1), (0, 2)}
    assert links(weights_ts, allow_unaligned=True) == {(0, 0)}


def test_a_threshold_links_all_words_that_reach_it():
    weights_ts = np.array([[0.5, 0.25, 0.25], [0.2, 0.1, 0.0]])
    assert links(weights_ts, 0.25) == {(0, 0), (1, 0), (2, 0)}
    assert links(weights_ts, 0.2) == {(0, 0), (1, 0), (2, 0), (0, 1)}
    assert links(weights_ts, 1) == frozenset()


@pytest.mark.parametrize("method", [0, -0.1, 1.5, float("nan"), "max"])
def test_other_methods_are_refused(method):
    with pytest.raises(ValueError, match="'argmax' or by a least weight"):
        links(MERGED, method)


def test_the_shifted_reading_takes_the_row_of_the_next_step():
    weights_hts = np.arange(24.0).reshape(2, 4, 3)
    later_hts = shifted(weights_hts)
    np.testing.assert_array_equal(later_hts[:, :-1], weights_hts[:, 1:])
    assert not later_hts[:, -1].any()
    np.testing.assert_array_equal(weights_hts.ravel(), np.arange(24.0))
