from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.expressions.where import parse_predicate
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.types import ForeignAnnotation, resolve_type
from coldparquet.plan.bind import (
    BoundComparison,
    BoundField,
    BoundIn,
    BoundIsNull,
    BoundLike,
    BoundPredicate,
    ConstantUnlessNull,
    bind,
    fields_of,
)
from coldparquet.plan.predicate import MAX_DEPTH, And, Column, Instant, Like, Literal, Not, Operator, Or, Predicate, col

INT32, INT64, FIXED = PhysicalType.INT32, PhysicalType.INT64, PhysicalType.FIXED_LEN_BYTE_ARRAY
BYTES = PhysicalType.BYTE_ARRAY

TYPES = {
    "flag": resolve_type(1, PhysicalType.BOOLEAN, 0, 0),
    "tiny": resolve_type(2, INT32, 0, 0),
    "char": resolve_type(4, INT32, 0, 0),
    "int": resolve_type(5, INT32, 0, 0),
    "long": resolve_type(6, INT64, 0, 0),
    "ms": resolve_type(7, INT64, 0, 0),
    "day": resolve_type(7, INT32, 0, 0),
    "us": resolve_type(131_080, INT64, 0, 0),
    "ns": resolve_type(262_152, INT64, 0, 0),
    "int96": resolve_type(262_152, PhysicalType.INT96, 0, 0),
    "float": resolve_type(9, PhysicalType.FLOAT, 0, 0),
    "double": resolve_type(10, PhysicalType.DOUBLE, 0, 0),
    "text": resolve_type(26, BYTES, 0, 0),
    "symbol": resolve_type(12, BYTES, 0, 0),
    "long256": resolve_type(13, FIXED, 32, 0),
    "long128": resolve_type(24, FIXED, 16, 0),
    "geo": resolve_type(75_793, INT64, 0, 0),
    "geobits": resolve_type(65_806, INT32, 0, 0),
    "binary": resolve_type(18, BYTES, 0, 0),
    "uuid": resolve_type(19, FIXED, 16, 0),
    "ip": resolve_type(25, INT32, 0, 0),
    "array": resolve_type(2587, BYTES, 0, 0),
    "decimal": resolve_type(791_071, FIXED, 8, 0),
    "u64": resolve_type(6, INT64, 0, 0, ForeignAnnotation.UINT_64),
    "time": resolve_type(6, INT64, 0, 0, ForeignAnnotation.TIME_MICROS),
    "maybe": resolve_type(1, PhysicalType.BOOLEAN, 0, 0, ForeignAnnotation.NULLABLE),
}
FIELDS = {name: BoundField(name, index, type_) for index, (name, type_) in enumerate(TYPES.items())}
MARCH_US = 1_709_251_200_000_000
"""2024-03-01 in microseconds."""


def bound(predicate: Predicate | str) -> BoundPredicate:
    parsed = parse_predicate(predicate)
    assert parsed is not None
    return bind(parsed, FIELDS)


def value_of(name: str, literal: Any) -> Any:
    leaf = bound(col(name) == literal)
    assert isinstance(leaf, BoundComparison), leaf
    assert leaf.operator is Operator.EQUAL
    assert leaf.field is FIELDS[name]
    return leaf.value


