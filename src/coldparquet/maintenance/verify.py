"""Checking a table's metadata against itself: sidecars, footers, transaction, catalogue, and the files that are there."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from coldparquet.catalog.caches import NO_CACHES
from coldparquet.catalog.catalogue import Catalogue
from coldparquet.catalog.discovery import (
    chosen_partitions,
    discover_any,
    unnamed_directories,
)
from coldparquet.catalog.findings import Finding, finding_of_error
from coldparquet.catalog.objects import ListedObjects
from coldparquet.catalog.other_layouts import (
    at_other_times,
    refuse_inside_logged_table,
    rows_left_behind,
    unread_beside,
    without_version,
)
from coldparquet.catalog.packed import CATALOGUE_FILE, TABLE_FILES, PackedLookup, fetch_catalogue
from coldparquet.catalog.table_files import partition_location
from coldparquet.errors import (
    AccessError,
    FormatError,
    InvalidInputError,
    UnsupportedError,
)
from coldparquet.format.partition_names import EARLIEST_NS
from coldparquet.maintenance.deep_check import ReadPackedBlooms, read_packed_blooms
from coldparquet.maintenance.parquet_metadata import (
    ParquetMetadata,
    compare_with_metadata,
    read_parquet_metadata,
)
from coldparquet.maintenance.partition_check import PackedEntry, Verification, VerifiedPartition
from coldparquet.pipelines.lakes import TableByTable, location_as_data, location_from_data, one_table
from coldparquet.pipelines.model import Place, WorkPlan, WorkResult, join_url
from coldparquet.plan.columns import columns_left_out, match_columns, table_columns_of_metadata, unified_columns
from coldparquet.records import replace
from coldparquet.storage.checked import CheckedStore
from coldparquet.text import few_names

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence

    from coldparquet.catalog.findings import Severity
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.table_metadata import TableMetadata
    from coldparquet.options import ReadOptions, StoreOptions
    from coldparquet.pipelines.lakes import TableRun, TableToPlan
    from coldparquet.pipelines.model import LakeStores, WorkItem
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import Listing, ObjectInfo


_PACK_AGAIN = "'coldparquet pack' writes the catalogue anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguePlace:
    """Where the catalogue of a table lies, and how it is written anew."""

    path: str
    """Its directory in the table's store."""
    remedy: str = _PACK_AGAIN
    index: str | None = None
    """URL of its directory, where the user named it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCatalogue:
    """The catalogue of a table, read as readers do."""

    catalogue: Catalogue
    blooms: ReadPackedBlooms
    place: CataloguePlace
    locations: tuple[PartitionLocation, ...] = ()
    """The partitions that are looked up together; none where each is looked up by itself."""

    @classmethod
    async def read(  # noqa: PLR0913 - mostly keyword arguments
        cls,
        store: ObjectStore,
        place: CataloguePlace,
        *,
        blooms: Literal["none", "index", "all"],
        locations: tuple[PartitionLocation, ...] = (),
        infos: Sequence[ObjectInfo] = (),
        table_path: str | None = None,
    ) -> OpenedCatalogue:
        """Read it, or find that there is none. 1 request, more for one above 512 KiB; and those of its bloom filters."""
        file = await fetch_catalogue(store, place.path)
        checked = NO_CACHES.above(CheckedStore(store))
        listed = ListedObjects(checked, at_hand={info.path: info for info in infos} or None, table_path=table_path)
        is_asked_for = place.index is not None or bool(infos) or table_path is not None
        catalogue = Catalogue(file, checked, listed=listed, is_asked_for=is_asked_for)
        read = ReadPackedBlooms()
        if blooms != "none":
            read = await read_packed_blooms(store, file, deep=blooms == "all", remedy=place.remedy)
        return cls(catalogue=catalogue, blooms=read, place=place, locations=locations)

    def findings(self, locations: Sequence[PartitionLocation], *, every: Sequence[PartitionLocation]) -> list[Finding]:
        """Say what is wrong with the catalogue as a whole; ``every`` are the partitions of the table."""
        file, remedy = self.catalogue.file, self.place.remedy
        if file.index is None and file.problem is None and self.place.index is not None:
            missing = f"there is no index at {self.place.index}, or it may not be read: readers plan without it"
            return [Finding(severity="error", kind="IndexMissing", message=missing, remedy=remedy)]
        findings = [
            Finding(severity="warning", kind="CatalogueNotUsed", message=problem, remedy=remedy)
            for problem in self.catalogue.problems(locations)
        ]
        packed = () if file.index is None else tuple(file.index.entry_of)
        vanished = sorted(set(packed) - {location.name for location in every}.union(TABLE_FILES))
        if vanished:
            is_of_other = len(vanished) == len(packed)
            gone = f"{CATALOGUE_FILE} has {len(vanished):,} of {len(packed):,} entries of what the table does not have"
            findings.append(
                Finding(
                    severity="warning" if is_of_other else "advice",
                    kind="VanishedFiles",
                    message=f"{gone} ({few_names(vanished)}){'; it may be of another table' if is_of_other else ''}",
                    remedy=f"readers pass them by; {remedy}",
                )
            )
        return [*findings, *self.blooms.findings]

    async def entries(self, locations: Sequence[PartitionLocation]) -> dict[str, PackedEntry]:
        """Return the entries that readers would use, or find damaged.

        Requests: without a ``_txn`` 1 listing for 250 partitions; of a table whose partitions are looked up one by one 1 for all, and
        1 for each further 1,000 objects.
        """
        of_partition = self.blooms.of_partition
        # Readers ask the filters also where they do not use the entry.
        unused = {one.name: PackedLookup(sidecar=None, problem=None) for one in locations if one.name in of_partition}
        found = {**unused, **await self.catalogue.look_up(locations)}
        valid = [name for name, lookup in found.items() if lookup.sidecar is not None]
        # One by one they would take a request each.
        pages = await self.catalogue.pages_of(valid if self.locations else ())
        place = self.place
        return {
            name: PackedEntry(
                lookup=lookup,
                remedy=place.remedy,
                is_elsewhere=place.index is not None,
                blooms=of_partition.get(name),
                pages=pages.get(name),
            )
            for name, lookup in found.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What is wrong with a table, and what could be better."""

    url: str
    source: str
    """What decided which partitions the table has, for people: ``transaction 12 of _txn``."""
    partitions: tuple[VerifiedPartition, ...]
    """Oldest first."""
    findings: tuple[Finding, ...]
    """What is about the table and not about one of its partitions."""

    def count(self, severity: Severity) -> int:
        """Return how many findings of this severity there are, in the table and in all partitions."""
        of_partitions = (finding for partition in self.partitions for finding in partition.findings)
        return sum(finding.severity == severity for finding in (*self.findings, *of_partitions))

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data that ``json.dumps`` takes."""
        severities: tuple[Severity, ...] = ("error", "warning", "advice")
        return {**asdict(self), "counts": {severity: self.count(severity) for severity in severities}}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiableTable:
    """The partitions of a table that can be checked, and what the directory itself has to say."""

    locations: tuple[PartitionLocation, ...]
    source: str
    findings: tuple[Finding, ...] = ()
    missing: frozenset[str] = frozenset()
    """Names of partitions whose directories do not exist."""
    metadata: TableMetadata | None = None
    """What ``_meta`` says; None where there is none."""
    infos: tuple[ObjectInfo, ...] = ()
    """What the listing showed of all files, in a layout of others."""


async def find_verifiable(store: ObjectStore, path: str, options: ReadOptions) -> VerifiableTable:
    """Find what there is to check.

    Requests: those of :func:`~coldparquet.catalog.discovery.discover_any`, which looks inside the directories of partitions where
    there is no ``_txn``; with one 1 listing more.
    """
    if path.endswith(".parquet"):
        await refuse_inside_logged_table(store, path)
        return VerifiableTable(locations=(partition_location(path),), source="one Parquet file")
    discovery = await discover_any(store, path, options, ask_inside=True)
    if discovery.files is None:
        notes = tuple(Finding(severity="advice", kind="LeftAside", message=note) for note in discovery.other_notes)
        findings = (*discovery.unread, *notes)
        infos = () if discovery.layout is None else discovery.layout.infos
        return VerifiableTable(locations=discovery.locations, source=discovery.source, findings=findings, infos=infos)
    try:
        listing = await store.list(path)
    except AccessError as error:
        not_listed = Finding(
            severity="warning",
            kind="NotListed",
            message=f"the directory could not be listed, so leftovers in it were not looked for: {error.message}",
            remedy="allow listing, or let somebody verify who may",
        )
        return VerifiableTable(
            locations=discovery.locations,
            source=discovery.source,
            findings=(not_listed,),
            metadata=discovery.files.metadata,
        )
    names = {directory.rpartition("/")[2] for directory in listing.directories}
    recorded = {location.name for location in discovery.locations}
    left_behind = rows_left_behind(discovery.files.transaction.left_behind)
    unread = unread_beside(listing, discovery.locations, (), has_transaction=True)
    return VerifiableTable(
        locations=discovery.locations,
        source=discovery.source,
        findings=(*left_behind, *unread, *_leftovers(listing, discovery.locations)),
        missing=frozenset(recorded - names),
        metadata=discovery.files.metadata,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyJob(TableByTable):
    """Check every partition of a table, or of all tables of a lake; see :func:`verify_table`.

    It writes nothing, so that it checks everything every time. What it finds wrong fails the partition; a warning or advice
    is the reason of a result that is done. All findings are in the details of the results.
    """

    name: ClassVar[str] = "verify"

    deep: bool = False
    """Read every byte of the Parquet files, and compare all values with what is claimed of them."""
    partitions: tuple[str, ...] | None = None
    """Names of the partitions to check, with or without their version suffix; None for all."""
    index: str | None = None
    """Directory of the catalogue; None is that of the table."""
    dry_run: bool = False
    """Find the partitions, and check none."""

    @property
    def items_at_once(self) -> int:
        """Few where all data is read: a partition takes 32 MiB and a temporary file, and decoding it keeps a processor busy."""
        return 4 if self.deep else 32

    async def plan_table(self, table: TableToPlan) -> WorkPlan:
        """Find the partitions, and check what is about a table as a whole.

        Requests: those of :func:`find_verifiable`; 1 or more for a catalogue, and 1 for a ``_metadata``.
        """
        store, path, stores = table.store, table.path, table.stores
        found = await find_verifiable(store, path, stores.read_options)
        locations = chosen_partitions(found.locations, self.partitions, path)
        findings = found.findings
        is_table = all(_is_in_table(location, path) for location in locations)
        if self.index is not None and not is_table:
            raise InvalidInputError(
                "this is one partition, and an index is of a whole table; name the table, or leave the index out",
                kind="NotATable",
                path=path,
            )
        if is_table:
            blooms: Literal["index", "all"] = "all" if self.deep and not self.dry_run else "index"
            place = self._place(table.item, stores)
            catalogue = await OpenedCatalogue.read(store, place, blooms=blooms, locations=locations, infos=found.infos)
            findings = (*findings, *catalogue.findings(locations, every=found.locations))
            metadata = await read_parquet_metadata(store, path)
            if isinstance(metadata, ParquetMetadata):
                findings = (*findings, *metadata.findings(found.locations, path))
            elif metadata is not None:
                findings = (*findings, metadata)
            if table.is_alone:  # of many tables they would take much memory
                stores.remember(("catalogue", path), catalogue)
                stores.remember(("parquet metadata", path), metadata)
        stores.remember(("columns", table.item.table_url), _SeenColumns(metadata=found.metadata))
        items = tuple(
            replace(
                table.item,
                partition=location.name,
                cost_bytes=location.committed_size_bytes or 0,
                work={
                    "location": location_as_data(location, path),
                    "is_missing": location.name in found.missing,
                },
            )
            for location in locations
        )
        about_table = result_of_findings(table.item, findings, source=found.source)
        about_table = replace(about_table, done=AboutTable(source=found.source, findings=findings))
        if not self.dry_run:
            names = tuple(item.partition for item in items)
            return WorkPlan(items=items, settled=(about_table,), tables=(table.item,), partitions=names)
        not_checked = (
            WorkResult(table=item.table_url, partition=item.partition, outcome="done", action="would verify")
            for item in items
        )
        return WorkPlan(items=(), settled=(about_table, *not_checked))

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Check one partition. Requests: see :class:`Verification`; 1 per table and process for a catalogue, and a ``_metadata``."""
        store, path = stores.table(item)
        location = location_from_data(item.work["location"], path)
        packed, is_of_table = None, _is_in_table(location, path)
        if is_of_table:
            packed = await self._packed(location, item, stores)
        verification = self._verification(item, location, stores, packed=packed, deep=self.deep)
        await verification.run()
        if is_of_table and verification.footer is not None:
            metadata = await stores.once(("parquet metadata", path), lambda: read_parquet_metadata(store, path))
            if isinstance(metadata, ParquetMetadata):
                verification.findings += await asyncio.to_thread(
                    compare_with_metadata, metadata, location, path, verification.footer
                )
        columns = None
        if verification.sidecar is not None:
            seen = await stores.once(("columns", item.table_url), _SeenColumns.new)
            columns = seen.add(location, verification.sidecar)
        done = verification.result()
        result = result_of_findings(
            item,
            done.findings,
            rows=done.rows,
            size_bytes=done.read_bytes if self.deep else done.parquet_size_bytes,
            format=done.format,
            sidecar=done.sidecar,
            row_groups=done.row_groups,
            checksum=done.checksum,
            read_bytes=done.read_bytes,
            columns=columns,
        )
        return replace(result, done=done)

    def _place(self, table: WorkItem, stores: LakeStores) -> CataloguePlace:
        """Say where the catalogue of a table lies."""
        if self.index is None:
            return CataloguePlace(path=stores.table(table)[1])
        index = join_url(self.index, table.table)
        path = join_url(stores.path_of(self.index, table), table.table)
        command = f"'coldparquet index {table.lake} --index {self.index}'"
        return CataloguePlace(path=path, remedy=f"{command} writes the index anew", index=index)

    async def _packed(self, location: PartitionLocation, item: WorkItem, stores: LakeStores) -> PackedEntry | None:
        """Return the entry of a partition in the catalogue, which this process reads once."""
        store, path = stores.table(item)
        blooms: Literal["none", "all"] = "all" if self.deep else "none"
        catalogue = await stores.once(
            ("catalogue", path),
            lambda: OpenedCatalogue.read(store, self._place(item, stores), blooms=blooms, table_path=path),
        )
        if catalogue.locations:
            entries = await stores.once(("entries", path), lambda: catalogue.entries(catalogue.locations))
        else:
            entries = await catalogue.entries([location])
        return entries.get(location.name)

    @staticmethod
    def _verification(
        item: WorkItem, location: PartitionLocation, stores: LakeStores, *, packed: PackedEntry | None, deep: bool
    ) -> Verification:
        checked, options = CheckedStore(stores.table(item)[0]), stores.read_options
        is_missing = item.work["is_missing"]
        return Verification(location, checked, options, packed=packed, is_missing=is_missing, deep=deep)

    async def finish(self, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores) -> tuple[WorkResult, ...]:
        """Compare the columns of the partitions of each table with each other.

        Requests: those of checking one partition, for each description of columns that only other processes have seen.
        """
        return tuple(
            [
                replace(result_of_findings(table, findings), done=AboutTable(source=None, findings=findings))
                for table in plan.tables
                if (findings := await self._compare_columns(table, results, plan, stores))
            ]
        )

    async def _compare_columns(
        self, table: WorkItem, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores
    ) -> tuple[Finding, ...]:
        seen = await stores.once(("columns", table.table_url), _SeenColumns.new)
        columns = {result.partition: result.details["columns"] for result in results if result.table == table.table_url}
        newest: dict[str, WorkItem] = {}
        for item in plan.items:
            if item.table_url == table.table_url and columns.get(item.partition) is not None:
                newest[columns[item.partition]] = last = item
        if not newest or (seen.metadata is None and self.partitions is not None):
            return ()
        for mark, item in newest.items():
            if mark not in seen.sidecars:
                location = location_from_data(item.work["location"], stores.table(item)[1])
                verification = self._verification(item, location, stores, packed=None, deep=False)
                await verification.run()
                if verification.sidecar is not None:
                    seen.add(location, verification.sidecar)
        described = {mark: seen.sidecars[mark] for mark in newest if mark in seen.sidecars}
        newest_sidecar = described.get(columns[last.partition])
        if newest_sidecar is None:
            return ()  # it was replaced since
        found = await asyncio.to_thread(_column_findings, seen.metadata, newest_sidecar, tuple(described.values()))
        return tuple(found)

    def report(self, run: TableRun) -> VerifyReport:
        """Say what was found in one table."""
        about, *others = run.done(AboutTable)
        findings = (*about.findings, *(finding for one in others for finding in one.findings))
        partitions = run.done(VerifiedPartition)
        return VerifyReport(url=run.url, source=about.source or "", partitions=partitions, findings=findings)


