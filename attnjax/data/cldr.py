"""The embedded corpus: phrases of the Unicode CLDR in any two of babel's locales.

Nothing is downloaded. A sentence is a phrase or a list of phrases, joined as the
locale joins lists ("Algerien, Samoa oder 3,5 Kilometer" - "Algeria, Samoa, or 3.5
kilometers"), so that the alignment of the phrases is known. Lengths reach from one
word to `CLDRSource.max_words`. The sets share no source sentence, and the test set
depends on the size of neither other set.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import overload

from babel import Locale, UnknownLocaleError

from attnjax.config import CLDRSource
from attnjax.data.cldr_phrases import Dice
from attnjax.data.cldr_sentences import Sentence, SentenceWriter, SpanPair
from attnjax.data.parallel import ParallelCorpus
from attnjax.types import Alignment

_MOST_DRAWS_IN_VAIN = 2_000  # in a row; then two locales count as exhausted


@functools.lru_cache(maxsize=4)
def generate_cldr(
    config: CLDRSource, source_language: str, target_language: str
) -> tuple[ParallelCorpus, ParallelCorpus, ParallelCorpus]:
    """Generates the training, validation and test sets, with alignments.

    The same arguments give the same sentences on every machine and Python version, as
    long as babel holds the same CLDR.

    Args:
        config: sizes, longest sentence and seed.
        source_language: a locale such as ``de``, ``pt-BR`` or ``zh_Hant``.
        target_language: another one.

    Returns:
        ``(train, valid, test)``. All words of a phrase align with all words of its
        translation; the words that join a list align with none.

    Raises:
        ValueError: a locale is unknown, or the two offer too few distinct sentences.
    """
    locales = _parse_locale(source_language), _parse_locale(target_language)
    seen: set[str] = set()
    corpora = {}
    for split, count in (
        ("test", config.test_pairs),
        ("valid", config.valid_pairs),
        ("train", config.train_pairs),
    ):
        writer = SentenceWriter(locales, Dice(config.seed, split), config.max_words)
        sentences = _distinct_sentences(writer, seen, count)
        corpora[split] = ParallelCorpus(
            source=[sentence.source for sentence in sentences],
            target=[sentence.target for sentence in sentences],
            origin=f"CLDR {split} set {locales[0]}-{locales[1]} (seed {config.seed})",
            alignment=_PhraseAlignments([sentence.spans for sentence in sentences]),
        )
    return corpora["train"], corpora["valid"], corpora["test"]


class _PhraseAlignments(Sequence[Alignment]):
    """Word alignments, spelt out from pairs of word spans when asked for."""

    def __init__(self, spans: list[tuple[SpanPair, ...]]) -> None:
        self._spans = spans

    def __len__(self) -> int:
        return len(self._spans)

    @overload
    def __getitem__(self, index: int) -> Alignment: ...
    @overload
    def __getitem__(self, index: slice) -> _PhraseAlignments: ...
    def __getitem__(self, index: int | slice) -> Alignment | _PhraseAlignments:
        if isinstance(index, slice):
            return _PhraseAlignments(self._spans[index])
        return frozenset(
            (source_word, target_word)
            for source_span, target_span in self._spans[index]
            for source_word in range(*source_span)
            for target_word in range(*target_span)
        )


def _parse_locale(name: str) -> Locale:
    try:
        return Locale.parse(name.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        raise ValueError(
            f"{name!r} is no locale of the CLDR; expected a name such as de, en, pt-BR "
            "or zh-Hant (`babel.localedata.locale_identifiers()` lists all)."
        ) from None


def _distinct_sentences(
    writer: SentenceWriter, seen: set[str], count: int
) -> list[Sentence]:
    """``count`` sentences whose source is not in ``seen``, which takes them up."""
    sentences: list[Sentence] = []
    draws_in_vain = 0
    while len(sentences) < count:
        sentence = writer.draw()
        if sentence is not None and sentence.source not in seen:
            seen.add(sentence.source)
            sentences.append(sentence)
            draws_in_vain = 0
        elif draws_in_vain == _MOST_DRAWS_IN_VAIN:
            raise ValueError(
                f"these locales gave only {len(seen)} distinct sentences of at most "
                f"{writer.max_words} words; ask for fewer pairs, or raise max_words."
            )
        else:
            draws_in_vain += 1
    return sentences
