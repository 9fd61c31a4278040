"""Finding out what a read needs of a partition in QuestDB's native format: which rows, where their data is, symbols.

Such a partition has no metadata of its own. How many rows are committed is in the table's ``_txn``, names and tops of
the columns are in ``_cv``; the rest is found by small reads of the column files themselves. A running QuestDB may
append to all of these files meanwhile; what is committed does not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.catalog.symbol_dictionaries import SymbolDictionaries, fetch_committed
from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.errors import FormatError, NotFoundError
from coldparquet.format.native_layout import VariableLayout, auxiliary_file_name, data_file_name
from coldparquet.plan.native_read import RowSlices, data_edges, native_reads
from coldparquet.plan.time_search import TimeSearch
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.format.utf16 import Utf8Strings
    from coldparquet.plan.native_read import DataEdges, IntArray, NativeColumn, NativeRead
    from coldparquet.plan.read_plan import MetadataRequest
    from coldparquet.storage.base import ObjectStore

TIME_SEARCH = "time search"
"""Reason of the requests that look for the rows of a time range."""
OFFSETS = "offsets"
"""Reason of the requests that look where the data of the first and the last row of a slice is."""
_GAP_BYTES = 64 * 1024
"""Offsets at most this far apart are fetched as one: that many bytes hardly take longer than a few."""

_UNPROVEN_BYTES = 256 * 1024 * 1024
"""A file is believed to be this long because ``_txn`` or another file says so. Of more, the last byte is fetched before
requests are planned and memory is taken for it: damaged files may claim any length."""

_LARGEST_UNPROVEN_ROWS = 1 << 36
"""Where no file can prove the number of rows; more than any partition has."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NativePlan:
    """What a read takes from one native partition, and what decodes it."""

    reads: tuple[NativeRead, ...]
    """The slices, in ascending order of rows; none where no row lies in the time range."""
    dictionaries: Mapping[int, Utf8Strings]
    """Symbols of the SYMBOL columns that are read, by position of the column in the table."""
    metadata_requests: tuple[MetadataRequest, ...]
    """What finding this out has cost. A dictionary belongs to the plan that fetched it first."""


