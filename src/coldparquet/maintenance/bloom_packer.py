"""Reading the bloom filters of partitions for the catalogue, as their sidecars say where they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import ColdParquetError, InternalError
from coldparquet.format.bloom_places import UNKNOWN, locate_blooms
from coldparquet.format.catalogue_blooms import PackedBloom
from coldparquet.format.fetched_ranges import FetchedRanges, WantedRanges
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.plan.coalescing_choice import choose_coalescing
from coldparquet.plan.store_speed import StoreSpeed
from coldparquet.scanning.bloom_fetch import fetch_bloom_ranges
from coldparquet.storage.objects import is_lasting_etag

if TYPE_CHECKING:
    import numpy.typing as npt

    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.format.bloom_places import BloomPlaces
    from coldparquet.format.catalogue_writer import PackedSidecar
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.storage.wrappers.checked import CheckedStore

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
        """Read the filters of a partition, but for those that its sidecar holds. 1 request or few for the Parquet file.

        Args:
            location: The partition.
            packed: Its entry.

        Returns:
            The filters; none where they could not be read: readers then look for them in the Parquet file.
        """
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
                spent=[],
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
