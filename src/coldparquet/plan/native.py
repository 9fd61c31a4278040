"""Plans the reads of a partition in QuestDB's native format: byte ranges of column files, slice by slice.

The needed rows are cut into slices. A slice is to a native partition what a row group is to a Parquet one: slices are
fetched, decoded and delivered one by one. One flat buffer holds all ranges of a slice.

A search finds the rows of a time range in a sorted timestamp column with few small reads. It is a state machine without
I/O: it names the rows whose timestamps it needs next, and receives them. All rows of one step can be fetched in one
round trip.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from coldparquet.errors import FormatError, InternalError
from coldparquet.format.native import FixedLayout, VariableLayout, auxiliary_file_name, data_file_name, native_layout
from coldparquet.format.types import distinct_values
from coldparquet.plan.coalesce import coalesce
from coldparquet.plan.model import CHUNK, Read, StoredColumn, StoredData, StoredFile
from coldparquet.ranges import ByteRange
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.binary import Utf8Strings
    from coldparquet.format.types import ColumnType


IntArray: TypeAlias = "npt.NDArray[np.int64]"


class NativeSymbol(Struct, frozen=True, kw_only=True):
    """The dictionary of a SYMBOL column, which is in the table's directory."""

    count: int
    """Number of committed symbols, from ``_txn``."""
    name_txn: int
    """Version of the dictionary's files, from ``_cv``; -1 for the first one."""


class NativeColumn(Struct, frozen=True, kw_only=True):
    """One column of a table, as a native partition stores it."""

    index: int
    """Position in the table, from 0."""
    name: str
    """Name in the table and of its files."""
    type: ColumnType
    name_txn: int
    """Version of the column's files in this partition, from ``_cv``; -1 for the first one."""
    top: int | None
    """Number of rows written before the column existed: they have no bytes. None: all rows."""
    symbol: NativeSymbol | None = None
    """Only for SYMBOL columns."""

    @property
    def layout(self) -> FixedLayout | VariableLayout:
        """How the column's files are laid out."""
        return native_layout(self.type.tag)


class RowSlices(Struct, frozen=True, kw_only=True, eq=False):
    """Consecutive rows, cut into slices: arrays of shape ``(slices,)``."""

    first_rows: IntArray
    stop_rows: IntArray

    @classmethod
    def of(cls, rows: range, *, rows_per_slice: int) -> RowSlices:
        """Cut rows into slices of ``rows_per_slice``; the last may be shorter."""
        first_rows = np.arange(rows.start, rows.stop, rows_per_slice, dtype=np.int64)
        return cls(first_rows=first_rows, stop_rows=np.minimum(first_rows + rows_per_slice, rows.stop))

    def in_files_of(self, column: NativeColumn) -> RowSlices:
        """Return the positions of each slice's rows in the files of a column; empty for rows before its top."""
        if column.top is None:
            nothing = np.zeros_like(self.first_rows)
            return RowSlices(first_rows=nothing, stop_rows=nothing)
        return RowSlices(
            first_rows=np.maximum(self.first_rows - column.top, 0), stop_rows=np.maximum(self.stop_rows - column.top, 0)
        )


