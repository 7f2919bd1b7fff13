"""SentencePiece subwords, trained here and kept as one model file.

With the defaults (identity normalisation, byte fallback, spaces preserved) decoding
gives back every text exactly, except that U+2581, SentencePiece's mark of a space,
becomes a space. With ``normalization="nmt_nfkc"`` compatibility forms are folded
(``Ａ１`` becomes ``A1``) and control characters vanish; without byte fallback,
characters that the training text lacks become ``<unk>``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece

from attnjax.config import TokenizerConfig
from attnjax.data.vocabulary import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    UNK_ID,
    printable_ids,
)

_LONGEST_SENTENCE_BYTES = 1 << 24  # the library leaves out all beyond 4,192 in silence
_PIECE_CHARACTERS = 4_096  # unigram needs minutes for a line of 100,000
_CHARACTER_COVERAGE = 0.9999  # of the training text; rarer characters become bytes
_QUIET = 2  # log level of the library: errors only


class SentencePieceTokenizer:
    """A trained SentencePiece model behind the `Tokenizer` contract.

    Args:
        model: the serialised model, as in a ``.model`` file.
    """

    kind = "sentencepiece"
    pad_id, bos_id, eos_id, unk_id = PAD_ID, BOS_ID, EOS_ID, UNK_ID

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise ValueError(f"this is no SentencePiece model: {error}") from None
        found = tuple(self._processor.IdToPiece(index) for index in range(4))
        if found != SPECIAL_TOKENS:
            raise ValueError(
                f"the SentencePiece model must begin with {SPECIAL_TOKENS}, got "
                f"{found}; train it with pad_id=0, bos_id=1, eos_id=2, unk_id=3."
            )

    @property
    def size(self) -> int:
        """Number of ids, special tokens included."""
        return self._processor.GetPieceSize()

    def encode(self, text: str) -> list[int]:
        """The ids of one line, without special tokens."""
        return self._processor.EncodeAsIds(text)

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text, faster than one by one."""
        return self._processor.EncodeAsIds(list(texts))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids up to the first ``</s>``, all ids decoded together.

        Pieces of single bytes are joined before they are read as UTF-8; bytes that make
        no character become U+FFFD.
        """
        return self._processor.DecodeIds(printable_ids(ids, self))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """How each id looks; U+2581 marks a space before it."""
        return [self._processor.IdToPiece(int(token)) for token in ids]

    def to_bytes(self) -> bytes:
        """The serialised model, as in a ``.model`` file."""
        return self._model


def train_sentencepiece(
    sentences: Iterable[str], config: TokenizerConfig
) -> SentencePieceTokenizer:
    """Trains subwords; the same sentences give the same model.

    Args:
        sentences: lines of training text; longer ones than 4,096 characters are cut
            into pieces of that length.
        config: kind ``bpe`` or ``unigram``, size, byte fallback and normalisation.

    Returns:
        The tokenizer. Its size is below ``config.vocab_size`` where the text has not
        that many subwords.

    Raises:
        ValueError: ``vocab_size`` is too small for the characters, or there is no text.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=_in_pieces(sentences),
            model_writer=model,
            model_type=config.kind,
            vocab_size=config.vocab_size,
            hard_vocab_limit=False,
            character_coverage=_CHARACTER_COVERAGE,
            byte_fallback=config.byte_fallback,
            normalization_rule_name=config.normalization,
            remove_extra_whitespaces=False,
            add_dummy_prefix=True,
            max_sentence_length=_LONGEST_SENTENCE_BYTES,
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            unk_surface=SPECIAL_TOKENS[UNK_ID],
            minloglevel=_QUIET,
        )
    except RuntimeError as error:
        raise ValueError(_explain(error, config)) from None
    return SentencePieceTokenizer(model.getvalue())


def _in_pieces(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        for start in range(0, len(sentence) or 1, _PIECE_CHARACTERS):
            yield sentence[start : start + _PIECE_CHARACTERS]


def _explain(error: RuntimeError, config: TokenizerConfig) -> str:
    smaller = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    if smaller:
        return (
            f"tokenizer.vocab_size must be at least {smaller[1]} for the characters of "
            f"this text{' and 256 bytes' if config.byte_fallback else ''}, got "
            f"{config.vocab_size}; raise it."
        )
    if "sentences_.empty()" in str(error):
        return "no text to train the tokenizer on: every line is empty."
    return f"SentencePiece could not train the tokenizer: {error}"
