"""Cutting a planned read to the first or last of its rows, so that less is fetched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.format.native_layout import FixedLayout
from coldparquet.plan.native_read import NativeRead, RowSlices, native_reads
from coldparquet.plan.page_reads import first_rows, last_rows
from coldparquet.plan.read_plan import RowGroupRead
from coldparquet.scanning.planned_partition import PlannedNative, PlannedParquet

if TYPE_CHECKING:
    from coldparquet.options import Coalescing
    from coldparquet.plan.read_plan import PlannedRead
    from coldparquet.scanning.planned_partition import PlannedPartition


def cut_read(
    read: PlannedRead, partition: PlannedPartition, count: int, *, from_end: bool, coalescing: Coalescing
) -> PlannedRead:
    """Return a read of the last, or the first, rows of another one.

    Args:
        read: The other one; every row of it matches.
        partition: Where it reads.
        count: How many rows, fewer than the read has.
        from_end: Whether the last ones are wanted.
        coalescing: How bytes become requests: gaps that these read over need not be left out.

    Returns:
        The read as it is for a native partition where columns of variable size are among those read: only their files
        tell where a row begins. Of a Parquet file whose pages are not known whole chunks are fetched.
    """
    if isinstance(read, RowGroupRead) and isinstance(partition, PlannedParquet):
        cut = last_rows if from_end else first_rows
        return cut(read, count, pages=partition.pages, least_saving_bytes=max(coalescing.gap_bytes, 1))
    if isinstance(read, NativeRead) and isinstance(partition, PlannedNative):
        return _cut_native(read, partition, count, from_end=from_end)
    return read


def _cut_native(read: NativeRead, partition: PlannedNative, count: int, *, from_end: bool) -> NativeRead:
    columns = [partition.columns[index] for index in (*read.columns, *read.made_columns)]
    if not all(isinstance(column.layout, FixedLayout) for column in columns):
        return read
    first_row = read.first_row + (read.row_count - count if from_end else 0)
    rows = RowSlices(
        first_rows=np.array([first_row], dtype=np.int64), stop_rows=np.array([first_row + count], dtype=np.int64)
    )
    [cut] = native_reads(
        rows,
        columns,
        directory_path=partition.directory_path,
        partition_index=read.partition_index,
        data_ranges={},
        all_rows_match=read.all_rows_match,
    )
    return replace(cut, row_group=read.row_group)
