"""Checking a table's metadata against itself: sidecars, footers, transaction, catalogue, and the files that are there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from coldparquet.catalog.caches import NO_CACHES
from coldparquet.catalog.catalogue import Catalogue
from coldparquet.catalog.discovery import (
    NATIVE_PARTITION,
    advice_for_misnamed,
    chosen_partitions,
    discover,
    raise_what_is_missing,
    unnamed_directories,
)
from coldparquet.catalog.other_layouts import (
    at_other_times,
    refuse_inside_logged_table,
    rows_left_behind,
    unread_beside,
    without_version,
)
from coldparquet.catalog.packed import CATALOGUE_FILE, fetch_catalogue
from coldparquet.catalog.pages import look_up_pages_file
from coldparquet.catalog.partition import look_up_sidecar, shorter_than_committed
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE, partition_location
from coldparquet.concurrency import both
from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    ColdParquetError,
    FormatError,
    NotFoundError,
    ObjectChangedError,
    UnsupportedError,
)
from coldparquet.format.fetch import FooterFetch
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar import parse_sidecar, verify_chain
from coldparquet.maintenance.deep_check import PACK_AGAIN, check_data, read_packed_blooms
from coldparquet.maintenance.walk import Place, work_on_partitions
from coldparquet.options import ReadOptions, StoreOptions
from coldparquet.plan.advice import Finding, finding_of_error
from coldparquet.plan.checks import check_partition
from coldparquet.plan.columns import columns_left_out, match_columns, table_columns_of_metadata, unified_columns
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.requests import RangeRequest
from coldparquet.text import few_names

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence

    from coldparquet.catalog.packed import PackedLookup
    from coldparquet.catalog.partition import SidecarLookup, SidecarState
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.table_metadata import TableMetadata
    from coldparquet.maintenance.deep_check import DeepCheck, PartitionBlooms
    from coldparquet.plan.advice import Severity
    from coldparquet.plan.checks import PartitionCheck
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedEntry:
    """What the catalogue has of one partition."""

    lookup: PackedLookup
    blooms: PartitionBlooms | None = None
    """Its bloom filters; None unless they were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedCatalogue:
    """What the catalogue of a table has of its partitions."""

    findings: tuple[Finding, ...] = ()
    """What is about the catalogue as a whole."""
    packed: Mapping[str, PackedEntry] = field(default_factory=dict)
    """By the names of the partitions: the entries that readers would use, or find damaged."""


async def check_catalogue(
    store: ObjectStore, path: str, locations: Sequence[PartitionLocation], *, deep: bool
) -> CheckedCatalogue:
    """Read the catalogue of a table as readers do, all of it but for the bloom filters, unless these are to be read as well.

    Requests: 1, more for one above 512 KiB. Without a ``_txn`` 1 listing for 250 partitions.
    """
    if any(path in {location.directory_path, location.data_path} for location in locations):
        return CheckedCatalogue()
    catalogue = await open_catalogue(store, path)
    blooms = await read_packed_blooms(store, catalogue.file, deep=deep)
    found = await catalogue.look_up(locations)
    packed = {name: PackedEntry(lookup=lookup, blooms=blooms.of_partition.get(name)) for name, lookup in found.items()}
    return CheckedCatalogue(findings=(*catalogue_findings(catalogue, locations), *blooms.findings), packed=packed)


async def open_catalogue(store: ObjectStore, path: str) -> Catalogue:
    """Read the catalogue of a table, or find that there is none. 1 request, more for one above 512 KiB."""
    return Catalogue(await fetch_catalogue(store, path), NO_CACHES.above(CheckedStore(store)))


def catalogue_findings(catalogue: Catalogue, locations: Sequence[PartitionLocation]) -> tuple[Finding, ...]:
    """Say what is wrong with the catalogue as a whole."""
    return tuple(
        Finding(severity="warning", kind="CatalogueNotUsed", message=note, remedy=PACK_AGAIN)
        for note in catalogue.notes_about(locations)
    )


