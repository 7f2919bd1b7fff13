"""Rows of ids: the decoder's shift, padding, and packing in each sentence by itself."""

import numpy as np
import pytest

from attnjax.benchmarks.numbered_words import numbered_words
from attnjax.data.layout import full_batch, lay_out, lay_out_pairs
from attnjax.data.shapes import BatchShape
from attnjax.data.vocabulary import TokenizerPair

OURS = numbered_words(20)


def ids(*tokens):
    return np.array(tokens, np.int32)


def test_a_batch_by_hand():
    batch = lay_out_pairs([[(ids(5, 6), ids(7))], [(ids(8), ids(9, 10))]], 4, 5, OURS)
    assert batch.source.ids.tolist() == [[5, 6, 2, 0], [8, 2, 0, 0]]
    assert batch.source.valid.tolist() == [
        [True] * 3 + [False],
        [True] * 2 + [False] * 2,
    ]
    assert batch.inputs.ids.tolist() == [[1, 7, 0, 0, 0], [1, 9, 10, 0, 0]]
    assert batch.labels.tolist() == [[7, 2, 0, 0, 0], [9, 10, 2, 0, 0]]
    assert batch.weights.tolist() == [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]
    assert (batch.inputs.valid == (batch.weights > 0)).all()
    assert batch.source.segments is batch.inputs.positions is None
    assert batch.labels.dtype == batch.source.ids.dtype == np.int32
    assert batch.weights.dtype == np.float32


def test_an_empty_row_has_weight_zero_and_a_key_to_attend_to():
    batch = lay_out_pairs([[(ids(5), ids(6))], []], 3, 3, OURS)
    assert batch.weights.tolist() == [[1, 1, 0], [0, 0, 0]]
    assert batch.source.ids[1].tolist() == [2, 0, 0]
    assert batch.source.valid[1].tolist() == [True, False, False]
    assert batch.inputs.ids[1].tolist() == [1, 0, 0]


def test_a_packed_row_by_hand():
    rows = [[(ids(5, 6), ids(7)), (ids(8), ids(9, 10))], []]
    batch = lay_out_pairs(rows, 6, 7, OURS, packed=True)
    assert batch.source.ids[0].tolist() == [5, 6, 2, 8, 2, 0]
    assert batch.source.segments[0].tolist() == [1, 1, 1, 2, 2, 0]
    assert batch.source.positions[0].tolist() == [0, 1, 2, 0, 1, 0]
    # The second sentence begins with <s>, not with the </s> of the first.
    assert batch.inputs.ids[0].tolist() == [1, 7, 1, 9, 10, 0, 0]
    assert batch.labels[0].tolist() == [7, 2, 9, 10, 2, 0, 0]
    assert batch.inputs.segments[0].tolist() == [1, 1, 2, 2, 2, 0, 0]
    assert batch.inputs.positions[0].tolist() == [0, 1, 0, 1, 2, 0, 0]
    assert batch.weights.tolist() == [[1, 1, 1, 1, 1, 0, 0], [0] * 7]
    assert not batch.source.valid[1].any()


def test_a_row_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="4 tokens cannot hold 5"):
        lay_out([[ids(5, 6, 7), ids(8, 9)]], 4, pad_id=0, packed=True)


def test_special_tokens_are_those_of_each_tokenizer(with_other_ids):
    """Marian's: ``</s>`` is 0, and the decoder starts with ``<pad>``, the last id."""
    theirs = with_other_ids(numbered_words(20))
    pair = TokenizerPair(OURS.source, theirs.target)
    batch = lay_out_pairs([[(ids(5, 6), ids(7))], []], 4, 3, pair)
    assert batch.source.ids.tolist() == [[5, 6, 2, 0], [2, 0, 0, 0]]
    assert batch.inputs.ids.tolist() == [[19, 7, 19], [19, 19, 19]]
    assert batch.inputs.valid.tolist() == [[True, True, False], [True, False, False]]
    assert batch.labels.tolist() == [[7, 0, 19], [0, 19, 19]]
    assert batch.weights.tolist() == [[1, 1, 0], [0, 0, 0]]
    full = full_batch(BatchShape(1, 4, 3), pair)
    assert full.source.ids.tolist() == [[3, 3, 3, 2]]
    assert full.inputs.ids.tolist() == [[19, 1, 1]]
    assert full.labels.tolist() == [[1, 1, 0]]
    assert full.weights.all()
