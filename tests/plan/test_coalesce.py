from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.errors import InvalidInputError
from coldparquet.plan.coalesce import CoalescedRequests, coalesce

Spans = list[tuple[int, int]]


def run(ranges: Spans, gap_bytes: int, max_request_bytes: int) -> CoalescedRequests:
    starts = np.array([start for start, _ in ranges], dtype=np.int64)
    stops = np.array([stop for _, stop in ranges], dtype=np.int64)
    return coalesce(starts, stops, gap_bytes=gap_bytes, max_request_bytes=max_request_bytes)


def requests_of(result: CoalescedRequests) -> Spans:
    return list(zip(result.starts.tolist(), result.stops.tolist(), strict=True))


def spans_of(result: CoalescedRequests) -> Spans:
    return list(zip(result.first_request.tolist(), result.stop_request.tolist(), strict=True))


@pytest.mark.parametrize(
    ("ranges", "gap_bytes", "max_request_bytes", "requests", "spans"),
    [
        pytest.param([], 10, 100, [], [], id="nothing"),
        pytest.param([(5, 5)], 10, 100, [], [(0, 0)], id="only an empty range"),
        pytest.param([(4, 14)], 0, 100, [(4, 14)], [(0, 1)], id="one"),
        pytest.param([(0, 10), (10, 20)], 0, 100, [(0, 20)], [(0, 1), (0, 1)], id="touching"),
        pytest.param([(0, 10), (11, 20)], 0, 100, [(0, 10), (11, 20)], [(0, 1), (1, 2)], id="gap with gap_bytes=0"),
        pytest.param([(0, 10), (15, 20)], 5, 100, [(0, 20)], [(0, 1), (0, 1)], id="gap just small enough"),
        pytest.param([(0, 10), (16, 20)], 5, 100, [(0, 10), (16, 20)], [(0, 1), (1, 2)], id="gap one byte too wide"),
        pytest.param([(30, 40), (0, 10)], 5, 100, [(0, 10), (30, 40)], [(1, 2), (0, 1)], id="unsorted"),
        pytest.param([(0, 10), (0, 10)], 0, 100, [(0, 10)], [(0, 1), (0, 1)], id="duplicates"),
        pytest.param([(0, 10), (2, 4), (8, 12)], 0, 100, [(0, 12)], [(0, 1)] * 3, id="overlapping and nested"),
        pytest.param([(0, 50), (10, 20), (40, 60)], 0, 100, [(0, 60)], [(0, 1)] * 3, id="nested, then reaching on"),
        pytest.param([(0, 10), (5, 5), (10, 20)], 0, 100, [(0, 20)], [(0, 1), (0, 0), (0, 1)], id="empty in between"),
        pytest.param([(0, 60), (60, 100)], 0, 100, [(0, 100)], [(0, 1)] * 2, id="exactly the cap"),
        pytest.param([(0, 60), (60, 101)], 0, 100, [(0, 60), (60, 101)], [(0, 1), (1, 2)], id="one over the cap"),
        pytest.param(
            [(0, 60), (70, 101)], 50, 100, [(0, 60), (70, 101)], [(0, 1), (1, 2)], id="gap counts for the cap"
        ),
        pytest.param([(0, 101)], 0, 100, [(0, 51), (51, 101)], [(0, 2)], id="long range split evenly"),
        pytest.param([(7, 308)], 0, 100, [(7, 83), (83, 158), (158, 233), (233, 308)], [(0, 4)], id="fewest parts"),
        pytest.param([(0, 150), (150, 160)], 0, 100, [(0, 75), (75, 160)], [(0, 2), (1, 2)], id="part takes neighbour"),
        pytest.param([(0, 80), (40, 120)], 0, 100, [(0, 60), (60, 120)], [(0, 2), (0, 2)], id="overlap over the cap"),
        pytest.param([(0, 3)], 0, 1, [(0, 1), (1, 2), (2, 3)], [(0, 3)], id="cap of one byte"),
        pytest.param([(2**63 - 9, 2**63 - 1)], 5, 2**62, [(2**63 - 9, 2**63 - 1)], [(0, 1)], id="largest offsets"),
    ],
)
def test_cases(ranges: Spans, gap_bytes: int, max_request_bytes: int, requests: Spans, spans: Spans) -> None:
    result = run(ranges, gap_bytes, max_request_bytes)
    assert requests_of(result) == requests
    assert spans_of(result) == spans


