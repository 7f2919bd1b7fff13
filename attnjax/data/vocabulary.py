"""What a tokenizer is: the contract, the special tokens, and checks of ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

# Of the tokenizers that are trained here. Others have others: whoever lays out or reads
# ids asks the tokenizer for its own.
PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")  # in the order of their ids


class Tokenizer(Protocol):
    """Text to token ids and back.

    Attributes:
        kind: ``sentencepiece``, ``word`` or ``char``.
        size: number of ids, special tokens included.
        pad_id: fills rows up; never part of a sentence.
        bos_id: ``<s>``, the first decoder input; may be ``pad_id``, as in Marian.
        eos_id: ``</s>``, ends every sentence.
        unk_id: what the vocabulary lacks; printed as ``<unk>``.
    """

    kind: str
    pad_id: int
    bos_id: int
    eos_id: int
    unk_id: int

    @property
    def size(self) -> int:
        """Number of ids, special tokens included."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of one line, without special tokens."""
        ...

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text, faster than one by one."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids up to the first ``</s>``, without ``<pad>`` and ``<s>``."""
        ...

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """How each id looks, for pictures; special tokens show their names."""
        ...

    def to_bytes(self) -> bytes:
        """Everything that is needed to build the same tokenizer again."""
        ...


class TokenizerPair(NamedTuple):
    """The tokenizers of both languages; one and the same object if joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        """Whether both languages share one vocabulary."""
        return self.source is self.target

    @property
    def fingerprint(self) -> str:
        """A short hash of both vocabularies, kept with what is trained on them."""
        content = self.source.to_bytes() + self.target.to_bytes()
        return hashlib.sha256(content).hexdigest()[:16]


def printable_ids(ids: Iterable[int], tokenizer: Tokenizer) -> list[int]:
    """The ids before the first ``</s>``, without ``<pad>`` and ``<s>``."""
    kept = []
    for token in ids:
        if token == tokenizer.eos_id:
            break
        if token not in (tokenizer.pad_id, tokenizer.bos_id):
            kept.append(int(token))
    return kept


def check_ids(ids: Sequence[int] | np.ndarray, size: int, where: str) -> None:
    """Refuses ids outside a vocabulary, which no compiled model would notice.

    Args:
        ids: token ids of one sentence.
        size: number of ids in the vocabulary.
        where: names the sentence in the message, such as "corpus/train.de, line 7".

    Raises:
        ValueError: an id is negative, or ``size`` or more.
    """
    array = np.asarray(ids)
    outside = (array < 0) | (array >= size)
    if outside.any():
        position = int(np.argmax(outside))
        raise ValueError(
            f"{where}: token {position + 1} has id {array[position]}, but the "
            f"vocabulary has ids 0 to {size - 1}; encode the text with the tokenizer "
            "that the model was trained with."
        )
