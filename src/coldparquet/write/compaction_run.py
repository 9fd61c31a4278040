"""One run of a compaction: look at all partitions, write the due ones anew one after the other, commit each."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.concurrency import TableThreads, gather_or_cancel
from coldparquet.discovery import discover
from coldparquet.errors import (
    ColdParquetError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    StorageError,
)
from coldparquet.format.page_counts import count_pages, offset_index_span
from coldparquet.format.partition_names import parse_partition_directory
from coldparquet.index import PartitionIndexer
from coldparquet.options import ReadOptions
from coldparquet.plan.explain import few_names
from coldparquet.publish.published import is_manifest_name
from coldparquet.storage.base import RangeRequest
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.limit import LimitedStore
from coldparquet.storage.upload import MemoryBudget
from coldparquet.table_files import read_table_files
from coldparquet.write.compaction_plan import (
    DuePartition,
    chosen_partitions,
    failed,
    file_shape,
    look_at_partition,
)
from coldparquet.write.compaction_report import (
    CompactedPartition,
    CompactionOptions,
    CompactionProgress,
    CompactionReport,
    FileShape,
)
from coldparquet.write.local_files import FileOperations, LocalFiles
from coldparquet.write.new_version import carried_files, remove_version, write_local_version, write_object_version
from coldparquet.write.partition_rewriter import PartitionRewriter
from coldparquet.write.rewrite_source import read_rewrite_source, scan_as_stored
from coldparquet.write.server_lock import no_server
from coldparquet.write.superseded import purge_superseded
from coldparquet.write.table_commit import check_nothing_unfinished, commit_partitions
from coldparquet.write.table_symbols import TableSymbols

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from coldparquet.format.partition_names import PartitionDirectory
    from coldparquet.format.partition_records import PartitionRecord, PartitionRecords
    from coldparquet.partition import PartitionLocation
    from coldparquet.storage.base import Listing, ObjectStore
    from coldparquet.table_files import TableFiles
    from coldparquet.write.options import WriteOptions
    from coldparquet.write.partition_rewriter import RewrittenFiles
    from coldparquet.write.rewrite_source import PartitionFooter, RewriteSource

_COMMIT_ATTEMPTS = 5
"""Others may commit to other partitions of the table at the same time."""


class CompactionRun:
    """One run of a compaction.

    Args:
        store: Where the table lies; it must not pin versions.
        path: Its directory, without a trailing slash.
        options: How to compact.
        files: How to write to the local disk; None if the table does not lie there.
        on_progress: See :func:`~coldparquet.write.compact.compact_table`.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        options: CompactionOptions,
        files: FileOperations | None,
        on_progress: Callable[[CompactionProgress], None] | None,
    ) -> None:
        self._store = LimitedStore(store, max_concurrency=options.max_concurrency)
        self._path = path
        self._options = options
        self._files = files
        self._on_progress = on_progress
        self._threads = TableThreads(None)
        self._read_options = ReadOptions(
            max_concurrency=options.max_concurrency, memory_limit_bytes=options.memory_limit_bytes
        )
        self._table: TableFiles | None = None
        self._taken_versions: dict[str, set[int]] = {}
        self._progress = CompactionProgress(written_rows=0, total_rows=0, finished_partitions=0, total_partitions=0)

    def close(self) -> None:
        """Let go of the threads."""
        self._threads.close()

    async def compact(
        self, label: str, names: Collection[str] | None, *, force: bool, dry_run: bool, purge: bool
    ) -> CompactionReport:
        """Do everything, one partition after the other."""
        started_s = time.monotonic()
        with contextlib.nullcontext() if self._files is None else no_server(self._path):
            found = await discover(self._store, self._path)
            if any(location.directory_path == self._path for location in found.locations):
                raise InvalidInputError(
                    "this is one partition; its table's directory is needed, in which the new version of it will lie",
                    kind="NotATable",
                    path=self._path,
                )
            if found.files is not None:
                await check_nothing_unfinished(self._store, self._path)
                self._check_named_columns(found.files)
            self._table = found.files
            listing = await self._store.list(self._path)
            self._taken_versions = _versions(listing)
            done = await self._compact_partitions(
                chosen_partitions(found.locations, names, self._path), force=force, dry_run=dry_run
            )
            purged = await self._purge(dry_run=dry_run) if purge else ()
        return CompactionReport(
            url=label,
            source=found.source,
            txn=None if self._table is None else self._table.transaction.txn,
            is_dry_run=dry_run,
            partitions=tuple(done),
            purged=purged,
            notes=tuple(_notes(listing)),
            elapsed_s=time.monotonic() - started_s,
        )

    async def _compact_partitions(
        self, locations: tuple[PartitionLocation, ...], *, force: bool, dry_run: bool
    ) -> list[CompactedPartition]:
        slots = asyncio.Semaphore(self._options.max_concurrency)

        async def look_at(location: PartitionLocation) -> DuePartition | CompactedPartition:
            async with slots:
                return await look_at_partition(
                    CheckedStore(self._store),
                    location,
                    self._read_options,
                    row_group_rows=self._options.write.row_group_rows,
                    force=force,
                )

        seen = await gather_or_cancel([look_at(location) for location in locations])
        due = [one for one in seen if isinstance(one, DuePartition)]
        self._report_progress(total_rows=sum(one.footer.parsed.row_count for one in due), total_partitions=len(due))
        done = []
        for one in seen:
            if isinstance(one, DuePartition):
                done.append(_would_compact(one) if dry_run else await self._compact_one(one))
            else:
                done.append(one if dry_run else await self._complete(one, locations[len(done)]))
        return done

    async def _compact_one(self, due: DuePartition) -> CompactedPartition:
        """Write one partition anew, and commit it; only bugs raise."""
        before = self._progress
        try:
            done = await self._rewrite(due)
        except ColdParquetError as error:
            done = replace(failed(due.location, error), rows=due.footer.parsed.row_count, before=file_shape(due.footer))
        self._report_progress(
            written_rows=before.written_rows + due.footer.parsed.row_count,
            finished_partitions=before.finished_partitions + 1,
        )
        return done

    async def _rewrite(self, due: DuePartition) -> CompactedPartition:
        location, store = due.location, CheckedStore(self._store)
        symbols = TableSymbols(store, self._path, self._table)
        source = await read_rewrite_source(store, due.footer, self._read_options, symbols)
        version = self._next_version(location)
        new_name = f"{_directory(location).base_name}.{version}"
        scan = scan_as_stored(source, store, self._read_options, self._threads)
        carried = await carried_files(self._store, location.directory_path)
        async with scan.batches() as stream:
            rewriter = PartitionRewriter(
                source=source,
                stream=stream,
                schema=scan.schema,
                loop=asyncio.get_running_loop(),
                options=self._write_options(source),
                files=self._files or LocalFiles(),
                on_rows=self._note_rows,
            )
            path = f"{self._path}/{new_name}"
            if self._files is None:
                memory = MemoryBudget(self._options.memory_limit_bytes)
                written = await write_object_version(self._store, path, rewriter, carried, memory=memory)
            else:
                written = await write_local_version(path, rewriter, carried)
        if self._table is not None:
            await self._commit(self._table, location, version, written)
        page_count = await self._count_pages(due.footer, store)
        return CompactedPartition(
            name=location.name,
            action="compacted",
            reason=due.reason,
            new_name=new_name,
            rows=due.footer.parsed.row_count,
            before=file_shape(due.footer, page_count=page_count),
            after=FileShape(
                parquet_size_bytes=written.parquet_size_bytes,
                unused_bytes=0,
                row_groups=written.row_group_count,
                pages=written.page_count,
            ),
        )

    def _check_named_columns(self, table: TableFiles) -> None:
        names = {column.name for column in table.metadata.columns}
        unknown = sorted(self._options.write.named_columns() - names)
        if unknown:
            raise InvalidInputError(
                f"the options name columns that the table does not have: {few_names(unknown)}",
                kind="UnknownColumn",
                field=unknown[0],
            )

    def _write_options(self, source: RewriteSource) -> WriteOptions:
        """Say how to store a partition: options name columns as the table does, files as it did when they were written.

        Columns that have bloom filters keep them.
        """
        options = self._options.write
        if self._table is not None:
            names = {column.writer_index: column.name for column in self._table.metadata.columns}
            in_table = {
                column.name: names[column.id]
                for column in source.columns
                if column.id is not None and column.id in names
            }
            options = _renamed(options, in_table)
        blooms = dict.fromkeys((*options.bloom_columns, *source.bloom_columns))
        return replace(options, bloom_columns=tuple(blooms))

    def _next_version(self, location: PartitionLocation) -> int:
        """Return a version that no directory of the partition has, for a directory that the next transaction names."""
        taken = self._taken_versions[_directory(location).base_name]
        version = max(0, *taken) + 1 if self._table is None else self._table.transaction.txn
        while version in taken:
            version += 1
        taken.add(version)
        return version

    async def _commit(
        self, table: TableFiles, location: PartitionLocation, version: int, written: RewrittenFiles
    ) -> None:
        """Let the table name the new version, if its partition is still the one that was read."""
        if location.record is None:
            raise InternalError("a partition of a transaction has a record", path=location.directory_path)
        committed = replace(location.record, name_txn=version, parquet_size=written.parquet_size_bytes)
        for _ in range(_COMMIT_ATTEMPTS):
            found = _record_at(table.records, location.record.timestamp)
            if found == committed:  # by a request that seemed to fail
                break
            self._table = table
            if found != location.record:
                await remove_version(self._store, f"{self._path}/{_directory(location).base_name}.{version}")
                raise ObjectChangedError(
                    "the partition was changed while it was written anew; compact it again",
                    kind="PartitionChanged",
                    path=location.directory_path,
                )
            try:
                table = await commit_partitions(
                    self._store,
                    self._path,
                    started_from=table,
                    partitions=_with_version(table.records, committed),
                    least_txn=version + 1,
                )
            except ObjectChangedError:
                table = await self._read_table()
            else:
                break
        else:
            raise StorageError(
                "others keep committing to this table; compact it when there is less to do",
                kind="TableBusy",
                path=self._path,
            )
        self._table = table

    async def _read_table(self) -> TableFiles:
        table = await read_table_files(self._store, self._path)
        if table is None:
            raise NotFoundError("the table was removed", path=self._path)
        return table

    async def _complete(self, seen: CompactedPartition, location: PartitionLocation) -> CompactedPartition:
        """Write the sidecar that a run, cut off on an object store, has not written for a new version any more."""
        is_new_version = location.directory is not None and len(self._taken_versions[location.directory.base_name]) > 1
        if self._table is not None or seen.action != "kept" or not is_new_version:
            return seen
        indexer = PartitionIndexer(CheckedStore(self._store), self._read_options, replaces="none", dry_run=False)
        if (await indexer.index(location)).action != "written":
            return seen
        return replace(
            seen, action="compacted", reason="its sidecar was missing, because a run was cut off", after=seen.before
        )

    async def _count_pages(self, footer: PartitionFooter, store: ObjectStore) -> int | None:
        """Count the data pages of the old file. 1 request, none where its footer says that nobody knows."""
        span = offset_index_span(footer.parsed)
        if span is None:
            return None
        request = RangeRequest(
            path=footer.location.data_path,
            byte_range=span,
            reason="Parquet footer",
            may_grow=footer.location.record is not None,
        )
        return await asyncio.to_thread(count_pages, footer.parsed, (await store.get(request)).data, span)

    async def _purge(self, *, dry_run: bool) -> tuple[str, ...]:
        before_s = time.time() - self._options.purge_after_s
        return await purge_superseded(self._store, self._path, before_s=before_s, dry_run=dry_run, files=self._files)

    def _note_rows(self, row_count: int) -> None:
        self._report_progress(written_rows=self._progress.written_rows + row_count)

    def _report_progress(self, **changes: int) -> None:
        self._progress = replace(self._progress, **changes)
        if self._on_progress is not None:
            self._on_progress(self._progress)


