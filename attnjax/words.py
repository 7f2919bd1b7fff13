"""Words of a line, cut as its language cuts them.

Most languages put spaces between words. Chinese, Japanese, Thai and some others do not:
there `str.split` finds one word in a line of any length. Their lines are cut by ICU's
word boundaries (Unicode Standard Annex 29 and dictionaries) where PyICU is installed,
and else into characters. So counts depend on what is installed: whoever reports one
also reports `word_cut`, and whoever must give the same result on every machine passes
``cut="characters"``.
"""

from __future__ import annotations

import importlib.util
import re
import unicodedata
from collections.abc import Iterator
from typing import Literal

WordCut = Literal["spaces", "icu", "characters"]

# Codes of ISO 639-1 and 639-3, as data sets use both.
CHINESE = frozenset(
    {"zh", "zho", "cmn", "yue", "wuu", "hak", "nan", "gan", "hsn", "cdo", "lzh"}
)
JAPANESE = frozenset({"ja", "jpn"})
KOREAN = frozenset({"ko", "kor"})
_SOUTH_EAST_ASIAN = frozenset({"km", "khm", "lo", "lao", "my", "mya", "th", "tha"})
_TIBETAN = frozenset({"bo", "bod", "dz", "dzo"})
_WITHOUT_SPACES = CHINESE | JAPANESE | _SOUTH_EAST_ASIAN | _TIBETAN

# Khmer and Thai texts mark words by U+200B, which is no white space to `str.split`.
_SEPARATORS = re.compile(r"[\s\u200b]+")
_FIRST_THAI_LETTER = "\u0e00"  # the scripts before it are written with spaces


def words_of(
    line: str, language: str, *, cut: WordCut | None = None
) -> tuple[str, ...]:
    """Cuts a line into the words of its language.

    Where the language has no spaces between words, punctuation marks are words of their
    own; elsewhere they stay with the word that they touch.

    Args:
        line: One line of text.
        language: A code such as ``de``, ``zh_Hant`` or ``pt-BR``.
        cut: How to cut; None means what `word_cut` chooses.

    Returns:
        The words in order. Joined they are the line without its white space.

    Example:
        >>> words_of("Der Hund schläft.", "de")
        ('Der', 'Hund', 'schläft.')
        >>> words_of("犬が寝る。 OK 12", "ja", cut="characters")
        ('犬', 'が', '寝', 'る', '。', 'OK', '12')
    """
    cut = cut or word_cut(language)
    if cut == "spaces":
        return tuple(line.split())
    parts = [part for part in _SEPARATORS.split(line) if part]
    if cut == "characters":
        return tuple(word for part in parts for word in _characters(part))
    return tuple(word for part in parts for word in _icu_words(part, language))


def word_cut(language: str) -> WordCut:
    """How `words_of` cuts the lines of a language on this machine.

    Args:
        language: A code such as ``de``, ``zh_Hant`` or ``pt-BR``.

    Returns:
        ``spaces`` where words are apart by spaces; elsewhere ``icu`` if PyICU is
        installed, and ``characters`` if it is not.
    """
    if has_spaces(language):
        return "spaces"
    return "icu" if importlib.util.find_spec("icu") is not None else "characters"


def cut_note(language: str) -> str | None:
    """What to know where words of a language cannot be told apart on this machine.

    Args:
        language: A code such as ``de``, ``zh_Hant`` or ``pt-BR``.

    Returns:
        A sentence that says so and what to install; None if there is nothing to say.
    """
    if word_cut(language) != "characters":
        return None
    return (
        f"PyICU is not installed, so each character of {language} counts as a word; "
        "to count words: pip install pyicu-wheels"
    )


def has_spaces(language: str) -> bool:
    """Whether a language separates its words by spaces.

    Args:
        language: A code such as ``de``, ``zh_Hant`` or ``pt-BR``.

    Returns:
        False for Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan.
    """
    return base_language(language) not in _WITHOUT_SPACES


def base_language(language: str) -> str:
    """The language of a code without script and region: ``zh`` of ``zh_Hant``.

    Args:
        language: A code such as ``de``, ``zh_Hant`` or ``pt-BR``.

    Returns:
        Its first part in lower case.
    """
    return re.split("[-_]", language.lower())[0]


def _icu_words(part: str, language: str) -> Iterator[str]:
    import icu

    boundaries = icu.BreakIterator.createWordInstance(icu.Locale(language))
    text = icu.UnicodeString(part)  # ICU counts UTF-16 units, and so must the slices
    boundaries.setText(text)
    start = 0
    for end in boundaries:
        yield str(text[start:end])
        start = end


def _characters(part: str) -> list[str]:
    """Letters with their marks; words and numbers of scripts with spaces stay whole."""
    words: list[str] = []
    for character in part:
        within = words and _is_spaced(words[-1][-1]) and _is_spaced(character)
        if words and (within or _is_mark(character)):
            words[-1] += character
        else:
            words.append(character)
    return words


def _is_spaced(character: str) -> bool:
    return character < _FIRST_THAI_LETTER and (
        character.isalnum() or _is_mark(character)
    )


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")
