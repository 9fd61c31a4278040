"""Which times the rows of a partition have, as far as its statistics say; its directory's name promises others or not.

Partitions are left out of a read by their names alone. One whose rows are of other times than its name says loses rows
without anybody noticing; its statistics, where they are read, tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import UnsupportedError
from coldparquet.plan.bounds import NumericSide
from coldparquet.plan.instant import NANOSECONDS_PER_UNIT, Instant
from coldparquet.plan.statistics import BOUNDS_OF_COLUMNS

if TYPE_CHECKING:
    from coldparquet.format.row_group_table import RowGroupTable
    from coldparquet.plan.bounds import IntArray

StatedTimes = tuple[int, int]
"""The first and the last time of some rows, in nanoseconds since 1970."""


def misplaced_times(stated: StatedTimes | None, time_range_ns: tuple[int, int]) -> str | None:
    """Say which times the rows of a partition have, if some of them lie outside of the range that it stands for.

    Args:
        stated: What its statistics say; None where they say nothing.
        time_range_ns: The range, half-open, in nanoseconds since 1970.

    Returns:
        ``2024-03-01T00:00:00Z to 2024-03-01T23:59:59Z``; None where nothing is known to lie outside.
    """
    if stated is None or time_range_ns[0] <= stated[0] <= stated[1] < time_range_ns[1]:
        return None
    return f"{_readable(stated[0])} to {_readable(stated[1])}"


def _readable(time_ns: int) -> str:
    text = str(Instant(time_ns))
    return text if text.endswith("Z") else "a time outside of the years 1 to 9999"


def stated_times_ns(table: RowGroupTable, column: int, borders: IntArray) -> list[StatedTimes | None]:
    """Return the first and the last time of partitions, by their row groups that state both exactly.

    Args:
        table: Their row groups.
        column: Index of the designated timestamp in them.
        borders: The first row group of each partition and, at the end, the number of row groups; shape
            ``(partitions + 1,)``.

    Returns:
        One for each partition; None where nothing is stated.
    """
    nothing: list[StatedTimes | None] = [None] * (len(borders) - 1)
    try:
        type_ = table.column_type(column)
    except UnsupportedError:
        return nothing
    bounds, chunks = BOUNDS_OF_COLUMNS.of(table, column), table.chunks(column)
    lower, upper = bounds.lower, bounds.upper
    if type_.arrow.name != "timestamp" or not isinstance(lower, NumericSide) or not isinstance(upper, NumericSide):
        return nothing
    known = lower.known & upper.known & chunks.min.exact & chunks.max.exact
    partition = np.repeat(np.arange(len(nothing)), np.diff(borders))[known]
    limits = np.iinfo(np.int64)
    first, last = np.full(len(nothing), limits.max), np.full(len(nothing), limits.min)
    np.minimum.at(first, partition, lower.numbers[known].astype(np.int64))
    np.maximum.at(last, partition, upper.numbers[known].astype(np.int64))
    unit_ns = NANOSECONDS_PER_UNIT[type_.arrow.unit or "ns"]
    is_stated = np.isin(np.arange(len(nothing)), partition).tolist()
    return [
        (begin * unit_ns, end * unit_ns) if is_known else None
        for begin, end, is_known in zip(first.tolist(), last.tolist(), is_stated, strict=True)
    ]