async def plan_native_rows(  # noqa: PLR0913 - one partition, one question
    store: ObjectStore,
    *,
    directory_path: str,
    partition_index: int,
    row_count: int,
    columns: Sequence[NativeColumn],
    timestamp: NativeColumn | None,
    time_bounds: tuple[int | None, int | None],
    rows_per_read: int,
    all_rows_match: bool,
    limit: int | None,
    symbols: SymbolDictionaries,
) -> NativePlan:
    """Find the rows of a time range in a native partition, and the byte ranges of the columns that are read.

    Requests: those of the time search, where there is a bound: one for each 8,192 rows or less, else about three
    round trips of 32 for each bound; then, all at the same time, one per slice and column of variable size, fewer where
    slices are small. Beside them two, one after the other, per symbol column whose dictionary is not yet known.

    Args:
        store: Where the table lies.
        directory_path: Directory of the partition.
        partition_index: Its position in the plan.
        row_count: Rows that are committed, from ``_txn``.
        columns: Those that are read.
        timestamp: The designated timestamp, by which the rows are ordered; None where the table has none.
        time_bounds: Smallest and largest timestamp wanted, in the unit of the column; None where there is no bound.
        rows_per_read: Rows of a slice: fetched, decoded and handed over together.
        all_rows_match: Whether every row within the bounds satisfies the predicate.
        limit: No more rows than these are wanted; only looked at if all rows match.
        symbols: Dictionaries of the table.

    Raises:
        NotFoundError: A file is missing: of a column (``kind="MissingColumnFile"``) or of a dictionary
            (``kind="MissingSymbolFile"``).
        FormatError: Offsets, timestamps or symbols contradict each other.
        ObjectChangedError: A file is shorter than its committed rows need.
    """
    planning = _Planning(
        store=store,
        directory_path=directory_path,
        row_count=row_count,
        columns=[column for column in columns if _has_bytes(column, row_count)],
        spent=[],
    )
    symbol_columns = [column for column in planning.columns if column.symbol is not None]
    (slices, data_ranges), strings = await both(
        planning.find(timestamp, time_bounds, rows_per_read=rows_per_read, limit=limit if all_rows_match else None),
        gather_or_cancel([symbols.get(column, planning.spent) for column in symbol_columns]),
    )
    reads = native_reads(
        slices,
        columns,
        directory_path=directory_path,
        partition_index=partition_index,
        data_ranges=data_ranges,
        all_rows_match=all_rows_match,
    )
    return NativePlan(
        reads=reads,
        dictionaries={column.index: found for column, found in zip(symbol_columns, strings, strict=True)},
        metadata_requests=tuple(planning.spent),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planning:
    """The small reads that planning one partition takes."""

    store: ObjectStore
    directory_path: str
    row_count: int
    columns: list[NativeColumn]
    """Those that have bytes in the partition."""
    spent: list[MetadataRequest]

    async def find(
        self,
        timestamp: NativeColumn | None,
        time_bounds: tuple[int | None, int | None],
        *,
        rows_per_read: int,
        limit: int | None,
    ) -> tuple[RowSlices, dict[int, tuple[IntArray, IntArray]]]:
        """Find the slices, and by position in the table where the data of each column of variable size is."""
        rows = await self._rows_between(timestamp, *time_bounds)
        rows = rows if limit is None else rows[:limit]
        await self._prove_rows(rows, timestamp)
        slices = RowSlices.of(rows, rows_per_slice=rows_per_read)
        edges = [
            edge
            for column in self.columns
            if (edge := data_edges(column, slices, directory_path=self.directory_path)) is not None
        ]
        found = await gather_or_cancel([self._data_ranges_of(edge) for edge in edges])
        return slices, {edge.column.index: ranges for edge, ranges in zip(edges, found, strict=True)}

    async def _rows_between(self, timestamp: NativeColumn | None, lower: int | None, upper: int | None) -> range:
        """Find the rows of a time range."""
        if timestamp is None:
            return range(self.row_count)
        path = self._data_path(timestamp)
        if timestamp.top != 0:
            raise FormatError(
                f"column {timestamp.name!r} is the designated timestamp, but _cv says that"
                f" {'all' if timestamp.top is None else f'the first {timestamp.top:,}'} rows of the partition were"
                " written without it; _cv and _meta do not belong together",
                path=path,
                field="column_top",
            )
        search = TimeSearch(self.row_count, lower=lower, upper=upper, path=path)
        width_bytes = 8
        while wanted := search.wanted():
            ranges = [ByteRange(width_bytes * rows.start, width_bytes * rows.stop) for rows in wanted]
            least_bytes = width_bytes * self.row_count
            answers = await gather_or_cancel(
                [self._fetch(path, byte_range, TIME_SEARCH, least_bytes=least_bytes) for byte_range in ranges]
            )
            for rows, answer in zip(wanted, answers, strict=True):
                search.receive(rows, np.frombuffer(answer, dtype="<i8"))
        return search.rows

    async def _prove_rows(self, rows: range, timestamp: NativeColumn | None) -> None:
        """Make sure that a file has as many rows as are claimed, where believing it would cost much."""
        for column in (*([timestamp] if timestamp is not None else []), *self.columns):
            stored_rows = rows.stop - (column.top or 0)
            layout = column.layout
            if stored_rows <= 0:
                continue
            if isinstance(layout, VariableLayout):
                path, needed_bytes = self._auxiliary_path(column), stored_rows * layout.entry_bytes
            else:
                path, needed_bytes = self._data_path(column), stored_rows * layout.width_bytes
            await self._prove_length(path, needed_bytes, TIME_SEARCH)
            return
        if rows.stop > _LARGEST_UNPROVEN_ROWS:
            raise FormatError(
                f"_txn claims that the partition has {rows.stop:,} rows; it is damaged",
                path=self.directory_path,
                field="row_count",
            )

    async def _data_ranges_of(self, edges: DataEdges) -> tuple[IntArray, IntArray]:
        wanted = edges.wanted(gap_bytes=_GAP_BYTES)
        answers = await gather_or_cancel([self._fetch(edges.path, byte_range, OFFSETS) for byte_range in wanted])
        starts, stops = edges.data_ranges(
            [(byte_range.start, answer) for byte_range, answer in zip(wanted, answers, strict=True)]
        )
        await self._prove_length(self._data_path(edges.column), int(stops.max(initial=0)), OFFSETS)
        return starts, stops

    async def _prove_length(self, path: str, length_bytes: int, reason: str) -> None:
        if length_bytes > _UNPROVEN_BYTES:
            await self._fetch(path, ByteRange(length_bytes - 1, length_bytes), reason)

    def _data_path(self, column: NativeColumn) -> str:
        return f"{self.directory_path}/{data_file_name(column.name, column.name_txn)}"

    def _auxiliary_path(self, column: NativeColumn) -> str:
        return f"{self.directory_path}/{auxiliary_file_name(column.name, column.name_txn)}"

    async def _fetch(self, path: str, byte_range: ByteRange, reason: str, *, least_bytes: int | None = None) -> bytes:
        try:
            return await fetch_committed(self.store, path, byte_range, reason, self.spent, least_bytes=least_bytes)
        except NotFoundError as error:
            raise missing_column_file(path) from error


MISSING_COLUMN_FILE = "MissingColumnFile"
"""Kind of the error about a native partition without one of its files."""
MISSING_FOR_QUESTDB = (
    "QuestDB cannot read the partition either. QuestDB 9.3.4 makes such partitions with CONVERT PARTITION TO NATIVE after a column"
    " was renamed: it writes the column's file under its old name. Give the file the name that is missing, or restore it"
)


def missing_column_file(path: str) -> NotFoundError:
    """Make the error for a column file that does not exist."""
    return NotFoundError(
        "a column file of a native partition is missing. If a QuestDB has replaced the partition since the table was opened,"
        f" refresh the table and plan again. If the file is missing then, too, {MISSING_FOR_QUESTDB}",
        kind=MISSING_COLUMN_FILE,
        path=path,
    )


def _has_bytes(column: NativeColumn, row_count: int) -> bool:
    return column.top is not None and column.top < row_count
