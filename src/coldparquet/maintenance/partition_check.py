"""Checking one partition: its sidecar, the Parquet footer, `_pages` and its entry in the catalogue against each other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from coldparquet.catalog.discovery import (
    NATIVE_PARTITION,
    advice_for_misnamed,
    raise_what_is_missing,
)
from coldparquet.catalog.findings import Finding, finding_of_error
from coldparquet.catalog.hive_keys import with_key_columns
from coldparquet.catalog.packed import CATALOGUE_FILE
from coldparquet.catalog.pages import PAGES_FILE, look_up_pages_file
from coldparquet.catalog.partition import look_up_sidecar, shorter_than_committed
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.concurrency import both
from coldparquet.errors import (
    ArchivedObjectError,
    ColdParquetError,
    FormatError,
    NotFoundError,
    ObjectChangedError,
    UnsupportedError,
)
from coldparquet.format.blooms import sidecar_in_memory
from coldparquet.format.fetch import FooterFetch
from coldparquet.format.page_index import parse_pages_file
from coldparquet.format.pages import chunk_places
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.format.sidecar import parse_sidecar, verify_chain
from coldparquet.maintenance.deep_check import ClaimsOfPages, check_data
from coldparquet.maintenance.file_checks import check_partition
from coldparquet.records import replace
from coldparquet.storage.requests import RangeRequest
from coldparquet.text import few_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.packed import PackedLookup
    from coldparquet.catalog.partition import SidecarLookup, SidecarState
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.maintenance.deep_check import DeepCheck, PartitionBlooms
    from coldparquet.maintenance.file_checks import PartitionCheck
    from coldparquet.options import ReadOptions
    from coldparquet.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedEntry:
    """What the catalogue has of one partition."""

    lookup: PackedLookup
    remedy: str
    """How the catalogue is written anew."""
    is_elsewhere: bool = False
    """Whether the catalogue is not the table's own, so that the entry may be of the footer although there is a sidecar."""
    blooms: PartitionBlooms | None = None
    """Its bloom filters; None unless they were read."""
    pages: bytes | None = None
    """What it says of the pages of the file; None where it says nothing."""


def compare_with_packed(sidecars: Sequence[Sidecar], entry: PackedEntry) -> tuple[Finding, ...]:
    """Compare a partition's entry in the catalogue with its sidecar, if it has one, and with what its footer says."""
    packed, remedy = entry.lookup, entry.remedy
    if packed.sidecar is None and packed.problem is None:
        return ()
    if packed.sidecar is None:
        message = f"its entry in {CATALOGUE_FILE} is not used: {packed.problem}"
        return (Finding(severity="warning", kind="CatalogueNotUsed", message=message, remedy=remedy),)
    # The checksum covers all that a snapshot says.
    if packed.sidecar.footer.checksum not in {sidecar.footer.checksum for sidecar in sidecars}:
        message = f"its entry in {CATALOGUE_FILE}, by which readers plan, does not describe its Parquet file as the file and its sidecar do"
        return (Finding(severity="error", kind="CatalogueDiffers", message=message, remedy=remedy),)
    return ()


def parse_packed_pages(entry: PackedEntry) -> tuple[list[ClaimsOfPages], tuple[Finding, ...]]:
    """Parse what the catalogue says of the pages of a partition; empty where it says nothing, or that cannot be used."""
    packed = entry.lookup
    if packed.sidecar is None or entry.pages is None:
        return [], ()
    try:
        pages = parse_pages_file(
            entry.pages,
            parquet_size_bytes=packed.sidecar.parquet_size_bytes,
            etag=packed.data_etag,
            places=chunk_places(packed.sidecar),
            path=None,
        )
    except (FormatError, UnsupportedError) as error:
        message = f"what {CATALOGUE_FILE} says of its pages is not used: {error.message}"
        return [], (Finding(severity="warning", kind="CatalogueNotUsed", message=message, remedy=entry.remedy),)
    return [ClaimsOfPages(CATALOGUE_FILE, pages, packed.sidecar, remedy=entry.remedy)], ()


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
    """Size of the Parquet file that counts; None where nothing states it."""
    unused_bytes: int | None
    """Dead bytes in it, as its writer noted them; None unless the footer was read."""
    other_bytes: int | None
    """Bytes in neither a column chunk nor the footer: the dead ones, page indexes and bloom filters; None likewise."""
    read_bytes: int | None
    """Bytes of the Parquet file that were read and compared; None unless all of them were."""
    checksum: str | None
    """What the store keeps of the whole object and was found equal: ``CRC32``; None where nothing was compared."""
    findings: tuple[Finding, ...]


