"""Row filters agree with a row-by-row evaluator that compares exact Python values and knows nothing of Arrow."""

from __future__ import annotations

import functools
import math
import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldparquet.decode.arrow import TextAs, arrow_type
from coldparquet.decode.filter import _PredicateCosts, filter_rows, matching_rows
from coldparquet.errors import InternalError
from coldparquet.format.sidecar_layout import PhysicalType as P
from coldparquet.format.types import ForeignAnnotation, resolve_type
from coldparquet.plan.bind import BoundField, bind
from coldparquet.plan.predicate import Comparison, In, IsNull, Like, Literal, Operator, Predicate, col
from tests.support.predicate_trees import COMPARE, trees, truth
from tests.support.row_outcomes import filter_outcomes, has_form

DECIMAL_18_3 = 791071
DECIMAL_76_20 = 33 | 76 << 8 | 20 << 18

TYPES = {
    "flag": resolve_type(1, P.BOOLEAN, 0, 0),
    "tiny": resolve_type(2, P.INT32, 0, 0),
    "letter": resolve_type(4, P.INT32, 0, 0),
    "num": resolve_type(5, P.INT32, 0, 0),
    "big": resolve_type(6, P.INT64, 0, 0),
    "day": resolve_type(7, P.INT32, 0, 0),
    "at": resolve_type(8, P.INT64, 0, 0),
    "ratio": resolve_type(9, P.FLOAT, 0, 0),
    "price": resolve_type(10, P.DOUBLE, 0, 0),
    "sym": resolve_type(12, P.BYTE_ARRAY, 0, 0),
    "hash": resolve_type(13, P.FIXED_LEN_BYTE_ARRAY, 32, 0),
    "blob": resolve_type(18, P.BYTE_ARRAY, 0, 0),
    "id": resolve_type(19, P.FIXED_LEN_BYTE_ARRAY, 16, 0),
    "ip": resolve_type(25, P.INT32, 0, 0),
    "text": resolve_type(26, P.BYTE_ARRAY, 0, 0),
    "amount": resolve_type(DECIMAL_18_3, P.FIXED_LEN_BYTE_ARRAY, 8, 0),
    "huge": resolve_type(DECIMAL_76_20, P.FIXED_LEN_BYTE_ARRAY, 32, 0),
    "u64": resolve_type(6, P.INT64, 0, 0, ForeignAnnotation.UINT_64),
    "clock": resolve_type(6, P.INT64, 0, 0, ForeignAnnotation.TIME_MICROS),
}
FIELDS = {name: BoundField(name, index, type_) for index, (name, type_) in enumerate(TYPES.items())}
EQUALITY_ONLY = {"flag", "hash"}


def float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**digits - 1
    unscaled = st.integers(-limit, limit) | st.integers(-3, 3) | st.sampled_from([-limit, limit])
    return unscaled.map(lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))


TEXTS = st.sampled_from(["", "a", "ab", "b", "B", "é", "中", "🚀", "\uffff", "a\x00"])
FLOATS = st.sampled_from([0.0, -0.0, 1.5, -1.5, 0.1, float32(0.1), 16777217.0, float("inf"), float("-inf")])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "tiny": st.integers(-128, 127) | st.integers(-2, 2),
    "letter": st.sampled_from([0, 65, 66, 0x4E2D, 0xFFFF]),
    "num": st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 2),
    "big": st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53, 2**53 + 1, -1, 0, 1]),
    "day": st.integers(-3, 3),
    "at": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    "ratio": FLOATS.map(float32) | st.just(float("nan")),
    "price": FLOATS | st.just(float("nan")),
    "sym": TEXTS,
    "hash": st.sampled_from([bytes(32), b"\x01" + bytes(31), b"\xff" * 32]),
    "blob": st.sampled_from([b"", b"\x00", b"a", b"ab", b"\xff", b"\xff\xff"]),
    "id": st.sampled_from([bytes(16), bytes(15) + b"\x01", b"\x7f" + bytes(15), b"\x80" + bytes(15), b"\xff" * 16]),
    "ip": st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1]),
    "text": TEXTS,
    "amount": decimals(18, 3),
    "huge": decimals(76, 20),
    "u64": st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    "clock": st.integers(0, 86_400_000_000 - 1) | st.integers(0, 2),
}
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    **VALUES,
    "tiny": VALUES["tiny"] | st.sampled_from([0.5, -1000, 1000, Decimal("1e500")]),
    "big": VALUES["big"] | st.sampled_from([2.0**53, 0.5, 2**64, Decimal("9007199254740992.5")]),
    "at": VALUES["at"] | st.integers(-3000, 3000).map(lambda nanoseconds: np.datetime64(nanoseconds, "ns")),
    "ratio": FLOATS | st.sampled_from([16777217, 2**63, float("nan")]),
    "price": FLOATS | st.sampled_from([9007199254740993, 10**400, float("nan")]),
    "id": VALUES["id"].map(lambda value: UUID(bytes=value)),
    "amount": VALUES["amount"] | st.sampled_from([Decimal("0.0005"), 0.5, 1, 10**30]),
    "huge": VALUES["huge"] | st.sampled_from([Decimal("1e-21"), 0.1, 10**56]),
}
NEVER_NULL = {name for name, type_ in TYPES.items() if type_.never_null}


