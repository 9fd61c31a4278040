"""Plans partitions in QuestDB's native format: which rows, where their data is, symbols.

Such a partition has no metadata of its own. The table's ``_txn`` has the number of committed rows; ``_cv`` has names
and tops of the columns. Small reads of the column files find the rest. A running QuestDB may append to all these files
meanwhile; committed rows do not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from coldparquet.catalog.symbol_dictionaries import SymbolDictionaries, fetch_committed
from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.errors import FormatError, InternalError, NotFoundError
from coldparquet.format.native import VariableLayout, auxiliary_file_name, data_file_name
from coldparquet.plan.model import PartitionRead, Read
from coldparquet.plan.native import NativeColumn, NativeSymbol, RowSlices, TimeSearch, data_edges, native_reads
from coldparquet.plan.prune import is_time_range, timestamp_bounds
from coldparquet.ranges import ByteRange
from coldparquet.scan.missing import missing_column_file
from coldparquet.scan.model import KnownPartition, PartitionPlan
from coldparquet.storage.log import metadata_requests

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.catalog.partition import Partition
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.format.table_metadata import MetadataColumn
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.native import DataEdges, IntArray
    from coldparquet.scan.model import Question
    from coldparquet.storage.base import ObjectStore


TIME_SEARCH = "time search"
"""Reason of the requests that search the rows of a time range."""
OFFSETS = "offsets"
"""Reason of the requests that find the data of the first and the last row of a slice."""
_GAP_BYTES = 64 * 1024
"""Offsets at most this far apart are fetched as one range: that many bytes hardly take longer than a few."""

_UNPROVEN_BYTES = 256 * 1024 * 1024
"""Up to this length, the length of a file that ``_txn`` or another file states is trusted. Beyond it, the last byte is
fetched before requests are planned and memory is taken: damaged files may claim any length."""

_LARGEST_UNPROVEN_ROWS = 1 << 36
"""Limit where no file can prove the number of rows; larger than any partition."""


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
) -> tuple[Read, ...]:
    """Find the rows of a time range in a native partition, and the byte ranges of the columns to read.

    Requests: those of the time search, if there is a bound. It takes one for each 8,192 rows or less, else about three
    round trips of 32 for each bound. Then, in parallel, one per slice and column of variable size; small slices
    share requests. In parallel with these, two in sequence per symbol column with an unknown dictionary.
    """
    planning = _Planning(
        store=store,
        directory_path=directory_path,
        row_count=row_count,
        columns=[column for column in columns if _has_bytes(column, row_count)],
    )
    symbol_columns = [column for column in planning.columns if column.symbol is not None]
    (slices, data_ranges), strings = await both(
        planning.find(timestamp, time_bounds, rows_per_read=rows_per_read, limit=limit if all_rows_match else None),
        gather_or_cancel([symbols.get(column) for column in symbol_columns]),
    )
    return native_reads(
        slices,
        columns,
        directory_path=directory_path,
        partition_index=partition_index,
        data_ranges=data_ranges,
        symbols={column.index: found for column, found in zip(symbol_columns, strings, strict=True)},
        all_rows_match=all_rows_match,
    )


class _Planning(Struct, frozen=True, kw_only=True):
    """The small reads that plan one partition."""

    store: ObjectStore
    directory_path: str
    row_count: int
    columns: list[NativeColumn]
    """Columns with bytes in the partition."""

    async def find(
        self,
        timestamp: NativeColumn | None,
        time_bounds: tuple[int | None, int | None],
        *,
        rows_per_read: int,
        limit: int | None,
    ) -> tuple[RowSlices, dict[int, tuple[IntArray, IntArray]]]:
        """Find the slices, and by position in the table where the data of each variable-size column is."""
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
        """Check that a file has the claimed number of rows, where a wrong claim would cost much."""
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
            return await fetch_committed(self.store, path, byte_range, reason, least_bytes=least_bytes)
        except NotFoundError as error:
            raise missing_column_file(path) from error


def _has_bytes(column: NativeColumn, row_count: int) -> bool:
    return column.top is not None and column.top < row_count


_MOST_ROWS_PER_READ = 262_144
"""Rows of a native partition fetched and decoded together: 2 MiB of a 64-bit column."""
_LEAST_ROWS_PER_READ = 8_192
_READS_IN_MEMORY = 4
"""Number of reads that should fit into the memory of a scan, counting the fixed-width columns."""


async def read_native_metadata(question: Question, partition: Partition, index: int) -> KnownPartition:
    """Find the places of a partition's rows in native files.

    Requests: see :func:`coldparquet.scan.native.plan_native_rows`.
    """
    partition.check_flags()
    snapshot = question.snapshot
    if snapshot.symbol_dictionaries is None:
        raise InternalError("a native partition is only known from a transaction")
    timestamp = snapshot.designated_timestamp
    all_rows_match = question.predicate is None or is_time_range(question.predicate, timestamp)
    wanted = question.output_columns if all_rows_match else question.needed_columns
    native = _native_columns(question, partition, wanted)
    found_by = None if timestamp is None else _native_columns(question, partition, [snapshot.columns[timestamp]])[0]
    with metadata_requests() as requests:
        reads = await plan_native_rows(
            snapshot.store,
            directory_path=partition.directory_path,
            partition_index=index,
            row_count=partition.rows or 0,
            columns=native,
            timestamp=found_by,
            time_bounds=timestamp_bounds(question.predicate, timestamp),
            rows_per_read=_rows_per_read(native, question.options.memory_limit_bytes),
            all_rows_match=all_rows_match,
            limit=question.limit,
            symbols=snapshot.symbol_dictionaries,
        )
    return KnownPartition(partition=partition, metadata=None, native_reads=reads, requests=tuple(requests))


def plan_native(known: KnownPartition, *, rows_left: int | None) -> PartitionPlan:
    """Plan a native partition whose rows are known. No request."""
    partition, reads = known.partition, list[Read]()
    for read in known.native_reads:
        if rows_left is not None and rows_left <= 0:
            break
        reads.append(read)
        if rows_left is not None and read.all_rows_match:
            rows_left -= read.row_count
    return PartitionPlan(
        read=PartitionRead(
            name=partition.name,
            data_path=partition.directory_path,
            parquet_size_bytes=None,
            metadata_source="native",
            row_groups_total=0,
            row_groups_read=0,
            rows_total=partition.rows or 0,
            rows_read=sum(read.row_count for read in reads),
        ),
        row_groups=tuple(reads),
        known=known,
        estimate=None,
    )


def _rows_per_read(columns: Sequence[NativeColumn], memory_limit_bytes: int) -> int:
    """Choose how many rows to fetch and decode together; the length of texts is unknown at this point."""
    row_bytes = sum(
        layout.entry_bytes if isinstance(layout := column.layout, VariableLayout) else layout.width_bytes
        for column in columns
    )
    fitting = memory_limit_bytes // (_READS_IN_MEMORY * max(row_bytes, 1))
    return max(_LEAST_ROWS_PER_READ, min(fitting, _MOST_ROWS_PER_READ))


def _native_columns(question: Question, partition: Partition, columns: Sequence[TableColumn]) -> list[NativeColumn]:
    """Return the names of column files in a native partition, and where their rows begin."""
    files, record = question.snapshot.files, partition.location.record
    if files is None or record is None:
        raise InternalError("a native partition is only known from a transaction")
    by_id: Mapping[int, MetadataColumn] = {column.writer_index: column for column in files.metadata.columns}
    return [_native_column(column, by_id[column.id], files, record.timestamp) for column in columns]


def _native_column(
    column: TableColumn, described: MetadataColumn, files: TableFiles, partition_timestamp: int
) -> NativeColumn:
    versions, symbol = files.column_versions, None
    if versions is None:
        raise InternalError("column versions are read for every table with native partitions")
    version = versions.column(partition_timestamp, described.writer_index)
    if described.symbol_index is not None:
        symbol = NativeSymbol(
            count=files.transaction.symbol_counts[described.symbol_index],
            name_txn=versions.symbol_name_txn(described.writer_index),
        )
    return NativeColumn(
        index=column.index,
        name=column.name,
        type=column.readable_type,
        name_txn=version.name_txn,
        top=version.top,
        symbol=symbol,
    )
