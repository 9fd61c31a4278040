"""Engines that ask our tables give the rows that they give for the same data in memory."""

from __future__ import annotations

import datetime as dt
import io
import pickle
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
import coldparquet.duckdb
import coldparquet.polars
from coldparquet.errors import InvalidInputError, UnsupportedError
from tests.support.odd_table import odd_rows
from tests.support.questdb_tables import GOLDEN, plain

c, lit, NAN = pl.col, pl.lit, float("nan")
DAY = dt.datetime(2024, 3, 1)  # noqa: DTZ001 - the column has no zone

POLARS: dict[str, Any] = {
    **{f"d {sign} 1": getattr(c("d"), name)(1) for sign, name in
       ((">", "gt"), (">=", "ge"), ("<", "lt"), ("<=", "le"), ("=", "eq"), ("!=", "ne"))},
    "not d > 1": ~(c("d") > 1),
    "d = 0": c("d") == 0.0,
    "d in zeros": c("d").is_in([0.0, 1.0]),
    "d = NaN": c("d") == NAN,
    "d < NaN": c("d") < NAN,
    "d is NaN": c("d").is_nan(),
    "d is not NaN": c("d").is_not_nan(),
    "d > inf": c("d") > float("inf"),
    "f = 0.1": c("f") == 0.1,
    "f > 0.1": c("f") > 0.1,
    "f = 1": c("f") == 1,
    "f >= float32": c("f") >= lit(0.1, pl.Float32),
    "i in": c("i").is_in([1, 2]),
    "i not in": ~c("i").is_in([1, 2]),
    "i in null": c("i").is_in([1, None]),
    "i not in null": ~c("i").is_in([1, None]),
    "i in none": c("i").is_in([]),
    "small in large": c("small").is_in([40_000]),
    "f in rounded": c("f").is_in([0.1]),
    "i in null, equal": c("i").is_in([1, None], nulls_equal=True),
    "i is null": c("i").is_null(),
    "i = null": c("i") == lit(None),
    "i is 1 or null": c("i").eq_missing(1),
    "i is not 1": c("i").ne_missing(1),
    "i > 2.5": c("i") > 2.5,
    "i between": c("i").is_between(-1, 2, closed="right"),
    "small > i": c("small") > c("i"),
    "s = B": c("s") == "B",
    "s > B": c("s") > "B",
    "s in": c("s").is_in(["a", "é"]),
    "s begins": c("s").str.starts_with("z"),
    "s contains": c("s").str.contains("z"),
    "s is empty": c("s") == "",
    "symbol": c("symbol") == "BTC",
    "symbol > ": c("symbol") > "BTC",
    "symbols": c("symbol").is_in(["BTC", "XRP"]),
    "not symbols": ~c("symbol").is_in(["BTC", "XRP"]),
    "b": c("b"),
    "not b": ~c("b"),
    "b = false": c("b") == lit(value=False),
    "b or i": c("b") | (c("i") > 3),
    "b xor i": c("b") ^ (c("i") > 3),
    "n = day": c("n") == DAY,
    "n > microsecond": c("n") > DAY + dt.timedelta(microseconds=1),
    "ts <": c("ts") < DAY + dt.timedelta(hours=5),
    "ts >= date": c("ts") >= dt.date(2024, 3, 2),
    "hour": c("ts").dt.hour() == 3,
    "date": c("ts").dt.date() == dt.date(2024, 3, 1),
    "zoned": c("zoned") > dt.datetime(2024, 3, 1, tzinfo=dt.UTC),
    "day": c("day") == dt.date(2024, 3, 1),
    "m > decimal": c("m") > Decimal("1.25"),
    "m > finer": c("m") > Decimal("1.255"),
    "m > float": c("m") > 1.255,
    "m > integer": c("m") > 1,
    "wide": c("wide") == "1",
    "big =": c("big") == 2**53 + 1,
    "big > float": c("big") > float(2**53),
    "raw": c("raw") == b"a",
    "raw >": c("raw") > b"a",
    "sum": c("i") + 1 > 2,
    "and mixed": (c("i") > 0) & (c("s").str.len_chars() == 2) & (c("d") > 1),
    "or and": ((c("i") > 3) | (c("s") == "a")) & c("d").is_not_null(),
}  # fmt: skip

