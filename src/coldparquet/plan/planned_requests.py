"""From reads to requests: the chunks of one object are merged and split, for thousands of objects at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress, pairwise
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.plan.coalesce import coalesce
from coldparquet.plan.read_plan import PlannedRequest
from coldparquet.plan.read_ranges import first_bytes, moves_onto_one_axis
from coldparquet.plan.wording import few_of, row_group_spans
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coldparquet.plan.bounds import IntArray
    from coldparquet.plan.coalesce import CoalescedRequests
    from coldparquet.plan.read_plan import RowGroupRead

_MOST_RANGES_AT_ONCE = 100_000
"""Bounds the memory; so many take milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadsOfObject:
    """Reads of one object, whose chunks are merged with each other, also those of different row groups."""

    path: str
    column_names: Mapping[int, str]
    """Name of each fetched column by its index in the partition's sidecar; for the reasons."""
    reads: Sequence[RowGroupRead]
    """In ascending order of row groups."""


def plan_requests(
    objects: Sequence[ReadsOfObject],
    *,
    gap_bytes: int,
    max_request_bytes: int,
    part_bytes: int | None = None,
    stage: int = 1,
) -> tuple[PlannedRequest, ...]:
    """Plan the requests that bring all chunks of reads.

    Args:
        objects: The reads; those of one object may be given in parts, which are then not merged with each other. Where that
            takes few more requests, these end where row groups do: what one request brings as a whole need not be copied.
        gap_bytes: Largest gap between two chunks that one request reads over.
        max_request_bytes: Longest request.
        part_bytes: About how long requests should be at the end; None leaves them as long as coalescing makes them.
        stage: Stage of the requests.

    Returns:
        Disjoint requests of each object in turn, in file order; none where every column is made without fetching.
    """
    requests: list[PlannedRequest] = []
    batch: list[ReadsOfObject] = []
    range_count = 0
    for of_object in objects:
        more = sum(len(read.piece_starts) for read in of_object.reads)
        if batch and range_count + more > _MOST_RANGES_AT_ONCE:
            requests += _plan_at_once(batch, gap_bytes, max_request_bytes, part_bytes, stage)
            batch, range_count = [], 0
        if more:
            batch.append(of_object)
            range_count += more
    requests += _plan_at_once(batch, gap_bytes, max_request_bytes, part_bytes, stage)
    return tuple(requests)


def _plan_at_once(
    objects: Sequence[ReadsOfObject], gap_bytes: int, max_request_bytes: int, part_bytes: int | None, stage: int
) -> list[PlannedRequest]:
    if not objects:
        return []
    reads = [(number, read) for number, of_object in enumerate(objects) for read in of_object.reads]
    starts = np.concatenate([read.piece_starts for _, read in reads])
    stops = np.concatenate([read.piece_stops for _, read in reads])
    counts = [len(read.piece_starts) for _, read in reads]
    is_filled = stops > starts
    starts, stops = starts[is_filled], stops[is_filled]
    owners = np.repeat([number for number, _ in reads], counts)[is_filled]
    is_alone = len(objects) == 1
    moves = np.zeros(1, np.int64) if is_alone else moves_onto_one_axis(starts, stops, owners, len(objects))
    if moves is None:
        half = len(objects) // 2  # offsets of damaged metadata: one object alone needs no room
        return [
            request
            for some in (objects[:half], objects[half:])
            for request in _plan_at_once(some, gap_bytes, max_request_bytes, part_bytes, stage)
        ]
    starts_on_axis = starts + moves[owners]
    coalesced = coalesce(
        starts_on_axis,
        stops + moves[owners],
        gap_bytes=gap_bytes,
        max_request_bytes=max_request_bytes,
        part_bytes=part_bytes,
        borders=first_bytes(starts_on_axis, np.repeat(np.arange(len(reads)), counts)[is_filled]),
    )
    row_groups = np.repeat([read.row_group_in_file for _, read in reads], counts)[is_filled].tolist()
    names = list(compress(_names(objects), is_filled.tolist()))
    served = list(_served_ranges(coalesced))
    # The first range that a request serves tells whose it is.
    owner_of = owners[[ranges[0] for ranges, _ in served]] if served else owners
    begins, ends = coalesced.starts - moves[owner_of], coalesced.stops - moves[owner_of]
    return [
        PlannedRequest(
            partition_index=objects[owner].reads[0].partition_index,
            path=objects[owner].path,
            byte_range=ByteRange(begin, end),
            reason=f"{_served_chunks([row_groups[one] for one in ranges], [names[one] for one in ranges])}{part}",
            stage=stage,
        )
        for owner, begin, end, (ranges, part) in zip(
            owner_of.tolist(), begins.tolist(), ends.tolist(), served, strict=True
        )
    ]


def _names(objects: Sequence[ReadsOfObject]) -> Iterator[str]:
    """Yield the name of the column of each piece."""
    for of_object in objects:
        for read in of_object.reads:
            of_columns = [of_object.column_names[column] for column in read.columns]
            yield from [of_columns[position] for position in read.piece_columns.tolist()]


def _served_ranges(coalesced: CoalescedRequests) -> Iterator[tuple[list[int], str]]:
    """Yield for each request the ranges that it serves, and which part of its range it is where that is split."""
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
    """Name the row groups and columns of chunks, which are given by the numbers of the ones and the names of the others."""
    return f"{row_group_spans(list(dict.fromkeys(row_groups)))}: {few_of(list(dict.fromkeys(column_names)))}"
