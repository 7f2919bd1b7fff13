"""Where the three sets of an experiment come from."""

from __future__ import annotations

from typing import Literal

from attnjax.config import CLDRSource, DataConfig, TextFilesSource
from attnjax.data.cldr import generate_cldr
from attnjax.data.parallel import ParallelCorpus, split_words
from attnjax.data.text_files import read_lines, read_text_files
from attnjax.data.tfds import load_tfds
from attnjax.types import Alignment

__all__ = [
    "Alignment",
    "ParallelCorpus",
    "Split",
    "load_corpora",
    "read_lines",
    "split_words",
]

Split = Literal["train", "valid", "test"]


def load_corpora(config: DataConfig) -> dict[Split, ParallelCorpus]:
    """Loads the training, validation and test sets of an experiment.

    Args:
        config: names the source and the languages.

    Returns:
        The sets by name. None of them is filtered.

    Raises:
        ValueError: the source has no such languages, or its content is refused.
        OSError: a file is missing or cannot be read.
    """
    languages = config.source_language, config.target_language
    source = config.source
    if isinstance(source, CLDRSource):
        train, valid, test = generate_cldr(source, *languages)
    elif isinstance(source, TextFilesSource):
        train, valid, test = (
            read_text_files(prefix, *languages)
            for prefix in (source.train, source.valid, source.test)
        )
    else:
        train, valid, test = load_tfds(source, *languages)
    return {"train": train, "valid": valid, "test": test}