SQL = (
    *(f"d {sign} 1" for sign in ("=", "<>", "<", "<=", ">", ">=")),
    *("NOT (d > 1)", "d = 0", "d = 'nan'::double", "d < 'nan'::double", "isnan(d)", "d IN (1.0, 2.5)", "d IN (0.0, 1.0)"),
    *("d > 1 OR d IS NULL", "NOT (d > 1 OR i IN (1, 2))", "f = 0.1", "f > 0.1", "f = 1", "f = 0.1::float", "f >= 2.5"),
    *("i IN (1, 2)", "i NOT IN (1, 2)", "i IN (1, NULL)", "i IS NULL", "i IS NOT NULL", "i IS DISTINCT FROM 1", "i > 2.5"),
    *("i BETWEEN -1 AND 2", "small > 40000", "small IN (-3, 2)", "s = 'B'", "s > 'B'", "s IN ('a', 'é')", "s LIKE 'z%'"),
    *("NOT starts_with(symbol, 'B')", "ts::date = '2024-03-02'"),
    *("s <> 'a'", "s = ''", "symbol = 'BTC'", "symbol IN ('BTC', 'XRP')", "symbol > 'BTC'", "b", "NOT b", "b OR i > 3"),
    *("b IN (true)", "n = '2024-03-01'", "n > TIMESTAMP_NS '2024-03-01 00:00:00.0000004'", "ts < '2024-03-01 05:00'"),
    *("ts >= DATE '2024-03-02'", "hour(ts) = 3", "zoned > TIMESTAMPTZ '2024-03-01 00:00:00+00'", "day = DATE '2024-03-01'"),
    *("m > 1.25", "m = 1.2", "m > 1.255", "m > 1", "m IN (1.50, 0.5)", "big = 9007199254740993", "big > 9007199254740992.0"),
    *("d > i", "i + 1 > 2", "i > 0 AND length(s) = 2 AND d > 1", "(i > 3 OR s = 'a') AND d IS NOT NULL", "raw = 'a'::blob"),
)  # fmt: skip


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    rows = odd_rows()
    frame = pl.from_arrow(rows.set_column(rows.schema.get_field_index("wide"), "wide", rows["wide"].cast(pa.string())))
    assert isinstance(frame, pl.DataFrame)
    return frame


@pytest.mark.parametrize("name", POLARS)
def test_polars_negated(odd: cp.sync.Table, frame: pl.DataFrame, name: str) -> None:
    for condition in (~POLARS[name], ~(POLARS[name] | (c("d") > 1)), ~(POLARS[name] & (c("d") > 1))):
        assert odd.lazy().filter(condition).collect().equals(frame.filter(condition))


@pytest.mark.parametrize("name", POLARS)
def test_polars(odd: cp.sync.Table, frame: pl.DataFrame, name: str) -> None:
    expected = frame.lazy().filter(POLARS[name]).collect()
    assert odd.lazy().filter(POLARS[name]).collect().equals(expected)
    assert odd.lazy().filter(POLARS[name]).select("m", "i").collect().equals(expected.select("m", "i"))
    assert odd.lazy().filter(POLARS[name]).head(7).collect().equals(expected.head(7))
    assert odd.lazy().head(50).filter(POLARS[name]).collect().equals(frame.head(50).filter(POLARS[name]))
    assert odd.lazy().filter(POLARS[name]).select(pl.len()).collect().item() == expected.height


