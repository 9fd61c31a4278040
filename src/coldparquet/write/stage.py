"""Writes the rows of one task, partition by partition, into directories that readers ignore until the commit."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from coldparquet.catalog.table_files import read_table_files
from coldparquet.concurrency import run_to_end
from coldparquet.errors import InternalError, InvalidInputError, NotFoundError, UnsupportedError
from coldparquet.format.native import OFFSETS_EXTENSION, symbol_file_name
from coldparquet.format.partition_names import partition_floor_ns
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.opening import open_partition, open_table
from coldparquet.options import ReadOptions
from coldparquet.records import replace
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.urls import shown_url
from coldparquet.table_scan import Scan
from coldparquet.write.begin import write_conflict
from coldparquet.write.columns import check_same_columns, conformed
from coldparquet.write.files import open_place
from coldparquet.write.partition import write_partition
from coldparquet.write.rewrite import TableSymbols
from coldparquet.write.rows import RunWriter, SortedRuns, merge_sorted, partitions_of, read_run, schema_and_batches

if TYPE_CHECKING:
    import threading
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from coldparquet.catalog.partition import Partition
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.format.table_metadata import MetadataColumn
    from coldparquet.table import Table
    from coldparquet.write.begin import TableShape, TableWrite
    from coldparquet.write.files import LocalFiles, StoreAccess, TablePlace
    from coldparquet.write.rows import Rows


_SCANS_AT_ONCE = 8
"""Most partitions that are read at the same time."""


class _ExistingRows:
    """The rows of a table when a write began."""

    def __init__(self, table: Table, shape: TableShape) -> None:
        self._shape = shape
        self._scan = table.scan()
        self._pieces: dict[int, list[Partition]] = {}
        for partition in table.partitions:
            record = partition.location.record
            if record is not None:
                self._pieces.setdefault(floor_of(record, shape), []).append(partition)

    def has(self, timestamp: int) -> bool:
        """Tell whether there is a partition that begins at a timestamp."""
        return timestamp in self._pieces

    def row_count(self, timestamp: int) -> int:
        """Return how many rows the partition that begins at a timestamp has."""
        return sum(piece.location.record.row_count for piece in self._pieces[timestamp] if piece.location.record)

    async def spool(self, timestamp: int, path: str) -> None:
        """Copy the rows of the partition that begins at a timestamp, all pieces of it, into a sorted run.

        Requests: those of a scan of the partition.
        """
        pieces = self._pieces[timestamp]
        for piece in pieces:
            if piece.location.record is not None:
                check_replaceable(piece.location.record, piece.location.directory_path)
        question = self._scan.question
        question = replace(question, snapshot=replace(question.snapshot, partitions=tuple(pieces)))
        scan = Scan(question=question, executor=self._scan.executor, schema=self._scan.schema)
        await _spool(scan, path, self._shape)


@asynccontextmanager
async def _existing_rows(place: TablePlace, write: TableWrite) -> AsyncIterator[_ExistingRows | None]:
    """Open the table to which rows are added; None where no existing rows must stay.

    Requests: those of opening a table.
    """
    if write.is_new_table or write.mode == "overwrite":
        yield None
        return
    options = _read_options(write)
    async with open_table(
        place.path, store=place.bare_store, options=options, store_options=place.store_options
    ) as table:
        files = table.scan().question.snapshot.files
        if files is None:
            raise write_conflict(place.path)
        write.check_state(files.transaction, place.path)
        yield _ExistingRows(table, write.shape())


def floor_of(record: PartitionRecord, shape: TableShape) -> int:
    """Return the start of the partition of a record, which may be of a piece of it; in the unit of the table."""
    unit_ns = 1 if shape.is_nanosecond else 1000
    return partition_floor_ns(record.timestamp * unit_ns, shape.interval) // unit_ns


def check_replaceable(record: PartitionRecord, path: str) -> None:
    """Check that a partition may be replaced by one in Parquet."""
    if not record.is_parquet:
        raise UnsupportedError(
            "the rows belong to a partition in QuestDB's own format; let QuestDB convert it first: ALTER TABLE ... CONVERT"
            " PARTITION TO PARQUET",
            kind="NativePartition",
            path=path,
        )
    if record.is_read_only:
        raise InvalidInputError(
            "the rows belong to a partition that is attached read-only; detach it first",
            kind="ReadOnlyPartition",
            path=path,
        )


async def _spool(scan: Scan, path: str, shape: TableShape) -> None:
    run = RunWriter(path)
    try:
        async with scan.batches() as batches:
            async for batch in batches:
                rows = await asyncio.to_thread(conformed, batch, shape.schema, timestamp=shape.timestamp)
                await asyncio.to_thread(run.write, rows)
    finally:
        run.close()


def _read_options(write: TableWrite) -> ReadOptions:
    return ReadOptions(
        symbols="string", strings="string", memory_limit_bytes=max(1, write.memory_limit_bytes // _SCANS_AT_ONCE)
    )


_SMALL_PARTITION_BYTES = 8 * 1024 * 1024
"""Rows of partitions up to this size are held in memory, so that several of them can be written at once."""

_PARTITIONS_AT_ONCE = 8
"""Enough to overlap the requests of small partitions; a large one is written alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """A written partition directory before the commit: plain data, sent from a task to the driver."""

    timestamp: int
    """Start of the partition, in the unit of the table."""
    version: int
    """Suffix of the directory."""
    is_whole: bool
    """Whether it has all rows of the partition; otherwise it must be joined with other parts."""
    new_rows: int
    """Rows in it that this write adds."""
    row_count: int
    parquet_size_bytes: int
    first_timestamp: int
    """Designated timestamp of the first row, in the unit of the table."""
    last_timestamp: int
    """The same of the last row."""


