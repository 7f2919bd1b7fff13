"""Sentence pairs as token ids, read in any order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from attnjax.data.layout import IdPair
from attnjax.data.parallel import ParallelCorpus, is_blank
from attnjax.data.shapes import BatchShape
from attnjax.data.vocabulary import Tokenizer, TokenizerPair, check_ids
from attnjax.types import Longest

_MOST_PAIRS_IN_MEMORY = 2_000_000  # about 600 bytes each
_PAIRS_HASHED = 10_000  # of a larger corpus


class EncodedPairs:
    """Pairs of ids without special tokens, encoded when they are first read.

    So training starts at once, and the work is spread over the first epoch. What was
    encoded is kept, unless the corpus is very large. A blank text has no ids, also
    where a tokenizer has some for spaces.

    Attributes:
        tokenizers: of both languages.

    Args:
        corpus: the pairs as text.
        tokenizers: of both languages.
    """

    def __init__(self, corpus: ParallelCorpus, tokenizers: TokenizerPair) -> None:
        self._corpus, self.tokenizers = corpus, tokenizers
        self._keeps = len(corpus) <= _MOST_PAIRS_IN_MEMORY
        self._kept: dict[int, IdPair] = {}

    def __len__(self) -> int:
        return len(self._corpus)

    def read(self, indices: Sequence[int]) -> list[IdPair]:
        """The pairs of these numbers, in their order.

        Args:
            indices: numbers of pairs in the corpus.

        Returns:
            Source and target ids of each.

        Raises:
            ValueError: a tokenizer gave an id beyond its vocabulary.
        """
        missing = [index for index in indices if index not in self._kept]
        fresh = dict(zip(missing, self._encode_pairs(missing), strict=True))
        if self._keeps:
            self._kept.update(fresh)
            return [self._kept[index] for index in indices]
        return [fresh[index] for index in indices]

    def describe(self, index: int) -> str:
        """Names a pair for a message: where it comes from, and its line."""
        return self._corpus.describe(index)

    def _encode_pairs(self, indices: list[int]) -> Iterator[IdPair]:
        texts = [self._corpus[index] for index in indices]
        sides = (
            self._encode_side([pair[side] for pair in texts], indices, tokenizer)
            for side, tokenizer in enumerate(self.tokenizers)
        )
        return zip(*sides, strict=True)

    def _encode_side(
        self, texts: list[str], indices: list[int], tokenizer: Tokenizer
    ) -> list[np.ndarray]:
        said = ["" if is_blank(text) else text for text in texts]
        encoded = [np.array(ids, np.int32) for ids in tokenizer.encode_many(said)]
        every_id = np.concatenate([*encoded, np.zeros(1, np.int32)])
        if every_id.min() < 0 or every_id.max() >= tokenizer.size:
            for index, ids in zip(indices, encoded, strict=True):
                check_ids(ids, tokenizer.size, self._corpus.describe(index))
        return encoded


def fingerprint(corpus: ParallelCorpus) -> str:
    """A short hash of all pairs, or of some spread over a large one read on demand."""
    digest = hashlib.sha256(f"{len(corpus)} pairs\n".encode())
    in_memory = isinstance(corpus.source, list) or len(corpus) <= _MOST_PAIRS_IN_MEMORY
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


def require_within(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    longest: Longest,
    corpus: ParallelCorpus,
) -> None:
    """Refuses pairs that a model cannot take.

    Args:
        pairs: ids of source and target without special tokens.
        longest: sentences of the model.
        corpus: whose pairs they are, to name one.

    Raises:
        ValueError: a side of a pair has more tokens than that; the longest is named.
    """
    limits = ("source", longest.source), ("target", longest.target)
    for side, (name, most) in enumerate(limits):
        lengths = [len(pair[side]) + 1 for pair in pairs]
        if lengths and max(lengths) > most:
            index, count = int(np.argmax(lengths)), sum(n > most for n in lengths)
            raise ValueError(
                f"{corpus.describe(index)}: the {name} has {lengths[index]} tokens "
                f"with </s>, and this model takes {most} ({longest.setting}; lines "
                f"that are too long: {count} of {len(lengths)}). Set "
                f"{longest.setting} to {lengths[index]} or more in a new run, or "
                "shorten these lines."
            )


def usable_pairs(lengths: np.ndarray, largest: BatchShape) -> np.ndarray:
    """``[N]`` whether a pair of these lengths is not empty on a side and fits."""
    return np.all((lengths > 1) & (lengths <= np.array(largest[1:])), axis=1)
