"""Reads the catalogue of a table, the object ``_catalogue``: fetches it, and the sidecars and bloom filters in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from coldparquet.catalog.hive_keys import describes_keys
from coldparquet.catalog.table_files import METADATA_FILE, TRANSACTION_FILE
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import (
    AccessError,
    ColdParquetError,
    FormatError,
    InternalError,
    NotFoundError,
    UnsupportedError,
)
from coldparquet.format.blooms import BLOCK_BYTES
from coldparquet.format.catalogue_file import index_range, parse_catalogue_index
from coldparquet.format.sidecar import SidecarStack, parse_sidecar, stack_alike
from coldparquet.options import KIB, MIB
from coldparquet.plan.coalesce import coalesce
from coldparquet.ranges import ByteRange
from coldparquet.storage.log import note_metadata
from coldparquet.storage.requests import FetchedRange, RangeRequest, is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import TypeAlias

    import numpy.typing as npt

    from coldparquet.catalog.objects import ListedObjects
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.catalogue_blooms import BloomStripes, CatalogueBlooms
    from coldparquet.format.catalogue_file import CatalogueIndex
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.blooms import WantedBlocks
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import Listing, ObjectInfo

    Words: TypeAlias = npt.NDArray[np.uint32]
    Stripe: TypeAlias = tuple[str, int, int]

CATALOGUE_FILE = "_catalogue"

CATALOGUE_REASON = "catalogue"

TABLE_FILES = (TRANSACTION_FILE, METADATA_FILE)
"""Files of a table that an index at another place holds, too: entries of these names, of which a listing tells whether they still
count. So a reader that knows where the index is asks for neither, in tables and in lakes that have none."""

_FIRST_REQUEST_BYTES = 512 * 1024
"""Holds a year of days of 10 columns in 4 row groups, and downloads while `_txn` and the listing are awaited."""


class CatalogueFile(Struct, frozen=True, kw_only=True):
    """The object ``_catalogue`` of a table, or why there is none."""

    path: str
    index: CatalogueIndex | None = None
    """None where there is no catalogue, or none that can be used."""
    beginning: bytes = b""
    """The fetched bytes."""
    etag: str | None = None
    problem: str | None = None
    """Why it is not used, though it may exist."""


async def fetch_catalogue(
    store: ObjectStore, table_path: str, *, previous: CatalogueFile | None = None
) -> CatalogueFile:
    """Fetch the beginning of a table's catalogue: its index, and all of a small one.

    1 request, 2 where the index alone is longer than 512 KiB; none where an earlier request found no catalogue. The
    object is optional, so no error is raised.
    """
    path = f"{table_path}/{CATALOGUE_FILE}"
    kept = previous if previous is not None and previous.index is not None else None
    if previous is not None and kept is None and previous.problem is None:
        return previous
    first = ByteRange(0, _FIRST_REQUEST_BYTES)
    try:
        request = RangeRequest(
            path=path,
            byte_range=first,
            reason=CATALOGUE_REASON,
            may_be_short=True,
            if_none_match=kept.etag if kept is not None and is_lasting_etag(kept.etag) else None,
        )
        answer = await send_for_catalogue(store, request)
        if kept is not None and answer.is_unchanged:
            return kept
        return await _read_index(store, path, answer)
    except (NotFoundError, AccessError):
        # Where listing is not allowed, S3 refuses what is absent. Other refusals show in requests for required objects.
        note_metadata(path, first, f"no {CATALOGUE_REASON}")
        return CatalogueFile(path=path)
    except (FormatError, UnsupportedError) as error:
        return CatalogueFile(path=path, problem=error.message)
    except InternalError:
        raise
    except ColdParquetError as error:
        return CatalogueFile(path=path, problem=f"it could not be fetched: {error.message}")


async def _read_index(store: ObjectStore, path: str, answer: FetchedRange) -> CatalogueFile:
    beginning, wanted = answer.data, index_range(answer.data, path=path)
    if wanted.stop > len(beginning) == _FIRST_REQUEST_BYTES:
        rest = ByteRange(len(beginning), wanted.stop)
        request = RangeRequest(
            path=path, byte_range=rest, reason=CATALOGUE_REASON, if_match=answer.etag, may_be_short=True
        )
        beginning += (await send_for_catalogue(store, request)).data
    index = await asyncio.to_thread(parse_catalogue_index, beginning, path=path)
    return CatalogueFile(path=path, index=index, beginning=beginning, etag=answer.etag)


def is_of_transaction(file: CatalogueFile) -> bool:
    """Tell whether the table had a ``_txn`` when its index at another place was written."""
    return file.index is not None and TRANSACTION_FILE in file.index.entry_of


async def remembered_files(file: CatalogueFile, listing: Listing, path: str) -> dict[str, FetchedRange]:
    """Return the files of a table that its index holds in the versions that a listing of its directory shows. No request."""
    index, listed = file.index, {info.path: info for info in listing.objects}
    found: dict[str, FetchedRange] = {}
    for name in TABLE_FILES:
        info, entry = listed.get(f"{path.rstrip('/')}/{name}"), None if index is None else index.entry_of.get(name)
        if index is None or info is None or entry is None:
            continue
        block, etag = int(index.blocks[entry]), index.data_etags[entry]
        place = index.block_range(block)
        if info.etag != etag or not is_lasting_etag(etag) or place.stop > len(file.beginning):
            continue
        unpacked = await asyncio.to_thread(_unpack, index, block, memoryview(file.beginning)[place.start : place.stop])
        if not isinstance(unpacked, str):
            data = bytes(index.sidecar_in(unpacked, entry))
            if len(data) == info.size_bytes:
                found[name] = FetchedRange(data=data, start=0, etag=etag, object_size_bytes=len(data))
    return found


async def send_for_catalogue(store: ObjectStore, request: RangeRequest) -> FetchedRange:
    """Fetch a range of a catalogue, and record the request."""
    answer = await store.get(request)
    is_unchanged = answer.is_unchanged or answer.is_from_cache
    reason = f"{CATALOGUE_REASON}, unchanged" if is_unchanged else request.reason
    note_metadata(request.path, request.byte_range, reason, fetched_bytes=0 if is_unchanged else len(answer.data))
    return answer


STRIPES_REASON = f"bloom filters in the {CATALOGUE_REASON}"

_GAP_BYTES, _LONGEST_REQUEST_BYTES = 128 * KIB, 8 * MIB
_MOST_STRIPE_BYTES = 32 * MIB
"""Long lists of values need many stripes, each of which spans the table. Above this limit, the partitions' files are
read."""


class AskedPartition(Struct, frozen=True, kw_only=True):
    """The filters wanted of one partition that has a valid catalogue entry."""

    name: str
    wanted: tuple[WantedBlocks, ...]
    """One for each lookup."""


class PackedBlooms:
    """The bloom filters in the catalogue of one state of a table.

    Args:
        file: The catalogue, as far as it is fetched.
        store: The catalogue's store.
    """

    def __init__(self, file: CatalogueFile, store: ObjectStore) -> None:
        self._file = file
        self._store = store
        self._parsing = asyncio.Lock()
        self._index: CatalogueBlooms | None = None

    @property
    def are_there(self) -> bool:
        """Whether the catalogue holds filters."""
        return self._file.index is not None and self._file.index.blooms_range is not None

    async def blocks_of(self, asked: Sequence[AskedPartition]) -> tuple[dict[str, list[Words]], str | None]:
        """Return the blocks of filters that lookups in partitions touch.

        Requests: few, in one round trip; before it 1 for their index, unless it came with the catalogue. None at all
        where that is not fewer than 1 for each partition.
        """
        try:
            found = await self._find(asked)
            if found is None:
                return {}, None
            return await asyncio.to_thread(found.blocks, await self._fetch(found)), None
        except InternalError:
            raise
        except ColdParquetError as error:
            return {}, f"the bloom filters in the catalogue are not used: {error.message}"

    async def _find(self, asked: Sequence[AskedPartition]) -> _Found | None:
        """Find the stripes; None where it takes fewer requests to read the partitions' own files."""
        own_requests = len(asked)
        index_requests = 0 if self._is_at_hand else 1
        if not self.are_there or own_requests <= index_requests + 1:
            return None
        found = _Found.of(self._file, await self._parsed(), asked)
        is_cheaper = found.request_count < own_requests and found.stripe_bytes <= _MOST_STRIPE_BYTES
        return found if is_cheaper else None

    @property
    def _is_at_hand(self) -> bool:
        index = self._file.index
        place = None if index is None else index.blooms_range
        return self._index is not None or (place is not None and place.stop <= len(self._file.beginning))

    async def _parsed(self) -> CatalogueBlooms:
        async with self._parsing:
            if self._index is None:
                index = self._file.index
                place = None if index is None else index.blooms_range
                if index is None or place is None:
                    raise InternalError("a catalogue without bloom filters was asked for them", path=self._file.path)
                data = self._file.beginning[place.start : place.stop]
                if len(data) < place.length_bytes:
                    data = await self._get(place)
                self._index = await asyncio.to_thread(index.parse_blooms, data)
            return self._index

    async def _fetch(self, found: _Found) -> dict[Stripe, memoryview]:
        requests = found.requests
        bounds = zip(requests.starts.tolist(), requests.stops.tolist(), strict=True)
        answers = await gather_or_cancel([self._get(ByteRange(start, stop)) for start, stop in bounds])
        begins = (found.starts - requests.starts[requests.first_request]).tolist()
        places = zip(found.stripes, requests.first_request.tolist(), begins, strict=True)
        return {
            stripe: memoryview(answers[answer])[begin : begin + found.group_of(stripe).stripe_bytes]
            for stripe, answer, begin in places
        }

    async def _get(self, byte_range: ByteRange) -> bytes:
        request = RangeRequest(
            path=self._file.path, byte_range=byte_range, reason=STRIPES_REASON, if_match=self._file.etag
        )
        return (await send_for_catalogue(self._store, request)).data


