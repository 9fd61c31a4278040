"""Which times the rows of a partition have, as far as its statistics say; its directory's name promises others or not.

Partitions are left out of a read by their names alone. One whose rows are of other times than its name says loses rows
without anybody noticing; its statistics, where they are read, tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import UnsupportedError
from coldparquet.plan.bounds import NumericSide
from coldparquet.plan.instant import NANOSECONDS_PER_UNIT, Instant
from coldparquet.plan.statistics import chunk_bounds

if TYPE_CHECKING:
    from coldparquet.format.sidecar import Sidecar


def misplaced_times(sidecar: Sidecar, column: int, time_range_ns: tuple[int, int]) -> str | None:
    """Say which times the rows of a partition have, if some of them lie outside of the range that it stands for.

    Args:
        sidecar: What is known of the partition.
        column: Index of the designated timestamp in the sidecar.
        time_range_ns: The range, half-open, in nanoseconds since 1970.

    Returns:
        ``2024-03-01T00:00:00Z to 2024-03-01T23:59:59Z``; None where nothing is known to lie outside.
    """
    stated = _stated_times_ns(sidecar, column)
    if stated is None or time_range_ns[0] <= stated[0] <= stated[1] < time_range_ns[1]:
        return None
    return f"{Instant(stated[0])} to {Instant(stated[1])}"


def _stated_times_ns(sidecar: Sidecar, column: int) -> tuple[int, int] | None:
    """Return the first and the last time of all row groups that state both exactly, in nanoseconds since 1970."""
    try:
        type_ = sidecar.column_type(column)
    except UnsupportedError:
        return None
    if type_.arrow.name != "timestamp":
        return None
    chunks = sidecar.chunks(column)
    bounds = chunk_bounds(chunks, sidecar.row_counts, sidecar.column(column), type_)
    lower, upper = bounds.lower, bounds.upper
    if not isinstance(lower, NumericSide) or not isinstance(upper, NumericSide):
        return None
    known = lower.known & upper.known & chunks.min.exact & chunks.max.exact
    if not known.any():
        return None
    unit_ns = NANOSECONDS_PER_UNIT[type_.arrow.unit or "ns"]
    return int(lower.numbers[known].min()) * unit_ns, int(upper.numbers[known].max()) * unit_ns
