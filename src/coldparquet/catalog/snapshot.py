"""Reads one immutable state of a table: its partitions, its columns, and how both were found."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from msgspec import Struct

from coldparquet.catalog.caches import NO_CACHES, TableCaches
from coldparquet.catalog.catalogue import Catalogue
from coldparquet.catalog.discovery import (
    NO_DATA_FILE,
    NOT_IN_PARQUET,
    Discovery,
    discover,
    discover_layout,
    named_locations,
    refuse_overlaps,
)
from coldparquet.catalog.hive_keys import KEY_CONTRADICTION, keys_without_columns
from coldparquet.catalog.layouts import listed_live_files, place_files, refuse_unknown_keys
from coldparquet.catalog.objects import DataObjects, ListedObjects
from coldparquet.catalog.other_layouts import (
    refuse_inside_logged_table,
    refuse_logged_table,
    tell_of_unread,
    warn_of_second_files,
)
from coldparquet.catalog.packed import CatalogueFile, fetch_catalogue
from coldparquet.catalog.pages import PageFiles
from coldparquet.catalog.partition import FooterGuess, Partition, read_packed
from coldparquet.catalog.symbol_dictionaries import SymbolDictionaries
from coldparquet.catalog.table_files import CommittedRowsStore, CommittedState
from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.errors import (
    ArchivedObjectError,
    ColdParquetError,
    FormatError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from coldparquet.format.partition_names import has_parquet_suffix, is_partition_name
from coldparquet.plan.columns import table_columns_of_metadata, timestamp_index, unified_columns, unknown_column
from coldparquet.records import replace
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.log import metadata_requests
from coldparquet.storage.versions import Versions
from coldparquet.text import few_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from coldparquet.catalog.layouts import Layout
    from coldparquet.catalog.partition import PartitionMetadata
    from coldparquet.catalog.table_files import ColumnVersionsFor, PartitionLocation, TableFiles
    from coldparquet.catalog.table_formats import LiveFiles
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import MetadataRequest
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.cache import CachedStore


_LOGGER = logging.getLogger("coldparquet")


class TableSnapshot(Struct, frozen=True, kw_only=True):
    """The state of a table that scans see until it is refreshed."""

    store: CachedStore
    """Pins every object to its first version seen, and caches fetched bytes."""
    partitions: tuple[Partition, ...]
    """Oldest first."""
    columns: tuple[TableColumn, ...]
    designated_timestamp: int | None
    """Index of the designated timestamp among the columns."""
    files: TableFiles | None
    """The table's own files; None where there are none, or partitions were named."""
    symbol_dictionaries: SymbolDictionaries | None
    """Values of the table's symbol columns; None where there are no table files."""
    knows_all_columns: bool = False
    """Whether no partition is known to be left out of the columns, so that an unknown one is a mistake."""
    pruning_keys: frozenset[str] = frozenset()
    """Columns by which the names of directories prune: keys that the newest file does not have itself."""
    page_files: PageFiles
    """Pages of the partitions."""
    data_objects: DataObjects
    """Asks for the state of their data objects in the store."""
    listed_objects: ListedObjects
    """Listings that cover many partitions at once."""
    catalogue: Catalogue
    """The sidecars that were packed together; empty where there is no catalogue, or it was not requested."""
    source: str | None
    """How the partitions were found, as text; None where they were named."""
    are_chosen: bool
    """Whether the partitions were named, so that the table may have others."""
    notes: tuple[str, ...]
    requests: tuple[MetadataRequest, ...]
    """The requests that found the partitions and read the metadata with them: of the newest partition where it defines
    the columns, or of all named ones."""

    @property
    def versions(self) -> Versions:
        """Which version of each object is read, and what the store told of it."""
        return self.store.versions

    async def doubt_metadata(self, data_paths: Collection[str]) -> None:
        """Let the next opening fetch what describes some Parquet files: rows did not decode, and it may be renewed by then."""
        for partition in self.partitions:
            if partition.data_path in data_paths:
                await partition.doubt_sidecar()
                self.page_files.doubt(partition.location)


class _Expected(Struct, frozen=True):
    """What was the newest partition when this process opened the table before, and the store of this opening."""

    partition: Partition
    store: CachedStore
    page_files: PageFiles | None
    """None where the options use no pages."""

    async def read(self) -> None:
        """Read its metadata while the table is listed: the requests that would follow. They raise its errors, too."""
        try:
            await both(self.partition.metadata_of_its_file(), self._read_pages())
        except InternalError:
            raise
        except ColdParquetError:
            return

    async def _read_pages(self) -> None:
        if self.page_files is not None:
            await self.page_files.validate(self.partition.location)


