"""Checking a table's metadata against itself: sidecars, footers, transaction, catalogue, and the files that are there."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from coldparquet.catalog.caches import NO_CACHES
from coldparquet.catalog.catalogue import Catalogue
from coldparquet.catalog.discovery import (
    chosen_partitions,
    discover,
    unnamed_directories,
)
from coldparquet.catalog.findings import Finding, finding_of_error
from coldparquet.catalog.other_layouts import (
    at_other_times,
    refuse_inside_logged_table,
    rows_left_behind,
    unread_beside,
    without_version,
)
from coldparquet.catalog.packed import fetch_catalogue
from coldparquet.catalog.table_files import partition_location
from coldparquet.errors import (
    AccessError,
    FormatError,
    UnsupportedError,
)
from coldparquet.maintenance.deep_check import PACK_AGAIN, ReadPackedBlooms, read_packed_blooms
from coldparquet.maintenance.partition_check import PackedEntry, Verification, VerifiedPartition
from coldparquet.options import ReadOptions, StoreOptions
from coldparquet.pipelines.lakes import TableByTable, location_as_data, location_from_data
from coldparquet.pipelines.model import Place, WorkItem, WorkPlan, WorkResult, work_on_partitions
from coldparquet.plan.columns import columns_left_out, match_columns, table_columns_of_metadata, unified_columns
from coldparquet.storage.checked import CheckedStore
from coldparquet.text import few_names

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence

    from coldparquet.catalog.findings import Severity
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.table_metadata import TableMetadata
    from coldparquet.pipelines.lakes import TableToPlan
    from coldparquet.pipelines.model import LakeStores
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCatalogue:
    """The catalogue of a table, read as readers do."""

    catalogue: Catalogue
    blooms: ReadPackedBlooms

    @classmethod
    async def read(cls, store: ObjectStore, path: str, *, blooms: Literal["none", "index", "all"]) -> OpenedCatalogue:
        """Read it, or find that there is none. 1 request, more for one above 512 KiB; and those of its bloom filters."""
        catalogue = Catalogue(await fetch_catalogue(store, path), NO_CACHES.above(CheckedStore(store)))
        if blooms == "none":
            return cls(catalogue=catalogue, blooms=ReadPackedBlooms())
        read = await read_packed_blooms(store, catalogue.file, deep=blooms == "all")
        return cls(catalogue=catalogue, blooms=read)

    def findings(self, locations: Sequence[PartitionLocation]) -> tuple[Finding, ...]:
        """Say what is wrong with the catalogue as a whole."""
        notes = (
            Finding(severity="warning", kind="CatalogueNotUsed", message=note, remedy=PACK_AGAIN)
            for note in self.catalogue.notes_about(locations)
        )
        return (*notes, *self.blooms.findings)

    async def entries(self, locations: Sequence[PartitionLocation]) -> dict[str, PackedEntry]:
        """Return the entries that readers would use, or find damaged. Without a ``_txn`` 1 listing for 250 partitions."""
        found = await self.catalogue.look_up(locations)
        of_partition = self.blooms.of_partition
        return {name: PackedEntry(lookup=lookup, blooms=of_partition.get(name)) for name, lookup in found.items()}


_DEEP_AT_ONCE = 4
"""Partitions that are read whole at the same time: each takes 32 MiB and a temporary file."""


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


async def find_verifiable(store: ObjectStore, path: str) -> VerifiableTable:
    """Find what there is to check.

    Requests: those of :func:`~coldparquet.catalog.discovery.discover`, which looks inside the directories of partitions where
    there is no ``_txn``; with one 1 listing more.
    """
    if path.endswith(".parquet"):
        await refuse_inside_logged_table(store, path)
        return VerifiableTable(locations=(partition_location(path),), source="one Parquet file")
    discovery = await discover(store, path, ask_inside=True)
    if discovery.files is None:
        notes = tuple(Finding(severity="advice", kind="LeftAside", message=note) for note in discovery.other_notes)
        findings = (*discovery.unread, *notes)
        return VerifiableTable(locations=discovery.locations, source=discovery.source, findings=findings)
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
    dry_run: bool = False
    """Find the partitions, and check none."""

    @property
    def items_at_once(self) -> int:
        """Few where all data is read: a partition takes 32 MiB and a temporary file, and decoding it keeps a processor busy."""
        return 2 if self.deep else 32

    async def on_table(
        self, place: Place, options: ReadOptions, on_progress: Callable[[VerifiedPartition, int], None] | None
    ) -> VerifyReport:
        """Check one table, here, and its columns as well."""
        async with place.opened(max_concurrency=options.max_concurrency) as opened:
            store, path = opened.stack.store, opened.path
            found, catalogue = await self._find(store, path, is_read_whole=self.deep)
            entries = {} if catalogue is None else await catalogue.entries(found.locations)
            checked = CheckedStore(store)
            described: dict[str, Sidecar] = {}

            async def verify(location: PartitionLocation) -> VerifiedPartition:
                entry, is_missing = entries.get(location.name), location.name in found.missing
                done = Verification(location, checked, options, packed=entry, is_missing=is_missing, deep=self.deep)
                await done.run()
                if done.sidecar is not None:
                    described[location.name] = done.sidecar
                return done.result()

            at_once = min(options.max_concurrency, _DEEP_AT_ONCE) if self.deep else options.max_concurrency
            verified = await work_on_partitions(found.locations, verify, at_once=at_once, on_progress=on_progress)
        sidecars = [described[name] for location in found.locations if (name := location.name) in described]
        columns = await asyncio.to_thread(_column_findings, found.metadata, sidecars, are_all=self.partitions is None)
        findings = (*found.findings, *columns)
        return VerifyReport(url=place.label, source=found.source, partitions=verified, findings=findings)

    async def _find(
        self, store: ObjectStore, path: str, *, is_read_whole: bool
    ) -> tuple[VerifiableTable, OpenedCatalogue | None]:
        """Find the partitions, and what is wrong with the table as a whole; and its catalogue.

        Requests: those of :func:`find_verifiable`; 1 or more for a catalogue.
        """
        found = await find_verifiable(store, path)
        found = replace(found, locations=chosen_partitions(found.locations, self.partitions, path))
        path = path.rstrip("/")
        if any(path in {location.directory_path, location.data_path} for location in found.locations):
            return found, None
        catalogue = await OpenedCatalogue.read(store, path, blooms="all" if is_read_whole else "index")
        return replace(found, findings=(*found.findings, *catalogue.findings(found.locations))), catalogue

    async def plan_table(self, table: TableToPlan) -> WorkPlan:
        """Find the partitions, and check what is about a table as a whole."""
        found, _ = await self._find(table.store, table.path, is_read_whole=self.deep and not self.dry_run)
        items = tuple(
            replace(
                table.item,
                partition=location.name,
                cost_bytes=location.committed_size_bytes or 0,
                work={
                    "location": location_as_data(location, table.path),
                    "is_missing": location.name in found.missing,
                },
            )
            for location in found.locations
        )
        about_table = result_of_findings(table.item, found.findings, source=found.source)
        if not self.dry_run:
            return WorkPlan(items=items, settled=(about_table,))
        not_checked = (
            WorkResult(table=item.table_url, partition=item.partition, outcome="done", action="would verify")
            for item in items
        )
        return WorkPlan(items=(), settled=(about_table, *not_checked))

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Check one partition. Requests: see :class:`Verification`; 1 per table and process for a catalogue."""
        store, path = stores.table(item)
        location = location_from_data(item.work["location"], path)
        entries: dict[str, PackedEntry] = {}
        if location.directory_path != path:
            blooms: Literal["none", "all"] = "all" if self.deep else "none"
            catalogue = await stores.once(("catalogue", path), lambda: OpenedCatalogue.read(store, path, blooms=blooms))
            entries = await catalogue.entries([location])
        verification = Verification(
            location,
            CheckedStore(store),
            stores.read_options,
            packed=entries.get(location.name),
            is_missing=item.work["is_missing"],
            deep=self.deep,
        )
        await verification.run()
        return self.result(item, verification.result())

    def results(self, report: VerifyReport) -> tuple[WorkResult, ...]:
        """Say what became of one table as results of many say it."""
        table = WorkItem(lake=report.url, table="")
        about_table = result_of_findings(table, report.findings, source=report.source)
        return about_table, *(self.result(replace(table, partition=done.name), done) for done in report.partitions)

    def result(self, item: WorkItem, done: VerifiedPartition) -> WorkResult:
        """Say what was found about one partition as other results do."""
        return result_of_findings(
            item,
            done.findings,
            rows=done.rows,
            size_bytes=done.read_bytes if self.deep else done.parquet_size_bytes,
            format=done.format,
            sidecar=done.sidecar,
            row_groups=done.row_groups,
            checksum=done.checksum,
            read_bytes=done.read_bytes,
        )


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
    storage_options: Mapping[str, Any] | None = None,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
    on_progress: Callable[[VerifiedPartition, int], None] | None = None,
) -> VerifyReport:
    """Check all that the metadata of a table says, without reading a byte of its pages.

    Each Parquet partition's sidecar is compared with the Parquet footer at the committed size, field by field; both with
    the rows and the size in ``_txn``; every older snapshot in the sidecar with its checksum; and every chunk range with
    the file and with all others; and its entry in the table's catalogue, if there is one, with the sidecar. What would
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
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        options: How to read; ``max_concurrency`` is also how many partitions are checked, and held in memory, at once.
        store_options: How patient to be with the store; see :class:`~coldparquet.options.StoreOptions`.
        store: A store of your own; ``url`` is then a path in it. It stays open.
        on_progress: Called for each partition when it is done, with the number of all partitions.

    Returns:
        What was found; whatever is wrong with a partition is in there, not raised.

    Raises:
        InvalidInputError: The table has no partition of a name in ``partitions``.
        NotFoundError: There is nothing at ``url``, or nothing that is a partition.
        AccessError: The store refused the credentials.
        FormatError: ``_txn`` or ``_meta`` is damaged.
        StorageError: The table files kept changing while they were read.
    """
    job = VerifyJob(deep=deep, partitions=None if partitions is None else tuple(partitions))
    return await job.on_table(Place(url, storage_options, store_options, store), options or ReadOptions(), on_progress)


def _column_findings(metadata: TableMetadata | None, described: Sequence[Sidecar], *, are_all: bool) -> list[Finding]:
    """Compare the columns of partitions, oldest first, with those of the table: of ``_meta``, else of the newest of all."""
    if not described or (metadata is None and not are_all):
        return []
    try:
        columns = table_columns_of_metadata(metadata) if metadata else unified_columns(described[-1])
    except UnsupportedError as error:  # two have the same name
        return [finding_of_error(error)]
    findings: dict[tuple[str, str], Finding] = {}
    for sidecar in reversed({sidecar.schema: sidecar for sidecar in described}.values()):
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
                remedy="open the table with ReadOptions(columns_from='all') to read it",
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
