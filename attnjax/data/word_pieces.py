"""Which word of the text each token belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from attnjax.data.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer

_SPACE_MARK = "\u2581"  # how SentencePiece writes a space
_BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
_UNKNOWN = "?"  # any text that is no space


def word_of_pieces(tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray) -> list[int]:
    """The index of each token's word, as `attnjax.data.parallel.split_words` counts.

    Words are what spaces (U+0020) separate in ``tokenizer.decode(ids)``. A token of
    several words counts as a piece of the first. What the tokenizer took for the same
    text is the same word: after normalisation (``nmt_nfkc``) a no-break space
    separates, and U+2581 is a space always. An unknown token is taken for text without
    a space, though a character tokenizer that never saw a space has no other token for
    it.

    Args:
        tokenizer: the one that made the ids.
        ids: token ids of one sentence, with or without ``</s>``.

    Returns:
        As many indices, rising; -1 for tokens that are only spaces, for ``</s>`` and
        all after it, and for ``<pad>`` and ``<s>``.
    """
    words: list[int] = []
    last = -1
    inside = False  # a word: what comes next, if it is no space, belongs to it
    ended = False
    for token, text in zip(ids, _texts(tokenizer, ids), strict=True):
        ended = ended or token == EOS_ID
        word = -1
        if not ended and token not in (PAD_ID, BOS_ID):
            for character in text:
                if character == " ":
                    inside = False
                    continue
                last += not inside
                inside = True
                word = last if word < 0 else word
        words.append(word)
    return words


def _texts(tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray) -> Iterable[str]:
    """What each token adds to the text, any other character standing for a byte."""
    for token, piece in zip(ids, tokenizer.pieces(ids), strict=True):
        if token == UNK_ID:
            piece = _UNKNOWN
        if tokenizer.kind == "word":
            yield f" {piece}"
        elif tokenizer.kind == "char":
            yield piece
        elif _BYTE_PIECE.fullmatch(piece):
            yield " " if piece == "<0x20>" else _UNKNOWN
        else:
            yield piece.replace(_SPACE_MARK, " ")
