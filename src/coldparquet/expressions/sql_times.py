"""Times in SQL that follow from others: ``now() - INTERVAL '1 day'``, and the days, months and years that an IN names.

Everything is UTC. ``now()`` is one moment for a whole condition.
"""

from __future__ import annotations

import re
import time
from calendar import monthrange
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date
from typing import TYPE_CHECKING, Any

from coldparquet.errors import InvalidInputError
from coldparquet.plan.predicate import (
    NANOSECONDS_PER_DAY,
    NANOSECONDS_PER_UNIT,
    Instant,
    instant_of_date,
    parse_instant,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import exp

_SECOND = NANOSECONDS_PER_UNIT["s"]
_STEPS = {
    **dict.fromkeys(("us", "microsecond"), 1_000),
    **dict.fromkeys(("ms", "millisecond"), 1_000_000),
    **dict.fromkeys(("s", "sec", "second"), _SECOND),
    **dict.fromkeys(("min", "minute"), 60 * _SECOND),
    **dict.fromkeys(("h", "hr", "hour"), 3_600 * _SECOND),
    **dict.fromkeys(("d", "day"), NANOSECONDS_PER_DAY),
    **dict.fromkeys(("w", "week"), 7 * NANOSECONDS_PER_DAY),
}
"""Nanoseconds of the units of an INTERVAL, in the singular."""

_MONTHS = {"mon": 1, "month": 1, "y": 12, "yr": 12, "year": 12}

_UNITS_OF_DATEADD = {
    "u": "us",
    "T": "ms",
    "s": "s",
    "m": "min",
    "h": "h",
    "d": "d",
    "w": "w",
    "M": "month",
    "y": "year",
}
"""QuestDB's letters, in which m and M differ."""

_STEP = re.compile(r"\s*(\d{1,18})\s*([a-z]+)", re.IGNORECASE | re.ASCII)
_WRITTEN = re.compile(
    r"""\binterval\s*'(?P<interval>[^']*)'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/""",
    re.DOTALL | re.IGNORECASE,
)
"""An INTERVAL; strings, quoted names and comments only so that none is found in them."""
_INTERVAL = re.compile(
    r"\d{4}(?:-(?P<month>\d{2})(?:-(?P<day>\d{2})(?P<hour>[T ]\d{2}(?P<minute>:\d{2}(?P<second>:\d{2}(?:\.(?P<fraction>\d{1,9}))?)?)?)?)?)?",
    re.ASCII | re.IGNORECASE,
)
_FIRST = instant_of_date(date.min).nanoseconds
_END = instant_of_date(date.max).nanoseconds + NANOSECONDS_PER_DAY
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}

_now: ContextVar[Instant] = ContextVar("now")


@contextmanager
def one_moment(now: Instant | None = None) -> Iterator[None]:
    """Make every ``now()`` meanwhile the same moment: the present one, unless it is given."""
    token = _now.set(Instant(time.time_ns()) if now is None else now)
    try:
        yield
    finally:
        _now.reset(token)


def check_intervals(text: str) -> None:
    """Refuse intervals with signs and points, of which some versions of sqlglot drop a part without a word, and ``1M``."""
    if "interval" not in text.lower():
        return
    for match in _WRITTEN.finditer(text):
        interval = match["interval"]
        # QuestDB's M is a month, and a minute to others.
        if interval is not None and (not re.fullmatch(r"[\w\s]+", interval) or re.search(r"\d\s*M\b", interval)):
            raise _no_interval(interval)


def time_of(node: exp.Expr) -> Instant | None:
    """Return the time that an expression is, such as ``now() - INTERVAL '1 day'``; None if it is none."""
    steps: list[tuple[str, int]] = []
    node = node.unnest()
    while node.key in ("add", "sub"):  # a loop, because a sum may have thousands of parts
        text = _text_of_interval(node.expression.unnest())
        if text is None:
            return None
        steps.append((text, -1 if node.key == "sub" else 1))
        node = node.this.unnest()
    moved = _computed(node)
    if moved is None and steps:
        moved = _literal(node)
    for text, sign in reversed(steps):
        moved = None if moved is None else _moved(moved, text, sign)
    return moved


def interval_of(node: exp.Expr) -> tuple[Instant, Instant] | None:
    """Return the half-open interval that QuestDB means by ``IN '2024-03'`` or ``IN today()``; None if it is none."""
    node = node.unnest()
    if node.key == "literal" and node.is_string:
        return parse_interval(str(node.this))
    name, arguments = _call_of(node)
    return _day(name) if name in _DAYS and not arguments else None


def parse_interval(text: str) -> tuple[Instant, Instant] | None:
    """Return the year, month, day, hour, minute, second or fraction of one that a text names, half-open; else None."""
    match, begin = _INTERVAL.fullmatch(text), parse_instant(text)
    if match is None or begin is None:
        return None
    if match["day"] is None:
        return begin, _months_later(begin, 12 if match["month"] is None else 1)
    if match["fraction"] is not None:
        length = 10 ** (9 - len(match["fraction"]))
    elif match["second"] is not None:
        length = _SECOND
    elif match["minute"] is not None:
        length = 60 * _SECOND
    else:
        length = NANOSECONDS_PER_DAY if match["hour"] is None else 3_600 * _SECOND
    return begin, Instant(begin.nanoseconds + length)


