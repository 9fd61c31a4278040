"""Expressions of pyarrow select the rows that pyarrow selects, and fewer row groups are read."""

from __future__ import annotations

import datetime as dt
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.errors import InvalidInputError
from coldparquet.expressions.predicate import translate
from tests.support.odd_table import FIRST_US, FLOATS, odd_rows

field = pc.field


def _call(function: str, *arguments: Any) -> Any:
    """Call a function for which pyarrow has no way to write an expression, as engines do."""
    expressions: Any = pc.Expression
    return expressions._call(function, list(arguments))


NOON = dt.datetime(2024, 3, 1, 12)  # noqa: DTZ001 - the column has no zone

EXACT: dict[str, Any] = {
    "greater": field("d") > 1,
    "not NaN": ~(field("d") > 1),
    "an infinite": field("d") == float("inf"),
    "rounded": field("f") == 2.5,
    "half": field("i") > 2.5,
    "flipped": pc.scalar(2) < field("i"),
    "in": field("i").isin([1, 2]),
    "not in": ~field("i").isin([1, 2]),
    "in with null": field("i").isin([1, None]),
    "not in with null": ~field("i").isin([1, None]),
    "skips null": ~pc.is_in(field("i"), value_set=pa.array([1, None]), skip_nulls=True),
    "null alone": field("i").isin(pa.array([None], pa.int64())),
    "nothing": field("i").isin(pa.array([], pa.int64())),
    "is null": field("wide").is_null(),
    "is valid": field("raw").is_valid(),
    "equals null": field("i") == pa.scalar(None, pa.int64()),
    "text": field("s") == "é",
    "text after": field("s") > "B",
    "no text": field("s") == "",
    "prefix": pc.starts_with(field("s"), "z"),
    "prefix of all": pc.starts_with(field("s"), ""),
    "last character": pc.starts_with(field("s"), "z\U0010ffff"),
    "symbol": field("symbol") == "BTC",
    "symbols": field("symbol").isin(["BTC", "XRP"]),
    "condition": field("b"),
    "not": ~field("b"),
    "boolean": field("b") == pa.scalar(value=False),
    "nanoseconds": field("n") > pa.scalar(FIRST_US * 1000 + 400, pa.timestamp("ns")),
    "microsecond": field("n") == pa.scalar(FIRST_US, pa.timestamp("us")),
    "time": field("ts") < NOON,
    "date": field("ts") >= dt.date(2024, 3, 2),
    "day": field("day") == dt.date(2024, 3, 1),
    "zoned": field("zoned") == dt.datetime(2024, 3, 1, tzinfo=dt.UTC),
    "decimal": field("m") > pa.scalar("1.25").cast(pa.decimal128(10, 2)),
    "finer decimal": field("m") > pa.scalar("1.255").cast(pa.decimal128(10, 3)),
    "large": field("big") == 2**53 + 1,
    "bytes": field("raw") == b"a",
    "and or": ((field("i") > 3) | (field("s") == "a")) & field("d").is_valid(),
    "not and": ~((field("i") > 0) & (field("d") < 2)),
    "true": pc.scalar(value=True),
    "true or": (field("i") > 3) | pc.scalar(value=True),
    "many": reduce(lambda one, other: one | other, [field("big") == 2**53 + step for step in range(1500)]),
}
INEXACT: dict[str, Any] = {
    "zero in a list": field("d").isin([0.0, 1.0]),
    "NaN": field("d") == pa.scalar(float("nan")),
    "no float32": field("f") == 0.1,
    "columns": field("d") > field("i"),
    "sum": field("i") + 1 > 2,
    "is NaN": field("d").is_nan(),
    "null or NaN": field("d").is_null(nan_is_null=True),
    "any case": pc.starts_with(field("s"), "Z", ignore_case=True),
    "decimal and double": field("m") > 1.255,
    "order of bytes": field("raw") > b"a",
    "order of booleans": field("b") > pa.scalar(value=False),
    "xor": pc.xor(field("b"), field("i") > 3),
    "null and": ~_call("and", field("b"), field("i") > 3),
    "null or": _call("or", field("b"), field("i") > 3),
    "part of an AND": (field("i") > 0) & (pc.utf8_length(field("s")) == 2),
    "part of an OR": (field("i") > 0) | (pc.utf8_length(field("s")) == 2),
}


@pytest.mark.parametrize("name", EXACT)
def test_rows_are_those_of_pyarrow(odd: cp.sync.Table, name: str) -> None:
    expression = EXACT[name]
    expected = ds.dataset(odd_rows()).to_table(filter=expression)["ts"]
    assert odd.scan(["ts"], expression).to_arrow()["ts"].to_pylist() == expected.to_pylist()
    assert odd.to_pyarrow_dataset().to_table(["ts"], filter=expression)["ts"].to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("name", INEXACT)
