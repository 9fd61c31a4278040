"""Where each fetched byte belongs: from the ranges of requests into the buffers of row groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coldparquet.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.plan.read_plan import PlannedRequest, RowGroupRead


class Placement(NamedTuple):
    """One copy: ``buffer[destination_offset:][:length_bytes] = fetched[source_offset:][:length_bytes]``."""

    row_group_read: int
    """Index of the row group read whose buffer receives the bytes."""
    source_offset: int
    """Where the bytes begin in the answer to the request."""
    destination_offset: int
    """Where the bytes belong in the row group's buffer, which begins with the magic ``PAR1``."""
    length_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placements:
    """Every copy that takes fetched bytes of one partition to their final place, ordered by request."""

    row_group_read: npt.NDArray[np.int64]
    """Index into the row group reads, shape ``(placements,)``."""
    source_offset: npt.NDArray[np.int64]
    destination_offset: npt.NDArray[np.int64]
    length_bytes: npt.NDArray[np.int64]
    first_of_request: npt.NDArray[np.int64]
    """The placements of request ``i`` are ``[first_of_request[i], first_of_request[i + 1])``."""

    def of_request(self, request: int) -> list[Placement]:
        """Return the copies that the answer to one request allows."""
        span = slice(self.first_of_request[request], self.first_of_request[request + 1])
        fields = (self.row_group_read, self.source_offset, self.destination_offset, self.length_bytes)
        return [Placement(*row) for row in zip(*(field[span].tolist() for field in fields), strict=True)]


def place(row_groups: Sequence[RowGroupRead], requests: Sequence[PlannedRequest]) -> Placements:
    """Compute where the bytes of each request go. Every byte of every chunk is placed exactly once.

    Args:
        row_groups: The row group reads of one partition.
        requests: The requests of that partition, disjoint and in file order, as ``plan_requests`` returns them.

    Returns:
        The placements; ``row_group_read`` and ``first_of_request`` index into the two arguments.

    Raises:
        InternalError: The requests do not cover a chunk.
    """
    return place_ranges(
        _joined([read.piece_starts for read in row_groups]),
        _joined([read.piece_stops for read in row_groups]),
        _joined([read.buffer_offsets for read in row_groups]),
        np.repeat(np.arange(len(row_groups)), [len(read.piece_starts) for read in row_groups]),
        np.array([request.byte_range.start for request in requests], dtype=np.int64),
        np.array([request.byte_range.stop for request in requests], dtype=np.int64),
    )


def place_ranges(  # noqa: PLR0913, PLR0917 - parallel arrays of ranges and of requests
    chunk_starts: npt.NDArray[np.int64],
    chunk_stops: npt.NDArray[np.int64],
    chunk_destinations: npt.NDArray[np.int64],
    chunk_read: npt.NDArray[np.int64],
    request_starts: npt.NDArray[np.int64],
    request_stops: npt.NDArray[np.int64],
) -> Placements:
    """Compute where the bytes of each request go, as :func:`place` does, for ranges of any origin.

    Args:
        chunk_starts: First byte of each range that is read, shape ``(chunks,)``; ranges may share bytes.
        chunk_stops: One past the last byte of each.
        chunk_destinations: Where each belongs in the buffer that it is read into.
        chunk_read: Which buffer that is: its index among the reads.
        request_starts: First byte of each request, ascending; requests are disjoint.
        request_stops: One past the last byte of each request.

    Raises:
        InternalError: The requests do not cover a chunk.
    """
    # One pair per chunk and request that share bytes.
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

    # Copies that continue each other become one: chunks that touch in the file also touch in the buffer.
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
