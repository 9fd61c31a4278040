"""Packing the sidecars and bloom filters of a table into its catalogue, so that later readers plan from one request."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from coldparquet.catalog.cold_storage import refuse_below_cold_storage, refuse_writing_below
from coldparquet.catalog.discovery import discover_any
from coldparquet.catalog.layouts import Layout, listed_live_files
from coldparquet.catalog.objects import ListedObjects
from coldparquet.catalog.packed import CATALOGUE_FILE, CATALOGUE_REASON
from coldparquet.catalog.table_formats import read_live_files
from coldparquet.concurrency import both, map_or_cancel
from coldparquet.errors import (
    ColdParquetError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
)
from coldparquet.format.catalogue_file import (
    LARGEST_FILE_BYTES,
    PackedSidecar,
    encode_catalogue,
)
from coldparquet.maintenance.packed_entries import (
    LeftOut,
    as_listed,
    bloom_bytes,
    has_blooms,
    kept_entries,
    read_blooms,
    read_entry,
    read_entry_of_file,
    read_table_files_as_they_are,
    with_pages,
    without_pages,
)
from coldparquet.maintenance.parquet_metadata import ParquetMetadataWriter, WrittenParquetMetadata
from coldparquet.pipelines.lakes import TableByTable, one_table
from coldparquet.pipelines.model import Place, WorkPlan, WorkResult, join_url
from coldparquet.records import replace
from coldparquet.storage.cache import Cache, CachedStore, MemoryCache
from coldparquet.storage.checked import CheckedStore, read_whole
from coldparquet.text import few_names

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from coldparquet.catalog.discovery import Discovery
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.catalog.table_formats import LiveFiles, TableFormat
    from coldparquet.options import ReadOptions, StoreOptions
    from coldparquet.pipelines.lakes import TableRun, TableToPlan
    from coldparquet.pipelines.model import LakeStores, Outcome, WorkItem
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import FetchedRange, ObjectInfo


DEFAULT_LIMIT_BYTES = 64 * 1024 * 1024
"""Filters of more bytes are not packed: each renewal of the catalogue writes all of them anew."""


LIMIT_OF_PAGES_BYTES = 64 * 1024 * 1024
"""More of what says where pages lie is left out, for the same reason."""
_FOOTERS_LIMIT_BYTES = 32 * 1024 * 1024


PackAction = Literal["written", "would write", "unchanged", "skipped", "failed"]
"""``unchanged``: the catalogue that is there says the same. ``skipped``: there is nothing to pack."""

WORTH_PARTITIONS = 4
"""A catalogue of fewer saves no round trip, and few requests."""

_TABLES_AT_ONCE = 16

_NOT_USED_HERE = "readers use it in copies on S3, not here, where no listing tells versions"

_NOTHING_TO_PACK = "there is nothing that can be packed: no sidecar, or no file that can be described"

_NO_VERSIONS_HERE = (
    "this store lists no versions of files, and the table has no _txn, so nothing would tell whether an entry is still that of"
    " its file; make it in the copy on S3"
)

_NO_INDEX_HERE = (
    "nothing to write: files of such a layout get their index in a store that lists versions, as S3 does; here readers take"
    " their footers"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPartition:
    """What became of one partition."""

    name: str
    sidecar_bytes: int | None
    """Size of its sidecar; None where it is left out."""
    reason: str | None = None
    """Why it is left out; readers fetch its sidecar by itself, or its footer."""
    is_unreadable: bool = False
    """Whether readers cannot read it either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackReport:
    """What packing a table did, or would do."""

    url: str
    action: PackAction
    catalogue_bytes: int | None = None
    """Size of the catalogue; None where there is none, or it is not known."""
    bloom_bytes: int = 0
    """Bytes of the bloom filters in it."""
    left_out_bloom_bytes: int = 0
    """Bytes of the bloom filters of the table, if they are not in it because they are more than was allowed."""
    pages_bytes: int = 0
    """Bytes of what says where pages lie, in it."""
    left_out_pages_bytes: int = 0
    """The same of files of which it is not in it, because it is more than an index takes."""
    partitions: tuple[PackedPartition, ...] = ()
    """Oldest first."""
    reason: str | None = None
    """Why nothing was written, or why readers do not use what was."""
    parquet_metadata: WrittenParquetMetadata | None = None
    """What became of the table's ``_metadata``; None where there is none."""

    @property
    def packed_count(self) -> int:
        """How many partitions are in the catalogue."""
        return sum(partition.sidecar_bytes is not None for partition in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data that ``json.dumps`` takes."""
        return {**asdict(self), "packed": self.packed_count}


@dataclass(frozen=True, slots=True, kw_only=True)
class PackJob(TableByTable):
    """Write the catalogue of a table, or of every table of a lake; see :func:`pack_table`."""

    name: ClassVar[str] = "pack"
    items_at_once: ClassVar[int] = 4
    tells_of_items: ClassVar[bool] = False

    bloom_limit_bytes: int = DEFAULT_LIMIT_BYTES
    """Leave the bloom filters of a table out if they are more."""
    index: str | None = None
    """Directory for the catalogue, see :func:`pack_table`."""
    format: TableFormat | None = None
    """Which log says what files the tables have."""
    pages: bool = True
    """Also take the page indexes of files that have no place for a ``_pages`` beside them."""
    parquet_metadata: bool = False
    """Also write ``_metadata``, see :func:`pack_table`."""
    dry_run: bool = False
    """Write nothing; say what would be written."""

    async def plan_table(self, table: TableToPlan) -> WorkPlan:
        """Pack it as a whole. No request."""
        return WorkPlan(items=(table.item,))

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Pack one table. Requests: those of :func:`pack_table`."""
        report = await self.pack(item, stores, force=True)
        done = result_of_pack(item, replace(report, url=item.table_url))
        is_nothing = report.action == "skipped" and report.parquet_metadata is None
        return replace(done, outcome="failed", kind="NothingToPack") if is_nothing else done

    async def pack(self, item: WorkItem, stores: LakeStores, *, force: bool) -> PackReport:
        """Pack one table; without ``force`` files of other layouts are kept that a listing shows to be as packed."""
        store, path = stores.table(item)
        if self.parquet_metadata and (self.index is not None or self.format is not None):
            raise InvalidInputError(
                "a _metadata names files relative to itself, and by no log, so it lies in the table's directory alone; leave out the"
                " index and the format",
                kind="IndexElsewhere",
                path=path,
            )
        packing = _Packing(
            store,
            path,
            stores.read_options,
            dry_run=self.dry_run,
            parquet_metadata=self.parquet_metadata,
            discovery=stores.take(discovery_key(path)),
            pages=self.pages,
            on_progress=stores.on_progress,
            index_path=None if self.index is None else join_url(stores.path_of(self.index, item), item.table),
            live_files=None
            if self.format is None
            else partial(read_live_files, item.table_url, self.format, stores.access.storage_options),
        )
        existing = await packing.existing()
        return await packing.pack(existing, changed=None, bloom_limit_bytes=self.bloom_limit_bytes, force=force)

    def report(self, run: TableRun) -> PackReport:
        """Say what became of one table."""
        return run.done(PackReport)[0]


def result_of_pack(item: WorkItem, report: PackReport, *, is_renewed: bool = False) -> WorkResult:
    """Say of a table what became of its catalogue; ``is_renewed``: after another verb."""
    outcomes: dict[PackAction, Outcome] = {"written": "done", "would write": "done", "failed": "failed"}
    left_out: dict[str, list[str]] = {}
    for partition in report.partitions:
        if partition.reason is not None:
            left_out.setdefault(partition.reason, []).append(partition.name)
    return WorkResult(
        table=item.table_url,
        outcome=outcomes.get(report.action, "nothing to do"),
        action=f"catalogue {report.action}" if is_renewed else report.action,
        reason=report.reason,
        size_bytes=report.catalogue_bytes,
        details={
            "packed": report.packed_count,
            "partitions": len(report.partitions),
            "bloom_bytes": report.bloom_bytes,
            "left_out_bloom_bytes": report.left_out_bloom_bytes,
            "pages_bytes": report.pages_bytes,
            "left_out_pages_bytes": report.left_out_pages_bytes,
            "left_out": {reason: few_names(names) for reason, names in left_out.items()},
            **({} if report.parquet_metadata is None else {"parquet_metadata": asdict(report.parquet_metadata)}),
        },
        done=report,
    )


async def pack_table(  # noqa: PLR0913 - what can be told is told by name
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    bloom_limit_bytes: int = DEFAULT_LIMIT_BYTES,
    index: str | None = None,
    parquet_metadata: bool = False,
    dry_run: bool = False,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
    on_progress: Callable[[str, int], None] | None = None,
) -> PackReport:
    """Write the catalogue of a table, the object ``_catalogue``: a copy of all its sidecars, with what they belong to.

    Also a copy of the bloom filters that the sidecars do not hold themselves, if they are not too large: cut into stripes
    (:mod:`coldparquet.format.catalogue_blooms`), so that one short range tells for all partitions which may hold a value.

    Readers of stores that list versions (S3) find it by themselves, and check every entry: where the table has a ``_txn``,
    against what that says of the partition's directory, size and rows, else against the versions of its objects in a listing.
    So an old one is of less use, but not wrong, unless a program puts another file of the same size and rows under the same
    ``_txn``, after which one has to run ``coldparquet index --force``. Readers of local disks and other stores pass by.
    It appears complete or not at all, and nothing else is written. With ``index``, the URL of a directory in the same kind of
    store, it lies there, for tables that are not ours to write to: readers take ``ReadOptions(index=...)``. The footers of files
    without a sidecar are packed then, and always those of other layouts (:mod:`coldparquet.catalog.layouts`); with them their page
    indexes, up to 64 MiB.

    With ``parquet_metadata`` another object is written, ``_metadata`` in the table's directory: the footers of all files in one,
    for readers other than this library. ``pyarrow.dataset.parquet_dataset(".../_metadata")``, and Arrow in C++ and R, plan from
    it alone. These readers trust it: after other programs changed the table, write it again; ``coldparquet verify`` tells. What
    this library writes to the table renews it, or removes it where that is impossible. All partitions must be Parquet, and of
    the same columns. Beside it, name the files as ``*/data.parquet`` to Polars and DuckDB, and to Spark's own reader of Parquet,
    which finds no rows in a directory such as ``2024-03-01`` if it is given the table's.

    Requests: those that find the partitions (:func:`coldparquet.catalog.discovery.discover`); per Parquet partition 1 listing
    and 1 or 2 for the sidecar, and where it has bloom filters 1 or few for those; with ``index``, 1 for a page index that did not
    come with the footer; 1 for the catalogue that is there and 1 to write, none if nothing is new. 1 for the ``_metadata`` that is
    there; if one is written, 1 or 2 for the footer of each partition, and 1 to write.
    """
    job = PackJob(bloom_limit_bytes=bloom_limit_bytes, index=index, parquet_metadata=parquet_metadata, dry_run=dry_run)
    async with one_table(Place(url, storage_options, store_options, store), options) as table:
        return job.report(await job.on_table(table, on_progress))


async def renew_catalogue(  # noqa: PLR0913 - what was written, and what is to be made of it
    store: ObjectStore,
    path: str,
    options: ReadOptions,
    *,
    changed: Collection[str],
    make: bool,
    keeps_rows: bool = False,
) -> PackReport | None:
    """Bring the catalogue of a table, and its ``_metadata``, up to date after partitions of it were written.

    Requests: 1 for the catalogue that is there; if there is one, or one is asked for, those of :func:`pack_table`, but only
    for partitions that were written or that it does not have. A catalogue without bloom filters gets none. If partitions were
    written, and not only moved (``keeps_rows``), 1 for the ``_metadata``, at the same time; if there is one, likewise.
    """
    is_written = bool(changed) and not keeps_rows
    packing = _Packing(store, path, options, dry_run=False, on_progress=None, renew_metadata=is_written)
    try:
        existing, has_metadata = await both(packing.existing(), packing.is_metadata_due())
        if existing is None and not make:
            return await packing.pack_metadata(changed) if has_metadata else None
        limit_bytes = DEFAULT_LIMIT_BYTES if existing is None or has_blooms(existing.data) else 0
        return await packing.pack(existing, changed=changed, bloom_limit_bytes=limit_bytes)
    except InternalError:
        raise
    except ColdParquetError as error:
        left = await packing.remove_metadata()
        return PackReport(
            url=path, action="failed", reason=error.message if left is None else f"{error.message}; {left}"
        )


async def is_renewal_due(store: ObjectStore, path: str, options: ReadOptions, *, is_changed: bool, make: bool) -> bool:
    """Tell whether :func:`renew_catalogue` would write, as far as the catalogue that is there tells. 1 request."""
    try:
        existing = await _Packing(store, path, options, dry_run=True, on_progress=None).existing()
    except InternalError:
        raise
    except ColdParquetError:
        return False
    return make if existing is None else is_changed


def is_packed(make: bool | None, store: ObjectStore, partition_count: int) -> bool:
    """Tell whether a table gets a catalogue; None is where readers use it and it pays."""
    return store.has_version_listings and partition_count >= WORTH_PARTITIONS if make is None else make


async def renew_catalogues(
    results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores, *, make: bool | None, keeps_rows: bool = False
) -> tuple[WorkResult, ...]:
    """Renew the catalogues of the tables of a plan, by what became of their partitions; ``make`` as :func:`is_packed` says.

    Requests: those of :func:`~coldparquet.maintenance.pack.renew_catalogue` for each of these tables.
    """
    changed: dict[str, set[str]] = {table.table_url: set() for table in plan.tables}
    counts = Counter(one.table for one in (*results, *plan.settled) if one.partition and one.action != "skipped")
    for result in results:
        if result.outcome == "done" and result.partition and result.table in changed:
            changed[result.table].add(result.details.get("directory", result.partition))

    async def renew(table: WorkItem) -> WorkResult | None:
        store, path = stores.table(table)
        directories, is_wanted = changed[table.table_url], is_packed(make, store, counts[table.table_url])
        report = await renew_catalogue(
            store, path, stores.read_options, changed=directories, make=is_wanted, keeps_rows=keeps_rows
        )
        return None if report is None else result_of_pack(table, report, is_renewed=True)

    renewals = await map_or_cancel(renew, plan.tables, at_once=_TABLES_AT_ONCE)
    return tuple(result for result in renewals if result is not None)


def discovery_key(path: str) -> Hashable:
    """Return under what the stores of a run remember the partitions of a table that one step of it has found."""
    return "discovery", path


class _Packing:
    """Packs one table."""

    def __init__(  # noqa: PLR0913 - where, how and what to tell
        self,
        store: ObjectStore,
        path: str,
        options: ReadOptions,
        *,
        dry_run: bool,
        on_progress: Callable[[str, int], None] | None,
        index_path: str | None = None,
        live_files: Callable[[], LiveFiles] | None = None,
        discovery: Discovery | None = None,
        parquet_metadata: bool = False,
        pages: bool = False,
        renew_metadata: bool = True,
    ) -> None:
        self._store = store
        self._path = path
        self._catalogue_path = f"{index_path or path}/{CATALOGUE_FILE}"
        self._is_elsewhere = index_path is not None
        self._checked = CheckedStore(store)
        self._options = options
        self._discovery = discovery
        self._pages = pages
        self._dry_run = dry_run
        self._on_progress = on_progress
        self._live_files = live_files
        self._table_files: list[PackedSidecar] = []
        self._metadata: ParquetMetadataWriter | None = None
        if renew_metadata and live_files is None and index_path is None:
            self._metadata = ParquetMetadataWriter(self._checked, path, options, make=parquet_metadata, dry_run=dry_run)

    async def existing(self) -> FetchedRange | None:
        """Fetch the catalogue that is there; 1 request for most."""
        try:
            return await read_whole(
                self._store, self._catalogue_path, reason=CATALOGUE_REASON, largest_bytes=LARGEST_FILE_BYTES
            )
        except NotFoundError:
            return None

    async def pack(
        self,
        existing: FetchedRange | None,
        *,
        changed: Collection[str] | None,
        bloom_limit_bytes: int,
        force: bool = False,
    ) -> PackReport:
        """Pack the table; where ``changed`` says which partitions are new, the others are taken from the old catalogue.

        Files of other layouts are kept by what a listing shows, but with ``force``.
        """
        await refuse_below_cold_storage(self._store, self._catalogue_path, is_new=False)
        if self._live_files is not None:
            live = await asyncio.to_thread(self._live_files)
            live_layout = await listed_live_files(self._store, self._path, live)
            return await self._pack_layout(live_layout, None if force else existing, existing, bloom_limit_bytes)
        discovery = self._discovery or await discover_any(self._store, self._path, self._options)
        locations, layout = discovery.locations, discovery.layout
        if layout is None and any(location.directory_path == self._path for location in locations):
            raise InvalidInputError(
                "this is one partition; its table's directory is needed, in which the catalogue will lie",
                kind="NotATable",
                path=self._path,
            )
        if layout is None and self._is_elsewhere:
            layout = await self._listed_directories(locations)
            if discovery.files is not None:
                self._table_files = await read_table_files_as_they_are(self._store, self._path)
        if layout is not None:
            return await self._pack_layout(layout, None if force else existing, existing, bloom_limit_bytes)
        kept: dict[str, PackedSidecar] = {}
        if existing is not None and changed is not None:
            trusted = [location for location in locations if location.name not in changed]
            kept = await asyncio.to_thread(kept_entries, existing.data, trusted)
        packed = await self._read(locations, kept)
        report = await self._finish(locations, packed, existing, bloom_limit_bytes)
        return replace(report, parquet_metadata=await self._write_metadata(locations, changed))

    async def is_metadata_due(self) -> bool:
        """Tell whether there is a ``_metadata`` to renew, or one to write. At most 1 request for most."""
        return self._metadata is not None and await self._metadata.is_due()

    async def remove_metadata(self) -> str | None:
        """Remove the ``_metadata`` that could not be renewed; return what to do if that fails, too."""
        return None if self._metadata is None else await self._metadata.remove()

    async def pack_metadata(self, changed: Collection[str]) -> PackReport:
        """Renew the ``_metadata`` of a table without a catalogue."""
        discovery = self._discovery or await discover_any(self._store, self._path, self._options)
        metadata = await self._write_metadata(discovery.locations, changed)
        return PackReport(url=self._path, action="skipped", parquet_metadata=metadata)

    async def _write_metadata(
        self, locations: Sequence[PartitionLocation], changed: Collection[str] | None
    ) -> WrittenParquetMetadata | None:
        return None if self._metadata is None else await self._metadata.write(locations, changed=changed)

    async def _listed_directories(self, locations: Sequence[PartitionLocation]) -> Layout:
        """Take partition directories for files, whose footers describe them where they have no sidecar.

        Requests: 1 listing for 250 partitions.
        """
        listed: Mapping[str, ObjectInfo] = {}
        if self._store.has_version_listings:
            listed = await ListedObjects(self._checked).below([location.directory_path for location in locations])
        return Layout(
            locations=tuple(as_listed(location, listed) for location in locations),
            infos=tuple(listed.values()),
            source="partition directories",
            states_times=True,
        )

    async def _pack_layout(
        self, layout: Layout, trusted: FetchedRange | None, existing: FetchedRange | None, bloom_limit_bytes: int
    ) -> PackReport:
        """Pack the files of another layout, of which only those are read that the trusted catalogue does not describe."""
        if layout.is_cold_storage:
            refuse_writing_below(self._path, self._catalogue_path)
        if not self._store.has_version_listings:
            metadata = await self._write_metadata(layout.locations, None)
            return PackReport(url=self._path, action="skipped", reason=_NO_INDEX_HERE, parquet_metadata=metadata)
        listed = {info.path: info for info in layout.infos}
        kept = {} if trusted is None else await asyncio.to_thread(kept_entries, trusted.data, layout.locations, listed)
        layout.expect_listed(self._checked.versions)
        # What came with a footer, of which the page index is the neighbour, is not fetched again.
        footers = Cache("range", lambda: self._path, memory=MemoryCache(_FOOTERS_LIMIT_BYTES))
        store = CachedStore(self._checked, footers if self._pages else None)

        async def read(location: PartitionLocation) -> PackedSidecar | LeftOut:
            found: PackedSidecar | LeftOut | None = kept.get(location.name)
            is_kept = found is not None
            if found is None:
                found = await read_entry_of_file(location, listed, store=store, options=self._options)
            if self._pages and isinstance(found, PackedSidecar) and found.are_pages_unknown:
                found = await with_pages(location, found, store=store)
            if is_kept:
                return found
            if self._on_progress is not None:
                self._on_progress(location.name, len(layout.locations))
            return found

        changed = None if trusted is None else {one.name for one in layout.locations if one.name not in kept}
        metadata = await self._write_metadata(layout.locations, changed)
        packed = await map_or_cancel(read, layout.locations, at_once=self._options.max_concurrency)
        report = await self._finish(layout.locations, packed, existing, bloom_limit_bytes)
        return replace(report, parquet_metadata=metadata)

    async def _finish(
        self,
        locations: Sequence[PartitionLocation],
        packed: list[PackedSidecar | LeftOut],
        existing: FetchedRange | None,
        bloom_limit_bytes: int,
    ) -> PackReport:
        """Add the bloom filters, leave pages out that are too many, and write what is new."""
        pages_bytes = sum(len(one.pages or b"") for one in packed if isinstance(one, PackedSidecar))
        if pages_bytes > LIMIT_OF_PAGES_BYTES:
            packed = [without_pages(one) if isinstance(one, PackedSidecar) else one for one in packed]
        all_bloom_bytes = sum(bloom_bytes(one) for one in packed if isinstance(one, PackedSidecar))
        has_blooms = 0 < all_bloom_bytes <= bloom_limit_bytes
        packed = await self._with_blooms(locations, packed) if has_blooms else _without_blooms(packed)
        entries = [one for one in packed if isinstance(one, PackedSidecar)]
        partitions = tuple(_described(location, one) for location, one in zip(locations, packed, strict=True))
        report = PackReport(
            url=self._path,
            action="skipped",
            partitions=partitions,
            bloom_bytes=all_bloom_bytes if has_blooms else 0,
            left_out_bloom_bytes=0 if has_blooms else all_bloom_bytes,
            pages_bytes=sum(len(one.pages or b"") for one in entries),
            left_out_pages_bytes=sum(one.left_out_pages_bytes for one in entries),
        )
        if not entries:
            lists_versions = self._store.has_version_listings
            return replace(report, reason=_NOTHING_TO_PACK if lists_versions else _NO_VERSIONS_HERE)
        data = await asyncio.to_thread(encode_catalogue, [*self._table_files, *entries])
        reason = None if self._store.has_version_listings else _NOT_USED_HERE
        report = replace(report, catalogue_bytes=len(data), reason=reason)
        if existing is not None and existing.data == data:
            return replace(report, action="unchanged")
        if self._dry_run:
            return replace(report, action="would write")
        await self._write(data, existing)
        return replace(report, action="written")

    async def _read(
        self, locations: Sequence[PartitionLocation], kept: Mapping[str, PackedSidecar]
    ) -> list[PackedSidecar | LeftOut]:
        async def read(location: PartitionLocation) -> PackedSidecar | LeftOut:
            if location.name in kept:
                return kept[location.name]
            found = await read_entry(location, store=self._checked, options=self._options)
            if self._on_progress is not None:
                self._on_progress(location.name, len(locations))
            return found

        return await map_or_cancel(read, locations, at_once=self._options.max_concurrency)

    async def _with_blooms(
        self, locations: Sequence[PartitionLocation], packed: Sequence[PackedSidecar | LeftOut]
    ) -> list[PackedSidecar | LeftOut]:
        async def read(pair: tuple[PartitionLocation, PackedSidecar | LeftOut]) -> PackedSidecar | LeftOut:
            location, one = pair
            if isinstance(one, LeftOut) or one.blooms:
                return one
            blooms = await read_blooms(location, one, store=self._checked, options=self._options)
            return replace(one, blooms=blooms)

        pairs = list(zip(locations, packed, strict=True))
        return await map_or_cancel(read, pairs, at_once=self._options.max_concurrency)

    async def _write(self, data: bytes, existing: FetchedRange | None) -> None:
        etag = None if existing is None else existing.etag
        try:
            await self._store.put(self._catalogue_path, data, overwrite=existing is not None, if_match=etag)
        except ObjectChangedError as error:
            raise _conflict(self._catalogue_path) from error
        except InvalidInputError as error:
            if error.kind != "AlreadyExists":
                raise
            raise _conflict(self._catalogue_path) from error


def _without_blooms(packed: Sequence[PackedSidecar | LeftOut]) -> list[PackedSidecar | LeftOut]:
    return [replace(one, blooms=()) if isinstance(one, PackedSidecar) else one for one in packed]


def _described(location: PartitionLocation, packed: PackedSidecar | LeftOut) -> PackedPartition:
    if isinstance(packed, LeftOut):
        return PackedPartition(
            name=location.name, sidecar_bytes=None, reason=packed.reason, is_unreadable=packed.is_unreadable
        )
    return PackedPartition(name=location.name, sidecar_bytes=len(packed.sidecar))


def _conflict(path: str) -> ObjectChangedError:
    return ObjectChangedError(
        "somebody else wrote the catalogue of this table at the same time; pack it again",
        kind="CatalogueConflict",
        path=path,
    )