async def stage_rows(
    write: TableWrite,
    rows: Rows,
    *,
    attempt: int,
    clustered: bool,
    files: LocalFiles | None = None,
    **access: Unpack[StoreAccess],
) -> tuple[StagedPart, ...]:
    """Write the rows of one task: one directory for each of their partitions.

    Memory holds ``TableWrite.memory_limit_bytes`` of rows, as much again while they are sorted, and those of a row
    group. Further rows are spooled to sorted runs on the local disk. If the call fails, its directories stay, invisible
    to readers, until the write is aborted or committed.

    Requests: for each partition those of :func:`~coldparquet.write.write_partition`; where rows are added to a table
    by a task that has all of a partition, those of opening the table and of a scan of the partition before.

    Args:
        write: From ``begin_write``.
        rows: In any order; equal timestamps keep theirs.
        attempt: A number unique among the tasks of this write and their attempts; Spark calls it the task attempt id.
        clustered: Whether no other task has rows of the same partitions. Parts are then whole, and need no joining.
        files: How to write to the local disk; for tests.
        **access: How to reach the store.

    Returns:
        The parts, in time order.

    Raises:
        InvalidInputError: The rows do not have the columns of the table (kind ``SchemaMismatch``), or a value does not
            fit its column (``DoesNotFit``, ``NullValue``, ``RaggedArray``, ``UnknownSymbol``).
        UnsupportedError: Rows belong to a partition that is not in Parquet (kind ``NativePartition``).
        ObjectChangedError: Another writer has committed to the table (kind ``CommitConflict``).
        StorageError: A disk or the store failed.
    """
    shape = write.shape()
    try:
        schema, batches = schema_and_batches(rows)
    except InvalidInputError as error:
        if error.kind != "NoRows":
            raise
        return ()
    check_same_columns(shape.schema, schema, path=shown_url(write.url))
    with tempfile.TemporaryDirectory(prefix="coldparquet-") as directory:
        runs = SortedRuns(directory, timestamp=shape.timestamp, memory_limit_bytes=write.memory_limit_bytes)
        await run_to_end(partial(_collect, batches, runs, shape))
        version = write.versions.first + 2 * attempt
        async with _open_stager(write, version, has_all_rows=clustered, files=files, **access) as stager:
            return await stager.stage(runs.merged(), is_whole=clustered)


