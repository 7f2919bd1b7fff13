"""What the fields of a config may hold, said in their annotations and checked at birth.

A field's annotation names its range (`Within`) and, where only some kinds of a section
read it, which ones (`ReadWith`)::

    peak: Annotated[float, Within(above=0)] = 1e-3
    final: Annotated[float, Within(least=0), ReadWith({"kind": ("cosine",)})] = 0.0
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

_LARGEST_INT = (1 << 31) - 1  # JAX computes with int32 ...
_LARGEST_FLOAT = 3.4e38  # ... and float32
_SMALLEST_FLOAT = 1e-37  # but for 0: float32 has no smaller one with all its digits
SET = (..., "set")
_MOST_LISTED = 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Within:
    """The numbers that a field may hold; NaN, infinities and what overflows never are.

    Attributes:
        above: which they are greater than.
        least: the smallest.
        below: which they are less than.
        most: the largest.
    """

    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None

    def holds(self, number: float) -> bool:
        """Whether a finite number lies within."""
        return (
            (self.above is None or number > self.above)
            and (self.least is None or number >= self.least)
            and (self.below is None or number < self.below)
            and (self.most is None or number <= self.most)
        )

    def __str__(self) -> str:
        ends = {
            "greater than {:,}": self.above,
            "{:,} or more": self.least,
            "less than {:,}": self.below,
            "at most {:,}": self.most,
        }
        said = [text.format(end) for text, end in ends.items() if end is not None]
        return " and ".join(said)


@dataclasses.dataclass(frozen=True, eq=False)
class ReadWith:
    """A field that is read only while another one has one of some values.

    Attributes:
        values: for each of those others, dotted from the section down, the values with
            which the field is read; any one of them is enough. ``SET`` is any but None.
    """

    values: Mapping[str, tuple[Any, ...]]

    def is_read(self, section: object) -> bool:
        """Whether the field is read in this section."""
        found = {path: _value(section, path) for path in self.values}
        return any(
            value in self.values[path]
            or (self.values[path] == SET and value is not None)
            for path, value in found.items()
        )

    def __str__(self) -> str:
        return " or ".join(
            f"another {path}" if len(values) > _MOST_LISTED else _one_of(path, values)
            for path, values in self.values.items()
        )


Count = Annotated[int, Within(above=0)]
CountOrZero = Annotated[int, Within(least=0)]
BatchTokens = Annotated[int, Within(above=0, most=1 << 24)]
Fraction = Annotated[float, Within(least=0, below=1)]  # such as a rate of dropout
Positive = Annotated[float, Within(above=0)]
NotNegative = Annotated[float, Within(least=0)]
Seed = Annotated[int, Within(least=0)]


class Section:
    """A part of a config: its fields are checked at birth against their annotations."""

    def __post_init__(self) -> None:
        """Checks every field; sections with more to check do so after this.

        Raises:
            ValueError: a value is of another type, none of the choices, not finite, or
                out of range.
        """
        for name, annotation in annotated(type(self)).items():
            expected = _expected(getattr(self, name), annotation)
            if expected is not None:
                raise ValueError(
                    f"{type(self).__name__}.{name} must be {expected}, got "
                    f"{_shown(getattr(self, name))}."
                )


def annotated(section: type) -> dict[str, Any]:
    """The annotations of a section's fields, what `Annotated` adds included.

    Args:
        section: a dataclass.

    Returns:
        By name, in the order of the fields.
    """
    hints = typing.get_type_hints(section, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(section)}


def unmet(section: object, name: str) -> list[ReadWith]:
    """What a field needs to be read and does not have; empty if it is read.

    Args:
        section: a dataclass.
        name: of the field.

    Returns:
        Those of its `ReadWith` by which nobody reads it.
    """
    needed = getattr(annotated(type(section))[name], "__metadata__", ())
    return [
        each
        for each in needed
        if isinstance(each, ReadWith) and not each.is_read(section)
    ]


def require(condition: bool, message: str) -> None:
    """Raises ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)


def _expected(value: object, annotation: Any, within: Within | None = None) -> Any:
    """What is expected in place of a value, None if it is as expected."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        ranges = [each for each in parts[1:] if isinstance(each, Within)]
        return _expected(value, parts[0], *ranges)
    if origin in (typing.Union, types.UnionType):
        return _expected_of_union(value, parts)
    if origin is typing.Literal:
        return None if value in parts else f"one of {list(parts)}"
    if origin is tuple:
        if not isinstance(value, tuple):
            return "a tuple"
        found = (_expected(each, parts[0]) for each in value)
        wrong = next((each for each in found if each is not None), None)
        return wrong and f"a tuple of numbers, each {wrong}"
    if annotation in (int, float):
        return _expected_number(value, annotation, within or Within())
    if isinstance(value, annotation):
        return None
    return "a path" if annotation is Path else f"a {annotation.__name__}"


def _expected_of_union(value: object, parts: tuple[Any, ...]) -> Any:
    found = [_expected(value, part) for part in parts if part is not type(None)]
    may_be_none = len(found) < len(parts)
    if None in found or (value is None and may_be_none):
        return None
    return " or ".join([*found, "None"] if may_be_none else found)


def _expected_number(value: object, kind: type, within: Within) -> str | None:
    if kind is int:
        fits = type(value) is int and abs(value) <= _LARGEST_INT
        noun = f"an int of at most {_LARGEST_INT:,}"
    else:  # NaN is in no range
        fits = type(value) in (int, float) and (
            value == 0 or _SMALLEST_FLOAT <= abs(value) <= _LARGEST_FLOAT  # type: ignore
        )
        noun = "a finite number that float32 can hold"
    if not fits:
        return f"{noun}, {within}" if str(within) else noun
    return None if within.holds(value) else str(within)  # type: ignore[arg-type]


def _value(section: object, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), section)


def _one_of(path: str, values: tuple[Any, ...]) -> str:
    shown = ["a value"] if values == SET else [str(value) for value in values]
    return f"{path} {' or '.join(shown)}"


def _shown(value: object) -> str:
    return f"{value:,}" if type(value) is int else repr(value)