@pytest.mark.parametrize(
    ("name", "literal", "value"),
    [
        ("flag", True, True),
        ("tiny", -128, -128),
        ("char", "A", 65),
        ("char", "\uffff", 0xFFFF),
        ("char", 65, 65),
        ("int", 3.0, 3),
        ("int", Decimal("3.00"), 3),
        ("int", np.int64(7), 7),
        ("long", 2**63 - 1, 2**63 - 1),
        ("long", Decimal("1e18"), 10**18),
        ("u64", 2**64 - 1, 2**64 - 1),
        ("float", 0.1, 0.1),
        ("float", np.float32(0.1), 0.10000000149011612),
        ("double", Decimal("0.1"), 0.1),
        ("double", 2**53, float(2**53)),
        ("double", 2**1000, 2.0**1000),
        ("double", math.inf, math.inf),
        ("text", "größe", "größe".encode()),
        ("symbol", "", b""),
        ("binary", b"\x00\xff", b"\x00\xff"),
        ("ip", "1.2.3.4", 0x01020304),
        ("ip", "255.255.255.255", 2**32 - 1),
        ("ip", IPv4Address("0.0.0.1"), 1),
        ("ip", 3_000_000_000, 3_000_000_000),
        ("uuid", "00112233-4455-6677-8899-aabbccddeeff", bytes.fromhex("00112233445566778899aabbccddeeff")),
        ("uuid", UUID(int=1), bytes(15) + b"\x01"),
        ("uuid", bytes(range(16)), bytes(range(16))),
        ("long256", "0x01ff", b"\xff\x01" + bytes(30)),
        ("long256", bytes(range(32)), bytes(range(32))),
        ("long128", 258, b"\x02\x01" + bytes(14)),
        ("decimal", 3, 3000),
        ("decimal", Decimal("-1.25"), -1250),
        ("decimal", "12.345", 12345),
        ("decimal", 0.5, 500),
        ("decimal", 10**15 - 1, 10**18 - 1000),
        ("geo", "u33d8b12", 0b11010_00011_00011_01100_01000_01010_00001_00010),
        ("geo", "#U33D8B12", 0b11010_00011_00011_01100_01000_01010_00001_00010),
        ("geo", 7, 7),
        ("us", "2024-03-01", MARCH_US),
        ("us", MARCH_US, MARCH_US),
        ("us", date(2024, 3, 1), MARCH_US),
        ("us", datetime(2024, 3, 1, 0, 0, 0, 1), MARCH_US + 1),  # noqa: DTZ001 - naive means UTC
        ("us", datetime(2024, 3, 1, 2, tzinfo=timezone(timedelta(hours=2))), MARCH_US),
        ("us", np.datetime64("2024-03"), MARCH_US),
        ("us", np.datetime64("2024-03-01T00:00:00.000001000", "ns"), MARCH_US + 1),
        ("ns", np.datetime64(7000, "ps"), 7),
        ("us", pd.Timestamp("2024-03-01", tz="UTC"), MARCH_US),
        ("ns", pd.Timestamp("2024-03-01T00:00:00.000000789"), MARCH_US * 1000 + 789),
        ("ns", Instant(5), 5),
        ("ns", "1969-12-31T23:59:59.999999999Z", -1),
        ("ms", "2024-03-01T00:00:00.001", MARCH_US // 1000 + 1),
        ("day", "2024-03-01", 19_783),
        ("day", date(1969, 12, 31), -1),
        ("day", "2024-03-01T02:00+02:00", 19_783),
        ("int96", "2024-03-01", MARCH_US * 1000),
        ("time", "12:30:00.000001", 45_000_000_001),
        ("time", time(0, 0, 1), 1_000_000),
        ("time", 5, 5),
        ("maybe", False, False),
    ],
)
def test_literals_become_values_of_the_column(name: str, literal: Any, value: Any) -> None:
    found = value_of(name, literal)
    assert found == value
    assert type(found) is type(value)


LESS, LESS_OR_EQUAL, GREATER = Operator.LESS, Operator.LESS_OR_EQUAL, Operator.GREATER


@pytest.mark.parametrize(
    ("name", "literal", "floor"),
    [
        ("int", 3.5, 3),
        ("int", -3.5, -4),
        ("int", Decimal("1e-500"), 0),
        ("int", Decimal("-1e-500"), -1),
        ("us", "2024-03-01T00:00:00.0000001", MARCH_US),
        ("us", Instant(-1), -1),
        ("ns", "1970-01-01T00:00:00.00000000001", 0),
        ("ns", np.datetime64(-1, "as"), -1),
        ("ms", datetime(2024, 3, 1, microsecond=1), MARCH_US // 1000),  # noqa: DTZ001
        ("day", "2024-03-01T12:00", 19_783),
        ("day", "1969-12-31T00:00:01", -1),
        ("decimal", 0.1, 100),
        ("decimal", Decimal("-0.0001"), -1),
        ("double", 2**53 + 1, float(2**53)),
        ("double", -(2**53) - 1, float(-(2**53) - 2)),
        ("double", 10**400, math.nextafter(math.inf, 0)),
        ("double", -(10**400), -math.inf),
        ("double", Decimal("1e400"), math.nextafter(math.inf, 0)),
        ("float", 2**60 + 1, float(2**60)),
        ("time", "12:30:00.0000001", 45_000_000_000),
    ],
)
def test_literals_between_two_values_fold_to_the_lower_one(name: str, literal: Any, floor: Any) -> None:
    field, column = FIELDS[name], col(name)
    assert bound(column > literal) == bound(column >= literal) == BoundComparison(field, GREATER, floor)
    assert bound(column < literal) == bound(column <= literal) == BoundComparison(field, LESS_OR_EQUAL, floor)
    assert bound(column == literal) == ConstantUnlessNull(field, value=False)
    assert bound(column != literal) == ConstantUnlessNull(field, value=True)
    assert bound(column.is_in([literal])) == ConstantUnlessNull(field, value=False)


@pytest.mark.parametrize(
    ("name", "below", "above"),
    [
        ("int", -(2**31) - 1, 2**31),
        ("int", -math.inf, math.inf),
        ("int", Decimal("-1e999999"), Decimal("1e999999")),
        ("int", Decimal("-Infinity"), Decimal("Infinity")),
        ("int", -(2**31) - 0.5, 2**31 - 0.5),
        ("long", -(2**63) - 1, 2**63),
        ("u64", -1, 2**64),
        ("ip", -1, 2**32),
        ("ns", "1600-01-01", "2300-01-01"),
        ("decimal", "-1000000000000000", 10**15),
        ("day", -(2**31) - 1, 2**31),
    ],
)
def test_literals_outside_of_the_type_decide_at_once(name: str, below: Any, above: Any) -> None:
    field, column = FIELDS[name], col(name)
    always, never = ConstantUnlessNull(field, value=True), ConstantUnlessNull(field, value=False)
    assert [bound(test) for test in (column > below, column >= below, column != below)] == [always] * 3
    assert [bound(test) for test in (column < below, column <= below, column == below)] == [never] * 3
    assert [bound(test) for test in (column < above, column <= above, column != above)] == [always] * 3
    assert [bound(test) for test in (column > above, column >= above, column == above)] == [never] * 3


@pytest.mark.parametrize(
    "literal", [None, math.nan, Decimal("NaN"), Decimal("sNaN"), np.datetime64("NaT"), np.float32("nan")]
)
@pytest.mark.parametrize("name", ["double", "int", "us", "decimal", "tiny"])
def test_null_and_nan_are_never_equal_nor_different(name: str, literal: Any) -> None:
    for compare in (Column.__eq__, Column.__ne__, Column.__lt__, Column.__ge__):
        test: Callable[[Column, Any], Predicate] = compare
        assert bound(test(col(name), literal)) == Literal(None)


def test_in_lists_are_sorted_and_lose_what_cannot_match() -> None:
    field = FIELDS["int"]
    assert bound(col("int").is_in([3, 1, 3.5, 2**40, 1, 2.0])) == BoundIn(field, (1, 2, 3))
    assert bound(col("int").is_in([7, 7])) == BoundComparison(field, Operator.EQUAL, 7)
    assert bound(col("int").is_in([])) == Literal(value=False)
    assert bound(col("int").is_in([1, None])) == Or((BoundComparison(field, Operator.EQUAL, 1), Literal(None)))
    assert bound(col("int").is_in([None])) == Or((ConstantUnlessNull(field, value=False), Literal(None)))
    assert bound(col("text").is_in(["b", "", "ab", "a"])) == BoundIn(FIELDS["text"], (b"", b"a", b"ab", b"b"))
    assert bound(col("double").is_in([0.0, -0.0])) == BoundComparison(FIELDS["double"], Operator.EQUAL, 0.0)


def test_types_without_null_need_no_null_test() -> None:
    assert bound("tiny is null") == Literal(value=False)
    assert bound("flag is not null") == Not(Literal(value=False))
    assert bound("tiny = 1.5") == Literal(value=False)
    assert bound("tiny < 1000") == Literal(value=True)
    assert bound("maybe is null") == BoundIsNull(FIELDS["maybe"])


def test_trees_keep_their_shape() -> None:
    predicate = bound("flag and (int > 3 or not long is null) and null")
    flag = BoundComparison(FIELDS["flag"], Operator.EQUAL, value=True)
    either = Or((BoundComparison(FIELDS["int"], GREATER, 3), Not(BoundIsNull(FIELDS["long"]))))
    assert predicate == And((flag, either, Literal(None)))
    assert fields_of(predicate) == (FIELDS["flag"], FIELDS["int"], FIELDS["long"])
    assert pickle.loads(pickle.dumps(predicate)) == predicate  # noqa: S301
    assert hash(predicate) == hash(pickle.loads(pickle.dumps(predicate)))  # noqa: S301


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("us >= '2024-03-01' and symbol in ('B', 'A')", "us >= '2024-03-01T00:00:00.000000Z' AND symbol IN ('A', 'B')"),
        ("ms = '2024-03-01T12:00:00.001'", "ms = '2024-03-01T12:00:00.001Z'"),
        ("day > '2024-03-01T12:00'", "day > '2024-03-01'"),
        ("ns > 9223372036854775806", "ns > '2262-04-11T23:47:16.854775806Z'"),
        ("us = 9000000000000000000", "us = 9000000000000000000"),
        ("time = '12:30:00'", "\"time\" = '12:30:00.000000'".replace('"', "")),
        ("decimal < -1.5", "decimal < -1.500"),
        ("ip = '1.2.3.4' or ip is null", "ip = '1.2.3.4' OR ip IS NULL"),
        ("uuid != '00000000000000000000000000000001'", "uuid != '00000000-0000-0000-0000-000000000001'"),
        ("long256 = '0x1F'", "long256 = '0x1f'"),
        ("char = 'A'", "char = 'A'"),
        ("not (int = 1.5)", "NOT ((FALSE unless int IS NULL))"),
        ("text = 'it''s' and (flag or int is not null)", "text = 'it''s' AND (flag = TRUE OR int IS NOT NULL)"),
        ("int in (1,2,3,4,5,6,7)", "int IN (1, 2, 3, 4, 5, ... 7 values)"),
    ],
)
def test_bound_predicates_read_as_sql(where: str, text: str) -> None:
    assert str(bound(where)) == text


