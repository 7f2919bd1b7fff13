"""Fonts for any script: which of the installed ones show a text."""

from __future__ import annotations

import functools
import logging
import unicodedata
from collections.abc import Iterable

from matplotlib import font_manager

BASE_FAMILY = (
    "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, ...
)
PLACEHOLDER = "\N{WHITE SQUARE}"

logger = logging.getLogger(__name__)

_told: set[int] = set()  # characters that a warning was about; there is only one


def fonts_for(
    texts: Iterable[str], *, is_svg: bool = False
) -> tuple[list[str], list[str]]:
    """Chooses fonts that together show all of the given texts.

    matplotlib takes each character from the first family of a list that has it. Only
    where its own font lacks a character are the installed ones searched, so that
    ordinary text pays nothing. White space and controls are drawn as spaces. What no
    font shows becomes a square, with one line in the log of a process and not one for
    each character or picture; marks of direction and joining are then left out.

    Args:
        texts: What shall be drawn.
        is_svg: Whether the picture keeps its text as text: then nothing is replaced by
            squares, as whoever looks at it has other fonts.

    Returns:
        The list of families, and the texts, ready to be drawn with them.
    """
    drawn = [_with_spaces(text) for text in texts]
    missing = {ord(character) for text in drawn for character in text}
    missing -= _characters(font_manager.findfont(BASE_FAMILY))
    families = [BASE_FAMILY]
    for family, path in _installed_fonts() if missing else ():
        if found := missing & _characters(path):
            families.append(family)
            missing -= found
        if not missing:
            break
    if is_svg or not missing:
        return families, drawn
    unseen = {code for code in missing if unicodedata.category(chr(code)) == "Cf"}
    squares = missing - unseen
    if squares and not _told:
        _told.update(squares)
        logger.warning(
            "no installed font shows %s; such characters are drawn as %s. A package "
            "such as fonts-noto-cjk may help; an SVG keeps them as text.",
            "".join(map(chr, sorted(squares)[:20])),
            PLACEHOLDER,
        )
    replaced = dict.fromkeys(squares, PLACEHOLDER) | dict.fromkeys(unseen, "")
    return families, [text.translate(replaced) for text in drawn]


def _with_spaces(text: str) -> str:
    """Spaces for white space and controls, U+FFFD for what no file of text may hold."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isspace() or unicodedata.category(character) == "Cc":
        return " "
    if "\ud800" <= character <= "\udfff" or character in "\ufffe\uffff":
        return "\N{REPLACEMENT CHARACTER}"
    return character


def _installed_fonts() -> list[tuple[str, str]]:
    """Family and file of the upright, regular fonts, each family once."""
    fonts = {
        entry.name: str(entry.fname)
        for entry in font_manager.fontManager.ttflist
        if entry.style == "normal" and not entry.name.startswith((".", "Last"))
    }
    return sorted(fonts.items())


@functools.lru_cache(maxsize=1_000)
def _characters(path: str) -> frozenset[int]:
    try:
        return frozenset(font_manager.get_font(path).get_charmap())
    except (OSError, RuntimeError):  # an unreadable font file shows nothing
        return frozenset()
