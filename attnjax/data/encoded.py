"""Sentence pairs as token ids, read in any order."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from attnjax.data.layout import IdPair
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.shapes import BatchShape
from attnjax.data.vocabulary import Tokenizer, TokenizerPair, check_ids

_MOST_PAIRS_IN_MEMORY = 2_000_000  # beyond, sentences are encoded when they are read
_TEXTS_AT_ONCE = 10_000
_PAIRS_HASHED = 10_000  # of a corpus that is read on demand


class EncodedPairs(Protocol):
    """Reads pairs of ids, without special tokens, by their numbers in the corpus."""

    def __len__(self) -> int: ...

    def read(self, indices: Sequence[int]) -> list[IdPair]:
        """The pairs of these numbers, in their order."""
        ...


def encode_pairs(corpus: ParallelCorpus, tokenizers: TokenizerPair) -> EncodedPairs:
    """Encodes a corpus: at once if it is small enough to keep, else on reading.

    Args:
        corpus: the pairs.
        tokenizers: of both languages.

    Returns:
        The pairs as ids.

    Raises:
        ValueError: a tokenizer gives an id beyond its vocabulary.
    """
    if len(corpus) > _MOST_PAIRS_IN_MEMORY:
        return _PairsOnDemand(corpus, tokenizers)
    return _PairsInMemory(corpus, tokenizers)


def fingerprint(corpus: ParallelCorpus) -> str:
    """A short hash of all pairs, or of some spread over a corpus read on demand."""
    digest = hashlib.sha256(f"{len(corpus)} pairs\n".encode())
    in_memory = len(corpus) <= _MOST_PAIRS_IN_MEMORY
    for index in spread(len(corpus), len(corpus) if in_memory else _PAIRS_HASHED):
        for text in corpus[index]:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()[:16]


def spread(length: int, count: int) -> list[int]:
    """At most ``count`` numbers below ``length``, at equal distances."""
    count = min(length, count)
    return [number * length // count for number in range(count)]


def lengths_of(pairs: Sequence[IdPair]) -> np.ndarray:
    """``[N, 2]`` tokens of source and target, with ``</s>``."""
    lengths = [(len(source) + 1, len(target) + 1) for source, target in pairs]
    return np.array(lengths, np.int64).reshape(-1, 2)


def usable_pairs(lengths: np.ndarray, largest: BatchShape) -> np.ndarray:
    """``[N]`` whether a pair of these lengths is not empty on a side and fits."""
    return ((lengths > 1) & (lengths <= np.array(largest[1:]))).all(axis=1)


class _PairsInMemory:
    def __init__(self, corpus: ParallelCorpus, tokenizers: TokenizerPair) -> None:
        self._sides = [
            _Side(texts, tokenizer, corpus)
            for texts, tokenizer in zip(
                (corpus.source, corpus.target), tokenizers, strict=True
            )
        ]
        self._length = len(corpus)

    def __len__(self) -> int:
        return self._length

    def read(self, indices: Sequence[int]) -> list[IdPair]:
        source, target = self._sides
        return [(source[index], target[index]) for index in indices]


class _Side:
    """All sentences of one language in one array."""

    def __init__(
        self, texts: Sequence[str], tokenizer: Tokenizer, corpus: ParallelCorpus
    ) -> None:
        chunks, lengths = [], [np.zeros(1, np.int64)]
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            numbers = range(start, min(start + _TEXTS_AT_ONCE, len(texts)))
            encoded = _encode([texts[n] for n in numbers], numbers, tokenizer, corpus)
            chunks.append(_flatten(encoded))
            lengths.append(np.array([len(ids) for ids in encoded], np.int64))
        self._ids = np.concatenate(chunks)
        self._offsets = np.cumsum(np.concatenate(lengths)).tolist()

    def __getitem__(self, index: int) -> np.ndarray:
        return self._ids[self._offsets[index] : self._offsets[index + 1]]


class _PairsOnDemand:
    def __init__(self, corpus: ParallelCorpus, tokenizers: TokenizerPair) -> None:
        self._corpus, self._tokenizers = corpus, tokenizers

    def __len__(self) -> int:
        return len(self._corpus)

    def read(self, indices: Sequence[int]) -> list[IdPair]:
        texts = [self._corpus[index] for index in indices]
        sides = [
            _encode([pair[side] for pair in texts], indices, tokenizer, self._corpus)
            for side, tokenizer in enumerate(self._tokenizers)
        ]
        return [
            (np.array(source, np.int32), np.array(target, np.int32))
            for source, target in zip(*sides, strict=True)
        ]


def _encode(
    texts: list[str],
    numbers: Sequence[int],
    tokenizer: Tokenizer,
    corpus: ParallelCorpus,
) -> list[list[int]]:
    encoded = tokenizer.encode_many(texts)
    flat = _flatten(encoded)
    if flat.size and (flat.min() < 0 or flat.max() >= tokenizer.size):
        for number, ids in zip(numbers, encoded, strict=True):
            check_ids(ids, tokenizer.size, corpus.describe(number))
    return encoded


def _flatten(sentences: Iterable[list[int]]) -> np.ndarray:
    return np.fromiter(itertools.chain.from_iterable(sentences), np.int32)
