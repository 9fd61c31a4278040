"""Turns reads into requests: merges and splits the ranges of one object, and gives each byte its place in a buffer."""

from __future__ import annotations

from itertools import compress, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct

from coldparquet.errors import InternalError
from coldparquet.options import MIB
from coldparquet.plan.coalesce import coalesce
from coldparquet.plan.model import PlannedRequest
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.text import few_of, row_group_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from coldparquet.options import Coalescing
    from coldparquet.plan.bounds import IntArray
    from coldparquet.plan.coalesce import CoalescedRequests
    from coldparquet.plan.model import FileRole, Read


class Placement(NamedTuple):
    """One copy: ``buffer[destination_offset:][:length_bytes] = fetched[source_offset:][:length_bytes]``."""

    row_group_read: int
    """Index of the row group read whose buffer receives the bytes."""
    source_offset: int
    """Offset of the bytes in the answer to the request."""
    destination_offset: int
    """Offset of the bytes in the row group's buffer, which begins with the magic ``PAR1``."""
    length_bytes: int


class Placements(Struct, frozen=True, kw_only=True, eq=False):
    """All copies of one partition's fetched bytes to their final places, ordered by request."""

    row_group_read: npt.NDArray[np.int64]
    """Index into the row group reads, shape ``(placements,)``."""
    source_offset: npt.NDArray[np.int64]
    destination_offset: npt.NDArray[np.int64]
    length_bytes: npt.NDArray[np.int64]
    first_of_request: npt.NDArray[np.int64]
    """The placements of request ``i`` are ``[first_of_request[i], first_of_request[i + 1])``."""

    def of_request(self, request: int) -> list[Placement]:
        """Return the copies from the answer to one request."""
        span = slice(self.first_of_request[request], self.first_of_request[request + 1])
        fields = (self.row_group_read, self.source_offset, self.destination_offset, self.length_bytes)
        return [Placement(*row) for row in zip(*(field[span].tolist() for field in fields), strict=True)]


def place(reads: Sequence[Read], requests: Sequence[PlannedRequest]) -> Placements:
    """Compute the destinations of each request's bytes. Every byte of every chunk is placed exactly once.

    All reads are of one partition.
    """
    starts = _joined([read.piece_starts for read in reads])
    stops = _joined([read.piece_stops for read in reads])
    request_starts = np.array([request.byte_range.start for request in requests], dtype=np.int64)
    request_stops = np.array([request.byte_range.stop for request in requests], dtype=np.int64)
    files = [read.piece_files for read in reads if read.piece_files is not None]
    if files:
        # The files are laid out one after the other, so that an offset identifies its file.
        file, paths = _joined(files), [file.path for file in reads[0].data.files]
        file_bytes = np.zeros(len(paths), np.int64)
        np.maximum.at(file_bytes, file, stops)
        offsets = np.cumsum(file_bytes) - file_bytes
        offset_by_path = dict(zip(paths, offsets.tolist(), strict=True))
        moves = np.array([offset_by_path[request.path] for request in requests], dtype=np.int64)
        starts, stops = starts + offsets[file], stops + offsets[file]
        request_starts, request_stops = request_starts + moves, request_stops + moves
    return place_ranges(
        starts,
        stops,
        _joined([read.buffer_offsets for read in reads]),
        np.repeat(np.arange(len(reads)), [len(read.piece_starts) for read in reads]),
        request_starts,
        request_stops,
    )


