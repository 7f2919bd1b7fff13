"""Where sentence pairs come from, and how they become batches."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from attnjax.fields import (
    BatchTokens,
    Count,
    ReadWith,
    Section,
    Seed,
    Within,
    require,
)

_MOST_PAIRS = 1_000_000_000
_OF_SUBWORDS = ReadWith({"kind": ("bpe", "unigram")})
_UNPACKED = ReadWith({"packing": (False,)})
Length = Annotated[int, Within(least=2, most=1 << 20)]
Pairs = Annotated[int, Within(above=0, most=_MOST_PAIRS)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CLDRSource(Section):
    """Phrases of the Unicode CLDR in two locales (package babel); needs no download."""

    train_pairs: Pairs = 40_000  # distinct sentence pairs
    valid_pairs: Pairs = 1_000  # pairs that are not among the training pairs
    test_pairs: Pairs = 1_000  # pairs that are in neither of the two
    # the longest sentence, in words of the source side (characters without spaces)
    max_words: Count = 60
    seed: Seed = 0  # of the generator, apart from the training seed


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFilesSource(Section):
    """Parallel text: line i of one file translates line i of the other.

    A path is a prefix; ``.<language>`` and optionally ``.gz`` or ``.xz`` follow it, so
    ``corpus/train`` names ``corpus/train.de`` and ``corpus/train.en``.
    """

    train: Path  # path prefix of the training pairs
    valid: Path  # path prefix of the validation pairs
    test: Path  # path prefix of the test pairs


@dataclasses.dataclass(frozen=True, kw_only=True)
class TFDSSource(Section):
    """A translation set of tensorflow-datasets, read without TensorFlow."""

    name: str = "wmt14_translate/de-en"  # as in the catalog of tensorflow-datasets
    data_dir: Path | None = None  # prepared sets; None means ~/tensorflow_datasets
    manual_dir: Path | None = None  # archives that were downloaded by hand
    train_split: str = "train"  # slices such as train[:10%] are allowed
    valid_split: str = "validation"  # scored during training
    test_split: str = "test"  # scored by eval.py


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig(Section):
    """How text becomes tokens; trained on training pairs, kept in the run folder."""

    # subwords of SentencePiece (bpe, unigram), words between spaces, or characters
    kind: Literal["bpe", "unigram", "word", "char"] = "bpe"
    # tokens of each vocabulary, the 4 special ones included; an upper bound for word
    # and char
    vocab_size: Annotated[int, Within(least=5, most=1 << 24)] = 8_000
    joint: bool = True  # one vocabulary for both languages
    # unknown characters as bytes (bpe, unigram)
    byte_fallback: Annotated[bool, _OF_SUBWORDS] = True
    # of characters, before they are cut (bpe, unigram)
    normalization: Annotated[Literal["identity", "nmt_nfkc"], _OF_SUBWORDS] = "identity"
    max_sentences: Count = 1_000_000  # sentences of each side to train on


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """Where sentence pairs come from and how they are batched."""

    # CLDR, text files or tensorflow-datasets; its class is chosen in the config file
    source: CLDRSource | TextFilesSource | TFDSSource
    source_language: str = "de"  # translate from
    target_language: str = "en"  # translate to
    tokenizer: TokenizerConfig = TokenizerConfig()
    # lengths that a side may be padded to, in tokens with </s>; longer training pairs
    # are dropped and counted
    bucket_lengths: tuple[Length, ...] = (
        *(8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64, 72, 80, 96, 112, 128),
    )
    # pairs of such lengths in use, each compiled once, chosen so that training pairs
    # need least padding
    bucket_shapes: Annotated[Count, _UNPACKED] = 16
    # padded tokens of the longer side, over all devices
    tokens_per_batch: BatchTokens = 4_096
    rows_multiple: Count = 8  # rows of each batch are a multiple of this
    packing: bool = False  # several pairs in one row of the longest bucket length
    shuffle_buffer_batches: Count = 64  # batches that are bucketed together

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = self.bucket_lengths
        require(
            len(lengths) > 0 and sorted(set(lengths)) == [*lengths],
            f"bucket_lengths must be rising lengths, got {lengths}.",
        )
        longest = lengths[-1] * self.rows_multiple
        require(
            self.tokens_per_batch >= longest,
            f"tokens_per_batch must hold {self.rows_multiple} rows of "
            f"{lengths[-1]} tokens, got {self.tokens_per_batch}; {longest} would do.",
        )
        require(
            self.source_language != self.target_language,
            f"source_language and target_language are both {self.source_language!r}; "
            "name two languages.",
        )