async def join_parts(
    write: TableWrite,
    parts: Sequence[StagedPart],
    *,
    attempt: int,
    files: LocalFiles | None = None,
    **access: Unpack[StoreAccess],
) -> tuple[StagedPart, ...]:
    """Merge the parts of each partition, and the rows that the table has for it, into one.

    Rows of equal timestamps keep their order: those of the table first, then those of the parts in the given order.

    Requests: none if all parts are whole. Otherwise those of opening the table, of a scan of each part and of its
    partition, and of writing it once more. A single part to which nothing is added takes none.

    Arguments and errors are those of :func:`stage_rows`; ``attempt`` is unique among the calls for this write, and may be
    that of a task. ``parts`` are all parts of some of the partitions. Returns one whole part for each, in time order.
    """
    of_partition: dict[int, list[StagedPart]] = {}
    for part in parts:
        of_partition.setdefault(part.timestamp, []).append(part)
    if len(of_partition) == len(parts) and all(part.is_whole for part in parts):
        return tuple(of_partition[timestamp][0] for timestamp in sorted(of_partition))
    version = write.versions.first + 2 * attempt + 1
    async with _open_stager(write, version, has_all_rows=True, files=files, **access) as stager:
        return tuple([await stager.join(of_partition[timestamp]) for timestamp in sorted(of_partition)])


