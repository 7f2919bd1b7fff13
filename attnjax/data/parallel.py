"""A parallel corpus: sentence pairs, their origin and word alignment."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from attnjax.types import Alignment


@dataclasses.dataclass(frozen=True)
class ParallelCorpus:
    """Sentence pairs: ``target[i]`` translates ``source[i]``.

    Attributes:
        source: the source sentences; a list, or anything indexed that reads on demand.
        target: the target sentences, as many.
        origin: where they come from, for messages.
        alignment: for each pair, which words translate each other, as indices into
            `split_words`; None if unknown.
    """

    source: Sequence[str]
    target: Sequence[str]
    origin: str
    alignment: Sequence[Alignment] | None = None

    def __post_init__(self) -> None:
        counts = {len(self.source), len(self.target)}
        if self.alignment is not None:
            counts.add(len(self.alignment))
        if len(counts) > 1:
            raise ValueError(
                f"{self.origin}: sources, targets and alignments must be equally many, "
                f"got {len(self.source)}, {len(self.target)}"
                + ("." if self.alignment is None else f", {len(self.alignment)}.")
            )
        if not counts - {0}:
            raise ValueError(f"{self.origin} has no sentence pairs; expected some.")

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[str, str]:
        return self.source[index], self.target[index]

    def describe(self, index: int) -> str:
        """Names pair ``index`` for a message: where it comes from, and its line."""
        return f"{self.origin}, line {index + 1}"


def split_words(text: str) -> list[str]:
    """Splits at spaces (U+0020) only: no-break spaces stay inside their word."""
    return [word for word in text.split(" ") if word]


def is_blank(text: str) -> bool:
    """Whether a line says nothing: it is empty, or all of it is white space."""
    return not text.strip()
