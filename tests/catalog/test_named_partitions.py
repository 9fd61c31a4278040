"""Partitions of a table that are named one by one: no listing, their rows alone, in time order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.errors import FormatError, InvalidInputError, NotFoundError
from coldparquet.maintenance.index import index_table
from coldparquet.storage.memory import MemoryStore
from coldparquet_testing.simulator import ColdStoreServer
from tests.support.archive_store import DAYS, make_store
from tests.support.questdb_tables import GOLDEN, assert_same_rows, copy_parquet_partitions, expected_rows
from tests.support.request_logs import finished_requests
from tests.support.small_tables import day_of_trades, parquet_of, store_of, trades_of

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 1_000
NAMES = [f"2024-03-0{number}.7" for number in (1, 2, 3, 4)]


@pytest.fixture
async def store() -> MemoryStore:
    return await store_of({day: day_of_trades(day, rows=ROWS, row_groups=4) for day in range(4)})


async def prices(store: MemoryStore, names: list[str], where: str | None = None) -> list[Any]:
    async with cp.open_partitions("trades", names, store=store) as table:
        rows = await table.scan(["price"], where).to_arrow()
        return rows["price"].to_pylist()


def write_days(directory: Path, days: range, *, rows: int) -> None:
    for day in days:
        partition = directory / f"2024-03-{day + 1:02}"
        partition.mkdir(parents=True)
        content = parquet_of(
            trades_of(day, rows), row_groups=4, write_batch_size=50, data_page_size=64, write_page_index=True
        )
        (partition / "data.parquet").write_bytes(content)


async def test_their_rows_come_in_time_order(store: MemoryStore) -> None:
    assert await prices(store, [NAMES[2], NAMES[0], NAMES[1]]) == list(range(3 * ROWS))
    assert await prices(store, [NAMES[3], NAMES[1]]) == [*range(ROWS, 2 * ROWS), *range(3 * ROWS, 4 * ROWS)]
    assert await prices(store, [NAMES[1], NAMES[3]], "price >= 1999 and price < 3001") == [1999, 3000]
    assert await prices(store, [NAMES[1]]) == list(range(ROWS, 2 * ROWS))


async def test_answers_are_about_them_alone(store: MemoryStore) -> None:
    async with cp.open_partitions("trades", (name for name in (NAMES[2], NAMES[0])), store=store) as table:
        scan = table.scan(["ts", "symbol", "price"])
        assert (await scan.count(), await scan.min("price"), await scan.max("price")) == (2 * ROWS, 0, 3 * ROWS - 1)
        assert (await scan.tail(ROWS + 2))["price"].to_pylist() == [ROWS - 2, ROWS - 1, *range(2 * ROWS, 3 * ROWS)]
        assert (await scan.top_k(2))["price"].to_pylist() == [3 * ROWS - 1, 3 * ROWS - 2]
        assert set((await scan.latest_by("symbol"))["price"].to_pylist()) == {3 * ROWS - 2, 3 * ROWS - 1}
        assert [partition.name for partition in table.partitions] == ["2024-03-01.7", "2024-03-03.7"]


def test_without_an_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_days(tmp_path / "days", range(3), rows=10)
    monkeypatch.chdir(tmp_path)
    with cp.sync.open_partitions("days", ["2024-03-03", "2024-03-02"]) as table:
        assert table.scan(["price"]).to_arrow()["price"].to_pylist() == list(range(10, 30))


async def test_the_root_of_a_store_of_ones_own() -> None:
    store = MemoryStore({"2024-03-01/data.parquet": day_of_trades(0, rows=8, row_groups=1)})
    async with cp.open_partitions("", ["2024-03-01"], store=store) as table:
        assert await table.scan().count() == 8


@pytest.mark.parametrize("pages", [False, True])
async def test_requests_on_a_store(tmp_path: Path, *, pages: bool) -> None:
    write_days(tmp_path / "bucket" / "trades", range(3), rows=ROWS)
    await index_table(tmp_path / "bucket" / "trades", pages=pages)
    names = ["2024-03-01", "2024-03-02", "2024-03-03"]
    with ColdStoreServer(tmp_path) as server:
        options = server.storage_options
        async with cp.open_partitions("s3://bucket/trades", names, storage_options=options) as table:
            opened = [(request.method, request.path.rpartition("/")[2]) for request in await finished_requests(server)]
            assert sorted(opened) == sorted([("GET", "_pm"), ("HEAD", "data.parquet")] * 3 + [("GET", "_pages")])
            reading = cp.ReadOptions(page_index="always" if pages else "never")
            plan = await table.scan(["price"], "price >= 10 and price < 1990", options=reading).plan()
            of_pages = [request.path for request in (await finished_requests(server))[len(opened) :]]
            assert sorted(of_pages) == [f"bucket/trades/{name}/_pages" for name in names[:2] if pages]
            announced = sorted(request.path for request in plan.metadata_requests)
            assert announced == sorted(record.path for record in table.request_log)
            before = len(await finished_requests(server))
            assert (await table.scan(["price"]).to_arrow()).num_rows == 3 * ROWS
            data = [(request.method, request.path) for request in (await finished_requests(server))[before:]]
            assert sorted(data) == [("GET", f"bucket/trades/{name}/data.parquet") for name in names]


async def test_columns_that_older_partitions_lack_are_null(tmp_path: Path) -> None:
    table = copy_parquet_partitions("column_added_before", tmp_path)
    names = sorted(path.name for path in table.iterdir())
    assert len(names) == len(list((GOLDEN / "column_added_before" / "table").glob("2024*")))
    async with cp.open_partitions(table, names) as opened:
        assert_same_rows(await opened.scan().to_arrow(), expected_rows("column_added_before"))


async def test_a_name_that_may_be_a_day_or_the_rest_of_a_month(tmp_path: Path) -> None:
    """A table by month, of which only split pieces are named: their names look like days."""
    for name, days in (("2024-03-05", (4, 5, 6)), ("2024-03-08", (7, 8))):
        rows = pa.concat_tables([trades_of(day, 10) for day in days])
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.parquet").write_bytes(parquet_of(rows, row_groups=1))
    async with cp.open_partitions(tmp_path, ["2024-03-08", "2024-03-05"]) as table:
        assert (await table.scan(["price"]).to_arrow())["price"].to_pylist() == list(range(40, 90))
        assert await table.scan(where="ts >= '2024-03-07' and ts < '2024-03-08'").count() == 10
        assert await table.scan(where="ts >= '2024-03-09'").count() == 10


@pytest.mark.parametrize(
    ("days_of", "match"),
    [
        ({"2024-03": (0, 1, 2), "2024-03-02": (1,)}, r"2024-03: its rows are of 2024-03-01.* to 2024-03-03"),
        ({"2024-03-01.9": (0,), "2024-03-01T12.4": (0,)}, r"2024-03-01\.9: its rows are of 2024-03-01"),
        ({"2024-03-01": (0,), "2024-03-03": (0,)}, r"2024-03-03: its rows are of 2024-03-01"),
    ],
)
async def test_rows_that_would_be_read_twice_or_missed(
    tmp_path: Path, days_of: dict[str, tuple[int, ...]], match: str
) -> None:
    for name, days in days_of.items():
        rows = pa.concat_tables([trades_of(day, 10) for day in days])
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.parquet").write_bytes(parquet_of(rows, row_groups=1))
    with pytest.raises(FormatError, match=match) as caught:
        await cp.open_partitions(tmp_path, days_of)
    assert caught.value.kind == "TimeRangeMismatch"


async def test_archived_ones_are_refused_or_left_out() -> None:
    store = await make_store(DAYS[1])
    async with cp.open_partitions("trades", DAYS[:3], store=store) as table:
        with pytest.raises(cp.errors.ArchivedObjectError, match=r"2024-03-02\.1"):
            await table.scan(["price"]).to_arrow()
        left = await table.scan(["day", "price"], options=cp.ReadOptions(archived="skip")).to_arrow()
        assert set(left["day"].to_pylist()) == {0, 2}


@pytest.mark.parametrize(
    ("archived", "command"),
    [
        (DAYS[:1], f"coldparquet restore trades/{DAYS[0]} --all"),
        (DAYS[:2], f"for name in {DAYS[0]} {DAYS[1]}; do coldparquet restore trades/$name --all; done"),
    ],
)
async def test_no_more_is_restored_than_was_named(archived: list[str], command: str) -> None:
    store = await make_store(*archived)
    async with cp.open_partitions("trades", DAYS[:3], store=store) as table:
        for where in (None, "price >= -100"):
            with pytest.raises(cp.errors.ArchivedObjectError) as caught:
                await table.scan(["price"], where).to_arrow()
            assert command in str(caught.value)


async def test_archived_metadata_is_a_matter_of_the_scans() -> None:
    store = await make_store(DAYS[1])
    for day in DAYS:
        await store.delete(f"trades/{day}/_pm")
    async with cp.open_partitions("trades", DAYS[:3], store=store) as table:
        with pytest.raises(cp.errors.ArchivedObjectError):
            await table.scan(["price"]).to_arrow()
        left = await table.scan(["day", "price"], options=cp.ReadOptions(archived="skip")).to_arrow()
        assert set(left["day"].to_pylist()) == {0, 2}


async def test_one_that_is_not_there(store: MemoryStore) -> None:
    with pytest.raises(NotFoundError, match=r"2024-03-09.*no partition of this name .* open_table"):
        await cp.open_partitions("trades", [NAMES[0], "2024-03-09"], store=store)


async def test_a_refresh_sees_what_was_replaced(store: MemoryStore) -> None:
    async with cp.open_partitions("trades", NAMES[:2], store=store) as table:
        assert await table.scan().count() == 2 * ROWS
        shorter = day_of_trades(1, rows=ROWS // 2, row_groups=1)
        await store.put(f"trades/{NAMES[1]}/data.parquet", shorter, overwrite=True)
        await index_table("trades", store=store, force=True)
        assert await table.refresh()
        assert await table.scan().count() == ROWS + ROWS // 2


@pytest.mark.parametrize(
    ("names", "kind", "match"),
    [
        ([], "InvalidInput", "no partition was named"),
        ("2024-03-01.7", "InvalidInput", "names is a str"),
        (7, "InvalidInput", "names is a int"),
        ([""], "NotAPartition", "'' is no name"),
        ([7], "NotAPartition", "7 is no name"),
        (["2024-03-01.7", "other.parquet"], "NotAPartition", "'other.parquet' is no name"),
        (["https://u:SECRET@h/t/2024-03-01?X-Amz-Signature=SECRET"], "NotAPartition", "a name holds a slash"),
        (["../trades/2024-03-01.7"], "NotAPartition", "a name holds a slash"),
        (["x" * 3_000], "NotAPartition", "'x{79} is no name"),
        (["2024-03-01.7", "2024-03-01.7"], "SamePartition", "begin at the same time"),
        (["2024-03-01.7", "2024-03-01"], "SamePartition", "begin at the same time"),
        (["2024-03", "2024-03-01"], "SamePartition", "begin at the same time"),
    ],
)
async def test_what_cannot_be_read_together(store: MemoryStore, names: Any, kind: str, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match) as caught:
        await cp.open_partitions("trades", names, store=store)
    assert caught.value.kind == kind
    assert "SECRET" not in str(caught.value)
