"""Phrases of one meaning in any CLDR locale: dates, amounts, units, names.

A *phrase* is a function of the locale; drawing one fixes its meaning, and formatting it
for two locales gives a translation pair: word order, inflection by number, separators,
abbreviations and twelve-hour clocks all differ.
"""

from __future__ import annotations

import datetime
import functools
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Literal, TypeVar

from babel import Locale, dates, numbers, units

Phrase = Callable[[Locale], str]
_T = TypeVar("_T")

_DATE_STYLES: tuple[Literal["short", "medium", "long", "full"], ...] = (
    *("short", "medium", "long", "full"),
)
_CLOCK_STYLES: tuple[Literal["short", "medium"], ...] = ("short", "short", "medium")
_PRICE_STYLES: tuple[Literal["name", "standard"], ...] = ("name", "standard")
_UNIT_STYLES: tuple[Literal["long", "short"], ...] = ("long", "long", "short")
_NUMBER_STYLES: tuple[Literal["long", "short"], ...] = ("long", "short")
_DATE_SKELETONS = ("MMMd", "MMMMd", "MMMEd", "yMMMM", "yMMMEd", "yQQQQ")
_INTERVAL_SKELETONS = ("yMMMd", "MMMd", "yMMM")
_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "JPY", "CNY", "SEK", "PLN", "INR", "BRL")
_UNITS = (
    *("length-kilometer", "length-meter", "length-centimeter", "length-mile"),
    *("length-foot", "length-inch", "length-light-year", "area-square-meter"),
    *("area-square-kilometer", "area-hectare", "mass-kilogram", "mass-gram"),
    *("mass-pound", "mass-ounce", "volume-liter", "volume-milliliter"),
    *("volume-cubic-meter", "volume-gallon", "temperature-celsius"),
    *("temperature-fahrenheit", "speed-kilometer-per-hour", "speed-mile-per-hour"),
    *("speed-meter-per-second", "duration-year", "duration-month", "duration-week"),
    *("duration-day", "duration-hour", "duration-minute", "duration-second"),
    *("digital-megabyte", "digital-gigabyte", "digital-kilobyte", "power-watt"),
    *("power-kilowatt", "power-horsepower", "energy-kilowatt-hour", "electric-volt"),
    *("frequency-hertz", "frequency-megahertz", "angle-degree", "pressure-bar"),
)
_SECONDS_AND_LIMIT_OF_UNIT = (
    (1, 60),
    (60, 60),
    (3_600, 24),
    (86_400, 7),
    (604_800, 4),
    (2_592_000, 12),  # babel counts 30 days to a month
    (31_536_000, 100),  # and 365 to a year
)


