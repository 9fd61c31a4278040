"""Packing the sidecars and bloom filters of a table into its catalogue, so that later readers plan from one request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coldparquet.catalog.discovery import discover
from coldparquet.catalog.packed import CATALOGUE_FILE, CATALOGUE_REASON, may_count
from coldparquet.catalog.pages import PAGES_FILE
from coldparquet.catalog.partition import look_up_sidecar
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.concurrency import map_or_cancel
from coldparquet.errors import (
    AccessError,
    ColdParquetError,
    FormatError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    UnsupportedError,
)
from coldparquet.format.blooms import UNKNOWN, locate_blooms
from coldparquet.format.catalogue_blooms import PackedBloom
from coldparquet.format.catalogue_file import (
    LARGEST_FILE_BYTES,
    LARGEST_SIDECAR_BYTES,
    PackedSidecar,
    encode_catalogue,
    parse_catalogue_index,
)
from coldparquet.format.fetch import FetchedRanges, WantedRanges
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.maintenance.walk import Place
from coldparquet.options import ReadOptions, StoreOptions
from coldparquet.plan.coalescing import choose_coalescing
from coldparquet.plan.model import StoreSpeed
from coldparquet.scan.evidence import fetch_bloom_ranges
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.requests import is_lasting_etag
from coldparquet.storage.transfer import read_whole

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.blooms import BloomPlaces
    from coldparquet.format.catalogue_file import CatalogueIndex
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import FetchedRange, ObjectInfo


DEFAULT_LIMIT_BYTES = 64 * 1024 * 1024
"""Filters of more bytes are not packed: whoever renews the catalogue writes all of them anew."""


class BloomPacker:
    """Reads the filters of one partition after the other.

    Args:
        store: Where they lie.
        options: How to read.
    """

    def __init__(self, store: CheckedStore, options: ReadOptions) -> None:
        self._store = store
        self._coalescing = choose_coalescing(options, StoreSpeed(connections=options.max_concurrency))

    async def read(self, location: PartitionLocation, packed: PackedSidecar) -> tuple[PackedBloom, ...]:
        """Read the filters of a partition, but for those that its sidecar holds. 1 request or few for the Parquet file."""
        sidecar = parse_sidecar(packed.sidecar, parquet_size_bytes=packed.parquet_size_bytes)
        places = _places_in_file(sidecar)
        starts = np.concatenate(
            [np.empty(0, np.int64), *(of_column.starts[found] for of_column, found in places.values())]
        )
        if not len(starts):
            return ()
        lengths = np.concatenate([of_column.lengths[found] for of_column, found in places.values()])
        if is_lasting_etag(packed.data_etag):
            self._store.pin(location.data_path, packed.data_etag)
        fetched = FetchedRanges()
        try:
            pieces = await fetch_bloom_ranges(
                self._store,
                location.data_path,
                WantedRanges(starts=starts, stops=starts + lengths),
                coalescing=self._coalescing,
                object_bytes=sidecar.parquet_size_bytes,
                may_grow=location.may_grow,
            )
        except InternalError:
            raise
        except ColdParquetError:
            return ()
        fetched.add_round(pieces)
        return await asyncio.to_thread(_cut_out, sidecar, places, fetched)


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
    """Tell whether a catalogue holds bloom filters; of a damaged one nobody knows, and it is made as if it were new."""
    try:
        return parse_catalogue_index(data, path=None).blooms_range is not None
    except (FormatError, UnsupportedError):
        return True


def kept_entries(data: bytes, locations: Sequence[PartitionLocation]) -> dict[str, PackedSidecar]:
    """Return the entries of an older catalogue that a transaction says are still right; none of a damaged one."""
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
        if location.committed_size_bytes is None or not may_count(index, location):
            continue
        entry = index.entry_of[location.name]
        kept[location.name] = PackedSidecar(
            name=location.name,
            parquet_size_bytes=int(index.parquet_sizes[entry]),
            row_count=int(index.row_counts[entry]),
            sidecar=index.sidecar_in(blocks[int(index.blocks[entry])], entry),
            data_etag=index.data_etags[entry],
            sidecar_etag=index.sidecar_etags[entry],
            has_pages=bool(index.has_pages[entry]),
            blooms=tuple(blooms.get(entry, ())),
        )
    return kept


def _kept_blooms(data: bytes, index: CatalogueIndex) -> dict[int, list[PackedBloom]]:
    if index.blooms_range is None:
        return {}
    place, stripes = index.blooms_range, index.stripes_range
    blooms = index.parse_blooms(data[place.start : place.stop])
    return blooms.bitsets_of_entries(memoryview(data)[stripes.start : stripes.stop])


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A partition that is not packed."""

    reason: str


