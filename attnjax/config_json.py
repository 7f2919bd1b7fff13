"""An experiment as JSON: written to the run folder, read back field by field.

A dataclass becomes an object whose first member ``"type"`` names the class, so that a
field with several possible classes (data source, model) is read without guessing.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any

from attnjax.config import Experiment
from attnjax.fields import Kinds, annotated, nearest
from attnjax.json_files import parse_json, shown

# What runs wrote before each kind had a class of its own.
_ONE_CLASS_FOR_ALL = ("MechanismConfig", "SelectionConfig")
_LARGEST_NUMBER = 1 << 128  # beyond float32; NaN is not less, nor is infinity


def to_json(experiment: Experiment) -> str:
    """Returns the experiment as indented JSON text."""
    return json.dumps(encode(experiment), indent=2, ensure_ascii=False) + "\n"


def encode(value: Any) -> Any:
    """A section, or the value of a field, as JSON values."""
    if dataclasses.is_dataclass(value):
        members = {
            field.name: encode(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
        return {"type": type(value).__name__, **members}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def from_json(text: str | bytes, *, origin: str) -> Experiment:
    """Reads what `to_json` wrote.

    Args:
        text: JSON text, UTF-8 if bytes.
        origin: the file's name, for messages.

    Returns:
        The experiment, equal to the one that was written.

    Raises:
        ValueError: the text is no JSON, a field is unknown, missing or of another type.
    """
    value = parse_json(text, origin=origin)
    try:
        return _decode(value, Experiment, "experiment")
    except ValueError as error:
        raise ValueError(f"{origin}: {error}") from error


def decode_section(value: Any, name: str) -> Any:
    """Reads a section that `encode` gave.

    Args:
        value: JSON values.
        name: of a field of `Experiment`.

    Returns:
        The section.

    Raises:
        ValueError: it is no such section.
    """
    return _decode(value, typing.get_type_hints(Experiment)[name], name)


def _decode(value: Any, expected: Any, where: str) -> Any:
    """Reads ``value`` as the type ``expected``; ``where`` names the field."""
    origin = typing.get_origin(expected)
    if origin is typing.Annotated:
        expected, *said = typing.get_args(expected)
        for kinds in said:
            if isinstance(kinds, Kinds):
                value = _migrated(value, kinds, where)
        return _decode(value, expected, where)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(value, typing.get_args(expected), where)
    if origin is typing.Literal:
        choices = typing.get_args(expected)
        if value not in choices:
            raise ValueError(
                f"{where} must be one of {list(choices)}, got {shown(value)}."
            )
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where} must be a list, got {shown(value)}.")
        return tuple(
            _decode(item, typing.get_args(expected)[0], where) for item in value
        )
    if dataclasses.is_dataclass(expected):
        return _decode_dataclass(value, expected, where)
    if expected is Path and isinstance(value, str):
        return Path(value)
    if type(value) in (int, float) and not abs(value) < _LARGEST_NUMBER:
        raise ValueError(f"{where} must be a number that fits, got {shown(value)}.")
    if expected is float and type(value) is int:
        return float(value)
    if type(value) is not expected:
        raise ValueError(f"{where} must be a {expected.__name__}, got {shown(value)}.")
    return value


def _decode_union(value: Any, choices: tuple[Any, ...], where: str) -> Any:
    if value is None and type(None) in choices:
        return None
    choices = tuple(choice for choice in choices if choice is not type(None))
    tuples = [each for each in choices if typing.get_origin(each) is tuple]
    if tuples and isinstance(value, list):
        return _decode(value, tuples[0], where)
    choices = tuple(choice for choice in choices if choice not in tuples)
    if len(choices) == 1:
        return _decode(value, choices[0], where)
    names = {choice.__name__: choice for choice in choices}
    name = value.get("type") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in names:
        raise ValueError(f"{where} must be one of {sorted(names)}, got {shown(name)}.")
    return _decode(value, names[name], where)


def _decode_dataclass(value: Any, expected: Any, where: str) -> Any:
    if not isinstance(value, dict) or value.get("type") != expected.__name__:
        raise ValueError(f"{where} must be a {expected.__name__}, got {shown(value)}.")
    field_types = annotated(expected)
    members = {name: member for name, member in value.items() if name != "type"}
    for name in members:
        if name not in field_types:
            raise ValueError(
                f"{where} has no field {shown(name)}{nearest(name, field_types)}."
            )
    # A field that came later has as its default what was done before it came.
    required = {
        field.name
        for field in dataclasses.fields(expected)
        if field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    }
    missing = sorted(required - set(members))
    if missing:
        raise ValueError(f"{where} lacks the fields {missing}.")
    return expected(
        **{
            name: _decode(member, field_types[name], f"{where}.{name}")
            for name, member in members.items()
        }
    )


def _migrated(value: Any, kinds: Kinds, where: str) -> Any:
    """Reads one class with the options of all kinds, which runs once wrote."""
    if not isinstance(value, dict) or value.get("type") not in _ONE_CLASS_FOR_ALL:
        return value
    kind = value.get("kind")
    chosen = kinds.find(kind if isinstance(kind, str) else shown(kind))
    members = {n: each for n, each in value.items() if n not in ("type", "kind")}
    for other in kinds.classes.values():  # what the kind does not read is checked too
        if other is not chosen:
            of_other = {n: members[n] for n in other.names() if n in members}
            _decode({"type": other.__name__, **of_other}, other, where)
    of_others = {n for other in kinds.classes.values() for n in other.names()}
    unread = of_others - {*chosen.names()}
    read = {name: each for name, each in members.items() if name not in unread}
    return {"type": chosen.__name__, **read}
