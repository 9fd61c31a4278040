"""When a bound is a value of the column itself, when a count of nulls counts rows, and which keys can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coldparquet.expressions.where import parse_predicate
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.format.sidecar_layout import ENCODING_RLE_DICTIONARY, PhysicalType
from coldparquet.format.sidecar_writer import ChunkSpec, ColumnSpec, RowGroupSpec, SidecarContent, encode_sidecar
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import ColumnType, resolve_type
from coldparquet.plan.answers import ExactBounds, exact_bounds, holds_only, key_domain
from coldparquet.plan.bind import BoundField, bind
from coldparquet.plan.bounds import Bounds, ByteSide, NumericSide, Side, SortedValues
from tests.support.one_column import ROWS, chunk, f64, i32, i64, one_column

INT32, INT64, DOUBLE = PhysicalType.INT32, PhysicalType.INT64, PhysicalType.DOUBLE
BYTES, FIXED = PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY


def known(
    chunks: list[ChunkSpec],
    tag: TypeTag,
    physical_type: PhysicalType,
    *,
    width: int = 0,
    column_id: int = 0,
    max_def_level: int = 1,
    wanted: tuple[TypeTag, PhysicalType] | None = None,
) -> ExactBounds:
    """What is known of the one column ``x`` of a partition with these chunks."""
    sidecar = one_column(
        chunks, tag, physical_type, width=width, column_id=column_id, max_def_level=max_def_level, is_writer_noted=False
    )
    wanted_type = resolve_type(*(wanted or (tag, physical_type)), width, 0)
    field = BoundField(name="x", index=0, type=wanted_type)
    return exact_bounds(sidecar, 0, field)


def flags(found: ExactBounds) -> tuple[list[bool], list[bool]]:
    return found.least.is_known.tolist(), found.greatest.is_known.tolist()


def test_exact_numbers_answer_and_the_extremes_of_all_row_groups_are_found() -> None:
    found = known([chunk(i64(-5), i64(7)), chunk(i64(3), i64(9), 2), chunk(None, None, ROWS)], TypeTag.LONG, INT64)
    assert flags(found) == ([True] * 3, [True] * 3)
    assert found.null_counts.tolist() == [0, 2, ROWS]
    everywhere = np.ones(3, dtype=np.bool_)
    assert (found.least.best(everywhere), found.greatest.best(everywhere)) == (-5, 9)
    only_nulls = np.array([False, False, True])
    assert (found.least.best(only_nulls), found.greatest.best(only_nulls)) == (None, None)
    assert found.least.may_beat(3).tolist() == [True, False, False]
    assert found.greatest.may_beat(7).tolist() == [False, True, False]


def test_bounds_that_are_not_marked_exact_answer_nothing() -> None:
    found = known([chunk(i64(1), i64(2), exact=False), chunk(None, i64(2))], TypeTag.LONG, INT64)
    assert flags(found) == ([False, False], [False, True])
    assert found.least.may_beat(1).tolist() == [False, True]  # as bounds they still hold


def test_distrusted_bounds_answer_nothing() -> None:
    assert not known(
        [chunk(f64(np.nan), f64(1.0)), chunk(f64(2.0), f64(1.0))], TypeTag.DOUBLE, DOUBLE
    ).least.is_known.any()
    by_dictionary = chunk(i32(1), i32(2), encodings=ENCODING_RLE_DICTIONARY)
    assert flags(known([by_dictionary, chunk(i32(1), i32(2))], TypeTag.IPV4, INT32)) == ([False, True], [False, True])
    assert not known([chunk(b"\0", b"\1")], TypeTag.BOOLEAN, PhysicalType.BOOLEAN).least.is_known.any()
    assert not known([chunk(b"a", b"b")], TypeTag.BINARY, BYTES).greatest.is_known.any()


def test_zero_bounds_of_floats_answer_nothing() -> None:
    bounds = [(-1.0, 0.0), (0.0, 1.0), (-0.0, -0.0)]
    found = known([chunk(f64(low), f64(high)) for low, high in bounds], TypeTag.DOUBLE, DOUBLE)
    assert flags(found) == ([True, False, False], [False, True, False])
    assert found.least.may_beat(0.0).tolist() == [True, False, False]  # as bounds they still hold


def test_a_missing_value_of_a_type_without_null_is_zero() -> None:
    chunks = [chunk(i32(3), i32(9), 0), chunk(i32(3), i32(9), 4), chunk(None, None, ROWS), chunk(i32(3), i32(9), None)]
    found = known(chunks, TypeTag.SHORT, INT32, max_def_level=0)
    assert flags(found) == ([True, True, True, False], [True, True, True, False])
    assert [found.least.best(np.arange(4) == row_group) for row_group in range(3)] == [3, 0, 0]
    assert [found.greatest.best(np.arange(4) == row_group) for row_group in range(3)] == [9, 9, 0]
    assert found.null_counts.tolist() == [0] * 4


def test_numbers_outside_of_a_narrow_type_answer_nothing() -> None:
    found = known([chunk(i32(-129), i32(127)), chunk(i32(-128), i32(128))], TypeTag.BYTE, INT32)
    assert flags(found) == ([False, True], [True, False])


@pytest.mark.parametrize(("length", "is_known"), [(60, True), (61, False), (64, False), (200, False)])
def test_text_that_may_have_been_cut_answers_nothing(length: int, is_known: bool) -> None:
    found = known([chunk(b"a" * length, b"b" * length)], TypeTag.VARCHAR, BYTES)
    assert flags(found) == ([is_known], [is_known])


def test_text_of_foreign_files_answers_nothing() -> None:
    assert not known([chunk(b"a", b"b")], TypeTag.VARCHAR, BYTES, column_id=-1).least.is_known.any()


def test_the_extremes_of_text_are_found_by_all_of_its_bytes() -> None:
    texts = [b"BTC", b"BT", b"a longer name 2", b"a longer name 1", b"a longer"]
    found = known([chunk(text, text) for text in texts], TypeTag.SYMBOL, BYTES)
    everywhere = np.ones(len(texts), dtype=np.bool_)
    assert (found.least.best(everywhere), found.greatest.best(everywhere)) == (min(texts), max(texts))
    last = np.array([False, False, True, True, True])
    assert (found.least.best(last), found.greatest.best(last)) == (min(texts[2:]), max(texts[2:]))


def test_uuids_answer() -> None:
    low, high = bytes(range(16)), bytes(range(16, 32))
    found = known([chunk(low, high), chunk(low[:8], high)], TypeTag.UUID, FIXED, width=16)
    assert flags(found) == ([True, False], [True, True])
    assert found.greatest.best(np.ones(2, dtype=np.bool_)) == high


@pytest.mark.parametrize("wanted", [(TypeTag.LONG, INT64), (TypeTag.DOUBLE, DOUBLE)])
def test_a_column_whose_type_was_changed_answers_nothing(wanted: tuple[TypeTag, PhysicalType]) -> None:
    found = known([chunk(i32(1), i32(2))], TypeTag.INT, INT32, wanted=wanted)
    assert flags(found) == ([False], [False])
    assert found.null_counts.tolist() == [-1]
    assert found.least.may_beat(1).tolist() == [False]


def test_text_types_are_one() -> None:
    found = known([chunk(b"a", b"b", 1)], TypeTag.VARCHAR, BYTES, wanted=(TypeTag.SYMBOL, BYTES))
    assert flags(found) == ([True], [True])
    assert found.null_counts.tolist() == [1]


@pytest.mark.parametrize(
    ("nulls", "max_def_level", "expected"), [(None, 1, -1), (ROWS + 1, 1, -1), (3, 0, -1), (0, 0, 0)]
)
def test_counts_of_nulls_that_cannot_be_right_are_not_known(
    nulls: int | None, max_def_level: int, expected: int
) -> None:
    found = known([chunk(i64(1), i64(2), nulls)], TypeTag.LONG, INT64, max_def_level=max_def_level)
    assert found.null_counts.tolist() == [expected]


@pytest.mark.parametrize(
    ("tag", "physical_type", "extreme", "nulls"),
    [(TypeTag.LONG, INT64, None, ROWS), (TypeTag.SHORT, INT32, 0, 0)],
)
def test_a_column_that_came_later_is_null_or_zero(
    tag: TypeTag, physical_type: PhysicalType, extreme: Any, nulls: int
) -> None:
    column = ColumnSpec(
        name="y", type_code=TypeTag.LONG, physical_type=INT64, flags=0, max_rep_level=0, max_def_level=1
    )
    content = SidecarContent(
        columns=[column],
        row_groups=[RowGroupSpec(row_count=ROWS, chunks=[chunk(None, None)])],
        parquet_footer_offset=100,
        parquet_footer_length=10,
    )
    field = BoundField(name="x", index=7, type=resolve_type(tag, physical_type, 0, 0))
    found = exact_bounds(parse_sidecar(encode_sidecar(content)), None, field)
    assert flags(found) == ([True], [True])
    assert (found.least.best(np.ones(1, np.bool_)), found.null_counts.tolist()) == (extreme, [nulls])


SYMBOL = resolve_type(TypeTag.SYMBOL, PhysicalType.BYTE_ARRAY, 0, 0)
BOOLEAN = resolve_type(TypeTag.BOOLEAN, PhysicalType.BOOLEAN, 0, 0)


def field(column_type: ColumnType) -> BoundField:
    return BoundField(name="k", index=0, type=column_type)


@pytest.mark.parametrize(
    ("where", "value_count", "may_be_null"),
    [
        (None, 5, True),
        ("k = 'a'", 1, False),
        ("k in ('a', 'b') and n > 3", 2, False),
        ("k in ('a', 'b', 'c', 'd', 'e', 'f', 'g')", 5, False),
        ("k is not null", 5, False),
        ("k = 'a' or n > 3", 5, True),
        ("n = 3", 5, True),
    ],
)
def test_the_keys_that_a_question_leaves(where: str | None, value_count: int, may_be_null: bool) -> None:
    number = BoundField(name="n", index=1, type=resolve_type(TypeTag.INT, PhysicalType.INT32, 0, 0))
    predicate = parse_predicate(where)
    bound = None if predicate is None else bind(predicate, {"k": field(SYMBOL), "n": number})
    domain = key_domain(field(SYMBOL), bound, symbol_count=5)
    assert (domain.value_count, domain.may_be_null) == (value_count, may_be_null)


def test_booleans_have_two_values_and_other_types_any_number() -> None:
    assert key_domain(field(BOOLEAN), None, symbol_count=None).has_all_values(2)
    assert not key_domain(field(BOOLEAN), None, symbol_count=None).has_all_values(1)
    assert not key_domain(field(SYMBOL), None, symbol_count=None).has_all_values(1_000_000)


def numbers(*values: int) -> NumericSide:
    return NumericSide(np.ones(len(values), np.bool_), np.array(values, dtype=np.int64))


def texts(*values: bytes) -> ByteSide:
    prefixes = [int.from_bytes(value[:8].ljust(8, b"\0"), "big") for value in values]
    lengths = [len(value) for value in values]
    return ByteSide(
        np.ones(len(values), np.bool_), np.array(prefixes, np.uint64), np.array(lengths, np.int64), values.__getitem__
    )


def bounds(lower: Side, upper: Side) -> Bounds:
    everywhere = np.ones(len(lower.known), np.bool_)
    return Bounds(lower=lower, upper=upper, may_hold_values=everywhere, may_hold_nulls=~everywhere, may_hold_nan=False)


def test_whole_numbers_are_proved_where_all_between_the_bounds_were_seen() -> None:
    least, greatest = -(1 << 63), (1 << 63) - 1
    seen = SortedValues.of((least, 3, 4, 5, 9, greatest))
    known = bounds(numbers(3, 3, 4, 9, 2, 5, least, least), numbers(5, 6, 4, 9, 3, 9, greatest, least))
    assert holds_only(known, seen).tolist() == [True, False, True, True, False, False, False, True]


def test_text_is_proved_where_both_bounds_are_one_seen_value() -> None:
    seen = SortedValues.of((b"BTC", b"a long symbol name", b"a long symbol other"))
    lower = texts(b"BTC", b"BTC", b"DOT", b"a long symbol name", b"a long symbol name")
    upper = texts(b"BTC", b"ETH", b"DOT", b"a long symbol name", b"a long symbol other")
    assert holds_only(bounds(lower, upper), seen).tolist() == [True, False, False, True, False]


def test_floats_and_unknown_bounds_prove_nothing() -> None:
    seen = SortedValues.of((1, 2))
    float_side = NumericSide(np.ones(1, np.bool_), np.array([1.0]))
    assert not holds_only(bounds(float_side, float_side), seen).any()
    unknown = NumericSide(np.zeros(1, np.bool_), np.array([1]))
    assert not holds_only(bounds(unknown, unknown), seen).any()