class PartitionPacker:
    """Reads one partition after the other.

    Args:
        store: Where they lie; it should pin versions.
        options: How to read.
    """

    def __init__(self, store: ObjectStore, options: ReadOptions) -> None:
        self._store = store
        self._options = options

    async def read(self, location: PartitionLocation) -> PackedSidecar | LeftOut:
        """Read one partition. 1 listing, and 1 or 2 requests for its sidecar; none for a native one."""
        if location.is_native:
            return LeftOut(reason="in QuestDB's native format")
        # In this order: if the sidecar is replaced in between, the entry says an older version of it, and does not count.
        listed = await self._list(location)
        lookup = await look_up_sidecar(self._store, location, self._options)
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

    async def _list(self, location: PartitionLocation) -> Mapping[str, ObjectInfo]:
        """List the objects of a partition by their names; none where the store does not list them."""
        try:
            listing = await self._store.list(location.directory_path)
        except (AccessError, NotFoundError):
            return {}
        return {info.path.rpartition("/")[2]: info for info in listing.objects}


def _lasting_etag(listed: Mapping[str, ObjectInfo], name: str) -> str | None:
    etag = listed[name].etag if name in listed else None
    return etag if is_lasting_etag(etag) else None


def _why_unusable(listed: Mapping[str, ObjectInfo], sidecar: Sidecar) -> str | None:
    """Say why nobody could tell later, without a transaction, that a sidecar is still the right one; None if they could."""
    if _lasting_etag(listed, DATA_FILE) is None or _lasting_etag(listed, SIDECAR_FILE) is None:
        return "without a _txn readers check entries by the versions of objects, which this store does not list"
    size_bytes = listed[DATA_FILE].size_bytes
    if size_bytes != sidecar.parquet_size_bytes:
        return f"its sidecar describes {sidecar.parquet_size_bytes:,} bytes, but {DATA_FILE} has {size_bytes:,}"
    return None


PackAction = Literal["written", "would write", "unchanged", "skipped", "failed"]
"""``unchanged``: the catalogue that is there says the same. ``skipped``: there is nothing to pack."""

_NOT_USED_HERE = "readers use it in copies on S3, not here, where no listing tells versions"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPartition:
    """What became of one partition."""

    name: str
    sidecar_bytes: int | None
    """Size of its sidecar; None where it is left out."""
    reason: str | None = None
    """Why it is left out; readers fetch its sidecar by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackReport:
    """What packing a table did, or would do."""

    url: str
    action: PackAction
    catalogue_bytes: int | None = None
    """Size of the catalogue; None where there is none, or nobody knows."""
    bloom_bytes: int = 0
    """Bytes of the bloom filters in it."""
    left_out_bloom_bytes: int = 0
    """Bytes of the bloom filters of the table, if they are not in it because they are more than was allowed."""
    partitions: tuple[PackedPartition, ...] = ()
    """Oldest first."""
    reason: str | None = None
    """Why nothing was written, or why readers do not use what was."""

    @property
    def packed_count(self) -> int:
        """How many partitions are in the catalogue."""
        return sum(partition.sidecar_bytes is not None for partition in self.partitions)


async def pack_table(  # noqa: PLR0913 - what can be told is told by name
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    bloom_limit_bytes: int = DEFAULT_LIMIT_BYTES,
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
    So an old one is of less use, but not wrong, unless somebody puts another file of the same size and rows under the same
    ``_txn``, after which one has to run ``coldparquet index --force``. Readers of local disks and other stores pass by.
    It appears complete or not at all, and nothing else is written.

    Requests: those that find the partitions (:func:`coldparquet.catalog.discovery.discover`); per Parquet partition 1 listing
    and 1 or 2 for the sidecar, and where it has bloom filters 1 or few for those; 1 for the catalogue that is there and
    1 to write, none if nothing is new.
    """
    options = options or ReadOptions()
    place = Place(url, storage_options, store_options, store)
    async with place.opened(max_concurrency=options.max_concurrency) as opened:
        packing = _Packing(
            opened.stack.store, opened.path.rstrip("/"), options, dry_run=dry_run, on_progress=on_progress
        )
        report = await packing.pack(await packing.existing(), changed=None, bloom_limit_bytes=bloom_limit_bytes)
        return replace(report, url=place.label)