def test_polars_asks_in_other_ways(odd: cp.sync.Table, frame: pl.DataFrame) -> None:
    lazy = odd.lazy()
    assert lazy.collect_schema() == frame.schema
    assert lazy.collect().equals(frame)
    assert lazy.collect(engine="streaming").equals(frame)
    assert lazy.select(pl.len()).collect().item() == frame.height
    assert lazy.tail(3).collect().equals(frame.tail(3))
    assert lazy.slice(95, 20).collect().equals(frame.slice(95, 20))
    joined = lazy.join(lazy.filter(c("i") == 3), on="ts", how="semi").collect()
    assert joined.equals(frame.filter(c("i") == 3))
    with pl.SQLContext(t=lazy) as context:
        assert (
            context.execute("SELECT i FROM t WHERE s = 'zz'").collect().equals(frame.filter(c("s") == "zz").select("i"))
        )
    assert lazy.with_row_index().select("index", "i").collect().equals(frame.with_row_index().select("index", "i"))
    largest = c("i") == c("i").max().over("symbol")
    assert lazy.filter(largest).select("i").collect().equals(frame.filter(largest).select("i"))


def test_a_frame_of_a_url_travels(odd_path: Path, frame: pl.DataFrame) -> None:
    lazy = cp.polars.scan(odd_path).filter(c("i") > 2)
    assert "PYTHON[coldparquet] SCAN" in lazy.explain()
    assert f"INFO: {odd_path}" in lazy.explain()
    again = pl.LazyFrame.deserialize(io.BytesIO(lazy.serialize()))
    assert again.collect().equals(frame.filter(c("i") > 2))


def test_what_is_open_does_not_travel(odd: cp.sync.Table) -> None:
    with pytest.raises(Exception, match=r"make it with coldparquet.polars.scan\(url\)"):
        odd.lazy().serialize()
    with pytest.raises(UnsupportedError, match="cannot be sent to another process"):
        pickle.dumps(odd.to_pyarrow_dataset())


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone='UTC'")
    connection.register("narrow", odd_rows().drop_columns(["wide"]))
    connection.execute("CREATE TABLE native AS SELECT * FROM narrow")
    return connection


@pytest.mark.parametrize("condition", SQL)
def test_duckdb(odd: cp.sync.Table, connection: duckdb.DuckDBPyConnection, condition: str) -> None:
    cp.duckdb.register(connection, "cold", odd)
    for query in ("SELECT ts, m FROM {} WHERE {} ORDER BY ts", "SELECT count(*) FROM {} WHERE {}"):
        native, cold = (connection.sql(query.format(name, condition)).to_arrow_table() for name in ("native", "cold"))
        assert cold.equals(native)


@pytest.mark.parametrize(
    "condition",
    [
        *(
            "s LIKE 'z%'",
            "s NOT LIKE 'z%'",
            "s LIKE 'zz'",
            "s LIKE '%'",
            "s LIKE ''",
            "starts_with(s, 'z')",
            "s LIKE 'é%%'",
        ),
        *(
            "NOT starts_with(s, '')",
            *(
                "s LIKE '%z'",
                "s LIKE 'z_'",
                "s NOT LIKE '_'",
                "s LIKE '%z%'",
                "symbol LIKE '_T%'",
                "symbol NOT LIKE 'S%L'",
            ),
            "s LIKE '__' OR s LIKE ''",
            "symbol LIKE 'B%' OR symbol LIKE 'S%'",
            r"s LIKE 'z\_%' ESCAPE '\'",
            "s LIKE 'zz%' ESCAPE 'z'",
        ),
        *("ts::date = '2024-03-01'", "ts::date <> '2024-03-01'", "ts::date > '2024-03-01'", "ts::date <= '2024-03-01'"),
        *(
            "cast(zoned as date) < '2024-03-02'",
            "n::date >= '2024-03-01'",
            "ts::date IN ('2024-03-02', NULL)",
            "ts::date = NULL",
        ),
        *(
            "day::date BETWEEN '2024-03-01' AND '2024-03-01'",
            "ts::date NOT IN ('2024-03-02')",
            "date_trunc('day', ts) = '2024-03-02'",
            "'2024-03-02' > ts::date",
        ),
        *("ts >= TIMESTAMP '2024-03-31' - INTERVAL '1 month' + INTERVAL '2 hours'", "ts < now() - INTERVAL '1 day'"),
        *("ts < DATE '2024-02-28' + INTERVAL 2 DAY + INTERVAL '30 minutes'", "ts > now() - INTERVAL '2 weeks'"),
    ],
)
def test_a_condition_means_what_duckdb_means(
    odd: cp.sync.Table, connection: duckdb.DuckDBPyConnection, condition: str
) -> None:
    query = "SELECT ts FROM native WHERE {} ORDER BY ts"
    expected = connection.sql(query.format(condition)).to_arrow_table()["ts"].to_pylist()
    assert odd.scan(["ts"], condition).to_arrow()["ts"].to_pylist() == expected
    assert odd.scan(where=condition).count() == len(expected)


