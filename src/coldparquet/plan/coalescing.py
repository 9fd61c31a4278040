"""Chooses the gap to read over and the length of requests: by the goal, the prices and the speed of the store.

The cost model: a request takes ``F + L / B``, the time to its first byte plus its length over the throughput of one
connection. Up to ``C`` are in flight.

* With fewer than ``C`` requests, one more waits for its first byte in parallel. Merging two of them over a gap turns
  two parallel transfers into one of ``a + gap + b``. It only saves the processor time of a request, about 1.5 ms. In
  that time a connection delivers 128 KiB at 90 MB/s. So gaps of one object are read over up to 128 KiB; measurements
  agree. On slow connections the limit is ``F * B``: there 128 KiB would take longer than a whole request.
* Transfers of several objects run in parallel, but one processor handles their requests in sequence. ``n`` requests
  take at least ``F`` and 1.5 ms each. Reading over a gap in each of 7 small partitions saves 7 times as much as it
  costs.
* With more than ``C`` requests, they queue. Each connection pays ``F`` for each of its requests in sequence, so ``n``
  requests take about ``ceil(n / C) * F + bytes / (C * B)``. Now merging saves up to ``F`` for ``gap / B``: it pays up
  to a gap of ``F * B``. The real saving depends on how many requests it removes. So :func:`widened` computes the time
  for several gaps and takes the shortest. It bounds the gap and the useless bytes: these cost memory and, outside of
  the region, money. Longer parts may help without a wider gap: 33 requests over 32 connections take two turns.
* Long requests are split while connections are idle: ``k`` parts take ``F + L / (k * B)``. A part below half a megabyte
  takes less than 6 ms, so splitting gains less than the processor pays. On slow connections parts may be as short as
  ``F * B``: the transfer of each then takes at least as long as its wait.
* If a request opens its own connection (``StoreSpeed.are_connections_new``), it must save time. Gaps are read over as
  long as nothing finishes later. Two requests of 200 KB with 400 KB between them become one of 800 KB if another
  request is that long anyway.
* Money knows no parallelism. A gap costs its bytes, a request costs a GET. For ``cheap`` their ratio is the gap: 100 KB
  in Standard-IA, 330 KB in GLACIER_IR, and the widest gap where bytes are free.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from coldparquet.options import COALESCING_BY_GOAL, KIB, MIB
from coldparquet.plan.cost import estimate_seconds, prices_of
from coldparquet.plan.model import DECODED_BYTES_PER_S
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from coldparquet.options import Coalescing, ReadOptions
    from coldparquet.plan.model import StoreSpeed
    from coldparquet.plan.requests import ReadRanges


_LEAST_LATENCY_S = 0.001
"""Below this, latency does not matter: memory, a local disk."""

_LEAST_GAP_BYTES = 4 * KIB
"""A gap of this size costs less than the headers of another request."""

_LEAST_PART_BYTES = 64 * KIB

_LONGEST_FAST_REQUEST_BYTES = 8 * MIB
"""The lower end of the 8-16 MiB that S3 recommends for throughput. Requests have this length if all connections
together then fit the scan's memory for bytes in flight: few connections, or much memory."""

_SHARE_IN_FLIGHT = 1 / 4
"""Approximate part of a scan's memory for bytes in flight; the rest is for fetched bytes and decoded rows."""

_WIDEST_GAP_BYTES = 4 * MIB
"""Wider gaps are not read over to save time, however slow the first byte is."""

_MOST_IN_VAIN = 0.5
"""If requests queue, wider gaps may add this part of the bytes that narrow ones fetch."""

_LITTLE_IN_VAIN_BYTES = 4 * MIB
"""If only processor time is saved, wider gaps may add this many bytes."""

_REQUEST_PROCESSOR_S = 0.0015
"""Processor time of a request; an event loop uses one processor."""

_LEAST_GAIN = 0.1
"""Wider gaps must promise to save this part of the time: estimates may be wrong."""


@lru_cache(maxsize=256)
def choose_coalescing(options: ReadOptions, speed: StoreSpeed, storage_class: str | None = None) -> Coalescing:
    """Choose how the ranges of one object become requests."""
    chosen = by_goal(options, speed, storage_class)
    gap, longest = options.coalesce_gap_bytes, options.max_request_bytes
    return replace(
        chosen,
        gap_bytes=chosen.gap_bytes if gap is None else gap,
        max_request_bytes=chosen.max_request_bytes if longest is None else longest,
        least_part_bytes=chosen.least_part_bytes if longest is None else longest,
    )


