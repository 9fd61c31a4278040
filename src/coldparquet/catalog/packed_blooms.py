"""Bloom filters out of the catalogue of a table: one range for each value, whatever the number of partitions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.catalog.catalogue_fetch import CATALOGUE_REASON, send_for_catalogue
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import ColdParquetError, InternalError
from coldparquet.format.bloom_filter import BLOCK_BYTES
from coldparquet.options import KIB, MIB
from coldparquet.plan.coalesce import coalesce
from coldparquet.ranges import ByteRange
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import TypeAlias

    import numpy.typing as npt

    from coldparquet.catalog.catalogue_fetch import CatalogueFile
    from coldparquet.format.catalogue_blooms import BloomStripes, CatalogueBlooms
    from coldparquet.plan.bloom_probes import WantedBlocks
    from coldparquet.plan.read_plan import MetadataRequest
    from coldparquet.storage.base import ObjectStore

    Words: TypeAlias = npt.NDArray[np.uint32]
    Stripe: TypeAlias = tuple[str, int, int]

STRIPES_REASON = f"bloom filters in the {CATALOGUE_REASON}"

_GAP_BYTES, _LONGEST_REQUEST_BYTES = 128 * KIB, 8 * MIB
_MOST_STRIPE_BYTES = 32 * MIB
"""Lists of many values need many stripes, each through the whole table: rather than more than this, the files are asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPartition:
    """What is wanted of the filters of one partition, whose entry in the catalogue counts."""

    name: str
    wanted: tuple[WantedBlocks, ...]
    """One for each lookup."""


class PackedBlooms:
    """The bloom filters in the catalogue of one state of a table.

    Args:
        file: The catalogue, as far as it was fetched.
        store: Where it lies.
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

    async def fetch_ahead(
        self, asked: Sequence[AskedPartition], spent: list[MetadataRequest]
    ) -> dict[Stripe, memoryview]:
        """Fetch the stripes that hold blocks of filters, while it is found out of which partitions the entries count.

        Requests: those of :meth:`blocks_of`, which takes none for these stripes then.

        Args:
            asked: The partitions.
            spent: Gets the requests.

        Returns:
            The stripes, unchecked; none where something is wrong with them, which :meth:`blocks_of` will say.
        """
        try:
            found = await self._find(asked, {}, spent)
            return {} if found is None else await self._fetch(found, spent)
        except InternalError:
            raise
        except ColdParquetError:
            return {}

    async def blocks_of(
        self, asked: Sequence[AskedPartition], at_hand: Mapping[Stripe, memoryview], spent: list[MetadataRequest]
    ) -> tuple[dict[str, list[Words]], str | None]:
        """Return the blocks of filters that lookups in partitions touch.

        Requests: few, in one round trip, before it 1 for their index unless it came with the catalogue; none at all where
        that is not fewer than 1 for each partition.

        Args:
            asked: The partitions.
            at_hand: Stripes that were fetched ahead.
            spent: Gets the requests.

        Returns:
            By partition, for each lookup its blocks, shape ``(blocks, 8)``; partitions are missing where the catalogue lacks
            a filter, or it is cheaper to ask their own files. And why it could not be used, for people.
        """
        try:
            found = await self._find(asked, at_hand, spent)
            if found is None:
                return {}, None
            stripes = {**at_hand, **await self._fetch(found, spent)}
            return await asyncio.to_thread(found.blocks, stripes), None
        except InternalError:
            raise
        except ColdParquetError as error:
            return {}, f"the bloom filters in the catalogue are not used: {error.message}"

    async def _find(
        self, asked: Sequence[AskedPartition], at_hand: Mapping[Stripe, memoryview], spent: list[MetadataRequest]
    ) -> _Found | None:
        """Find the stripes; None where it is cheaper to ask the partitions' own files."""
        own_requests = len(asked)
        index_requests = 0 if self._is_at_hand else 1
        least_requests = 0 if at_hand else index_requests + 1
        if not self.are_there or own_requests <= least_requests:
            return None
        found = _Found.of(self._file, await self._parsed(spent), asked, at_hand)
        is_cheaper = found.request_count < own_requests and found.stripe_bytes <= _MOST_STRIPE_BYTES
        return found if is_cheaper else None

    @property
    def _is_at_hand(self) -> bool:
        index = self._file.index
        place = None if index is None else index.blooms_range
        return self._index is not None or (place is not None and place.stop <= len(self._file.beginning))

    async def _parsed(self, spent: list[MetadataRequest]) -> CatalogueBlooms:
        async with self._parsing:
            if self._index is None:
                index = self._file.index
                place = None if index is None else index.blooms_range
                if index is None or place is None:
                    raise InternalError("a catalogue without bloom filters was asked for them", path=self._file.path)
                data = self._file.beginning[place.start : place.stop]
                if len(data) < place.length_bytes:
                    data = await self._get(place, spent)
                self._index = await asyncio.to_thread(index.parse_blooms, data)
            return self._index

    async def _fetch(self, found: _Found, spent: list[MetadataRequest]) -> dict[Stripe, memoryview]:
        requests = found.requests
        bounds = zip(requests.starts.tolist(), requests.stops.tolist(), strict=True)
        answers = await gather_or_cancel([self._get(ByteRange(start, stop), spent) for start, stop in bounds])
        begins = (found.starts - requests.starts[requests.first_request]).tolist()
        places = zip(found.stripes, requests.first_request.tolist(), begins, strict=True)
        return {
            stripe: memoryview(answers[answer])[begin : begin + found.group_of(stripe).stripe_bytes]
            for stripe, answer, begin in places
        }

    async def _get(self, byte_range: ByteRange, spent: list[MetadataRequest]) -> bytes:
        request = RangeRequest(
            path=self._file.path, byte_range=byte_range, reason=STRIPES_REASON, if_match=self._file.etag
        )
        return (await send_for_catalogue(self._store, request, spent)).data


