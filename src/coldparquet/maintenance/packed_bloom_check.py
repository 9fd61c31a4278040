"""Checking the bloom filters that the catalogue of a table holds: a filter that is another one than in the file loses rows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coldparquet.catalog.catalogue_fetch import CATALOGUE_FILE, CATALOGUE_REASON
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import ColdParquetError, InternalError
from coldparquet.format.bloom_places import UNKNOWN
from coldparquet.maintenance.bloom_check import located_blooms
from coldparquet.options import MIB
from coldparquet.plan.finding import Finding
from coldparquet.ranges import ByteRange
from coldparquet.storage.objects import is_lasting_etag
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coldparquet.catalog.catalogue_fetch import CatalogueFile
    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.format.bloom_places import BloomPlaces
    from coldparquet.format.catalogue_blooms import PackedBloom
    from coldparquet.format.catalogue_file import CatalogueIndex
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.storage.base import ObjectStore

PACK_AGAIN = "'coldparquet pack' writes the catalogue anew"

_PIECE_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBlooms:
    """The bloom filters of one partition in a catalogue."""

    blooms: tuple[PackedBloom, ...]
    data_etag: str | None
    """Version of the Parquet object that they were packed from; None where it has none that lasts."""

    def are_asked(self, location: PartitionLocation, *, found_etag: str | None) -> bool:
        """Tell whether readers ask them: not where they find another version of the Parquet object.

        Args:
            location: The partition; where the table's transaction tells a size, that is the version.
            found_etag: Version of the Parquet object that lies there.
        """
        is_another = is_lasting_etag(found_etag) and self.data_etag not in {None, found_etag}
        return location.committed_size_bytes is not None or not is_another


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPackedBlooms:
    """The bloom filters in a catalogue, as far as they were read."""

    findings: tuple[Finding, ...] = ()
    """What is wrong with them as a whole."""
    of_partition: Mapping[str, PartitionBlooms] = field(default_factory=dict)
    """The filters, by the names of partitions."""


async def read_packed_blooms(store: ObjectStore, file: CatalogueFile, *, deep: bool) -> ReadPackedBlooms:
    """Read the bloom filters of a catalogue, with their checksums; or only check their index.

    Requests: 1 per 8 MiB, of the filters or of their index; none where it came with the catalogue, or holds none. All filters
    are in memory, twice.

    Args:
        store: Where the catalogue lies.
        file: Its beginning.
        deep: Whether to read the filters themselves.
    """
    index = file.index
    if index is None or index.blooms_range is None:
        return ReadPackedBlooms()
    try:
        data = await _fetch(store, file, index.blooms_range)
        if not deep:
            await asyncio.to_thread(index.parse_blooms, data)
            return ReadPackedBlooms()
        stripes = await _fetch(store, file, index.stripes_range)
        return ReadPackedBlooms(of_partition=await asyncio.to_thread(_by_partition, index, data, stripes))
    except InternalError:
        raise
    except ColdParquetError as error:
        message = f"the bloom filters in {CATALOGUE_FILE} are not used: {error.message}"
        finding = Finding(severity="warning", kind="CatalogueNotUsed", message=message, remedy=PACK_AGAIN)
        return ReadPackedBlooms(findings=(finding,))


async def _fetch(store: ObjectStore, file: CatalogueFile, place: ByteRange) -> bytes:
    if place.stop <= len(file.beginning):
        return file.beginning[place.start : place.stop]
    requests = [
        RangeRequest(
            path=file.path,
            byte_range=ByteRange(start, min(start + _PIECE_BYTES, place.stop)),
            reason=CATALOGUE_REASON,
            if_match=file.etag,
        )
        for start in range(place.start, place.stop, _PIECE_BYTES)
    ]
    return b"".join([answer.data for answer in await gather_or_cancel([store.get(request) for request in requests])])


def _by_partition(index: CatalogueIndex, data: bytes, stripes: bytes) -> dict[str, PartitionBlooms]:
    of_entries = index.parse_blooms(data).bitsets_of_entries(memoryview(stripes))
    return {
        name: PartitionBlooms(blooms=tuple(of_entries[entry]), data_etag=index.data_etags[entry])
        for name, entry in index.entry_of.items()
        if entry in of_entries
    }


def compare_packed_blooms(
    sidecar: Sidecar, packed: Sequence[PackedBloom], read_at: Callable[[int, int], bytes]
) -> list[Finding]:
    """Compare filters of a catalogue with those of the Parquet file, bit by bit. Blocks.

    Args:
        sidecar: Says where the file has its filters, or holds them.
        packed: Those of the catalogue.
        read_at: Returns bytes of the Parquet file, given the first one and how many.
    """
    columns = {sidecar.column(column).name: column for column in sidecar.bloom_columns}
    packed_columns = columns.keys() & {bloom.column for bloom in packed}
    places = {name: located_blooms(sidecar, columns[name], read_at) for name in packed_columns}
    differing: dict[str, list[int]] = {}
    for bloom in packed:
        of_column = places.get(bloom.column)
        stored = None if of_column is None else _stored_bitset(of_column, bloom.row_group, sidecar, read_at)
        if stored != bloom.bitset:
            differing.setdefault(bloom.column, []).append(bloom.row_group)
    return [
        Finding(
            severity="error",
            kind="CatalogueDiffers",
            message=f"column {column!r}: its bloom filters in {CATALOGUE_FILE}, by which readers leave out row groups, are not"
            " those of the Parquet file",
            remedy=f"readers may miss rows: {PACK_AGAIN}",
            column=column,
            row_groups=tuple(row_groups),
        )
        for column, row_groups in differing.items()
    ]


def _stored_bitset(
    places: BloomPlaces, row_group: int, sidecar: Sidecar, read_at: Callable[[int, int], bytes]
) -> bytes | None:
    """Read the filter of a row group; None where there is none."""
    if row_group >= len(places.present) or not places.present[row_group]:
        return None
    start, length_bytes = int(places.starts[row_group]), int(places.lengths[row_group])
    if places.in_sidecar:
        return bytes(sidecar.file[start : start + length_bytes])
    return None if start == UNKNOWN else read_at(start, length_bytes)