def _renamed(options: WriteOptions, names: Mapping[str, str]) -> WriteOptions:
    """Return options for the columns of one file, given each one's name in the table; some have none any more."""
    return replace(
        options,
        column_codecs={
            name: options.column_codecs[known] for name, known in names.items() if known in options.column_codecs
        },
        column_encodings={
            name: options.column_encodings[known] for name, known in names.items() if known in options.column_encodings
        },
        bloom_columns=tuple(name for name, known in names.items() if known in options.bloom_columns),
    )


def _would_compact(due: DuePartition) -> CompactedPartition:
    return CompactedPartition(
        name=due.location.name,
        action="would compact",
        reason=due.reason,
        rows=due.footer.parsed.row_count,
        before=file_shape(due.footer),
    )


def _directory(location: PartitionLocation) -> PartitionDirectory:
    if location.directory is None:
        raise InternalError("partitions of a table are found by their names", path=location.directory_path)
    return location.directory


def _versions(listing: Listing) -> dict[str, set[int]]:
    """Return the versions that there are of each partition, whether the table names them or not."""
    versions: dict[str, set[int]] = defaultdict(set)
    for path in listing.directories:
        name = path.rpartition("/")[2]
        directory = parse_partition_directory(name)
        if directory is not None:
            versions[directory.base_name].add(directory.name_txn)
    return versions


def _record_at(records: PartitionRecords, timestamp: int) -> PartitionRecord | None:
    position = int(np.searchsorted(records.timestamps, timestamp))
    is_there = position < len(records) and int(records.timestamps[position]) == timestamp
    return records.record(position) if is_there else None


def _with_version(records: PartitionRecords, record: PartitionRecord) -> PartitionRecords:
    """Return all partitions, one of them with the version and the size of this record."""
    position = int(np.searchsorted(records.timestamps, record.timestamp))
    name_txns, sizes = records.name_txns.copy(), records.parquet_sizes.copy()
    name_txns[position], sizes[position] = record.name_txn, record.parquet_size
    return replace(records, name_txns=name_txns, parquet_sizes=sizes)


def _notes(listing: Listing) -> list[str]:
    names = (info.path.rpartition("/")[2] for info in listing.objects)
    if not any(map(is_manifest_name, names)):
        return []
    note = (
        "'coldparquet publish' made this copy of a table: publishing to it again would bring back the source's files,"
        " and is refused until the source is at a later transaction; it is better to compact the source"
    )
    return [note]
