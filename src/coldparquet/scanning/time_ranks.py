"""In which order the reads of a plan may hold the newest, or the oldest, rows.

A rank is a number that grows with the timestamp where newer rows are wanted, and falls with it where older ones are:
so the rows with the greatest ranks are wanted in both cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.numpy_bridge import numbers_to_numpy
from coldparquet.plan.bind import BoundField
from coldparquet.plan.bounds import NumericSide
from coldparquet.plan.instant import NANOSECONDS_PER_UNIT
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.scanning.planned_partition import PlannedParquet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coldparquet.plan.bounds import IntArray, Side
    from coldparquet.plan.projection import TableColumn
    from coldparquet.scanning.scan_planner import PlannedScan

_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankBounds:
    """Between which ranks the rows of each read of a plan lie; both arrays have shape ``(reads,)``."""

    least: IntArray
    greatest: IntArray

    @classmethod
    def all_equal(cls, read_count: int) -> RankBounds:
        """Rank no row before another: then only the table's order counts."""
        zeros = np.zeros(read_count, dtype=np.int64)
        return cls(least=zeros, greatest=zeros)


def flipped(values: IntArray, *, ascending: bool) -> IntArray:
    """Turn the order of integers round if ``ascending``; unlike a change of sign this never overflows."""
    return ~values if ascending else values


def time_ranks(planned: PlannedScan, timestamp: TableColumn, *, ascending: bool) -> RankBounds:
    """Bound the ranks of the rows of each read by what is known of their timestamps.

    The slices of a native partition follow each other in time, but nothing is known of their bounds. All of them get as
    their only rank the worst one that a row of the partition can have: so a slice ranks behind every row of the partition
    that is read before it, and before all rows of worse partitions.

    Args:
        planned: The plan; the timestamp is one of its columns.
        timestamp: The designated timestamp.
        ascending: Whether small timestamps rank high.
    """
    read_count = len(planned.plan.row_groups)
    least = np.full(read_count, _LEAST, dtype=np.int64)
    greatest = np.full(read_count, _GREATEST, dtype=np.int64)
    for index, here, row_groups in reads_of_partitions(planned):
        partition = planned.partitions[index]
        if not isinstance(partition, PlannedParquet):
            start, stop = _native_times(planned, index, timestamp)
            least[here] = greatest[here] = stop - 1 if ascending else start
        elif planned.question.options.statistics:
            field = BoundField(name=timestamp.name, index=timestamp.index, type=timestamp.readable_type)
            bounds = SidecarStatistics(partition.sidecar, partition.places).bounds(field)
            least[here] = _numbers(None if bounds is None else bounds.lower, row_groups, unknown=_LEAST)
            greatest[here] = _numbers(None if bounds is None else bounds.upper, row_groups, unknown=_GREATEST)
    if ascending:
        least, greatest = flipped(greatest, ascending=True), flipped(least, ascending=True)
    return RankBounds(least=least, greatest=greatest)


def table_places(read_count: int, reads_before: int, *, ascending: bool) -> IntArray:
    """Number the reads of one step of a walk from one end of a table, so that a greater number is nearer to that end.

    Args:
        read_count: Reads of the step, which are in table order; shape of the result.
        reads_before: Reads of the steps before, which are all nearer to the end.
        ascending: Whether the walk goes from the begin of the table to its end.
    """
    first = reads_before if ascending else -reads_before - read_count
    return flipped(np.arange(first, first + read_count), ascending=ascending)


def reads_of_partitions(planned: PlannedScan) -> Iterator[tuple[int, slice, IntArray]]:
    """Yield for each partition of a plan its index, where its reads are among all reads, and the row group of each."""
    reads = planned.plan.row_groups
    partition_of_read = np.fromiter((read.partition_index for read in reads), np.int64, len(reads))
    row_groups = np.fromiter((read.row_group for read in reads), np.int64, len(reads))
    edges = np.searchsorted(partition_of_read, np.arange(len(planned.partitions) + 1)).tolist()
    for index, (start, stop) in enumerate(pairwise(edges)):
        yield index, slice(start, stop), row_groups[start:stop]


def ranks_of_rows(rows: pa.Table, timestamp: TableColumn, *, ascending: bool) -> IntArray:
    """Return the rank of each row, shape ``(rows,)``."""
    column: Any = rows.column(timestamp.name).cast(pa.int64()).combine_chunks()
    return flipped(numbers_to_numpy(column, np.int64), ascending=ascending)


def _native_times(planned: PlannedScan, index: int, timestamp: TableColumn) -> tuple[int, int]:
    """Return the times that a native partition stands for, in the unit of the timestamp."""
    path = planned.plan.partitions[index].data_path
    [partition] = [found for found in planned.question.snapshot.partitions if found.directory_path == path]
    if partition.time_range_ns is None:
        return 0, 1  # a table that is not partitioned: there is no other partition to rank with
    unit_ns = NANOSECONDS_PER_UNIT[timestamp.readable_type.arrow.unit or "ns"]
    start, stop = (max(_LEAST + 1, min(bound // unit_ns, _GREATEST)) for bound in partition.time_range_ns)
    return int(start), int(stop)


def _numbers(side: Side | None, row_groups: IntArray, *, unknown: int) -> IntArray:
    if not isinstance(side, NumericSide):
        return np.full(len(row_groups), unknown, dtype=np.int64)
    return np.where(side.known[row_groups], side.numbers[row_groups], unknown).astype(np.int64)
