"""Turns many byte ranges of one object into few requests.

Pure arithmetic over numpy arrays: 100,000 ranges take milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_REQUESTS = 1_000_000
"""More requests than this for one object are refused: 8 TB at 8 MiB each, so the ranges come from damaged metadata."""

_LEAST_SHARE_AT_BORDERS = 3 / 4
"""A request that ends at a border has at least this part of the longest length: otherwise there would be too many."""

_LARGEST_OFFSET = np.iinfo(np.int64).max


class CoalescedRequests(Struct, frozen=True, kw_only=True, eq=False):
    """Disjoint requests in ascending order, and the mapping from input ranges to them."""

    starts: npt.NDArray[np.int64]
    """First byte of each request, shape ``(requests,)``."""
    stops: npt.NDArray[np.int64]
    """One past the last byte of each request, shape ``(requests,)``."""
    first_request: npt.NDArray[np.int64]
    """Index of the first request that serves each input range, shape ``(ranges,)``."""
    stop_request: npt.NDArray[np.int64]
    """One past the last such request; equal to ``first_request`` for an empty range."""


def coalesce(  # noqa: PLR0913 - knobs are required keywords here; their defaults live in ReadOptions
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    *,
    gap_bytes: int,
    max_request_bytes: int,
    part_bytes: int | None = None,
    borders: npt.NDArray[np.int64] | None = None,
) -> CoalescedRequests:
    """Merge neighbouring ranges into requests and split long ones.

    Exactly one request covers each byte of the input. Ranges may come in any order, overlap, repeat and be empty. In
    file order, a request includes the next range while the gap to it is at most ``gap_bytes`` and the request stays
    within ``max_request_bytes``. This gives the fewest requests under both rules. A range (or a run of overlapping
    ranges) longer than ``max_request_bytes`` is split into the fewest, nearly equal parts, which are fetched in
    parallel.
    """
    _check(starts, stops, gap_bytes, max_request_bytes)
    starts = starts.astype(np.int64, copy=False)
    stops = stops.astype(np.int64, copy=False)

    longest_bytes = max_request_bytes if part_bytes is None else min(max_request_bytes, max(part_bytes, 2 * gap_bytes))
    if _is_one_request(starts, stops, gap_bytes, longest_bytes):
        return _one_request(starts, stops)
    run_starts, run_stops = _overlap_free_runs(starts, stops)
    piece_starts, piece_stops = _split_long_runs(run_starts, run_stops, max_request_bytes)
    first_piece = _first_piece_of_each_request(piece_starts, piece_stops, gap_bytes, max_request_bytes, borders)
    request_starts = piece_starts[first_piece]
    request_stops = piece_stops[np.append(first_piece[1:], len(piece_starts)) - 1] if len(piece_starts) else piece_stops

    if part_bytes is not None:
        # Parts have at least two thirds of the requested length: longer than any gap, so each holds wanted bytes.
        parts = np.rint((request_stops - request_starts) / max(part_bytes, 2 * gap_bytes)).astype(np.int64)
        request_starts, request_stops = _equal_parts(request_starts, request_stops, np.maximum(parts, 1))

    first_request = np.searchsorted(request_stops, starts, side="right")
    stop_request = np.where(stops > starts, np.searchsorted(request_starts, stops, side="left"), first_request)
    return CoalescedRequests(
        starts=request_starts, stops=request_stops, first_request=first_request, stop_request=stop_request
    )


def _check(starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64], gap_bytes: int, max_request_bytes: int) -> None:
    if starts.ndim != 1 or starts.shape != stops.shape:
        raise InvalidInputError(f"starts and stops must be flat and equally long, not {starts.shape} and {stops.shape}")
    if gap_bytes < 0:
        raise InvalidInputError(f"gap_bytes is {gap_bytes}; 0 is the least and merges only ranges that touch")
    if max_request_bytes < 1:
        raise InvalidInputError(f"max_request_bytes is {max_request_bytes}; it must be at least 1")
    if bool(((starts < 0) | (stops < starts)).any()):
        worst = int(np.argmax((starts < 0) | (stops < starts)))
        raise InvalidInputError(f"range {worst} is [{starts[worst]}, {stops[worst]}); needed: 0 <= start <= stop")


def _is_one_request(
    starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64], gap_bytes: int, longest_bytes: int
) -> bool:
    """Tell quickly whether ranges are non-empty, in order and close together, as in small partitions."""
    if not len(starts) or stops[-1] - starts[0] > longest_bytes or not (stops > starts).all():
        return False
    gaps = starts[1:] - stops[:-1]
    return bool(((gaps >= 0) & (gaps <= gap_bytes)).all())


def _one_request(starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> CoalescedRequests:
    first_request = np.zeros(len(starts), np.int64)
    return CoalescedRequests(
        starts=starts[:1], stops=stops[-1:], first_request=first_request, stop_request=first_request + 1
    )


def _overlap_free_runs(
    starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Merge overlapping ranges. Ranges that only touch stay separate, so that a request may end between them."""
    filled = stops > starts
    starts, stops = starts[filled], stops[filled]
    order = np.argsort(starts, kind="stable")
    starts, furthest_stops = starts[order], np.maximum.accumulate(stops[order])
    begins_run = np.ones(len(starts), dtype=bool)
    begins_run[1:] = starts[1:] >= furthest_stops[:-1]
    ends_run = np.ones(len(starts), dtype=bool)
    ends_run[:-1] = begins_run[1:]
    return starts[begins_run], furthest_stops[ends_run]