@st.composite
def many_ranges(draw: st.DrawFn) -> Spans:
    pairs = draw(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), max_size=25))
    return [(start, start + length) for start, length in pairs]


@given(many_ranges(), st.integers(0, 50), st.integers(1, 120))
def test_every_byte_is_covered_once_and_by_the_requests_named(ranges: Spans, gap: int, cap: int) -> None:
    result = run(ranges, gap, cap)
    requests = requests_of(result)
    assert all(start < stop for start, stop in requests)
    assert all(before <= after for (_, before), (after, _) in pairwise(requests))
    for (start, stop), (first, end) in zip(ranges, spans_of(result), strict=True):
        served = [offset for low, high in requests[first:end] for offset in range(max(low, start), min(high, stop))]
        assert served == list(range(start, stop))
        assert all(low < stop and start < high for low, high in requests[first:end])


@given(many_ranges(), st.integers(0, 50), st.integers(1, 120))
def test_gap_and_cap_are_respected(ranges: Spans, gap: int, cap: int) -> None:
    wanted = {offset for start, stop in ranges for offset in range(start, stop)}
    for start, stop in requests_of(run(ranges, gap, cap)):
        assert stop - start <= cap
        inside = sorted(wanted & set(range(start, stop)))
        assert (inside[0], inside[-1]) == (start, stop - 1)
        assert max((after - before - 1 for before, after in pairwise(inside)), default=0) <= gap


def fewest_requests(ranges: Spans, gap: int, cap: int) -> int:
    """Go through the bytes one by one: the fewest requests when a request may end anywhere."""
    wanted = sorted({offset for start, stop in ranges for offset in range(start, stop)})
    count, begin, last = 0, -1, -1
    for offset in wanted:
        if count == 0 or offset - last - 1 > gap or offset - begin + 1 > cap:
            count, begin = count + 1, offset
        last = offset
    return count


@given(many_ranges(), st.integers(0, 50))
def test_fewest_requests_without_a_cap(ranges: Spans, gap: int) -> None:
    assert len(requests_of(run(ranges, gap, 10**6))) == fewest_requests(ranges, gap, 10**6)


@given(many_ranges(), st.integers(0, 50), st.integers(1, 120))
def test_no_two_neighbours_could_be_one_request(ranges: Spans, gap: int, cap: int) -> None:
    requests = requests_of(run(ranges, gap, cap))
    for (start, before), (after, stop) in pairwise(requests):
        assert after - before > gap or stop - start > cap


@given(many_ranges(), st.integers(0, 50), st.integers(61, 120))
def test_ranges_within_the_cap_that_share_no_byte_are_never_cut(ranges: Spans, gap: int, cap: int) -> None:
    disjoint: Spans = []
    for start, stop in sorted(ranges):
        if stop > start and (not disjoint or start >= disjoint[-1][1]):
            disjoint.append((start, stop))
    assert all(end - first == 1 for first, end in spans_of(run(disjoint, gap, cap)))


