"""Words and characters as tokens: a list of symbols, most frequent first."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Iterable, Sequence

from attnjax.config import TokenizerConfig
from attnjax.data.parallel import split_words
from attnjax.data.vocabulary import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    UNK_ID,
    printable_ids,
)

_SPLITTERS: dict[str, Callable[[str], list[str]]] = {"word": split_words, "char": list}
_JOINERS = {"word": " ", "char": ""}


class SymbolTokenizer:
    """A fixed list of symbols behind the `Tokenizer` contract.

    Words are apart by spaces; several spaces in a row are read as one. Characters are
    Unicode code points. A symbol outside the list becomes ``<unk>``.

    Args:
        kind: ``word`` or ``char``.
        symbols: the symbols of ids 4, 5, ...
    """

    pad_id, bos_id, eos_id, unk_id = PAD_ID, BOS_ID, EOS_ID, UNK_ID

    def __init__(self, kind: str, symbols: Sequence[str]) -> None:
        self.kind = kind
        self._split, self._joiner = _SPLITTERS[kind], _JOINERS[kind]
        self._names = [*SPECIAL_TOKENS, *symbols]
        self._ids = {
            symbol: index
            for index, symbol in enumerate(symbols, start=len(SPECIAL_TOKENS))
        }

    @property
    def size(self) -> int:
        """Number of ids, special tokens included."""
        return len(self._names)

    def encode(self, text: str) -> list[int]:
        """The ids of one line, without special tokens."""
        return [self._ids.get(symbol, UNK_ID) for symbol in self._split(text)]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids up to the first ``</s>``."""
        return self._joiner.join(self.pieces(printable_ids(ids, self)))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """How each id looks."""
        return [self._names[token] for token in ids]

    def to_bytes(self) -> bytes:
        """The symbols as a JSON list."""
        symbols = self._names[len(SPECIAL_TOKENS) :]
        return json.dumps(symbols, ensure_ascii=False, indent=0).encode("utf-8")


def train_symbols(sentences: Iterable[str], config: TokenizerConfig) -> SymbolTokenizer:
    """Keeps the most frequent symbols of the text, equal counts in code point order.

    Args:
        sentences: lines of training text.
        config: kind ``word`` or ``char``; ``vocab_size`` bounds the list.

    Returns:
        The tokenizer, smaller than ``vocab_size`` if the text has fewer symbols.

    Raises:
        ValueError: there is no text.
    """
    split = _SPLITTERS[config.kind]
    counts = collections.Counter(
        symbol for sentence in sentences for symbol in split(sentence)
    )
    if not counts:
        raise ValueError("no text to train the tokenizer on: every line is empty.")
    ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
    return SymbolTokenizer(
        config.kind, ranked[: config.vocab_size - len(SPECIAL_TOKENS)]
    )