def _is_in_table(location: PartitionLocation, path: str) -> bool:
    """Tell whether a path is that of a partition's table, and not of the partition or its file itself."""
    is_loose_file = location.sidecar_path is None and location.data_path != path
    return is_loose_file or path not in {location.directory_path, location.data_path}


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutTable:
    """What was found about a table as a whole."""

    source: str | None
    findings: tuple[Finding, ...]


@dataclass(slots=True, kw_only=True)
class _SeenColumns:
    """The descriptions of columns in the partitions of one table that this process has seen."""

    metadata: TableMetadata | None = None
    sidecars: dict[str, Sidecar] = field(default_factory=dict)
    """The newest of each description, by its mark."""
    _starts: dict[str, int] = field(default_factory=dict)

    @classmethod
    async def new(cls) -> Self:
        return cls()

    def add(self, location: PartitionLocation, sidecar: Sidecar) -> str:
        """Keep a sidecar if it is the newest of those with the same columns; return the mark of these columns."""
        descriptors = [sidecar.column(index) for index in range(sidecar.column_count)]
        described = repr((descriptors, sorted(sidecar.foreign_annotations.items())))
        mark = hashlib.blake2b(described.encode(), digest_size=8).hexdigest()
        start_ns = EARLIEST_NS if location.directory is None else location.directory.start_ns
        if start_ns >= self._starts.get(mark, EARLIEST_NS):
            self.sidecars[mark], self._starts[mark] = sidecar, start_ns
        return mark


