"""Gaps and lengths of requests: by goal, by price, by speed; and wider gaps only where requests would queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.options import COALESCING_BY_GOAL, KIB, MIB, Coalescing, Goal, ReadOptions
from coldparquet.plan.coalescing import choose_coalescing, widened
from coldparquet.plan.cost import estimate_seconds
from coldparquet.plan.model import StoreSpeed
from coldparquet.plan.requests import ReadRanges
from coldparquet.prices import PriceTable
from coldparquet.records import replace
from tests.support.plan_pieces import SPEED, Ranges, read_of

GOALS: list[Goal] = ["fast", "cheap", "few-requests", "few-bytes"]


def measured(first_byte_s: float, bytes_per_s: float, *, connections: int = 32) -> StoreSpeed:
    return StoreSpeed(
        connections=connections,
        first_byte_s=first_byte_s,
        connection_bytes_per_s=bytes_per_s,
        is_first_byte_measured=True,
        is_throughput_measured=True,
    )


@pytest.mark.parametrize("goal", GOALS)
def test_a_goal_sets_gap_and_length_unless_they_are_given(goal: Goal) -> None:
    by_goal = choose_coalescing(ReadOptions(goal=goal), SPEED)
    given_ones = choose_coalescing(ReadOptions(goal=goal, coalesce_gap_bytes=7, max_request_bytes=1_000), SPEED)
    assert by_goal == COALESCING_BY_GOAL[goal]
    assert (given_ones.gap_bytes, given_ones.max_request_bytes) == (7, 1_000)
    assert given_ones.part_bytes(10**9, max_concurrency=32) == 1_000


@pytest.mark.parametrize(
    ("storage_class", "gap_bytes"),
    [(None, 16 * MIB), ("STANDARD", 16 * MIB), ("STANDARD_IA", 100_000), ("GLACIER_IR", 333_333), ("SNOW", 16 * MIB)],
)
def test_a_cheap_gap_costs_as_much_as_a_request(storage_class: str | None, gap_bytes: int) -> None:
    chosen = choose_coalescing(ReadOptions(goal="cheap"), SPEED, storage_class)
    assert chosen.gap_bytes == gap_bytes
    assert choose_coalescing(ReadOptions(goal="fast"), SPEED, storage_class) == COALESCING_BY_GOAL["fast"]


def test_bytes_that_leave_the_region_make_cheap_gaps_narrow() -> None:
    prices = replace(PriceTable.default(), counts_transfer_out=True)
    chosen = choose_coalescing(ReadOptions(goal="cheap", prices=prices), SPEED)
    assert chosen.gap_bytes == round(0.40e-6 / 0.09e-9)


@pytest.mark.parametrize(
    ("speed", "gap_bytes", "least_part_bytes"),
    [
        (measured(0.030, 90e6), 128 * KIB, 768 * KIB),
        (measured(0.200, 500e6), 128 * KIB, 768 * KIB),  # wider gaps only where requests queue
        (measured(0.030, 2e6), 60_000, 64 * KIB),  # a mobile network: a gap of 128 KiB would take 65 ms
        (measured(0.010, 1e5), 4 * KIB, 64 * KIB),
        (measured(0.0002, 1e6), 128 * KIB, 768 * KIB),  # a disk: no latency, nothing to weigh
        (replace(measured(0.030, 2e6), is_throughput_measured=False), 128 * KIB, 768 * KIB),
    ],
)
def test_slow_connections_read_over_less(speed: StoreSpeed, gap_bytes: int, least_part_bytes: int) -> None:
    chosen = choose_coalescing(ReadOptions(), speed)
    assert (chosen.gap_bytes, chosen.least_part_bytes) == (gap_bytes, least_part_bytes)
    assert choose_coalescing(ReadOptions(goal="few-bytes"), speed).gap_bytes == 0
    assert choose_coalescing(ReadOptions(goal="few-requests"), speed) == COALESCING_BY_GOAL["few-requests"]


@pytest.mark.parametrize(
    ("options", "max_request_bytes"),
    [
        (ReadOptions(max_concurrency=2), 8 * MIB),
        (ReadOptions(max_concurrency=13), 256 * MIB // 4 // 13),
        (ReadOptions(memory_limit_bytes=1 << 30), 8 * MIB),
        (ReadOptions(memory_limit_bytes=1 << 20), 4 * MIB),
        (ReadOptions(goal="few-bytes", memory_limit_bytes=1 << 20), 8 * MIB),
    ],
)
def test_requests_are_long_where_memory_holds_one_for_every_connection(
    options: ReadOptions, max_request_bytes: int
) -> None:
    assert choose_coalescing(options, SPEED).max_request_bytes == max_request_bytes


def widen(ranges: Ranges, speed: StoreSpeed, options: ReadOptions | None = None) -> Coalescing:
    options = options or ReadOptions()
    chosen = choose_coalescing(options, speed)
    on_axis = ReadRanges.of([read_of(ranges)])
    assert on_axis is not None
    wanted_bytes = sum(stop - start for start, stop in ranges)
    return widened(chosen, on_axis, wanted_bytes=wanted_bytes, options=options, speed=speed)


def strided(count: int, length: int, gap: int) -> Ranges:
    return [(number * (length + gap), number * (length + gap) + length) for number in range(count)]


def test_parts_grow_where_one_request_too_many_would_take_another_turn() -> None:
    """26 MiB in seven requests are 33 parts over 32 connections, or some that are a little longer."""
    chosen = widen(strided(56, 450 * KIB, 20 * KIB), measured(0.100, 90e6))
    assert chosen.gap_bytes == 128 * KIB
    assert chosen.least_part_bytes > 768 * KIB


def test_gaps_widen_where_requests_would_queue_for_connections() -> None:
    """64 requests over 32 connections pay for two first bytes, 32 over wider gaps for one."""
    speed = measured(0.100, 90e6)
    assert widen(strided(64, 450 * KIB, 200 * KIB), speed).gap_bytes == 256 * KIB


@pytest.mark.parametrize(
    ("ranges", "speed", "options"),
    [
        (strided(32, 450 * KIB, 200 * KIB), measured(0.100, 90e6), ReadOptions()),  # as many as there are connections
        (strided(64, 450 * KIB, 200 * KIB), SPEED, ReadOptions()),  # nothing was measured
        (strided(64, 450 * KIB, 200 * KIB), measured(0.0005, 90e6), ReadOptions()),  # no latency
        (
            strided(64, 450 * KIB, 200 * KIB),
            measured(0.002, 90e6),
            ReadOptions(),
        ),  # the gap takes longer than a request
        (strided(64, 100 * KIB, 200 * KIB), measured(0.100, 90e6), ReadOptions()),  # thrice the bytes
        (strided(64, 450 * KIB, 200 * KIB), measured(0.100, 90e6), ReadOptions(coalesce_gap_bytes=128 * KIB)),
        (strided(64, 450 * KIB, 200 * KIB), measured(0.100, 90e6), ReadOptions(goal="few-bytes")),
    ],
)
def test_gaps_stay_narrow(ranges: Ranges, speed: StoreSpeed, options: ReadOptions) -> None:
    assert widen(ranges, speed, options) == choose_coalescing(options, speed)


def queued_seconds(lengths: list[int], speed: StoreSpeed) -> float:
    return estimate_seconds([lengths], speed=speed)


def seconds_with_processor(lengths: list[int], speed: StoreSpeed) -> float:
    """Where every request has a connection of its own, the processor still takes them one after the other."""
    return max(queued_seconds(lengths, speed), speed.first_byte_s + 0.0015 * len(lengths))


def test_gaps_widen_where_the_processor_would_be_what_is_waited_for() -> None:
    """30 small ranges wait for their first bytes side by side, but the processor needs 45 ms for so many requests."""
    assert widen(strided(30, 4 * KIB, 130 * KIB), measured(0.030, 90e6)).gap_bytes > 130 * KIB
    assert (
        widen(strided(2, 4 * KIB, 130 * KIB), measured(0.030, 90e6)).gap_bytes == 128 * KIB
    )  # it spares 5 % of the time


@given(data=st.data())
def test_a_wider_gap_is_always_expected_to_be_faster(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.tuples(st.integers(1, 600_000), st.integers(0, 600_000)), min_size=1, max_size=120))
    ranges: Ranges = []
    for length, gap in lengths:
        start = gap + (ranges[-1][1] if ranges else 0)
        ranges.append((start, start + length))
    speed = measured(
        data.draw(st.floats(0.0001, 0.5)), data.draw(st.floats(1e6, 1e9)), connections=data.draw(st.integers(1, 32))
    )
    narrow, wide = choose_coalescing(ReadOptions(), speed), widen(ranges, speed)
    on_axis = ReadRanges.of([read_of(ranges)])
    assert on_axis is not None
    wanted_bytes = sum(stop - start for start, stop in ranges)
    narrow_lengths, wide_lengths = (
        on_axis.request_lengths(chosen, part_bytes=chosen.part_bytes(wanted_bytes, speed.connections)).tolist()
        for chosen in (narrow, wide)
    )
    if wide != narrow:
        are_queued = len(narrow_lengths) > speed.connections
        seconds = queued_seconds if are_queued else seconds_with_processor
        most_in_vain = 0.5 * sum(narrow_lengths) if are_queued else 4 * MIB
        assert seconds(wide_lengths, speed) < 0.9 * seconds(narrow_lengths, speed)
        assert sum(wide_lengths) <= sum(narrow_lengths) + most_in_vain
        assert wide.gap_bytes <= max(speed.bytes_per_first_byte, narrow.gap_bytes)
