"""Whole sets in batches: nothing left out, few shapes, fillers without weight."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnjax.benchmarks.numbered_words import numbered_words
from attnjax.data.batching import (
    evaluation_batches,
    lay_out_prefixes,
    padded_length,
    pair_batches,
)

SENTENCES = st.lists(st.lists(st.integers(4, 12), max_size=70), max_size=30)
TOKENIZERS = numbered_words(20)
BUDGET = {"tokens_per_batch": 128, "rows_multiple": 2}


@settings(max_examples=50, deadline=None)
@given(SENTENCES)
def test_every_sentence_is_in_exactly_one_batch(sentences):
    seen = []
    for indices, tokens in evaluation_batches(sentences, TOKENIZERS.source, **BUDGET):
        rows, length = tokens.ids.shape
        assert length in (16, 32, 64, 128)
        assert rows in (2, max(2, 128 // length))
        for row, index in enumerate(indices):
            expected = [*sentences[index], 2]
            assert tokens.ids[row].tolist() == expected + [0] * (length - len(expected))
            assert tokens.valid[row].sum() == len(expected)
        assert (tokens.ids[len(indices) :, 0] == 2).all()
        assert (tokens.valid[len(indices) :].sum(axis=1) == 1).all()
        seen += list(indices)
    assert sorted(seen) == list(range(len(sentences)))


def test_only_the_last_batch_has_fillers_and_the_longest_come_first():
    sentences = [[5] * n for n in (3, 40, 20, 1, 9, 30, 0)]
    batches = list(evaluation_batches(sentences, TOKENIZERS.source, **BUDGET))
    filled = [len(indices) for indices, _ in batches]
    assert filled == [2, 4, 1]
    assert [index for indices, _ in batches for index in indices] == [
        1,
        5,
        2,
        4,
        0,
        3,
        6,
    ]
    # The last one fits into the shape before it, and needs no program of its own.
    assert [tokens.ids.shape for _, tokens in batches] == [(2, 64), (4, 32), (4, 32)]


def test_few_lines_are_few_rows_of_few_shapes():
    def shapes(*lengths):
        sentences = [[5] * (length - 1) for length in lengths]
        batches = evaluation_batches(
            sentences, TOKENIZERS.source, tokens_per_batch=4_096
        )
        return [tokens.ids.shape for _, tokens in batches]

    assert shapes(4) == shapes(60) == [(1, 64)]
    assert shapes(*[4] * 4) == [(8, 16)]
    assert shapes(*[4] * 9) == [(64, 16)]
    assert shapes(*[4] * 65) == [(256, 16)]
    assert shapes(*[4] * 257) == [(256, 16)] * 2
    every = {
        shape
        for length in range(1, 1_025, 7)
        for lines in (1, 2, 8, 9, 60, 64, 65, 255, 300)
        for shape in shapes(*[length] * lines)
    }
    assert len(every) == 19  # for seven padded lengths


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(*[st.lists(st.integers(4, 12), max_size=40)] * 2), max_size=20)
)
def test_every_label_counts_once(pairs):
    labels = []
    for indices, batch in pair_batches(pairs, TOKENIZERS, **BUDGET):
        assert batch.source.ids.shape == batch.labels.shape
        assert batch.source.valid[:, 0].all()
        for row, weights in enumerate(batch.weights):
            if weights.any():
                labels.append(batch.labels[row][weights > 0].tolist())
                assert labels[-1] == [*pairs[indices[row]][1], 2]
    assert sorted(labels) == sorted([*target, 2] for _, target in pairs)


def test_no_sentence_is_too_long():
    [(indices, tokens)] = evaluation_batches([[5] * 1_000], TOKENIZERS.source, **BUDGET)
    assert indices.tolist() == [0]
    assert tokens.ids.shape == (2, 1_024)
    [(_, batch)] = pair_batches([([5], [6] * 1_000)], TOKENIZERS, **BUDGET)
    assert batch.weights.sum() == 1_001


def test_prefixes_are_padded_on_the_right():
    assert lay_out_prefixes([[5, 6], []], 3, 4, pad_id=9).tolist() == [
        [5, 6, 9, 9],
        [9, 9, 9, 9],
        [9, 9, 9, 9],
    ]


def test_padded_lengths_are_few():
    assert {padded_length(n) for n in range(1, 65)} == {16, 32, 64}


def test_no_sentences_no_batches():
    assert list(evaluation_batches([], TOKENIZERS.source, **BUDGET)) == []
    assert list(pair_batches([], TOKENIZERS, **BUDGET)) == []


@pytest.mark.parametrize("rows_multiple", [8, 3])
def test_rows_suit_the_devices(rows_multiple):
    batches = evaluation_batches(
        [[5] * 9] * 20,
        TOKENIZERS.source,
        tokens_per_batch=200,
        rows_multiple=rows_multiple,
    )
    assert {tokens.ids.shape[0] % rows_multiple for _, tokens in batches} == {0}
