"""One alignment out of two: those of both directions of translation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, get_args

from attnjax.types import Alignment

SymmetrizationMethod = Literal[
    "intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"
]

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def swap_sides(alignment: Alignment) -> Alignment:
    """The same links with source and target exchanged.

    Args:
        alignment: Links of a model that translates the other way round.

    Returns:
        Them as (target word, source word), as `symmetrize` wants its ``backward``.
    """
    return frozenset((target, source) for source, target in alignment)


def symmetrize(
    forward: Alignment, backward: Alignment, method: SymmetrizationMethod
) -> Alignment:
    """Combines the links that two directions found for one sentence pair.

    ``intersection`` and ``union`` are those of the sets. ``grow-diag`` (Koehn, Och and
    Marcu 2003, section 4.5) begins with the intersection and adds links of the union
    that touch a link already there, diagonally too, if their source word or their
    target word has no link yet; until nothing is left to add. ``grow-diag-final`` then
    adds all links, touching or not, whose source *or* target word has none, and
    ``grow-diag-final-and`` (Koehn et al. 2005) those whose source *and* target words
    have none: first those of ``forward``, then those of ``backward``.

    The order of the scan decides between links that compete for a word. Links are
    visited by target word, then by source word, and a link just added counts at once;
    around a link, the order is: the same source word with the target word before; the
    source word before; the target word after; the source word after; then the
    diagonals, target word before with source word before and after, and target word
    after likewise.

    Args:
        forward: Links that the source-to-target direction found.
        backward: Links that the other direction found, also as (source, target); see
            `swap_sides`.
        method: One of `SymmetrizationMethod`.

    Returns:
        The links. They lie between the intersection and the union.

    Raises:
        ValueError: If the method has another name.

    Example:
        >>> forward = frozenset({(0, 0), (1, 1)})
        >>> backward = frozenset({(0, 0), (3, 1), (4, 4)})
        >>> sorted(symmetrize(forward, backward, "grow-diag-final-and"))
        [(0, 0), (1, 1), (4, 4)]
    """
    if method not in get_args(SymmetrizationMethod):
        raise ValueError(
            f"symmetrization must be one of {', '.join(get_args(SymmetrizationMethod))}"
            f", got {method!r}."
        )
    if method == "union":
        return forward | backward
    growing = _GrowingAlignment(forward & backward)
    if method != "intersection":
        _grow_diagonally(growing, forward | backward)
    if method in ("grow-diag-final", "grow-diag-final-and"):
        either_is_free = method == "grow-diag-final"
        may_join = growing.either_is_free if either_is_free else growing.both_are_free
        for direction in (forward, backward):
            _add_allowed(growing, _by_target(direction), may_join)
    return frozenset(growing.links)


class _GrowingAlignment:
    """Links, together with the words that have one."""

    def __init__(self, links: Alignment) -> None:
        self.links = set(links)
        self._sources = {source for source, _ in links}
        self._targets = {target for _, target in links}

    def add(self, link: tuple[int, int]) -> None:
        self.links.add(link)
        self._sources.add(link[0])
        self._targets.add(link[1])

    def either_is_free(self, link: tuple[int, int]) -> bool:
        return link[0] not in self._sources or link[1] not in self._targets

    def both_are_free(self, link: tuple[int, int]) -> bool:
        return link[0] not in self._sources and link[1] not in self._targets


def _grow_diagonally(growing: _GrowingAlignment, union: Alignment) -> None:
    before = -1
    while before != len(growing.links):
        before = len(growing.links)
        for source, target in _by_target(union):
            if (source, target) in growing.links:
                around = [
                    (source + source_step, target + target_step)
                    for target_step, source_step in _NEIGHBOURS
                ]
                inside = [link for link in around if link in union]
                _add_allowed(growing, inside, growing.either_is_free)


def _add_allowed(
    growing: _GrowingAlignment,
    candidates: Iterable[tuple[int, int]],
    may_join: Callable[[tuple[int, int]], bool],
) -> None:
    for link in candidates:
        if may_join(link):
            growing.add(link)


def _by_target(links: Alignment) -> list[tuple[int, int]]:
    return sorted(links, key=lambda link: (link[1], link[0]))
