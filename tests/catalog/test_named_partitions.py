"""Partitions of a table that are named one by one: no listing, their rows alone, in time order."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.errors import InvalidInputError, NotFoundError
from coldparquet.maintenance.index import index_table
from coldparquet.testing.simulator import ColdStoreServer
from tests.support.answers import day_of_trades, parquet_of, store_of, trades_of
from tests.support.archived_days import DAYS, make_store
from tests.support.questdb_tables import GOLDEN, assert_same_rows, expected_rows

if TYPE_CHECKING:
    from pathlib import Path

    from coldparquet.storage.memory import MemoryStore

ROWS = 1_000
NAMES = [f"trades/2024-03-0{number}.7" for number in (1, 2, 3, 4)]


@pytest.fixture
async def store() -> MemoryStore:
    return await store_of({day: day_of_trades(day, rows=ROWS, row_groups=4) for day in range(4)})


async def prices(store: MemoryStore, names: list[str], where: str | None = None) -> list[Any]:
    async with cp.open_partitions(names, store=store) as table:
        rows = await table.scan(["price"], where).to_arrow()
        return rows["price"].to_pylist()


async def test_their_rows_come_in_time_order(store: MemoryStore) -> None:
    named = [NAMES[2], f"{NAMES[0]}/data.parquet", f"{NAMES[1]}/"]
    assert await prices(store, named) == list(range(3 * ROWS))
    assert await prices(store, [NAMES[3], NAMES[1]]) == [*range(ROWS, 2 * ROWS), *range(3 * ROWS, 4 * ROWS)]
    assert await prices(store, [NAMES[1], NAMES[3]], "price >= 1999 and price < 3001") == [1999, 3000]
    assert await prices(store, [NAMES[1]]) == list(range(ROWS, 2 * ROWS))


async def test_answers_are_about_them_alone(store: MemoryStore) -> None:
    async with cp.open_partitions([NAMES[2], NAMES[0]], store=store) as table:
        scan = table.scan(["ts", "price"])
        assert (await scan.count(), await scan.min("price"), await scan.max("price")) == (2 * ROWS, 0, 3 * ROWS - 1)
        assert (await scan.tail(2))["price"].to_pylist() == [3 * ROWS - 2, 3 * ROWS - 1]
        assert [partition.name for partition in table.partitions] == ["2024-03-01.7", "2024-03-03.7"]


def test_without_an_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(3):
        directory = tmp_path / f"2024-03-0{day + 1}"
        directory.mkdir()
        (directory / "data.parquet").write_bytes(day_of_trades(day, rows=10, row_groups=1))
    monkeypatch.chdir(tmp_path)
    with cp.sync.open_partitions(["2024-03-03", tmp_path.relative_to(tmp_path) / "2024-03-02"]) as table:
        assert table.scan(["price"]).to_arrow()["price"].to_pylist() == list(range(10, 30))


async def test_requests_on_a_store(tmp_path: Path) -> None:
    for day, name in enumerate(NAMES[:3]):
        (tmp_path / "bucket" / name).mkdir(parents=True)
        (tmp_path / "bucket" / name / "data.parquet").write_bytes(day_of_trades(day, rows=ROWS, row_groups=4))
    await index_table(tmp_path / "bucket" / "trades")
    with ColdStoreServer(tmp_path) as server:
        urls = [f"s3://bucket/{name}" for name in NAMES[:3]]
        async with cp.open_partitions(urls, storage_options=server.storage_options) as table:
            opened = [(request.method, request.path.rpartition("/")[2]) for request in server.requests]
            assert sorted(opened) == sorted([("GET", "_pm"), ("HEAD", "data.parquet")] * 3 + [("GET", "_pages")])
            assert (await table.scan(["price"]).to_arrow()).num_rows == 3 * ROWS
            data = [(request.method, request.path) for request in server.requests[len(opened) :]]
            assert sorted(data) == [("GET", f"bucket/{name}/data.parquet") for name in NAMES[:3]]


async def test_columns_of_a_questdb_table_follow_their_ids(tmp_path: Path) -> None:
    table = tmp_path / "symbols"
    shutil.copytree(GOLDEN / "symbols" / "table", table)
    names = [path for path in table.iterdir() if (path / "data.parquet").exists()]
    async with cp.open_partitions(names) as opened:
        rows = await opened.scan().to_arrow()
    expected = expected_rows("symbols")
    assert_same_rows(rows, expected.slice(0, rows.num_rows))
    assert rows.num_rows


async def test_a_name_that_may_be_a_day_or_the_rest_of_a_month(tmp_path: Path) -> None:
    """A table by month, of which only split pieces are named: their names look like days."""
    for name, days in (("2024-03-05", (4, 5, 6)), ("2024-03-08", (7, 8))):
        rows = pa.concat_tables([trades_of(day, 10) for day in days])
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.parquet").write_bytes(parquet_of(rows, row_groups=1))
    async with cp.open_partitions([tmp_path / "2024-03-08", tmp_path / "2024-03-05"]) as table:
        assert (await table.scan(["price"]).to_arrow())["price"].to_pylist() == list(range(40, 90))
        assert await table.scan(where="ts >= '2024-03-07' and ts < '2024-03-08'").count() == 10
        assert await table.scan(where="ts >= '2024-03-09'").count() == 10


async def test_archived_ones_are_refused_or_left_out() -> None:
    store = await make_store(DAYS[1])
    names = [f"trades/{day}" for day in DAYS[:3]]
    async with cp.open_partitions(names, store=store) as table:
        with pytest.raises(cp.errors.ArchivedObjectError, match=r"2024-03-02\.1"):
            await table.scan(["price"]).to_arrow()
        left = await table.scan(["day", "price"], options=cp.ReadOptions(archived="skip")).to_arrow()
        assert set(left["day"].to_pylist()) == {0, 2}


async def test_one_that_is_not_there(store: MemoryStore) -> None:
    with pytest.raises(NotFoundError, match=r"2024-03-09"):
        await cp.open_partitions([NAMES[0], "trades/2024-03-09"], store=store)


async def test_a_refresh_sees_what_was_replaced(store: MemoryStore) -> None:
    async with cp.open_partitions(NAMES[:2], store=store) as table:
        assert await table.scan().count() == 2 * ROWS
        shorter = day_of_trades(1, rows=ROWS // 2, row_groups=1)
        await store.put(f"{NAMES[1]}/data.parquet", shorter, overwrite=True)
        await index_table("trades", store=store, force=True)
        assert await table.refresh()
        assert await table.scan().count() == ROWS + ROWS // 2


@pytest.mark.parametrize(
    ("urls", "kind", "match"),
    [
        ([], "InvalidInput", "no URL"),
        ([""], "InvalidInput", "an empty URL"),
        ("trades/2024-03-01.7", "InvalidInput", "takes a list of URLs"),
        (["trades/2024-03-01.7", "quotes/2024-03-02.7"], "NotOneTable", "in trades and in quotes"),
        (["trades/2024-03-01.7", "trades/2024-03-01.7/"], "SamePartition", "would be read twice"),
        (["trades/2024-03-01.7", "trades/2024-03-01"], "SamePartition", "are one partition"),
        (["trades/2024-03-01.7", "trades/other.parquet"], "NotAPartition", "other.parquet is no partition's name"),
    ],
)
async def test_what_cannot_be_read_together(store: MemoryStore, urls: Any, kind: str, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match) as caught:
        await cp.open_partitions(urls, store=store)
    assert caught.value.kind == kind
