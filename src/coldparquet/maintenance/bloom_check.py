"""Asking the bloom filters of a column for values that are there: one that denies any would lose rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coldparquet.decode.domain_values import to_domain_value
from coldparquet.decode.untyped_compute import compute
from coldparquet.format.bloom_filter import BLOCK_BYTES, block_numbers, blocks_at, bloom_hashes, may_be_in_blocks
from coldparquet.format.bloom_places import UNKNOWN, locate_blooms
from coldparquet.format.column_types import Comparison
from coldparquet.format.fetched_ranges import FetchedRanges
from coldparquet.plan.coalesce import coalesce

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.format.bloom_places import BloomPlaces
    from coldparquet.format.sidecar import Sidecar

_MOST_VALUES = 1_000
"""Distinct values of a row group that its filter is asked for, spread over all of them."""

_LONGEST_RANGE_BYTES = 8 * 1024 * 1024


class BloomCheck:
    """The bloom filters of one column.

    Args:
        sidecar: The snapshot.
        column: Index of the column in it.
        read_at: Returns bytes of the Parquet file, given the first one and how many.
    """

    def __init__(self, sidecar: Sidecar, column: int, read_at: Callable[[int, int], bytes]) -> None:
        self._sidecar = sidecar
        self._column = column
        self._type = sidecar.column_type(column)
        self._read_at = read_at
        self._places = located_blooms(sidecar, column, read_at) if column in sidecar.bloom_columns else None

    def denied_values(self, row_group: int, values: Any) -> int:
        """Count the values that the filter of a row group says are not there.

        Args:
            row_group: The row group.
            values: All of its values, as an Arrow array of plain values.
        """
        places = self._places
        if places is None or not places.present[row_group] or places.starts[row_group] == UNKNOWN:
            return 0
        asked = self._asked_for(row_group, values)
        hashes = bloom_hashes(asked, self._type) if asked else None
        if hashes is None or not len(hashes.hashes):
            return 0
        start, length_bytes = int(places.starts[row_group]), int(places.lengths[row_group])
        stored = (
            self._sidecar.file[start : start + length_bytes]
            if places.in_sidecar
            else self._read_at(start, length_bytes)
        )
        blocks = block_numbers(hashes.hashes, np.array([length_bytes])) * BLOCK_BYTES
        hits = may_be_in_blocks(hashes.hashes, blocks_at(np.frombuffer(stored, np.uint8), blocks))
        # A value with several forms, as the two zeros of floats, is there in one of them.
        return len(np.unique(hashes.owners)) - len(np.unique(hashes.owners[hits]))

    def _asked_for(self, row_group: int, values: Any) -> list[Any]:
        """Choose values of which the writer of the filter has certainly put all in: not those that stand for NULL."""
        chunks, descriptor = self._sidecar.chunks(self._column), self._sidecar.column(self._column)
        has_nulls = not chunks.has_null_count[row_group] or bool(chunks.null_count[row_group])
        if self._type.arrow.name == "list" or (has_nulls and descriptor.max_def_level == 0):
            return []
        distinct = compute.unique(compute.drop_null(values))
        if self._type.comparison is Comparison.FLOAT:
            distinct = distinct.filter(compute.invert(compute.is_nan(distinct)))
        chosen = np.unique(np.linspace(0, max(len(distinct) - 1, 0), _MOST_VALUES).astype(np.int64))
        asked = [to_domain_value(distinct[place]) for place in chosen.tolist()] if len(distinct) else []
        return [value for value in asked if value != 0] if self._type.never_null else asked


def located_blooms(sidecar: Sidecar, column: int, read_at: Callable[[int, int], bytes]) -> BloomPlaces:
    """Find out where the filters of a column lie, and how long they are; reads their headers where nothing else says."""
    places = locate_blooms(sidecar, column)
    row_groups = np.arange(sidecar.row_group_count)
    _, starts, stops = places.header_ranges(row_groups)
    if len(starts):
        pieces = coalesce(starts, stops, gap_bytes=0, max_request_bytes=_LONGEST_RANGE_BYTES)
        fetched = FetchedRanges()
        fetched.add_round(
            [
                (start, read_at(start, stop - start))
                for start, stop in zip(pieces.starts.tolist(), pieces.stops.tolist(), strict=True)
            ]
        )
        places.read_headers(row_groups, fetched)
    return places
