"""The verb ``migrate``: giving the Parquet partitions of an older QuestDB table the sidecars that QuestDB itself writes by now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from coldparquet.catalog.discovery import discover
from coldparquet.catalog.table_files import TRANSACTION_FILE
from coldparquet.errors import NotFoundError
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.format.partition_records import DELTA_BIT
from coldparquet.maintenance.index import FoundPartitions, IndexJob
from coldparquet.pipelines.lakes import one_table
from coldparquet.pipelines.model import Place

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.maintenance.index import IndexReport
    from coldparquet.maintenance.sidecars import IndexedPartition
    from coldparquet.options import ReadOptions, StoreOptions
    from coldparquet.pipelines.lakes import TableToPlan
    from coldparquet.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateJob(IndexJob):
    """Write the sidecars of what the ``_txn`` of older QuestDB tables commits; see :func:`migrate_table`."""

    name: ClassVar[str] = "migrate"
    replaces: ClassVar[Literal["stale", "useless"]] = "useless"

    pages: bool = False
    """As QuestDB's migration, it writes sidecars alone."""
    pack: bool | None = False
    """As above; a catalogue that is there is renewed."""

    async def find(self, store: ObjectStore, path: str, options: ReadOptions) -> FoundPartitions:  # noqa: ARG002 - of any job
        """Find the partitions of a table that may have to be migrated. Requests: those of :func:`discover`."""
        try:
            discovery = await discover(store, path)
        except NotFoundError as error:
            if error.kind != "IncompleteTable":
                raise
            return _nothing_to_migrate(f"skipped: {error.message}")
        if discovery.files is None:
            missing = (
                f"skipped: there is no {TRANSACTION_FILE} here, so nobody knows which bytes of the partitions count;"
            )
            return _nothing_to_migrate(f"{missing} 'coldparquet index' writes sidecars for the files as they are")
        if discovery.files.metadata.interval is PartitionInterval.NONE:
            return _nothing_to_migrate("nothing to do: a table that is not partitioned has no Parquet partitions")
        return FoundPartitions(locations=discovery.locations, notes=discovery.notes, is_table=bool(discovery.locations))

    async def _listed(self, table: TableToPlan) -> None:  # noqa: ARG002 - it trusts no times, as QuestDB does not
        return None

    def excuse(self, location: PartitionLocation) -> str | None:
        """Say why QuestDB's own migration passes over a partition (note section 6.1)."""
        record = location.record
        if record is None or not record.is_parquet:
            return None
        if record.unknown_flags >> DELTA_BIT & 1:
            return f"{TRANSACTION_FILE} marks its file as only a part of the partition"
        if record.has_remote_copy and not record.is_parquet_generated:
            return "its data is a remote copy, and has its sidecar there"
        return None


def _nothing_to_migrate(note: str) -> FoundPartitions:
    return FoundPartitions(locations=(), notes=(note,), is_table=False)


async def migrate_table(  # noqa: PLR0913 - what can be told is told by name
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    force: bool = False,
    pack: bool = False,
    dry_run: bool = False,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
    on_progress: Callable[[IndexedPartition, int], None] | None = None,
) -> IndexReport:
    """Write the ``_pm`` of every Parquet partition that a table's ``_txn`` names, for exactly the bytes that it commits.

    It is what QuestDB does when a version that knows sidecars first starts on a table from before: the footer at the
    committed size is translated, whatever lies behind it in the file. Where ``_txn`` states no size, that of the file
    is taken, and its rows are compared. Parquet files and table files are only read.
    Where QuestDB has two rules for sidecars that exist already (its migration 940 replaces those that do not describe
    the file, its migration 941 all of them), the first is the default here and ``force`` the second. For directories
    without ``_txn`` there is :func:`coldparquet.maintenance.index.index_table`.

    Run it on a copy, or while no QuestDB writes to the table. Each sidecar appears complete or not at all, and a
    partition that fails does not stop the others.

    Requests: 1 listing, ``_txn`` and ``_meta`` at the same time, and ``_cv`` after them if there are native partitions;
    per Parquet partition 1 or 2 that look for the sidecar (none with ``force``) and, where one is written, 1 or 2 for the
    footer and 1 to write; with ``force`` 1 more that looks for ``_pages``. Those of
    :func:`coldparquet.maintenance.pack.renew_catalogue`.

    Args:
        url: A table directory: any fsspec URL, or a local path.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        force: Also write sidecars anew that describe the committed size, and each ``_pages`` that exists. Older snapshots
            and transaction numbers that only the sidecars hold are lost.
        pack: Make the catalogue of the table where there is none; one that is there is renewed in any case. See
            :func:`coldparquet.maintenance.pack.pack_table`.
        dry_run: Write nothing, but derive every sidecar that would be written.
        options: How to read; ``max_concurrency`` is also how many partitions are worked on at once.
        store_options: How patient to be with the store; see :class:`~coldparquet.options.StoreOptions`.
        store: A store of your own; ``url`` is then a path in it. It stays open.
        on_progress: Called for each partition when it is done, with the number of all partitions.

    Returns:
        What became of each partition; failures are in there, not raised. Without ``_txn`` or ``_meta`` there are no
        partitions, and a note says why.

    Raises:
        NotFoundError: There is nothing at ``url``.
        AccessError: The store refused the credentials.
        FormatError: ``_txn`` or ``_meta`` is damaged.
        StorageError: The store failed, or the table files kept changing.
    """
    job = MigrateJob(force=force, pack=pack, dry_run=dry_run)
    async with one_table(Place(url, storage_options, store_options, store), options) as table:
        return job.report(await job.on_table(table, on_progress))
