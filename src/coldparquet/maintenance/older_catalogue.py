"""What can be taken over from the catalogue that a table has, when it is packed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.catalog.packed_sidecars import may_count
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.catalogue_file import parse_catalogue_index
from coldparquet.format.catalogue_writer import PackedSidecar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.format.catalogue_blooms import PackedBloom
    from coldparquet.format.catalogue_file import CatalogueIndex


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
