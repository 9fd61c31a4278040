"""The slices of time into which tables are partitioned: where each begins and ends.

Weeks are ISO weeks. Times are nanoseconds since 1970-01-01 UTC as Python integers, which hold the timestamps of tables with
microseconds and with nanoseconds.
"""

from __future__ import annotations

from calendar import isleap, monthrange
from datetime import date
from enum import IntEnum

from coldparquet.errors import InvalidInputError

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

    Raises:
        InvalidInputError: The time is after the year 9999.
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
    """Return the end, exclusive, of the partition that holds a timestamp.

    Raises:
        InvalidInputError: The time is after the year 9999.
    """
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
    """Return the day of a timestamp.

    Raises:
        InvalidInputError: It is not in the years 1 to 9999.
    """
    try:
        return date.fromordinal(timestamp_ns // DAY_NS + _EPOCH_ORDINAL)
    except (ValueError, OverflowError):
        raise InvalidInputError(f"{timestamp_ns} ns since 1970 is not in the years 1 to 9999") from None


def day_start_ns(ordinal: int) -> int:
    """Return when the day of a proleptic ordinal (``date.toordinal``) begins."""
    return (ordinal - _EPOCH_ORDINAL) * DAY_NS