@pytest.mark.parametrize(
    ("name", "literal"),
    [
        ("int", "abc"),
        ("int", "3"),
        ("int", True),
        ("int", date(2024, 3, 1)),
        ("double", "1.5"),
        ("double", False),
        ("flag", 1),
        ("flag", "true"),
        ("us", "soon"),
        ("us", "2024-02-30"),
        ("us", "2024-03-01T24:00"),
        ("us", "2024-03-01T12:60"),
        ("us", "2024-03-01T12:00+24:00"),
        ("us", "2024-3-1"),
        ("us", " 2024"),
        ("text", 3),
        ("text", b"abc"),
        ("text", "\ud800"),
        ("text", Instant(0)),
        ("binary", "abc"),
        ("char", "ab"),
        ("char", ""),
        ("char", "😀"),
        ("ip", "1.2.3"),
        ("ip", "::1"),
        ("uuid", "not-a-uuid"),
        ("uuid", b"short"),
        ("long256", "1f"),
        ("long256", -1),
        ("long128", 2**128),
        ("decimal", "twelve"),
        ("geo", "u33"),
        ("geo", "aaaaaaaa"),
        ("geobits", "u33d"),
        ("time", "25:00"),
        ("time", time(1, tzinfo=UTC)),
    ],
)
def test_wrong_literals_name_column_type_and_a_right_one(name: str, literal: Any) -> None:
    advice = r"cannot be compared with .* write for example|is no time.* write times .* for example"
    with pytest.raises(InvalidInputError, match=advice) as caught:
        bound(col(name) == literal)
    assert caught.value.kind == "InvalidLiteral"
    assert caught.value.details == {"column": name, "type": TYPES[name].name}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "us >= '2024-13-03'",
            "is no time; write times as 2024-03-01 or 2024-03-01T12:30:00, for example us >= '2024-03-01'",
        ),
        ("day < '03/01/2024'", "but '03/01/2024' is no time; write times .* for example day < '2024-03-01'"),
        ("time > '25:00'", "but '25:00' is no time of day; write times of day .* for example time > '12:30:00'"),
        ("us != true", "cannot be compared with TRUE; write for example us != '2024-03-01'"),
        ("double > '5'", "cannot be compared with '5'; write for example double > 5"),
        ("int <= '-3.5'", "cannot be compared with '-3.5'; write for example int <= -3.5"),
        ("int <= 'many'", "cannot be compared with 'many'; write for example int <= 42"),
    ],
)
def test_the_right_literal_is_shown_with_the_operator_that_was_meant(where: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{message}$") as caught:
        bound(where)
    bound(str(caught.value).partition("for example ")[2])


@pytest.mark.parametrize(
    "predicate", ["long128 < '0x1'", "long256 >= '0x1'", "flag > false", "array = 1", "array in (1)"]
)
def test_comparisons_that_a_type_lacks_are_unsupported(predicate: str) -> None:
    with pytest.raises(UnsupportedError, match="which has only") as caught:
        bound(predicate)
    assert caught.value.kind == "UnsupportedComparison"
    assert bound("array is null") == BoundIsNull(FIELDS["array"])


@pytest.mark.parametrize("name", ["int", "double", "char", "us", "day", "ip", "uuid", "binary", "decimal", "array"])
def test_only_text_begins_with_text(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"column '{name}' is .* and only text has a prefix") as caught:
        bound(f"starts_with({name}, '1')")
    assert caught.value.kind == "UnsupportedComparison"
    with pytest.raises(UnsupportedError, match="or the form of a pattern"):
        bound(f"{name} like '%1'")


def test_a_pattern_is_told_from_its_range() -> None:
    assert bound("text like '%x'") == BoundLike(FIELDS["text"], "%x")
    assert bound("text not like 'ab%x'") == Not(
        And((*bound("starts_with(text, 'ab')").parts, BoundLike(FIELDS["text"], "ab%x")))  # type: ignore[attr-defined]
    )
    with pytest.raises(InvalidInputError, match="cannot be compared with"):
        bound(Like("text", "%\ud800"))


def test_a_prefix_is_text_with_an_encoding() -> None:
    with pytest.raises(InvalidInputError, match="column 'text' is VARCHAR and cannot be compared with"):
        bound(col("text").starts_with("\ud800"))
    with pytest.raises(InvalidInputError, match=r"col\('text'\).starts_with\('BTC'\)"):
        col("text").starts_with(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("INT", "did you mean 'int'"),
        ("symbl", "did you mean 'symbol'"),
        ("zzz", "columns are flag, tiny, .* and 6 more"),
    ],
)
def test_unknown_columns_come_with_near_ones(name: str, hint: str) -> None:
    with pytest.raises(InvalidInputError, match=hint) as caught:
        bound(col(name) == 1)
    assert caught.value.kind == "UnknownColumn"


