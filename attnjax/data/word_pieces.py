"""Which word of the text each token belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from attnjax.data.vocabulary import BOS_ID, EOS_ID, PAD_ID, Tokenizer

_SPACE_MARK = "\u2581"  # how SentencePiece writes a space
_SPACE_BYTE = "<0x20>"


def word_of_pieces(tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray) -> list[int]:
    """The index of each token's word, as `attnjax.data.parallel.split_words` counts.

    Words are what spaces (U+0020) separate in ``tokenizer.decode(ids)``. A token of
    several words counts as a piece of the first. Mind where the decoded text is not the
    one encoded: U+2581 has become a space, and so has a no-break space under
    ``nmt_nfkc``. An unknown token is taken for text without a space, though a character
    tokenizer that never saw a space has no other token for one.

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
    """What each token adds to the text, as far as spaces go."""
    for piece in tokenizer.pieces(ids):
        if tokenizer.kind == "word":
            yield f" {piece}"
        elif tokenizer.kind == "char":
            yield piece
        else:  # of byte pieces, only that of the space has one
            yield " " if piece == _SPACE_BYTE else piece.replace(_SPACE_MARK, " ")