class Dice:
    """Choices that are the same on every Python version.

    Only ``Random.random`` is promised to give the same numbers on all versions; the
    methods built on it in the standard library are not.

    Args:
        seed: any whole number.
        purpose: makes independent sequences of one seed.
    """

    def __init__(self, seed: int, purpose: str = "") -> None:
        self._random = random.Random(f"{seed} {purpose}")

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self._random.random() < probability

    def between(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def pick(self, options: Sequence[_T]) -> _T:
        """One of the options, all equally likely."""
        return options[int(self._random.random() * len(options))]


PhraseKind = Callable[[Dice], Phrase]


class PhraseBook:
    """The kinds of phrases that both of two locales can express.

    Attributes:
        kinds: functions that draw a phrase; frequent kinds are there several times.
    """

    def __init__(self, first: Locale, second: Locale) -> None:
        shared = {
            name: sorted(getattr(first, name).keys() & getattr(second, name).keys())
            for name in ("territories", "languages", "currencies")
        }
        # Left out as too rare to be learnt: continents (numbers for codes), languages
        # with codes of three letters, and old money (names that tell its years).
        territories = [code for code in shared["territories"] if code.isalpha()]
        languages = [code for code in shared["languages"] if len(code) == 2]
        currencies = [
            code
            for code in shared["currencies"]
            if not any(character.isdigit() for character in first.currencies[code])
        ]
        kinds: list[PhraseKind] = [
            *(_date, _date, _day, _date_time, _time, _interval, _relative),
            *(_quantity, _quantity, _percentage, _number, _compact_number),
            *(_calendar_name, functools.partial(_price, currencies)),
        ]
        # Small locales lack some of the names.
        if territories:
            kinds += 2 * [functools.partial(_name, "territories", territories)]
        if languages:
            kinds += 2 * [functools.partial(_name, "languages", languages)]
        if currencies:
            kinds += [functools.partial(_name, "currencies", currencies)]
        self.kinds = tuple(kinds)


def _name(table: str, codes: Sequence[str], dice: Dice) -> Phrase:
    code = dice.pick(codes)
    return lambda locale: getattr(locale, table)[code]


def _price(rare_currencies: Sequence[str], dice: Dice) -> Phrase:
    rare = bool(rare_currencies) and dice.chance(0.15)
    code = dice.pick(rare_currencies if rare else _CURRENCIES)
    amount, kind = _amount(dice), dice.pick(_PRICE_STYLES)
    return lambda locale: numbers.format_currency(
        amount, code, locale=locale, format_type=kind
    )


def _random_day(dice: Dice) -> datetime.date:
    first, last = datetime.date(1950, 1, 1), datetime.date(2039, 12, 31)
    return datetime.date.fromordinal(dice.between(first.toordinal(), last.toordinal()))


def _random_time(dice: Dice) -> datetime.time:
    return datetime.time(dice.between(0, 23), dice.between(0, 59), dice.between(0, 59))


def _amount(dice: Dice) -> Decimal:
    """A number of 1 to 4 digits, every sixth with a decimal."""
    whole = dice.between(0, 10 ** dice.pick((1, 1, 2, 2, 2, 2, 3, 3, 4)) - 1)
    decimals = dice.pick((0, 0, 0, 0, 0, 1))
    return Decimal(whole).scaleb(-decimals)


def _date(dice: Dice) -> Phrase:
    day, style = _random_day(dice), dice.pick(_DATE_STYLES)
    return lambda locale: dates.format_date(day, style, locale=locale)


def _day(dice: Dice) -> Phrase:
    day, skeleton = _random_day(dice), dice.pick(_DATE_SKELETONS)
    # Without a clock time babel would read the date in the machine's time zone.
    moment = datetime.datetime.combine(day, datetime.time(12))
    return lambda locale: dates.format_skeleton(skeleton, moment, locale=locale)


def _date_time(dice: Dice) -> Phrase:
    moment = datetime.datetime.combine(_random_day(dice), _random_time(dice))
    style = dice.pick(_CLOCK_STYLES)
    return lambda locale: dates.format_datetime(moment, style, locale=locale)


def _time(dice: Dice) -> Phrase:
    time, style = _random_time(dice), dice.pick(_CLOCK_STYLES)
    return lambda locale: dates.format_time(time, style, locale=locale)


def _interval(dice: Dice) -> Phrase:
    start = _random_day(dice)
    days = dice.between(1, 10 ** dice.between(1, 4))
    end, skeleton = start + datetime.timedelta(days), dice.pick(_INTERVAL_SKELETONS)
    return lambda locale: dates.format_interval(start, end, skeleton, locale=locale)


def _relative(dice: Dice) -> Phrase:
    seconds, limit = dice.pick(_SECONDS_AND_LIMIT_OF_UNIT)
    sign = dice.pick((-1, 1))
    span = datetime.timedelta(seconds=sign * seconds * dice.between(1, limit - 1))
    directed = dice.chance(0.8)
    return lambda locale: dates.format_timedelta(
        span, threshold=1.0, add_direction=directed, locale=locale
    )


def _quantity(dice: Dice) -> Phrase:
    unit, amount = dice.pick(_UNITS), _amount(dice)
    length = dice.pick(_UNIT_STYLES)
    return lambda locale: units.format_unit(amount, unit, length, locale=locale)


def _percentage(dice: Dice) -> Phrase:
    share = Decimal(dice.between(0, 200)).scaleb(-2)
    return lambda locale: numbers.format_percent(
        share, locale=locale, decimal_quantization=False
    )


def _number(dice: Dice) -> Phrase:
    amount = _amount(dice)
    return lambda locale: numbers.format_decimal(amount, locale=locale)


def _compact_number(dice: Dice) -> Phrase:
    amount = dice.between(11, 99) * 10 ** dice.pick((5, 6, 8, 9))
    kind = dice.pick(_NUMBER_STYLES)
    return lambda locale: numbers.format_compact_decimal(
        amount, format_type=kind, locale=locale, fraction_digits=1
    )


def _calendar_name(dice: Dice) -> Phrase:
    table, first, last = dice.pick((("days", 0, 6), ("months", 1, 12)))
    index = dice.between(first, last)
    return lambda locale: getattr(locale, table)["stand-alone"]["wide"][index]
