"""A vocabulary of any size, for measurements that read no text."""

from __future__ import annotations

from attnjax.data.symbol_tokenizers import SymbolTokenizer
from attnjax.data.vocabulary import SPECIAL_TOKENS, TokenizerPair


def numbered_words(size: int) -> TokenizerPair:
    """One vocabulary for both languages.

    Args:
        size: number of ids, special tokens included.

    Returns:
        Tokenizers of so many made-up words.
    """
    count = size - len(SPECIAL_TOKENS)
    words = SymbolTokenizer("word", [f"word {number}" for number in range(count)])
    return TokenizerPair(words, words)