def comparisons(name: str) -> st.SearchStrategy[Predicate]:
    literals = LITERALS[name] | st.none()
    allowed = [Operator.EQUAL, Operator.NOT_EQUAL] if name in EQUALITY_ONLY else list(Operator)
    return (
        st.builds(Comparison, st.just(name), st.sampled_from(allowed), literals)
        | st.builds(In, st.just(name), st.lists(literals, max_size=5).map(tuple))
        | st.just(IsNull(name))
    )


LEAVES = st.sampled_from(sorted(TYPES)).flatmap(comparisons) | st.sampled_from([True, False, None]).map(Literal)
PREDICATES = trees(LEAVES)
ROW = st.fixed_dictionaries(
    {name: values if name in NEVER_NULL else values | st.none() for name, values in VALUES.items()}
)


def compare(value: Any, operator: Operator, literal: Any) -> bool | None:
    if value is None or literal is None or (isinstance(literal, float) and math.isnan(literal)):
        return None
    if isinstance(value, str):
        value, literal = value.encode(), literal.encode()
    if isinstance(literal, UUID):
        literal = literal.bytes
    if isinstance(literal, np.datetime64):
        value, literal = value * 1000, int(literal.astype(np.int64))
    return bool(COMPARE[operator](value, literal))


def row_outcome(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    def of_leaf(leaf: Predicate) -> bool | None:
        if isinstance(leaf, IsNull):
            return row[leaf.column] is None
        assert isinstance(leaf, Comparison)
        return compare(row[leaf.column], leaf.operator, leaf.value)

    return truth(predicate, of_leaf)


def table_of(rows: list[dict[str, Any]], symbols: Any) -> pa.Table:
    text = TextAs(symbols=symbols, strings="string")
    arrays = []
    for name, type_ in TYPES.items():
        values = pa.array([row[name] for row in rows], pa.string() if name == "sym" else arrow_type(type_, text=text))
        arrays.append(values.cast(arrow_type(type_, text=text)))
    return pa.table(arrays, names=list(TYPES))


@settings(max_examples=40)
@given(
    st.lists(ROW, max_size=8), st.lists(PREDICATES, min_size=1, max_size=4), st.sampled_from(["dictionary", "string"])
)
def test_evaluates_like_a_row_by_row_evaluator(
    rows: list[dict[str, Any]], predicates: list[Predicate], symbols: Any
) -> None:
    table = table_of(rows, symbols)
    for predicate in predicates:
        bound = bind(predicate, FIELDS)
        expected = [row_outcome(predicate, row) for row in rows]
        assert filter_outcomes(bound, table) == expected, str(predicate)
        kept = [row for row, outcome in zip(range(len(rows)), expected, strict=True) if outcome]
        assert (
            filter_rows(bound, table.append_column("row", pa.array(range(len(rows)), pa.int64())))["row"].to_pylist()
            == kept
        )


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(st.none(), st.binary(max_size=5), st.text("aé\U0010ffff\ud7ff\ue000\0", max_size=3).map(str.encode))
    ),
    st.text("aé\U0010ffff\ud7ff\ue000\0", max_size=2),
)
def test_a_prefix_keeps_the_text_that_begins_with_its_bytes(values: list[bytes | None], prefix: str) -> None:
    encoded = prefix.encode()
    expected = [None if value is None else value.startswith(encoded) for value in values]
    bound = bind(col("text").starts_with(prefix), FIELDS)
    binary = pa.array(values, pa.binary())
    plain = pa.Array.from_buffers(
        pa.string(), len(values), binary.buffers(), binary.null_count
    )  # no UTF-8, as in bad files
    words = sorted({value for value in values if value is not None})
    indices = pa.array([None if value is None else words.index(value) for value in values], pa.int32())
    dictionary = pa.array(words, pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(words), dictionary.buffers(), 0)
    for column in (plain, pa.DictionaryArray.from_arrays(indices, text)):
        assert filter_outcomes(bound, pa.table({"text": column})) == expected


@settings(max_examples=60)
@given(
    st.lists(st.one_of(st.none(), st.text("ab\\\n%_é\0.\U0010ffff", max_size=4))), st.text("ab\\\n%_é\0.", max_size=4)
)
def test_a_pattern_keeps_the_text_that_has_its_form(values: list[str | None], pattern: str) -> None:
    expected = [None if value is None else has_form(value, pattern) for value in values]
    bound = bind(Like("text", pattern), FIELDS)
    column = pa.array(values, pa.string())
    for one in (column, column.dictionary_encode()):
        assert filter_outcomes(bound, pa.table({"text": one})) == expected


