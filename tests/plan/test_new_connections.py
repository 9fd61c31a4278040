"""Requests of processes that have no open connection yet: fewer of them, as long as nothing comes later for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coldparquet.options import KIB, MIB, ReadOptions
from coldparquet.plan.coalescing import choose_coalescing, widened
from coldparquet.plan.cost import estimate_seconds
from coldparquet.plan.model import StoreSpeed
from coldparquet.plan.requests import ReadRanges
from coldparquet.records import replace
from tests.support.plan_pieces import read_of

SPEED = StoreSpeed(
    connections=32,
    first_byte_s=0.030,
    connection_bytes_per_s=90e6,
    is_first_byte_measured=True,
    is_throughput_measured=True,
)
DAY = [(0, 27), (382, 408), (3282, 3935), (6806, 6984), (7201, 7370)]
"""What two hours of a day need of two columns, in KiB: the middle one of its requests is the longest."""


def lengths(ranges: list[tuple[int, int]], speed: StoreSpeed) -> list[int]:
    """Return how long the requests for some ranges are, in bytes."""
    options = ReadOptions()
    on_axis = ReadRanges.of([read_of([(start * KIB, stop * KIB) for start, stop in ranges])])
    assert on_axis is not None
    wanted_bytes = sum(stop - start for start, stop in ranges) * KIB
    chosen = widened(
        choose_coalescing(options, speed), on_axis, wanted_bytes=wanted_bytes, options=options, speed=speed
    )
    found: list[int] = on_axis.request_lengths(
        chosen, part_bytes=chosen.part_bytes(wanted_bytes, speed.connections)
    ).tolist()
    return found


def seconds(of: list[int]) -> float:
    return max(estimate_seconds([of], speed=SPEED), SPEED.first_byte_s + 0.0015 * len(of))


def test_gaps_are_read_over_where_nothing_comes_later_for_it() -> None:
    assert [length // KIB for length in lengths(DAY, SPEED)] == [27, 26, 653, 178, 169]
    new = replace(SPEED, are_connections_new=True)
    assert [length // KIB for length in lengths(DAY, new)] == [408, 653, 564]
    assert [length // KIB for length in lengths([DAY[0], DAY[2]], new)] == [27, 653]


@given(st.lists(st.tuples(st.integers(1, 600), st.integers(1, 3_000)), min_size=1, max_size=30))
def test_fewer_requests_take_no_longer(parts: list[tuple[int, int]]) -> None:
    ranges: list[tuple[int, int]] = []
    for length, gap in parts:
        start = gap + (ranges[-1][1] if ranges else 0)
        ranges.append((start, start + length))
    open_already, new = (lengths(ranges, replace(SPEED, are_connections_new=is_new)) for is_new in (False, True))
    assert len(new) <= len(open_already)
    assert seconds(new) <= seconds(open_already)
    assert sum(new) <= sum(open_already) + 4 * MIB
