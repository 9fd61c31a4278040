"""Tables in the layouts of others: Hive directories, dated directories, loose files, and QuestDB's own cold storage."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.options import parse_key_types
from coldparquet.publish.publisher import publish_table
from coldparquet.records import replace
from coldparquet.storage.log import RequestRecord
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import ObjectInfo
from coldparquet.write.partition import write_partition
from tests.support.parquet_footers import parquet_bytes
from tests.support.questdb_tables import GOLDEN, PARTITIONS, assert_same_rows, expected_rows
from tests.support.small_tables import QuotingStore, StoreWithClasses

FIRST = datetime(2024, 3, 1)  # noqa: DTZ001 - without a zone, as most lakes have it


def trades(count: int, *, every: timedelta = timedelta(minutes=3)) -> pa.Table:
    times = [FIRST + every * number for number in range(count)]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "id": pa.array(range(count), pa.int64()),
            "price": [number * 0.5 for number in range(count)],
            "date": [time.date() for time in times],
            "venue": [("XETRA", "a venue with a long name / 100 %", None)[number % 3] for number in range(count)],
        }
    )


def parquet(**columns: Any) -> bytes:
    return parquet_bytes(pa.table(columns))


def write_directory(directory: Path, files: Mapping[str, bytes]) -> str:
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    return str(directory)


async def rows_of(url: str, columns: list[str] | None = None, where: str | None = None, **options: Any) -> pa.Table:
    async with cp.open_table(url, options=cp.ReadOptions(**options)) as table:
        return await table.scan(columns, where=where).to_arrow()


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.sort_by([("id", "ascending")]).to_pylist()
    return found


# --- Hive directories -------------------------------------------------------------------------------------------------


def write_with_arrow(rows: pa.Table, directory: Path) -> None:
    ds.write_dataset(rows, directory, format="parquet", partitioning=["date", "venue"], partitioning_flavor="hive")


def write_with_duckdb(rows: pa.Table, directory: Path) -> None:
    with duckdb.connect() as connection:
        connection.register("source", rows)
        connection.execute(f"copy source to '{directory}' (format parquet, partition_by (date, venue))")


def write_with_polars(rows: pa.Table, directory: Path) -> None:
    target: Any = pl.PartitionBy(directory, key=["date", "venue"], include_key=False)
    pl.DataFrame(rows).write_parquet(target, mkdir=True)


def write_with_pandas(rows: pa.Table, directory: Path) -> None:
    rows.to_pandas().to_parquet(directory, partition_cols=["date", "venue"])


WRITERS = {
    "pyarrow": write_with_arrow,
    "duckdb": write_with_duckdb,
    "polars": write_with_polars,
    "pandas": write_with_pandas,
}


@pytest.mark.parametrize("writer", WRITERS)
async def test_a_lake_of_another_writer_has_the_rows_that_were_written(writer: str, tmp_path: Path) -> None:
    rows = trades(1_500)
    WRITERS[writer](rows, tmp_path / "lake")
    found = await rows_of(str(tmp_path / "lake"))
    assert found.schema.field("date").type == pa.date32()
    assert found.schema.field("venue").type == pa.string()
    assert in_order(found.select(["id", "price", "date", "venue"])) == in_order(
        rows.select(["id", "price", "date", "venue"])
    )


@pytest.mark.parametrize(
    "where",
    [
        "date = '2024-03-02'",
        "date >= '2024-03-02' and venue = 'XETRA'",
        "venue is null",
        "venue is not null and id < 100",
        "venue in ('XETRA', 'other') or id = 7",
        "not venue = 'XETRA'",
        "venue > 'XETR' and date between '2024-03-01' and '2024-03-02'",
        "date = '1999-01-01'",
        "ts >= '2024-03-02T12:00:00' and ts < '2024-03-02T13:00:00'",
    ],
)
async def test_conditions_on_keys_select_the_rows_that_duckdb_selects(where: str, tmp_path: Path) -> None:
    write_with_duckdb(trades(1_500), tmp_path / "lake")
    for options in ({}, {"statistics": False}, {"make_constant_columns": False}):
        found = await rows_of(str(tmp_path / "lake"), ["id", "date", "venue"], where, **options)
        with duckdb.connect() as connection:
            files = f"read_parquet('{tmp_path}/lake/**/*.parquet', hive_partitioning=true)"
            expected = connection.sql(f"select id, date, venue from {files} where {where}").to_arrow_table()
        assert in_order(found) == in_order(expected)


@given(
    values=st.lists(
        st.one_of(
            st.sampled_from(
                ["2024-03-01", "2024-02-30", "2024-03-01 12:30:00", "007", "-5", "1.5", "true", "x", "a b"]
            ),
            st.dates(date(1900, 1, 1), date(2100, 1, 1)).map(str),
            st.integers(-(10**15), 10**15).map(str),
            st.text("abcxyz 0129-.:", min_size=1, max_size=12).filter(lambda text: text.strip() == text),
        ),
        min_size=1,
        max_size=4,
        unique=True,
    )
)
def test_keys_have_the_types_that_duckdb_gives_them(values: list[str]) -> None:
    from coldparquet.catalog.hive_keys import key_kind, key_value  # noqa: PLC0415

    kind = key_kind(values)
    with duckdb.connect() as connection:
        types = {"date": "DATE", "timestamp": "TIMESTAMP", "int64": "BIGINT"}
        for name, type_ in types.items():
            fits = connection.execute(
                f"select bool_and(try_cast(v as {type_}) is not null) from (select unnest(?) as v)", [values]
            ).fetchone()
            if name == kind:
                assert fits == (True,)
                casts = "epoch_us(v::TIMESTAMP)" if name == "timestamp" else f"v::{type_}"
                [found] = zip(
                    *connection.execute(f"select {casts} from (select unnest(?) as v)", [values]).fetchall(),
                    strict=True,
                )
                ours = [key_value(kind, value) for value in values]
                assert list(found) == (
                    [date(1970, 1, 1) + timedelta(days=int(day or 0)) for day in ours] if name == "date" else ours
                )


async def test_numbers_order_the_files_and_null_comes_last(tmp_path: Path) -> None:
    names = ["month=10", "month=9", "month=__HIVE_DEFAULT_PARTITION__", "month=01"]
    url = write_directory(tmp_path, {f"{name}/a.parquet": parquet(x=[number]) for number, name in enumerate(names)})
    found = await rows_of(url)
    assert found.to_pydict() == {"x": [3, 1, 0, 2], "month": [1, 9, 10, None]}
    assert (await rows_of(url, keys="text")).column("month").to_pylist() == ["01", "10", "9", None]
    assert (await rows_of(url, where="month is null")).column("x").to_pylist() == [2]


async def test_keys_have_the_types_that_the_user_gives_them(tmp_path: Path) -> None:
    names = [f"year={year}/zip={code}/day=2024-03-0{year - 2022}" for year in (2023, 2024) for code in ("007", "7")]
    url = write_directory(tmp_path, {f"{name}/a.parquet": parquet(x=[number]) for number, name in enumerate(names)})
    keys: dict[str, Any] = {"year": "int32", "zip": "text", "day": "timestamp"}
    types = "{'year': INT, 'zip': VARCHAR, 'day': TIMESTAMP}"
    by_duckdb = duckdb.sql(f"FROM read_parquet('{url}/**/*.parquet', hive_partitioning = true, hive_types = {types})")
    found = await rows_of(url, keys=keys)
    expected = by_duckdb.order("x").to_arrow_table()
    assert found.to_pylist() == expected.to_pylist()
    assert {name: found.schema.field(name).type for name in keys} == {
        name: expected.schema.field(name).type for name in keys
    }
    for where in ("zip = '007'", "year = 2024 and zip > '0'", "year < 2024", "day >= '2024-03-02'"):
        rows = await rows_of(url, where=where, keys=keys)
        assert rows.to_pylist() == by_duckdb.filter(where).order("x").to_arrow_table().to_pylist()
        async with cp.open_table(url, options=cp.ReadOptions(keys=keys)) as table:
            assert {read.rows_read for read in (await table.scan(where=where).plan()).partitions} == {1}
    assert (await rows_of(url, keys={"zip": "text"})).schema.field("year").type == pa.int64()
    refused: list[tuple[dict[str, Any], str]] = [({"zap": "text"}, "UnknownKey"), ({"zip": "date"}, "KeyType")]
    for wrong, kind in refused:
        with pytest.raises(cp.errors.InvalidInputError) as caught:
            await cp.open_table(url, options=cp.ReadOptions(keys=wrong))
        assert caught.value.kind == kind
    days = write_directory(tmp_path / "days", {"2024-03-01/data.parquet": parquet(x=[1])})
    with pytest.raises(cp.errors.InvalidInputError, match="to 'zip', and the paths of this table state no key"):
        await cp.open_table(days, options=cp.ReadOptions(keys={"zip": "text"}))
    async with cp.open_table(f"{url}/{names[0]}/a.parquet", options=cp.ReadOptions(keys={"zip": "text"})) as table:
        assert await table.scan().count() == 1
    for nonsense in ("zip=text", {"zip": "string"}, {1: "text"}, ["text"], None):
        with pytest.raises(cp.errors.InvalidInputError, match=r"ReadOptions\.keys is"):
            cp.ReadOptions(keys=nonsense)  # type: ignore[arg-type]
    url = write_directory(tmp_path / "large", {f"year={2**31}/a.parquet": parquet(x=[1])})
    with pytest.raises(cp.errors.InvalidInputError, match="which is no int32"):
        await cp.open_table(url, options=cp.ReadOptions(keys={"year": "int32"}))


@pytest.mark.parametrize("text", ["inferred", "text", "zip=text", "zip=text, a=b=int32"])
def test_types_of_keys_are_parsed(text: str) -> None:
    parsed = {"zip=text": {"zip": "text"}, "zip=text, a=b=int32": {"zip": "text", "a=b": "int32"}}
    assert parse_key_types(text) == parsed.get(text, text)
    for wrong in ("", "zip", "zip=", "=text", "zip=string", "zip=text,"):
        with pytest.raises(ValueError, match="use inferred, text, or KEY=TYPE"):
            parse_key_types(wrong)


async def test_a_key_that_the_files_have_themselves_is_their_column(tmp_path: Path) -> None:
    url = write_directory(tmp_path, {f"day={day}/a.parquet": parquet(day=[day], x=[day * 2]) for day in (1, 2)})
    assert (await rows_of(url, where="day = 2")).to_pydict() == {"day": [2], "x": [4]}


async def test_a_key_and_a_column_that_differ_in_case_are_two_columns_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = write_directory(tmp_path, {f"Day={day}/a.parquet": parquet(day=[day * 2], x=[1]) for day in (1, 2)})
    async with cp.open_table(url) as table:
        assert (await table.scan(where="Day = 2").to_arrow()).to_pylist() == [{"day": 4, "x": 1, "Day": 2}]
        assert (await table.scan(["x"], where="day = 2").to_arrow()).num_rows == 1
        [warning] = caplog.messages
        assert "'day' and 'Day'" in warning
        assert "'day' and 'Day'" in (await table.scan().plan()).explain(width=10_000)
        with duckdb.connect() as connection:
            cp.duckdb.register(connection, "t", url)
            assert connection.sql("select day, Day_1 from t where Day_1 = 1").fetchall() == [(2, 1)]


async def test_a_key_that_contradicts_the_file_is_refused(tmp_path: Path) -> None:
    url = write_directory(tmp_path, {"day=1/a.parquet": parquet(day=[1]), "day=2/a.parquet": parquet(day=[7])})
    with pytest.raises(cp.errors.FormatError, match="states day = 2, but its own column day") as caught:
        await rows_of(url)
    assert caught.value.kind == "KeyContradiction"
    assert str(caught.value.path).endswith("day=2/a.parquet")


async def test_a_day_as_text_is_compared_with_the_day_of_the_path(tmp_path: Path) -> None:
    right = write_directory(tmp_path / "right", {"date=2024-03-01/a.parquet": parquet(date=["2024-03-01"])})
    assert (await rows_of(right)).column("date").to_pylist() == ["2024-03-01"]
    wrong = write_directory(tmp_path / "wrong", {"date=2024-03-01/a.parquet": parquet(date=["2024-03-09"])})
    with pytest.raises(cp.errors.FormatError, match="states date = 2024-03-01, but its own column date"):
        await rows_of(wrong)


@pytest.mark.parametrize("values", [[1, 3, 5], [3, None], [None, None]])
async def test_a_file_with_other_values_than_its_key_is_refused(values: list[int | None], tmp_path: Path) -> None:
    column = pa.array(values, pa.int64())
    url = write_directory(tmp_path, {"k=3/a.parquet": parquet(k=column), "k=4/a.parquet": parquet(k=[4])})
    with pytest.raises(cp.errors.FormatError) as caught:
        await rows_of(url)
    assert caught.value.kind == "KeyContradiction"


async def test_the_last_rows_of_keys_with_null_are_found(tmp_path: Path) -> None:
    names = ["k=__HIVE_DEFAULT_PARTITION__", "k=4", "k=5"]
    url = write_directory(tmp_path, {f"{name}/a.parquet": parquet(id=[1, 2]) for name in names})
    async with cp.open_table(url) as table:
        rows = await table.scan(None, "k >= 5 or id > 1").tail(3)
    assert rows.to_pydict() == {"id": [1, 2, 2], "k": [5, 5, None]}


async def test_keys_that_are_no_text_are_refused_and_long_numbers_are_numbers(tmp_path: Path) -> None:
    url = write_directory(tmp_path / "a", {"k=%FF/a.parquet": parquet(id=[1]), "k=%FE/a.parquet": parquet(id=[2])})
    with pytest.raises(cp.errors.UnsupportedError, match="not UTF-8") as caught:
        await cp.open_table(url)
    assert caught.value.kind == "KeyEncoding"
    url = write_directory(tmp_path / "b", {f"k={2**63 - 1}/a.parquet": parquet(id=[1])})
    assert (await rows_of(url)).column("k").to_pylist() == [2**63 - 1]
    url = write_directory(tmp_path / "c", {f"k={2**63}/a.parquet": parquet(id=[1])})
    assert (await rows_of(url)).column("k").to_pylist() == [str(2**63)]


async def test_answers_from_metadata_know_the_keys(tmp_path: Path) -> None:
    write_with_arrow(trades(1_500), tmp_path / "lake")
    async with cp.open_table(str(tmp_path / "lake")) as table:
        assert await table.scan(where="date = '2024-03-02'").count() == 480
        extremes: Any = await table.scan().min_max("date")
        assert extremes.as_py() == {"min": date(2024, 3, 1), "max": date(2024, 3, 4)}
        assert await table.scan(where="venue is null").count() == 500


def piece_batches(piece: bytes) -> list[pa.RecordBatch]:
    return list(cp.pieces.read_piece_batches(piece))


async def test_pieces_and_engines_know_the_keys(tmp_path: Path) -> None:
    write_with_arrow(trades(1_500), tmp_path / "lake")
    where = "date >= '2024-03-02' and venue = 'XETRA'"
    expected = await rows_of(str(tmp_path / "lake"), ["id", "date", "venue"], where)
    async with cp.open_table(str(tmp_path / "lake")) as table:
        pieces = await table.scan(["id", "date", "venue"], where=where).pieces(3)
        encoded = [piece.to_bytes() for piece in pieces]
    batches = [batch for piece in encoded for batch in await asyncio.to_thread(piece_batches, piece)]
    assert in_order(pa.Table.from_batches(batches)) == in_order(expected)
    with cp.sync.open_table(str(tmp_path / "lake")) as opened:
        condition = (pl.col("date") >= date(2024, 3, 2)) & (pl.col("venue") == "XETRA")
        assert opened.lazy().filter(condition).select("id").collect().height == expected.num_rows
        dataset = opened.to_pyarrow_dataset()
        assert dataset.count_rows(filter=ds.field("date") == date(2024, 3, 2)) == 480
        with duckdb.connect() as connection:
            cp.duckdb.register(connection, "lake", opened)
            counted = connection.sql(f"select count(*) from lake where {where}").fetchall()
        assert counted == [(expected.num_rows,)]


# --- Directories of files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ["a.parquet", "b.parquet"],
        ["trades-2024-03-01.parquet", "trades-2024-03-02.PARQUET"],
        ["2024/03/01/x.parquet", "2024/03/02/x.parquet"],
        ["2024-03-01/part-0.parquet", "2024-03-02/part-0.parquet"],
        ["20240301/x.parquet", "20240302/x.parquet"],
        ["2024-03-01/x.pq", "2024-03-02/x.PARQUET"],
        ["2024/03/01/data.parquet", "2024/03/02/data.parquet"],
    ],
)
async def test_files_and_dated_directories_are_read_by_name(names: list[str], tmp_path: Path) -> None:
    url = write_directory(tmp_path, {name: parquet(x=[number]) for number, name in enumerate(names)})
    async with cp.open_table(url) as table:
        assert (await table.scan().to_arrow()).column("x").to_pylist() == [0, 1]
        assert [partition.name for partition in table.partitions] == names
        assert "2 files; no name states the times of rows" in " ".join((await table.scan().plan()).explain().split())
        assert await table.scan(where="x = 1").count() == 1


async def test_what_is_no_data_is_passed_over_and_told(tmp_path: Path) -> None:
    files = {
        "day=1/a.parquet": parquet(x=[1]),
        "day=1/empty.parquet": b"",
        "day=1/notes.csv": b"1,2",
        "day=1/.a.parquet.crc": b"1234",
        "day=1/_temporary/0/b.parquet": parquet(x=[9]),
        "day=1/.hidden.parquet": parquet(x=[9]),
        "_SUCCESS": b"",
        "other/readme.txt": b"no rows",
    }
    url = write_directory(tmp_path, files)
    async with cp.open_table(url) as table:
        assert (await table.scan().to_arrow()).to_pydict() == {"x": [1], "day": [1]}
        told = " ".join((await table.scan().plan()).notes)
    assert "because they are empty: day=1/empty.parquet" in told
    assert "not Parquet files by their names: day=1/notes.csv" in told
    assert "_SUCCESS" not in told
    assert "crc" not in told


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["day=1/a.parquet", "a.parquet"], "MixedLayouts"),
        (["day=1/a.parquet", "month=1/a.parquet"], "MixedLayouts"),
        (["day=1/hour=2/a.parquet", "day=1/a.parquet"], "MixedLayouts"),
        (["day=1/day=2/a.parquet"], "RepeatedKey"),
        (["2024-03-01/data.parquet", "day=1/a.parquet"], "UnreadFiles"),
        (["2024-03-01/data.parquet", "2024-03-01/12/data.parquet"], "UnreadFiles"),
        (["2024/data.parquet", "2024/03/part.parquet"], "UnreadFiles"),
        (["x.parquet", "sub/y.parquet"], "UnreadFiles"),
        (["day=1/x.parquet", "sub/deep/y.parquet"], "UnreadFiles"),
    ],
)
async def test_two_layouts_in_one_directory_are_refused(names: list[str], kind: str, tmp_path: Path) -> None:
    url = write_directory(tmp_path, {name: parquet(x=[1]) for name in names})
    with pytest.raises(cp.errors.UnsupportedError) as caught:
        await cp.open_table(url)
    assert caught.value.kind == kind
    assert any(name.partition("/")[0] in str(caught.value) for name in names)


async def test_versions_of_a_partition_are_never_read_as_files(tmp_path: Path) -> None:
    url = write_directory(tmp_path, {f"2024-03-01{end}/x.parquet": parquet(x=[1]) for end in ("", ".2")})
    with pytest.raises(cp.errors.NotFoundError) as caught:
        await cp.open_table(url)
    assert caught.value.kind == "NoDataFile"


async def test_links_that_lead_back_are_refused(tmp_path: Path) -> None:
    url = write_directory(tmp_path / "lake", {"day=1/a.parquet": parquet(x=[1])})
    (tmp_path / "lake" / "day=1" / "2024").symlink_to(tmp_path / "lake" / "day=1")
    with pytest.raises(cp.errors.UnsupportedError, match="levels of directories") as caught:
        await cp.open_table(url)
    assert caught.value.kind == "DeepDirectories"


async def test_files_that_are_named_are_read_alone(tmp_path: Path) -> None:
    url = write_directory(tmp_path, {f"day={day}/{name}.parquet": parquet(x=[day]) for day in (1, 2) for name in "ab"})
    async with cp.open_partitions(url, ["day=2/a.parquet", "day=1/b.parquet"]) as table:
        assert (await table.scan().to_arrow()).to_pydict() == {"x": [1, 2], "day": [1, 2]}
    for names in (["day=2/a.parquet", "2024-03-01"], ["a.parquet", "a.parquet"], ["../a.parquet"], ["/a.parquet"]):
        with pytest.raises(cp.errors.InvalidInputError):
            cp.open_partitions(url, names)


# --- Time that no name states -----------------------------------------------------------------------------------------


async def test_a_column_that_the_user_names_orders_rows_that_lie_in_no_order(tmp_path: Path) -> None:
    times = [datetime(2024, 3, 1, tzinfo=UTC) + timedelta(seconds=(number * 7919) % 1000) for number in range(300)]
    rows = pd.DataFrame({"ts": times, "key": [f"k{number % 7}" for number in range(300)], "id": range(300)})
    rows.loc[rows["id"] % 50 == 0, "ts"] = pd.NaT
    parts = {f"part-{part}.parquet": rows.iloc[part * 100 : part * 100 + 100] for part in range(3)}
    files = {name: parquet_bytes(pa.Table.from_pandas(part), row_group_size=30) for name, part in parts.items()}
    url = write_directory(tmp_path, files)
    async with cp.open_table(url) as table:
        with pytest.raises(cp.errors.InvalidInputError, match=r"ReadOptions\(timestamp=") as caught:
            await table.scan().latest_by("key")
        assert caught.value.kind == "NoDesignatedTimestamp"
    known = rows.dropna().sort_values("ts", kind="stable")
    async with cp.open_table(url, options=cp.ReadOptions(timestamp="ts")) as table:
        newest = (await table.scan().latest_by("key")).to_pandas()
        assert sorted(newest["id"]) == sorted(known.groupby("key").tail(1)["id"])
        top = (await table.scan().top_k(20)).to_pandas()
        assert list(top["ts"]) == list(known["ts"][::-1][:20])
        first = (await table.scan().top_k(20, ascending=True)).to_pandas()
        assert list(first["ts"]) == list(known["ts"][:20])
        extremes: Any = await table.scan().min_max("ts")
        assert extremes.as_py() == {"min": known["ts"].min(), "max": known["ts"].max()}
        assert (await table.scan().tail(3)).column("id").to_pylist() == [297, 298, 299]
    for name, kind in (("nothing", "UnknownColumn"), ("id", "NotATimestamp")):
        with pytest.raises(cp.errors.InvalidInputError) as caught:
            await cp.open_table(url, options=cp.ReadOptions(timestamp=name))
        assert caught.value.kind == kind


async def test_null_times_of_a_column_that_the_user_names_are_found(tmp_path: Path) -> None:
    day = datetime(2024, 3, 1, tzinfo=UTC)
    times = pa.array([None, day, day + timedelta(days=1)], pa.timestamp("us", "UTC"))
    nothing = pa.nulls(2, pa.timestamp("us", "UTC"))
    url = write_directory(
        tmp_path, {"k=1/a.parquet": parquet(id=[0, 1, 2], ts=times), "k=2/a.parquet": parquet(id=[3, 4], ts=nothing)}
    )
    async with cp.open_table(url, options=cp.ReadOptions(timestamp="ts")) as table:
        assert (await table.scan(["id"], where="ts is null").to_arrow()).column("id").to_pylist() == [0, 3, 4]
        assert await table.scan(where="not (ts is not null)").count() == 3
        assert await table.scan().last_timestamp() == day + timedelta(days=1)
        assert await table.scan(where="k = 2").max("ts") is None
        assert (await table.scan(["id"]).top_k(2)).column("id").to_pylist() == [2, 1]


async def test_days_in_names_prune_by_no_column_that_the_user_alone_names(tmp_path: Path) -> None:
    """They may be the days on which rows arrived."""
    days = [datetime(2024, 3, day, tzinfo=UTC) for day in (1, 2, 3)]
    late = [days[0] + timedelta(hours=hour) for hour in (1, 2)]
    parts = [[*(day + timedelta(hours=hour) for hour in range(24)), *late] for day in days]
    files = {
        f"{day:%Y-%m-%d}/data.parquet": parquet(time=pa.array(times, pa.timestamp("us", "UTC")))
        for day, times in zip(days, parts, strict=True)
    }
    url = write_directory(tmp_path, files)
    async with cp.open_table(url, options=cp.ReadOptions(timestamp="time")) as table:
        of_first_day = table.scan(where="time in '2024-03-01'")
        assert await of_first_day.count() == (await of_first_day.to_arrow()).num_rows == 24 + 3 * len(late)
        assert await table.scan().last_timestamp() == max(times[23] for times in parts)
        assert await table.scan(where="time < '2024-03-01T01'").first_timestamp() == days[0]
        assert (await table.scan().top_k(2)).column("time").to_pylist() == [parts[2][23], parts[2][22]]


async def test_days_in_names_that_are_those_of_another_column_refuse_the_one_that_the_user_names(
    tmp_path: Path,
) -> None:
    times = pa.array([FIRST], pa.timestamp("us"))
    await write_partition(tmp_path / "2024-03-01", pa.table({"ts": times, "arrived": times}), timestamp="ts")
    async with cp.open_table(tmp_path, options=cp.ReadOptions(timestamp="ts")) as table:
        assert await table.scan().last_timestamp() is not None
    with pytest.raises(cp.errors.InvalidInputError, match="'ts'") as caught:
        await cp.open_table(tmp_path, options=cp.ReadOptions(timestamp="arrived"))
    assert caught.value.kind == "OtherTimestamp"


# --- In object stores -------------------------------------------------------------------------------------------------


class ClassyStore(StoreWithClasses):
    """Tells the storage class of each object in its listings, as S3 does."""

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        listed = await super().list_between(path, start=start, stop=stop)
        return tuple(replace(info, storage_class="STANDARD") for info in listed)


def asked(log: tuple[RequestRecord, ...]) -> list[tuple[str, str]]:
    return [(record.operation, record.path.removeprefix("lake/")) for record in log]


async def lake_in(store: MemoryStore, days: int, files: int = 2) -> None:
    for day in range(1, days + 1):
        for part in range(files):
            data = parquet(x=[day * 10 + part], y=["a"])
            await store.put(f"lake/date=2024-03-{day:02}/part-{part}.parquet", data, overwrite=False)


async def test_keys_prune_before_any_file_is_asked_for() -> None:
    store = ClassyStore({})
    await lake_in(store, days=9)
    async with cp.open_table("lake", store=store) as table:
        before = len(table.request_log)
        assert (await table.scan(["x", "date"], where="date = '2024-03-05'").to_arrow()).column("x").to_pylist() == [
            50,
            51,
        ]
        opening, question = asked(table.request_log[:before]), asked(table.request_log[before:])
    # A listing tells of two directories, another of all files; the newest file has the columns.
    assert sorted(opening) == [
        ("get", "_catalogue"),
        ("get", "_meta"),
        ("get", "_txn"),
        ("get", "date=2024-03-09/part-1.parquet"),
        ("list", "lake"),
        ("list", "lake"),
    ]
    # The footers of two files, with which all bytes of such small files came; no HEAD.
    assert sorted(question) == [("get", f"date=2024-03-05/part-{part}.parquet") for part in (0, 1)]


async def test_a_file_that_is_replaced_between_listing_and_reading_is_noticed() -> None:
    store = QuotingStore({})
    await lake_in(store, days=2)
    async with cp.open_table("lake", store=store) as table:
        path = "lake/date=2024-03-01/part-0.parquet"
        await store.put(path, parquet(x=[99], y=["b"]), overwrite=True)
        with pytest.raises(cp.errors.ObjectChangedError) as caught:
            await table.scan().to_arrow()
        assert caught.value.path == path
        await table.refresh()
        assert 99 in (await table.scan().to_arrow()).column("x").to_pylist()


async def test_a_refresh_finds_new_files() -> None:
    store = QuotingStore({})
    await lake_in(store, days=1)
    async with cp.open_table("lake", store=store) as table:
        await store.put("lake/date=2024-03-01/part-9.parquet", parquet(x=[19], y=["a"]), overwrite=False)
        assert await table.refresh()
        assert (await table.scan().to_arrow()).column("x").to_pylist() == [10, 11, 19]


@pytest.mark.slow
async def test_a_hundred_thousand_files_are_listed_and_pruned_in_bounded_memory() -> None:
    data = parquet(x=[1])
    objects = {f"lake/day={number // 100}/part-{number % 100}.parquet": data for number in range(100_000)}
    async with cp.open_table("lake", store=QuotingStore(objects)) as table:
        assert len(table.partitions) == 100_000
        assert await table.scan(where="day = 500").count() == 100


# --- QuestDB's own cold storage ---------------------------------------------------------------------------------------

SEGMENTS = {
    "interval_year": ("year",),
    "interval_month": ("year", "month"),
    "interval_day": ("year", "month", "day"),
    "interval_hour": ("year", "month", "day", "hour"),
}


def cold_name(base_name: str, table: str) -> str:
    numbers = base_name.replace("T", "-").split("-")
    return "/".join(f"{key}={number}" for key, number in zip(SEGMENTS[table], numbers, strict=True))


def cold_storage(table: str, root: Path, *, sidecars: str) -> Path:
    """Lay a genuine table out as the Enterprise edition does; its Parquet partitions only."""
    cold = root / f"{table}~5"
    for partition in PARTITIONS:
        if partition.table == table:
            directory = cold / cold_name(partition.name.partition(".")[0], table)
            directory.mkdir(parents=True)
            shutil.copyfile(partition.file, directory / "data.parquet")
            if sidecars != "none":
                copied = partition.copied_to(root / "copies" / partition.table)
                index_partition(copied)
                sidecar = bytearray((copied / "_pm").read_bytes())
                if sidecars == "damaged":
                    sidecar[40:60] = b"\xff" * 20
                (directory / "_pm.a").write_bytes(sidecar if sidecars != "other" else b"another format")
    (cold / "_manifest").write_bytes(b"states")
    (root / "_tables").write_bytes(b"tables")
    (root / "_manager.lock").write_bytes(b"")
    return cold


def index_partition(directory: Path) -> None:
    asyncio.run(index_table(str(directory), pages=False, pack=False))


@pytest.mark.parametrize("sidecars", ["none", "sound", "damaged", "other"])
@pytest.mark.parametrize("table", SEGMENTS)
def test_a_table_in_cold_storage_has_the_rows_that_questdb_answers(table: str, sidecars: str, tmp_path: Path) -> None:
    cold = cold_storage(table, tmp_path, sidecars=sidecars)
    partitions = [partition for partition in PARTITIONS if partition.table == table]
    expected = pa.concat_tables(partition.expected() for partition in partitions)
    with cp.sync.open_table(str(cold)) as opened:
        assert_same_rows(opened.scan().to_arrow(), expected)
        plan = opened.scan().plan()
        assert "QuestDB's cold storage" in plan.explain()
        assert {read.metadata_source for read in plan.partitions} == {"sidecar" if sidecars == "sound" else "footer"}
        timestamp = opened.schema.names[opened.schema.get_field_index("ts")] if "ts" in opened.schema.names else None
        assert timestamp is not None
        first = expected_rows(table).column("ts")[partitions[0].first_row].as_py()
        asked_for = opened.scan(where=f"ts <= '{first:%Y-%m-%dT%H:%M:%S.%f}'")
        assert asked_for.count() >= 1
        assert len(asked_for.plan().partitions_pruned) == len(partitions) - 1
        assert opened.scan().top_k(1).column("ts")[0].as_py() == expected.column("ts")[-1].as_py()


@pytest.mark.parametrize(
    "names",
    [
        ["year=2024/month=03/data.parquet", "year=2024/month=03/day=11/data.parquet"],
        ["year=2024/month=03/day=5/data.parquet", "year=2024/month=3/day=05/data.parquet"],
    ],
)
def test_cold_directories_of_the_same_time_are_refused(names: list[str], tmp_path: Path) -> None:
    url = write_directory(tmp_path, {**{name: parquet(x=[1]) for name in names}, "_manifest": b"x"})
    with pytest.raises(cp.errors.UnsupportedError) as caught:
        cp.sync.open_table(url)
    assert caught.value.kind == "SamePartition"


def test_a_cold_sidecar_that_is_older_than_its_file_is_not_used(tmp_path: Path) -> None:
    cold = cold_storage("interval_day", tmp_path, sidecars="sound")
    for sidecar in cold.rglob("_pm.a"):
        os.utime(sidecar, (1, 1))
    with cp.sync.open_table(str(cold)) as table:
        assert {read.metadata_source for read in table.scan().plan().partitions} == {"footer"}


def test_the_root_of_cold_storage_names_its_tables(tmp_path: Path) -> None:
    cold_storage("interval_day", tmp_path, sidecars="none")
    with pytest.raises(cp.errors.NotFoundError, match="interval_day~5") as caught:
        cp.sync.open_table(str(tmp_path))
    assert caught.value.kind == "ManyTables"
    with pytest.raises(cp.errors.NotFoundError, match="interval_day~5"):
        cp.sync.open_table(str(tmp_path / "interval_day"))


def test_days_that_may_be_weeks_are_never_pruned_as_days(tmp_path: Path) -> None:
    # Mondays, whose rows are of the whole week: pruning them as days would lose rows.
    files = {}
    for monday in (date(2024, 3, 4), date(2024, 3, 11)):
        times = pa.array([datetime.combine(monday + timedelta(days=day), datetime.min.time()) for day in range(7)])
        rows = pa.table({"ts": times.cast(pa.timestamp("us")), "x": range(7)})
        schema = rows.schema.set(0, rows.schema.field("ts").with_nullable(nullable=False))
        data = parquet_bytes(rows.cast(schema), sorting_columns=[pq.SortingColumn(0)])
        files[f"year=2024/month=03/day={monday.day:02}/data.parquet"] = data
    url = write_directory(tmp_path, {**files, "_manifest": b"x"})
    with cp.sync.open_table(url) as table:
        assert table.scan(where="ts = '2024-03-08'").count() == 1
        assert len(table.scan(where="ts = '2024-03-08'").plan().partitions_pruned) == 1


def test_no_writer_begins_a_table_among_files_of_others_or_below_cold_storage(tmp_path: Path) -> None:
    cold = cold_storage("interval_day", tmp_path / "root", sidecars="none")
    lake = tmp_path / "lake"
    write_with_arrow(trades(10), lake)
    source = GOLDEN / "o3_in_place" / "table"
    rows = trades(10).drop_columns(["date", "venue"])
    before = sorted(tmp_path.rglob("*"))
    for place, kind in (
        (cold, "NotEmpty"),
        (cold / "inside", "ColdStorage"),
        (cold / "year=2024" / "inside", "ColdStorage"),
        (tmp_path / "root" / "new", "ColdStorage"),
        (lake, "NotEmpty"),
    ):
        for mode in ("error", "append", "overwrite"):
            with pytest.raises(cp.errors.ColdParquetError) as caught:
                cp.sync.write_table(str(place), rows, timestamp="ts", partition_by="DAY", mode=mode)
            assert caught.value.kind == kind
        with pytest.raises(cp.errors.ColdParquetError) as caught:
            asyncio.run(publish_table(str(source), str(place)))
        assert caught.value.kind == kind
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("own", [pa.array([2020], pa.int32()), pa.array([2025], pa.int64())])
@pytest.mark.parametrize("where", ["year = 2020", "year = 2025", None])
async def test_a_file_whose_own_column_contradicts_its_key_is_never_pruned_by_it(
    own: Any, where: str | None, tmp_path: Path
) -> None:
    files = {
        "year=2024/x.parquet": parquet(v=[1], year=own),
        "year=2025/x.parquet": parquet(v=[2], year=pa.array([2025])),
    }
    with pytest.raises(cp.errors.FormatError) as caught:
        await rows_of(write_directory(tmp_path, files), where=where)
    assert caught.value.kind == "KeyContradiction"


DAMAGES = {"torn": slice(0, 200), "begun": slice(0, 5), "cut": slice(0, -1)}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_newest_file_fails_only_the_questions_that_need_it(
    damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    await lake_in(store, 4, files=1)
    paths = [f"lake/date=2024-03-{day:02}/part-0.parquet" for day in range(1, 5)]
    damaged = parquet(x=[40], y=["a"])[DAMAGES[damage]]
    await store.put(paths[-1], damaged, overwrite=True)
    async with cp.open_table("lake", store=store) as table:
        [warning] = caplog.messages
        assert paths[-1] in warning
        assert warning in (await table.scan(where="date < '2024-03-03'").plan()).explain(width=10_000)
        rows = await table.scan(["x"], "date in ('2024-03-01', '2024-03-03')").to_arrow()
        assert rows.column("x").to_pylist() == [10, 30]
        for where in (None, "date = '2024-03-04'", "x = 10"):
            with pytest.raises(cp.errors.FormatError) as caught:
                await table.scan(["x"], where).to_arrow()
            assert caught.value.path == paths[-1]
    for path in paths:
        await store.put(path, damaged, overwrite=True)
    with pytest.raises(cp.errors.FormatError) as caught:
        await cp.open_table("lake", store=store)
    assert caught.value.path == paths[-1]


async def test_a_newest_file_that_contradicts_its_path_is_no_damaged_one() -> None:
    """By the older files alone the key would prune rows of it."""
    objects = {f"lake/k={day}/x.parquet": parquet(x=[day]) for day in (1, 2)}
    store = MemoryStore({**objects, "lake/k=3/x.parquet": parquet(x=[3], k=[1])})
    with pytest.raises(cp.errors.FormatError) as caught:
        await cp.open_table("lake", store=store)
    assert caught.value.kind == "KeyContradiction"


async def test_files_below_a_directory_of_another_name_are_an_error(tmp_path: Path) -> None:
    files = {"year=2024/x.parquet": parquet(v=[1]), "year=2024/backup/x.parquet": parquet(v=[1])}
    url = write_directory(tmp_path, files)
    with pytest.raises(cp.errors.UnsupportedError, match=r"backup/x\.parquet") as caught:
        await cp.open_table(url)
    assert caught.value.kind == "UnreadFiles"
    assert (await rows_of(url, unread="skip")).num_rows == 1


def test_no_part_of_cold_storage_is_indexed(tmp_path: Path) -> None:
    cold = cold_storage("interval_day", tmp_path, sidecars="none")
    day = next(cold.rglob("data.parquet"))
    before = sorted(tmp_path.rglob("*"))
    for place in (day, day.parent, day.parent.parent, cold):
        with pytest.raises(cp.errors.UnsupportedError) as caught:
            asyncio.run(index_table(place, pages=False, pack=False))
        assert caught.value.kind == "ColdStorage"
    assert sorted(tmp_path.rglob("*")) == before
