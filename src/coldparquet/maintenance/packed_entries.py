"""The entries of a catalogue: read from the sidecars and Parquet files of partitions, or kept from an older catalogue."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.catalog.hive_keys import describes_keys
from coldparquet.catalog.packed import TABLE_FILES, is_as_packed, may_count
from coldparquet.catalog.pages import PAGES_FILE, look_up_pages_file, read_page_index
from coldparquet.catalog.partition import Partition, look_up_sidecar
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import (
    AccessError,
    ColdParquetError,
    FormatError,
    InternalError,
    NotFoundError,
    UnsupportedError,
)
from coldparquet.format.blooms import UNKNOWN, locate_blooms
from coldparquet.format.catalogue_blooms import PackedBloom
from coldparquet.format.catalogue_file import (
    LARGEST_SIDECAR_BYTES,
    PackedSidecar,
    parse_catalogue_index,
)
from coldparquet.format.fetch import FetchedRanges, WantedRanges
from coldparquet.format.page_index import encode_pages_file, page_index_range, stated_etag
from coldparquet.format.pages import chunk_places
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_layout import PARQUET_TAIL_BYTES
from coldparquet.options import MIB
from coldparquet.plan.coalescing import choose_coalescing
from coldparquet.plan.model import StoreSpeed
from coldparquet.records import replace
from coldparquet.scan.evidence import fetch_bloom_ranges
from coldparquet.storage.checked import read_whole
from coldparquet.storage.requests import is_lasting_etag, is_written_after

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.blooms import BloomPlaces
    from coldparquet.format.catalogue_file import CatalogueIndex
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.cache import CachedStore
    from coldparquet.storage.checked import CheckedStore
    from coldparquet.storage.requests import ObjectInfo


LARGEST_PACKED_PAGES_BYTES = MIB
"""Of one file; that of more, of tens of thousands of pages, is worth a request of its own."""


async def read_blooms(
    location: PartitionLocation, packed: PackedSidecar, *, store: CheckedStore, options: ReadOptions
) -> tuple[PackedBloom, ...]:
    """Read the filters of a partition, but for those that its sidecar holds. 1 request or few for the Parquet file."""
    sidecar = parse_sidecar(packed.sidecar, parquet_size_bytes=packed.parquet_size_bytes)
    places = _places_in_file(sidecar)
    starts = np.concatenate([np.empty(0, np.int64), *(of_column.starts[found] for of_column, found in places.values())])
    if not len(starts):
        return ()
    lengths = np.concatenate([of_column.lengths[found] for of_column, found in places.values()])
    if is_lasting_etag(packed.data_etag):
        store.versions.pin(location.data_path, packed.data_etag)
    fetched = FetchedRanges()
    try:
        pieces = await fetch_bloom_ranges(
            store,
            location.data_path,
            WantedRanges(starts=starts, stops=starts + lengths),
            coalescing=choose_coalescing(options, StoreSpeed(connections=options.max_concurrency)),
            object_bytes=sidecar.parquet_size_bytes,
            may_grow=location.may_grow,
        )
    except InternalError:
        raise
    except ColdParquetError:
        return ()
    fetched.add_round(pieces)
    return await asyncio.to_thread(_cut_out, sidecar, places, fetched)


async def with_pages(location: PartitionLocation, packed: PackedSidecar, *, store: CachedStore) -> PackedSidecar:
    """Add where the pages of a file lie, unless they are too many; as it is if they cannot be read.

    Requests: 1 for the ``_pages`` beside the file, if there is one; else 1 for the page index, unless it came with the footer.
    A file without either is left alone: finding its pages takes reading most of it.
    """
    sidecar = parse_sidecar(packed.sidecar, parquet_size_bytes=packed.parquet_size_bytes)
    data = b""
    try:
        if packed.has_pages and location.sidecar_path is not None:
            beside = (await look_up_pages_file(store, location)).data or b""
            data = beside if beside and stated_etag(beside) == packed.data_etag else b""
        footer_bytes = sidecar.footer.parquet_footer_length + PARQUET_TAIL_BYTES
        if not data and page_index_range(sidecar).length_bytes > footer_bytes:
            read = await read_page_index(store, location, sidecar, also_earlier=True)
            if read.pages is not None and (np.diff(read.pages.first_page) > 1).any():
                data = await asyncio.to_thread(
                    encode_pages_file,
                    read.pages,
                    chunk_places(sidecar),
                    parquet_size_bytes=packed.parquet_size_bytes,
                    etag=packed.data_etag or "",
                )
    except InternalError:
        raise
    except ColdParquetError:
        return packed
    found = replace(packed, pages=data)
    return found if len(data) <= LARGEST_PACKED_PAGES_BYTES else without_pages(found)


def without_pages(packed: PackedSidecar) -> PackedSidecar:
    """Leave out where the pages of a file lie, and note how many bytes that are, so that they are not read again."""
    return replace(packed, pages=None, left_out_pages_bytes=len(packed.pages)) if packed.pages else packed


def bloom_bytes(packed: PackedSidecar) -> int:
    """Return how many bytes of filters an entry has, or would have: those that its sidecar does not hold itself."""
    if packed.blooms:
        return sum(len(bloom.bitset) for bloom in packed.blooms)
    sidecar = parse_sidecar(packed.sidecar, parquet_size_bytes=packed.parquet_size_bytes, verify_checksum=False)
    return sum(int(of_column.lengths[found].sum()) for of_column, found in _places_in_file(sidecar).values())


def _places_in_file(sidecar: Sidecar) -> dict[int, tuple[BloomPlaces, npt.NDArray[np.intp]]]:
    """Return where the filters of each column lie in the Parquet file, and the row groups that have one."""
    if not sidecar.blooms_external:
        return {}
    found = {}
    for column in sidecar.bloom_columns:
        places = locate_blooms(sidecar, column)
        found[column] = places, np.flatnonzero(places.present & (places.starts != UNKNOWN))
    return found


def _cut_out(
    sidecar: Sidecar,
    places: dict[int, tuple[BloomPlaces, npt.NDArray[np.intp]]],
    fetched: FetchedRanges,
) -> tuple[PackedBloom, ...]:
    blooms = []
    for column, (of_column, row_groups) in places.items():
        for row_group in row_groups.tolist():
            start = int(of_column.starts[row_group])
            bitset = fetched.bytes_at(start, start + int(of_column.lengths[row_group]))
            if bitset is None:
                raise InternalError("bytes of bloom filters are missing although all of them were asked for")
            blooms.append(PackedBloom(column=sidecar.column(column).name, row_group=row_group, bitset=bitset))
    return tuple(blooms)


def has_blooms(data: bytes) -> bool:
    """Tell whether a catalogue holds bloom filters; of a damaged one that is unknown, and it is made as if it were new."""
    try:
        return parse_catalogue_index(data, path=None).blooms_range is not None
    except (FormatError, UnsupportedError):
        return True


def kept_entries(
    data: bytes, locations: Sequence[PartitionLocation], listed: Mapping[str, ObjectInfo] | None = None
) -> dict[str, PackedSidecar]:
    """Return the entries of an older catalogue that are still right; none of a damaged one.

    A transaction decides that, or what a listing showed, by path.
    """
    kept = {}
    try:
        index = parse_catalogue_index(data, path=None)
        places = [index.block_range(block) for block in range(len(index.block_starts))]
        blocks = [
            index.unpack_block(block, memoryview(data)[place.start : place.stop]) for block, place in enumerate(places)
        ]
        blooms = _kept_blooms(data, index)
    except (FormatError, UnsupportedError):
        return {}
    for location in locations:
        if not may_count(index, location):
            continue
        entry = index.entry_of[location.name]
        is_right = (
            location.committed_size_bytes is not None if listed is None else is_as_packed(index, location, listed)
        )
        if not is_right:
            continue
        packed = PackedSidecar(
            name=location.name,
            parquet_size_bytes=int(index.parquet_sizes[entry]),
            row_count=int(index.row_counts[entry]),
            sidecar=index.sidecar_in(blocks[int(index.blocks[entry])], entry),
            data_etag=index.data_etags[entry],
            sidecar_etag=index.sidecar_etags[entry],
            has_pages=bool(index.has_pages[entry]),
            blooms=tuple(blooms.get(entry, ())),
            pages=None if (place := index.pages_range(location.name)) is None else data[place.start : place.stop],
            left_out_pages_bytes=int(index.left_out_pages_bytes[entry]),
        )
        try:
            if not location.keys or describes_keys(parse_sidecar(packed.sidecar), location.keys):
                kept[location.name] = packed
        except (FormatError, UnsupportedError):
            continue
    return kept


def _kept_blooms(data: bytes, index: CatalogueIndex) -> dict[int, list[PackedBloom]]:
    if index.blooms_range is None:
        return {}
    place, stripes = index.blooms_range, index.stripes_range
    blooms = index.parse_blooms(data[place.start : place.stop])
    return blooms.bitsets_of_entries(memoryview(data)[stripes.start : stripes.stop])


_NATIVE = "in QuestDB's native format"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A partition that is not packed."""

    reason: str
    is_unreadable: bool = False
    """Whether readers cannot read it either."""


