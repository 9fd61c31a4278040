"""One state of a table: its partitions, its columns and how both were found. Nothing in it ever changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.catalog.committed_rows import CommittedRowsStore
from coldparquet.catalog.discovery import discover, partition_location
from coldparquet.catalog.page_files import PageFiles
from coldparquet.catalog.partition import NATIVE_PARTITION, Partition
from coldparquet.catalog.symbol_dictionaries import SymbolDictionaries
from coldparquet.concurrency import both
from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.plan.projection import table_columns, table_columns_of_metadata
from coldparquet.plan.read_plan import MetadataRequest
from coldparquet.storage.checked import CheckedStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet.catalog.discovery import Discovery
    from coldparquet.catalog.partition import PartitionLocation, PartitionMetadata
    from coldparquet.catalog.table_files import ColumnVersionsFor, TableFiles
    from coldparquet.options import ReadOptions
    from coldparquet.plan.projection import TableColumn
    from coldparquet.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """What scans of a table see until it is refreshed."""

    store: CheckedStore
    """Pins every object to the version that was seen first."""
    partitions: tuple[Partition, ...]
    """Oldest first."""
    columns: tuple[TableColumn, ...]
    designated_timestamp: int | None
    """Index of the designated timestamp among the columns."""
    files: TableFiles | None
    """The table's own files; None where the directory listing decided."""
    symbol_dictionaries: SymbolDictionaries | None
    """Values of the table's symbol columns; None where there are no table files."""
    page_files: PageFiles
    """Pages of the partitions."""
    source: str | None
    """How the partitions were found, for people; None for a table of one partition."""
    notes: tuple[str, ...]
    requests: tuple[MetadataRequest, ...]
    """What finding the partitions cost, and the metadata of the newest one where the columns come from there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOrigin:
    """Where the states of a table are read from."""

    store: ObjectStore
    """It must not pin versions: each snapshot pins its own."""
    path: str
    options: ReadOptions
    is_partition: bool
    """Whether ``path`` is one partition, or one Parquet file, rather than a directory of them."""

    async def read(self, *, previous: TableSnapshot | None = None) -> TableSnapshot:
        """Read the newest state.

        Requests: the listing, ``_txn`` and ``_meta``, all at the same time; ``_cv`` after them if there are native
        partitions, or if symbols are to be numbered as in the table. Without a ``_txn``, the metadata of the newest
        partition (1 or 2), and the look for its ``_pages`` (1) after them. For one partition only these.

        Args:
            previous: An older snapshot. What it knows of partitions that did not change since is not read again.

        Raises:
            NotFoundError: There is nothing at the path, or nothing that is a partition.
            FormatError: A table file, or the metadata of the newest partition, is damaged.
            StorageError: The table files kept changing while they were read.
        """
        if self.is_partition:
            return await self._from_newest((partition_location(self.path),))
        column_versions_for: ColumnVersionsFor = "symbols" if self.options.symbols == "global" else "native"
        discovery = await discover(self.store, self.path, column_versions_for=column_versions_for)
        if discovery.files is None:
            return await self._from_newest(discovery.locations, discovery)
        return self._from_transaction(discovery, discovery.files, previous)

    async def _from_newest(
        self, locations: Iterable[PartitionLocation], discovery: Discovery | None = None
    ) -> TableSnapshot:
        """Take the columns of the newest partition for those of the table: 1 or 2 requests, for its metadata.

        At the same time 1 for its ``_pages``, which tells whether the table has such files.
        """
        store = CheckedStore(self.store)
        partitions = tuple(Partition(location, store, self.options) for location in locations)
        page_files, spent = PageFiles(store), list[MetadataRequest]()
        newest, _ = await both(
            _newest_readable(partitions), self._look_up_pages(page_files, partitions[-1].location, spent)
        )
        return TableSnapshot(
            store=store,
            partitions=partitions,
            columns=table_columns(newest.sidecar),
            designated_timestamp=newest.sidecar.designated_timestamp,
            files=None,
            symbol_dictionaries=None,
            page_files=page_files,
            source=discovery.source if discovery else None,
            notes=discovery.notes if discovery else (),
            requests=(*(discovery.requests if discovery else ()), *newest.metadata_requests, *spent),
        )

    async def _look_up_pages(
        self, page_files: PageFiles, location: PartitionLocation, spent: list[MetadataRequest]
    ) -> None:
        if self.options.page_index != "never":
            await page_files.look_up(location, spent)

    def _from_transaction(
        self, discovery: Discovery, files: TableFiles, previous: TableSnapshot | None
    ) -> TableSnapshot:
        """Take partitions and columns as the table's own files say; no further request."""
        path = self.path.rstrip("/")
        store = CheckedStore(CommittedRowsStore(self.store, path=path, files=files, locations=discovery.locations))
        # Partitions of which a later transaction says the same as before have the same rows.
        known: dict[PartitionLocation, Partition] = {}
        if previous is not None and previous.files is not None and files.continues(previous.files):
            known = {partition.location: partition for partition in previous.partitions}
        columns = table_columns_of_metadata(files.metadata)
        timestamp_id = files.metadata.designated_timestamp
        return TableSnapshot(
            store=store,
            partitions=tuple(
                known.get(location) or Partition(location, store, self.options) for location in discovery.locations
            ),
            columns=columns,
            designated_timestamp=next((column.index for column in columns if column.id == timestamp_id), None),
            files=files,
            symbol_dictionaries=SymbolDictionaries(store, path),
            page_files=PageFiles(store),
            source=discovery.source,
            notes=discovery.notes,
            requests=discovery.requests,
        )


async def _newest_readable(partitions: tuple[Partition, ...]) -> PartitionMetadata:
    """Read the metadata of the newest partition that is in Parquet: QuestDB's active one usually is not."""
    for partition in reversed(partitions):
        try:
            return await partition.metadata()
        except UnsupportedError as error:
            if error.kind != NATIVE_PARTITION or partition is partitions[0]:
                raise
    raise InternalError("a table has at least one partition")
