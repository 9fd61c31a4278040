"""What is known of a segment: from its pages, else from its chunk, and only as far as the writers deserve it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from coldparquet.errors import InternalError
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.types import canonical_type, resolve_type
from coldparquet.plan.bind import BoundField, BoundIsNull, BoundPredicate, bind
from coldparquet.plan.bounds import BoolArray, Bounds, ByteSide, NumericSide
from coldparquet.plan.literals import DomainValue
from coldparquet.plan.pages import PageStatistics
from coldparquet.plan.predicate import Predicate, col
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import SidecarStatistics, StatisticsSource
from coldparquet.records import replace
from tests.support.paged_columns import KINDS, LONG, Chunk, Partition, chunk_of, packed

i64 = packed("<q")
VARCHAR, BINARY, DOUBLE = KINDS["varchar"], KINDS["binary"], KINDS["double"]


def statistics_of(
    partition: Partition,
    predicate: BoundPredicate,
    places: Mapping[int, int | None] | None = None,
    by_row_group: StatisticsSource | None = None,
) -> PageStatistics:
    places = partition.places if places is None else places
    return PageStatistics(
        predicate,
        sidecar=partition.sidecar,
        places=places,
        pages=partition.pages,
        row_groups=np.arange(partition.sidecar.row_group_count),
        by_row_group=by_row_group or SidecarStatistics(partition.sidecar, places),
    )


def bounds_of(partition: Partition) -> Bounds:
    field = partition.bound_field(0)
    bounds = statistics_of(partition, BoundIsNull(field)).bounds(field)
    assert bounds is not None
    return bounds


def known_pairs(partition: Partition) -> list[tuple[Any, Any]]:
    """Lower and upper bound of each segment, None where not known; whole byte strings."""
    sides: list[list[Any]] = []
    bounds = bounds_of(partition)
    for side in (bounds.lower, bounds.upper):
        if isinstance(side, NumericSide):
            values: list[Any] = side.numbers.tolist()
        else:
            assert isinstance(side, ByteSide)
            values = [side.bytes_at(segment) for segment in range(len(side.known))]
            prefixes = [int.from_bytes((value or b"")[:8].ljust(8, b"\0"), "big") for value in values]
            assert [prefix for prefix, known in zip(side.prefixes.tolist(), side.known, strict=True) if known] == [
                prefix for prefix, known in zip(prefixes, side.known, strict=True) if known
            ]
        sides.append([value if known else None for value, known in zip(values, side.known, strict=True)])
    return list(zip(*sides, strict=True))


def survivors(partition: Partition, predicate: Predicate) -> list[bool]:
    bound = partition.bind(predicate)
    source = statistics_of(partition, bound)
    return [bool(one) for one in prune(bound, source, len(source.segments.starts))[0].survives]


def test_segments_are_cut_at_every_border_of_every_column() -> None:
    first = [chunk_of(LONG, range(10), [0, 4]), chunk_of(LONG, range(10), [0, 4, 7]), chunk_of(LONG, range(10), [0, 1])]
    second = [chunk_of(LONG, range(5), None), chunk_of(LONG, range(5), [0, 2]), chunk_of(LONG, range(5), None)]
    partition = Partition(kinds=[LONG] * 3, chunks=[first, second])
    segments = statistics_of(partition, partition.bind((col("c0") > 1) & (col("c1") > 1))).segments
    assert segments.row_groups.tolist() == [0, 0, 0, 1, 1]
    assert segments.starts.tolist() == [0, 4, 7, 0, 2]
    assert segments.stops.tolist() == [4, 7, 10, 2, 5]


def test_page_bounds_come_first_and_chunk_bounds_fill_in() -> None:
    chunk = Chunk(
        values=range(9), page_starts=[0, 3, 6], bounds=(i64(0), i64(8)), null_count=0,
        page_bounds=[(i64(0), i64(2)), (None, i64(5)), (None, None)],
    )  # fmt: skip
    assert known_pairs(Partition(kinds=[LONG], chunks=[[chunk]])) == [(0, 2), (0, 5), (0, 8)]
    alone = replace(chunk, bounds=(None, None))
    assert known_pairs(Partition(kinds=[LONG], chunks=[[alone]])) == [(0, 2), (None, 5), (None, None)]


def test_byte_strings_are_gathered_whole() -> None:
    long_text = b"prefix-of-8-and-more"
    chunk = Chunk(
        values=["x"] * 4, page_starts=[0, 1, 2, 3], bounds=(b"chunk-lower-bound", b"z"), null_count=0,
        page_bounds=[(b"a", b"b"), (None, long_text), (b"", b"c"), (b"12345678", b"x")],
    )  # fmt: skip
    partition = Partition(kinds=[VARCHAR], chunks=[[chunk]])
    # An empty bound is none, as in a sidecar, so that the chunk's stands in.
    lower, upper = b"chunk-lower-bound", long_text
    assert known_pairs(partition) == [(b"a", b"b"), (lower, upper), (lower, b"c"), (b"12345678", b"x")]
    assert survivors(partition, col("c0") == "prefix-of-8-and-mora") == [False, True, False, True]
    assert survivors(partition, col("c0") == "prefix-of-8-and-morf") == [False, False, False, True]


def test_no_bounds_at_all() -> None:
    chunk = Chunk(values=["x"] * 4, page_starts=[0, 2], page_bounds=[(None, None)] * 2)
    assert known_pairs(Partition(kinds=[VARCHAR], chunks=[[chunk]])) == [(None, None)] * 2


@pytest.mark.parametrize("bound", [b"\1", bytes(4), bytes(9)])
def test_numbers_of_another_length_are_no_bounds(bound: bytes) -> None:
    chunk = Chunk(values=[1, 2], page_starts=[0, 1], page_bounds=[(bound, bound), (i64(2), i64(2))])
    assert known_pairs(Partition(kinds=[LONG], chunks=[[chunk]])) == [(None, None), (2, 2)]
    decimal = Chunk(values=[1, 2], page_starts=[0, 1], page_bounds=[(bound, bound), (bytes(5), bytes(5))])
    assert known_pairs(Partition(kinds=[KINDS["decimal"]], chunks=[[decimal]])) == [(None, None), (0, 0)]


def test_nan_and_reversed_bounds_are_distrusted_page_by_page() -> None:
    f64 = packed("<d")
    nan = f64(float("nan"))
    pairs = [(f64(1.0), f64(2.0)), (nan, f64(2.0)), (f64(1.0), nan), (f64(3.0), f64(2.0)), (f64(-0.0), f64(0.0))]
    chunk = Chunk(values=[1.0] * 5, page_starts=range(5), page_bounds=pairs, null_count=0)
    partition = Partition(kinds=[DOUBLE], chunks=[[chunk]])
    assert known_pairs(partition) == [(1.0, 2.0), (None, None), (None, None), (None, None), (0.0, 0.0)]
    assert survivors(partition, col("c0") == 0) == [False, True, True, True, True]
    assert survivors(partition, col("c0") != 1) == [True] * 5
    assert bounds_of(partition).may_hold_nan


def test_addresses_in_a_dictionary_were_ordered_as_signed() -> None:
    kind = KINDS["ipv4 in a dictionary"]
    chunks = [chunk_of(kind, [5, 6, 2**31], [0, 1]), chunk_of(kind, [1, 2], [0, 1])]
    partition = Partition(kinds=[kind], chunks=[[chunk] for chunk in chunks])
    assert known_pairs(partition) == [(None, None)] * 4
    plain = Partition(kinds=[replace(kind, encodings=1)], chunks=[[chunk] for chunk in chunks])
    assert known_pairs(plain) == [(5, 5), (None, None), (1, 1), (2, 2)]


def test_binary_maximum_of_ones_is_no_bound() -> None:
    pairs = [(b"a", b"\xff" * 9), (b"a", b"\xff" * 8)]
    chunk = Chunk(values=[b"a"] * 2, page_starts=[0, 1], page_bounds=pairs)
    assert known_pairs(Partition(kinds=[BINARY], chunks=[[chunk]])) == [(b"a", None), (b"a", b"\xff" * 8)]


def test_null_counts_of_pages() -> None:
    chunk = chunk_of(LONG, [1, None, None, None, 2, 3], [0, 2, 4])
    bounds = bounds_of(Partition(kinds=[LONG], chunks=[[chunk]]))
    assert bounds.may_hold_values.tolist() == [True, False, True]
    assert bounds.may_hold_nulls.tolist() == [True, True, False]
    uncounted = replace(chunk, page_null_counts=(), null_count=0)
    bounds = bounds_of(Partition(kinds=[LONG], chunks=[[uncounted]]))
    assert bounds.may_hold_nulls.tolist() == [False, False, False]


def test_required_rows_counted_as_null_are_outside_of_the_bounds() -> None:
    kind = KINDS["int with rows of before the column"]
    chunk = chunk_of(kind, [1, None, 2, 3], [0, 2])
    assert known_pairs(Partition(kinds=[kind], chunks=[[chunk]])) == [(None, None), (2, 3)]
    uncounted = replace(chunk, page_null_counts=())
    assert known_pairs(Partition(kinds=[kind], chunks=[[uncounted]])) == [(None, None)] * 2
    byte = KINDS["byte"]
    chunk = chunk_of(byte, [1, None, 2, 3], [0, 2])
    assert known_pairs(Partition(kinds=[byte], chunks=[[chunk]])) == [(0, 1), (2, 3)]


def test_pages_of_arrays_say_how_many_are_null_and_no_more() -> None:
    raw = replace(BINARY, type_code=2587)
    # QuestDB marks array pages as pages of nulls, values or not: only the counts tell.
    chunk = Chunk(values=[b"x"] * 6, page_starts=[0, 2, 4], page_bounds=[(b"a", b"b")] * 3, page_null_counts=[0, 1, 2])
    bounds = bounds_of(Partition(kinds=[raw], chunks=[[chunk]]))
    assert (bounds.lower, bounds.upper) == (None, None)
    assert bounds.may_hold_values.tolist() == [True, True, False]
    assert bounds.may_hold_nulls.tolist() == [False, True, True]


def test_columns_that_the_partition_lacks() -> None:
    partition = Partition(kinds=[LONG], chunks=[[chunk_of(LONG, range(6), [0, 3])]])
    number = BoundField("n", 7, resolve_type(6, PhysicalType.INT64, 0, 0))
    here = BoundField("c0", 3, number.type)
    bound = bind((col("n").is_null()) & (col("c0") > 3), {"n": number, "c0": here})
    source = statistics_of(partition, bound, {7: None, 3: 0})
    verdict, _ = prune(bound, source, 2)
    assert verdict.survives.tolist() == [False, True]
    bound = bind((col("n") == 1) | (col("c0") > 3), {"n": number, "c0": here})
    assert prune(bound, statistics_of(partition, bound, {7: None, 3: 0}), 2)[0].survives.tolist() == [False, True]
    # A field of which nothing is known says nothing, and the others still count.
    bound = bind((col("n") == 1) & (col("c0") > 3), {"n": number, "c0": here})
    assert prune(bound, statistics_of(partition, bound, {3: 0}), 2)[0].survives.tolist() == [False, True]


def test_type_changes_convert_the_bounds_of_pages() -> None:
    kind = KINDS["int with rows of before the column"]
    partition = Partition(kinds=[replace(kind, is_required=False)], chunks=[[chunk_of(kind, [1, 2, 3, 4], [0, 2])]])
    for type_code, survives in {6: [False, True], 10: [False, True], 26: [True, True]}.items():
        field = BoundField("c0", 0, canonical_type(type_code))
        bound = bind(col("c0") == ("3" if type_code == 26 else 3), {"c0": field})
        source = statistics_of(partition, bound)
        assert prune(bound, source, 2)[0].survives.tolist() == survives, type_code


class Blooms(SidecarStatistics):
    """Says of row group 1 that it holds none of the values."""

    def may_hold_any_of(self, field: BoundField, values: tuple[DomainValue, ...]) -> BoolArray | None:
        return np.array([True, False]) if field.index == 0 and values == (3,) else None


def test_bloom_filters_of_row_groups_hold_for_their_segments() -> None:
    chunks = [[chunk_of(LONG, [0, 9, 1, 2], [0, 2])], [chunk_of(LONG, [0, 9, 5, 7], [0, 2])]]
    partition = Partition(kinds=[LONG], chunks=chunks)
    for predicate, survives in {
        col("c0") == 3: [True, False, False, False],
        (col("c0") == 3) | (col("c0") == 6): [True, False, True, True],
        (col("c0") == 6): [True, False, True, True],
    }.items():
        bound = partition.bind(predicate)
        source = statistics_of(partition, bound, by_row_group=Blooms(partition.sidecar, partition.places))
        assert prune(bound, source, 4)[0].survives.tolist() == survives


def test_pages_of_another_file_are_refused() -> None:
    one = Partition(kinds=[LONG], chunks=[[chunk_of(LONG, range(6), [0, 3])]])
    two = Partition(kinds=[LONG, LONG], chunks=[[chunk_of(LONG, range(6), [0, 3])] * 2])
    bound = one.bind(col("c0") > 3)
    with pytest.raises(InternalError, match="another file"):
        PageStatistics(
            bound, sidecar=one.sidecar, places={0: 0}, pages=two.pages, row_groups=np.array([0]),
            by_row_group=SidecarStatistics(one.sidecar),
        )  # fmt: skip
