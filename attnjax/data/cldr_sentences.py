"""Sentences of CLDR phrases: single phrases, and lists joined as each locale does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from babel import Locale

from attnjax.data.cldr_phrases import Dice, PhraseBook, PhraseKind
from attnjax.words import has_spaces, words_of

_SINGLE_SHARE = 0.45  # of sentences that are one phrase
_SHORT_LIST_SHARE = 0.78  # of lists that have 2 to 4 phrases; the others are long
_LONG_LIST_WORDS = 12  # the fewest words that a long list aims at
_ALIKE_SHARE = 0.2  # of lists whose phrases are all of one kind, such as dates
_OR_SHARE = 0.3  # of lists joined by "or"; the others by "and"
_STOCK = 1_000  # phrases of each kind that long lists repeat, for formatting is slow

Span = tuple[int, int]  # words from, to (excluded)
SpanPair = tuple[Span, Span]  # source, target


class Sentence(NamedTuple):
    """A sentence, its translation, and the word spans of the phrases of both."""

    source: str
    target: str
    spans: tuple[SpanPair, ...]


class SentenceWriter:
    """Draws sentences of two locales.

    Args:
        locales: of the source and of the target.
        dice: the source of all choices.
        max_words: the longest sentence, in words of the source. Where its language has
            no spaces between words, each character counts as one, so that the corpus
            does not depend on what is installed.
    """

    def __init__(
        self, locales: tuple[Locale, Locale], dice: Dice, max_words: int
    ) -> None:
        self.max_words = max_words
        self._locales = locales
        self._dice = dice
        self._book = PhraseBook(*locales)
        self._stocks: dict[PhraseKind, list[tuple[str, str]]] = {}

    def draw(self) -> Sentence | None:
        """One sentence, or None if the draw is too long or a locale lacks a phrase."""
        if self._dice.chance(_SINGLE_SHARE):
            pairs = [self._fresh(self._dice.pick(self._book.kinds))]
        elif self._dice.chance(_SHORT_LIST_SHARE):
            pairs = self._draw_short_list()
        else:
            pairs = self._draw_long_list()
        form = "or" if self._dice.chance(_OR_SHARE) else "standard"
        (source, source_spans), (target, target_spans) = (
            join_phrases([pair[side] for pair in pairs], locale.list_patterns[form])
            for side, locale in enumerate(self._locales)
        )
        if self._length(source) > self.max_words or not all(
            _is_clean(text) for pair in pairs for text in pair
        ):
            return None
        return Sentence(
            source, target, tuple(zip(source_spans, target_spans, strict=True))
        )

    def _draw_short_list(self) -> list[tuple[str, str]]:
        count = self._dice.between(2, 4)
        return [self._fresh(kind) for kind in self._draw_kinds(count)]

    def _draw_long_list(self) -> list[tuple[str, str]]:
        """Phrases that reach a number of words, which is the smaller of two draws."""
        fewest = min(_LONG_LIST_WORDS, self.max_words)
        wanted = min(self._dice.between(fewest, self.max_words) for _ in range(2))
        pairs: list[tuple[str, str]] = []
        words = 0
        for kind in self._draw_kinds(wanted):  # a phrase has one word or more
            pairs.append(self._stocked(kind))
            words += self._length(pairs[-1][0])
            if words >= wanted:
                break
        return pairs

    def _length(self, source: str) -> int:
        """Its words; not those of the spans, which spaces part in every language."""
        language = self._locales[0].language
        if has_spaces(language):
            return _count_words(source)
        return len(words_of(source, language, cut="characters"))

    def _draw_kinds(self, count: int) -> list[PhraseKind]:
        kinds = self._book.kinds
        if self._dice.chance(_ALIKE_SHARE):
            return [self._dice.pick(kinds)] * count
        return [self._dice.pick(kinds) for _ in range(count)]

    def _fresh(self, kind: PhraseKind) -> tuple[str, str]:
        phrase = kind(self._dice)
        source, target = (phrase(locale) for locale in self._locales)
        return source, target

    def _stocked(self, kind: PhraseKind) -> tuple[str, str]:
        stock = self._stocks.setdefault(kind, [])
        if len(stock) == _STOCK:
            return self._dice.pick(stock)
        stock.append(self._fresh(kind))
        return stock[-1]


def join_phrases(
    texts: list[str], patterns: Mapping[str, str]
) -> tuple[str, list[Span]]:
    """Joins texts by a locale's list patterns.

    Args:
        texts: one or more phrases, words apart by single spaces.
        patterns: the patterns "2", "start", "middle" and "end" of babel.

    Returns:
        The list as one text, and which of its words each phrase became. Punctuation
        that the pattern adds to a word belongs to that word.
    """
    pieces = [texts[0]]
    words = _count_words(texts[0])
    spans = [(0, words)]
    for index, text in enumerate(texts[1:], start=1):
        if len(texts) == 2:
            position = "2"
        elif index == len(texts) - 1:
            position = "end"
        else:
            position = "start" if index == 1 else "middle"
        # In every locale a pattern begins with {0}, the list so far.
        between, suffix = patterns[position].removeprefix("{0}").split("{1}")
        first = words - 1 + between.count(" ")
        words = first + _count_words(text)
        spans.append((first, words))
        words += suffix.count(" ")
        pieces += [between, text, suffix]
    return "".join(pieces), spans


def _count_words(text: str) -> int:
    return text.count(" ") + 1


def _is_clean(text: str) -> bool:
    """Words apart by single spaces, so that counting spaces counts words."""
    return bool(text) and "  " not in text and text == text.strip(" ")