def test_what_is_not_understood_is_left_to_pyarrow(odd: cp.sync.Table, name: str) -> None:
    expression = INEXACT[name]
    assert not translate(expression, odd.schema).is_exact
    expected = ds.dataset(odd_rows()).to_table(filter=expression)["ts"]
    dataset = odd.to_pyarrow_dataset()
    assert dataset.to_table(["ts"], filter=expression)["ts"].to_pylist() == expected.to_pylist()
    assert dataset.count_rows(expression) == len(expected)
    with pytest.raises(InvalidInputError, match="not understood here"):
        odd.scan(["ts"], expression)


def test_the_error_names_the_part(odd: cp.sync.Table) -> None:
    with pytest.raises(InvalidInputError, match=r"equal\(\) of utf8_length\(\); understood are"):
        odd.scan(["ts"], (field("i") > 0) & (pc.utf8_length(field("s")) == 2))
    with pytest.raises(InvalidInputError, match=r"a comparison of 'ts', which is timestamp.us., with 'x' as string"):
        odd.scan(["ts"], field("ts") > "x")
    with pytest.raises(InvalidInputError, match="the column 'nowhere'"):
        odd.scan(["ts"], field("nowhere") > 1)
    with pytest.raises(InvalidInputError, match="nested_field_ref"):
        odd.scan(["ts"], field("a", "b") > 1)


_LITERALS: dict[str, list[Any]] = {
    "d": [*FLOATS, 1, 2**53, None],
    "f": [0.1, 1.0, 2, None],
    "i": [-5, 0, 2.5, 3, None],
    "small": [-3, 0, 40_000, None],
    "big": [2**53, 2**53 + 1, 2.0**53, 0],
    "s": ["a", "B", "é", "", "zz", None],
    "symbol": ["BTC", "SOL", "nothing"],
    "ts": [NOON, dt.date(2024, 3, 2)],
    "n": [NOON, dt.datetime(2024, 3, 1)],  # noqa: DTZ001
    "m": [1, 2],
}


@st.composite
def comparisons(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(sorted(_LITERALS)))
    column, literals = field(name), st.sampled_from(_LITERALS[name])
    match draw(st.integers(0, 8)):
        case 0:
            return column.is_null()
        case 1:
            values = draw(st.lists(literals, min_size=1, max_size=3))
            type_ = odd_rows().schema.field(name).type
            try:
                listed = pa.array(values, type_.value_type if pa.types.is_dictionary(type_) else type_)
            except (pa.ArrowException, TypeError):
                return column.is_valid()
            return pc.is_in(column, value_set=listed, skip_nulls=draw(st.booleans()))
        case choice:
            value = pa.scalar(draw(literals))
            if not value.is_valid:
                value = pa.scalar(None, pa.int64() if name in "difsmallbig" and name != "s" else pa.string())
            compare = (pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal, pc.equal)[
                choice - 2
            ]
            return compare(column, value)


@given(
    st.recursive(
        comparisons(),
        lambda parts: st.one_of(
            parts.map(lambda part: ~part),
            st.tuples(parts, parts).map(lambda two: two[0] & two[1]),
            st.tuples(parts, parts).map(lambda two: two[0] | two[1]),
            st.tuples(parts, parts).map(lambda two: _call("and", *two)),
            st.tuples(parts, parts).map(lambda two: _call("or", *two)),
        ),
        max_leaves=6,
    )
)
@settings(max_examples=150, deadline=None)
def test_any_expression_keeps_the_rows_of_pyarrow(expression: Any) -> None:
    try:
        expected = ds.dataset(_ROWS).to_table(filter=expression)["ts"].to_pylist()
    except pa.ArrowException:
        return  # pyarrow itself does not compare these
    dataset = _shared().to_pyarrow_dataset()
    assert dataset.to_table(["ts"], filter=expression)["ts"].to_pylist() == expected
    found = translate(expression, _shared().schema)
    kept = _shared().scan(["ts"], found.predicate).to_arrow()["ts"].to_pylist()
    assert (kept == expected) if found.is_exact else (set(expected) <= set(kept))


_ROWS = odd_rows()
_OPEN: list[cp.sync.Table] = []


@pytest.fixture(scope="module", autouse=True)
def _shared_table(odd_path: Any) -> Any:
    with cp.sync.open_table(str(odd_path)) as table:
        _OPEN.append(table)
        yield
        _OPEN.clear()


def _shared() -> cp.sync.Table:
    return _OPEN[0]