_DIRECTORY_MISSING = Finding(
    severity="error",
    kind="DirectoryMissing",
    message="_txn names this partition, but there is no such directory",
    remedy="copy the partition again, or the table's files with _txn last",
)


class Verification:
    """The verification of one partition.

    Requests: none for a native one, or a directory that does not exist. Else 1 or 2 for the sidecar and, at the same time, 1 or 2
    that look for ``_pages``; then 1 or 2 for the footer, and 1 or 2 more for the footer if the sidecar turns out to describe another
    file. All data in addition, if that is asked for.
    """

    def __init__(  # noqa: PLR0913 - what can be told is told by name
        self,
        location: PartitionLocation,
        store: ObjectStore,
        options: ReadOptions,
        *,
        packed: PackedEntry | None,
        is_missing: bool,
        deep: bool,
    ) -> None:
        self.findings: list[Finding] = [_DIRECTORY_MISSING] if is_missing else []
        self._location = location
        self._store = store
        self._options = options
        self._packed = packed
        self._deep = deep
        self.footer: bytes | None = None
        """The Thrift bytes of the footer that counts; None unless it was read."""
        self._data: DeepCheck | None = None
        self._state: SidecarState | None = None
        self._check: PartitionCheck | None = None
        self._write_command = "coldparquet index" if location.record is None else "coldparquet migrate"
        self._write_anew = f"'{self._write_command} --force' writes the sidecar anew"
        self._size_bytes = location.committed_size_bytes
        self._object_size_bytes: int | None = None
        """Size of the Parquet file as it lies there; None where no answer told it."""

    async def run(self) -> None:
        """Verify it; only bugs raise."""
        if self.findings or self._location.is_native:
            return
        try:
            lookup, pages = await both(
                look_up_sidecar(self._store, self._location, self._options),
                look_up_pages_file(self._store, self._location),
            )
            if self._location.sidecar_path is not None:
                self._state = lookup.state
            self.findings += await asyncio.to_thread(_sidecar_problems, lookup, self._location, self._write_anew)
            fetch, sidecar = await self._footer(lookup.sidecar)
            self._size_bytes, self.footer = fetch.size_bytes, fetch.footer
            self.findings += self._file_problems(fetch)
            self._check = await asyncio.to_thread(self._check_metadata, fetch, sidecar, pages.data)
            self.findings += self._check.findings
            claims: list[ClaimsOfPages] = []
            if self._packed is not None:
                described = [] if lookup.sidecar is None else [lookup.sidecar]
                if self._packed.is_elsewhere or not described:
                    described.append(await asyncio.to_thread(self._described, fetch))
                differences = compare_with_packed(described, self._packed)
                self.findings += differences
                if not differences and self._packed.pages is not None:
                    packed_claims, problems = await asyncio.to_thread(parse_packed_pages, self._packed)
                    claims += packed_claims
                    self.findings += problems
            if self._deep:
                if self._check.pages is not None:
                    claims.append(ClaimsOfPages(PAGES_FILE, self._check.pages, self._check.sidecar))
                packed_blooms = None if self._packed is None else self._packed.blooms
                self._data = await check_data(
                    self._store, self._location, self._check, pages=claims, packed_blooms=packed_blooms
                )
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
        """Say what was found."""
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
        check = check_partition(
            parse_footer(fetch.footer, path=self._location.data_path, offset=fetch.footer_offset),
            sidecar,
            recorded_rows=None if record is None else record.row_count,
            time_range_ns=None if directory is None else (directory.start_ns, directory.stop_ns),
            sidecar_remedy=self._write_anew,
            pages_file=pages_file,
        )
        if directory is not None:
            return check
        # All advice is to compact, which works on partition directories alone.
        others = tuple(finding for finding in check.findings if finding.severity != "advice")
        return replace(check, findings=others)

    def _described(self, fetch: FooterFetch) -> Sidecar:
        """Describe a file by its footer and its keys, as readers do that find no sidecar."""
        footer = parse_footer(fetch.footer, path=self._location.data_path, offset=fetch.footer_offset)
        return sidecar_in_memory(footer, partial(with_key_columns, keys=self._location.keys))

    def _file_problems(self, fetch: FooterFetch) -> list[Finding]:
        findings = []
        is_indexed = self._packed is not None and self._packed.is_elsewhere and self._packed.lookup.sidecar is not None
        if self._state == "absent" and not is_indexed:
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