class DataEdges(Struct, frozen=True, kw_only=True, eq=False):
    """Where the data of a variable-size column begins and ends, slice by slice.

    The auxiliary file tells: the entry of a slice's first row, and that of its last row or the next one.
    """

    column: NativeColumn
    path: str
    """The auxiliary file."""
    entry_bytes: int
    first_entries: IntArray
    """Entry of the first row of each slice, shape ``(slices,)``."""
    last_entries: IntArray
    """Entry that gives the end of the slice's data; that of the first row if the slice has no rows in the file."""
    is_filled: npt.NDArray[np.bool_]
    """Whether the slice has rows in the file."""

    def wanted(self, *, gap_bytes: int) -> tuple[ByteRange, ...]:
        """Return the auxiliary file's ranges to fetch, ascending; entries at most ``gap_bytes`` apart share one."""
        entries = distinct_values(
            np.concatenate([self.first_entries[self.is_filled], self.last_entries[self.is_filled]])
        )
        starts = entries * self.entry_bytes
        longest_bytes = max(gap_bytes, self.entry_bytes)
        found = coalesce(starts, starts + self.entry_bytes, gap_bytes=gap_bytes, max_request_bytes=longest_bytes)
        return tuple(map(ByteRange, found.starts.tolist(), found.stops.tolist()))

    def data_ranges(self, fetched: Sequence[tuple[int, bytes]]) -> tuple[IntArray, IntArray]:
        """Read the edges."""
        layout = self.column.layout
        starts, stops = np.zeros_like(self.first_entries), np.zeros_like(self.first_entries)
        if not fetched or not isinstance(layout, VariableLayout):
            return starts, stops
        entry = np.concatenate(
            [np.arange(start, start + len(data), self.entry_bytes) // self.entry_bytes for start, data in fetched]
        )
        entries = layout.parse(np.frombuffer(b"".join(data for _, data in fetched), dtype=np.uint8))
        filled = self.is_filled
        starts[filled] = entries.offsets[np.searchsorted(entry, self.first_entries[filled])]
        stops[filled] = entries.stops[np.searchsorted(entry, self.last_entries[filled])]
        # Slices that share bytes, or have another order than their data, are as wrong as negative lengths.
        ends_before = np.concatenate([np.zeros(min(1, len(starts)), dtype=np.int64), stops[:-1]])
        wrong = np.flatnonzero(filled & ((starts < ends_before) | (stops < starts)))
        if len(wrong):
            row = int(self.first_entries[wrong[0]]) + (self.column.top or 0)
            raise FormatError(
                f"column {self.column.name!r}: the values from row {row:,} on would begin at byte"
                f" {int(starts[wrong[0]]):,} of the data file and end at {int(stops[wrong[0]]):,}; the partition is"
                " damaged: leave the column out, or restore the partition",
                path=self.path,
                field="offset",
                offset=int(self.first_entries[wrong[0]]) * self.entry_bytes,
                row=row,
            )
        return starts, stops


def data_edges(column: NativeColumn, slices: RowSlices, *, directory_path: str) -> DataEdges | None:
    """Return which auxiliary entries give the place of a column's data; None for fixed-width and absent columns."""
    layout = column.layout
    if not isinstance(layout, VariableLayout) or column.top is None:
        return None
    stored = slices.in_files_of(column)
    is_filled = stored.stop_rows > stored.first_rows
    last_entries = stored.stop_rows - 1 + layout.entries_after_last_row
    return DataEdges(
        column=column,
        path=f"{directory_path}/{auxiliary_file_name(column.name, column.name_txn)}",
        entry_bytes=layout.entry_bytes,
        first_entries=stored.first_rows,
        last_entries=np.where(is_filled, last_entries, stored.first_rows),
        is_filled=is_filled,
    )


def native_reads(  # noqa: PLR0913 - the parts of one partition's plan
    slices: RowSlices,
    columns: Sequence[NativeColumn],
    *,
    directory_path: str,
    partition_index: int,
    data_ranges: Mapping[int, tuple[IntArray, IntArray]],
    symbols: Mapping[int, Utf8Strings],
    all_rows_match: bool,
) -> tuple[Read, ...]:
    """Return what each slice needs of which file."""
    files: list[StoredFile] = []
    starts: list[IntArray] = []
    stops: list[IntArray] = []
    is_made = np.ones((len(columns), len(slices.first_rows)), dtype=np.bool_)
    for column, is_empty in zip(columns, is_made, strict=True):
        stored = slices.in_files_of(column)
        np.equal(stored.stop_rows, stored.first_rows, out=is_empty)
        if is_empty.all():
            continue
        layout = column.layout
        data_path = f"{directory_path}/{data_file_name(column.name, column.name_txn)}"
        if isinstance(layout, VariableLayout):
            auxiliary_path = f"{directory_path}/{auxiliary_file_name(column.name, column.name_txn)}"
            files.append(StoredFile(column.index, "auxiliary", auxiliary_path))
            starts.append(stored.first_rows * layout.entry_bytes)
            stop_entries = stored.stop_rows + np.where(is_empty, 0, layout.entries_after_last_row)
            stops.append(stop_entries * layout.entry_bytes)
            files.append(StoredFile(column.index, "data", data_path))
            data_starts, data_stops = data_ranges[column.index]
            starts.append(data_starts)
            stops.append(data_stops)
        else:
            files.append(StoredFile(column.index, "fixed", data_path))
            starts.append(stored.first_rows * layout.width_bytes)
            stops.append(stored.stop_rows * layout.width_bytes)
    shape = (len(files), len(slices.first_rows))
    all_starts = np.array(starts, dtype=np.int64).reshape(shape).T
    all_stops = np.array(stops, dtype=np.int64).reshape(shape).T
    indexes = [column.index for column in columns]
    data = StoredData(
        decoder="native",
        path=directory_path,
        columns={column.index: StoredColumn(name=column.name, type=column.type, top=column.top) for column in columns},
        places={index: index for index in indexes},
        may_grow=True,
        files=tuple(files),
        symbols=symbols,
    )
    reads = []
    for number, (first_row, stop_row) in enumerate(
        zip(slices.first_rows.tolist(), slices.stop_rows.tolist(), strict=True)
    ):
        made = [index for index, is_empty in zip(indexes, is_made[:, number].tolist(), strict=True) if is_empty]
        fetched = tuple(index for index in indexes if index not in made)
        pieces = [position for position, file in enumerate(files) if file.column in fetched]
        reads.append(
            Read(
                partition_index=partition_index,
                data=data,
                row_group=number,
                row_group_rows=stop_row - first_row,
                first_row=first_row,
                columns=fetched,
                column_rows=(None,) * len(fetched),
                chunks=np.empty(0, CHUNK),
                piece_columns=np.array([fetched.index(files[piece].column) for piece in pieces], dtype=np.int64),
                piece_starts=all_starts[number, pieces],
                piece_stops=all_stops[number, pieces],
                piece_files=np.array(pieces, dtype=np.int64),
                made_columns=tuple(made),
                made_values=(None,) * len(made),
                all_rows_match=all_rows_match,
            )
        )
    return tuple(reads)


def cut_native(read: Read, count: int, *, from_end: bool) -> Read:
    """Read only the last, or the first, rows of a slice; all of them if any column is of variable size."""
    stored = [read.data.columns[column] for column in (*read.columns, *read.made_columns)]
    layouts = [native_layout(column.type.tag) for column in stored]
    fixed = [layout.width_bytes for layout in layouts if isinstance(layout, FixedLayout)]
    if count >= read.row_count or len(fixed) < len(layouts):
        return read
    first_row = read.first_row + (read.row_count - count if from_end else 0)
    tops = np.array([column.top or 0 for column in stored], dtype=np.int64)[read.piece_columns]
    widths = np.array(fixed, dtype=np.int64)[read.piece_columns]
    return replace(
        read,
        row_group_rows=count,
        first_row=first_row,
        piece_starts=np.maximum(first_row - tops, 0) * widths,
        piece_stops=np.maximum(first_row + count - tops, 0) * widths,
    )


WINDOW_ROWS = 8192
"""This many timestamps are 64 KiB and take hardly longer to fetch than one: they are fetched whole."""

PROBES = 32
"""Single timestamps probed per edge and round trip. Each round trip leaves a 31st of the rows: three of them, and one
for the window, find an edge among 200 million rows. ``ReadOptions.max_concurrency`` is as large."""

_GREATEST = (1 << 63) - 1


class TimeSearch:
    """The search for the rows whose timestamps are in a range.

    Args:
        row_count: Rows of the partition, in ascending order of their timestamps.
        lower: Smallest timestamp wanted; None for no bound.
        upper: Largest timestamp wanted; None for no bound.
        path: File of the timestamp column, for error messages.
    """

    def __init__(self, row_count: int, *, lower: int | None, upper: int | None, path: str) -> None:
        self._path = path
        begin = _Edge(threshold=lower or 0, least=0, most=0 if lower is None else row_count)
        has_end = upper is not None and upper < _GREATEST
        threshold = _GREATEST if upper is None else min(upper + 1, _GREATEST)
        end = _Edge(threshold=threshold, least=0 if has_end else row_count, most=row_count)
        if lower is not None and upper is not None and lower > upper:
            begin.most, end.least, end.most = 0, 0, 0
        self._begin, self._end = begin, end
        self._seen: list[tuple[int, int, int]] = []
        """Runs of rows with known timestamps: first row, first and last timestamp; ascending."""

    @property
    def rows(self) -> range:
        """The rows in the range, once nothing is wanted."""
        if self.wanted():
            raise InternalError("the rows of a time range are asked for before they are found")
        return range(self._begin.least, max(self._begin.least, self._end.least))

    def wanted(self) -> tuple[range, ...]:
        """Return the rows whose timestamps are needed next, in ascending order; none at the end."""
        wanted = {*self._begin.wanted(), *self._end.wanted()}
        return tuple(sorted(wanted, key=lambda rows: (rows.start, rows.stop)))

    def receive(self, rows: range, timestamps: npt.NDArray[np.int64]) -> None:
        """Take the timestamps of rows that were wanted."""
        self._check_order(rows, timestamps)
        for edge in (self._begin, self._end):
            if edge.is_found:
                continue
            before = int(np.searchsorted(timestamps, edge.threshold))
            if before > 0:
                edge.least = max(edge.least, rows.start + before)
            if before < len(timestamps):
                edge.most = min(edge.most, rows.start + before)

    def _check_order(self, rows: range, timestamps: npt.NDArray[np.int64]) -> None:
        """Compare timestamps with each other and with their known neighbours."""
        falls = np.flatnonzero(timestamps[1:] < timestamps[:-1])
        if len(falls):
            raise self._unsorted(rows.start + int(falls[0]) + 1)
        seen = (rows.start, int(timestamps[0]), int(timestamps[-1]))
        place = bisect_left(self._seen, seen)
        if place > 0 and self._seen[place - 1][2] > seen[1]:
            raise self._unsorted(rows.start)
        if place < len(self._seen) and self._seen[place][1] < seen[2]:
            raise self._unsorted(self._seen[place][0])
        self._seen.insert(place, seen)

    def _unsorted(self, row: int) -> FormatError:
        return FormatError(
            f"row {row:,}: its timestamp is smaller than that of a row before it, but QuestDB keeps the rows of a"
            " partition in the order of time; the partition is damaged: read it without a time range, or restore it",
            path=self._path,
            field="timestamp",
            row=row,
        )


class _Edge(Struct, kw_only=True):
    """The first row whose timestamp is at or above the threshold: at least ``least``, at most ``most``."""

    threshold: int
    least: int
    most: int

    @property
    def is_found(self) -> bool:
        return self.least == self.most

    def wanted(self) -> list[range]:
        undecided = self.most - self.least
        if self.is_found:
            return []
        if undecided <= WINDOW_ROWS:
            return [range(self.least, self.most)]
        # Both ends are probed: if all rows are on one side of the threshold, one round trip suffices.
        probes = np.linspace(self.least, self.most - 1, PROBES).astype(np.int64).tolist()
        return [range(row, row + 1) for row in probes]