@asynccontextmanager
async def _open_stager(
    write: TableWrite, version: int, *, has_all_rows: bool, files: LocalFiles | None, **access: Unpack[StoreAccess]
) -> AsyncIterator[_Stager]:
    """Open the table for a block. Requests: those of opening it where existing rows must stay, and of symbol keys."""
    async with AsyncExitStack() as opened:
        place = await opened.enter_async_context(open_place(write.url, **access))
        yield _Stager(
            place=place,
            write=write,
            shape=write.shape(),
            version=version,
            existing=await opened.enter_async_context(_existing_rows(place, write)) if has_all_rows else None,
            symbols=await _symbol_keys(place, write),
            directory=opened.enter_context(tempfile.TemporaryDirectory(prefix="coldparquet-")),
            files=files,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stager:
    """Writes partitions under one version."""

    place: TablePlace
    write: TableWrite
    shape: TableShape
    version: int
    existing: _ExistingRows | None
    """Rows to which those of a whole partition are added; None where none must stay."""
    symbols: Mapping[str, pa.StringArray]
    directory: str
    """Directory on the local disk, for runs."""
    files: LocalFiles | None

    async def stage(self, rows: Iterable[pa.RecordBatch], *, is_whole: bool) -> tuple[StagedPart, ...]:
        """Write sorted rows, several small partitions at once."""
        shape = self.shape
        groups = partitions_of(
            rows, timestamp=shape.timestamp, interval=shape.interval, is_nanosecond=shape.is_nanosecond
        )
        slots = asyncio.Semaphore(_PARTITIONS_AT_ONCE)
        writing: list[asyncio.Task[StagedPart]] = []

        async def write_one(timestamp: int, batches: Iterable[pa.RecordBatch]) -> StagedPart:
            try:
                return await self._write(timestamp, batches, is_whole=is_whole)
            finally:
                slots.release()

        try:
            async with asyncio.TaskGroup() as tasks:
                while (group := await asyncio.to_thread(next, groups, None)) is not None:
                    timestamp, batches = group
                    small, rest = await asyncio.to_thread(_first_rows, batches)
                    await slots.acquire()
                    task = tasks.create_task(write_one(timestamp, small if rest is None else chain(small, rest)))
                    writing.append(task)
                    if rest is not None:  # the stream holds more rows
                        await asyncio.wait([task])
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors.exceptions[0].__cause__
        return tuple(task.result() for task in writing)

    async def join(self, parts: Sequence[StagedPart]) -> StagedPart:
        """Merge the parts of one partition with each other and with the existing rows."""
        timestamp = parts[0].timestamp
        if len(parts) > 1 and any(part.is_whole for part in parts):
            raise InternalError("several tasks say that they have all rows of a partition", path=self.write.url)
        if parts[0].is_whole:
            return parts[0]
        if len(parts) == 1 and (self.existing is None or not self.existing.has(timestamp)):
            return replace(parts[0], is_whole=True)
        runs = []
        for number, part in enumerate(parts):
            runs.append(f"{self.directory}/{timestamp}-{number}.run")
            async with open_partition(
                self._directory_path(timestamp, part.version),
                store=self.place.bare_store,
                options=_read_options(self.write),
                store_options=self.place.store_options,
            ) as staged:
                await _spool(staged.scan(), runs[-1], self.shape)
        return await self._write(timestamp, self._merged(runs), is_whole=True)

    async def _write(self, timestamp: int, rows: Iterable[pa.RecordBatch], *, is_whole: bool) -> StagedPart:
        """Write one partition: these rows, and the existing ones if they stay."""
        existing_row_count = 0
        path = f"{self.directory}/{timestamp}.run"
        if self.existing is not None and self.existing.has(timestamp):
            existing_row_count = self.existing.row_count(timestamp)
            await self.existing.spool(timestamp, path)
            rows = merge_sorted([read_run(path), rows], timestamp=self.shape.timestamp)
        written = await write_partition(
            self._directory_path(timestamp, self.version),
            rows,
            timestamp=self.shape.timestamp,
            symbols=self.symbols,
            options=self.write.options,
            store=self.place.bare_store,
            store_options=self.place.store_options,
            files=self.files,
        )
        if existing_row_count:
            Path(path).unlink()  # noqa: ASYNC240 - of the local disk, at once
        if written.first_timestamp is None or written.last_timestamp is None:
            raise InternalError("a partition with a designated timestamp has bounds", path=written.directory)
        return StagedPart(
            timestamp=timestamp,
            version=self.version,
            is_whole=is_whole,
            new_rows=written.row_count - existing_row_count,
            row_count=written.row_count,
            parquet_size_bytes=written.parquet_size_bytes,
            first_timestamp=written.first_timestamp,
            last_timestamp=written.last_timestamp,
        )

    def _merged(self, runs: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Merge runs, and remove them afterwards."""
        yield from merge_sorted([read_run(run) for run in runs], timestamp=self.shape.timestamp)
        for run in runs:
            Path(run).unlink()

    def _directory_path(self, timestamp: int, version: int) -> str:
        return f"{self.place.path}/{self.shape.directory_name(timestamp, version)}"


def _collect(batches: Iterable[pa.RecordBatch], runs: SortedRuns, shape: TableShape, give_up: threading.Event) -> None:
    for batch in batches:
        if give_up.is_set():
            raise asyncio.CancelledError
        runs.add(conformed(batch, shape.schema, timestamp=shape.timestamp))


def _first_rows(batches: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch] | None]:
    """Take all rows of a small partition, or the first rows of a large one and the rest of the stream."""
    taken, taken_bytes = [], 0
    for batch in batches:
        taken.append(batch)
        taken_bytes += batch.nbytes
        if taken_bytes > _SMALL_PARTITION_BYTES:
            return taken, batches
    return taken, None


async def _symbol_keys(place: TablePlace, write: TableWrite) -> Mapping[str, pa.StringArray]:
    """Return the symbols of the columns whose symbols QuestDB has numbered.

    Requests: none for a new table or one without SYMBOL columns; otherwise 3 that read table files, and 1 or 3 per column.
    """
    columns = [
        column for column in parse_table_metadata(write.metadata, path=None).columns if column.symbol_index is not None
    ]
    if write.is_new_table or not columns:
        return {}
    files = await read_table_files(place.store, place.path, column_versions_for="symbols")
    if files is None:
        raise write_conflict(place.path)
    write.check_state(files.transaction, place.path)
    known = TableSymbols(CheckedStore(place.store), place.path, files)
    keys = {}
    for column in columns:
        symbols = await known.of(column.writer_index) if await _is_numbered(place, files, column) else None
        if symbols is not None:
            keys[column.name] = symbols
    return keys


async def _is_numbered(place: TablePlace, files: TableFiles, column: MetadataColumn) -> bool:
    """Tell whether QuestDB has numbered the symbols of a column; else each file numbers its own. 1 request."""
    if files.column_versions is None:
        return False
    name_txn = files.column_versions.symbol_name_txn(column.writer_index)
    try:
        await place.store.info(f"{place.path}/{symbol_file_name(column.name, OFFSETS_EXTENSION, name_txn)}")
    except NotFoundError:
        return False
    return True