def result_of_findings(
    item: WorkItem,
    findings: Sequence[Finding],
    *,
    rows: int | None = None,
    size_bytes: int | None = None,
    **facts: object,
) -> WorkResult:
    """Say what was found, the worst of it as action and reason."""
    errors = [finding for finding in findings if finding.severity == "error"]
    worst = next((severity for severity in ("error", "warning", "advice") if _has(findings, severity)), None)
    told = [finding for finding in findings if finding.severity == worst]
    return WorkResult(
        table=item.table_url,
        partition=item.partition,
        outcome="failed" if errors else "done",
        action="sound" if worst is None else worst,
        reason="; ".join(dict.fromkeys(finding.message for finding in told)) or None,
        kind=errors[0].kind if errors else None,
        rows=rows,
        size_bytes=size_bytes,
        details={**facts, "findings": [asdict(finding) for finding in findings]},
    )


def _has(findings: Sequence[Finding], severity: str) -> bool:
    return any(finding.severity == severity for finding in findings)


async def verify_table(  # noqa: PLR0913 - what can be told is told by name
    url: str | os.PathLike[str],
    *,
    partitions: Collection[str] | None = None,
    deep: bool = False,
    index: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
    on_progress: Callable[[VerifiedPartition, int], None] | None = None,
) -> VerifyReport:
    """Check all that the metadata of a table says, without reading a byte of its pages.

    Each Parquet partition's sidecar is compared with the Parquet footer at the committed size, field by field; both with
    the rows and the size in ``_txn``; every older snapshot in the sidecar with its checksum; and every chunk range with
    the file and with all others; and its entry in the table's catalogue, if there is one, with the sidecar or the footer. What would
    make reads cheaper is said as well. A partition that fails does not stop the others. Native partitions are only
    checked to be there.

    A deep check reads the Parquet files whole, each into a temporary file: the checksum that the store keeps of the object,
    those of pages, every value against its type, and numbers of rows and nulls, minima and maxima of row groups and pages,
    and the order of the designated timestamp against the values; bloom filters are asked for values that are there, and
    those that the catalogue holds are compared with those of the files.

    Requests: those of :func:`coldparquet.catalog.discovery.discover`; with a ``_txn`` one more listing, to its end (1
    request per 1,000 names), without one 1 for 250 partitions, or for each where the store does not list versions; per Parquet
    partition 1 for the sidecar, 1 that looks for ``_pages`` and 1 for the footer, each one more where the first guess was too short, and one more footer where a sidecar turns out to be stale.

    Args:
        url: A table directory, a directory of partitions, a partition directory or a Parquet file: any fsspec URL, or
            a local path. Of a partition alone it is not known what its table's ``_txn`` says.
        partitions: Names of the partitions to check, with or without their version suffix; None for all.
        deep: Whether to read every byte of the Parquet files as well, and compare all values with what is claimed of them.
        index: URL of the directory with the table's catalogue, if it is elsewhere: that of ``ReadOptions(index=...)``. None is
            the table's own directory.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        options: How to read; ``max_concurrency`` is also how many partitions are checked, and held in memory, at once.
        store_options: How patient to be with the store; see :class:`~coldparquet.options.StoreOptions`.
        store: A store of your own; ``url`` is then a path in it. It stays open.
        on_progress: Called for each partition when it is done, with the number of all partitions.

    Returns:
        What was found; whatever is wrong with a partition is in there, not raised.

    Raises:
        InvalidInputError: The table has no partition of a name in ``partitions``, or ``index`` is given and this is no table.
        NotFoundError: There is nothing at ``url``, or nothing that is a partition.
        AccessError: The store refused the credentials.
        FormatError: ``_txn`` or ``_meta`` is damaged.
        StorageError: The table files kept changing while they were read.
    """
    job = VerifyJob(deep=deep, partitions=None if partitions is None else tuple(partitions), index=index)
    async with one_table(Place(url, storage_options, store_options, store), options) as table:
        return job.report(await job.on_table(table, on_progress))