class _Found:
    """The stripes that hold the blocks of some partitions.

    Args:
        blooms: The index of the stripes.
        places: By partition and lookup, the position of each block in its stripe.
        asked: The partitions with all of their filters in the catalogue.
    """

    def __init__(
        self,
        blooms: CatalogueBlooms,
        places: Mapping[str, Sequence[npt.NDArray[np.int64]]],
        asked: Collection[AskedPartition],
    ) -> None:
        self._blooms = blooms
        self._places = places
        self._asked = asked
        wanted = {stripe for one in asked for lookup in one.wanted for stripe in _stripes_of(lookup)}
        start_of = {
            stripe: blooms.stripes_start + self.group_of(stripe).stripe_range(stripe[2]).start for stripe in wanted
        }
        self.stripes = sorted(wanted, key=start_of.__getitem__)
        lengths = np.array([self.group_of(stripe).stripe_bytes for stripe in self.stripes], np.int64)
        self.starts = np.array([start_of[stripe] for stripe in self.stripes], np.int64)
        self.requests = coalesce(
            self.starts,
            self.starts + lengths,
            gap_bytes=_GAP_BYTES,
            max_request_bytes=max(_LONGEST_REQUEST_BYTES, int(lengths.max(initial=0))),
        )
        self.stripe_bytes = int(lengths.sum())

    @classmethod
    def of(
        cls,
        file: CatalogueFile,
        blooms: CatalogueBlooms,
        asked: Sequence[AskedPartition],
    ) -> _Found:
        """Find the blocks; omit partitions that lack a filter."""
        if file.index is None:
            raise InternalError("a catalogue without an index has no bloom filters", path=file.path)
        places: dict[str, list[npt.NDArray[np.int64]]] = {}
        for one in asked:
            entry = file.index.entry_of.get(one.name)
            if entry is None:  # its sidecar is from an earlier catalogue
                continue
            found = [_places_in_stripes(blooms, entry, lookup) for lookup in one.wanted]
            known = [place for place in found if place is not None]
            if len(known) == len(found):
                places[one.name] = known
        return cls(blooms, places, [one for one in asked if one.name in places])

    @property
    def request_count(self) -> int:
        """Number of requests that fetch the stripes."""
        return len(self.requests.starts)

    def group_of(self, stripe: Stripe) -> BloomStripes:
        """Return the group of a stripe."""
        column, block_count, _ = stripe
        return self._blooms.groups[column, block_count]

    def blocks(self, stripes: Mapping[Stripe, memoryview]) -> dict[str, list[Words]]:
        """Extract the blocks from the stripes."""
        words = {}
        for stripe, data in stripes.items():
            self.group_of(stripe).check_stripe(stripe[2], data)
            words[stripe] = np.frombuffer(data, "<u4").reshape(-1, BLOCK_BYTES // 4)
        return {
            one.name: [
                _blocks_of(lookup, places, words)
                for lookup, places in zip(one.wanted, self._places[one.name], strict=True)
            ]
            for one in self._asked
        }


def _stripes_of(lookup: WantedBlocks) -> set[Stripe]:
    pairs = zip(lookup.block_counts.tolist(), lookup.numbers.tolist(), strict=True)
    return {(lookup.column, block_count, number) for block_count, number in pairs}


def _places_in_stripes(blooms: CatalogueBlooms, entry: int, lookup: WantedBlocks) -> npt.NDArray[np.int64] | None:
    places = np.zeros(len(lookup.row_groups), np.int64)
    for block_count in set(lookup.block_counts.tolist()):
        group = blooms.groups.get((lookup.column, block_count))
        here = lookup.block_counts == block_count
        found = None if group is None else group.positions(entry, lookup.row_groups[here])
        if found is None:
            return None
        places[here] = found
    return places


def _blocks_of(lookup: WantedBlocks, places: npt.NDArray[np.int64], words: Mapping[Stripe, Words]) -> Words:
    blocks = np.empty((len(places), BLOCK_BYTES // 4), np.uint32)
    for column, block_count, number in _stripes_of(lookup):
        here = (lookup.block_counts == block_count) & (lookup.numbers == number)
        blocks[here] = words[column, block_count, number][places[here]]
    return blocks


_SIDECAR_GAP_BYTES, _LONGEST_SIDECAR_REQUEST_BYTES = 256 * 1024, 8 * 1024 * 1024
"""How blocks behind the first request are fetched: those of one time range are neighbours."""


class PackedLookup(Struct, frozen=True, kw_only=True):
    """The catalogue's entry for one partition."""

    sidecar: Sidecar | None
    """The committed snapshot; None where the entry cannot be used."""
    data_etag: str | None = None
    """Version of the Parquet object when the table was packed; None where it has no lasting version."""
    problem: str | None = None
    """Why the entry cannot be used; None where it can, and where the own sidecar costs as little."""


def may_count(index: CatalogueIndex, location: PartitionLocation) -> bool:
    """Tell whether a partition has an entry that does not contradict the transaction."""
    entry = index.entry_of.get(location.name)
    if entry is None or location.is_native:
        return False
    record, committed_bytes = location.record, location.committed_size_bytes
    if record is None or committed_bytes is None:
        return True
    return bool(index.parquet_sizes[entry] == committed_bytes and index.row_counts[entry] == record.row_count)


async def read_entries(
    file: CatalogueFile, index: CatalogueIndex, locations: Sequence[PartitionLocation], *, store: ObjectStore
) -> dict[str, PackedLookup]:
    """Read the entries of partitions that pass :func:`may_count`, by partition name; :func:`contradictions` finds stale ones.

    Requests: few, in one round trip, for blocks that are not in the beginning.
    """
    wanted = {location.name: location for location in locations}
    source = _Blocks(file=file, index=index, store=store)
    blocks = await source.fetch({int(index.blocks[index.entry_of[name]]) for name in wanted})
    return await asyncio.to_thread(_parse_sidecars, index, blocks, wanted)


class _Blocks(Struct, frozen=True, kw_only=True):
    """The blocks of a catalogue."""

    file: CatalogueFile
    index: CatalogueIndex
    store: ObjectStore

    async def fetch(self, blocks: set[int]) -> dict[int, memoryview | str]:
        """Return these blocks as they are stored, or why they could not be fetched."""
        found: dict[int, memoryview | str] = {}
        missing = []
        for block in sorted(blocks):
            place = self.index.block_range(block)
            if place.stop <= len(self.file.beginning):
                found[block] = memoryview(self.file.beginning)[place.start : place.stop]
            else:
                missing.append(block)
        try:
            found |= await self._fetch_missing(missing) if missing else {}
        except InternalError:
            raise
        except ColdParquetError as error:
            found |= dict.fromkeys(missing, f"it could not be fetched: {error.message}")
        return found

    async def _fetch_missing(self, blocks: Sequence[int]) -> dict[int, memoryview]:
        # Blocks are shorter than the longest request, so each one is in a single answer.
        places = [self.index.block_range(block) for block in blocks]
        return dict(zip(blocks, await read_ranges(self.file, places, store=self.store), strict=True))


async def read_ranges(file: CatalogueFile, places: Sequence[ByteRange], *, store: ObjectStore) -> list[memoryview]:
    """Read ranges of a catalogue, each no longer than a request. Few requests, in one round trip, for what is not in its beginning."""
    beginning = memoryview(file.beginning)
    missing = [place for place in places if place.stop > len(beginning)]
    requests = coalesce(
        np.array([place.start for place in missing], np.int64),
        np.array([place.stop for place in missing], np.int64),
        gap_bytes=_SIDECAR_GAP_BYTES,
        max_request_bytes=_LONGEST_SIDECAR_REQUEST_BYTES,
    )

    async def get(byte_range: ByteRange) -> bytes:
        request = RangeRequest(path=file.path, byte_range=byte_range, reason=CATALOGUE_REASON, if_match=file.etag)
        return (await send_for_catalogue(store, request)).data

    starts = requests.starts.tolist()
    bounds = zip(starts, requests.stops.tolist(), strict=True)
    answers = await gather_or_cancel([get(ByteRange(start, stop)) for start, stop in bounds])
    answer_of = dict(zip(missing, requests.first_request.tolist(), strict=True))
    return [
        beginning[place.start : place.stop]
        if place not in answer_of
        else memoryview(answers[answer_of[place]])[place.start - starts[answer_of[place]] :][: place.length_bytes]
        for place in places
    ]


async def contradictions(
    index: CatalogueIndex,
    locations: Sequence[PartitionLocation],
    listed: ListedObjects,
) -> dict[str, str | None]:
    """Return the partitions whose objects are not the packed versions, and why their entries are invalid.

    Requests: those of :meth:`coldparquet.catalog.objects.ListedObjects.below`.
    """
    try:
        objects = await listed.below([location.directory_path for location in locations])
    except UnsupportedError:
        # No problem to report: such a store cannot use a catalogue, and ``coldparquet pack`` said so when it wrote it.
        return dict.fromkeys(location.name for location in locations)
    except InternalError:
        raise
    except ColdParquetError as error:
        problem = f"the versions of its objects could not be listed: {error.message}"
        return dict.fromkeys((location.name for location in locations), problem)
    return {
        location.name: "its Parquet file or its sidecar was replaced since it was packed"
        for location in locations
        if not is_as_packed(index, location, objects)
    }


def is_as_packed(index: CatalogueIndex, location: PartitionLocation, listed: Mapping[str, ObjectInfo]) -> bool:
    """Tell whether the objects of a partition are the packed versions."""
    entry = index.entry_of[location.name]
    packed = {location.data_path: index.data_etags[entry]}
    # An entry without a version of the sidecar was made of the footer.
    if location.sidecar_path is not None and index.sidecar_etags[entry] is not None:
        packed[location.sidecar_path] = index.sidecar_etags[entry]
    found = {path: listed[path].etag for path in packed if path in listed}
    return found == packed and all(map(is_lasting_etag, found.values()))


def _parse_sidecars(
    index: CatalogueIndex, blocks: Mapping[int, memoryview | str], wanted: Mapping[str, PartitionLocation]
) -> dict[str, PackedLookup]:
    unpacked = {number: _unpack(index, number, block) for number, block in blocks.items()}
    found = {}
    for name, location in wanted.items():
        entry = index.entry_of[name]
        block = unpacked[int(index.blocks[entry])]
        if isinstance(block, str):
            found[name] = PackedLookup(sidecar=None, problem=block)
        else:
            found[name] = _parse_sidecar(index, entry, index.sidecar_in(block, entry), location)
    return found | _miscounted(index, found)


def _miscounted(index: CatalogueIndex, found: Mapping[str, PackedLookup]) -> dict[str, PackedLookup]:
    """Find the entries whose sidecars have other row counts than the index, for all entries at once."""
    sound = [(name, lookup.sidecar) for name, lookup in found.items() if lookup.sidecar is not None]
    wrong = {}
    for members in stack_alike([sidecar for _, sidecar in sound]):
        for member, total_rows in zip(members, _total_rows([sound[member][1] for member in members]), strict=True):
            name = sound[member][0]
            row_count = int(index.row_counts[index.entry_of[name]])
            if total_rows != row_count:
                counted = total_rows if isinstance(total_rows, str) else f"it counts {total_rows:,} rows"
                wrong[name] = PackedLookup(sidecar=None, problem=f"{counted}, and its entry {row_count:,}")
    return wrong


def _total_rows(sidecars: Sequence[Sidecar]) -> list[int | str]:
    """Count the rows of each sidecar, or say why they cannot be counted."""
    try:
        return list(SidecarStack(sidecars).total_rows)
    except FormatError as error:
        if len(sidecars) == 1:
            return [error.message]
        return [total_rows for sidecar in sidecars for total_rows in _total_rows([sidecar])]


def _unpack(index: CatalogueIndex, number: int, block: memoryview | str) -> memoryview | str:
    if isinstance(block, str):
        return block
    try:
        return index.unpack_block(number, block)
    except FormatError as error:
        return error.message


def _parse_sidecar(index: CatalogueIndex, entry: int, packed: memoryview, location: PartitionLocation) -> PackedLookup:
    path, size_bytes = location.sidecar_path or location.data_path, int(index.parquet_sizes[entry])
    try:
        # The newest snapshot is usually the committed one, and searching for it costs as much as parsing it.
        sidecar = parse_sidecar(packed, path=path)
        if sidecar.parquet_size_bytes != size_bytes:
            sidecar = parse_sidecar(packed, path=path, parquet_size_bytes=size_bytes)
    except (FormatError, UnsupportedError) as error:
        return PackedLookup(sidecar=None, problem=error.message)
    if location.keys and not describes_keys(sidecar, location.keys):
        problem = "the keys of the table's directories have other types now"
        return PackedLookup(sidecar=None, problem=problem)
    return PackedLookup(sidecar=sidecar, data_etag=index.data_etags[entry])