@settings(max_examples=25)
@given(st.lists(ROW, min_size=2, max_size=8), PREDICATES, st.data())
def test_chunks_and_slices_do_not_matter(rows: list[dict[str, Any]], predicate: Predicate, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    start = data.draw(st.integers(0, len(rows)))
    bound = bind(predicate, FIELDS)
    whole = table_of(rows, "dictionary")
    expected = [row_outcome(predicate, row) for row in rows]
    chunked = pa.concat_tables([table_of(rows[:cut], "dictionary"), table_of(rows[cut:], "dictionary")])
    assert filter_outcomes(bound, chunked) == expected
    assert filter_outcomes(bound, whole.slice(start)) == expected[start:]


def bound_of(predicate: Predicate) -> Any:
    return bind(predicate, FIELDS)


@functools.cache
def sample() -> pa.Table:
    return pa.table({"num": pa.array([1, 2, None], pa.int32()), "big": [10, 20, 30]})


def test_the_same_table_comes_back_when_every_row_matches() -> None:
    table = sample()
    assert filter_rows(bound_of(col("big") > 0), table) is table


def test_an_empty_table_of_the_same_schema_comes_back_when_no_row_matches() -> None:
    filtered = filter_rows(bound_of(col("num") > 5), sample())
    assert filtered.num_rows == 0
    assert filtered.schema == sample().schema


def test_unknown_is_not_kept() -> None:
    assert filter_rows(bound_of(col("num") != 1), sample())["big"].to_pylist() == [20]
    assert filter_rows(bound_of(~(col("num") == 1)), sample())["big"].to_pylist() == [20]


def test_thousands_of_listed_values() -> None:
    table = pa.table({"big": pa.array(range(0, 200_000, 2), pa.int64())})
    kept = filter_rows(bound_of(col("big").is_in(range(1, 200_000, 3))), table)
    assert kept["big"].to_pylist() == [number for number in range(0, 200_000, 2) if number % 3 == 1]


def test_a_missing_column_is_a_bug_of_ours() -> None:
    with pytest.raises(InternalError, match="'text'"):
        matching_rows(bound_of(col("text") == "a"), sample())


def large_table(rows: int) -> pa.Table:
    random = np.random.default_rng(1)
    some_null = random.random(rows) < 0.1
    return pa.table(
        {
            "num": pa.array(random.integers(0, 100, rows).astype(np.int32), mask=some_null),
            "price": pa.array(random.random(rows), mask=random.random(rows) < 0.1),
            "text": pa.array([f"text {number % 7}" for number in range(rows)], mask=some_null),
            "sym": pa.array([f"s{number % 5}" for number in range(rows)], mask=some_null).dictionary_encode(),
            "id": pa.array([bytes(15) + bytes([number % 3]) for number in range(rows)], pa.binary(16)),
        }
    )


@pytest.mark.parametrize(
    "predicate",
    [
        (col("text") == "text 3") & (col("num") < 2) & (col("id") == UUID(int=1)),
        (col("text") != "text 3") & ((col("num") < 2) | (col("price") > 0.99)) & (col("sym") == "s1"),
        (col("num") < 1) & ~((col("text") == "text 3") & (col("price") < 0.5)),
        (col("num") < 50) & (col("text") != "text 3") & (col("price") < 0.5),
        (col("num") > 1000) & (col("text") == "text 3"),
        (col("text").is_in(["text 1", "text 2"]) | (col("num") >= 0)) & (col("price") < 2),
    ],
    ids=str,
)
def test_rows_that_are_left_for_later_parts_are_the_right_ones(predicate: Predicate) -> None:
    table = large_table(5000)
    expected = [row_outcome(predicate, row) for row in table.to_pylist()]
    bound = bound_of(predicate)
    for chunks in (table, pa.concat_tables([table.slice(0, 1234), table.slice(1234)]).unify_dictionaries()):
        assert filter_outcomes(bound, chunks) == expected
        matching = matching_rows(bound, chunks)
        assert matching.null_count == 0
        assert matching.to_pylist() == [outcome is True for outcome in expected]


def test_cheap_and_selective_parts_come_first() -> None:
    text, several = col("text") == "a", col("num").is_in([1, 2, 3])
    number, most_numbers, null = col("num") == 1, col("num") != 1, col("text").is_null()
    schema = large_table(1).schema

    def ordered(parts: list[Predicate], *, of_and: bool) -> list[str]:
        return [
            str(part) for part in _PredicateCosts(schema).in_order([bound_of(part) for part in parts], of_and=of_and)
        ]

    assert ordered([text, several, most_numbers, number, null], of_and=True) == [
        str(bound_of(part)) for part in (null, number, several, text, most_numbers)
    ]
    assert ordered([text, most_numbers, number], of_and=False) == [
        str(bound_of(part)) for part in (most_numbers, number, text)
    ]
    assert ordered([text & number, null | text, ~null, Literal(value=False)], of_and=True)[0] == "FALSE"