def compare_with_packed(sidecar: Sidecar | None, entry: PackedEntry | None) -> tuple[Finding, ...]:
    """Compare the snapshot of a partition's sidecar with its entry in the catalogue."""
    packed = None if entry is None else entry.lookup
    if packed is None or (packed.sidecar is None and packed.problem is None):
        return ()
    if packed.sidecar is None:
        message = f"its entry in {CATALOGUE_FILE} is not used: {packed.problem}"
        return (Finding(severity="warning", kind="CatalogueNotUsed", message=message, remedy=PACK_AGAIN),)
    # The checksum covers all that a snapshot says.
    if sidecar is None or packed.sidecar.footer.checksum != sidecar.footer.checksum:
        message = f"its entry in {CATALOGUE_FILE}, by which readers plan, is not the sidecar that lies beside the Parquet file"
        return (Finding(severity="error", kind="CatalogueDiffers", message=message, remedy=PACK_AGAIN),)
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPartition:
    """One partition, and what was found about it."""

    name: str
    """Directory name, such as ``2024-03-01.12``."""
    path: str
    """Its directory in the store."""
    format: Literal["parquet", "native"]
    sidecar: SidecarState | None
    """None where none was looked for: native partitions, and Parquet files of other names."""
    rows: int | None
    """As the transaction or the footer says; None where neither does."""
    row_groups: int | None
    """None unless the footer was read."""
    parquet_size_bytes: int | None
    """Size of the Parquet file that counts; None where nobody states it."""
    unused_bytes: int | None
    """Dead bytes in it, as its writer noted them; None unless the footer was read."""
    other_bytes: int | None
    """Bytes in neither a column chunk nor the footer: the dead ones, page indexes and bloom filters; None likewise."""
    read_bytes: int | None
    """Bytes of the Parquet file that were read and compared; None unless all of them were."""
    checksum: str | None
    """What the store keeps of the whole object and was found equal: ``CRC32``; None where nothing was compared."""
    findings: tuple[Finding, ...]


class PartitionVerifier:
    """Verifies one partition after the other.

    Args:
        store: Where they lie; it should pin versions.
        options: How to read.
        missing: Names of partitions whose directories do not exist; nothing is requested for them.
        packed: What the table's catalogue has of the partitions, by their names.
        deep: Whether to read all data as well.

    Attributes:
        described: What was found to describe the columns of partitions, by their names.
    """

    def __init__(
        self,
        store: ObjectStore,
        options: ReadOptions,
        *,
        missing: Collection[str],
        packed: Mapping[str, PackedEntry],
        deep: bool,
    ) -> None:
        self._store = store
        self._options = options
        self._missing = missing
        self._packed = packed
        self._deep = deep
        self.described: dict[str, Sidecar] = {}

    async def verify(self, location: PartitionLocation) -> VerifiedPartition:
        """Verify one partition; only bugs raise.

        Requests: 1 or 2 for the sidecar and, at the same time, 1 or 2 that look for ``_pages``; then 1 or 2 for the
        footer, and 1 or 2 more for the footer if the sidecar turns out to describe another file. All data in addition,
        if that was asked for. None for native partitions.
        """
        packed = self._packed.get(location.name)
        verification = _Verification(location, self._store, self._options, packed=packed, deep=self._deep)
        if location.name in self._missing:
            verification.findings.append(_DIRECTORY_MISSING)
        elif not location.is_native:
            await verification.run()
            if verification.sidecar is not None:
                self.described[location.name] = verification.sidecar
        return verification.result()


_DIRECTORY_MISSING = Finding(
    severity="error",
    kind="DirectoryMissing",
    message="_txn names this partition, but there is no such directory",
    remedy="copy the partition again, or the table's files with _txn last",
)