def place_ranges(  # noqa: PLR0913, PLR0917 - parallel arrays of ranges and of requests
    chunk_starts: npt.NDArray[np.int64],
    chunk_stops: npt.NDArray[np.int64],
    chunk_destinations: npt.NDArray[np.int64],
    chunk_read: npt.NDArray[np.int64],
    request_starts: npt.NDArray[np.int64],
    request_stops: npt.NDArray[np.int64],
) -> Placements:
    """Compute the destinations of each request's bytes like :func:`place`, for ranges of any origin."""
    # One pair per range and request that share bytes.
    first_request = np.searchsorted(request_stops, chunk_starts, side="right")
    stop_request = np.searchsorted(request_starts, chunk_stops, side="left")
    pairs_of_chunk = np.where(chunk_stops > chunk_starts, np.maximum(stop_request - first_request, 0), 0)
    chunk = np.repeat(np.arange(len(chunk_starts)), pairs_of_chunk)
    pair_in_chunk = np.arange(len(chunk)) - np.repeat(np.cumsum(pairs_of_chunk) - pairs_of_chunk, pairs_of_chunk)
    request = first_request[chunk] + pair_in_chunk

    in_request_order = np.lexsort((chunk_starts[chunk], request))
    chunk, request = chunk[in_request_order], request[in_request_order]
    starts = np.maximum(chunk_starts[chunk], request_starts[request])
    lengths = np.minimum(chunk_stops[chunk], request_stops[request]) - starts
    if int(lengths.sum()) != int((chunk_stops - chunk_starts).sum()):
        raise InternalError("the requests of a plan do not cover all of its chunks")
    sources = starts - request_starts[request]
    destinations = chunk_destinations[chunk] + starts - chunk_starts[chunk]
    read = chunk_read[chunk]

    # Adjacent copies become one: chunks that are adjacent in the file are also adjacent in the buffer.
    begins = np.ones(len(chunk), dtype=bool)
    begins[1:] = (
        (request[1:] != request[:-1])
        | (read[1:] != read[:-1])
        | (sources[1:] != sources[:-1] + lengths[:-1])
        | (destinations[1:] != destinations[:-1] + lengths[:-1])
    )
    first_copy = np.flatnonzero(begins)
    return Placements(
        row_group_read=read[first_copy],
        source_offset=sources[first_copy],
        destination_offset=destinations[first_copy],
        length_bytes=np.add.reduceat(lengths, first_copy) if len(first_copy) else lengths,
        first_of_request=np.searchsorted(request[first_copy], np.arange(len(request_starts) + 1)),
    )


def _joined(arrays: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])


_ROLE_IN_REASON: dict[FileRole, str] = {"fixed": "", "auxiliary": " (offsets)", "data": ""}


def _plan_native(
    reads: Sequence[Read], coalescing: Coalescing, part_bytes: int | None, stage: int
) -> Iterator[PlannedRequest]:
    """Yield the requests that fetch all slices of one partition; slices that are adjacent in a file are merged."""
    files = _joined([np.empty(0, np.int64) if read.piece_files is None else read.piece_files for read in reads])
    starts, stops = _joined([read.piece_starts for read in reads]), _joined([read.piece_stops for read in reads])
    slices = np.repeat(np.arange(len(reads)), [len(read.piece_starts) for read in reads])
    for number, file in enumerate(reads[0].data.files):
        (pieces,) = (files == number).nonzero()
        coalesced = coalesce(
            starts[pieces],
            stops[pieces],
            gap_bytes=coalescing.gap_bytes,
            max_request_bytes=coalescing.max_request_bytes,
            part_bytes=part_bytes,
        )
        ranges = map(ByteRange, coalesced.starts.tolist(), coalesced.stops.tolist())
        what = f"{reads[0].data.columns[file.column].name}{_ROLE_IN_REASON[file.role]}"
        served = [reads[position] for position in slices[pieces].tolist()]
        for byte_range, reason in zip(ranges, _reasons(served, coalesced, what), strict=True):
            yield PlannedRequest(
                partition_index=reads[0].partition_index,
                path=file.path,
                byte_range=byte_range,
                reason=reason,
                stage=stage,
            )


def _reasons(reads: Sequence[Read], coalesced: CoalescedRequests, what: str) -> Iterator[str]:
    """Yield one text per request to a file: the rows of the slices that it serves, and ``what`` it fetches of them."""
    # Requests and slices both ascend, so the slices that a request serves are neighbours.
    requests = np.arange(len(coalesced.starts))
    is_served = coalesced.stop_request > coalesced.first_request
    slices = np.flatnonzero(is_served)
    first = slices[np.searchsorted(coalesced.stop_request[slices], requests, side="right")]
    last = slices[np.searchsorted(coalesced.first_request[slices], requests, side="right") - 1]
    parts = coalesced.stop_request - coalesced.first_request
    for request, first_slice, last_slice in zip(requests.tolist(), first.tolist(), last.tolist(), strict=True):
        last_row = reads[last_slice].first_row + reads[last_slice].row_count - 1
        text = f"rows {reads[first_slice].first_row:,}-{last_row:,}: {what}"
        if first_slice == last_slice and parts[first_slice] > 1:
            text += f" (part {request - int(coalesced.first_request[first_slice]) + 1} of {int(parts[first_slice])})"
        yield text


