"""Random queries: each engine gives the same rows for our table and for the same data in memory."""

from __future__ import annotations

# ruff: noqa: S608 - the conditions are made here
import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from msgspec import Struct

import coldparquet as cp
import coldparquet.duckdb
from tests.support.odd_table import FLOATS, odd_rows

SCHEMA = odd_rows().schema
NOON = dt.datetime(2024, 3, 1, 12)  # noqa: DTZ001 - the column has no zone
LITERALS: dict[str, tuple[Any, ...]] = {
    "ts": (NOON, NOON + dt.timedelta(hours=7, minutes=4), NOON + dt.timedelta(days=9)),
    "d": (*FLOATS, -float("inf"), 1e300),
    "f": (1.0, 2.5, -3.0, 0.0, 0.1),
    "i": (-5, 0, 3, 4, 99),
    "small": (-3, 0, 2, 40_000),
    "big": (2**53 - 2, 2**53, 2**53 + 1),
    "s": ("a", "B", "é", "", "zz", "m"),
    "symbol": ("BTC", "ETH", "SOL", "XRP"),
    "day": (dt.date(2024, 3, 1), dt.date(2024, 3, 2), dt.date(2024, 10, 4)),
    "m": (Decimal("1.25"), Decimal("-3.00"), Decimal("0.50"), Decimal("9.75")),
}
OPERATORS = {"=": "eq", "<>": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
SHOWN = ("i", "s", "symbol", "m", "b", "day", "big")
"""Columns whose values compare as Python's do: no NaN."""
ROUNDS = [pytest.param(range(10), id="quick"), pytest.param(range(10, 2_010), id="soak", marks=pytest.mark.soak)]


class Condition(Struct, frozen=True):
    """One condition, as each engine writes it."""

    sql: str
    polars: Any
    arrow: Any


def _sql(name: str, value: Any) -> str:
    match value:
        case float():
            return f"CAST('{value}' AS {'REAL' if name == 'f' else 'DOUBLE'})"
        case dt.datetime():
            return f"TIMESTAMP '{value}'"
        case dt.date():
            return f"DATE '{value}'"
        case str():
            return f"'{value}'"
        case Decimal():
            return f"CAST({value} AS DECIMAL(10, 2))"
    return str(value)


def _arrow(name: str, value: Any) -> Any:
    wider = {"small": pa.int32(), "symbol": pa.string()}
    return pa.scalar(value, wider.get(name, SCHEMA.field(name).type))


def _leaf(draw: random.Random) -> Condition:
    name = draw.choice([*LITERALS, "b"])
    column, field = pl.col(name), pc.field(name)
    kind = draw.choice(["compare", "compare", "compare", "compare", "in", "null", "prefix"])
    if kind == "null":
        return Condition(f"{name} IS NULL", column.is_null(), field.is_null())
    if name == "b":
        return Condition("b", column, field)
    if kind == "prefix" and name == "s":
        text = draw.choice(["z", "a", "é"])
        return Condition(f"s LIKE '{text}%'", column.str.starts_with(text), pc.starts_with(field, text))
    if kind == "in" and name not in ("d", "f"):
        values = draw.sample(LITERALS[name], draw.randint(1, 3))
        listed = pa.array([_arrow(name, value).as_py() for value in values], _arrow(name, values[0]).type)
        return Condition(
            f"{name} IN ({', '.join(_sql(name, value) for value in values)})",
            column.is_in(values),
            pc.is_in(field, value_set=listed),
        )
    value, sign = draw.choice(LITERALS[name]), draw.choice([*OPERATORS])
    literal = pl.lit(value, pl.Float32) if name == "f" else pl.lit(value)
    compare = {
        "eq": pc.equal,
        "ne": pc.not_equal,
        "lt": pc.less,
        "le": pc.less_equal,
        "gt": pc.greater,
        "ge": pc.greater_equal,
    }
    return Condition(
        f"{name} {sign} {_sql(name, value)}",
        getattr(column, OPERATORS[sign])(literal),
        compare[OPERATORS[sign]](field, _arrow(name, value)),
    )


def _condition(draw: random.Random, depth: int = 3) -> Condition:
    kind = draw.choice(["leaf", "and", "or", "not"]) if depth else "leaf"
    if kind == "leaf":
        return _leaf(draw)
    if kind == "not":
        part = _condition(draw, depth - 1)
        return Condition(f"NOT ({part.sql})", ~part.polars, ~part.arrow)
    parts = [_condition(draw, depth - 1) for _ in range(draw.randint(2, 3))]
    joined = f" {kind.upper()} ".join(f"({part.sql})" for part in parts)
    if kind == "and":
        return Condition(
            joined,
            reduce(lambda one, other: one & other, [part.polars for part in parts]),
            reduce(lambda one, other: one & other, [part.arrow for part in parts]),
        )
    return Condition(
        joined,
        reduce(lambda one, other: one | other, [part.polars for part in parts]),
        reduce(lambda one, other: one | other, [part.arrow for part in parts]),
    )


def _ask_all(seeds: range, ask: Callable[[Condition, list[str], int | None], tuple[Any, Any]]) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        condition = _condition(draw)
        columns = ["ts", *draw.sample(SHOWN, draw.randint(0, 3))]
        limit = draw.choice([None, None, None, 0, 1, 7, 300])
        found, expected = ask(condition, columns, limit)
        assert found == expected, f"seed {seed}: {columns} where {condition.sql}, limit {limit}"


@pytest.mark.parametrize("seeds", ROUNDS)
def test_pyarrow(odd: cp.sync.Table, seeds: range) -> None:
    dataset, memory = odd.to_pyarrow_dataset(), ds.dataset(odd_rows())

    def ask(condition: Condition, columns: list[str], limit: int | None) -> tuple[Any, Any]:
        expected = memory.to_table(columns, filter=condition.arrow)
        if limit is not None:
            found = dataset.head(limit, columns, filter=condition.arrow)
            return found.to_pylist(), expected.slice(0, limit).to_pylist()
        counted = dataset.count_rows(condition.arrow)
        return (dataset.to_table(columns, filter=condition.arrow).to_pylist(), counted), (
            expected.to_pylist(),
            len(expected),
        )

    _ask_all(seeds, ask)


@pytest.mark.parametrize("seeds", ROUNDS)
def test_polars(odd: cp.sync.Table, seeds: range) -> None:
    frame: Any = pl.from_arrow(odd_rows().drop_columns(["wide"]))

    def ask(condition: Condition, columns: list[str], limit: int | None) -> tuple[Any, Any]:
        found, expected = odd.lazy().filter(condition.polars), frame.filter(condition.polars)
        if limit is not None:
            found, expected = found.head(limit), expected.head(limit)
        return found.select(columns).collect().rows(), expected.select(columns).rows()

    _ask_all(seeds, ask)


def _in_sql(run: Callable[[str], list[Any]]) -> Callable[[Condition, list[str], int | None], tuple[Any, Any]]:
    def ask(condition: Condition, columns: list[str], limit: int | None) -> tuple[Any, Any]:
        tail = "" if limit is None else f" LIMIT {limit}"
        rows = [
            run(f"SELECT {', '.join(columns)} FROM {name} WHERE {condition.sql} ORDER BY ts{tail}")
            for name in ("cold", "memory")
        ]
        counts = [run(f"SELECT count(*) AS n FROM {name} WHERE {condition.sql}") for name in ("cold", "memory")]
        some = run(f"SELECT ts FROM cold WHERE {condition.sql} LIMIT 3")
        return (rows[0], counts[0], len(some)), (rows[1], counts[1], min(3, counts[1][0]["n"]))

    return ask


@pytest.mark.parametrize("seeds", ROUNDS)
def test_duckdb(odd: cp.sync.Table, seeds: range) -> None:
    connection = duckdb.connect()
    connection.register("arrow", odd_rows().drop_columns(["wide"]))
    connection.execute("CREATE TABLE memory AS SELECT * FROM arrow")
    cp.duckdb.register(connection, "cold", odd)
    ask = _in_sql(lambda query: connection.sql(query).to_arrow_table().to_pylist())

    def ask_or_be_refused(condition: Condition, columns: list[str], limit: int | None) -> tuple[Any, Any]:
        try:
            return ask(condition, columns, limit)
        except duckdb.Error as error:
            if "compares with NaN" not in str(error) or "'nan'" not in condition.sql:
                raise
            return None, None

    _ask_all(seeds, ask_or_be_refused)


@pytest.mark.parametrize("seeds", ROUNDS)
def test_datafusion(odd: cp.sync.Table, seeds: range) -> None:
    context = datafusion.SessionContext()
    context.register_dataset("cold", odd.to_pyarrow_dataset(nan="largest"))
    context.register_record_batches("memory", [odd_rows().to_batches()])
    _ask_all(seeds, _in_sql(lambda query: context.sql(query).to_arrow_table().to_pylist()))
