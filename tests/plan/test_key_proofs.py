"""Which bounds prove that a row group holds no key but those that were seen."""

from __future__ import annotations

import numpy as np
import pytest

from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import ColumnType, resolve_type
from coldparquet.plan.answers import holds_only, key_domain
from coldparquet.plan.bind import BoundField, bind
from coldparquet.plan.bounds import Bounds, ByteSide, NumericSide, Side, SortedValues
from coldparquet.plan.where import parse_predicate

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