async def renew_catalogue(  # noqa: PLR0913 - what can be told is told by name
    store: ObjectStore,
    path: str,
    options: ReadOptions,
    *,
    changed: Collection[str],
    make: bool,
    dry_run: bool = False,
) -> PackReport | None:
    """Bring the catalogue of a table up to date after partitions of it were written.

    Requests: 1 for the catalogue that is there; if there is one, or one is asked for, those of :func:`pack_table`, but only
    for partitions that were written or that it does not have. A catalogue without bloom filters gets none.
    """
    packing = _Packing(store, path, options, dry_run=dry_run, on_progress=None)
    try:
        existing = await packing.existing()
        if existing is None and not make:
            return None
        limit_bytes = DEFAULT_LIMIT_BYTES if existing is None or has_blooms(existing.data) else 0
        return await packing.pack(existing, changed=changed, bloom_limit_bytes=limit_bytes)
    except InternalError:
        raise
    except ColdParquetError as error:
        return PackReport(url=path, action="failed", reason=error.message)


class _Packing:
    """Packs one table."""

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        options: ReadOptions,
        *,
        dry_run: bool,
        on_progress: Callable[[str, int], None] | None,
    ) -> None:
        self._store = store
        self._path = path
        self._catalogue_path = f"{path}/{CATALOGUE_FILE}"
        self._checked = CheckedStore(store)
        self._options = options
        self._dry_run = dry_run
        self._on_progress = on_progress

    async def existing(self) -> FetchedRange | None:
        """Fetch the catalogue that is there; 1 request for most."""
        try:
            return await read_whole(
                self._store, self._catalogue_path, reason=CATALOGUE_REASON, largest_bytes=LARGEST_FILE_BYTES
            )
        except NotFoundError:
            return None

    async def pack(
        self, existing: FetchedRange | None, *, changed: Collection[str] | None, bloom_limit_bytes: int
    ) -> PackReport:
        """Pack the table; where ``changed`` says which partitions are new, the others are taken from the old catalogue."""
        discovery = await discover(self._store, self._path)
        locations = discovery.locations
        if any(location.directory_path == self._path for location in locations):
            raise InvalidInputError(
                "this is one partition; its table's directory is needed, in which the catalogue will lie",
                kind="NotATable",
                path=self._path,
            )
        kept: dict[str, PackedSidecar] = {}
        if existing is not None and changed is not None:
            trusted = [location for location in locations if location.name not in changed]
            kept = await asyncio.to_thread(kept_entries, existing.data, trusted)
        packed = await self._read(locations, kept)
        all_bloom_bytes = sum(bloom_bytes(one) for one in packed if isinstance(one, PackedSidecar))
        has_blooms = 0 < all_bloom_bytes <= bloom_limit_bytes
        packed = await self._with_blooms(locations, packed) if has_blooms else _without_blooms(packed)
        partitions = tuple(_described(location, one) for location, one in zip(locations, packed, strict=True))
        report = PackReport(
            url=self._path,
            action="skipped",
            partitions=partitions,
            bloom_bytes=all_bloom_bytes if has_blooms else 0,
            left_out_bloom_bytes=0 if has_blooms else all_bloom_bytes,
        )
        entries = [one for one in packed if isinstance(one, PackedSidecar)]
        if not entries:
            return replace(report, reason="there is no partition with a sidecar that can be packed")
        data = await asyncio.to_thread(encode_catalogue, entries)
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
        packer = PartitionPacker(self._checked, self._options)

        async def read(location: PartitionLocation) -> PackedSidecar | LeftOut:
            if location.name in kept:
                return kept[location.name]
            found = await packer.read(location)
            if self._on_progress is not None:
                self._on_progress(location.name, len(locations))
            return found

        return await map_or_cancel(read, locations, at_once=self._options.max_concurrency)

    async def _with_blooms(
        self, locations: Sequence[PartitionLocation], packed: Sequence[PackedSidecar | LeftOut]
    ) -> list[PackedSidecar | LeftOut]:
        packer = BloomPacker(self._checked, self._options)

        async def read(pair: tuple[PartitionLocation, PackedSidecar | LeftOut]) -> PackedSidecar | LeftOut:
            location, one = pair
            if isinstance(one, LeftOut) or one.blooms:
                return one
            return replace(one, blooms=await packer.read(location, one))

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
        return PackedPartition(name=location.name, sidecar_bytes=None, reason=packed.reason)
    return PackedPartition(name=location.name, sidecar_bytes=len(packed.sidecar))


def _conflict(path: str) -> ObjectChangedError:
    return ObjectChangedError(
        "somebody else wrote the catalogue of this table at the same time; pack it again",
        kind="CatalogueConflict",
        path=path,
    )
