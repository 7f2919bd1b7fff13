"""Where sentence pairs come from, and how they become batches."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from attnjax.config.checks import require, require_positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class CLDRSource:
    """Phrases of the Unicode CLDR in two locales (package babel); needs no download."""

    train_pairs: int = 40_000  # distinct sentence pairs
    valid_pairs: int = 1_000  # pairs that are not among the training pairs
    test_pairs: int = 1_000  # pairs that are in neither of the two
    max_words: int = 60  # the longest sentence, in words of the source side
    seed: int = 0  # of the generator, apart from the training seed

    def __post_init__(self) -> None:
        require_positive(self, "train_pairs", "valid_pairs", "test_pairs", "max_words")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFilesSource:
    """Parallel text: line i of one file translates line i of the other.

    A path is a prefix; ``.<language>`` and optionally ``.gz`` or ``.xz`` follow it, so
    ``corpus/train`` names ``corpus/train.de`` and ``corpus/train.en``.
    """

    train: Path  # path prefix of the training pairs
    valid: Path  # path prefix of the validation pairs
    test: Path  # path prefix of the test pairs


@dataclasses.dataclass(frozen=True, kw_only=True)
class TFDSSource:
    """A translation set of tensorflow-datasets, read without TensorFlow."""

    name: str = "wmt14_translate/de-en"  # as in the catalog of tensorflow-datasets
    data_dir: Path | None = None  # prepared sets; None means ~/tensorflow_datasets
    manual_dir: Path | None = None  # archives that were downloaded by hand
    train_split: str = "train"  # slices such as train[:10%] are allowed
    valid_split: str = "validation"  # scored during training
    test_split: str = "test"  # scored by eval.py


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How text becomes tokens; trained on training pairs, kept in the run folder."""

    # subwords of SentencePiece (bpe, unigram), words between spaces, or characters
    kind: Literal["bpe", "unigram", "word", "char"] = "bpe"
    vocab_size: int = 8_000  # of each vocabulary; an upper bound for word and char
    joint: bool = True  # one vocabulary for both languages
    byte_fallback: bool = True  # unknown characters as bytes (bpe, unigram)
    normalization: Literal["identity", "nmt_nfkc"] = "identity"  # bpe, unigram
    max_sentences: int = 1_000_000  # sentences of each side to train on

    def __post_init__(self) -> None:
        require_positive(self, "max_sentences")
        require(
            self.vocab_size >= 5,
            f"vocab_size must hold the 4 special tokens and more, got {self.vocab_size}"
            "; 1000 to 40000 are usual.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where sentence pairs come from and how they are batched."""

    # CLDR, text files or tensorflow-datasets; its class is chosen in the config file
    source: CLDRSource | TextFilesSource | TFDSSource
    source_language: str = "de"  # translate from
    target_language: str = "en"  # translate to
    tokenizer: TokenizerConfig = TokenizerConfig()
    # lengths that a side may be padded to, in tokens with </s>; longer training pairs
    # are dropped and counted
    bucket_lengths: tuple[int, ...] = (
        *(8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64, 72, 80, 96, 112, 128),
    )
    # pairs of such lengths in use, each compiled once, chosen so that training pairs
    # need least padding
    bucket_shapes: int = 16
    tokens_per_batch: int = 4_096  # padded tokens of the longer side, over all devices
    rows_multiple: int = 8  # rows of each batch are a multiple of this
    packing: bool = False  # several pairs in one row of the longest bucket length
    shuffle_buffer_batches: int = 64  # batches that are bucketed together

    def __post_init__(self) -> None:
        require_positive(
            self,
            *("bucket_shapes", "tokens_per_batch", "rows_multiple"),
            "shuffle_buffer_batches",
        )
        lengths = self.bucket_lengths
        require(
            len(lengths) > 0 and lengths[0] > 1 and sorted(set(lengths)) == [*lengths],
            f"bucket_lengths must be rising lengths > 1, got {lengths}.",
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
