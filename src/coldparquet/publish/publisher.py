"""Publishing a table: the order of things, from reading the source to the `_txn` and manifest of the new version."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldparquet.catalog.discovery import PUBLISHING_FILE, is_manifest_name
from coldparquet.catalog.packed import CATALOGUE_FILE
from coldparquet.catalog.table_files import PARQUET_METADATA_FILE, TRANSACTION_FILE, partition_location
from coldparquet.concurrency import map_or_cancel
from coldparquet.format.partition_records import PartitionRecords, partition_stops
from coldparquet.format.txn import Lag, LeftBehind, encode_txn
from coldparquet.maintenance.pack import renew_catalogue
from coldparquet.options import ReadOptions, StoreOptions
from coldparquet.pipelines.model import Place
from coldparquet.prices import BYTES_PER_PRICED_GB, STANDARD
from coldparquet.publish.changes import plan_changes
from coldparquet.publish.destination import (
    Manifest,
    announce,
    check_destination,
    commit,
    plan_table_objects,
    read_published,
    write_table_object,
)
from coldparquet.publish.native import NativeConverter
from coldparquet.publish.report import PublishCost, PublishedPartition, PublishOptions, PublishProgress, PublishReport
from coldparquet.publish.source import is_parquet, read_content, read_source, record_of
from coldparquet.publish.transfer import PartitionWriter, purge_versions
from coldparquet.records import replace
from coldparquet.write.upload import MemoryBudget, upload_request_count

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.maintenance.pack import PackReport
    from coldparquet.prices import PriceTable
    from coldparquet.publish.changes import Changes, NewPartition, PublishedAlready
    from coldparquet.publish.destination import PublishedTable, TableObject
    from coldparquet.publish.native import NativeState
    from coldparquet.publish.report import PublishAction
    from coldparquet.publish.source import SourceTable
    from coldparquet.publish.transfer import TransferredPartition
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.open import StoreStack


@dataclass(frozen=True, slots=True, kw_only=True)
class NextVersion:
    """What is to be committed."""

    transaction_data: bytes
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class _Member:
    """A partition of the next version."""

    record: PartitionRecord
    name: str
    source_name_txn: int
    native_state: NativeState | None
    time_bounds: tuple[int, int] | None
    """None where they were not looked at."""


async def next_version(
    source: SourceTable,
    published: PublishedTable,
    written: Sequence[TransferredPartition],
    changes: Changes,
) -> NextVersion:
    """Make the `_txn` that names these partitions, and the manifest that goes with it.

    It is the source's transaction, with its number, and with the partitions that were written or stay, under the names
    that they have at the destination; it says what was left behind. No request, but for up to 4 in the source and 4 at the
    destination where the least or the largest timestamp has to be looked up, because native partitions are left out.
    """
    members = sorted([*map(_of_written, written), *map(_of_unchanged, changes.unchanged)], key=_timestamp)
    records = PartitionRecords.of(member.record for member in members)
    transaction = replace(
        source.transaction,
        transient_row_count=int(records.row_counts[-1:].sum()),
        fixed_row_count=int(records.row_counts[:-1].sum()),
        min_timestamp=await _min_timestamp(source, published, members[0]) if members else None,
        max_timestamp=await _max_timestamp(source, published, members[-1]) if members else None,
        lag=Lag(),
        partitions=records,
        left_behind=_left_behind(source, changes),
    )
    data, version = encode_txn(transaction), published.version
    if version is not None and version.data == data and version.manifest is not None:
        return NextVersion(transaction_data=data, manifest=version.manifest)  # it is what is published
    manifest = Manifest(
        directories=frozenset(member.name for member in members),
        metadata_version=transaction.metadata_version,
        column_version=transaction.column_version,
        source_name_txns={
            member.name: member.source_name_txn
            for member in members
            if member.source_name_txn != member.record.name_txn
        },
        native_states={member.name: member.native_state for member in members if member.native_state is not None},
        previous=None if version is None else version.manifest_name,
    )
    return NextVersion(transaction_data=data, manifest=manifest)


def _left_behind(source: SourceTable, changes: Changes) -> LeftBehind | None:
    """Count what the copy lacks, and what the source lacks already if it is a copy itself."""
    rows = [record_of(location).row_count for location in changes.left_behind]
    lacking = source.transaction.left_behind or LeftBehind(partition_count=0, row_count=0)
    row_count = lacking.row_count + sum(rows)
    if not row_count:
        return None
    return LeftBehind(partition_count=lacking.partition_count + sum(map(bool, rows)), row_count=row_count)


async def _min_timestamp(source: SourceTable, published: PublishedTable, first: _Member) -> int | None:
    timestamp = first.record.timestamp
    if source.locations and record_of(source.locations[0]).timestamp == timestamp:
        return source.transaction.min_timestamp
    bounds = await _bounds(source, published, first)
    return timestamp if bounds is None else bounds[0]


async def _max_timestamp(source: SourceTable, published: PublishedTable, last: _Member) -> int | None:
    if source.locations and record_of(source.locations[-1]).timestamp == last.record.timestamp:
        return source.transaction.max_timestamp
    bounds = await _bounds(source, published, last)
    if bounds is not None:
        return bounds[1]
    stops = partition_stops(
        PartitionRecords.of([last.record]).timestamps,
        source.metadata.interval,
        is_nanosecond=source.metadata.is_nanosecond,
    )
    return int(stops[0]) - 1


async def _bounds(source: SourceTable, published: PublishedTable, member: _Member) -> tuple[int, int] | None:
    """Return the bounds of a partition that is not the first, or not the last, of the source."""
    if member.time_bounds is not None:
        return member.time_bounds
    for location in source.locations:
        if record_of(location).timestamp == member.record.timestamp and is_parquet(location):
            return (await read_content(source.store, location)).time_bounds
    location = partition_location(f"{published.path}/{member.name}")
    return (await read_content(published.store, replace(location, record=member.record))).time_bounds


def _of_written(written: TransferredPartition) -> _Member:
    source_name_txn = record_of(written.new.location).name_txn
    return _Member(written.record, written.name, source_name_txn, written.new.native_state, written.time_bounds)


def _of_unchanged(unchanged: PublishedAlready) -> _Member:
    return _Member(unchanged.record, unchanged.name, unchanged.source_name_txn, unchanged.native_state, None)


def _timestamp(member: _Member) -> int:
    return member.record.timestamp


_PARTITIONS_AT_ONCE = 4
"""Enough to hide the requests of small partitions behind each other; a large one keeps the network busy by its parts."""


async def publish_table(  # noqa: PLR0913 - what can be told is told by name
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    options: PublishOptions | None = None,
    source_options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
    on_progress: Callable[[PublishProgress], None] | None = None,
) -> PublishReport:
    """Copy a QuestDB table to object storage, all partitions as Parquet; a reader sees the old table or the new one.

    What is copied is the state of one transaction: a QuestDB may go on writing to the table. Native partitions are written
    as Parquet, in temporary files of this machine, unless :attr:`PublishOptions.native` says otherwise. Only what changed
    since it was last published is copied, which is decided from the published ``_txn`` and one listing. A run that was killed at whatever point is completed by the
    next one, which finds by size and checksum what has been copied already. Of two publishers at the same time one
    fails with a clear error, and none of what it wrote is seen by readers.

    Requests at the destination: 1 listing per 1,000 names, and up to 5 that read table files; for each new partition 2
    up to 16 MiB, more for a larger one, and up to 3 more where an earlier run has begun it; 4 for each SYMBOL column
    that has new symbols; to write the other table files 9 the first time and 2 to 6 later, none if nothing is new. A
    purge lists everything once more, and a catalogue is renewed by :func:`coldparquet.maintenance.pack.renew_catalogue`.

    Args:
        source: The table's directory, a local path or any fsspec URL.
        destination: Where the published table is, or shall be: any fsspec URL, or a local path. Stores that tell no
            versions (all but S3 and local files) do not protect against two publishers at the very same moment.
        options: What to do; see :class:`PublishOptions`.
        source_options: Settings of the source's store, such as ``follow_links`` for a table with partitions that were
            attached through symbolic links.
        storage_options: Credentials, endpoint and so on of the destination, as fsspec and s3fs take them.
        store_options: How patient to be with both stores; see :class:`~coldparquet.options.StoreOptions`.
        store: A store of your own; ``destination`` is then a path in it. It stays open.
        on_progress: Called whenever bytes have arrived or a partition is complete.

    Returns:
        What became of each partition, what was sent, and what it costs.

    Raises:
        NotFoundError: There is no table at ``source``, or no such bucket; or a native partition lacks a column file that the
            table names (kind ``MissingColumnFile``).
        InvalidInputError: The table has no rows and was never published, or no partitions (kind ``NothingToPublish``), it has
            native partitions and
            the options refuse them (``NativePartitions``), another table or a later state
            of this one is published there (``OtherTable``, ``SourceIsOlder``), the source has dropped partitions
            (``PartitionsDropped``; see :attr:`PublishOptions.dropped`), an object of a name that would be used has other
            contents (``AlreadyExists``), or the destination is the table itself or belongs to a database
            (``SamePlace``, ``DatabaseDirectory``).
        ObjectChangedError: Another publisher came first (``PublisherConflict``), or a partition was replaced while it
            was being copied (``SourceChanged``). Publish again.
        AccessError: A store refused.
        FormatError: The table, or what is published, is damaged.
        StorageError: A store failed. Publish again: nothing is copied twice.
    """
    options = options or PublishOptions()
    origin = Place(source, source_options, store_options)
    place = Place(destination, storage_options, store_options, store)
    async with (
        origin.opened(max_concurrency=options.max_concurrency) as opened,
        place.opened(max_concurrency=options.max_concurrency) as target,
    ):
        run = _Run(opened.stack, target.stack, target.path.rstrip("/"), options, on_progress)
        return await run.publish(opened.path.rstrip("/"), (origin.label, place.label))


class _Run:
    """One run of a publisher."""

    def __init__(
        self,
        source: StoreStack,
        destination: StoreStack,
        path: str,
        options: PublishOptions,
        on_progress: Callable[[PublishProgress], None] | None,
    ) -> None:
        self._source_store = source.store
        self._trace = destination.trace
        self._store = destination.store
        self._path = path
        self._options = options
        self._memory = MemoryBudget(options.memory_limit_bytes)
        self._on_progress = on_progress
        self._sent_bytes = self._total_bytes = self._finished = self._total = 0

    async def publish(self, source_path: str, labels: tuple[str, str]) -> PublishReport:
        """Do everything, in the order that keeps readers safe."""
        started_s = time.monotonic()
        source = await read_source(self._source_store, source_path)
        published = await read_published(self._store, self._path)
        await asyncio.to_thread(check_destination, source, published)
        changes = plan_changes(
            source,
            published,
            native=self._options.native,
            dropped=self._options.dropped,
            storage_classes=self._options.storage_classes,
            now_s=time.time(),
        )
        is_first = published.version is None
        if is_first and not self._options.dry_run:
            await announce(published)
        written = await self._write_partitions(changes.new, source, published)
        version = await next_version(source, published, written, changes)
        planned = await plan_table_objects(
            source, published, manifest=version.manifest, transaction_data=version.transaction_data
        )
        is_new_version = published.version is None or published.version.data != version.transaction_data
        if not self._options.dry_run:
            for wanted in planned.objects:
                await write_table_object(published, wanted, memory=self._memory)
            if is_new_version:
                await commit(published, version.transaction_data)
            if is_first or PUBLISHING_FILE in published.objects:
                await self._store.delete([f"{self._path}/{PUBLISHING_FILE}"])
        catalogue = await self._renew_catalogue(written, changes, published)
        purged = await self._purge()
        names = [wanted.name for wanted in planned.objects] + ([TRANSACTION_FILE] if is_new_version else [])
        if any(partition.action == "would convert" for partition in written):
            # The end of this name is a checksum over the sizes of files that do not exist yet.
            names = [name.partition("-")[0] if is_manifest_name(name) else name for name in names]
        return PublishReport(
            source=labels[0],
            destination=labels[1],
            txn=source.transaction.txn,
            previous_txn=None if published.version is None else published.version.transaction.txn,
            is_dry_run=self._options.dry_run,
            is_committed=is_new_version and not self._options.dry_run,
            partitions=_in_time_order(written, changes),
            table_files=tuple(names),
            cost=self._cost(written, planned.objects, other_writes=int(is_first) + int(is_new_version)),
            purged=purged,
            notes=(*planned.notes, *_notes(published, source)),
            elapsed_s=time.monotonic() - started_s,
            catalogue=catalogue,
        )

    async def _write_partitions(
        self, new: Sequence[NewPartition], source: SourceTable, published: PublishedTable
    ) -> list[TransferredPartition]:
        # One half for rows that were read, the other for parts that are uploaded meanwhile.
        converter = NativeConverter(source, memory_limit_bytes=max(1, self._options.memory_limit_bytes // 2))
        writer = PartitionWriter(
            source=source,
            published=published,
            converter=converter,
            memory=self._memory,
            is_dry_run=self._options.dry_run,
            on_sent=self._note_sent,
            on_converted=self._note_converted,
        )
        self._total = len(new)
        self._total_bytes = sum(
            record_of(partition.location).parquet_size for partition in new if partition.native_state is None
        )

        async def write(partition: NewPartition) -> TransferredPartition:
            done = await writer.write(partition)
            self._finished += 1
            self._report_progress()
            return done

        try:
            return await map_or_cancel(write, new, at_once=_PARTITIONS_AT_ONCE)
        finally:
            converter.close()

    async def _renew_catalogue(
        self, written: Sequence[TransferredPartition], changes: Changes, published: PublishedTable
    ) -> PackReport | None:
        """Renew the catalogue that is there, or make one if that is asked for; readers can do without until then."""
        has_any = not {CATALOGUE_FILE, PARQUET_METADATA_FILE}.isdisjoint(published.objects)
        if self._options.dry_run or not (self._options.pack or has_any):
            return None
        options = ReadOptions(max_concurrency=self._options.max_concurrency)
        changed = {partition.name for partition in written} | {partition.name for partition in changes.removed}
        return await renew_catalogue(self._store, self._path, options, changed=changed, make=self._options.pack)

    async def _purge(self) -> tuple[str, ...]:
        if not self._options.purge:
            return ()
        before_s = time.time() - self._options.purge_after_s
        return await purge_versions(self._store, self._path, before_s=before_s, is_dry_run=self._options.dry_run)

    def _note_converted(self, size_bytes: int) -> None:
        self._total_bytes += size_bytes

    def _note_sent(self, sent_bytes: int) -> None:
        self._sent_bytes += sent_bytes
        self._report_progress()

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(
                PublishProgress(
                    sent_bytes=self._sent_bytes,
                    total_bytes=self._total_bytes,
                    finished_partitions=self._finished,
                    total_partitions=self._total,
                )
            )

    def _cost(
        self, written: Sequence[TransferredPartition], table_objects: Sequence[TableObject], *, other_writes: int
    ) -> PublishCost:
        prices = self._options.price_table
        writes = Counter({STANDARD: other_writes})
        sent_bytes, dollars_per_month = 0, 0.0
        for partition in written:
            if partition.action == "found":
                continue
            storage_class = partition.new.storage_class or STANDARD
            writes[storage_class] += upload_request_count(partition.record.parquet_size)
            writes[STANDARD] += 1
            sent_bytes += partition.record.parquet_size + partition.sidecar_bytes
            dollars_per_month += _dollars_per_month(prices, storage_class, partition.record.parquet_size)
            dollars_per_month += _dollars_per_month(prices, STANDARD, partition.sidecar_bytes)
        for wanted in table_objects:
            writes[STANDARD] += upload_request_count(wanted.content.size_bytes)
        reads = self._trace.operation_counts
        read_dollars = prices.read_dollars(
            get_count=reads["get"] + reads["info"], retrieved_bytes=0, list_count=reads["list"]
        )
        write_dollars = sum(prices.of(name).million_puts.dollars * count / 1e6 for name, count in writes.items())
        return PublishCost(
            sent_bytes=sent_bytes,
            write_count=writes.total(),
            read_count=reads["get"] + reads["info"] + reads["list"],
            dollars=read_dollars + write_dollars,
            dollars_per_month=dollars_per_month,
        )


def _dollars_per_month(prices: PriceTable, storage_class: str, size_bytes: int) -> float:
    return size_bytes / BYTES_PER_PRICED_GB * prices.of(storage_class).gb_month.dollars


def _in_time_order(written: Sequence[TransferredPartition], changes: Changes) -> tuple[PublishedPartition, ...]:
    members = [
        *((record_of(partition.new.location).timestamp, _written(partition)) for partition in written),
        *((partition.record.timestamp, _already(partition)) for partition in changes.unchanged),
    ]
    return (
        *(partition for _, partition in sorted(members, key=_first)),
        *(_already(partition, action="removed") for partition in changes.removed),
        *(_left_behind_in(location) for location in changes.left_behind),
    )


def _first(member: tuple[int, PublishedPartition]) -> int:
    return member[0]


def _written(partition: TransferredPartition) -> PublishedPartition:
    return PublishedPartition(
        name=partition.new.location.name,
        published_name=partition.name,
        action=partition.action,
        rows=partition.record.row_count,
        parquet_size_bytes=None if partition.action == "would convert" else partition.record.parquet_size,
        native_size_bytes=partition.native_bytes,
        sidecar_bytes=partition.sidecar_bytes,
        storage_class=partition.new.storage_class,
    )


def _already(partition: PublishedAlready, *, action: PublishAction | None = None) -> PublishedPartition:
    return PublishedPartition(
        name=partition.source_name,
        published_name=None if action == "removed" else partition.name,
        action=action or ("kept" if partition.is_dropped else "unchanged"),
        rows=partition.record.row_count,
        parquet_size_bytes=partition.record.parquet_size,
    )


def _left_behind_in(location: PartitionLocation) -> PublishedPartition:
    return PublishedPartition(
        name=location.name, published_name=None, action="left behind", rows=record_of(location).row_count
    )


def _notes(published: PublishedTable, source: SourceTable) -> list[str]:
    notes = []
    if published.version is not None and published.version.etag is None:
        notes.append(
            "this store tells no versions: two publishers at the very same moment would not notice each other; run one at"
            " a time"
        )
    lag_rows = source.transaction.lag.row_count
    if lag_rows:
        notes.append(f"{lag_rows:,} rows that no query sees yet, because they wait to be sorted in, were left out")
    return notes
