"""The requests that bring the slices of a native partition, and where their bytes go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.plan.coalesce import coalesce
from coldparquet.plan.placement import Placements, place_ranges
from coldparquet.plan.read_plan import PlannedRequest
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coldparquet.plan.coalesce import CoalescedRequests
    from coldparquet.plan.native_read import FileRole, NativeRead

_ROLE_IN_REASON: dict[FileRole, str] = {"fixed": "", "auxiliary": " (offsets)", "data": ""}


def plan_native_requests(  # noqa: PLR0913 - knobs are required keywords here; their defaults live in ReadOptions
    reads: Sequence[NativeRead],
    *,
    column_names: Mapping[int, str],
    gap_bytes: int,
    max_request_bytes: int,
    part_bytes: int | None = None,
    stage: int = 1,
) -> tuple[PlannedRequest, ...]:
    """Plan the requests that bring all slices of one partition; slices that touch in a file are merged.

    Args:
        reads: The slices of the partition, in ascending order.
        column_names: Name of each column by its position in the table; for the reasons.
        gap_bytes: Largest gap between two ranges of a file that one request reads over.
        max_request_bytes: Longest request.
        part_bytes: About how long requests should be at the end; None leaves them as long as coalescing makes them.
        stage: Stage of the requests.

    Returns:
        Disjoint requests in the order of the files and, within one, in file order.
    """
    requests: list[PlannedRequest] = []
    for number, file in enumerate(reads[0].files if reads else ()):
        coalesced = coalesce(
            np.array([read.starts[number] for read in reads], dtype=np.int64),
            np.array([read.stops[number] for read in reads], dtype=np.int64),
            gap_bytes=gap_bytes,
            max_request_bytes=max_request_bytes,
            part_bytes=part_bytes,
        )
        ranges = map(ByteRange, coalesced.starts.tolist(), coalesced.stops.tolist())
        what = f"{column_names[file.column]}{_ROLE_IN_REASON[file.role]}"
        requests += [
            PlannedRequest(
                partition_index=reads[0].partition_index,
                path=file.path,
                byte_range=byte_range,
                reason=reason,
                stage=stage,
            )
            for byte_range, reason in zip(ranges, _reasons(reads, coalesced, what), strict=True)
        ]
    return tuple(requests)


def _reasons(reads: Sequence[NativeRead], coalesced: CoalescedRequests, what: str) -> Iterator[str]:
    """Yield one text per request to a file: the rows of the slices that it serves, and ``what`` it brings of them."""
    # A request is served by the slices whose requests it lies among: both ascend, so these are neighbours.
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


def place_native(reads: Sequence[NativeRead], requests: Sequence[PlannedRequest]) -> Placements:
    """Compute where the bytes of each request go. Every byte of every slice is placed exactly once.

    Args:
        reads: The slices of one partition, as :func:`plan_native_requests` was given them.
        requests: The requests that it returned.

    Returns:
        The placements; ``row_group_read`` and ``first_of_request`` index into the two arguments, destinations count
        from the start of the slice's flat buffer.

    Raises:
        InternalError: The requests do not cover a slice.
    """
    if not reads:
        return place_ranges(*(np.empty(0, dtype=np.int64) for _ in range(6)))
    files = reads[0].files
    starts = np.stack([read.starts for read in reads])
    stops = np.stack([read.stops for read in reads])
    # The files are laid out one behind the other, so that an offset says which file it is in.
    file_bytes = stops.max(axis=0)
    file_offsets = np.cumsum(file_bytes) - file_bytes
    offset_by_path = {file.path: int(offset) for file, offset in zip(files, file_offsets, strict=True)}
    request_starts = [offset_by_path[request.path] + request.byte_range.start for request in requests]
    request_stops = [offset_by_path[request.path] + request.byte_range.stop for request in requests]
    return place_ranges(
        (starts + file_offsets).ravel(),
        (stops + file_offsets).ravel(),
        np.stack([read.buffer_offsets for read in reads]).ravel(),
        np.repeat(np.arange(len(reads)), len(files)),
        np.array(request_starts, dtype=np.int64),
        np.array(request_stops, dtype=np.int64),
    )
