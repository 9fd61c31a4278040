"""All byte ranges of many reads on one axis, so that requests can be counted at once for whole tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.options import MIB
from coldparquet.plan.coalesce import coalesce
from coldparquet.plan.native_read import NativeRead
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from coldparquet.options import Coalescing
    from coldparquet.plan.read_plan import PlannedRead, PlannedRequest, RowGroupRead

_SEPARATION_BYTES = 1024 * MIB
"""What lies between two objects on the axis: more than any gap that is read over, and longer than any request."""

_LONGEST_AXIS_BYTES = 1 << 62

_NO_ROW_GROUP = -1
"""Instead of the number of a row group, for ranges of native files."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadRanges:
    """Ranges of several objects, which lie one behind the other; arrays of shape ``(ranges,)``."""

    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    borders: npt.NDArray[np.int64] | None = None
    """Where row groups begin, as far as requests had better begin there; see :func:`coldparquet.plan.coalesce.coalesce`."""

    @classmethod
    def of(cls, reads: Iterable[PlannedRead]) -> ReadRanges | None:
        """Collect the ranges of reads, but for those deferred.

        Args:
            reads: In the order of the plan; those of one partition are coalesced with each other.

        Returns:
            None where offsets of damaged metadata leave no room on an axis of 64 bits.
        """
        nothing = np.empty(0, np.int64)
        starts, stops, objects, row_groups = [nothing], [nothing], [nothing], [nothing]
        files_before, partition, files = 0, -1, 0
        for number, read in enumerate(reads):
            if read.partition_index != partition:
                partition, files_before = read.partition_index, files_before + files
            if isinstance(read, NativeRead):
                files = len(read.files)
                starts.append(read.starts)
                stops.append(read.stops)
                objects.append(np.arange(files_before, files_before + files))
                row_groups.append(np.full(files, _NO_ROW_GROUP))
            else:
                files = 1
                starts.append(read.piece_starts)
                stops.append(read.piece_stops)
                objects.append(np.full(len(read.piece_starts), files_before))
                row_groups.append(np.full(len(read.piece_starts), number))
        return cls._on_one_axis(*map(np.concatenate, (starts, stops, objects, row_groups)))

    @classmethod
    def of_each(cls, reads: Sequence[RowGroupRead]) -> ReadRanges | None:
        """Collect the ranges of reads that are never coalesced with each other, such as those deferred."""
        nothing = np.empty(0, np.int64)
        starts = [read.piece_starts for read in reads]
        stops = [read.piece_stops for read in reads]
        objects = [np.full(len(of_read), number) for number, of_read in enumerate(starts)]
        return cls._on_one_axis(*(np.concatenate([nothing, *arrays]) for arrays in (starts, stops, objects)))

    @classmethod
    def _on_one_axis(
        cls,
        starts: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
        objects: npt.NDArray[np.int64],
        row_groups: npt.NDArray[np.int64] | None = None,
    ) -> ReadRanges | None:
        is_filled = stops > starts
        starts, stops, objects = starts[is_filled], stops[is_filled], objects[is_filled]
        moves = moves_onto_one_axis(starts, stops, objects, int(objects.max(initial=-1)) + 1)
        if moves is None:
            return None
        starts, stops = starts + moves[objects], stops + moves[objects]
        borders = None if row_groups is None else first_bytes(starts, row_groups[is_filled])
        return cls(starts=starts, stops=stops, borders=borders)

    def request_lengths(self, coalescing: Coalescing, *, part_bytes: int) -> npt.NDArray[np.int64]:
        """Return the length of each request that would bring the ranges, shape ``(requests,)``."""
        found = coalesce(
            self.starts,
            self.stops,
            gap_bytes=coalescing.gap_bytes,
            max_request_bytes=coalescing.max_request_bytes,
            part_bytes=part_bytes,
            borders=self.borders,
        )
        lengths: npt.NDArray[np.int64] = found.stops - found.starts
        return lengths

    def count_and_bytes(self, coalescing: Coalescing, *, part_bytes: int) -> tuple[int, int]:
        """Return how many requests would bring the ranges, and how many bytes they would fetch."""
        lengths = self.request_lengths(coalescing, part_bytes=part_bytes)
        return len(lengths), int(lengths.sum())


def first_bytes(starts: npt.NDArray[np.int64], row_groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return where each row group begins, which need not be with its first range; other offsets mean nothing.

    Args:
        starts: First byte of each range, shape ``(ranges,)``.
        row_groups: Number of its row group; negative for ranges of native files.
    """
    begins = np.full(int(row_groups.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    in_row_group = row_groups >= 0
    np.minimum.at(begins, row_groups[in_row_group], starts[in_row_group])
    return begins


def moves_onto_one_axis(
    starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64], objects: npt.NDArray[np.int64], object_count: int
) -> npt.NDArray[np.int64] | None:
    """Place objects one behind the other, further from each other than any request reaches.

    Args:
        starts: First byte of each range in its object, shape ``(ranges,)``.
        stops: One past its last byte, which is greater.
        objects: Number of its object.
        object_count: How many objects there are.

    Returns:
        What is to be added to offsets in each object, shape ``(objects,)``. None where offsets of damaged metadata leave no
        room on an axis of 64 bits.
    """
    begins, ends = np.full(object_count, np.iinfo(np.int64).max), np.zeros(object_count, np.int64)
    np.minimum.at(begins, objects, starts)
    np.maximum.at(ends, objects, stops)
    spans = np.maximum(ends - begins, 0)
    # Summed as floats: offsets from damaged metadata may overflow an integer sum.
    if spans.sum(dtype=np.float64) + object_count * _SEPARATION_BYTES > _LONGEST_AXIS_BYTES:
        return None
    moves: npt.NDArray[np.int64] = (
        np.cumsum(spans + _SEPARATION_BYTES) - (spans + _SEPARATION_BYTES) - np.where(spans, begins, 0)
    )
    return moves


def shortened_to(requests: Sequence[PlannedRequest], read: PlannedRead) -> tuple[PlannedRequest, ...]:
    """Shorten requests to what a read still needs of them: no more of them, and no other bytes.

    Args:
        requests: Of one object, disjoint, in file order.
        read: What is left of what they were planned for.
    """
    if isinstance(read, NativeRead):
        return tuple(requests)
    order = np.argsort(read.piece_starts, kind="stable")
    starts, stops = read.piece_starts[order], read.piece_stops[order]
    shortened = []
    for request in requests:
        start, stop = request.byte_range.start, request.byte_range.stop
        is_served = (starts < stop) & (stops > start)
        if is_served.any():
            needed = ByteRange(max(start, int(starts[is_served].min())), min(stop, int(stops[is_served].max())))
            shortened.append(replace(request, byte_range=needed))
    return tuple(shortened)
