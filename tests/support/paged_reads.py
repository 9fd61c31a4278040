"""Reads of partitions that are metadata alone, and how to look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.plan.model import CHUNK, Read, RowSelection, StoredData
from tests.support.paged_columns import LONG, Chunk, Partition

if TYPE_CHECKING:
    from collections.abc import Sequence


def whole_read(partition: Partition, row_group: int, columns: Sequence[int], made: tuple[int, ...] = ()) -> Read:
    chunks = [partition.sidecar.chunks(column) for column in columns]
    starts = np.array([chunk.byte_range_start[row_group] for chunk in chunks], dtype=np.int64)
    lengths = np.array([chunk.total_compressed_bytes[row_group] for chunk in chunks], dtype=np.int64)
    return Read(
        partition_index=0,
        data=StoredData(decoder="parquet", path="t", columns={}, places={}, pages=partition.pages),
        row_group=row_group,
        row_group_rows=int(partition.sidecar.row_counts[row_group]),
        columns=tuple(columns),
        column_rows=(None,) * len(columns),
        chunks=np.zeros(len(columns), CHUNK),
        piece_columns=np.arange(len(columns)),
        piece_starts=starts,
        piece_stops=starts + lengths,
        made_columns=made,
        made_values=(None,) * len(made),
        all_rows_match=False,
    )


def pieces(read: Read) -> list[tuple[int, int, int]]:
    """Sidecar index of the column, start and stop of each piece."""
    columns = [read.columns[position] for position in read.piece_columns.tolist()]
    return list(zip(columns, read.piece_starts.tolist(), read.piece_stops.tolist(), strict=True))


def rows(selection: RowSelection | None) -> list[tuple[int, int]] | None:
    return None if selection is None else list(zip(selection.starts.tolist(), selection.stops.tolist(), strict=True))


def selected(*ranges: tuple[int, int]) -> RowSelection:
    starts, stops = np.array(ranges, dtype=np.int64).T
    return RowSelection.of_ranges(starts, stops)


def four_pages(*, dictionary_bytes: int = 0, rows_known: int = 3) -> Partition:
    """Three columns of 40 rows in pages of 10 rows, 100 bytes each; the last ones may be of unknown pages."""
    starts = [0, 10, 20, 30]
    chunks = [
        Chunk(values=range(40), page_starts=starts if column < rows_known else None, page_bytes=[100] * (4 if column < rows_known else 1),
              dictionary_bytes=dictionary_bytes)
        for column in range(3)
    ]  # fmt: skip
    return Partition(kinds=[LONG] * 3, chunks=[chunks])
