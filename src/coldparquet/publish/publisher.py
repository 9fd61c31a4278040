"""Publishing a table: the order of things, from reading the source to the commit."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from coldparquet.catalog.catalogue_fetch import CATALOGUE_FILE
from coldparquet.catalog.discovery import PUBLISHING_FILE
from coldparquet.catalog.table_files import TRANSACTION_FILE
from coldparquet.concurrency import gather_or_cancel
from coldparquet.maintenance.pack import renew_catalogue
from coldparquet.options import ReadOptions, StoreOptions
from coldparquet.prices import BYTES_PER_PRICED_GB, STANDARD
from coldparquet.publish.changes import plan_changes
from coldparquet.publish.destination import check_destination
from coldparquet.publish.native import NativeConverter
from coldparquet.publish.options import PublishOptions
from coldparquet.publish.published import is_manifest_name, read_published
from coldparquet.publish.purge import purge_versions
from coldparquet.publish.report import PublishCost, PublishedPartition, PublishProgress, PublishReport
from coldparquet.publish.source import read_source, record_of
from coldparquet.publish.table_objects import announce, commit, plan_table_objects, write_table_object
from coldparquet.publish.transfer import PartitionWriter
from coldparquet.publish.version import next_version
from coldparquet.storage.open_store import shown_url
from coldparquet.storage.opened_store import opened_store
from coldparquet.storage.upload import MemoryBudget, upload_request_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.maintenance.pack import PackReport
    from coldparquet.prices import PriceTable
    from coldparquet.publish.changes import Changes, NewPartition, PublishedAlready
    from coldparquet.publish.published import PublishedTable
    from coldparquet.publish.report import PublishAction
    from coldparquet.publish.source import SourceTable
    from coldparquet.publish.table_objects import TableObject
    from coldparquet.publish.transfer import WrittenPartition
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.wrappers.store_stack import StoreStack

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
    labels = shown_url(os.fspath(source)), shown_url(os.fspath(destination))
    opening = partial(opened_store, store_options=store_options, max_concurrency=options.max_concurrency)
    async with (
        opening(os.fspath(source), storage_options=source_options, store=None) as opened,
        opening(os.fspath(destination), storage_options=storage_options, store=store) as target,
    ):
        run = _Run(opened.stack, target.stack, target.path.rstrip("/"), options, on_progress)
        return await run.publish(opened.path.rstrip("/"), labels)


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
        catalogue = await self._renew_catalogue(written, published)
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
    ) -> list[WrittenPartition]:
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
        slots = asyncio.Semaphore(_PARTITIONS_AT_ONCE)

        async def write(partition: NewPartition) -> WrittenPartition:
            async with slots:
                done = await writer.write(partition)
            self._finished += 1
            self._report_progress()
            return done

        try:
            return await gather_or_cancel([write(partition) for partition in new])
        finally:
            converter.close()

    async def _renew_catalogue(
        self, written: Sequence[WrittenPartition], published: PublishedTable
    ) -> PackReport | None:
        """Renew the catalogue that is there, or make one if that is asked for; readers can do without until then."""
        if self._options.dry_run or not (self._options.pack or CATALOGUE_FILE in published.objects):
            return None
        options = ReadOptions(max_concurrency=self._options.max_concurrency)
        changed = {partition.name for partition in written}
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
        self, written: Sequence[WrittenPartition], table_objects: Sequence[TableObject], *, other_writes: int
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


def _in_time_order(written: Sequence[WrittenPartition], changes: Changes) -> tuple[PublishedPartition, ...]:
    members = [
        *((record_of(partition.new.location).timestamp, _written(partition)) for partition in written),
        *((partition.record.timestamp, _already(partition)) for partition in changes.unchanged),
    ]
    return (
        *(partition for _, partition in sorted(members, key=_first)),
        *(_already(partition, action="removed") for partition in changes.removed),
        *(_left_behind(location) for location in changes.left_behind),
    )


def _first(member: tuple[int, PublishedPartition]) -> int:
    return member[0]


def _written(partition: WrittenPartition) -> PublishedPartition:
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


def _left_behind(location: PartitionLocation) -> PublishedPartition:
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