@pytest.mark.parametrize(
    ("ranges", "gap_bytes", "max_request_bytes", "message"),
    [
        ([(5, 4)], 0, 10, "range 0 is"),
        ([(0, 1), (-1, 4)], 0, 10, "range 1 is"),
        ([(0, 1)], -1, 10, "gap_bytes"),
        ([(0, 1)], 0, 0, "max_request_bytes"),
    ],
)
def test_bad_arguments(ranges: Spans, gap_bytes: int, max_request_bytes: int, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run(ranges, gap_bytes, max_request_bytes)


def test_arrays_of_different_length() -> None:
    with pytest.raises(InvalidInputError, match="equally long"):
        coalesce(np.zeros(2, np.int64), np.zeros(3, np.int64), gap_bytes=0, max_request_bytes=1)


@pytest.mark.parametrize("ranges", [[(0, 2**63 - 1)], [(0, 2**62), (2**62, 2**63 - 1)]])
def test_damaged_metadata_does_not_make_millions_of_requests(ranges: Spans) -> None:
    with pytest.raises(InvalidInputError) as caught:
        run(ranges, 0, 1 << 20)
    assert caught.value.kind == "TooManyRequests"


def test_a_hundred_thousand_ranges_against_the_slow_way() -> None:
    generator = np.random.default_rng(7)
    starts = generator.integers(0, 10**9, 100_000)
    stops = starts + generator.integers(0, 20_000, 100_000)
    result = coalesce(starts, stops, gap_bytes=1000, max_request_bytes=10**9)
    order = np.argsort(starts)
    expected: Spans = []
    for start, stop in zip(starts[order].tolist(), stops[order].tolist(), strict=True):
        if stop == start:
            continue
        if expected and start - expected[-1][1] <= 1000:
            expected[-1] = (expected[-1][0], max(expected[-1][1], stop))
        else:
            expected.append((start, stop))
    assert requests_of(result) == expected


@given(
    ranges=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 900)), max_size=12),
    gap_bytes=st.integers(0, 300),
    part_bytes=st.integers(1, 700),
)
def test_parts_cover_what_the_requests_covered_and_each_brings_wanted_bytes(
    ranges: list[tuple[int, int]], gap_bytes: int, part_bytes: int
) -> None:
    starts = np.array([start for start, _ in ranges], dtype=np.int64)
    stops = np.array([start + length for start, length in ranges], dtype=np.int64)
    whole = coalesce(starts, stops, gap_bytes=gap_bytes, max_request_bytes=1_000)
    parts = coalesce(starts, stops, gap_bytes=gap_bytes, max_request_bytes=1_000, part_bytes=part_bytes)
    assert (parts.stops - parts.starts).sum() == (whole.stops - whole.starts).sum()
    assert set(whole.starts.tolist()) <= set(parts.starts.tolist())
    wanted = {byte for start, stop in zip(starts.tolist(), stops.tolist(), strict=True) for byte in range(start, stop)}
    for start, stop in zip(parts.starts.tolist(), parts.stops.tolist(), strict=True):
        assert wanted & set(range(start, stop))
    for index, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        serving = range(int(parts.first_request[index]), int(parts.stop_request[index]))
        served = {byte for part in serving for byte in range(int(parts.starts[part]), int(parts.stops[part]))}
        assert set(range(start, stop)) <= served


@pytest.mark.parametrize(
    ("lengths", "borders", "expected"),
    [
        pytest.param([20, 60, 20, 60], [0, 80], [0, 80], id="not with the next row group's first chunk"),
        pytest.param([20, 30, 40, 40], [0, 50], [0, 90], id="not where the request would be short"),
        pytest.param([40, 40, 40, 40], [7, 3], [0, 80], id="nothing begins there"),
        pytest.param([50, 50, 50, 50], [50, 150], [0, 100], id="a later border is better than a full request"),
        pytest.param([20, 20, 20, 20], [0, 20, 60], [0], id="all in one"),
    ],
)
def test_full_requests_end_at_borders(lengths: list[int], borders: list[int], expected: list[int]) -> None:
    stops = np.cumsum(lengths)
    found = coalesce(
        stops - np.array(lengths), stops, gap_bytes=0, max_request_bytes=100, borders=np.array(borders, np.int64)
    )
    assert found.starts.tolist() == expected
    assert found.stops.tolist() == [*expected[1:], sum(lengths)]


@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=12),
    borders=st.lists(st.integers(0, 3_000), max_size=8),
    longest=st.integers(1, 400),
)
def test_borders_change_neither_what_is_covered_nor_much_else(
    lengths: list[int], borders: list[int], longest: int
) -> None:
    stops = np.cumsum(lengths)
    starts = stops - np.array(lengths)
    plain = coalesce(starts, stops, gap_bytes=0, max_request_bytes=longest)
    found = coalesce(starts, stops, gap_bytes=0, max_request_bytes=longest, borders=np.array(borders, np.int64))
    assert found.starts[0] == 0
    assert found.stops[-1] == stops[-1]
    assert found.starts[1:].tolist() == found.stops[:-1].tolist()
    assert (found.stops - found.starts).max() <= longest
    assert len(plain.starts) <= len(found.starts) <= 2 * len(plain.starts)