def test_100_000_values_bind_in_one_go() -> None:
    leaf = bound(col("text").is_in(f"user-{number:06d}" for number in range(100_000)))
    assert isinstance(leaf, BoundIn)
    assert leaf.values[:2] == (b"user-000000", b"user-000001")  # noqa: PD011 - no pandas here
    assert len(leaf.search.keys) == 100_000


def test_values_of_a_field_become_one_list() -> None:
    def text(predicate: Predicate) -> str:
        return str(bind(predicate, FIELDS))

    long, tiny = col("long"), col("tiny")
    assert text((long == 3) | (long == 1) | long.is_in([2, 3])) == "long IN (1, 2, 3)"
    assert text((long == 3) | (long == 3)) == "long = 3"
    assert text((long == 3) | (tiny == 1) | (long == 4)) == "long IN (3, 4) OR tiny = 1"
    assert text((long == 3) | (long > 5)) == "long = 3 OR long > 5"
    assert text((long != 3) & (long < 9) & (long != 1)) == "NOT (long IN (1, 3)) AND long < 9"
    assert text((long != 3) & ~long.is_in([1, 2]) & ~(long == 4)) == "NOT (long IN (1, 2, 3, 4))"
    assert text((long == 3) & (long == 4)) == "long = 3 AND long = 4"
    assert text((long == 3) | (long == None) | (long == 4)) == "long IN (3, 4) OR NULL"  # noqa: E711


def test_binding_makes_no_tree_too_deep() -> None:
    deepest: Predicate = col("int").is_in([1, None])
    while deepest.depth < MAX_DEPTH:
        deepest = (col("long") > 1) & deepest if deepest.depth % 2 else (col("long") < 1) | deepest
    assert bound(deepest).depth <= MAX_DEPTH