_SEPARATION_BYTES = 1024 * MIB
"""Distance between two objects on the axis: more than any gap that is read over, and longer than any request."""

_LONGEST_AXIS_BYTES = 1 << 62

_NO_ROW_GROUP = -1
"""Replaces the row group's number for ranges of native files."""


class ReadRanges(Struct, frozen=True, kw_only=True, eq=False):
    """Ranges of several objects, laid out one after the other; arrays of shape ``(ranges,)``."""

    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    borders: npt.NDArray[np.int64] | None = None
    """Where row groups begin; requests preferably begin there, see :func:`coldparquet.plan.coalesce.coalesce`."""

    @classmethod
    def of(cls, reads: Iterable[Read]) -> ReadRanges | None:
        """Collect the ranges of reads, except deferred ones."""
        nothing = np.empty(0, np.int64)
        starts, stops, objects, row_groups = [nothing], [nothing], [nothing], [nothing]
        files_before, partition, files = 0, -1, 0
        for number, read in enumerate(reads):
            if read.partition_index != partition:
                partition, files_before = read.partition_index, files_before + files
            piece_count, files = len(read.piece_starts), len(read.data.files) or 1
            starts.append(read.piece_starts)
            stops.append(read.piece_stops)
            if read.piece_files is None:
                objects.append(np.full(piece_count, files_before))
                row_groups.append(np.full(piece_count, number))
            else:
                objects.append(files_before + read.piece_files)
                row_groups.append(np.full(piece_count, _NO_ROW_GROUP))
        return cls._on_one_axis(*map(np.concatenate, (starts, stops, objects, row_groups)))

    @classmethod
    def of_each(cls, reads: Sequence[Read]) -> ReadRanges | None:
        """Collect the ranges of reads that are never coalesced with each other, such as deferred ones."""
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
        """Return the length of each request that the ranges would need, shape ``(requests,)``."""
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
        """Return how many requests the ranges would need, and how many bytes these would fetch."""
        lengths = self.request_lengths(coalescing, part_bytes=part_bytes)
        return len(lengths), int(lengths.sum())


