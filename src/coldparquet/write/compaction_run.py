"""One run of a compaction: look at all partitions, write the due ones anew one after the other, commit each."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.catalog.discovery import chosen_partitions, discover
from coldparquet.catalog.page_lookup import PAGES_FILE
from coldparquet.concurrency import TableThreads, gather_or_cancel
from coldparquet.errors import (
    ColdParquetError,
    InternalError,
    InvalidInputError,
)
from coldparquet.format.page_counts import count_pages, offset_index_span
from coldparquet.format.partition_names import parse_partition_directory
from coldparquet.maintenance.index import PartitionIndexer
from coldparquet.maintenance.pack import renew_catalogue
from coldparquet.options import ReadOptions
from coldparquet.plan.wording import few_names
from coldparquet.publish.published import is_manifest_name
from coldparquet.storage.requests import RangeRequest
from coldparquet.storage.upload import MemoryBudget
from coldparquet.storage.wrappers.checked import CheckedStore
from coldparquet.write.compaction_plan import (
    DuePartition,
    failed,
    file_shape,
    look_at_partition,
    options_for_file,
)
from coldparquet.write.compaction_report import (
    CompactedPartition,
    CompactionOptions,
    CompactionProgress,
    CompactionReport,
    FileShape,
)
from coldparquet.write.local_files import FileOperations, LocalFiles
from coldparquet.write.new_version import carried_files, write_local_version, write_object_version
from coldparquet.write.partition_rewriter import PartitionRewriter
from coldparquet.write.rewrite_source import read_rewrite_source, scan_as_stored
from coldparquet.write.server_lock import no_server
from coldparquet.write.superseded import purge_superseded
from coldparquet.write.table_commit import check_nothing_unfinished
from coldparquet.write.table_symbols import TableSymbols
from coldparquet.write.version_commit import commit_version

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.format.partition_names import PartitionDirectory
    from coldparquet.maintenance.pack import PackReport
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import Listing
    from coldparquet.write.rewrite_source import PartitionFooter


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
        self._store = store
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

    async def compact(  # noqa: PLR0913 - what can be told is told by name
        self,
        label: str,
        names: Collection[str] | None,
        *,
        force: bool,
        dry_run: bool,
        purge: bool,
        pack: bool,
        leave_catalogue: bool,
    ) -> CompactionReport:
        """Do everything, one partition after the other."""
        started_s = time.monotonic()
        with contextlib.nullcontext() if self._files is None else no_server(self._path):
            found = await discover(self._store, self._path, column_versions_for="symbols")
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
            catalogue = None
            if not (dry_run or leave_catalogue):
                catalogue = await self._renew_catalogue(done, make=pack)
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
            catalogue=catalogue,
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
        page_count = await self._count_pages(due.footer, store)
        version = self._next_version(location)
        new_name = f"{_directory(location).base_name}.{version}"
        scan = scan_as_stored(source, store, self._read_options, self._threads)
        # Without a transaction no server can open the table, and nobody else reads its indexes.
        beside = () if self._table is None else await carried_files(self._store, location.directory_path)
        carried = tuple(file for file in beside if file.name != PAGES_FILE)  # it describes the old Parquet file
        options = options_for_file(self._options.write, source, self._table)
        if len(carried) < len(beside) and options.page_index:
            options = replace(options, pages=True)
        async with scan.batches() as stream:
            rewriter = PartitionRewriter(
                source=source,
                stream=stream,
                schema=scan.schema,
                loop=asyncio.get_running_loop(),
                options=options,
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
            self._table = await commit_version(
                self._store,
                self._path,
                location,
                version=version,
                parquet_size_bytes=written.parquet_size_bytes,
                table=self._table,
            )
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

    def _next_version(self, location: PartitionLocation) -> int:
        """Return a version that no directory of the partition has, for a directory that the next transaction names."""
        taken = self._taken_versions[_directory(location).base_name]
        version = max(0, *taken) + 1 if self._table is None else self._table.transaction.txn
        while version in taken:
            version += 1
        taken.add(version)
        return version

    async def _complete(self, seen: CompactedPartition, location: PartitionLocation) -> CompactedPartition:
        """Write the sidecar that a run, cut off on an object store, has not written for a new version any more."""
        is_new_version = location.directory is not None and len(self._taken_versions[location.directory.base_name]) > 1
        if self._table is not None or seen.action != "kept" or not is_new_version:
            return seen
        indexer = PartitionIndexer(CheckedStore(self._store), self._read_options, replaces="stale", dry_run=False)
        done = await indexer.index(location)
        if done.action != "written":
            return seen
        reason = done.reason if done.is_stale else "its sidecar was missing, because a run was cut off"
        return replace(seen, action="compacted", reason=reason, after=seen.before)

    async def _count_pages(self, footer: PartitionFooter, store: ObjectStore) -> int | None:
        """Count the data pages of the old file. 1 request, none where its footer says that nobody knows."""
        span = offset_index_span(footer.parsed)
        if span is None:
            return None
        request = RangeRequest(
            path=footer.location.data_path,
            byte_range=span,
            reason="Parquet footer",
            may_grow=footer.location.may_grow,
        )
        return await asyncio.to_thread(count_pages, footer.parsed, (await store.get(request)).data, span)

    async def _renew_catalogue(self, done: list[CompactedPartition], *, make: bool) -> PackReport | None:
        changed = {partition.new_name or partition.name for partition in done if partition.action == "compacted"}
        return await renew_catalogue(self._store, self._path, self._read_options, changed=changed, make=make)

    async def _purge(self, *, dry_run: bool) -> tuple[str, ...]:
        before_s = time.time() - self._options.purge_after_s
        return await purge_superseded(self._store, self._path, before_s=before_s, dry_run=dry_run, files=self._files)

    def _note_rows(self, row_count: int) -> None:
        self._report_progress(written_rows=self._progress.written_rows + row_count)

    def _report_progress(self, **changes: int) -> None:
        self._progress = replace(self._progress, **changes)
        if self._on_progress is not None:
            self._on_progress(self._progress)


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


def _notes(listing: Listing) -> list[str]:
    names = (info.path.rpartition("/")[2] for info in listing.objects)
    if not any(map(is_manifest_name, names)):
        return []
    note = (
        "'coldparquet publish' made this copy of a table: publishing to it again would bring back the source's files,"
        " and is refused until the source is at a later transaction; it is better to compact the source"
    )
    return [note]