class _Verification:
    """The verification of one Parquet partition."""

    def __init__(
        self,
        location: PartitionLocation,
        store: ObjectStore,
        options: ReadOptions,
        *,
        packed: PackedEntry | None,
        deep: bool,
    ) -> None:
        self.findings: list[Finding] = []
        self._location = location
        self._store = store
        self._options = options
        self._packed = packed
        self._deep = deep
        self._data: DeepCheck | None = None
        self._state: SidecarState | None = None
        self._check: PartitionCheck | None = None
        self._write_command = "coldparquet index" if location.record is None else "coldparquet migrate"
        self._write_anew = f"'{self._write_command} --force' writes the sidecar anew"
        self._size_bytes = location.committed_size_bytes
        self._object_size_bytes: int | None = None
        """Size of the Parquet file as it lies there; None where no answer told it."""

    async def run(self) -> None:
        try:
            lookup, pages = await both(
                look_up_sidecar(self._store, self._location, self._options),
                look_up_pages_file(self._store, self._location),
            )
            if self._location.sidecar_path is not None:
                self._state = lookup.state
            self.findings += await asyncio.to_thread(_sidecar_problems, lookup, self._location, self._write_anew)
            self.findings += compare_with_packed(lookup.sidecar, self._packed)
            fetch, sidecar = await self._footer(lookup.sidecar)
            self._size_bytes = fetch.size_bytes
            self.findings += self._file_problems(fetch)
            self._check = await asyncio.to_thread(self._check_metadata, fetch, sidecar, pages.data)
            self.findings += self._check.findings
            if self._deep:
                packed_blooms = None if self._packed is None else self._packed.blooms
                self._data = await check_data(self._store, self._location, self._check, packed_blooms=packed_blooms)
                self.findings += self._data.findings
        except NotFoundError as error:
            self.findings.append(await self._what_lies_there(error) or self._what_stopped(error))
        except ColdParquetError as error:
            self.findings.append(self._what_stopped(error))

    @property
    def sidecar(self) -> Sidecar | None:
        """What readers plan with, if the metadata could be read."""
        return None if self._check is None else self._check.sidecar

    def result(self) -> VerifiedPartition:
        location, check = self._location, self._check
        rows = None if check is None else check.row_count
        return VerifiedPartition(
            name=location.name,
            path=location.directory_path,
            format="native" if location.is_native else "parquet",
            sidecar=self._state,
            rows=rows if location.record is None else location.record.row_count,
            row_groups=None if check is None else check.row_group_count,
            parquet_size_bytes=self._size_bytes,
            unused_bytes=None if check is None else check.unused_bytes,
            other_bytes=None if check is None else check.other_bytes,
            read_bytes=None if self._data is None else self._data.read_bytes,
            checksum=None if self._data is None else self._data.checksum,
            findings=tuple(self.findings),
        )

    async def _footer(self, sidecar: Sidecar | None) -> tuple[FooterFetch, Sidecar | None]:
        """Fetch the footer that counts; return it with the sidecar, if that describes the same file."""
        if sidecar is None or self._size_bytes is not None:
            return await self._fetch_footer(self._size_bytes), sidecar
        stated_bytes = sidecar.parquet_size_bytes
        try:
            return await self._fetch_footer(stated_bytes), sidecar
        except (FormatError, ObjectChangedError):
            if self._object_size_bytes == stated_bytes:
                raise  # the sidecar is right about the size: the file is damaged
        fetch = await self._fetch_footer(None)
        self._state = "stale"
        self.findings.append(
            Finding(
                severity="error",
                kind="StaleSidecar",
                message=f"the sidecar describes a Parquet file of {stated_bytes:,} bytes, but {DATA_FILE} has"
                f" {fetch.size_bytes:,}, and no footer ends where the sidecar says",
                remedy=self._write_anew,
            )
        )
        return fetch, None

    async def _fetch_footer(self, size_bytes: int | None) -> FooterFetch:
        path = self._location.data_path
        fetch = FooterFetch(path=path, suffix_bytes=self._options.footer_suffix_bytes, size_bytes=size_bytes)
        while (wanted := fetch.next_range) is not None:
            answer = await self._store.get(
                RangeRequest(
                    path=path,
                    byte_range=wanted,
                    reason="Parquet footer",
                    may_be_short=size_bytes is None,
                    may_grow=self._location.may_grow,
                )
            )
            self._object_size_bytes = answer.object_size_bytes
            fetch.receive(answer.data, start=answer.start, object_size_bytes=answer.object_size_bytes)
        return fetch

    def _check_metadata(self, fetch: FooterFetch, sidecar: Sidecar | None, pages_file: bytes | None) -> PartitionCheck:
        """Parse and check what was fetched: work of a processor, for a thread."""
        record, directory = self._location.record, self._location.directory
        return check_partition(
            parse_footer(fetch.footer, path=self._location.data_path, offset=fetch.footer_offset),
            sidecar,
            recorded_rows=None if record is None else record.row_count,
            time_range_ns=None if directory is None else (directory.start_ns, directory.stop_ns),
            sidecar_remedy=self._write_anew,
            pages_file=pages_file,
        )

    def _file_problems(self, fetch: FooterFetch) -> list[Finding]:
        findings = []
        if self._state == "absent":
            findings.append(
                Finding(
                    severity="warning",
                    kind="NoSidecar",
                    message=f"there is no {SIDECAR_FILE}: every reader fetches the Parquet footer of"
                    f" {len(fetch.footer):,} bytes instead, and parses all of it",
                    remedy=f"'{self._write_command}' writes it",
                )
            )
        more_bytes = (self._object_size_bytes or 0) - fetch.size_bytes
        if more_bytes > 0:
            is_committed = self._location.committed_size_bytes is not None
            findings.append(
                Finding(
                    severity="advice" if is_committed else "warning",
                    kind="UncommittedBytes",
                    message=f"{DATA_FILE} goes on for {more_bytes:,} bytes behind the {fetch.size_bytes:,} that"
                    f" {'_txn commits' if is_committed else 'its sidecar describes'}",
                    remedy="nobody reads them: an update that was not finished, or has not been committed yet"
                    if is_committed
                    else f"rows may be missing; if the file was changed on purpose, {self._write_anew}",
                )
            )
        return findings

    async def _what_lies_there(self, error: NotFoundError) -> Finding | None:
        """Say what a listed directory holds in place of a Parquet file; None where it is none. 1 listing."""
        if self._location.record is not None or self._state == "present" or not self._location.is_listed:
            return None
        try:
            await raise_what_is_missing(self._store, self._location, error)
        except ColdParquetError as told:
            if told.kind == NATIVE_PARTITION:
                return Finding(
                    severity="warning",
                    kind="NotParquet",
                    message=f"there is neither {SIDECAR_FILE} nor {DATA_FILE}: QuestDB's native format, which can only be read"
                    " with the table's _txn and _meta",
                    remedy="copy the table's files beside it, or convert the partition to Parquet",
                )
            misnamed = told.details.get("misnamed", ())
            if not misnamed:
                return None
            return Finding(
                severity="error",
                kind=told.kind,
                message=f"it holds {few_names(misnamed)}, but no {DATA_FILE}, so that it cannot be read",
                remedy=advice_for_misnamed(misnamed),
            )

    def _what_stopped(self, error: ColdParquetError) -> Finding:
        """Say what kept the partition from being checked to the end."""
        message = shorter_than_committed(error, self._location)
        if message is not None:
            return Finding(
                severity="error",
                kind="DataTooShort",
                message=f"{DATA_FILE}: {message}",
                remedy="copy the partition again",
            )
        if isinstance(error, ArchivedObjectError):
            return Finding(
                severity="warning",
                kind=error.kind,
                message=f"{DATA_FILE} lies in an archive, so that it was not read: {error.message}",
                remedy="'coldparquet restore', then verify again",
            )
        if not isinstance(error, NotFoundError):
            return finding_of_error(error)
        if self._location.record is None and self._state in {None, "absent"}:
            if not self._location.is_listed:
                return finding_of_error(error)
            return Finding(
                severity="warning",
                kind="NotParquet",
                message=f"there is neither {SIDECAR_FILE} nor {DATA_FILE}",
                remedy="copy the partition again, or remove the directory",
            )
        stated_by = "its sidecar describes it" if self._location.record is None else "_txn counts its rows"
        return Finding(
            severity="error",
            kind="DataMissing",
            message=f"there is no {DATA_FILE}, although {stated_by}",
            remedy="copy the partition again",
        )


