"""Options that nobody reads: of another kind of schedule, mechanism, search and so on.

A config knows only values, so an option is *set* if it differs from its default. What
only some kinds read is said by the fields (`attnjax.fields.ReadWith`). Mechanisms and
selections have a class of options for each kind, which holds no others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from attnjax.fields import unmet, value_at, with_value

T = TypeVar("T")

_CHOOSERS = ("kind", "method")  # fields that say which of the others are read


class Unread(NamedTuple):
    """An option that is set and read by nobody.

    Attributes:
        path: where it is, such as ``("optimizer", "schedule", "final")``.
        section: that it belongs to.
        default: which leaves it unset.
    """

    path: tuple[str, ...]
    section: Any
    default: Any

    @property
    def value(self) -> Any:
        """What it is set to."""
        return getattr(self.section, self.path[-1])

    def __str__(self) -> str:
        chooser = next((n for n in _CHOOSERS if hasattr(self.section, n)), None)
        reads = ""
        if chooser is not None:
            kind = getattr(self.section, chooser)
            options = [
                field.name
                for field in dataclasses.fields(self.section)
                if field.name != chooser and not unmet(self.section, field.name)
            ]
            reads = f"; {chooser} {kind} reads {', '.join(options) or 'no option'}"
        needs = " and ".join(map(str, unmet(self.section, self.path[-1])))
        return (
            f"{'.'.join(self.path)}={self.value} has no effect, because it needs "
            f"{needs}{reads}"
        )


def unread_options(config: Any, path: tuple[str, ...] = ()) -> Iterator[Unread]:
    """Finds what is set and read by nobody.

    Args:
        config: an experiment, or a section of it.
        path: of the section.

    Yields:
        Each such option.
    """
    for field in dataclasses.fields(config):
        value, where = getattr(config, field.name), (*path, field.name)
        if dataclasses.is_dataclass(value):
            yield from unread_options(value, where)
        elif value != field.default and unmet(config, field.name):
            yield Unread(where, config, field.default)


def require_read(config: Any) -> None:
    """Refuses a config with options that nobody reads.

    Args:
        config: an experiment, or a section of it.

    Raises:
        ValueError: with all of them, what they need, and what is read in their place.
    """
    unread = list(unread_options(config))
    if unread:
        lines = ". ".join(map(str, unread))
        raise ValueError(
            f"{lines}. Leave out what has no effect, or choose what reads it."
        )


def without_unread(config: T) -> T:
    """Resets what nobody reads to its default, as if it had not been set.

    Args:
        config: an experiment, or a section of it.

    Returns:
        A config that means the same.
    """
    for unread in unread_options(config):
        config = with_value(config, unread.path, unread.default)
    return config


def settled(config: T, before: T) -> tuple[T, list[str]]:
    """Leaves out what another kind read, in a config in which the kind was changed.

    Args:
        config: with some of its fields replaced.
        before: those fields as they were.

    Returns:
        The config without the options that it has from ``before`` and does not read any
        more, and a line on each of them.

    Raises:
        ValueError: if an option that nobody reads was set beside the kind.
    """
    told = []
    for unread in unread_options(config):
        if unread.value == value_at(before, unread.path):
            config = with_value(config, unread.path, unread.default)
            told.append(f"{unread}: left out")
    require_read(config)
    return config, told
