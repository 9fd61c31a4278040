"""Which times the partitions of a transaction cover, for all of them at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coldparquet.format.partition_intervals import DAY_NS, HOUR_NS, PartitionInterval

_EARLIEST = np.iinfo(np.int64).min
_LATEST = np.iinfo(np.int64).max
_MICROSECOND_NS = 1000
_EPOCH_WEEKDAY = 3
"""1970-01-01 was a Thursday, three days after Monday."""


def partition_ranges(
    timestamps: npt.NDArray[np.int64], interval: PartitionInterval, *, is_nanosecond: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the half-open time ranges that hold all rows of the partitions of a table.

    Args:
        timestamps: Those of the `_txn` records, ascending, in the unit of the table, shape (partitions,).
        interval: How the table is partitioned.
        is_nanosecond: Whether the unit is the nanosecond, not the microsecond.

    Returns:
        First times and times after the last, in the unit of the table, both of the shape (partitions,). A piece of a
        split partition ends where the next one begins. The first partition also holds all rows from before 1970. Ends
        that do not fit are the largest 64-bit integer, the only time that no range holds.
    """
    starts = timestamps.copy()
    starts[:1] = np.where(starts[:1] <= 0, _EARLIEST, starts[:1])
    stops = partition_stops(timestamps, interval, is_nanosecond=is_nanosecond)
    stops[:-1] = np.minimum(stops[:-1], timestamps[1:])
    return starts, stops


def partition_stops(
    timestamps: npt.NDArray[np.int64], interval: PartitionInterval, *, is_nanosecond: bool
) -> npt.NDArray[np.int64]:
    """Return the ends, exclusive, of the partitions that hold these times; `partition_stop_ns` for many.

    Ends that do not fit are the largest 64-bit integer.
    """
    if interval is PartitionInterval.NONE:
        return np.full(len(timestamps), _LATEST)
    unit_ns = 1 if is_nanosecond else _MICROSECOND_NS
    step = (HOUR_NS if interval is PartitionInterval.HOUR else DAY_NS) // unit_ns
    # Rows from before 1970 are in the first partition.
    first_steps = np.maximum(timestamps, 0) // step
    stop_steps = _following(first_steps, interval)
    does_fit = stop_steps <= _LATEST // step
    return np.where(does_fit, stop_steps * np.where(does_fit, step, 0), _LATEST)


def _following(steps: npt.NDArray[np.int64], interval: PartitionInterval) -> npt.NDArray[np.int64]:
    """Return the begin of the next partition: an hour for HOUR, otherwise a day, counted from 1970-01-01."""
    match interval:
        case PartitionInterval.HOUR | PartitionInterval.DAY:
            return steps + 1
        case PartitionInterval.WEEK:
            return steps - (steps + _EPOCH_WEEKDAY) % 7 + 7
    calendar = "datetime64[M]" if interval is PartitionInterval.MONTH else "datetime64[Y]"
    following = steps.view("datetime64[D]").astype(calendar) + 1
    return following.astype("datetime64[D]").view(np.int64)
