"""Sidecars out of the catalogue of a table: which of its entries count, and what they hold."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.catalog.catalogue_fetch import CATALOGUE_REASON, send_for_catalogue
from coldparquet.catalog.listed_objects import LEAST_SAVED_REQUESTS
from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.errors import ColdParquetError, FormatError, InternalError, UnsupportedError
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_stack import SidecarStack, stack_alike
from coldparquet.plan.coalesce import coalesce
from coldparquet.ranges import ByteRange
from coldparquet.storage.objects import is_lasting_etag
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import TypeAlias

    from coldparquet.catalog.catalogue_fetch import CatalogueFile
    from coldparquet.catalog.listed_objects import ListedObjects
    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.format.catalogue_file import CatalogueIndex
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.read_plan import MetadataRequest
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import ObjectInfo

    LookAhead: TypeAlias = Callable[[Mapping[str, Sidecar]], Awaitable[None]]
    """Called with the sidecars of entries by the names of their partitions, before it is known which of them count."""

_GAP_BYTES, _LONGEST_REQUEST_BYTES = 256 * 1024, 8 * 1024 * 1024
"""How blocks behind the first request are fetched: those of a time range are neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLookup:
    """What the catalogue has of one partition."""

    sidecar: Sidecar | None
    """The snapshot that counts; None where its entry cannot be used."""
    data_etag: str | None = None
    """Version of the Parquet object when the table was packed; None where it has none that lasts."""
    problem: str | None = None
    """Why the entry cannot be used; None where it can, and where its own sidecar is as cheap."""


def may_count(index: CatalogueIndex, location: PartitionLocation) -> bool:
    """Tell whether there is an entry of a partition that does not contradict the transaction."""
    entry = index.entry_of.get(location.name)
    if entry is None or location.sidecar_path is None or location.is_native:
        return False
    record, committed_bytes = location.record, location.committed_size_bytes
    if record is None or committed_bytes is None:
        return True
    return bool(index.parquet_sizes[entry] == committed_bytes and index.row_counts[entry] == record.row_count)


async def read_packed_sidecars(  # noqa: PLR0913 - what can be told is told by name
    file: CatalogueFile,
    index: CatalogueIndex,
    locations: Sequence[PartitionLocation],
    *,
    store: ObjectStore,
    listed: ListedObjects,
    spent: list[MetadataRequest],
    look_ahead: LookAhead | None = None,
) -> dict[str, PackedLookup]:
    """Read the sidecars of partitions whose entries :func:`may_count`; by the names of the partitions.

    Requests: for blocks that are not in the beginning few, in one round trip; and at the same time, without a transaction,
    those of :meth:`coldparquet.catalog.listed_objects.ListedObjects.below`.

    Args:
        file: The catalogue, as far as it was fetched.
        index: Its index.
        locations: The partitions.
        store: Where the table lies.
        listed: Tells the versions of its objects.
        spent: Gets the requests.
        look_ahead: Called while the versions are listed; waited for, too.
    """
    unconfirmed = [location for location in locations if location.committed_size_bytes is None]
    problems: dict[str, str | None] = {}
    if len(unconfirmed) < LEAST_SAVED_REQUESTS:
        own = [location for location in unconfirmed if not listed.is_worth_listing(location.directory_path)]
        problems = dict.fromkeys(location.name for location in own)
        unconfirmed = [location for location in unconfirmed if location.name not in problems]
    wanted = {location.name: location for location in locations if location.name not in problems}
    source = _Blocks(file=file, index=index, store=store, spent=spent)
    found, contradictions = await both(
        _read_entries(source, wanted, look_ahead), _contradictions(index, unconfirmed, listed, spent)
    )
    problems |= contradictions
    return found | {name: PackedLookup(sidecar=None, problem=problem) for name, problem in problems.items()}


async def _read_entries(
    source: _Blocks, wanted: Mapping[str, PartitionLocation], look_ahead: LookAhead | None
) -> dict[str, PackedLookup]:
    """Read entries, without asking which of them count."""
    index = source.index
    blocks = await source.fetch({int(index.blocks[index.entry_of[name]]) for name in wanted})
    found = await asyncio.to_thread(_parse_sidecars, index, blocks, wanted)
    if look_ahead is not None:
        await look_ahead({name: lookup.sidecar for name, lookup in found.items() if lookup.sidecar is not None})
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks:
    """The blocks of a catalogue."""

    file: CatalogueFile
    index: CatalogueIndex
    store: ObjectStore
    spent: list[MetadataRequest]

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
        starts, stops = self.index.block_starts[blocks], self.index.block_stops[blocks]
        requests = coalesce(starts, stops, gap_bytes=_GAP_BYTES, max_request_bytes=_LONGEST_REQUEST_BYTES)
        bounds = zip(requests.starts.tolist(), requests.stops.tolist(), strict=True)
        answers = await gather_or_cancel([self._get(ByteRange(start, stop)) for start, stop in bounds])
        # Blocks are shorter than the longest request, so that each lies in one answer.
        answer_of = requests.first_request
        begins = starts - requests.starts[answer_of]
        return {
            block: memoryview(answers[answer])[begin : begin + length]
            for block, answer, begin, length in zip(
                blocks, answer_of.tolist(), begins.tolist(), (stops - starts).tolist(), strict=True
            )
        }

    async def _get(self, byte_range: ByteRange) -> bytes:
        request = RangeRequest(
            path=self.file.path, byte_range=byte_range, reason=CATALOGUE_REASON, if_match=self.file.etag
        )
        return (await send_for_catalogue(self.store, request, self.spent)).data


async def _contradictions(
    index: CatalogueIndex,
    locations: Sequence[PartitionLocation],
    listed: ListedObjects,
    spent: list[MetadataRequest],
) -> dict[str, str | None]:
    """Return the partitions whose objects are not the versions that were packed, and why their entries do not count."""
    try:
        objects = await listed.below([location.directory_path for location in locations], spent)
    except UnsupportedError:
        # Nothing is wrong: the catalogue is of no use on such a store, and its writer was told so.
        return dict.fromkeys(location.name for location in locations)
    except InternalError:
        raise
    except ColdParquetError as error:
        problem = f"the versions of its objects could not be listed: {error.message}"
        return dict.fromkeys((location.name for location in locations), problem)
    return {
        location.name: "its Parquet file or its sidecar was replaced since; 'coldparquet pack' packs it anew"
        for location in locations
        if not _is_as_packed(index, location, objects)
    }


def _is_as_packed(index: CatalogueIndex, location: PartitionLocation, listed: Mapping[str, ObjectInfo]) -> bool:
    entry = index.entry_of[location.name]
    packed = {location.data_path: index.data_etags[entry], str(location.sidecar_path): index.sidecar_etags[entry]}
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
    """Find the entries whose sidecars count other rows than the index says: of all at once."""
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
    """Count the rows of each sidecar; say what is wrong where they cannot be counted."""
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
    path, size_bytes = location.sidecar_path, int(index.parquet_sizes[entry])
    try:
        # The newest snapshot is usually the one that counts; looking for it costs as much as parsing it.
        sidecar = parse_sidecar(packed, path=path)
        if sidecar.parquet_size_bytes != size_bytes:
            sidecar = parse_sidecar(packed, path=path, parquet_size_bytes=size_bytes)
    except (FormatError, UnsupportedError) as error:
        return PackedLookup(sidecar=None, problem=error.message)
    return PackedLookup(sidecar=sidecar, data_etag=index.data_etags[entry])