async def read_entry(
    location: PartitionLocation, *, store: ObjectStore, options: ReadOptions
) -> PackedSidecar | LeftOut:
    """Read one partition from a store that pins versions. 1 listing, and 1 or 2 requests for its sidecar; none for a native one."""
    if location.is_native:
        return LeftOut(reason=_NATIVE)
    # In this order: if the sidecar is replaced in between, the entry says an older version of it, and does not count.
    listed = await _list(location, store)
    lookup = await look_up_sidecar(store, location, options)
    sidecar = lookup.sidecar
    if sidecar is None:
        problem = lookup.problem.message if lookup.problem else "it has no sidecar; 'coldparquet index' writes one"
        return LeftOut(reason=problem)
    if len(lookup.file) > LARGEST_SIDECAR_BYTES:
        return LeftOut(reason=f"its sidecar of {len(lookup.file):,} bytes is worth a request of its own")
    unusable = None if location.committed_size_bytes is not None else _why_unusable(listed, sidecar)
    if unusable is not None:
        return LeftOut(reason=unusable)
    return PackedSidecar(
        name=location.name,
        parquet_size_bytes=sidecar.parquet_size_bytes,
        row_count=sidecar.total_rows,
        sidecar=lookup.file,
        data_etag=_lasting_etag(listed, DATA_FILE),
        sidecar_etag=_lasting_etag(listed, SIDECAR_FILE),
        has_pages=not listed or PAGES_FILE in listed,
    )


