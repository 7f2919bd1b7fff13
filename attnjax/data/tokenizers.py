"""Training, saving and loading the tokenizers of an experiment."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnjax.config import TokenizerConfig
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.sentencepiece_tokenizer import (
    SentencePieceTokenizer,
    train_sentencepiece,
)
from attnjax.data.symbol_tokenizers import SymbolTokenizer, train_symbols
from attnjax.data.vocabulary import Tokenizer, TokenizerPair, check_ids
from attnjax.json_files import parse_json, read_bounded, read_json, shown
from attnjax.storage.files import replace_text

__all__ = [
    "Tokenizer",
    "TokenizerPair",
    "check_ids",
    "has_tokenizers",
    "load_tokenizers",
    "save_tokenizers",
    "train_tokenizers",
]

_DESCRIPTION = "tokenizer.json"  # kind, and whether there is one vocabulary
_MOST_BYTES = 1 << 26  # of a vocabulary
_SENTENCEPIECE_KINDS = ("bpe", "unigram")


def train_tokenizers(corpus: ParallelCorpus, config: TokenizerConfig) -> TokenizerPair:
    """Trains the tokenizers on training pairs; the same pairs give the same ones.

    Args:
        corpus: the training pairs. Beyond ``config.max_sentences`` of them, that many
            are taken at equal distances.
        config: kind, size, joint or separate.

    Returns:
        The pair; both members are one object if ``config.joint``.

    Raises:
        ValueError: the text is empty, or ``vocab_size`` too small for its characters.
    """
    train = (
        train_sentencepiece if config.kind in _SENTENCEPIECE_KINDS else train_symbols
    )
    sides = [_sample(side, config) for side in (corpus.source, corpus.target)]
    try:
        if config.joint:
            tokenizer: Tokenizer = train(itertools.chain(*sides), config)
            return TokenizerPair(tokenizer, tokenizer)
        return TokenizerPair(*(train(side, config) for side in sides))
    except ValueError as error:
        raise ValueError(f"{corpus.origin}: {error}") from error


def save_tokenizers(pair: TokenizerPair, folder: Path) -> None:
    """Writes ``tokenizer.*``, or ``tokenizer.source.*`` and ``tokenizer.target.*``.

    Subword models are SentencePiece's own files, word and character lists are JSON;
    ``tokenizer.json`` says which.

    Args:
        pair: the tokenizers.
        folder: the run folder; made if missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _DESCRIPTION).unlink(missing_ok=True)
    description: dict[str, Any] = {"kind": pair.source.kind, "joint": pair.joint}
    for path, tokenizer in zip(_paths(folder, description), pair, strict=False):
        path.write_bytes(tokenizer.to_bytes())
    # Last and at once, so that a folder with a description is complete.
    replace_text(folder / _DESCRIPTION, json.dumps(description) + "\n")


def has_tokenizers(folder: Path) -> bool:
    """Return whether the tokenizers were saved completely."""
    return (folder / _DESCRIPTION).exists()


def load_tokenizers(folder: Path) -> TokenizerPair:
    """Reads what `save_tokenizers` wrote.

    Args:
        folder: the run folder.

    Returns:
        The pair; both members are one object if it was saved so.

    Raises:
        FileNotFoundError: the folder holds no tokenizer.
        ValueError: a file is damaged.
    """
    path = folder / _DESCRIPTION
    if not path.is_file():
        raise FileNotFoundError(
            f"found no {path}; expected the folder of a run whose training has begun."
        )
    description = _checked(read_json(path), path)
    loaded = [_read(path, description["kind"]) for path in _paths(folder, description)]
    return TokenizerPair(loaded[0], loaded[-1])


def _checked(description: Any, path: Path) -> dict[str, Any]:
    stored = description if isinstance(description, dict) else {}
    kind, joint = stored.get("kind"), stored.get("joint")
    if kind not in ("sentencepiece", "word", "char") or not isinstance(joint, bool):
        raise ValueError(
            f"{path} must name a kind of tokenizer and whether it is joint, got "
            f"{shown(description)}; restore it from a copy."
        )
    return stored


def _sample(texts: Sequence[str], config: TokenizerConfig) -> Iterator[str]:
    count = min(len(texts), config.max_sentences)
    return (texts[index * len(texts) // count] for index in range(count))


def _paths(folder: Path, description: Mapping[str, Any]) -> list[Path]:
    ending = "model" if description["kind"] == "sentencepiece" else "symbols.json"
    if description["joint"]:
        return [folder / f"tokenizer.{ending}"]
    return [folder / f"tokenizer.{side}.{ending}" for side in ("source", "target")]


def _read(path: Path, kind: str) -> Tokenizer:
    content = read_bounded(path, most_bytes=_MOST_BYTES)
    if kind == "sentencepiece":
        return SentencePieceTokenizer(content)
    symbols = parse_json(content, origin=str(path))
    if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
        raise ValueError(
            f"{path} must be a list of symbols, got {shown(symbols)}; restore it from "
            "a copy."
        )
    return SymbolTokenizer(kind, symbols)
