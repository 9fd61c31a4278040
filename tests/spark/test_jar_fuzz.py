"""Random queries with coldparquet's jar, against Spark's own reader on the same rows."""
# ruff: noqa: S608 - random SQL is what it makes

from __future__ import annotations

import asyncio
import json
import math
import random
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

import coldparquet.spark
from coldparquet.maintenance.index import index_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAYS, ROWS, TOGETHER = 4, 300, 10
DAY_US = 86_400_000_000
FIRST_US = 20_148 * DAY_US  # 2025-03-01
TEXTS = ["", "a", "ab", "abc", "b%", "it's", 'a"b', "é", "z\U0001f600", "\uffff", None]
NUMBERS = [-1.5, 0.0, 0.1, 2.5, 2.5, 1e300, math.nan, math.inf, -math.inf, None]
DECIMALS = ["-1.25", "0.00", "2.50", "99999999.99", None]


def rows_of(day: int, numbers: random.Random) -> pa.Table:
    start = FIRST_US + day * DAY_US
    ts = [start + row * (DAY_US // ROWS) for row in range(ROWS)]

    def some(values: list[Any], null_share: float = 0.1) -> list[Any]:
        return [None if numbers.random() < null_share else numbers.choice(values) for _ in range(ROWS)]

    rows = pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "ntz": pa.array(some(ts), pa.timestamp("us")),
            "ns": pa.array(
                [value and value * 1000 + numbers.randrange(1000) for value in some(ts)], pa.timestamp("ns", "UTC")
            ),
            "n": pa.array(some([*range(-20, 20), 2**63 - 1, -(2**63)]), pa.int64()),
            "i": pa.array([day * 100 + numbers.randrange(150) for _ in range(ROWS)], pa.int32()),
            "t": pa.array(some(list(range(-128, 128, 16))), pa.int8()),
            "f": pa.array(some(NUMBERS), pa.float64()),
            "g": pa.array(some(NUMBERS), pa.float32()),
            "s": pa.array(some(TEXTS)),
            "b": pa.array(some([True, False])),
            "d": pa.array(some([20_140 + numbers.randrange(20) for _ in range(9)]), pa.int32()).cast(pa.date32()),
            "dec": pa.array(some(DECIMALS)).cast(pa.decimal128(10, 2)),
            "st": pa.array(
                some([{"x": number, "y": text} for number in (1, 7, None) for text in ("a", None)]),
                pa.struct([("x", pa.int64()), ("y", pa.string())]),
            ),
        }
    )
    return rows.cast(rows.schema.set(0, rows.schema.field(0).with_nullable(False)))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four days of thirteen columns in row groups of 100 rows, with what is easily mistaken."""
    directory, numbers = tmp_path_factory.mktemp("fuzz") / "rows", random.Random(18)
    for day in range(DAYS):
        partition = directory / str(np.datetime64(FIRST_US + day * DAY_US, "us").astype("datetime64[D]"))
        partition.mkdir(parents=True)
        pq.write_table(
            rows_of(day, numbers),
            partition / "data.parquet",
            row_group_size=ROWS // 3,
            sorting_columns=[pq.SortingColumn(0)],
        )
    asyncio.run(index_table(directory, pages=False, pack=False))
    return directory


class Queries:
    """Makes random SQL about a view ``rows``."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def query(self) -> str:
        where, pick = self.condition(3), self._random.choice
        some = ", ".join(self._random.sample(["ts", "n", "i", "f", "s", "b", "d", "dec", "ns", "ntz", "st", "st.x"], 3))
        return pick(
            [
                f"select {some} from rows where {where}",
                f"select {some} from rows where {where}",
                f"select count(*) as c from rows where {where}",
                f"select {self.aggregates()} from rows where {where}",
                f"select {self.aggregates()} from rows where {self.time()} and {self.time()}",
                f"select {self.aggregates()} from rows where {self.time()}",
                f"select s, {self.aggregates()} from rows where {where} group by s",
                f"select count(*) as c, count_if({where}) as d from (select * from rows where {where} limit {pick([1, 5, 150, 900])})",
                f"select i from rows where {where} union all select i from rows where {self.condition(1)}",
                f"select a.i, b.n from rows a join (select ts, n from rows where {self.leaf_of('n')}) b on a.ts = b.ts where a.i < 60",
                f"select count(*) as c from rows where i in (select i from rows where {where})",
                f"select i, ts from rows where {where} order by ts desc, i limit 7",
            ]
        )

    def aggregates(self) -> str:
        every = [
            "count(*)",
            "count(n)",
            "count(f)",
            "count(s)",
            "count(ns)",
            "count(dec)",
            "max(ts)",
            "min(ts)",
            "min(n)",
            "max(n)",
        ]
        every += [
            "max(i)",
            "min(t)",
            "max(d)",
            "min(ntz)",
            "max(ns)",
            "min(ns)",
            "max(s)",
            "max(dec)",
            "max(b)",
            "count(distinct i)",
            "count(st)",
            "max(st.x)",
        ]
        chosen = self._random.sample(every, self._random.randint(1, 4))
        return ", ".join(f"{one} as c{number}" for number, one in enumerate(chosen))

    def condition(self, depth: int) -> str:
        kind = self._random.random()
        if kind < 0.05:
            return self._random.choice(["st.x > 1", "st is null", "st.y = 'a'", "st.x is null and st is not null"])
        if depth == 0 or kind < 0.4:
            return self.leaf_of(self._random.choice(["ts", "ntz", "ns", "n", "i", "t", "f", "g", "s", "b", "d", "dec"]))
        parts = [self.condition(depth - 1) for _ in range(self._random.randint(2, 3))]
        if kind < 0.5:
            return f"not ({parts[0]})"
        return "(" + (" and " if kind < 0.75 else " or ").join(parts) + ")"

    def leaf_of(self, column: str) -> str:
        pick, value = self._random.choice, self.value
        operator = pick(["=", "<>", "<", "<=", ">", ">=", "<=>"])
        leaves = [
            f"{column} {operator} {value(column)}",
            f"{value(column)} {operator.replace('<=>', '=')} {column}",
            f"{column} between {value(column)} and {value(column)}",
            f"{column} in ({', '.join(value(column) for _ in range(pick([1, 2, 14])))})",
            f"{column} not in ({value(column)}, {value(column)})",
            f"{column} is {pick(['', 'not '])}null",
            f"{column} {operator} null",
        ]
        if column == "s":
            like = pick(["a%", "ab%", "%b", "b\\\\%%", "_", "z%", "%"])
            leaves += [f"s like '{like}'", "s like 'a%' or s is null", "length(s) > 1"]
        if column in ("ts", "ntz", "ns"):
            leaves += [f"date({column}) {operator} {value('d')}", f"hour({column}) < 5", self.time()]
        if column == "b":
            leaves = ["b", "not b", "b = true", "b <=> false", "b is null", "b <> true", "b <= false", "b in (true)"]
        if column in ("n", "i", "t"):
            leaves += [f"{column} % 3 = 1", f"{column} {operator} {pick(['2.5', '1e300', '-7L', '5000000000'])}"]
        return pick(leaves)

    def value(self, column: str) -> str:  # noqa: PLR0911 - one case per type
        pick = self._random.choice
        moment = FIRST_US + self._random.randrange(-1, DAYS * 8 + 1) * (DAY_US // 8) + pick([0, 0, 1, 999_999])
        text = str(np.datetime64(moment, "us")).replace("T", " ")
        match column:
            case "ts" | "ns":
                return pick([f"timestamp'{text}'", f"'{text}'", f"timestamp'{text} +05:30'"])
            case "ntz":
                return pick(
                    [f"timestamp_ntz'{text}'", f"'{text}'", f"timestamp'{text}'", f"timestamp'{text} America/New_York'"]
                )
            case "d":
                return f"date'{text[:10]}'"
            case "f" | "g":
                special = ["double('NaN')", "double('Infinity')", "-double('Infinity')", "float(0.1)"]
                return pick(["-1.5D", "0.0D", "0.1D", "2.5", "1e300", "3", "0", *special])
            case "s":
                return pick(["''", "'a'", "'ab'", "'it\\'s'", "'a\"b'", "'é'", "'\U0001f600'", "'z'", "'b%'"])
            case "dec":
                return pick(["-1.25", "0", "2.5", "99999999.99", "1e9", "2.505"])
            case "t":
                return pick(["-128", "0", "127", "300", "-16"])
        return str(self._random.randint(-25, 400))

    def time(self) -> str:
        return f"ts {self._random.choice(['<', '<=', '>', '>='])} {self.value('ts')}"


def compare(spark: SparkSession, table: Path, copy: str, seeds: range) -> None:
    """Ask the same of both, several queries in one job."""
    for start in seeds[::TOGETHER]:
        queries = [Queries(seed).query() for seed in range(start, min(start + TOGETHER, seeds.stop))]
        spark.read.format("coldparquet").load(str(table)).createOrReplaceTempView("rows")
        found = answers(spark, queries)
        spark.read.parquet(copy).createOrReplaceTempView("rows")
        expected = answers(spark, queries)
        for number, query in enumerate(queries):
            assert found[number] == expected[number], f"seed {start + number}: {query}"


def answers(spark: SparkSession, queries: list[str]) -> list[list[str]]:
    """Return the rows of each query, sorted."""
    frames = [
        spark.sql(query).select(F.lit(number).alias("number"), F.to_json(F.struct("*")).alias("row"))
        for number, query in enumerate(queries)
    ]
    rows = reduce(DataFrame.unionAll, frames).collect()
    return [sorted(row["row"] for row in rows if row.number == number) for number in range(len(queries))]


@pytest.fixture
def copy(spark: SparkSession, table: Path, tmp_path: Path) -> str:
    """The same rows as Spark writes them: its reader takes no nanoseconds."""
    coldparquet.spark.read(spark, str(table)).write.parquet(str(tmp_path / "copy"))
    return str(tmp_path / "copy")


@pytest.mark.slow
def test_random_queries(spark_with_jar: SparkSession, table: Path, copy: str) -> None:
    compare(spark_with_jar, table, copy, range(30))


@pytest.mark.soak
def test_two_thousand_random_queries(spark_with_jar: SparkSession, table: Path, copy: str) -> None:
    compare(spark_with_jar, table, copy, range(30, 2030))


def test_ten_thousand_values_and_deep_conditions(spark_with_jar: SparkSession, table: Path, copy: str) -> None:
    many = ", ".join(map(str, range(0, 30_000, 3)))
    chain = " or ".join(f"(n = {number} and i <> {number})" for number in range(60))
    nested = "n = 1"
    for number in range(50):
        nested = f"({nested} or n = {number} {'and' if number % 2 else 'or'} i > {number})"
    queries = [f"select i from rows where {where}" for where in (f"i in ({many})", chain, nested)]
    spark_with_jar.read.format("coldparquet").load(str(table)).createOrReplaceTempView("rows")
    found = answers(spark_with_jar, queries)
    spark_with_jar.read.parquet(copy).createOrReplaceTempView("rows")
    assert found == answers(spark_with_jar, queries)
    assert json.loads(found[0][0])["i"] % 3 == 0
