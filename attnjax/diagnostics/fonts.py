"""Fonts for any script: which of the installed ones show a text."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable

from matplotlib import font_manager

BASE_FAMILY = (
    "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, ...
)
PLACEHOLDER = "\N{WHITE SQUARE}"

logger = logging.getLogger(__name__)


def fonts_for(texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Chooses fonts that together show all of the given texts.

    matplotlib takes each character from the first family of a list that has it. Only
    where its own font lacks a character are the installed ones searched, so that
    ordinary text pays nothing. What no font shows becomes a square, with one line in
    the log instead of a warning for each character.

    Args:
        texts: What shall be drawn.

    Returns:
        The list of families, and the texts, ready to be drawn with them.
    """
    originals = list(texts)
    missing = {ord(character) for text in originals for character in text}
    missing -= _characters(font_manager.findfont(BASE_FAMILY))
    missing = {code for code in missing if chr(code).isprintable()}
    families = [BASE_FAMILY]
    for family, path in _installed_fonts() if missing else ():
        if found := missing & _characters(path):
            families.append(family)
            missing -= found
        if not missing:
            break
    if missing:
        logger.warning(
            "no installed font shows %s; drawn as %s. A package such as fonts-noto-cjk "
            "may help.",
            *("".join(map(chr, sorted(missing)[:20])), PLACEHOLDER),
        )
    squares = dict.fromkeys(missing, PLACEHOLDER)
    return families, [_visible(text.translate(squares)) for text in originals]


def _visible(text: str) -> str:
    """Shows line ends, controls and the like by their escapes."""
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


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