def test_decimals_that_polars_does_not_have_are_text_in_its_frames(odd: cp.sync.Table) -> None:
    assert odd.scan(["wide"]).to_polars()["wide"].to_list() == odd_rows()["wide"].cast(pa.string()).to_pylist()


def test_duckdb_reads_everything(odd_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    cp.duckdb.register(connection, "of_url", odd_path)
    rows = connection.sql("SELECT * FROM of_url").to_arrow_table()
    assert rows["wide"].to_pylist() == odd_rows()["wide"].cast(pa.string()).to_pylist()
    assert connection.sql("SELECT count(*) FROM of_url").fetchall() == [(600,)]
    assert len(connection.sql("SELECT * FROM of_url LIMIT 5").to_arrow_table()) == 5
    assert connection.sql("SELECT count(*) FROM of_url JOIN native USING (ts)").fetchall() == [(600,)]
    plan = connection.sql("EXPLAIN SELECT i FROM of_url WHERE i > 3").fetchall()[0][1]
    assert "ARROW_SCAN" in plan
    assert "i>3" in re.sub('[ "]', "", plan)


def test_duckdb_hides_a_comparison_with_nan(odd: cp.sync.Table, connection: duckdb.DuckDBPyConnection) -> None:
    """DuckDB 1 asks Arrow for ``true``, and so gets the rows with NULL, too."""
    cp.duckdb.register(connection, "cold", odd)
    [(expected,)] = connection.sql("SELECT count(*) FROM native WHERE i > 0 AND d <= 'nan'::double").fetchall()
    try:
        found = connection.sql("SELECT count(*) FROM cold WHERE i > 0 AND d <= 'nan'::double").fetchall()
    except duckdb.Error as error:
        assert "ask for IS NOT NULL in its place" in str(error)  # noqa: PT017 - DuckDB 2 answers
    else:
        assert found == [(expected,)]


@pytest.mark.parametrize(
    "condition",
    [
        "d >= 'inf'::double",
        "d = 'nan'::double",
        "d < 'nan'::double",
        "d <> 'nan'::double",
        "d <= 'nan'::double",
        "d > f",
        "d <= f",
        "d + 1 > 2",
        "i > NULL",
        "d > 1 AND i + 1 > 2",
        "i > 2",
        "i IN (1, 2)",
        "i NOT IN (1, 2)",
        "d > 1",
        "d IS NULL",
        "s = 'é'",
        "s LIKE 'z%'",
        "i + 1 > 2",
        "b",
        "i > 3 OR s = 'a'",
    ],
)
def test_datafusion(odd: cp.sync.Table, condition: str) -> None:
    context = datafusion.SessionContext()
    context.register_dataset("cold", odd.to_pyarrow_dataset(nan="largest"))
    context.register_record_batches("memory", [odd_rows().to_batches()])
    query = "SELECT ts, i FROM {} WHERE {} ORDER BY ts"
    found, expected = (context.sql(query.format(name, condition)).to_arrow_table() for name in ("cold", "memory"))
    assert found.to_pylist() == expected.to_pylist()
    assert context.sql("SELECT count(*) FROM cold WHERE {}".replace("{}", condition)).to_pydict() == {
        "count(*)": [len(expected)]
    }


@pytest.mark.parametrize("name", ["symbols", "types_all", "o3_rewrite", "column_added_after", "nanos_day"])
def test_tables_of_questdb(name: str) -> None:
    with cp.sync.open_table(str(GOLDEN / name / "table")) as table:
        rows = table.scan().to_arrow()
        assert plain(table.to_pyarrow_dataset().to_table()).equals(plain(rows))
        batches = [
            batch.cast(table.to_pyarrow_dataset(nan="largest", wide_decimals="text").schema)
            for batch in rows.to_batches()
        ]
        frame = pl.from_arrow(pa.Table.from_batches(batches))
        assert isinstance(frame, pl.DataFrame)
        assert table.lazy().collect().equals(frame)
        connection = duckdb.connect()
        connection.execute("SET TimeZone='UTC'")
        cp.duckdb.register(connection, "cold", table)
        assert connection.sql("SELECT count(*) FROM cold").fetchall() == [(rows.num_rows,)]
        connection.register("memory", pa.Table.from_batches(batches))
        narrow = [
            field.name for field in rows.schema if field.type != pa.timestamp("ms", "UTC")
        ]  # far years: not for DuckDB
        found, expected = (connection.table(each).select(*narrow).to_arrow_table() for each in ("cold", "memory"))
        assert plain(found).equals(plain(expected))
        for column, type_ in frame.schema.items():
            if type_ in (pl.Categorical, pl.String):
                for condition in (pl.col(column) == "A", pl.col(column).is_in(["A", "B"]), pl.col(column) > "A"):
                    assert table.lazy().filter(condition).collect().equals(frame.filter(condition))


def test_a_closed_table_is_our_error(odd_path: Path) -> None:
    with cp.sync.open_table(str(odd_path)) as table:
        lazy, dataset = table.lazy(), table.to_pyarrow_dataset(nan="largest", wide_decimals="text")
    with pytest.raises(InvalidInputError, match="closed"):
        dataset.to_table()
    with pytest.raises(Exception, match="closed"):
        lazy.collect()
    connection = duckdb.connect()
    connection.register("cold", dataset.filter(pc.field("i") > 1))
    with pytest.raises(Exception, match="closed"):
        connection.sql("SELECT * FROM cold").to_arrow_table()


def test_a_budget_is_our_error(odd_path: Path) -> None:
    options = cp.ReadOptions(max_requests=1)
    with cp.sync.open_table(str(odd_path), options=options) as table:
        with pytest.raises(cp.errors.BudgetExceededError):
            table.to_pyarrow_dataset().to_table()
        with pytest.raises(Exception, match="max_requests"):
            table.lazy().collect()
        connection = duckdb.connect()
        cp.duckdb.register(connection, "cold", table)
        with pytest.raises(Exception, match="max_requests") as caught:
            connection.sql("SELECT * FROM cold").to_arrow_table()
        assert str(caught.value).count('File "') == 1  # not the traceback of our internals


def test_what_reads_a_dataset_in_cpp_finds_out(odd: cp.sync.Table, tmp_path: Path) -> None:
    dataset = odd.to_pyarrow_dataset()
    with pytest.raises(TypeError, match=r"expected pyarrow._dataset.Scanner, got TableScanner"):
        ds.write_dataset(dataset, tmp_path / "copy", format="parquet")
    with pytest.raises(FileNotFoundError, match=r"call its scanner\(\) and hand that over"):
        ds.Scanner.from_dataset(dataset).to_table()
    ds.write_dataset(dataset.scanner(["ts", "i"]).to_reader(), tmp_path / "copy", format="parquet")
    assert ds.dataset(tmp_path / "copy").count_rows() == 600


def test_arguments_that_cannot_be_are_refused(odd: cp.sync.Table) -> None:
    dataset = odd.to_pyarrow_dataset()
    for refused in (
        lambda: odd.to_pyarrow_dataset(nan="largset"),  # type: ignore[arg-type]
        lambda: dataset.to_table("ts"),
        lambda: dataset.to_table({"ts"}),
        lambda: dataset.to_table(["nowhere"]),
        lambda: dataset.to_table(["ts"], filter=pc.field("nowhere") > 1),
    ):
        with pytest.raises(InvalidInputError):
            refused()


def test_a_frame_reads_the_newest_state(tmp_path: Path) -> None:
    pq.write_table(odd_rows().select(["ts", "i"]).slice(0, 300), _made(tmp_path / "2024-03-01") / "data.parquet")
    with cp.sync.open_table(str(tmp_path)) as table:
        lazy = table.lazy()
        assert lazy.select("i").collect().height == 300
        pq.write_table(odd_rows().select(["ts", "i"]).slice(360), _made(tmp_path / "2024-03-02") / "data.parquet")
        table.refresh()
        assert lazy.select("i").collect().height == 540
        assert lazy.select(pl.len()).collect().item() == 540


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def test_no_method_of_pyarrow_is_left() -> None:
    """Those would read what is not there."""
    from coldparquet.dataset import TableDataset  # noqa: PLC0415

    assert {name for name in dir(ds.UnionDataset) if not name.startswith("_")} <= vars(TableDataset).keys()


def test_nested_columns_and_half_floats(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": [0, 1, 2, 3],
            "s": [
                {"x": 1, "d": 0.5, "l": [1.5]},
                None,
                {"x": None, "d": None, "l": []},
                {"x": 3, "d": NAN, "l": None},
            ],
            "half": pa.array([1, None, 2.5, 3], pa.float16()),
            "wide": pa.array([[Decimal("1.5")], None, [], [None]], pa.list_(pa.decimal256(60, 1))),
        }
    )
    (tmp_path / "2024-03-01").mkdir()
    pq.write_table(rows, tmp_path / "2024-03-01" / "data.parquet", row_group_size=2)
    values, wide = rows.drop(["wide"]).to_pylist(), [["1.5"], None, [], [None]]
    of_id, above = pc.field("id") > 0, pc.field("s", "d") > 0
    with cp.sync.open_table(tmp_path) as table:
        lazy = table.lazy()
        assert repr(lazy.drop("wide").collect().to_arrow().to_pylist()) == repr(values)  # NaN
        assert lazy.select("wide").collect()["wide"].to_list() == wide
        assert lazy.filter(c("s").struct.field("x") == 3, c("id") > 1).collect()["id"].to_list() == [3]
        assert lazy.filter(c("s").is_null()).collect()["id"].to_list() == [1]
        dataset = table.to_pyarrow_dataset()
        assert dataset.to_table(filter=pc.is_valid(ds.field("s")) & (ds.field("id") < 3)).to_pylist() == [
            rows.to_pylist()[number] for number in (0, 2)
        ]
        assert dataset.to_table(["id"], filter=of_id & ~above)["id"].to_pylist() == [3]
        assert dataset.scanner(["id"], of_id & above).scan.schema.names == ["id", "s"]
        largest = table.to_pyarrow_dataset(nan="largest")
        assert largest.to_table(["id"], filter=of_id & above)["id"].to_pylist() == [3]
        with duckdb.connect() as connection:
            coldparquet.duckdb.register(connection, "t", table)
            found = connection.sql("SELECT id, s, half, wide FROM t").fetchall()
            expected = [(*row.values(), text) for row, text in zip(values, wide, strict=True)]
            assert repr(found) == repr(expected)
            assert connection.sql("SELECT id FROM t WHERE s.d > 0.1").fetchall() == [(0,), (3,)]
            assert connection.sql("SELECT id FROM t WHERE s.x = 3 AND id > 1").fetchall() == [(3,)]
            assert connection.sql("SELECT id FROM t WHERE s IS NULL").fetchall() == [(1,)]