def by_goal(options: ReadOptions, speed: StoreSpeed, storage_class: str | None) -> Coalescing:
    """Choose by goal, prices and speed alone, ignoring the gap and length that the options state."""
    base = COALESCING_BY_GOAL[options.goal]
    if options.goal == "fast":
        held_bytes = round(options.memory_limit_bytes * _SHARE_IN_FLIGHT)
        longest_bytes = min(held_bytes // options.max_concurrency, _LONGEST_FAST_REQUEST_BYTES)
        base = replace(base, max_request_bytes=max(base.max_request_bytes, longest_bytes))
    if options.goal == "cheap":
        break_even_bytes = prices_of(options).break_even_bytes(storage_class)
        return replace(base, gap_bytes=round(min(break_even_bytes, base.gap_bytes)))
    if options.goal == "few-requests" or not _is_measured(speed):
        return base
    in_one_latency = speed.bytes_per_first_byte
    return replace(
        base,
        gap_bytes=min(base.gap_bytes, max(math.floor(in_one_latency), _LEAST_GAP_BYTES)),
        least_part_bytes=min(base.least_part_bytes, max(math.floor(in_one_latency), _LEAST_PART_BYTES)),
    )


def may_widen(options: ReadOptions, speed: StoreSpeed) -> bool:
    """Tell whether :func:`widened` may change anything, whatever is read."""
    is_free = options.goal == "fast" and options.coalesce_gap_bytes is None and options.max_request_bytes is None
    is_far = speed.is_first_byte_measured or speed.is_remote
    return is_free and is_far and speed.first_byte_s >= _LEAST_LATENCY_S


def widened(
    coalescing: Coalescing, ranges: ReadRanges, *, wanted_bytes: int, options: ReadOptions, speed: StoreSpeed
) -> Coalescing:
    """Widen the gap if requests would queue for connections or the processor, and fewer, longer ones are faster."""
    if not may_widen(options, speed):
        return coalescing
    narrow = _lengths(coalescing, ranges, wanted_bytes, speed)
    are_queued = len(narrow) > speed.connections
    seconds_of = _seconds if are_queued else _seconds_with_processor
    most_in_vain = _MOST_IN_VAIN * narrow.sum() if are_queued else _LITTLE_IN_VAIN_BYTES
    is_each_dear = speed.are_connections_new and not are_queued
    best, fewest, best_s = coalescing, len(narrow), seconds_of(narrow, speed)
    if not is_each_dear:
        best_s *= 1 - _LEAST_GAIN
        if not are_queued and best_s <= _least_seconds(narrow, coalescing, speed):
            return coalescing
    for candidate in _candidates(coalescing, ranges, speed):
        lengths = _lengths(candidate, ranges, wanted_bytes, speed)
        if lengths.sum() > narrow.sum() + most_in_vain:
            break
        seconds = seconds_of(lengths, speed)
        if seconds < best_s or (is_each_dear and seconds == best_s and len(lengths) < fewest):
            best, fewest, best_s = candidate, len(lengths), seconds
    return best


def _lengths(coalescing: Coalescing, ranges: ReadRanges, wanted_bytes: int, speed: StoreSpeed) -> npt.NDArray[np.int64]:
    part_bytes = coalescing.part_bytes(wanted_bytes, speed.connections)
    return ranges.request_lengths(coalescing, part_bytes=part_bytes)


def _seconds(lengths: npt.NDArray[np.int64], speed: StoreSpeed) -> float:
    return max(estimate_seconds([lengths.tolist()], speed=speed), int(lengths.sum()) / DECODED_BYTES_PER_S)


def _seconds_with_processor(lengths: npt.NDArray[np.int64], speed: StoreSpeed) -> float:
    return max(_seconds(lengths, speed), speed.first_byte_s + len(lengths) * _REQUEST_PROCESSOR_S)


def _least_seconds(narrow: npt.NDArray[np.int64], coalescing: Coalescing, speed: StoreSpeed) -> float:
    """Return a lower bound of the time with any wider gap; usually it shows that there is little to gain.

    At least one request is needed. The longest one becomes shorter only when cut, into parts that have at least two
    thirds of the intended length.
    """
    longest_bytes = min(int(narrow.max(initial=0)), coalescing.least_part_bytes * 2 // 3)
    return speed.first_byte_s + max(_REQUEST_PROCESSOR_S, longest_bytes / speed.connection_bytes_per_s)


def _candidates(coalescing: Coalescing, ranges: ReadRanges, speed: StoreSpeed) -> Iterator[Coalescing]:
    """Yield ever wider gaps, each with the part length at which its bytes use every connection once."""
    gap_bytes, widest_bytes = coalescing.gap_bytes, min(speed.bytes_per_first_byte, _WIDEST_GAP_BYTES)
    while gap_bytes <= widest_bytes:
        wider = replace(coalescing, gap_bytes=gap_bytes)
        count, fetched_bytes = ranges.count_and_bytes(wider, part_bytes=wider.max_request_bytes)
        # Each request is cut into a whole number of parts: up to half a part more than its share.
        even_share_bytes = -(-fetched_bytes // max(speed.connections - count // 2, speed.connections // 2, 1))
        longest_part_bytes = min(even_share_bytes, wider.max_request_bytes)
        yield replace(wider, least_part_bytes=max(wider.least_part_bytes, longest_part_bytes))
        gap_bytes *= 2


def _is_measured(speed: StoreSpeed) -> bool:
    return speed.is_first_byte_measured and speed.is_throughput_measured and speed.first_byte_s >= _LEAST_LATENCY_S
