"""Texts that an output must begin with, as what its tokens may be.

The tokens of a beginning are not those of the text that it begins: "Feb" is a token of
its own, and "February" is another; a space that ends a beginning is in SentencePiece
the start of the next word's token. So only what comes before the last word is forced
token by token. That word, or the space that begins it, is forced as text: any tokens
may come that spell it, among them those that go beyond it.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attnjax.data.batching import lay_out_prefixes, padded_length
from attnjax.data.parallel import split_words
from attnjax.data.vocabulary import Tokenizer

_MOST_BYTES = 16  # of a last word that is forced as text; longer ones in part
_SPACE_MARK = "\u2581"  # how SentencePiece writes a space
_SPACE_BYTE = "<0x20>"
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
_FEWEST_STATES = 8  # states of a batch are this, times 8 as often as needed


class Beginnings(NamedTuple):
    """The beginnings of a batch's outputs.

    Attributes:
        ids: ``[B, P]`` int32, the first tokens, filled up with ``<pad>``.
        states: ``[B, R]`` int32: which row of ``allowed`` rules the next token when so
            many bytes are written of the text that follows ``ids``; 0 from its end on.
        allowed: ``[N, C]`` bool, the tokens that may come in each state; all in state
            0.
        sizes: ``[C]`` int32, bytes that each token adds to the text.
    """

    ids: np.ndarray
    states: np.ndarray
    allowed: np.ndarray
    sizes: np.ndarray


class BeginningSpeller:
    """Says which tokens spell a beginning.

    Args:
        tokenizer: of the outputs.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts = _token_bytes(tokenizer)
        self._sorted = sorted(
            (text, token) for token, text in enumerate(self._texts) if text
        )
        self._known: dict[bytes, tuple[int, ...]] = {b"": ()}

    def split(self, text: str) -> tuple[list[int], bytes]:
        """Parts a beginning into tokens and text.

        Args:
            text: the beginning.

        Returns:
            The tokens that come first, and the bytes that the tokens after them must
            spell. A text that the vocabulary lacks is all tokens, ``<unk>`` among them.
        """
        ids = self._tokenizer.encode(text)
        texts = [self._texts[token] for token in ids]
        if self._tokenizer.kind == "word":  # an unknown word may begin a known one
            texts = [f" {word}".encode() for word in split_words(text)]
        words = [n for n, each in enumerate(texts) if each.startswith(b" ")]
        start = words[-1] if words else 0
        while len(b"".join(texts[start:])) > _MOST_BYTES:
            start += 1
        rest = b"".join(texts[start:])
        if ids and text.endswith(" ") and not rest.endswith(b" "):
            start, rest = len(ids), b" "  # to words, a space at the end says nothing
        if not all(texts[start:]) or not self.next_tokens(rest):
            return ids, b""
        return ids[:start], rest

    def next_tokens(self, rest: bytes) -> tuple[int, ...]:
        """The tokens that may come where a text must follow.

        Args:
            rest: what the output must go on with, in UTF-8.

        Returns:
            The tokens that begin with it, and those that it begins with, if others can
            spell what is left of it then.
        """
        if rest not in self._known:
            self._known[rest] = self._find_next(rest)
        return self._known[rest]

    def _find_next(self, rest: bytes) -> tuple[int, ...]:
        start = bisect.bisect_left(self._sorted, (rest, 0))
        tokens = []
        for text, token in self._sorted[start:]:
            if not text.startswith(rest):
                break
            tokens.append(token)
        for size in range(1, len(rest)):
            shorter = self._spelled(rest[:size])
            if shorter and self.next_tokens(rest[size:]):
                tokens += shorter
        return tuple(tokens)

    def _spelled(self, text: bytes) -> list[int]:
        """The tokens of exactly this text."""
        start = bisect.bisect_left(self._sorted, (text, 0))
        end = bisect.bisect_left(self._sorted, (text, len(self._texts)))
        return [token for _, token in self._sorted[start:end]]

    def lay_out(self, texts: Sequence[str], rows: int) -> Beginnings | None:
        """The beginnings of a batch as arrays of few shapes.

        Args:
            texts: of the first rows; an empty one forces nothing.
            rows: of the batch; those beyond have no beginning.

        Returns:
            The arrays; None where nothing is forced.
        """
        parts = [self.split(text) for text in texts]
        if not any(ids or rest for ids, rest in parts):
            return None
        states = np.zeros((rows, _MOST_BYTES + 1), np.int32)
        known: dict[bytes, int] = {}
        for row, (_, rest) in enumerate(parts):
            for written in range(len(rest)):
                left = rest[written:]
                states[row, written] = known.setdefault(left, len(known) + 1)
        num_states = _FEWEST_STATES
        while num_states <= len(known):
            num_states *= 8
        allowed = np.zeros((num_states, len(self._texts)), bool)
        allowed[0] = True
        for left, state in known.items():
            allowed[state, list(self.next_tokens(left))] = True
        longest = max(len(ids) for ids, _ in parts)
        return Beginnings(
            ids=lay_out_prefixes(
                [ids for ids, _ in parts],
                rows,
                padded_length(longest),
                pad_id=self._tokenizer.pad_id,
            ),
            states=states,
            allowed=allowed,
            sizes=np.array([len(text) for text in self._texts], np.int32),
        )


def _token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """What each token adds to a text that begins with a space; none for special ones.

    Before a text's first word SentencePiece and word tokenizers have a space too, which
    is not printed.
    """
    special = tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id
    texts = []
    for token, piece in enumerate(tokenizer.pieces(range(tokenizer.size))):
        byte = _BYTE_PIECE.fullmatch(piece)
        # The byte of a space would be printed where SentencePiece's mark is not.
        if token in special or piece == _SPACE_BYTE:
            texts.append(b"")
        elif tokenizer.kind == "sentencepiece" and byte:
            texts.append(bytes([int(byte[1], 16)]))
        else:
            if tokenizer.kind == "sentencepiece":
                piece = piece.replace(_SPACE_MARK, " ")
            elif tokenizer.kind == "word":
                piece = f" {piece}"
            texts.append(piece.encode("utf-8", "surrogatepass"))
    return texts