def next_day(midnight: Instant) -> Instant:
    """Return the end of a day."""
    return Instant(midnight.nanoseconds + NANOSECONDS_PER_DAY)


def _call_of(node: exp.Expr) -> tuple[str, list[Any]]:
    """Return the name of a function in lower case, and its arguments; an empty name if the node calls none."""
    if node.key == "anonymous":
        name = str(node.this).lower()
        return "now" if name == "systimestamp" else name, node.expressions
    # Those of which sqlglot knows the meaning.
    known = {"currenttimestamp": "now", "systimestamp": "now", "currentdate": "today"}.get(node.key, "")
    return known, [value for value in node.args.values() if value not in (None, [], False)]


def _day(name: str) -> tuple[Instant, Instant]:
    day = _now.get().nanoseconds // NANOSECONDS_PER_DAY + _DAYS[name]
    midnight = Instant(day * NANOSECONDS_PER_DAY)
    return midnight, next_day(midnight)


def _computed(node: exp.Expr) -> Instant | None:
    """Return the time that a function gives."""
    name, arguments = _call_of(node)
    if name == "now" and not arguments:
        return _now.get()
    if name in _DAYS and not arguments:
        return _day(name)[0]
    return _date_added(*arguments) if name == "dateadd" and len(arguments) == 3 else None


def _literal(node: exp.Expr) -> Instant | None:
    """Return the time of a literal that says that it is one."""
    if node.key != "cast" or node.this.key != "literal" or not node.this.is_string:
        return None
    type_name = str(node.args["to"].args.get("kind") or node.args["to"].this.name).upper()
    return parse_instant(str(node.this.this)) if type_name.startswith("TIMESTAMP") or type_name == "DATE" else None


def _date_added(unit: exp.Expr, count: exp.Expr, begin: exp.Expr) -> Instant | None:
    """Return what QuestDB's ``dateadd('d', -1, now())`` is."""
    sign = -1 if count.key == "neg" else 1
    number = count.this if count.key == "neg" else count
    known = _UNITS_OF_DATEADD.get(str(unit.this)) if unit.key == "literal" else None
    is_text = begin.key == "literal" and begin.is_string
    start = parse_instant(str(begin.this)) if is_text else time_of(begin) or _literal(begin)
    if known is None or start is None or number.key != "literal" or not str(number.this).isdecimal():
        return None
    return _moved(start, f"{number.this} {known}", sign)


def _text_of_interval(node: exp.Expr) -> str | None:
    """Return ``1 day`` of ``INTERVAL '1 day'``, ``INTERVAL 1 day`` or ``'1 day'::INTERVAL``."""
    if node.key == "cast" and str(node.args["to"].this.name).upper() == "INTERVAL" and node.this.key == "literal":
        return str(node.this.this)
    if node.key != "interval" or node.this is None or node.this.unnest().key != "literal":
        return None
    unit = node.args.get("unit")
    return str(node.this.unnest().this) + ("" if unit is None else f" {unit.name}")


def _moved(begin: Instant, text: str, sign: int) -> Instant:
    """Add steps of time: months first, which end on the last day of a short month, as in PostgreSQL and DuckDB."""
    months, nanoseconds, place = 0, 0, 0
    while match := _STEP.match(text, place):
        count, unit = int(match[1]), match[2].lower()
        unit = unit if unit in _STEPS or unit in _MONTHS else unit.removesuffix("s")
        if unit not in _STEPS and unit not in _MONTHS:
            break
        months += count * _MONTHS.get(unit, 0)
        nanoseconds += count * _STEPS.get(unit, 0)
        place = match.end()
    if not place or text[place:].strip():
        raise _no_interval(text)
    moved = _months_later(begin, sign * months).nanoseconds + sign * nanoseconds
    if not _FIRST <= moved < _END:
        raise InvalidInputError(f"{begin} and {text[:80]!r} lead out of the years 1 to 9999", kind="InvalidLiteral")
    return Instant(moved, begin.has_rest)


def _no_interval(text: str) -> InvalidInputError:
    return InvalidInputError(
        f"{text[:80]!r} is no interval of time; write now() - INTERVAL '90 minutes', with whole numbers of microseconds,"
        " milliseconds, seconds, minutes, hours, days, weeks, months and years",
        kind="InvalidLiteral",
    )


def _months_later(begin: Instant, months: int) -> Instant:
    """Return the same day of a later month, or its last one if it has no such day."""
    days, of_day = divmod(begin.nanoseconds, NANOSECONDS_PER_DAY)
    day = date.fromordinal(days + date(1970, 1, 1).toordinal())
    years, month = divmod(day.month - 1 + months, 12)
    year = day.year + years
    if year == date.max.year + 1 and month == 0:
        return Instant(_END)
    if not date.min.year <= year <= date.max.year:
        raise InvalidInputError(f"{begin} and {months:,} months lead out of the years 1 to 9999", kind="InvalidLiteral")
    last_day = monthrange(year, month + 1)[1]
    return Instant(instant_of_date(date(year, month + 1, min(day.day, last_day))).nanoseconds + of_day, begin.has_rest)
