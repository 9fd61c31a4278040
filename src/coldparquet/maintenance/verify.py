"""Checking a table's metadata against itself: sidecars against footers, both against the transaction, and the files."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from coldparquet.catalog.discovery import chosen_partitions, discover, unnamed_directories
from coldparquet.catalog.other_layouts import (
    at_other_times,
    refuse_inside_logged_table,
    rows_left_behind,
    unread_beside,
    without_version,
)
from coldparquet.catalog.partition_location import partition_location
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import AccessError, FormatError, UnsupportedError
from coldparquet.maintenance.catalogue_check import check_catalogue
from coldparquet.maintenance.partition_verifier import PartitionVerifier, VerifiedPartition
from coldparquet.options import ReadOptions, StoreOptions
from coldparquet.plan.finding import Finding, finding_of_error
from coldparquet.plan.projection import columns_left_out, match_columns, table_columns_of_metadata, unified_columns
from coldparquet.plan.wording import few_names
from coldparquet.storage.open_store import shown_url
from coldparquet.storage.opened_store import opened_store
from coldparquet.storage.wrappers.checked import CheckedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.table_metadata import TableMetadata
    from coldparquet.plan.finding import Severity
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import Listing


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
    label = shown_url(os.fspath(url))
    async with opened_store(
        os.fspath(url),
        storage_options=storage_options,
        store_options=store_options,
        store=store,
        max_concurrency=options.max_concurrency,
    ) as opened:
        stacked, path = opened.stack.store, opened.path
        found = await find_verifiable(stacked, path)
        locations = chosen_partitions(found.locations, partitions, path)
        catalogue = await check_catalogue(stacked, path.rstrip("/"), locations, deep=deep)
        verifier = PartitionVerifier(
            CheckedStore(stacked), options, missing=found.missing, packed=catalogue.packed, deep=deep
        )
        slots = asyncio.Semaphore(min(options.max_concurrency, _DEEP_AT_ONCE) if deep else options.max_concurrency)

        async def verify_one(location: PartitionLocation) -> VerifiedPartition:
            async with slots:
                done = await verifier.verify(location)
            if on_progress is not None:
                on_progress(done, len(locations))
            return done

        verified = await gather_or_cancel([verify_one(location) for location in locations])
    described = [verifier.described[name] for location in locations if (name := location.name) in verifier.described]
    columns = await asyncio.to_thread(_column_findings, found.metadata, described, are_all=partitions is None)
    findings = (*found.findings, *catalogue.findings, *columns)
    return VerifyReport(url=label, source=found.source, partitions=tuple(verified), findings=findings)


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

    Raises:
        NotFoundError: There is nothing at ``path``, or nothing that is a partition.
        AccessError: The store refused the credentials.
        FormatError: ``_txn`` or ``_meta`` is damaged.
        StorageError: The table files kept changing while they were read.
    """
    if path.endswith(".parquet"):
        await refuse_inside_logged_table(store, path)
        return VerifiableTable(locations=(partition_location(path),), source="one Parquet file")
    discovery = await discover(store, path, look_inside=True)
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
