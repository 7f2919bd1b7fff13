"""Word alignments as lines of text: the Pharaoh format and that of NAACL 2003."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence

from attnjax.evaluation.alignment import GoldAlignment
from attnjax.types import Alignment

_PHARAOH_LINK = re.compile(r"([0-9]{1,9})([-?p])([0-9]{1,9})")
_NAACL_LINK = re.compile(
    r"(?P<sentence>[0-9]{1,9}) (?P<source>[0-9]{1,9}) (?P<target>[0-9]{1,9})"
    r"(?: (?P<kind>[SP]))?(?: (?P<confidence>0(?:\.[0-9]+)?|\.[0-9]+|1(?:\.0+)?))?"
)
logger = logging.getLogger(__name__)

Lengths = Sequence[tuple[int, int]]
"""Numbers of source and target words of each sentence pair."""

_BLANKS = re.compile(r"[ \t]+")


def read_pharaoh(
    lines: Iterable[str],
    origin: str,
    *,
    one_based: bool = False,
    lengths: Lengths | None = None,
) -> list[GoldAlignment]:
    """Reads one sentence pair a line: ``0-0 1-2 2?3``.

    ``i-j`` is a sure link of source word i and target word j, ``i?j`` or ``ipj`` one
    that is only possible. A line without links is a pair without links. A link that is
    given as both is sure.

    Args:
        lines: The lines of the file.
        origin: Names the file in messages.
        one_based: Whether words count from 1 in the file instead of 0.
        lengths: Of the sentence pairs, which links must not leave; None checks
            nothing.

    Returns:
        One alignment per line, words counted from 0.

    Raises:
        ValueError: If something else than links stands in a line, the number 0 in a
            one-based file, or a word that its sentence does not have, or there are not
            as many lines as sentence pairs; names file and line.
    """
    first = int(one_based)
    alignments: list[GoldAlignment] = []
    for number, line in enumerate(lines, start=1):
        sure, possible = set(), set()
        for field in _fields(line):
            match = _PHARAOH_LINK.fullmatch(field)
            link = match and (int(match[1]) - first, int(match[3]) - first)
            if not match or not link or min(link) < 0:
                raise ValueError(
                    f"{origin}, line {number}: expected links such as {first}-{first} "
                    f"or {first}?{first} with words counted from {first}, got "
                    f"{_excerpt(field)}; mend the line, or say whether words count "
                    "from 0 or 1."
                )
            if lengths is not None and number <= len(lengths):
                _require_within(link, lengths[number - 1], field, origin, number)
            possible.add(link)
            if match[2] == "-":
                sure.add(link)
        alignments.append(GoldAlignment(frozenset(sure), frozenset(possible)))
    if lengths is not None and len(alignments) != len(lengths):
        raise ValueError(
            f"{origin} has {len(alignments)} lines for {len(lengths)} sentence pairs; "
            "give one line of links for each pair, an empty one if there are none."
        )
    if not one_based:
        _warn_of_counts_from_one(alignments, origin)
    return alignments


def format_pharaoh(
    alignment: Alignment | GoldAlignment, *, one_based: bool = False
) -> str:
    """Writes a sentence pair as a line that `read_pharaoh` reads.

    Args:
        alignment: The links; of an annotation, those that are only possible are
            written ``i?j``.
        one_based: Whether to count words from 1 instead of 0.

    Returns:
        The links by source word, then target word, without a line end.

    Example:
        >>> format_pharaoh(frozenset({(1, 2), (0, 0)}))
        '0-0 1-2'
    """
    if not isinstance(alignment, GoldAlignment):
        alignment = GoldAlignment.all_sure(alignment)
    first = int(one_based)
    return " ".join(
        f"{source + first}{'-' if (source, target) in alignment.sure else '?'}"
        f"{target + first}"
        for source, target in sorted(alignment.possible)
    )


def read_naacl(
    lines: Iterable[str],
    origin: str,
    *,
    num_sentences: int,
    lengths: Lengths | None = None,
) -> list[GoldAlignment]:
    """Reads one link a line: ``sentence source target [S|P] [confidence]``.

    The format of the shared task of Mihalcea and Pedersen 2003. Sentences and words
    count from 1, and the lines may come in any order. A link without ``S`` or ``P`` is
    sure, and so is one that is given as both. Word 0 is the empty word: such a line
    adds no link. The confidence is not used. Empty lines and those that begin with
    ``#`` are skipped.

    Args:
        lines: The lines of the file.
        origin: Names the file in messages.
        num_sentences: How many sentence pairs there are.
        lengths: Of the sentence pairs, which links must not leave; None checks
            nothing.

    Returns:
        The alignments of sentences 1 to ``num_sentences``, words counted from 0.

    Raises:
        ValueError: If a line is something else, its sentence is not between 1 and
            ``num_sentences``, or that sentence has no such word; names file and line.
    """
    sure: list[set[tuple[int, int]]] = [set() for _ in range(num_sentences)]
    possible: list[set[tuple[int, int]]] = [set() for _ in range(num_sentences)]
    for number, line in enumerate(lines, start=1):
        text = " ".join(_fields(line))
        if not text or text.startswith("#"):
            continue
        match = _NAACL_LINK.fullmatch(text)
        if not match:
            raise ValueError(
                f"{origin}, line {number}: expected `sentence source target [S|P] "
                "[confidence]`, three counts from 1 and a confidence between 0 and 1, "
                f"got {_excerpt(text)}; mend the line."
            )
        sentence = int(match["sentence"]) - 1
        if not 0 <= sentence < num_sentences:
            raise ValueError(
                f"{origin}, line {number}: sentences count from 1 to {num_sentences}, "
                f"got {match['sentence']}; give the alignment of these very sentences."
            )
        link = int(match["source"]) - 1, int(match["target"]) - 1
        if min(link) < 0:
            continue
        if lengths is not None:
            _require_within(link, lengths[sentence], text, origin, number)
        possible[sentence].add(link)
        if match["kind"] != "P":
            sure[sentence].add(link)
    return [
        GoldAlignment(frozenset(of_sure), frozenset(of_possible))
        for of_sure, of_possible in zip(sure, possible, strict=True)
    ]


def _require_within(
    link: tuple[int, int], length: tuple[int, int], text: str, origin: str, line: int
) -> None:
    if link[0] < length[0] and link[1] < length[1]:
        return
    raise ValueError(
        f"{origin}, line {line}: {_excerpt(text)} lies outside of its sentence pair, "
        f"which has {length[0]} source and {length[1]} target words; give the links of "
        "these very lines, and say whether their words count from 0 or 1 (--gold-base)."
    )


def _warn_of_counts_from_one(alignments: Iterable[GoldAlignment], origin: str) -> None:
    links = [link for alignment in alignments for link in alignment.possible]
    if links and all(min(link) > 0 for link in links):
        logger.warning(
            "no link in %s is of word 0; if its words count from 1, say so "
            "(--gold-base 1), as otherwise all scores are wrong",
            origin,
        )


def _fields(line: str) -> list[str]:
    # Only blanks separate: str.split() would accept U+2028 and hide a lost line end.
    stripped = line.strip(" \t\r\n")
    return _BLANKS.split(stripped) if stripped else []


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
