"""Pairs as ids: right pairs, in memory or on demand, bad ids named, fingerprints."""

import numpy as np
import pytest

from attnjax.data import encoded
from attnjax.data.encoded import EncodedPairs, fingerprint, lengths_of, spread
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.vocabulary import TokenizerPair


@pytest.mark.parametrize("most_in_memory", [1_000_000, 0])
def test_pairs_are_read_in_the_asked_order(
    monkeypatch, corpus, tokenizers, most_in_memory
):
    monkeypatch.setattr(encoded, "_MOST_PAIRS_IN_MEMORY", most_in_memory)
    pairs = EncodedPairs(corpus, tokenizers)
    for indices in ([5, 2, 5], [2, 90], []):
        read = pairs.read(indices)
        assert len(read) == len(indices)
        for index, (source, target) in zip(indices, read, strict=True):
            assert source.tolist() == tokenizers.source.encode(corpus.source[index])
            assert target.tolist() == tokenizers.target.encode(corpus.target[index])
            assert source.dtype == np.int32


def test_each_pair_is_encoded_once(corpus, tokenizers):
    class Counting:
        num_texts = 0

        def __getattr__(self, name):
            return getattr(tokenizers.source, name)

        def encode_many(self, texts):
            self.num_texts += len(texts)
            return tokenizers.source.encode_many(texts)

    counting = Counting()
    pairs = EncodedPairs(corpus, TokenizerPair(counting, counting))
    pairs.read([1, 2, 3])
    pairs.read([3, 2, 4])
    assert counting.num_texts == 2 * 4


def test_an_id_beyond_the_vocabulary_names_the_line(corpus, tokenizers):
    class Broken:
        size = tokenizers.target.size

        def encode_many(self, texts):
            return [[4, self.size if "n7 " in text else 5] for text in texts]

    pairs = EncodedPairs(corpus, TokenizerPair(tokenizers.source, Broken()))
    pairs.read([1, 2])
    with pytest.raises(ValueError, match=r"numbered, line 8: token 2 has id"):
        pairs.read([6, 7])


def test_lengths_count_the_end(corpus, tokenizers):
    pairs = EncodedPairs(corpus, tokenizers).read([0, 1])
    assert lengths_of(pairs).tolist() == [[2, 2], [9, 7]]
    assert lengths_of([]).shape == (0, 2)


def test_the_fingerprint_sees_any_change():
    def of(source, target):
        return fingerprint(ParallelCorpus(source, target, "x"))

    base = of(["a", "b"], ["c", "d"])
    assert of(["a", "b"], ["c", "d"]) == base
    assert len({base, of(["a", "b"], ["c", "e"]), of(["b", "a"], ["c", "d"])}) == 3
    assert of(["a"], ["c"]) != base


def test_spread_takes_equal_distances():
    assert spread(10, 3) == [0, 3, 6]
    assert spread(2, 3) == [0, 1]
