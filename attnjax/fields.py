"""What the fields of a config may hold, said in their annotations and checked at birth.

A field's annotation names its range (`Within`) and, where only some kinds of a section
read it, which ones (`ReadWith`)::

    peak: Annotated[float, Within(above=0)] = 1e-3
    final: Annotated[float, Within(least=0), ReadWith({"kind": ("cosine",)})] = 0.0
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

T = TypeVar("T")

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
        return any(
            value in wanted or (wanted == SET and value is not None)
            for path, wanted in self.values.items()
            for value in _values(section, path)
        )

    def __str__(self) -> str:
        return " or ".join(
            f"another {path}" if len(values) > _MOST_LISTED else _one_of(path, values)
            for path, values in self.values.items()
        )


# Far beyond any model; a config that a stranger wrote must not exhaust the memory.
Units = Annotated[int, Within(above=0, most=1 << 20)]
UnitsOrZero = Annotated[int, Within(least=0, most=1 << 20)]
# Scores that are divided by less would overflow.
Temperature = Annotated[float, Within(least=1e-6)]
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Section):
    """What a config says to one kind of a part, such as an attention mechanism."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the names of the options, in order."""
        return tuple(field.name for field in dataclasses.fields(cls))


@dataclasses.dataclass(frozen=True, eq=False)
class Kinds:
    """The kinds that a field chooses from; it stands in the field's annotation.

    A config holds the options of the kind that it chose. A command line names the kind
    by ``.kind``, and so do the paths of `ReadWith`.

    Attributes:
        noun: what they are kinds of, for messages.
        classes: the options of each kind, by its name.
        in_turn: whether a field may hold several, which layers take in turn.
    """

    noun: str
    classes: Mapping[str, type[Options]]
    in_turn: bool = False

    @property
    def annotation(self) -> Any:
        """What a field is annotated with."""
        held: Any = typing.Union[*self.classes.values()]
        if self.in_turn:
            held = held | tuple[held, ...]
        return Annotated[held, self]  # type: ignore[valid-type]

    def name(self, options: object) -> str:
        """Returns the name of the kind that the options belong to.

        Args:
            options: of one of the classes.

        Raises:
            ValueError: they belong to no kind.
        """
        for name, each in self.classes.items():
            if each is type(options):
                return name
        raise ValueError(f"expected {self}, got {options!r}.")

    def find(self, name: str) -> type[Options]:
        """Finds the options of a kind.

        Args:
            name: of the kind.

        Returns:
            Their class.

        Raises:
            ValueError: there is no such kind; its message lists those there are.
        """
        if name not in self.classes:
            raise ValueError(
                f"there is no {self.noun} {name!r}{nearest(name, self.classes)}; there "
                f"are {', '.join(self.classes)}."
            )
        return self.classes[name]

    def fill(self, name: str, values: Mapping[str, Any]) -> Options:
        """Makes the options of a kind from those of several.

        Args:
            name: of the kind.
            values: by name; what the kind does not have is left aside.

        Returns:
            The options; what is not given has its default.

        Raises:
            ValueError: there is no such kind, or a value is out of range.
        """
        chosen = self.find(name)
        return chosen(**{n: values[n] for n in chosen.names() if n in values})

    def unread(self, names: Sequence[str], option: str) -> str:
        """Says why an option has no effect.

        Args:
            names: of the kinds that were chosen, none of which has it.
            option: its name.

        Returns:
            The end of a sentence: what it needs, and what the kinds read.
        """
        readers = [k for k, each in self.classes.items() if option in each.names()]
        needs = f"it needs kind {' or '.join(readers)}" if readers else "there is none"
        reads = [
            f"kind {name} reads {', '.join(self.find(name).names()) or 'no option'}"
            for name in names
        ]
        return f"has no effect, because {needs}; {', '.join(reads)}"

    def __str__(self) -> str:
        names = ", ".join(each.__name__ for each in self.classes.values())
        several = " or a tuple of them" if self.in_turn else ""
        return f"the options of one {self.noun}{several} (an instance of {names})"


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns a question that names the most similar one, empty if none is similar."""
    matches = difflib.get_close_matches(name[:100], list(names), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def several(value: Any) -> tuple[Any, ...]:
    """Returns what a field holds that takes one or several, as a tuple."""
    return value if isinstance(value, tuple) else (value,)


def value_at(config: Any, path: Sequence[str]) -> Any:
    """Finds a value in a config.

    Args:
        config: a section.
        path: names of fields, from the section down.

    Returns:
        The value; None where there is no such field.
    """
    for name in path:
        config = getattr(config, name, None)
    return config


def with_value(config: T, path: Sequence[str], value: Any) -> T:
    """Replaces a value in a config.

    Args:
        config: a section.
        path: names of fields, from the section down.
        value: the new one.

    Returns:
        The new config.
    """
    name, *rest = path
    if rest:
        value = with_value(getattr(config, name), rest, value)
    return typing.cast(T, dataclasses.replace(config, **{name: value}))  # type: ignore


def metadata(section: type, name: str, kind: type[T]) -> list[T]:
    """Finds what the annotation of a field says beside its type.

    Args:
        section: a dataclass.
        name: of the field.
        kind: of what is looked for, such as `ReadWith` or `Kinds`.

    Returns:
        All of it, in order.
    """
    said = getattr(annotated(section)[name], "__metadata__", ())
    return [each for each in said if isinstance(each, kind)]


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
    needed = metadata(type(section), name, ReadWith)
    return [each for each in needed if not each.is_read(section)]


def require(condition: bool, message: str) -> None:
    """Raises ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)


def _expected(value: object, annotation: Any, within: Within | None = None) -> Any:
    """What is expected in place of a value, None if it is as expected."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        ranges = [each for each in parts[1:] if isinstance(each, Within)]
        kinds = next((str(each) for each in parts[1:] if isinstance(each, Kinds)), None)
        expected = _expected(value, parts[0], *ranges)
        return expected and (kinds or expected)
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


def _values(section: object, path: str) -> tuple[Any, ...]:
    """What a path leads to: a value, or the names of the kinds that a field holds."""
    name, _, rest = path.partition(".")
    value = getattr(section, name)
    if not rest:
        return (value,)
    if rest == "kind":
        for kinds in metadata(type(section), name, Kinds):
            return tuple(kinds.name(each) for each in several(value))
    return _values(value, rest)


def _one_of(path: str, values: tuple[Any, ...]) -> str:
    shown = ["a value"] if values == SET else [str(value) for value in values]
    return f"{path} {' or '.join(shown)}"


def _shown(value: object) -> str:
    return f"{value:,}" if type(value) is int else repr(value)
