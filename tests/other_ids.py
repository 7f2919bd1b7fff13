"""Tokenizers whose special tokens have other ids than ours."""

from attnjax.data.symbol_tokenizers import SymbolTokenizer
from attnjax.data.vocabulary import TokenizerPair, printable_ids


class OtherIds:
    """A tokenizer of ours with ``</s>`` at 0, ``<unk>`` at 1 and ``<pad>`` at V - 1.

    ``<s>`` is ``<pad>``, as in Marian models; id V - 2 is left unused.
    """

    def __init__(self, ours: SymbolTokenizer) -> None:
        self._ours, self.kind, self.size = ours, ours.kind, ours.size
        # Place i holds our id of theirs: </s>, <unk>, all the words, <s>, <pad>.
        self.ours_of = [2, 3, *range(4, ours.size), 1, 0]
        self.theirs_of = [self.ours_of.index(token) for token in range(ours.size)]
        self.pad_id = self.bos_id = ours.size - 1
        self.eos_id, self.unk_id = 0, 1

    def encode(self, text):
        return [self.theirs_of[token] for token in self._ours.encode(text)]

    def encode_many(self, texts):
        return [self.encode(text) for text in texts]

    def decode(self, ids):
        return self._ours.decode(
            self.ours_of[token] for token in printable_ids(ids, self)
        )

    def pieces(self, ids):
        return self._ours.pieces([self.ours_of[token] for token in ids])

    def to_bytes(self):
        return b"other ids of " + self._ours.to_bytes()


def with_other_ids(pair):
    """The same pair of tokenizers but for the ids."""
    return TokenizerPair(*map(OtherIds, pair))
