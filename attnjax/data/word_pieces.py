"""Which word of the text each token belongs to."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from attnjax.data.parallel import split_words
from attnjax.data.vocabulary import Tokenizer

_SPACE_MARK = "\u2581"  # how SentencePiece writes a space
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_UNKNOWN = "\ufffd"  # one character, so that no cut makes several words of it

Cutter = Callable[[str], Sequence[str]]
"""Cuts a line into words; joined they are the line without what separates them."""


def word_of_pieces(
    tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray, cut: Cutter = split_words
) -> list[int]:
    """The index of each token's word.

    Words are cut from the text that the tokens stand for, ``tokenizer.decode(ids)``. A
    token of several words counts as a piece of the first. Mind where the decoded text
    is not the one encoded: U+2581 has become a space, and so has a no-break space under
    ``nmt_nfkc``. An unknown token is taken for one character that is no space, though a
    character tokenizer that never saw a space has no other token for one.

    Args:
        tokenizer: the one that made the ids.
        ids: token ids of one sentence, with or without ``</s>``.
        cut: what cuts the text; by default at spaces (U+0020).

    Returns:
        As many indices, rising; -1 for tokens that are only spaces, for ``</s>`` and
        all after it, and for ``<pad>`` and ``<s>``.
    """
    text, spans = _text_and_spans(tokenizer, ids)
    words = [*_word_of_characters(text, cut(text))]
    return [
        next((words[place] for place in span if words[place] >= 0), -1)
        for span in spans
    ]


def _word_of_characters(text: str, words: Sequence[str]) -> Iterator[int]:
    """For each character the word that it is in, -1 if it separates words."""
    letters = [(number, letter) for number, word in enumerate(words) for letter in word]
    done = 0
    for character in text:
        if done < len(letters) and letters[done][1] == character:
            yield letters[done][0]
            done += 1
        else:
            yield -1


def _text_and_spans(
    tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray
) -> tuple[str, list[range]]:
    """The text of all tokens, and which of its characters each one stands for.

    All bytes of a character stand for the whole of it.
    """
    text, spans = "", []
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    silent = {tokenizer.pad_id, tokenizer.bos_id}
    ended = False
    for token, piece in zip(ids, tokenizer.pieces(ids), strict=True):
        ended = ended or token == tokenizer.eos_id
        byte = _BYTE.fullmatch(piece) if tokenizer.kind == "sentencepiece" else None
        if ended or token in silent:
            spans.append(range(0))
        elif byte:
            added = decoder.decode(bytes.fromhex(byte[1]))
            spans.append(range(len(text), len(text) + (len(added) or 1)))
            text += added
        else:
            text += decoder.decode(b"", final=True)
            seen = _UNKNOWN if token == tokenizer.unk_id else piece
            added = _text(tokenizer, seen)
            spans.append(range(len(text), len(text) + len(added)))
            text += added
    return text + decoder.decode(b"", final=True), spans


def _text(tokenizer: Tokenizer, piece: str) -> str:
    """What a token adds to the text, spaces between words included."""
    if tokenizer.kind == "word":
        return f" {piece}"
    return piece.replace(_SPACE_MARK, " ") if tokenizer.kind != "char" else piece