def _sidecar_problems(lookup: SidecarLookup, location: PartitionLocation, remedy: str) -> list[Finding]:
    """Report why a sidecar is of no use, and which snapshot of it is damaged; takes the time of its checksum."""
    findings = []
    if lookup.problem is not None:
        problem = finding_of_error(lookup.problem, remedy=remedy)
        findings.append(replace(problem, kind="StaleSidecar") if lookup.state == "stale" else problem)
    if lookup.state in {"present", "stale"}:
        try:
            verify_chain(parse_sidecar(lookup.file, path=location.sidecar_path))
        except ColdParquetError as error:
            findings.append(finding_of_error(error, remedy=remedy))
    return findings


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
            a local path. Of a partition alone nobody knows what its table's ``_txn`` says.
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
    options = options or ReadOptions()
    place = Place(url, storage_options, store_options, store)
    async with place.opened(max_concurrency=options.max_concurrency) as opened:
        stacked, path = opened.stack.store, opened.path
        found = await find_verifiable(stacked, path)
        locations = chosen_partitions(found.locations, partitions, path)
        catalogue = await check_catalogue(stacked, path.rstrip("/"), locations, deep=deep)
        verifier = PartitionVerifier(
            CheckedStore(stacked), options, missing=found.missing, packed=catalogue.packed, deep=deep
        )
        at_once = min(options.max_concurrency, _DEEP_AT_ONCE) if deep else options.max_concurrency
        verified = await work_on_partitions(locations, verifier.verify, at_once=at_once, on_progress=on_progress)
    described = [verifier.described[name] for location in locations if (name := location.name) in verifier.described]
    columns = await asyncio.to_thread(_column_findings, found.metadata, described, are_all=partitions is None)
    findings = (*found.findings, *catalogue.findings, *columns)
    return VerifyReport(url=place.label, source=found.source, partitions=verified, findings=findings)


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