def first_bytes(starts: npt.NDArray[np.int64], row_groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the first byte of each row group, which need not be in its first range; other offsets mean nothing."""
    begins = np.full(int(row_groups.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    in_row_group = row_groups >= 0
    np.minimum.at(begins, row_groups[in_row_group], starts[in_row_group])
    return begins


def moves_onto_one_axis(
    starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64], objects: npt.NDArray[np.int64], object_count: int
) -> npt.NDArray[np.int64] | None:
    """Lay out objects one after the other, further apart than any request reaches."""
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


def shortened_to(requests: Sequence[PlannedRequest], read: Read) -> tuple[PlannedRequest, ...]:
    """Shorten requests to the bytes that a read of one object still needs; drop those that it no longer needs."""
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


_MOST_RANGES_AT_ONCE = 100_000
"""Bounds the memory; this many ranges take milliseconds."""


def plan_requests(
    partitions: Iterable[Sequence[Read]], coalescing: Coalescing, *, part_bytes: int | None = None, stage: int = 1
) -> tuple[PlannedRequest, ...]:
    """Plan the requests that fetch all chunks of the reads of each partition, except deferred ones.

    The chunks of one object are merged with each other, even across row groups.
    """
    requests: list[PlannedRequest] = []
    batch: list[Sequence[Read]] = []
    range_count = 0
    for reads in partitions:
        if reads and reads[0].data.decoder == "native":
            requests += _plan_native(reads, coalescing, part_bytes, stage)
            continue
        more = sum(len(read.piece_starts) for read in reads)
        if batch and range_count + more > _MOST_RANGES_AT_ONCE:
            requests += _plan_at_once(batch, coalescing, part_bytes, stage)
            batch, range_count = [], 0
        if more:
            batch.append(reads)
            range_count += more
    requests += _plan_at_once(batch, coalescing, part_bytes, stage)
    return tuple(requests)


def _plan_at_once(
    objects: Sequence[Sequence[Read]], coalescing: Coalescing, part_bytes: int | None, stage: int
) -> list[PlannedRequest]:
    if not objects:
        return []
    reads = [(number, read) for number, of_object in enumerate(objects) for read in of_object]
    starts = np.concatenate([read.piece_starts for _, read in reads])
    stops = np.concatenate([read.piece_stops for _, read in reads])
    counts = [len(read.piece_starts) for _, read in reads]
    is_filled = stops > starts
    starts, stops = starts[is_filled], stops[is_filled]
    owners = np.repeat([number for number, _ in reads], counts)[is_filled]
    is_alone = len(objects) == 1
    moves = np.zeros(1, np.int64) if is_alone else moves_onto_one_axis(starts, stops, owners, len(objects))
    if moves is None:
        half = len(objects) // 2  # the offsets are of damaged metadata; a single object always fits
        return [
            request
            for some in (objects[:half], objects[half:])
            for request in _plan_at_once(some, coalescing, part_bytes, stage)
        ]
    starts_on_axis = starts + moves[owners]
    coalesced = coalesce(
        starts_on_axis,
        stops + moves[owners],
        gap_bytes=coalescing.gap_bytes,
        max_request_bytes=coalescing.max_request_bytes,
        part_bytes=part_bytes,
        borders=first_bytes(starts_on_axis, np.repeat(np.arange(len(reads)), counts)[is_filled]),
    )
    row_groups = np.repeat([read.row_group for _, read in reads], counts)[is_filled].tolist()
    names = list(compress(_names(objects), is_filled.tolist()))
    served = list(_served_ranges(coalesced))
    # The first range that a request serves identifies its object.
    owner_of = owners[[ranges[0] for ranges, _ in served]] if served else owners
    begins, ends = coalesced.starts - moves[owner_of], coalesced.stops - moves[owner_of]
    return [
        PlannedRequest(
            partition_index=objects[owner][0].partition_index,
            path=objects[owner][0].data.path,
            byte_range=ByteRange(begin, end),
            reason=f"{_served_chunks([row_groups[one] for one in ranges], [names[one] for one in ranges])}{part}",
            stage=stage,
        )
        for owner, begin, end, (ranges, part) in zip(
            owner_of.tolist(), begins.tolist(), ends.tolist(), served, strict=True
        )
    ]


def _names(objects: Sequence[Sequence[Read]]) -> Iterator[str]:
    """Yield the column name of each piece."""
    for reads in objects:
        stored = reads[0].data.columns
        for read in reads:
            of_columns = [stored[column].name for column in read.columns]
            yield from [of_columns[position] for position in read.piece_columns.tolist()]


def _served_ranges(coalesced: CoalescedRequests) -> Iterator[tuple[list[int], str]]:
    """Yield for each request the ranges that it serves and, if its range is split, which part it fetches."""
    requests_of_range = coalesced.stop_request - coalesced.first_request
    served: IntArray = np.repeat(np.arange(len(requests_of_range)), requests_of_range)
    part = np.arange(len(served)) - np.repeat(np.cumsum(requests_of_range) - requests_of_range, requests_of_range)
    request = coalesced.first_request[served] + part
    by_request = np.argsort(request, kind="stable")
    bounds = np.searchsorted(request[by_request], np.arange(len(coalesced.starts) + 1)).tolist()
    ranges, parts, part_counts = served[by_request].tolist(), part[by_request].tolist(), requests_of_range.tolist()
    for begin, end in pairwise(bounds):
        count = part_counts[ranges[begin]]
        is_part = end - begin == 1 and count > 1
        yield ranges[begin:end], f" (part {parts[begin] + 1} of {count})" if is_part else ""


def _served_chunks(row_groups: list[int], column_names: list[str]) -> str:
    """Name the row groups and columns of chunks, given a row group number and a column name for each."""
    return f"{row_group_spans(list(dict.fromkeys(row_groups)))}: {few_of(list(dict.fromkeys(column_names)))}"
