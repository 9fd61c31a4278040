"""Parses and formats partition directory names: ``2024-03-01.12`` is day 2024-03-01 in transaction 12's version.

A name has a base, which states the begin of the partition, and a version. A partition that was split has several
directories; the later pieces are named after their first possible timestamp, more precisely than the interval needs:

    interval   whole partition    pieces
    HOUR       2024-03-01T14      2024-03-01T143400, 2024-03-01T143456-000001
    DAY        2024-03-01         2024-03-01T07, 2024-03-01T123400, 2024-03-01T123456-000001
    WEEK       2024-W09           2024-W09-5, 2024-W09-5T07, 2024-W09-5T123456-000001
    MONTH      2024-03            2024-03-05, 2024-03-05T07, ...
    YEAR       2024               2024-03-05, 2024-03-05T07, ...
    NONE       default

Weeks are ISO weeks. Fractions have six digits in tables with microseconds and nine in tables with nanoseconds. Times
here are nanoseconds since 1970-01-01 UTC as Python integers, which hold the timestamps of both.

The module also computes begin and end of the time slices into which tables are partitioned.
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from datetime import date
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from coldparquet.errors import FormatError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable


SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS
DAY_NS = 24 * HOUR_NS

EARLIEST_NS = -(1 << 63) * 1000
"""Not later than any timestamp of a table: the least 64-bit number of microseconds."""
LATEST_NS = (1 << 63) * 1000
"""Later than any timestamp of a table."""

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_YEAR_10000_NS = (date.max.toordinal() + 1 - _EPOCH_ORDINAL) * DAY_NS


class PartitionInterval(IntEnum):
    """How a table is partitioned, with QuestDB's numbers."""

    DAY = 0
    MONTH = 1
    YEAR = 2
    NONE = 3
    HOUR = 4
    WEEK = 5


def partition_floor_ns(timestamp_ns: int, interval: PartitionInterval) -> int:
    """Return the begin of the partition that holds a timestamp.

    Times before 1970 fall into the first partition, which begins at 0; by week it begins on Monday 1969-12-29.
    """
    clamped_ns = max(timestamp_ns, 0)
    if interval is PartitionInterval.NONE:
        return EARLIEST_NS
    if interval is PartitionInterval.HOUR:
        return clamped_ns - clamped_ns % HOUR_NS
    if interval is PartitionInterval.DAY and clamped_ns < _YEAR_10000_NS:
        return clamped_ns - clamped_ns % DAY_NS
    day = date_of(clamped_ns)
    if interval is PartitionInterval.WEEK:
        return day_start_ns(day.toordinal() - day.weekday())
    if interval is PartitionInterval.MONTH:
        day = day.replace(day=1)
    if interval is PartitionInterval.YEAR:
        day = day.replace(month=1, day=1)
    return day_start_ns(day.toordinal())


def partition_stop_ns(timestamp_ns: int, interval: PartitionInterval) -> int:
    """Return the end, exclusive, of the partition that holds a timestamp."""
    floor_ns = partition_floor_ns(timestamp_ns, interval)
    match interval:
        case PartitionInterval.NONE:
            return LATEST_NS
        case PartitionInterval.HOUR:
            return floor_ns + HOUR_NS
        case PartitionInterval.DAY:
            return floor_ns + DAY_NS
        case PartitionInterval.WEEK:
            return floor_ns + 7 * DAY_NS
    first = date_of(floor_ns)
    if interval is PartitionInterval.MONTH:
        return floor_ns + monthrange(first.year, first.month)[1] * DAY_NS
    return floor_ns + (366 if isleap(first.year) else 365) * DAY_NS