def _split_long_runs(
    starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64], max_request_bytes: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    lengths = stops - starts
    if lengths.max(initial=0) <= max_request_bytes:
        return starts, stops
    parts = (lengths - 1) // max_request_bytes + 1
    # Summed as floats: lengths from damaged metadata may overflow an integer sum.
    if parts.sum(dtype=np.float64) > MAX_REQUESTS:
        raise InvalidInputError(
            f"the ranges span {int(lengths.max()):,} bytes and would take more than {MAX_REQUESTS:,} requests of at "
            f"most {max_request_bytes:,} bytes; raise max_request_bytes, or check the metadata if no object is that long",
            kind="TooManyRequests",
            longest_bytes=int(lengths.max()),
            max_request_bytes=max_request_bytes,
        )
    return _equal_parts(starts, stops, parts)


def _equal_parts(
    starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64], parts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Cut each range into this many parts, whose lengths differ by at most one byte."""
    lengths = stops - starts
    first_part = np.cumsum(parts) - parts
    part = np.arange(int(parts.sum())) - np.repeat(first_part, parts)
    shortest, longer_parts = np.divmod(lengths, parts)
    shortest_of_part, longer_of_part = np.repeat(shortest, parts), np.repeat(longer_parts, parts)
    part_starts = np.repeat(starts, parts) + part * shortest_of_part + np.minimum(part, longer_of_part)
    return part_starts, part_starts + shortest_of_part + (part < longer_of_part)


def _first_piece_of_each_request(
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    gap_bytes: int,
    max_request_bytes: int,
    borders: npt.NDArray[np.int64] | None,
) -> npt.NDArray[np.int64]:
    """Group the sorted, disjoint pieces into requests; return the index of each request's first piece."""
    count = len(starts)
    too_far = starts[1:] - stops[:-1] > gap_bytes
    gaps_before = np.concatenate([np.zeros(min(count, 1), dtype=np.int64), np.cumsum(too_far)])
    next_after_gap = np.append(np.flatnonzero(too_far) + 1, count)[gaps_before]
    largest_stops = starts + np.minimum(max_request_bytes, _LARGEST_OFFSET - starts)
    next_after_cap = np.searchsorted(stops, largest_stops, side="right")
    if borders is not None and bool((next_after_cap < next_after_gap).any()):
        at_border = _last_borders(np.isin(starts, borders))[next_after_cap]
        is_long = stops[at_border - 1] - starts >= _LEAST_SHARE_AT_BORDERS * max_request_bytes
        next_after_cap = np.where((at_border > np.arange(count)) & is_long, at_border, next_after_cap)
    # The end of each request depends on its begin, so this one step is sequential: one jump per request.
    next_piece = np.minimum(next_after_gap, next_after_cap).tolist()
    first_piece = []
    piece = 0
    while piece < count:
        first_piece.append(piece)
        piece = next_piece[piece]
    return np.array(first_piece, dtype=np.int64)


def _last_borders(begins_at_border: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the last border at or before each piece, 0 if there is none; the end of all pieces is a border as well."""
    count = len(begins_at_border)
    return np.append(np.maximum.accumulate(np.where(begins_at_border, np.arange(count), 0)), count)