def _column_findings(metadata: TableMetadata | None, newest: Sidecar, described: Sequence[Sidecar]) -> list[Finding]:
    """Compare the columns of partitions, oldest first, with those of the table: of ``_meta``, else of the newest of all."""
    columns = table_columns_of_metadata(metadata) if metadata else unified_columns(newest)
    findings: dict[tuple[str, str], Finding] = {}
    for name in () if metadata else sorted(newest.repeated_names):
        findings[name, "DuplicateColumn"] = Finding(
            severity="warning",
            kind="DuplicateColumn",
            column=name,
            message=f"several columns are named {name!r}, which cannot be read: columns are chosen by name",
            remedy="rewrite the files with another name for each",
        )
    for sidecar in reversed(described):
        for column in columns:
            try:
                match_columns([column] if column.type else (), sidecar)
            except (FormatError, UnsupportedError) as error:
                about = replace(finding_of_error(error), message=str(error), column=column.name)
                findings.setdefault((column.name, error.kind), about)
        for name in () if metadata else columns_left_out(columns, sidecar):
            left_out = Finding(
                severity="warning",
                kind="ColumnLeftOut",
                column=name,
                message=f"column {name!r} is in {sidecar.path} and perhaps others, but not in the newest partition, whose columns"
                " a table without _meta has",
                remedy="open the table with ReadOptions(columns_from='all') to read it; of a lake with an index it is read by default",
            )
            findings.setdefault((name, left_out.kind), left_out)
    return list(findings.values())


