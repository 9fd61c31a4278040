"""Compacting a table: partitions with dead bytes, or with many small row groups, are written anew.

Row order, values, types, column ids, the keys of symbols and the designated timestamp stay as they are. All columns of a
file stay, also those that the table has dropped since, which readers of the table do not see; so no more is lost than
bytes that no reader could read. Key-value metadata of the file, QuestDB's notes in file and sidecar and, where there is a
`_txn`, the indexes that lie beside them stay too.

A partition is written into a directory of its own, under a version that no directory has, and `_txn` names it from the
next transaction on: see `coldparquet.write.versions` about that, and about servers. The version is the number of the
transaction that the table stands at, as QuestDB itself chooses it: so the next version that a server makes is a higher
one. Without a `_txn` the directory with the highest version is the partition, so that the new one counts from the
moment in which it is there, all of it.

Each partition is committed by itself. A run that is killed has lost the partition that it was writing, and the next
run goes on there. Old versions, and what killed runs left, stay until they are purged.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from coldparquet.catalog.discovery import chosen_partitions, discover, is_manifest_name
from coldparquet.catalog.pages import PAGES_FILE
from coldparquet.concurrency import TableThreads, map_or_cancel
from coldparquet.errors import ColdParquetError, InternalError, InvalidInputError, NotFoundError, UnsupportedError
from coldparquet.format.page_headers import count_pages, offset_index_span
from coldparquet.format.partition_names import parse_partition_directory
from coldparquet.maintenance.advice import compaction_reason
from coldparquet.maintenance.pack import renew_catalogue
from coldparquet.maintenance.sidecars import PartitionIndexer
from coldparquet.options import MIB, ReadOptions
from coldparquet.pipelines.model import Place
from coldparquet.records import replace
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.local import LocalStore
from coldparquet.storage.requests import RangeRequest
from coldparquet.text import few_names
from coldparquet.write.files import LocalFiles, no_server
from coldparquet.write.options import WriteOptions
from coldparquet.write.rewrite import TableSymbols, read_footer, read_rewrite_source, rewrite_partition, scan_as_stored
from coldparquet.write.versions import (
    carried_files,
    check_nothing_unfinished,
    commit_version,
    purge_superseded,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping

    from coldparquet.catalog.table_files import PartitionLocation, TableFiles
    from coldparquet.format.partition_names import PartitionDirectory
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.maintenance.pack import PackReport
    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import Listing
    from coldparquet.write.rewrite import PartitionFooter, RewriteSource


CompactionAction = Literal["compacted", "would compact", "kept", "skipped", "failed"]
"""``kept``: writing it anew is not worth it. ``skipped``: it cannot be written anew, or is none of ours to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """How to compact."""

    write: WriteOptions = field(default_factory=WriteOptions)
    """How to store the rows; ``sort`` does not matter, and columns that have bloom filters keep them."""

    purge_after_s: float = 86_400.0
    """How long a version is kept after another one replaced it: as long as any reader keeps a table open."""

    memory_limit_bytes: int = 64 * MIB
    """Rows that were fetched or decoded and not written yet; a row group on its way to the file comes on top."""

    max_concurrency: int = 16
    """Requests at once, and partitions whose footers are looked at at once. They are written one after the other: each
    keeps several processors busy."""

    def __post_init__(self) -> None:
        for name, least in {"purge_after_s": 0, "memory_limit_bytes": 1, "max_concurrency": 1}.items():
            if not getattr(self, name) >= least:  # NaN is not
                raise InvalidInputError(
                    f"CompactionOptions.{name} is {getattr(self, name)}; it must be at least {least}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileShape:
    """How the rows of a partition are stored."""

    parquet_size_bytes: int
    unused_bytes: int
    """Dead bytes of row groups that were replaced."""
    row_groups: int
    pages: int | None
    """Data pages; None where no page index tells, or none was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedPartition:
    """What became of one partition."""

    name: str
    """Its directory before, such as ``2024-03-01.12``."""
    action: CompactionAction
    reason: str | None
    """Why it was written anew, skipped, or failed; None where it was kept."""
    new_name: str | None = None
    """Its directory now; None where that is the same, or not decided yet."""
    rows: int | None = None
    before: FileShape | None = None
    """None where the partition was not looked at, or could not be."""
    after: FileShape | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """What compacting a table did, or would do."""

    url: str
    source: str
    """What decided which partitions the table has, for people: ``transaction 12 of _txn``."""
    txn: int | None
    """The last one that this run committed, or the one that it found; None where a directory listing decides."""
    is_dry_run: bool
    partitions: tuple[CompactedPartition, ...]
    """In time order."""
    purged: tuple[str, ...]
    """Directories of replaced versions that were removed, or would be."""
    notes: tuple[str, ...]
    elapsed_s: float
    catalogue: PackReport | None = None
    """What became of the table's catalogue; None where there is none."""

    def count(self, action: CompactionAction) -> int:
        """Return how many partitions met this fate."""
        return sum(partition.action == action for partition in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data that ``json.dumps`` takes."""
        return {**asdict(self), "counts": dict(Counter(partition.action for partition in self.partitions))}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionProgress:
    """How far a run has come."""

    written_rows: int
    total_rows: int
    """Of the partitions that are written anew."""
    finished_partitions: int
    total_partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePartition:
    """A partition that is to be written anew."""

    footer: PartitionFooter
    reason: str

    @property
    def location(self) -> PartitionLocation:
        """Where it lies, and what the table says of it."""
        return self.footer.location


async def look_at_partition(
    store: ObjectStore, location: PartitionLocation, options: ReadOptions, *, row_group_rows: int, force: bool
) -> DuePartition | CompactedPartition:
    """Decide about one partition; only bugs raise. 1 or 2 requests, none for those that are not in Parquet."""
    excuse = _excuse(location.record)
    if excuse is not None:
        return _without_footer(location, "skipped", excuse)
    try:
        footer = await read_footer(store, location, options)
    except NotFoundError as error:
        if location.record is None:
            return _without_footer(location, "skipped", "there is no data.parquet")
        return failed(location, error)
    except ColdParquetError as error:
        return failed(location, error)
    reason = compaction_reason(
        size_bytes=footer.stored.stop,
        unused_bytes=footer.unused_bytes,
        row_counts=footer.row_counts,
        row_group_rows=row_group_rows,
    )
    if footer.parsed.row_count and (reason or force):
        return DuePartition(footer=footer, reason=reason or "asked for")
    return CompactedPartition(
        name=location.name, action="kept", reason=None, rows=footer.parsed.row_count, before=file_shape(footer)
    )


def options_for_file(options: WriteOptions, source: RewriteSource, table: TableFiles | None) -> WriteOptions:
    """Say how to store one partition: columns that have bloom filters keep them."""
    if table is not None:
        current = {column.writer_index: column.name for column in table.metadata.columns}
        names = {column.name: current[column.id] for column in source.columns if column.id in current}
        codecs, encodings = options.column_codecs, options.column_encodings
        options = replace(
            options,
            column_codecs={name: codecs[known] for name, known in names.items() if known in codecs},
            column_encodings={name: encodings[known] for name, known in names.items() if known in encodings},
            bloom_columns=tuple(name for name, known in names.items() if known in options.bloom_columns),
        )
    return replace(options, bloom_columns=tuple(dict.fromkeys((*options.bloom_columns, *source.bloom_columns))))


def failed(location: PartitionLocation, error: ColdParquetError) -> CompactedPartition:
    """Report a partition that could not be written anew."""
    file_name = (error.path or location.data_path).rpartition("/")[2]
    action: CompactionAction = "skipped" if isinstance(error, UnsupportedError) else "failed"
    return _without_footer(location, action, f"{file_name}: {error.message}")


def _excuse(record: PartitionRecord | None) -> str | None:
    """Say why a partition is none of ours to write, by what the table's ``_txn`` says of it."""
    if record is None:
        return None
    if not record.is_parquet:
        return "in QuestDB's native format"
    if record.unknown_flags:
        return f"marked in a way that this version does not know ({record.unknown_flags:#x})"
    if record.is_read_only:
        return "read-only, as partitions are that were attached through a symbolic link"
    if record.has_remote_copy:
        return "its server has a copy of it elsewhere, which would not be the same any more"
    return None


def file_shape(footer: PartitionFooter, *, page_count: int | None = None) -> FileShape:
    """Say how the rows of a partition are stored."""
    return FileShape(
        parquet_size_bytes=footer.stored.stop,
        unused_bytes=footer.unused_bytes,
        row_groups=len(footer.parsed.row_groups),
        pages=page_count,
    )


def _without_footer(location: PartitionLocation, action: CompactionAction, reason: str) -> CompactedPartition:
    record = location.record
    return CompactedPartition(
        name=location.name, action=action, reason=reason, rows=None if record is None else record.row_count
    )


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
        files: LocalFiles | None,
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
        async def look_at(location: PartitionLocation) -> DuePartition | CompactedPartition:
            return await look_at_partition(
                CheckedStore(self._store),
                location,
                self._read_options,
                row_group_rows=self._options.write.row_group_rows,
                force=force,
            )

        seen = await map_or_cancel(look_at, locations, at_once=self._options.max_concurrency)
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
        beside = await carried_files(self._store, location.directory_path)
        options = options_for_file(self._options.write, source, self._table)
        if options.page_index and any(file.name == PAGES_FILE for file in beside):
            options = replace(options, pages=True)  # the old one describes the old Parquet file
        # Without a transaction no server can open the table, and no other program reads its indexes.
        is_served = self._table is not None
        carried = tuple(file for file in beside if is_served and file.name != PAGES_FILE)
        written = await rewrite_partition(
            f"{self._path}/{new_name}",
            source,
            scan,
            store=self._store,
            files=self._files,
            options=options,
            carried=carried,
            memory_limit_bytes=self._options.memory_limit_bytes,
            on_rows=self._note_rows,
        )
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
        """Count the data pages of the old file. 1 request, none where its footer says that it cannot be known."""
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


async def compact_table(  # noqa: PLR0913 - what can be told is told by name
    url: str | os.PathLike[str],
    *,
    partitions: Collection[str] | None = None,
    force: bool = False,
    dry_run: bool = False,
    purge: bool = False,
    pack: bool = False,
    leave_catalogue: bool = False,
    options: CompactionOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
    files: LocalFiles | None = None,
    on_progress: Callable[[CompactionProgress], None] | None = None,
) -> CompactionReport:
    """Write partitions anew that have many dead bytes or small row groups; see the module about what readers see.

    A partition that fails does not stop the others. No server may have the table open.

    Requests: those of opening the table, 1 listing per 1,000 names; 1 or 2 per Parquet partition for its footer. For
    each that is written anew: 1 or 2 for its sidecar, 1 for its page index, 1 listing, 2 per SYMBOL column once; those
    of a scan; those of writing; and 2 for the commit. Those of :func:`coldparquet.maintenance.pack.renew_catalogue`.
    """
    options = options or CompactionOptions()
    place = Place(url, storage_options, store_options, store)
    async with place.opened(max_concurrency=options.max_concurrency) as opened:
        if files is None and isinstance(opened.bare, LocalStore):
            files = LocalFiles()
        run = CompactionRun(opened.stack.store, opened.path.rstrip("/"), options, files, on_progress)
        try:
            return await run.compact(
                place.label,
                partitions,
                force=force,
                dry_run=dry_run,
                purge=purge,
                pack=pack,
                leave_catalogue=leave_catalogue,
            )
        finally:
            run.close()
