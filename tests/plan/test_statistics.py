"""What metadata proves of the values of a column, by row group and by the names of directories."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from coldparquet.errors import FormatError
from coldparquet.format.sidecar import Sidecar
from coldparquet.format.sidecar_layout import ENCODING_PLAIN, ENCODING_RLE_DICTIONARY, PhysicalType
from coldparquet.format.sidecar_writer import BoundSpec
from coldparquet.format.types import ForeignAnnotation, canonical_type, resolve_type
from coldparquet.plan.bind import BoundField
from coldparquet.plan.bounds import Bounds, ByteSide, NumericSide
from coldparquet.plan.prune import Verdict, prune
from coldparquet.plan.statistics import NameStatistics, SidecarStatistics, interval_bounds
from coldparquet.records import replace
from tests.support.one_column import ROWS, bound_text, chunk, i32, i64, one_column

INT32, INT64, FLOAT, DOUBLE = PhysicalType.INT32, PhysicalType.INT64, PhysicalType.FLOAT, PhysicalType.DOUBLE
BYTES, FIXED = PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY
DECIMAL_5_2, DECIMAL_18_3, DECIMAL_38_0 = 30 | 5 << 8 | 2 << 18, 791_071, 32 | 38 << 8


def field_of(sidecar: Sidecar) -> BoundField:
    column = sidecar.column(0)
    annotation = sidecar.foreign_annotations.get(0)
    type_ = resolve_type(
        column.type_code, column.physical_type, column.fixed_byte_length, column.max_rep_level, annotation
    )
    return BoundField("x", 0, type_)


def bounds_of(sidecar: Sidecar) -> Bounds:
    bounds = SidecarStatistics(sidecar).bounds(field_of(sidecar))
    assert bounds is not None
    return bounds


def known_numbers(sidecar: Sidecar) -> list[tuple[Any, Any]]:
    """Lower and upper bound per row group, None where not known."""
    bounds = bounds_of(sidecar)
    if bounds.lower is None or bounds.upper is None:
        return [(None, None)] * sidecar.row_group_count
    sides = []
    for side in (bounds.lower, bounds.upper):
        assert isinstance(side, NumericSide)
        sides.append(
            [number if known else None for known, number in zip(side.known, side.numbers.tolist(), strict=True)]
        )
    return list(zip(*sides, strict=True))


def known_lengths(sidecar: Sidecar) -> list[tuple[int | None, int | None]]:
    bounds = bounds_of(sidecar)
    sides = []
    for side in (bounds.lower, bounds.upper):
        assert isinstance(side, ByteSide)
        sides.append(
            [length if known else None for known, length in zip(side.known, side.lengths.tolist(), strict=True)]
        )
    return list(zip(*sides, strict=True))


def verdict_of(sidecar: Sidecar, where: str) -> Verdict:
    bound = bound_text(where, field_of(sidecar))
    return prune(bound, SidecarStatistics(sidecar), sidecar.row_group_count)[0]


def survives(sidecar: Sidecar, where: str) -> list[bool]:
    return [bool(survivor) for survivor in verdict_of(sidecar, where).survives]


@pytest.mark.parametrize(
    ("type_code", "physical_type", "layout", "low", "high"),
    [
        (2, INT32, "<i", -128, 127),
        (3, INT32, "<i", -3, 4),
        (4, INT32, "<i", 0, 0xFFFF),
        (5, INT32, "<i", -(2**31), 2**31 - 1),
        (6, INT64, "<q", -(2**63), 2**63 - 1),
        (7, INT64, "<q", -1, 1_700_000_000_000),
        (7, INT32, "<i", -1, 19_783),
        (131_080, INT64, "<q", 0, 1_709_251_200_000_000),
        (262_152, INT64, "<q", -5, 1_709_251_200_000_000_789),
        (9, FLOAT, "<f", -0.5, 3.25),
        (10, DOUBLE, "<d", float("-inf"), float("inf")),
        (75_793, INT64, "<q", 0, 2**40 - 1),
        (25, INT32, "<I", 1, 2**32 - 1),
        (791_071, INT64, "<q", -1_500, 10**17),
        (DECIMAL_5_2, INT32, "<i", -99_999, 99_999),
    ],
)
def test_numbers_are_read_at_the_width_of_their_type(
    type_code: int, physical_type: PhysicalType, layout: str, low: float, high: float
) -> None:
    chunks = [chunk(struct.pack(layout, low), struct.pack(layout, high)), chunk()]
    assert known_numbers(one_column(chunks, type_code, physical_type)) == [(low, high), (None, None)]


def test_stored_size_of_a_number_does_not_matter() -> None:
    # INT32 bounds that claim 1 and 8 bytes: still four bytes are read.
    sidecar = one_column([chunk(b"\x05", i64(7))], 5, INT32)
    assert known_numbers(sidecar) == [(5, 7)]


def test_numbers_out_of_line_are_not_bounds() -> None:
    spec = replace(chunk(i64(3), nulls=0), max=BoundSpec(i64(7), place="out_of_line"))
    assert known_numbers(one_column([spec], 6, INT64)) == [(3, None)]


def test_one_sided_bounds_are_used_alone() -> None:
    sidecar = one_column([chunk(i32(5)), chunk(None, i32(5))], 5, INT32)
    assert known_numbers(sidecar) == [(5, None), (None, 5)]
    assert survives(sidecar, "x < 5") == [False, True]
    assert survives(sidecar, "x > 5") == [True, False]
    assert survives(sidecar, "x in (4, 6)") == [True, True]
    assert survives(sidecar, "x in (1, 4)") == [False, True]


def test_nan_in_either_bound_disables_both() -> None:
    nan, one = struct.pack("<d", float("nan")), struct.pack("<d", 1.0)
    chunks = [chunk(nan, one), chunk(one, nan), chunk(one, one)]
    assert known_numbers(one_column(chunks, 10, DOUBLE)) == [(None, None), (None, None), (1.0, 1.0)]


def test_signed_zeros_are_one_number() -> None:
    zero, minus_zero = struct.pack("<d", 0.0), struct.pack("<d", -0.0)
    sidecar = one_column([chunk(zero, zero), chunk(minus_zero, minus_zero), chunk(zero, minus_zero)], 10, DOUBLE)
    assert survives(sidecar, "x = 0.0") == survives(sidecar, "x = -0.0") == [True] * 3
    assert (
        survives(sidecar, "x in (-0.0, 5)")
        == survives(sidecar, "x >= 0")
        == survives(sidecar, "x <= -0.0")
        == [True] * 3
    )
    assert survives(sidecar, "x < 0") == survives(sidecar, "x > 0") == [False] * 3


def test_bounds_in_the_wrong_order_are_ignored() -> None:
    assert known_numbers(one_column([chunk(i64(9), i64(1))], 131_080, INT64)) == [(None, None)]
    texts = [chunk(b"b", b"a"), chunk(b"same-prefix-b", b"same-prefix-a"), chunk(b"ab", b"a"), chunk(b"a", b"ab")]
    assert known_lengths(one_column(texts, 26, BYTES)) == [(None, None)] * 3 + [(1, 2)]


def test_ipv4_is_unsigned_and_not_trusted_with_a_dictionary() -> None:
    low, high = struct.pack("<I", 0x7F000001), struct.pack("<I", 0xC0A80001)
    signed_order = chunk(high, low)
    with_dictionary = chunk(low, high, encodings=ENCODING_PLAIN | ENCODING_RLE_DICTIONARY)
    sidecar = one_column([chunk(low, high), signed_order, with_dictionary], 25, INT32)
    assert known_numbers(sidecar) == [(0x7F000001, 0xC0A80001), (None, None), (None, None)]
    assert survives(sidecar, "x = '200.0.0.1'") == [False, True, True]
    assert survives(sidecar, "x = '192.168.0.1'") == [True, True, True]


@pytest.mark.parametrize("type_code", [2, 3, 4])
def test_byte_short_and_char_hold_zero_where_nulls_are_counted(type_code: int) -> None:
    low, high = i32(5), i32(9)
    chunks = [
        chunk(low, high, nulls=0),
        chunk(low, high, nulls=3),
        chunk(low, high, nulls=None),
        chunk(nulls=ROWS),
        chunk(nulls=3),
    ]
    sidecar = one_column(chunks, type_code, INT32, max_def_level=0)
    assert known_numbers(sidecar) == [(5, 9), (0, 9), (0, 9), (0, 0), (None, None)]
    assert survives(sidecar, "x = 0") == [False, True, True, True, True]
    assert survives(sidecar, "x = 7") == [True, True, True, False, True]
    assert survives(sidecar, "x is null") == [False] * 5
    assert verdict_of(sidecar, "x < 10").all_rows_match.tolist() == [True, True, True, True, False]


def test_foreign_short_with_nulls_has_real_nulls() -> None:
    sidecar = one_column([chunk(i32(5), i32(9), nulls=3)], 3, INT32, annotation=ForeignAnnotation.NULLABLE)
    assert known_numbers(sidecar) == [(5, 9)]
    assert survives(sidecar, "x = 0") == [False]
    assert survives(sidecar, "x is null") == [True]


@pytest.mark.parametrize(
    ("type_code", "physical_type", "width", "annotation"),
    [
        (1, PhysicalType.BOOLEAN, 0, None),
        (262_152, PhysicalType.INT96, 0, None),
        (DECIMAL_38_0, FIXED, 16, None),
        (33 | 76 << 8, FIXED, 32, None),
        (5, INT32, 0, ForeignAnnotation.UINT_32),
        (6, INT64, 0, ForeignAnnotation.UINT_64),
        (2587, BYTES, 0, None),
    ],
)
def test_bounds_of_some_types_are_never_used(
    type_code: int, physical_type: PhysicalType, width: int, annotation: ForeignAnnotation | None
) -> None:
    value = b"\x01" * (width or {PhysicalType.BOOLEAN: 1, INT32: 4, INT64: 8}.get(physical_type, 12))
    sidecar = one_column([chunk(value, value)], type_code, physical_type, width=width, annotation=annotation)
    bounds = bounds_of(sidecar)
    assert (bounds.lower, bounds.upper) == (None, None)
    if physical_type is not BYTES and physical_type is not PhysicalType.BOOLEAN:
        assert survives(sidecar, "x = 3 or x > 5 or x in (7, 8)") == [True]
        assert survives(sidecar, "x is null") == [False]


def test_narrow_decimals_are_signed_big_endian() -> None:
    def fixed(value: int) -> bytes:
        return value.to_bytes(3, "big", signed=True)

    chunks = [chunk(fixed(-100), fixed(70_000)), chunk(fixed(-5), fixed(-1)), chunk(b"\x01\x02", fixed(2))]
    sidecar = one_column(chunks, DECIMAL_5_2, FIXED, width=3)
    # Inline bounds of FIXED_LEN_BYTE_ARRAY are read at its length, whatever length they claim.
    assert known_numbers(sidecar)[:2] == [(-100, 70_000), (-5, -1)]
    assert survives(sidecar, "x >= 0")[:2] == [True, False]
    assert survives(sidecar, "x = -0.015")[:2] == [False, False]
    eight = [chunk((-(10**17)).to_bytes(8, "big", signed=True), (10**17).to_bytes(8, "big"))]
    assert known_numbers(one_column(eight, DECIMAL_18_3, FIXED, width=8)) == [(-(10**17), 10**17)]


def test_decimals_in_byte_arrays_have_any_length() -> None:
    chunks = [chunk(b"\xff", b"\x01\x00"), chunk(b"\x80\x00\x00", b"\x7f"), chunk(bytes(9), bytes(9) + b"\x01")]
    assert known_numbers(one_column(chunks, DECIMAL_18_3, BYTES)) == [(-1, 256), (-(2**23), 127), (None, None)]


def test_decimals_of_an_unknown_writer_are_believed_only_as_numbers() -> None:
    as_bytes = [chunk(b"\0\0\x01", b"\0\0\x05")]
    assert known_numbers(one_column(as_bytes, DECIMAL_5_2, FIXED, width=3)) == [(1, 5)]
    assert not survives(one_column(as_bytes, DECIMAL_5_2, FIXED, width=3), "x > 1")[0]
    assert survives(one_column(as_bytes, DECIMAL_5_2, FIXED, width=3, is_writer_noted=False), "x > 1")[0]
    as_numbers = [chunk(b"\1\0\0\0", b"\5\0\0\0")]
    assert known_numbers(one_column(as_numbers, DECIMAL_5_2, INT32, is_writer_noted=False)) == [(1, 5)]


def test_fixed_length_bounds_need_the_exact_length() -> None:
    chunks = [
        chunk(bytes(16), b"\xff" * 16),
        chunk(bytes(8), b"\xff" * 8),
        chunk(bytes(15), b"\xff" * 17),
        chunk(bytes(16)),
    ]
    sidecar = one_column(chunks, 19, FIXED, width=16)
    assert known_lengths(sidecar) == [(16, 16), (None, None), (None, None), (16, None)]


def test_uuids_that_share_their_first_bytes_are_told_apart() -> None:
    low, high = bytes(15) + b"\x05", bytes(15) + b"\x09"
    sidecar = one_column([chunk(low, high), chunk(low, low)], 19, FIXED, width=16)
    assert survives(sidecar, f"x = '{low.hex()}'") == [True, True]
    assert survives(sidecar, f"x = '{bytes(16).hex()}'") == [False, False]
    assert survives(sidecar, f"x in ('{high.hex()}', '{'f' * 32}')") == [True, False]
    assert survives(sidecar, f"x > '{high.hex()}'") == [False, False]
    assert verdict_of(sidecar, f"x = '{low.hex()}'").all_rows_match.tolist() == [False, True]


def test_long256_prunes_by_the_order_of_stored_bytes() -> None:
    low, high = b"\x05" + bytes(31), b"\x07" + bytes(31)
    sidecar = one_column([chunk(low, high)], 13, FIXED, width=32)
    assert survives(sidecar, "x = '0x5'") == survives(sidecar, "x = '0x6'") == [True]
    assert survives(sidecar, "x = '0x4'") == survives(sidecar, "x = '0x8'") == [False]
    assert survives(sidecar, "x in ('0x1', '0x9')") == [False]


def test_nine_ff_bytes_do_not_bound_binary_values() -> None:
    nines = b"\xff" * 9
    sidecar = one_column([chunk(b"\x01", nines), chunk(b"\x01", b"\xff" * 8), chunk(nines, nines)], 18, BYTES)
    assert known_lengths(sidecar) == [(1, None), (1, 8), (None, None)]
    # In text, where it is no special case, the bound would be used.
    assert known_lengths(one_column([chunk(b"\x01", nines)], 26, BYTES)) == [(1, 9)]


def test_text_bounds_may_be_truncated() -> None:
    sidecar = one_column([chunk(b"appl", b"bananas-and-more", exact=False)], 12, BYTES)
    assert survives(sidecar, "x = 'apple'") == survives(sidecar, "x = 'bananas-and-mangos'") == [True]
    assert survives(sidecar, "x = 'app'") == survives(sidecar, "x = 'bananas-and-oranges'") == [False]
    assert verdict_of(sidecar, "x > 'appl'").all_rows_match.tolist() == [False]


def test_short_texts_compare_by_length_after_equal_prefixes() -> None:
    sidecar = one_column([chunk(b"a", b"a\x00")], 26, BYTES)
    assert survives(sidecar, "x = 'a'") == [True]
    predicate_above = verdict_of(sidecar, "x > 'a'")
    assert predicate_above.survives.tolist() == [True]
    assert predicate_above.all_rows_match.tolist() == [False]
    assert survives(sidecar, "x < 'a'") == [False]
    assert survives(sidecar, "x > 'a\x00'") == [False]


def test_texts_of_eight_bytes_come_before_longer_ones() -> None:
    sidecar = one_column([chunk(b"prefix-1", b"prefix-1"), chunk(b"prefix-12", b"prefix-12")], 26, BYTES)
    assert survives(sidecar, "x < 'prefix-12'") == [True, False]
    assert survives(sidecar, "x = 'prefix-1'") == [True, False]
    assert survives(sidecar, "x = 'prefix-12'") == [False, True]
    assert survives(sidecar, "x in ('prefix-1', 'prefix-13')") == [True, False]
    assert survives(sidecar, "x > 'prefix-1'") == [False, True]


def test_null_counts_decide_null_tests() -> None:
    chunks = [chunk(nulls=0), chunk(nulls=3), chunk(nulls=ROWS), chunk(nulls=None)]
    sidecar = one_column(chunks, 6, INT64)
    assert survives(sidecar, "x is null") == [False, True, True, True]
    assert survives(sidecar, "x is not null") == [True, True, False, True]
    assert survives(sidecar, "x = 1") == survives(sidecar, "x != 1.5") == [True, True, False, True]
    assert verdict_of(sidecar, "x is null").all_rows_match.tolist() == [False, False, True, False]
    assert verdict_of(sidecar, "x != 1.5").all_rows_match.tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    "facts", [{"nulls": ROWS + 1}, {"nulls": 0, "num_values": ROWS + 1}, {"nulls": 3, "num_values": 3}]
)
def test_counts_that_disagree_are_not_known(facts: dict[str, Any]) -> None:
    sidecar = one_column([chunk(i64(1), i64(2), **facts)], 6, INT64)
    assert survives(sidecar, "x is null") == survives(sidecar, "x is not null") == [True]


@pytest.mark.parametrize(("nulls", "slots"), [(0, ROWS), (ROWS, ROWS), (0, 25), (3, 25)])
def test_null_counts_of_nested_columns_say_nothing(nulls: int, slots: int) -> None:
    chunks = [chunk(nulls=nulls, num_values=slots)]
    sidecar = one_column(chunks, 2587, DOUBLE, max_rep_level=1, max_def_level=3)
    assert survives(sidecar, "x is null") == survives(sidecar, "x is not null") == [True]


def test_raw_arrays_count_rows() -> None:
    sidecar = one_column([chunk(nulls=0), chunk(nulls=ROWS)], 2587, BYTES)
    assert survives(sidecar, "x is null") == [False, True]
    assert survives(sidecar, "x is not null") == [True, False]


def test_members_of_groups_keep_bounds_but_not_null_counts() -> None:
    sidecar = one_column([chunk(i64(1), i64(2), nulls=0)], 6, INT64, max_def_level=2)
    assert survives(sidecar, "x = 3") == [False]
    assert survives(sidecar, "x is null") == [True]


def test_required_columns_with_a_null_count_hold_something_else() -> None:
    chunks = [chunk(i64(1), i64(2), nulls=0), chunk(i64(1), i64(2), nulls=4), chunk(i64(1), i64(2), nulls=None)]
    sidecar = one_column(chunks, 6, INT64, max_def_level=0)
    assert known_numbers(sidecar) == [(1, 2), (None, None), (1, 2)]
    assert survives(sidecar, "x is null") == [False, True, False]
    assert verdict_of(sidecar, "x > 0").all_rows_match.tolist() == [True, False, True]


def test_row_groups_without_rows_match_nothing() -> None:
    sidecar = one_column([chunk(i64(1), i64(9), num_values=0)], 6, INT64, rows=0)
    for where in ("x = 5", "x is null", "not x = 5", "true", "x is not null"):
        verdict = verdict_of(sidecar, where)
        assert not verdict.may_be_true.any()
        assert verdict.all_rows_match.all()


def test_sidecar_without_row_groups() -> None:
    sidecar = one_column([], 26, BYTES)
    assert survives(sidecar, "x = 'a' or x in ('b', 'c')") == []
    assert survives(one_column([], 10, DOUBLE), "x > 1") == []


def test_impossible_counts_are_an_error() -> None:
    sidecar = one_column([chunk(i64(1), i64(9), num_values=2**63)], 6, INT64)
    with pytest.raises(FormatError, match="num_values"):
        survives(sidecar, "x = 1")


def test_column_that_a_partition_lacks() -> None:
    sidecar = one_column([chunk(i64(1), i64(9))], 6, INT64)
    number = BoundField("n", 7, resolve_type(6, INT64, 0, 0))
    short = BoundField("s", 8, resolve_type(3, INT32, 0, 0))
    flag = BoundField("f", 9, resolve_type(1, PhysicalType.BOOLEAN, 0, 0))
    other = BoundField("o", 10, number.type)
    statistics = SidecarStatistics(sidecar, {7: None, 8: None, 9: None})
    outcomes = {}
    for where in ("n = 1", "n is null", "s = 0", "s > 0", "f", "not f", "f = false", "o = 1", "o is null"):
        bound = bound_text(where, number, short, flag, other)
        outcomes[where] = bool(prune(bound, statistics, 1)[0].survives[0])
    assert outcomes == {
        "n = 1": False, "n is null": True, "s = 0": True, "s > 0": False, "f": False, "not f": True,
        "f = false": True, "o = 1": True, "o is null": True,
    }  # fmt: skip


def test_statistics_of_a_type_with_another_order_say_nothing() -> None:
    sidecar = one_column([chunk(i64(1), i64(9))], 131_080, INT64)
    for type_code in (7, 3, 26):
        field = BoundField("x", 0, canonical_type(type_code))
        assert SidecarStatistics(sidecar).bounds(field) is None
    texts = one_column([chunk(b"a", b"b")], 26, BYTES)
    assert SidecarStatistics(texts).bounds(BoundField("x", 0, resolve_type(12, BYTES, 0, 0))) is not None


def test_column_of_an_unreadable_type_says_nothing() -> None:
    sidecar = one_column([chunk(i64(1), i64(9))], -1, INT64)
    assert SidecarStatistics(sidecar).bounds(BoundField("x", 0, resolve_type(6, INT64, 0, 0))) is None


def test_intervals_of_partitions() -> None:
    timestamp = BoundField("ts", 2, resolve_type(131_080, INT64, 0, 0))
    price = BoundField("price", 3, resolve_type(10, DOUBLE, 0, 0))
    day_us = 86_400_000_000
    lower = np.arange(3, dtype=np.int64) * day_us
    known = np.array([True, True, False])
    bounds = interval_bounds(lower=lower, upper=lower + day_us - 1, known=known)
    statistics = NameStatistics(len(lower), {2: bounds})
    outcomes = {}
    for where in ("ts < '1970-01-02'", "ts >= '1970-01-01' and ts < '1970-01-03'", "ts is null", "price > 3"):
        verdict, report = prune(bound_text(where, timestamp, price), statistics, 3)
        outcomes[where] = (verdict.survives.tolist(), verdict.all_rows_match.tolist())
        assert report.row_groups == 3
    assert outcomes == {
        "ts < '1970-01-02'": ([True, False, True], [True, False, False]),
        "ts >= '1970-01-01' and ts < '1970-01-03'": ([True, True, True], [True, True, False]),
        "ts is null": ([False, False, False], [False, False, False]),
        "price > 3": ([True, True, True], [False, False, False]),
    }