def _old_directories(count: int) -> str:
    return "1 old directory" if count == 1 else f"{count:,} old directories"


def _leftovers(listing: Listing, locations: Sequence[PartitionLocation]) -> list[Finding]:
    stale, set_aside = unnamed_directories(listing, locations)
    elsewhere = at_other_times(stale, locations)
    told = set(without_version(elsewhere))  # see unread_beside
    replaced = [name for name in stale if name not in elsewhere]
    elsewhere = [name for name in elsewhere if name not in told]
    findings = []
    if replaced:
        findings.append(
            Finding(
                severity="advice",
                kind="StaleDirectories",
                message=f"{_old_directories(len(replaced))}, not named by _txn: {few_names(replaced)}",
                remedy="nobody reads them: 'coldparquet compact --purge' removes replaced versions",
            )
        )
    if elsewhere:
        findings.append(
            Finding(
                severity="advice",
                kind="UnnamedDirectories",
                message=f"not read, because _txn has no partition of their time: {few_names(elsewhere)}",
                remedy="they may be of partitions that were dropped, of a write that is not committed, or put there by"
                " hand: look at their rows before you remove them",
            )
        )
    if set_aside:
        findings.append(
            Finding(
                severity="advice",
                kind="DirectoriesSetAside",
                message=f"{len(set_aside):,} detached, or not attached yet: {few_names(set_aside)}",
            )
        )
    return findings
