"""Kinds on the command line: ``--model.encoder-attention.kind linear``.

A config holds the options of the kinds that it chose. If a command line chooses others,
it is read for them first, and then for the options, which are fields like any other.
Where a field takes several kinds in turn, ``--FIELD.kind KIND,KIND`` names them,
``--FIELD.OPTION`` sets an option of all that read it, and ``--FIELD.0.OPTION`` of one.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from attnjax.config import Experiment
from attnjax.fields import Kinds, Options, metadata, several, value_at

Path = tuple[str, ...]


class Chosen(NamedTuple):
    """A command line after its kinds were read.

    Attributes:
        experiment: the default of all fields, with the options of the chosen kinds.
        arguments: the rest of the command line.
        told: a line on each option that the config sets and the new kinds do not read.
    """

    experiment: Experiment
    arguments: list[str]
    told: list[str]


def choose_kinds(experiment: Experiment, arguments: Sequence[str]) -> Chosen:
    """Reads the kinds that a command line names.

    An option that the old and the new kind have in common keeps its value.

    Args:
        experiment: of the config file.
        arguments: fields and values.

    Returns:
        What is left to be read, and by which defaults.

    Raises:
        ValueError: there is no such kind, or an option is set that the chosen kinds do
            not read.
    """
    flags, told = _flags(arguments), []
    choosers = dict(kinds_of(experiment))
    for path, kinds in choosers.items():
        named = [flag for flag in flags if flag.path == (*path, "kind")]
        if named:
            flags = [flag for flag in flags if flag not in named]
            names = [n for n in re.split(r"[,\s]+", " ".join(named[-1].values)) if n]
            old = value_at(experiment, path)
            new = tuple(_carried_over(kinds, name, several(old)) for name in names)
            if not new or (len(new) > 1 and not kinds.in_turn):
                raise ValueError(
                    f"{_flag((*path, 'kind'))} names {len(new) or 'no'} {kinds.noun}, "
                    f"and takes one of {', '.join(kinds.classes)}"
                    + (", or several." if kinds.in_turn else ".")
                )
            told += _left_out(path, kinds, several(old), new)
            experiment = _unborn(experiment, path, new if len(new) > 1 else new[0])
    left = [
        token
        for flag in flags
        for each in _for_members(flag, choosers, experiment)
        for token in each.tokens
    ]
    return Chosen(experiment, left, told)


def describe_kinds(experiment: Experiment) -> str:
    """Explains which flags choose a kind.

    Args:
        experiment: of the config file.

    Returns:
        A paragraph for each set of kinds.
    """
    paragraphs = []
    choosers = dict(kinds_of(experiment))
    for kinds in dict.fromkeys(choosers.values()):
        paths = [path for path, each in choosers.items() if each is kinds]
        flags = ", ".join(f"{_flag((*path, 'kind'))}" for path in paths)
        text = f"{flags}: {kinds.noun}, one of {', '.join(kinds.classes)}."
        if kinds.in_turn:
            text += (
                f" Several, such as {_flag((*paths[0], 'kind'))} KIND,KIND, are taken "
                f"by the layers in turn; {_flag((*paths[0], '0', 'OPTION'))} then sets "
                "an option of the first, and without the number of all that read it."
            )
        paragraphs.append(text)
    return "".join(f"\n\n{text}" for text in paragraphs)


def kinds_of(section: Any, path: Path = ()) -> Iterator[tuple[Path, Kinds]]:
    """Finds the fields that choose a kind.

    Args:
        section: an experiment, or a section of it.
        path: of the section.

    Yields:
        The path of each, and its kinds.
    """
    for field in dataclasses.fields(section):
        where, value = (*path, field.name), getattr(section, field.name)
        found = metadata(type(section), field.name, Kinds)
        yield from ((where, kinds) for kinds in found)
        if not found and dataclasses.is_dataclass(value):
            yield from kinds_of(value, where)


class _Flag(NamedTuple):
    """An option of the command line, and the words up to the next one.

    Attributes:
        path: of the field; empty for words before the first option.
        values: the words.
        tokens: all of it as it was written.
    """

    path: Path
    values: tuple[str, ...]
    tokens: tuple[str, ...]


def _flags(arguments: Sequence[str]) -> list[_Flag]:
    flags: list[_Flag] = []
    for token in arguments:
        if re.match("--?[A-Za-z]", token):
            name, equals, value = token.lstrip("-").partition("=")
            path = tuple(name.replace("-", "_").split("."))
            flags.append(_Flag(path, (value,) if equals else (), (token,)))
        elif flags:
            path, values, tokens = flags[-1]
            flags[-1] = _Flag(path, (*values, token), (*tokens, token))
        else:
            flags.append(_Flag((), (token,), (token,)))
    return flags


def _for_members(
    flag: _Flag, choosers: dict[Path, Kinds], experiment: Experiment
) -> list[_Flag]:
    """A flag for each of several members that read it, as it is if it is of no kind."""
    path = next((p for p in choosers if flag.path[: len(p)] == p), None)
    if path is None:
        return [flag]
    if flag.path == path:
        raise ValueError(
            f"{_flag(path)} holds options; choose a kind by {_flag((*path, 'kind'))}."
        )
    value, (*index, option) = value_at(experiment, path), flag.path[len(path) :]
    members = several(value)
    if not any(option in each.names() for each in members):
        option = option.removeprefix("no_")
    if index:
        place = int(index[0]) if index[0].isdecimal() else len(members)
        members = members[place : place + 1] if isinstance(value, tuple) else ()
    if not members:
        raise ValueError(
            f"{_flag(flag.path)} is of no mechanism: there is {len(several(value))} of "
            f"{'.'.join(path)}, counted from 0."
        )
    if not any(option in each.names() for each in members):
        kinds = choosers[path]
        names = list(dict.fromkeys(map(kinds.name, members)))
        raise ValueError(
            f"{'.'.join(flag.path)}={' '.join(flag.values)} "
            f"{kinds.unread(names, option)}. Leave it out, or choose what reads it."
        )
    if index or not isinstance(value, tuple):
        return [flag]
    name, _, rest = flag.tokens[0].rpartition(".")
    return [
        flag._replace(tokens=(f"{name}.{place}.{rest}", *flag.tokens[1:]))
        for place, each in enumerate(members)
        if option in each.names()
    ]


def _unborn(config: Any, path: Path, value: Any) -> Any:
    """A copy with another value; it is checked with the rest of the command line."""
    name, *rest = path
    if rest:
        value = _unborn(getattr(config, name), tuple(rest), value)
    changed = copy.copy(config)
    object.__setattr__(changed, name, value)
    return changed


def _carried_over(kinds: Kinds, name: str, old: Sequence[Options]) -> Options:
    """The options of a kind, with the values of those that were set before."""
    same = [each for each in old if kinds.name(each) == name]
    values = {option: value for each in old for option, value in _set(each)}
    return same[0] if same else kinds.fill(name, values)


def _left_out(
    path: Path, kinds: Kinds, old: Sequence[Options], new: Sequence[Options]
) -> list[str]:
    names = list(dict.fromkeys(map(kinds.name, new)))
    unread = {
        f"{'.'.join((*path, option))}={value} {kinds.unread(names, option)}: left out"
        for each in old
        for option, value in _set(each)
        if not any(option in other.names() for other in new)
    }
    return sorted(unread)


def _set(options: Options) -> list[tuple[str, Any]]:
    """What differs from its default."""
    return [
        (field.name, value)
        for field in dataclasses.fields(options)
        if (value := getattr(options, field.name)) != field.default
    ]


def _flag(path: Path) -> str:
    return f"--{'.'.join(path).replace('_', '-')}"