class SnapshotReader(Struct, frozen=True, kw_only=True):
    """Reads the states of a table."""

    store: ObjectStore
    """It must not pin versions: each snapshot pins its own."""
    path: str
    options: ReadOptions
    named: tuple[str, ...] = ()
    """Paths of the partitions, or of the one Parquet file, to read; empty where all below ``path`` are."""
    caches: TableCaches = NO_CACHES
    """Caches that outlive a state."""
    use_catalogue: bool = True
    """Whether to fetch the table's catalogue, in a store that lists versions."""
    live_files: Callable[[], LiveFiles] | None = None
    """Reads which files a table with a log has, and blocks; None for tables without a log."""
    index_path: str | None = None
    """Directory of the catalogue; None is the table's."""

    @property
    def _are_chosen(self) -> bool:
        return self.named not in {(), (self.path,)}

    @property
    def _has_catalogue(self) -> bool:
        # Without a listing of versions, no evidence could show that an entry is old. Local sidecars cost little anyway.
        return self.use_catalogue and self.store.has_version_listings

    async def read(self, *, previous: TableSnapshot | None = None) -> TableSnapshot:
        """Read the newest state.

        Requests: the listing, ``_txn``, ``_meta`` and the catalogue, all at the same time; not ``_txn`` and ``_meta`` again
        where this process found none before, unless the listing shows them. Where the catalogue has a place of its own, these two
        only if the listing shows another version of them than that holds. ``_cv`` follows if there are native partitions, or if
        symbols are to be numbered as in the table. Without a ``_txn``, the metadata of the newest partition (1 or 2) and its
        ``_pages`` (1) follow. Named partitions take only these, and the metadata and
        a HEAD of the data object of each, all at the same time.
        """
        await self._distrust_changed(previous)
        if self.live_files is not None:
            live, file = await both(
                asyncio.to_thread(self.live_files),
                self._fetch_catalogue(None if previous is None else previous.catalogue.file),
            )
            layout = await listed_live_files(self.store, self.path.rstrip("/"), live)
            return await self._of_layout(layout, file, previous)
        if self.named:
            await refuse_inside_logged_table(self.store, self.named[0])  # the others are in the same table
            try:
                if self._are_chosen and has_parquet_suffix(self.named[0]):
                    return await self._from_files(previous)
                return await self._from_newest(named_locations(self.named), CatalogueFile(path=self.path), previous)
            except NotFoundError as error:
                await self._tell_what_to_do(error)
                raise
        column_versions_for: ColumnVersionsFor = "symbols" if self.options.symbols == "global" else "native"
        remembered: asyncio.Future[CatalogueFile] = asyncio.get_running_loop().create_future()
        if previous is None:
            expected = self._expected()
            is_remembered = expected is not None or (self.index_path is not None and self._has_catalogue)
        else:
            expected, is_remembered = None, not previous.files

        async def fetch_catalogue() -> CatalogueFile:
            remembered.set_result(await self._fetch_catalogue(None if previous is None else previous.catalogue.file))
            return remembered.result()

        with metadata_requests() as requests:
            found = both(
                discover(
                    self.store,
                    self.path,
                    column_versions_for=column_versions_for,
                    any_layout=self.options,
                    remembered=remembered if is_remembered else None,
                ),
                fetch_catalogue(),
            )
            (discovery, file), _ = (await found, None) if expected is None else await both(found, expected.read())
        tell_of_unread(discovery.unread, self.path, self.options, told=() if previous is None else previous.notes)
        discovery = replace(discovery, requests=(*discovery.requests, *requests))
        if discovery.files is None:
            return await self._from_listing(discovery, file, previous, expected)
        return self._from_transaction(discovery, discovery.files, file, previous)

    def _expected(self) -> _Expected | None:
        location = self.caches.newest_of(self.path)
        if location is None or self.index_path is not None:
            return None
        store = self.caches.above(CheckedStore(self.store))
        partition = Partition(location, store, self.options, sidecars=self.caches.sidecars)
        return _Expected(partition, store, None if self.options.page_index == "never" else PageFiles(store))

    async def _from_files(self, previous: TableSnapshot | None) -> TableSnapshot:
        """Read files that were named, whose directories may state keys."""
        path = self.path.rstrip("/")
        layout = place_files(path, {name[len(path) + 1 :]: None for name in self.named}, keys=self.options.keys)
        return await self._of_layout(layout, CatalogueFile(path=path), previous)

    async def _of_layout(self, layout: Layout, file: CatalogueFile, previous: TableSnapshot | None) -> TableSnapshot:
        if not layout.locations:
            raise NotFoundError(
                "the table has no files, so its columns are not known", kind="NoPartitions", path=self.path
            )
        found = Discovery(
            locations=layout.locations, files=None, source=layout.source, notes=(), requests=(), layout=layout
        )
        return await self._from_newest(layout.locations, file, previous, found)

    async def _from_listing(
        self,
        discovery: Discovery,
        file: CatalogueFile,
        previous: TableSnapshot | None,
        expected: _Expected | None,
    ) -> TableSnapshot:
        """Read directories that are named like partitions; where these hold other files, the files."""
        if discovery.layout is not None:
            return await self._from_newest(discovery.locations, file, previous, discovery)
        try:
            return await self._from_newest(
                discovery.locations, file, previous, discovery, may_be_layout=True, expected=expected
            )
        except NotFoundError as error:
            if not _holds_other_files(error):
                raise
        found = await discover_layout(self.store, self.path, self.options) or discovery
        return await self._from_newest(found.locations, file, previous, found)

    def state_of(self, discovery: Discovery, files: TableFiles) -> TableSnapshot:
        """Return a state that was already found, without its catalogue. No request."""
        return self._from_transaction(discovery, files, CatalogueFile(path=self.path.rstrip("/")), None)

    async def _tell_what_to_do(self, error: NotFoundError) -> None:
        """Advise what to do about a named partition without a Parquet file.

        If it is the only one, 1 listing tells whether it is the directory of a table.
        """
        if error.kind != NotFoundError.default_kind or self.path.endswith(".parquet"):
            return
        if self._are_chosen:
            if has_parquet_suffix(self.named[0]):
                return
            raise NotFoundError(
                "no partition of this name is here, or it is not in Parquet; check the name, or use open_table, which reads"
                " partitions in QuestDB's native format, too",
                path=error.path,
            ) from error
        try:
            listing = await self.store.list(self.path.rstrip("/"), first_page_only=True)
        except ColdParquetError:
            return  # the error already names what is missing, and a store may be unable to list
        await refuse_logged_table(self.store, self.path, listing)
        if any(is_partition_name(path.rpartition("/")[2]) for path in listing.directories):
            raise NotFoundError(
                f"{error.message}; this looks like a table: use open_table", path=error.path, **error.details
            ) from error

    async def _distrust_changed(self, previous: TableSnapshot | None) -> None:
        """Revalidate cached sidecars whose data turned out to be another file's."""
        sidecars = self.caches.sidecars
        if previous is None or sidecars is None:
            return
        for partition in previous.partitions:
            path = partition.location.sidecar_path
            if path is not None and partition.data_path in previous.versions.changed:
                await sidecars.distrust(path)

    async def _fetch_catalogue(self, previous: CatalogueFile | None) -> CatalogueFile:
        path = self.index_path or self.path.rstrip("/")
        if not self._has_catalogue:
            return CatalogueFile(path=path)
        store = self.caches.above(
            CheckedStore(self.store)
        )  # one that the process still holds is asked for by its version
        return await fetch_catalogue(store, path, previous=previous)

    async def _from_newest(  # noqa: PLR0913 - mostly keyword arguments
        self,
        locations: Sequence[PartitionLocation],
        file: CatalogueFile,
        previous: TableSnapshot | None,
        discovery: Discovery | None = None,
        *,
        may_be_layout: bool = False,
        expected: _Expected | None = None,
    ) -> TableSnapshot:
        """Use the columns of the newest partition as the table's: 1 or 2 requests, for its metadata.

        At the same time 1 for its ``_pages``, which tells whether the table has such files. Named partitions are known
        to be wanted, and the options may request the columns of all: see :meth:`_prefetch`.
        """
        layout = None if discovery is None else discovery.layout
        if expected is not None and expected.partition.location != locations[-1]:
            expected = None
        store = (
            expected.store
            if expected
            else self.caches.above(CheckedStore(self.store, _new_versions(previous, locations)))
        )
        if layout is not None:
            layout.expect_listed(store.versions)
        at_hand = None if layout is None or not layout.infos else {info.path: info for info in layout.infos}
        listed = ListedObjects(store, versions=store.versions, on_listed=warn_of_second_files, at_hand=at_hand)
        catalogue = Catalogue(file, store, listed=listed, is_asked_for=self.index_path is not None)
        if catalogue.is_asked_for and file.index is not None:
            listed.list_together([location.directory_path for location in locations])
        guess = FooterGuess()
        data_objects = DataObjects(store, listed=listed)
        looks = bool(self.named) and self.options.check_storage_classes and data_objects.can_be_asked
        heads = data_objects if looks else None
        known_by = heads if previous is None else None  # who refreshes wants what is there now
        partitions = tuple(
            expected.partition
            if expected and one is locations[-1]
            else self._partition(one, store, catalogue, len(locations), footer_guess=guess, heads=known_by)
            for one in locations
        )
        page_files = _new_page_files(store, catalogue)
        if layout is not None:
            page_files.table_has_files = False
        by_name = self.options.columns_from == "all" or self.live_files is not None
        counts_all = bool(self.named) or by_name
        asks_index = self.options.columns_from == "auto" and layout is not None and not counts_all
        with metadata_requests() as requests:
            (newest, damaged), ((others, (indexed, is_current)), _) = await both(
                _newest_readable(partitions, may_be_layout=may_be_layout, may_be_damaged=not counts_all),
                both(
                    both(
                        self._prefetch(partitions if counts_all else (), heads),
                        catalogue.of_other_columns(locations if asks_index else ()),
                    ),
                    self._look_up_pages(page_files, partitions[-1].location, known_by),
                ),
            )
        if not self.named:  # one file, or one partition, has no keys, whatever its path states
            refuse_unknown_keys(self.path, [key.name for key in locations[-1].keys], self.options.keys)
        for partition in partitions if looks else ():
            partition.note_what_sidecar_describes(store.versions)
            page_files.note_what_they_describe(partition.location)
        if self.named and layout is None:
            refuse_overlaps(
                locations, [None if metadata is None else metadata.sidecar for metadata in (*others, newest)]
            )
        if may_be_layout and newest.source == "sidecar" and self.index_path is None:
            self.caches.note_newest(self.path, locations[-1])
        notes = catalogue.notes_about(locations)
        columns = unified_columns(
            newest.sidecar,
            [*indexed, *(known.sidecar for known in reversed(others) if known)],
            by_name=by_name or bool(indexed),
        )
        warnings = (*damaged, *_alike(columns))
        _warn((*warnings, *self._without_index(notes, file)), previous)
        return TableSnapshot(
            store=store,
            partitions=partitions,
            columns=columns,
            designated_timestamp=self._timestamp_of(columns, newest.sidecar, partitions, layout),
            files=None,
            symbol_dictionaries=None,
            knows_all_columns=counts_all or (asks_index and is_current and not notes),
            pruning_keys=keys_without_columns(newest.sidecar, locations[-1].keys),
            page_files=page_files,
            data_objects=data_objects,
            listed_objects=listed,
            catalogue=catalogue,
            source=discovery.source if discovery else None,
            are_chosen=self._are_chosen,
            notes=(
                *(discovery.notes if discovery else ()),
                *notes,
                *warnings,
            ),
            requests=(
                *(discovery.requests if discovery else ()),
                *(request for metadata in (*others, newest) if metadata for request in metadata.metadata_requests),
                *requests,
            ),
        )

    def _timestamp_of(
        self,
        columns: Sequence[TableColumn],
        newest: Sidecar,
        partitions: Sequence[Partition],
        layout: Layout | None,
    ) -> int | None:
        """Return the column that says when a row happened: that of the options, else the one that the files name."""
        named = self.options.timestamp
        designated = timestamp_index(newest) if layout is None or layout.states_times else None
        if named is None:
            return designated
        found = next((column for column in columns if column.name == named), None)
        if found is None:
            raise unknown_column(named, [column.name for column in columns])
        if (
            designated is not None
            and found.index != designated
            and any(partition.time_range_ns is not None for partition in partitions)
        ):
            raise InvalidInputError(
                f"the files of this table name the column of times themselves, {columns[designated].name!r}, and its directories"
                f" are named by it, so {named!r} cannot take its place; leave the option timestamp out",
                kind="OtherTimestamp",
                path=self.path,
                column=named,
            )
        if found.readable_type.arrow.name != "timestamp":
            raise InvalidInputError(
                f"ReadOptions.timestamp names {named!r}, a column of {found.readable_type.name}; needed: one of timestamps",
                kind="NotATimestamp",
                path=self.path,
                column=named,
            )
        for partition in () if found.index == designated else partitions:
            # Days in names may be those of another column, such as when rows arrived: only statistics prune by this one.
            partition.name_states_times = False
        return found.index

    async def _prefetch(
        self, partitions: Sequence[Partition], heads: DataObjects | None
    ) -> list[PartitionMetadata | None]:
        """Prefetch what scans of named partitions need, and what would cost separate round trips later.

        Requests: 1 or 2 for the metadata of each partition but the newest, which they remember. For named
        partitions also 1 HEAD of the data object of each.
        """
        if not self.named:
            await read_packed(partitions[:-1])
        metadata = gather_or_cancel([self._metadata_if_any(partition) for partition in partitions[:-1]])
        if heads is None:
            return await metadata
        others, _ = await both(metadata, heads.head([partition.data_path for partition in partitions]))
        return others

    async def _metadata_if_any(self, partition: Partition) -> PartitionMetadata | None:
        try:
            return await partition.metadata_of_its_file()
        except ArchivedObjectError:
            return None
        except (NotFoundError, UnsupportedError) as error:
            if self.named or error.kind not in NOT_IN_PARQUET:
                raise
            return None

    def _partition(  # noqa: PLR0913 - mostly keyword arguments
        self,
        location: PartitionLocation,
        store: ObjectStore,
        catalogue: Catalogue,
        partition_count: int,
        *,
        footer_guess: FooterGuess | None = None,
        heads: DataObjects | None = None,
    ) -> Partition:
        return Partition(
            location,
            store,
            self.options,
            sidecars=self.caches.sidecars,
            catalogue=catalogue,
            # All partitions may be read at once, so each gets a share of the connections.
            connections=max(1, self.options.max_concurrency // partition_count),
            footer_guess=footer_guess,
            heads=heads,
        )

    async def _look_up_pages(
        self, page_files: PageFiles, location: PartitionLocation, heads: DataObjects | None
    ) -> None:
        is_of_use = page_files.table_has_files is not False and not page_files.may_be_packed(location)
        if self.options.page_index != "never" and is_of_use:
            await page_files.look_up(location, heads=heads)

    def _from_transaction(
        self, discovery: Discovery, files: TableFiles, file: CatalogueFile, previous: TableSnapshot | None
    ) -> TableSnapshot:
        """Take partitions and columns from the table's own files; no further request."""
        refuse_unknown_keys(self.path, (), self.options.keys)
        path = self.path.rstrip("/")
        state = CommittedState.of(files, table_path=path, locations=discovery.locations)
        committed = CommittedRowsStore(self.store, state, newest=files)
        store = self.caches.above(CheckedStore(committed, _new_versions(previous, discovery.locations)))
        listed = ListedObjects(store, versions=store.versions)
        catalogue = Catalogue(file, store, listed=listed, is_asked_for=self.index_path is not None)
        page_files = _new_page_files(store, catalogue)
        data_objects = DataObjects(store, listed=listed)
        known = {} if previous is None else _unchanged(previous, files, discovery.locations)
        if previous is not None and known:
            directories = {location.directory_path for location in known}
            store.versions.adopt(previous.versions, directories)
            page_files.adopt(
                previous.page_files, {one.data_path for one in known}, are_all=len(known) == len(discovery.locations)
            )
        partitions = tuple(
            known.get(location) or self._partition(location, store, catalogue, len(discovery.locations))
            for location in discovery.locations
        )
        notes = catalogue.notes_about(discovery.locations)
        _warn(self._without_index(notes, file), previous)
        columns = table_columns_of_metadata(files.metadata)
        timestamp_id = files.metadata.designated_timestamp
        return TableSnapshot(
            store=store,
            partitions=partitions,
            columns=columns,
            designated_timestamp=next((column.index for column in columns if column.id == timestamp_id), None),
            files=files,
            symbol_dictionaries=SymbolDictionaries(store, path),
            page_files=page_files,
            data_objects=data_objects,
            listed_objects=listed,
            catalogue=catalogue,
            source=discovery.source,
            are_chosen=False,
            notes=(*discovery.notes, *notes),
            requests=discovery.requests,
        )

    def _without_index(self, notes: tuple[str, ...], file: CatalogueFile) -> tuple[str, ...]:
        """Return the notes that say why the index that the user named is not used at all; none if it is, or none was named."""
        return notes if self.index_path is not None and file.index is None else ()


def _holds_other_files(error: ColdParquetError) -> bool:
    """Tell whether a directory that is named like a partition holds Parquet files of other names, or dated directories."""
    return error.kind == NO_DATA_FILE and bool(error.details.get("holds_others"))


def _new_versions(previous: TableSnapshot | None, locations: Iterable[PartitionLocation]) -> Versions:
    """Begin a registry that distrusts the Parquet files of which earlier reads found another version than expected."""
    if previous is None:
        return Versions()
    before = previous.versions
    changed = {location.data_path for location in locations} & before.changed
    return Versions(distrusted=before.distrusted | changed)


def _new_page_files(store: CachedStore, catalogue: Catalogue) -> PageFiles:
    page_files = PageFiles(store, catalogue)
    if catalogue.says_no_pages_files:
        page_files.table_has_files = False
    return page_files


def _unchanged(
    previous: TableSnapshot, files: TableFiles, locations: Iterable[PartitionLocation]
) -> dict[PartitionLocation, Partition]:
    """Return the partitions of an earlier state that are unchanged in this one.

    A partition with the same record in a later transaction has the same rows. The exception: a read found unexpected
    bytes; then only reading everything again helps.
    """
    if previous.files is None or not files.continues(previous.files):
        return {}
    earlier = {partition.location: partition for partition in previous.partitions}
    return {
        location: earlier[location]
        for location in locations
        if location in earlier and location.data_path not in previous.versions.changed
    }


async def _newest_readable(
    partitions: tuple[Partition, ...], *, may_be_layout: bool, may_be_damaged: bool
) -> tuple[PartitionMetadata, tuple[str, ...]]:
    """Read the metadata of the newest partition in Parquet; QuestDB's active partition usually is native.

    With ``may_be_layout`` a directory with other files is an error, because the table may have another layout. With
    ``may_be_damaged`` a few files that are not whole, as while they are written, are passed by; of them the notes tell,
    and an error if a question needs them.
    """
    damage: list[FormatError] = []
    for partition in reversed(partitions):
        try:
            metadata = await partition.metadata_of_its_file()
        except (NotFoundError, UnsupportedError) as error:
            if (
                error.kind not in NOT_IN_PARQUET
                or partition is partitions[0]
                or (may_be_layout and _holds_other_files(error))
            ):
                if damage:
                    raise damage[0] from None
                raise
        except FormatError as error:
            damage.append(error)
            is_whole = error.kind == KEY_CONTRADICTION  # and its rows are not pruned by the key
            if is_whole or not may_be_damaged or partition is partitions[0] or len(damage) > _MOST_DAMAGED:
                raise damage[0] from None
        else:
            return metadata, tuple(_passed_by(error, partition.name) for error in damage)
    raise InternalError("a table has at least one partition")


_MOST_DAMAGED = 2
"""So many of the newest files may be damaged: to look for a sound one takes a round trip for each."""


def _passed_by(error: FormatError, readable: str) -> str:
    return f"{error}; the table has the columns of {readable}, and questions that need no row of that file are answered"


def _alike(columns: Sequence[TableColumn]) -> tuple[str, ...]:
    """Say which columns, such as a key and a column of the files, have names that differ in case alone."""
    seen: dict[str, str] = {}
    pairs = [(seen.setdefault(column.name.casefold(), column.name), column.name) for column in columns]
    alike = [f"{first!r} and {second!r}" for first, second in pairs if first != second]
    if not alike:
        return ()
    text = "these columns differ in case alone, and Spark and DuckDB take their names for one"
    return (f"{text}: {few_names(alike)}; choose one with columns=[...], or rename it",)


def _warn(notes: Iterable[str], previous: TableSnapshot | None) -> None:
    """Log what the user was not told of an earlier state of the table."""
    for note in notes:
        if previous is None or note not in previous.notes:
            _LOGGER.warning("%s", note)
