"""Points in time, exact to the last digit that someone wrote, and the ISO spellings that QuestDB users write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

NANOSECONDS_PER_DAY = 86_400 * 1_000_000_000

NANOSECONDS_PER_UNIT = {"d": NANOSECONDS_PER_DAY, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds in one step of the units in which columns count time."""

_FRACTION_DIGITS = {"d": 0, "s": 0, "ms": 3, "us": 6, "ns": 9}
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_TIME_OF_DAY = r"(?P<hour>\d{2})(?::(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d+))?)?)?"
_OFFSET = r"(?:Z|(?P<sign>[+-])(?P<offset_hour>\d{2})(?::?(?P<offset_minute>\d{2}))?)"
_INSTANT = re.compile(
    rf"(?P<year>\d{{4}})(?:-(?P<month>\d{{2}})(?:-(?P<day>\d{{2}})(?:[T ]{_TIME_OF_DAY} ?{_OFFSET}?)?)?)?",
    re.ASCII | re.IGNORECASE,
)
_TIME = re.compile(_TIME_OF_DAY, re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Instant:
    """A point in time: whole nanoseconds since 1970-01-01 UTC, and whether a smaller fraction follows them."""

    nanoseconds: int
    has_rest: bool = False
    """True if the instant lies strictly between ``nanoseconds`` and the next one."""

    def in_unit(self, unit: str) -> tuple[int, bool]:
        """Return the whole steps of ``unit`` (d, s, ms, us, ns) since 1970, rounded down, and whether a rest follows."""
        steps, rest = divmod(self.nanoseconds, NANOSECONDS_PER_UNIT[unit])
        return steps, self.has_rest or rest != 0

    def __str__(self) -> str:
        text = format_instant(self.nanoseconds, "ns")
        if self.has_rest and text.endswith("Z"):
            return f"{text[:-1]}1Z"  # some digit behind the ninth: which one is not kept, and decides nothing
        return text.removesuffix("Z").rstrip("0").rstrip(".") + "Z" if text.endswith("Z") else text


def instant_of(moment: datetime) -> Instant:
    """Convert a datetime exactly; one without time zone is UTC. Nanoseconds of a pandas Timestamp are kept."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    microseconds = (aware - _EPOCH) // timedelta(microseconds=1)
    return Instant(microseconds * 1_000 + getattr(moment, "nanosecond", 0))


def instant_of_date(day: date) -> Instant:
    """Convert a date to its midnight, UTC."""
    return Instant((day.toordinal() - _EPOCH_ORDINAL) * NANOSECONDS_PER_DAY)


def parse_instant(text: str) -> Instant | None:
    """Parse ``2024``, ``2024-03``, ``2024-03-01``, ``2024-03-01T12``, ``2024-03-01 12:30:00.123456789+02:00``.

    What is not written is the earliest possible; without offset the time is UTC. Any number of fraction digits.

    Returns:
        The instant, or None if the text is not one.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        return None
    try:
        day = date(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
    except ValueError:
        return None
    time_of_day = _time_of_day(match)
    if time_of_day is None:
        return None
    offset_hours, offset_minutes = int(match["offset_hour"] or 0), int(match["offset_minute"] or 0)
    if offset_hours > 23 or offset_minutes > 59:
        return None
    offset = (offset_hours * 60 + offset_minutes) * 60 * NANOSECONDS_PER_UNIT["s"]
    nanoseconds = instant_of_date(day).nanoseconds + time_of_day.nanoseconds
    return Instant(nanoseconds + offset if match["sign"] == "-" else nanoseconds - offset, time_of_day.has_rest)


def parse_time_of_day(text: str) -> Instant | None:
    """Parse ``12``, ``12:30`` or ``12:30:00.123``, counted from midnight; None if the text is no time of day."""
    match = _TIME.fullmatch(text)
    return None if match is None else _time_of_day(match)


def _time_of_day(match: re.Match[str]) -> Instant | None:
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = match["fraction"] or ""
    nanoseconds = int(fraction[:9].ljust(9, "0"))
    seconds = (hour * 60 + minute) * 60 + second
    return Instant(seconds * NANOSECONDS_PER_UNIT["s"] + nanoseconds, has_rest=fraction[9:].strip("0") != "")


def format_instant(steps: int, unit: str) -> str:
    """Write a count of ``unit`` since 1970 as ISO text with as many digits as the unit has.

    Counts outside the years 1 to 9999, which ISO text cannot hold, are written as the number itself.
    """
    days, nanoseconds = divmod(steps * NANOSECONDS_PER_UNIT[unit], NANOSECONDS_PER_DAY)
    try:
        day = date.fromordinal(days + _EPOCH_ORDINAL).isoformat()
    except (ValueError, OverflowError):
        return str(steps)
    return day if unit == "d" else f"{day}T{format_time_of_day(nanoseconds // NANOSECONDS_PER_UNIT[unit], unit)}Z"


def format_time_of_day(steps: int, unit: str) -> str:
    """Write a count of ``unit`` since midnight as ``12:30:00.123``."""
    seconds, rest = divmod(steps * NANOSECONDS_PER_UNIT[unit], NANOSECONDS_PER_UNIT["s"])
    digits = _FRACTION_DIGITS[unit]
    fraction = f".{rest // NANOSECONDS_PER_UNIT[unit]:0{digits}d}" if digits else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