def date_of(timestamp_ns: int) -> date:
    """Return the day of a timestamp."""
    try:
        return date.fromordinal(timestamp_ns // DAY_NS + _EPOCH_ORDINAL)
    except (ValueError, OverflowError):
        raise InvalidInputError(f"{timestamp_ns} ns since 1970 is not in the years 1 to 9999") from None


def day_start_ns(ordinal: int) -> int:
    """Return when the day of a proleptic ordinal (``date.toordinal``) begins."""
    return (ordinal - _EPOCH_ORDINAL) * DAY_NS


UNVERSIONED = -1
"""Name transaction of a directory without version suffix."""
DEFAULT_NAME = "default"
"""Base name of the only partition of a table without partitioning."""

_NAME = re.compile(
    r"(?P<base>default"
    r"|\d{4}(?:-\d\d|-W\d\d)?"
    r"|\d{4}-(?:\d\d-\d\d|W\d\d-[1-7])"
    r"(?:T(?P<hour>\d\d)(?:(?P<minute>\d\d)(?P<second>\d\d)(?:-(?P<fraction>\d{6}|\d{9}))?)?)?)"
    r"(?:\.(?P<name_txn>0|[1-9]\d{0,18}))?",
    re.ASCII,
)

_KEPT_NAMES = 16_384
"""Parsed names that a process keeps: a table's names are needed several times at every opening."""

_FINEST_FIRST = (
    PartitionInterval.HOUR,
    PartitionInterval.DAY,
    PartitionInterval.WEEK,
    PartitionInterval.MONTH,
    PartitionInterval.YEAR,
    PartitionInterval.NONE,
)


class PartitionDirectory(Struct, frozen=True, kw_only=True, gc=False):
    """The parsed name of a partition directory. A table has thousands, which the garbage collector need not look at."""

    base_name: str
    """The name without its version."""
    name_txn: int
    """Transaction that made this version of the partition, or -1 without a suffix."""
    interval: PartitionInterval | None
    """Interval of the table; None where the caller did not give it and the name alone does not determine it."""
    timestamp_ns: int
    """First possible timestamp of the piece, as ``_txn`` records it (there in the unit of the table)."""
    start_ns: int
    """No row is older. Equals ``timestamp_ns`` but for the very first partition, which also holds all rows from
    before 1970."""
    stop_ns: int
    """Every row is older: the end of the partition that the piece belongs to. Without an interval, the end of the
    largest partition that can have a piece of this name."""


@lru_cache(maxsize=_KEPT_NAMES)
def parse_partition_directory(name: str, *, interval: PartitionInterval | None = None) -> PartitionDirectory | None:
    """Parse the name of a partition directory."""
    spelled = _spelled(name)
    if spelled is None:
        return None
    base_name, timestamp_ns = spelled.base_name, spelled.timestamp_ns
    among = _intervals_of_shape(base_name) if interval is None else (interval,)
    candidates = [candidate for candidate in among if _is_name_of(spelled, candidate)]
    if not candidates:
        return None
    return PartitionDirectory(
        base_name=base_name,
        name_txn=spelled.name_txn,
        interval=candidates[0] if len(candidates) == 1 else None,
        timestamp_ns=timestamp_ns,
        start_ns=EARLIEST_NS if timestamp_ns <= 0 else timestamp_ns,
        stop_ns=max(partition_stop_ns(timestamp_ns, candidate) for candidate in candidates),
    )


@lru_cache(maxsize=_KEPT_NAMES)
def is_partition_name(name: str) -> bool:
    """Tell whether a table of some interval may have a partition directory of this name: in less time than parsing takes."""
    spelled = _spelled(name)
    return spelled is not None and any(_is_name_of(spelled, one) for one in _intervals_of_shape(spelled.base_name))


class _Spelled(Struct, frozen=True):
    """The time in a name, even if no table has partitions with such names."""

    base_name: str
    name_txn: int
    timestamp_ns: int
    is_nanosecond: bool


@lru_cache(maxsize=_KEPT_NAMES)
def _spelled(name: str) -> _Spelled | None:
    match = _NAME.fullmatch(name)
    timestamp_ns = None if match is None else _timestamp_ns(match)
    if match is None or timestamp_ns is None:
        return None
    is_nanosecond = len(match["fraction"] or "") == 9
    return _Spelled(match["base"], int(match["name_txn"] or UNVERSIONED), timestamp_ns, is_nanosecond)


@lru_cache(maxsize=_KEPT_NAMES)
def _is_name_of(spelled: _Spelled, interval: PartitionInterval) -> bool:
    name = _base_name(spelled.timestamp_ns, interval, is_nanosecond=spelled.is_nanosecond)
    return name == spelled.base_name


def _intervals_of_shape(base_name: str) -> tuple[PartitionInterval, ...]:
    """Return the intervals, finest first, whose partitions or pieces can have names of such a form."""
    if base_name == DEFAULT_NAME:
        return (PartitionInterval.NONE,)
    if "W" in base_name:
        return (PartitionInterval.WEEK,)
    if len(base_name) < len("2024-03-01"):
        return (PartitionInterval.MONTH, PartitionInterval.YEAR)
    of_days = (PartitionInterval.DAY, PartitionInterval.MONTH, PartitionInterval.YEAR)
    return (PartitionInterval.HOUR, *of_days) if "T" in base_name else of_days


def format_partition_directory(
    timestamp_ns: int, interval: PartitionInterval, *, name_txn: int = UNVERSIONED, is_nanosecond: bool = False
) -> str:
    """Return the name of the directory whose piece of a partition begins at ``timestamp_ns``."""
    if not is_nanosecond and timestamp_ns % 1000:
        raise InvalidInputError(f"{timestamp_ns} ns is not a whole number of microseconds; pass is_nanosecond=True")
    base_name = _base_name(timestamp_ns, interval, is_nanosecond=is_nanosecond)
    return base_name if name_txn < 0 else f"{base_name}.{name_txn}"


def recorded_directory_name(timestamp: int, interval: PartitionInterval, *, name_txn: int, is_nanosecond: bool) -> str:
    """Return the name of the directory of a partition that `_txn` records."""
    timestamp_ns = timestamp if is_nanosecond else timestamp * 1000
    try:
        return format_partition_directory(timestamp_ns, interval, name_txn=name_txn, is_nanosecond=is_nanosecond)
    except InvalidInputError as error:
        raise FormatError(
            f"a partition is recorded at {timestamp}, which is no time of a table: {error.message}", field="timestamp"
        ) from error


def infer_interval(names: Iterable[str]) -> PartitionInterval | None:
    """Guess how a table without ``_meta`` is partitioned: the finest interval that explains all its directories.

    The guess is wrong only for tables that have nothing left but pieces with names of whole partitions of a finer
    interval.
    """
    spelled = [found for name in names if (found := _spelled(name)) is not None]
    base_names = {found.base_name for found in spelled}

    def fits(found: _Spelled, interval: PartitionInterval) -> bool:
        if not _is_name_of(found, interval):
            # Names that fit no interval are ignored; they are very rare.
            return not any(_is_name_of(found, other) for other in _intervals_of_shape(found.base_name))
        floor_ns = partition_floor_ns(found.timestamp_ns, interval)
        return floor_ns == found.timestamp_ns or _base_name(floor_ns, interval, is_nanosecond=False) in base_names

    possible = {interval for found in spelled for interval in _intervals_of_shape(found.base_name)}
    for interval in filter(possible.__contains__, _FINEST_FIRST):
        is_there = any(_is_name_of(found, interval) for found in spelled)
        if is_there and all(fits(found, interval) for found in spelled):
            return interval
    return None


def _timestamp_ns(match: re.Match[str]) -> int | None:
    """Return the time in a name, None where there is no such day or time of day."""
    if match["base"] == DEFAULT_NAME:
        return EARLIEST_NS
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        return None
    year, *rest = match["base"].partition("T")[0].split("-")
    try:
        if rest and rest[0].startswith("W"):
            weekday = int(rest[1]) if len(rest) == 2 else 1
            day = date.fromisocalendar(int(year), int(rest[0][1:]), weekday)
        else:
            month, day_of_month = (*map(int, rest), 1, 1)[:2]
            day = date(int(year), month, day_of_month)
    except ValueError:
        return None
    fraction_ns = int((match["fraction"] or "").ljust(9, "0"))
    seconds = (hour * 60 + minute) * 60 + second
    return day_start_ns(day.toordinal()) + seconds * SECOND_NS + fraction_ns


def _base_name(timestamp_ns: int, interval: PartitionInterval, *, is_nanosecond: bool) -> str:
    floor_ns = partition_floor_ns(timestamp_ns, interval)
    timestamp_ns = max(timestamp_ns, floor_ns)
    is_whole = timestamp_ns == floor_ns
    if interval is PartitionInterval.NONE:
        return DEFAULT_NAME
    day = date_of(timestamp_ns)
    if interval is PartitionInterval.WEEK:
        iso = day.isocalendar()
        name = f"{iso.year:04}-W{iso.week:02}"
        return name if is_whole else f"{name}-{iso.weekday}{_time_suffix(timestamp_ns, is_nanosecond=is_nanosecond)}"
    if is_whole and interval is PartitionInterval.YEAR:
        return f"{day.year:04}"
    if is_whole and interval is PartitionInterval.MONTH:
        return f"{day.year:04}-{day.month:02}"
    if is_whole and interval is PartitionInterval.HOUR:
        return f"{day.isoformat()}T{timestamp_ns % DAY_NS // HOUR_NS:02}"
    return day.isoformat() + _time_suffix(timestamp_ns, is_nanosecond=is_nanosecond)


def _time_suffix(timestamp_ns: int, *, is_nanosecond: bool) -> str:
    """Format the time of day without trailing zeros: hour, then minute and second together, then the fraction."""
    hour, below_hour_ns = divmod(timestamp_ns % DAY_NS, HOUR_NS)
    if hour == 0 and below_hour_ns == 0:
        return ""
    if below_hour_ns == 0:
        return f"T{hour:02}"
    seconds, fraction_ns = divmod(below_hour_ns, SECOND_NS)
    suffix = f"T{hour:02}{seconds // 60:02}{seconds % 60:02}"
    if fraction_ns == 0:
        return suffix
    return f"{suffix}-{fraction_ns:09}" if is_nanosecond else f"{suffix}-{fraction_ns // 1000:06}"


_PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")


def has_parquet_suffix(name: str) -> bool:
    """Tell whether a name, or a path, ends as those of Parquet files do, in letters of any case."""
    return name.lower().endswith(_PARQUET_SUFFIXES)


ITSELF = ""
"""Replaces a partition's name where the URL is that of the partition, or of its file."""
