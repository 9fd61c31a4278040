"""Requests counted on one axis are those that plans send; shortened ones stay within what was announced."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.options import Coalescing
from coldparquet.plan.model import CHUNK, PlannedRequest, Read, StoredData, StoredFile
from coldparquet.plan.requests import ReadRanges, plan_requests, shortened_to
from coldparquet.records import replace
from tests.support.plan_pieces import DATA, Ranges, read_of


@st.composite
def ranges(draw: st.DrawFn) -> Ranges:
    starts = draw(st.lists(st.integers(0, 5_000), max_size=8))
    return [(start, start + draw(st.integers(0, 400))) for start in starts]


def native_read(index: int, slices: Ranges) -> Read:
    numbers = range(len(slices))
    files = tuple(StoredFile(column=number, role="fixed", path=f"t/{index}/c{number}.d") for number in numbers)
    data = StoredData(decoder="native", path=f"t/{index}", columns=DATA.columns, places={}, files=files)
    return replace(
        read_of(slices, partition_index=index),
        data=data,
        chunks=np.empty(0, CHUNK),
        piece_files=np.array(numbers, np.int64),
    )


@given(st.lists(st.tuples(st.booleans(), ranges(), ranges()), max_size=4), st.integers(0, 300), st.integers(1, 700))
def test_requests_of_a_table_are_counted_at_once(
    partitions: list[tuple[bool, Ranges, Ranges]], gap_bytes: int, longest: int
) -> None:
    coalescing = Coalescing(gap_bytes=gap_bytes, max_request_bytes=longest, least_part_bytes=100)
    reads: list[Read] = []
    requests: list[PlannedRequest] = []
    for index, (is_native, first, second) in enumerate(partitions):
        of_partition = [read_of(some, partition_index=index, row_group=n) for n, some in enumerate((first, second))]
        if is_native:
            of_partition = [native_read(index, first)]
        reads += of_partition
        requests += plan_requests([of_partition], coalescing, part_bytes=150)
    found = ReadRanges.of(reads)
    assert found is not None
    lengths = found.request_lengths(coalescing, part_bytes=150)
    assert lengths.tolist() == [request.byte_range.length_bytes for request in requests]


@given(st.lists(ranges(), max_size=4))
def test_deferred_reads_are_not_coalesced_with_each_other(deferred: list[Ranges]) -> None:
    reads = [read_of(of_read) for of_read in deferred]
    found = ReadRanges.of_each(reads)
    coalescing = Coalescing(gap_bytes=10**6, max_request_bytes=10**9, least_part_bytes=10**9)
    assert found is not None
    count, _ = found.count_and_bytes(coalescing, part_bytes=10**9)
    assert count == sum(read.bytes_wanted > 0 for read in reads)


def test_offsets_without_room_on_the_axis() -> None:
    far = 2**62
    assert ReadRanges.of([read_of([(0, 10), (far, far + 10)])]) is None
    one_far_range = ReadRanges.of([read_of([(far, far + 10)]), read_of([(2**63 - 2, 2**63 - 1)], partition_index=1)])
    assert one_far_range is not None
    coalescing = Coalescing(gap_bytes=0, max_request_bytes=100, least_part_bytes=100)
    assert one_far_range.count_and_bytes(coalescing, part_bytes=100) == (2, 11)


@given(ranges(), st.data())
def test_shortened_requests_bring_what_is_left_and_nothing_else(whole: Ranges, data: st.DataObject) -> None:
    """Pieces of what was announced, as late reading leaves them."""
    coalescing = Coalescing(gap_bytes=50, max_request_bytes=300, least_part_bytes=100)
    announced = plan_requests([[read_of(whole)]], coalescing)
    left = [
        (start + cut, stop)
        for start, stop in whole
        if stop > start and data.draw(st.booleans())
        for cut in [data.draw(st.integers(0, stop - start - 1))]
    ]
    shortened = shortened_to(announced, read_of(left))
    assert len(shortened) <= len(announced)
    by_stop = {request.byte_range.stop: request.byte_range for request in announced}
    covered = {byte for request in shortened for byte in range(request.byte_range.start, request.byte_range.stop)}
    assert {byte for start, stop in left for byte in range(start, stop)} <= covered
    for request in shortened:
        holder = next(of for of in by_stop.values() if of.start <= request.byte_range.start < of.stop)
        assert request.byte_range.stop <= holder.stop
        assert any(start <= request.byte_range.start < stop for start, stop in left)
        assert any(start < request.byte_range.stop <= stop for start, stop in left)
