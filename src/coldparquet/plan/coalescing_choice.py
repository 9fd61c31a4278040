"""How wide a gap to read over, and how long requests should be: by the goal, the prices and the speed of the store.

What is being minimised, as a model. A request takes ``F + L / B``: the time to its first byte, and its length over the
throughput of one connection. Up to ``C`` are in flight.

* While fewer than ``C`` requests are needed, a request more costs no time: it waits for its first byte beside the others.
  To merge two of them over a gap saves nothing, and makes one transfer of ``a + gap + b`` out of two that would have gone on
  at once. All that it saves is what a request costs the processor, about 1.5 ms, in which a connection brings 128 KiB at
  90 MB/s. So gaps are read over up to 128 KiB, as was measured to be best. On slow connections up to ``F * B``, because there
  128 KiB would take longer than a request altogether.
* When more than ``C`` are needed, requests queue: each connection pays ``F`` for every request that it carries, one after the
  other, and ``n`` requests take about ``ceil(n / C) * F + bytes / (C * B)``. Now merging saves up to ``F`` for
  ``gap / B``: it pays up to a gap of ``F * B``. How much it really pays depends on how many requests it saves, so that
  :func:`widened` computes the time for several gaps and takes the shortest, within bounds on the gap and on the bytes that are
  read in vain, which cost memory and, outside of the region, money. Without a wider gap, longer parts may do: 33 requests
  over 32 connections take two turns.
* Long requests are split while connections are idle: ``k`` parts take ``F + L / (k * B)``. Below half a megabyte a part takes
  less than 6 ms, so that splitting gains less than the processor pays; on slow connections parts may be as short as ``F * B``,
  so that the transfer of each takes no less than the wait for it.
* Money knows no parallelism. A gap costs what its bytes cost, a request what a GET costs: for ``cheap`` their ratio is the
  gap, 100 KB in Standard-IA, 330 KB in GLACIER_IR, and as wide as it gets where bytes are free.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.options import COALESCING_BY_GOAL, KIB, MIB
from coldparquet.plan.cost import estimate_seconds, prices_of
from coldparquet.plan.store_speed import DECODED_BYTES_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from coldparquet.options import Coalescing, ReadOptions
    from coldparquet.plan.read_ranges import ReadRanges
    from coldparquet.plan.store_speed import StoreSpeed

_LEAST_LATENCY_S = 0.001
"""Below this there is no latency worth a thought: memory, a local disk."""

_LEAST_GAP_BYTES = 4 * KIB
"""A gap of this size costs less than the headers of another request."""

_LEAST_PART_BYTES = 64 * KIB

_WIDEST_GAP_BYTES = 4 * MIB
"""Gaps wider than this are not read over in order to save time, however slow the first byte is."""

_MOST_BYTES_IN_VAIN = 0.5
"""Wider gaps may add this part of the bytes that narrow ones fetch."""

_LEAST_GAIN = 0.1
"""They must promise to save this part of the time: estimates may be wrong."""


def choose_coalescing(options: ReadOptions, speed: StoreSpeed, storage_class: str | None = None) -> Coalescing:
    """Choose how the ranges of one object become requests.

    Args:
        options: How to read; gap and length that they state are taken as they are.
        speed: Of the store; what was not measured changes nothing.
        storage_class: Of the object; None is ``STANDARD``.
    """
    chosen = by_goal(options, speed, storage_class)
    gap, longest = options.coalesce_gap_bytes, options.max_request_bytes
    return replace(
        chosen,
        gap_bytes=chosen.gap_bytes if gap is None else gap,
        max_request_bytes=chosen.max_request_bytes if longest is None else longest,
        least_part_bytes=chosen.least_part_bytes if longest is None else longest,
    )


def by_goal(options: ReadOptions, speed: StoreSpeed, storage_class: str | None) -> Coalescing:
    """Choose by goal, prices and speed alone, whatever gap and length the options state."""
    base = COALESCING_BY_GOAL[options.goal]
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
    return is_free and speed.is_first_byte_measured and speed.first_byte_s >= _LEAST_LATENCY_S


def widened(
    coalescing: Coalescing, ranges: ReadRanges, *, wanted_bytes: int, options: ReadOptions, speed: StoreSpeed
) -> Coalescing:
    """Widen the gap where requests would queue for connections and fewer, longer ones are expected to be faster.

    Args:
        coalescing: As chosen for few requests.
        ranges: All that is read in the first round trip.
        wanted_bytes: Length of all that is read, in all round trips.
        options: How to read; only the goal ``fast`` without stated gap and length is changed.
        speed: Of the store; only one that was measured changes anything.
    """
    if not may_widen(options, speed):
        return coalescing
    narrow = _lengths(coalescing, ranges, wanted_bytes, speed)
    if len(narrow) <= speed.connections:
        return coalescing
    best, best_s = coalescing, (1 - _LEAST_GAIN) * _seconds(narrow, speed)
    for candidate in _candidates(coalescing, ranges, speed):
        lengths = _lengths(candidate, ranges, wanted_bytes, speed)
        if lengths.sum() > (1 + _MOST_BYTES_IN_VAIN) * narrow.sum():
            break
        seconds = _seconds(lengths, speed)
        if seconds < best_s:
            best, best_s = candidate, seconds
    return best


def _lengths(coalescing: Coalescing, ranges: ReadRanges, wanted_bytes: int, speed: StoreSpeed) -> npt.NDArray[np.int64]:
    part_bytes = coalescing.part_bytes(wanted_bytes, speed.connections)
    return ranges.request_lengths(coalescing, part_bytes=part_bytes)


def _seconds(lengths: npt.NDArray[np.int64], speed: StoreSpeed) -> float:
    return max(estimate_seconds([lengths.tolist()], speed=speed), int(lengths.sum()) / DECODED_BYTES_PER_S)


def _candidates(coalescing: Coalescing, ranges: ReadRanges, speed: StoreSpeed) -> Iterator[Coalescing]:
    """Yield ever wider gaps, each with parts of a length with which what it fetches takes every connection once."""
    gap_bytes, widest_bytes = coalescing.gap_bytes, min(speed.bytes_per_first_byte, _WIDEST_GAP_BYTES)
    while gap_bytes <= widest_bytes:
        wider = replace(coalescing, gap_bytes=gap_bytes)
        count, fetched_bytes = ranges.count_and_bytes(wider, part_bytes=wider.max_request_bytes)
        # Each request is cut into a whole number of parts, which may be half a part more than its share.
        even_share_bytes = -(-fetched_bytes // max(speed.connections - count // 2, speed.connections // 2, 1))
        longest_part_bytes = min(even_share_bytes, wider.max_request_bytes)
        yield replace(wider, least_part_bytes=max(wider.least_part_bytes, longest_part_bytes))
        gap_bytes *= 2


def _is_measured(speed: StoreSpeed) -> bool:
    return speed.is_first_byte_measured and speed.is_throughput_measured and speed.first_byte_s >= _LEAST_LATENCY_S