class _Found:
    """Which stripes hold the blocks of some partitions.

    Args:
        blooms: The index of the stripes.
        places: By partition and lookup, where each block is in its stripe.
        asked: The partitions that the catalogue has all filters of.
        at_hand: Stripes that need not be fetched.
    """

    def __init__(
        self,
        blooms: CatalogueBlooms,
        places: Mapping[str, Sequence[npt.NDArray[np.int64]]],
        asked: Collection[AskedPartition],
        at_hand: Collection[Stripe],
    ) -> None:
        self._blooms = blooms
        self._places = places
        self._asked = asked
        wanted = {stripe for one in asked for lookup in one.wanted for stripe in _stripes_of(lookup)} - set(at_hand)
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
        at_hand: Collection[Stripe],
    ) -> _Found:
        """Find the blocks; partitions of which a filter is missing are left out."""
        if file.index is None:
            raise InternalError("a catalogue without an index has no bloom filters", path=file.path)
        places: dict[str, list[npt.NDArray[np.int64]]] = {}
        for one in asked:
            entry = file.index.entry_of.get(one.name)
            if entry is None:  # its sidecar came from an earlier catalogue
                continue
            found = [_places_in_stripes(blooms, entry, lookup) for lookup in one.wanted]
            known = [place for place in found if place is not None]
            if len(known) == len(found):
                places[one.name] = known
        return cls(blooms, places, [one for one in asked if one.name in places], at_hand)

    @property
    def request_count(self) -> int:
        """How many requests bring the stripes."""
        return len(self.requests.starts)

    def group_of(self, stripe: Stripe) -> BloomStripes:
        """Return the group of a stripe."""
        column, block_count, _ = stripe
        return self._blooms.groups[column, block_count]

    def blocks(self, stripes: Mapping[Stripe, memoryview]) -> dict[str, list[Words]]:
        """Take the blocks out of the stripes.

        Raises:
            FormatError: A stripe is damaged.
        """
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