async def read_table_files_as_they_are(store: ObjectStore, path: str) -> list[PackedSidecar]:
    """Read the files of a table for its index, see :data:`TABLE_FILES`; none without lasting versions. 2 requests."""
    read = [read_whole(store, f"{path}/{name}") for name in TABLE_FILES]
    return [
        PackedSidecar(
            name=name,
            parquet_size_bytes=0,
            row_count=0,
            sidecar=found.data,
            data_etag=found.etag,
            sidecar_etag=None,
            has_pages=False,
        )
        for name, found in zip(TABLE_FILES, await gather_or_cancel(read), strict=True)
        if is_lasting_etag(found.etag) and len(found.data) <= LARGEST_SIDECAR_BYTES
    ]


def as_listed(location: PartitionLocation, listed: Mapping[str, ObjectInfo]) -> PartitionLocation:
    """Add what a listing shows of a partition directory: the size of its file, and whether a sidecar describes that."""
    data, sidecar = listed.get(location.data_path), listed.get(location.sidecar_path or "")
    is_described = (
        data is not None and sidecar is not None and not is_written_after(data.modified_s, sidecar.modified_s)
    )
    return replace(
        location,
        listed_size_bytes=None if data is None else data.size_bytes,
        sidecar_path=location.sidecar_path if is_described else None,
    )


async def read_entry_of_file(
    location: PartitionLocation, listed: Mapping[str, ObjectInfo], *, store: CachedStore, options: ReadOptions
) -> PackedSidecar | LeftOut:
    """Describe a file that was listed by its footer, or by its sidecar. 1 or 2 requests."""
    info = listed.get(location.data_path)
    if location.is_native or info is None:
        return LeftOut(reason=_NATIVE if location.is_native else f"it has no {DATA_FILE}")
    if not is_lasting_etag(info.etag):
        return LeftOut(reason="readers check entries by the versions of objects, which this store does not list")
    try:
        metadata = await Partition(location, store, options).metadata()
    except InternalError:
        raise
    except ColdParquetError as error:
        return LeftOut(reason=error.message, is_unreadable=True)
    sidecar = metadata.sidecar
    if len(sidecar.file) > LARGEST_SIDECAR_BYTES:
        return LeftOut(reason=f"its description of {len(sidecar.file):,} bytes is worth a request of its own")
    etag = None if location.sidecar_path is None else store.versions.lasting_etag(location.sidecar_path)
    if location.sidecar_path is not None and etag is None:
        return LeftOut(reason="the version of its sidecar is not known")
    return PackedSidecar(
        name=location.name,
        parquet_size_bytes=sidecar.parquet_size_bytes,
        row_count=sidecar.total_rows,
        sidecar=sidecar.file,
        data_etag=info.etag,
        sidecar_etag=etag,
        has_pages=f"{location.directory_path}/{PAGES_FILE}" in listed,
    )


async def _list(location: PartitionLocation, store: ObjectStore) -> Mapping[str, ObjectInfo]:
    """List the objects of a partition by their names; none where the store does not list them."""
    try:
        listing = await store.list(location.directory_path)
    except (AccessError, NotFoundError):
        return {}
    return {info.path.rpartition("/")[2]: info for info in listing.objects}


def _lasting_etag(listed: Mapping[str, ObjectInfo], name: str) -> str | None:
    etag = listed[name].etag if name in listed else None
    return etag if is_lasting_etag(etag) else None


def _why_unusable(listed: Mapping[str, ObjectInfo], sidecar: Sidecar) -> str | None:
    """Say why no reader could tell later, without a transaction, that a sidecar is still the right one; None if one could."""
    if _lasting_etag(listed, DATA_FILE) is None or _lasting_etag(listed, SIDECAR_FILE) is None:
        return "without a _txn readers check entries by the versions of objects, which this store does not list"
    size_bytes = listed[DATA_FILE].size_bytes
    if size_bytes != sidecar.parquet_size_bytes:
        return f"its sidecar describes {sidecar.parquet_size_bytes:,} bytes, but {DATA_FILE} has {size_bytes:,}"
    return None
