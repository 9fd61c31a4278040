"""Comparing the catalogue of a table with the sidecars that it is a copy of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coldparquet.catalog.catalogue import Catalogue
from coldparquet.catalog.catalogue_fetch import CATALOGUE_FILE, fetch_catalogue
from coldparquet.catalog.table_caches import NO_CACHES
from coldparquet.maintenance.packed_bloom_check import PACK_AGAIN, read_packed_blooms
from coldparquet.plan.finding import Finding
from coldparquet.storage.wrappers.checked import CheckedStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.catalog.packed_sidecars import PackedLookup
    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.maintenance.packed_bloom_check import PartitionBlooms
    from coldparquet.storage.base import ObjectStore


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

    Args:
        store: Where the table lies; it must not pin versions.
        path: Its directory, without a trailing slash.
        locations: The partitions to check.
        deep: Whether to read its bloom filters.
    """
    if any(path in {location.directory_path, location.data_path} for location in locations):
        return CheckedCatalogue()
    catalogue = await open_catalogue(store, path)
    blooms = await read_packed_blooms(store, catalogue.file, deep=deep)
    found = await catalogue.look_up(locations, [])
    packed = {name: PackedEntry(lookup=lookup, blooms=blooms.of_partition.get(name)) for name, lookup in found.items()}
    return CheckedCatalogue(findings=(*catalogue_findings(catalogue, locations), *blooms.findings), packed=packed)


async def open_catalogue(store: ObjectStore, path: str) -> Catalogue:
    """Read the catalogue of a table, or find that there is none. 1 request, more for one above 512 KiB.

    Args:
        store: Where the table lies; it must not pin versions.
        path: Its directory, without a trailing slash.
    """
    return Catalogue(await fetch_catalogue(store, path, spent=[]), NO_CACHES.above(CheckedStore(store)))


def catalogue_findings(catalogue: Catalogue, locations: Sequence[PartitionLocation]) -> tuple[Finding, ...]:
    """Say what is wrong with the catalogue as a whole."""
    return tuple(
        Finding(severity="warning", kind="CatalogueNotUsed", message=note, remedy=PACK_AGAIN)
        for note in catalogue.notes_about(locations)
    )


def compare_with_packed(sidecar: Sidecar | None, entry: PackedEntry | None) -> tuple[Finding, ...]:
    """Compare the snapshot of a partition's sidecar with its entry in the catalogue.

    Args:
        sidecar: The snapshot that counts; None where there is none.
        entry: None where none counts.
    """
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
