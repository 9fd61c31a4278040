"""What a lake of others costs without an index: one request for each file, of the bytes that its footer needs."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.catalog.hive_keys import KeyColumn, key_kind, key_value, parse_keys, stated_day_ns
from coldparquet.storage.memory import MemoryStore
from tests.support.parquet_footers import parquet_bytes
from tests.support.small_tables import QuotingStore

DAYS, ROWS = 20, 12_000
FIRST = date(2024, 3, 1)
MOST_FOOTER_BYTES = 16 * 1024
COLUMNS = ["ts", "id", "price"]
WEEK = "ts >= '2024-03-05' and ts < '2024-03-12'"


def rows_of(day: int, *, hours_late: int = 0) -> pa.Table:
    """Rows over a whole day, of a file of some 200 KB."""
    random = np.random.default_rng(day)
    begin = datetime(2024, 3, 1, tzinfo=UTC) + timedelta(days=day, hours=hours_late)
    ts = int(begin.timestamp() * 1_000_000) + np.arange(ROWS, dtype=np.int64) * (86_400_000_000 // ROWS)
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "id": pa.array(np.arange(ROWS) + day * ROWS),
            "price": pa.array(random.random(ROWS)),
        }
    )


def by_date(day: int) -> str:
    return f"date={FIRST + timedelta(days=day)}"


def by_parts(day: int) -> str:
    stated = FIRST + timedelta(days=day)
    return f"year={stated.year}/month={stated.month}/day={stated.day}"


def lake(name: Any = by_date, *, hours_late: int = 0, **written: Any) -> QuotingStore:
    return QuotingStore(
        {
            f"lake/{name(day)}/a.parquet": parquet_bytes(rows_of(day, hours_late=hours_late), **written)
            for day in range(DAYS)
        }
    )


async def asked(
    store: MemoryStore, where: str | None, columns: list[str] = COLUMNS
) -> tuple[pa.Table, list[tuple[int, int]]]:
    """The rows; and how often each file was asked, and how many bytes of it came, in the order of days."""
    async with cp.open_table("lake", store=store) as table:
        rows = await table.scan(columns, where=where).to_arrow()
        spent: dict[str, list[int]] = {}
        for one in table.request_log:
            if one.path.endswith(".parquet"):
                spent.setdefault(one.path, []).append(one.fetched_bytes)
    return rows, [(len(spent[path]), sum(spent[path])) for path in sorted(spent)]


@pytest.mark.parametrize("name", [by_date, lambda day: f"month={3}/{by_date(day)}"])
async def test_a_week_by_time_takes_one_request_for_each_file(name: Any) -> None:
    store = lake(name)
    rows, spent = await asked(store, WEEK)
    assert rows.num_rows == 7 * ROWS
    assert [requests for requests, _ in spent] == [1] * DAYS
    sizes = [(await store.info(path)).size_bytes or 0 for path in sorted(store._objects)]
    for day, (_, fetched_bytes) in enumerate(spent[:-1]):
        if 4 <= day < 11:
            assert fetched_bytes == sizes[day], "the whole file with its footer"
        else:
            assert fetched_bytes <= MOST_FOOTER_BYTES < sizes[day]


async def test_keys_of_year_month_and_day_name_days_as_well() -> None:
    rows, spent = await asked(lake(by_parts), WEEK)
    assert rows.num_rows == 7 * ROWS
    assert [requests for requests, _ in spent] == [1] * DAYS


@pytest.mark.parametrize(
    ("path", "begin", "hours"),
    [
        ("date=2024-03-05/x", "2024-03-05T00", 24),
        ("date=2024-03-05/hour=07/x", "2024-03-05T07", 1),
        ("date=2024-03-05/hour=24/x", "2024-03-05T00", 24),
        ("year=2024/month=02/day=29/x", "2024-02-29T00", 24),
        ("Year=2024/Month=2/Day=29/Hour=23/x", "2024-02-29T23", 1),
        ("year=2023/month=02/day=29/x", None, 0),
        ("year=99999/month=1/day=1/x", None, 0),
        ("year=2024/month=02/x", None, 0),
        ("date=__HIVE_DEFAULT_PARTITION__/x", None, 0),
        ("city=Bern/x", None, 0),
    ],
)
def test_days_and_hours_that_paths_name(path: str, begin: str | None, hours: int) -> None:
    stated = parse_keys(path)
    kinds = {name: key_kind([value]) for name, value in stated}
    found = stated_day_ns([KeyColumn(name, kinds[name], key_value(kinds[name], value)) for name, value in stated])
    if begin is None:
        assert found is None
        return
    start_ns = int(np.datetime64(begin, "ns").astype(np.int64))
    assert found == (start_ns, start_ns + hours * 3_600_000_000_000)


async def test_rows_of_other_days_than_their_directories_say_are_found_by_their_statistics() -> None:
    rows, spent = await asked(lake(hours_late=30), WEEK)
    assert rows.num_rows == 7 * ROWS
    # Nobody says any longer which files hold the week.
    assert sorted(requests for requests, _ in spent) == [1] * (DAYS - 8) + [2] * 8


async def test_one_file_of_other_times_than_its_directory_says_is_found() -> None:
    store = lake()
    await store.put(f"lake/{by_date(17)}/a.parquet", parquet_bytes(rows_of(6)), overwrite=True)
    rows, spent = await asked(store, WEEK)
    assert rows.num_rows == 8 * ROWS
    assert [requests for requests, _ in spent] == [2 if day == 17 else 1 for day in range(DAYS)]


async def test_tiny_files_come_whole_only_where_their_rows_may_be_wanted() -> None:
    tiny = {f"lake/{by_date(day)}/a.parquet": parquet_bytes(rows_of(day).slice(0, 1200)) for day in range(DAYS)}
    sizes = [len(data) for data in tiny.values()]
    assert max(sizes) < 64 * 1024

    async def bytes_of(where: str | None, *, is_count: bool) -> list[tuple[int, int]]:
        store = QuotingStore(tiny)
        if not is_count:
            return (await asked(store, where))[1]
        async with cp.open_table("lake", store=store) as table:
            await table.scan(where=where).count()
            log = [one for one in table.request_log if one.path.endswith(".parquet")]
            assert len({one.path for one in log}) == len(log)
            return [(1, one.fetched_bytes) for one in log]

    whole = [(1, size) for size in sizes]
    assert await bytes_of("price < 0.5", is_count=False) == whole
    assert sorted(await bytes_of("price < 0.5", is_count=True)) == sorted(whole), "statistics may not decide"
    [newest, *others] = await bytes_of(None, is_count=True)
    assert newest == whole[-1]
    assert len(others) == DAYS - 1
    assert max(fetched_bytes for _, fetched_bytes in others) < 8 * 1024
    of_week = await bytes_of(WEEK, is_count=False)
    assert of_week[4:11] == whole[4:11]
    assert max(fetched_bytes for _, fetched_bytes in [*of_week[:4], *of_week[11:-1]]) < 8 * 1024


async def test_small_files_come_whole_only_while_the_cache_keeps_them_and_without_a_budget() -> None:
    store = lake()
    sizes = [(await store.info(path)).size_bytes or 0 for path in sorted(store._objects)]
    room_bytes = sum(sizes[4:7]) + 50_000

    async def spent(options: cp.ReadOptions, store_options: cp.StoreOptions | None) -> list[int]:
        opened = cp.open_table("lake", store=store, options=options, store_options=store_options)
        async with opened as table:
            await table.scan(COLUMNS, WEEK).to_arrow()
            log = [one for one in table.request_log if one.path.endswith(".parquet")]
        first = {one.path: one.fetched_bytes for one in reversed(log)}
        return [first[path] for path in sorted(first)]

    assert (await spent(cp.ReadOptions(), None))[4:11] == sizes[4:11]
    kept = (await spent(cp.ReadOptions(), cp.StoreOptions(cache_limit_bytes=room_bytes)))[4:11]
    assert kept[:3] == sizes[4:7]
    assert max(kept[3:]) <= MOST_FOOTER_BYTES
    for options, store_options in (
        (cp.ReadOptions(max_bytes=100_000_000), None),
        (cp.ReadOptions(), cp.StoreOptions(cache_limit_bytes=0)),
    ):
        assert max((await spent(options, store_options))[4:11]) <= MOST_FOOTER_BYTES


@pytest.mark.parametrize(
    "where", ["name = 'c'", [("price", "<", float("inf"))], [("raw", "==", b"c")], f"name = 'c' and {WEEK}"]
)
async def test_conditions_on_columns_of_any_type_name_no_time(where: Any) -> None:
    def of_day(day: int) -> pa.Table:
        few = rows_of(day).slice(0, 1200)
        letters = ["a", "b", "c", "d"] * 300
        return few.append_column("name", [letters]).append_column("raw", [[letter.encode() for letter in letters]])

    store = QuotingStore({f"lake/{by_date(day)}/a.parquet": parquet_bytes(of_day(day)) for day in range(DAYS)})
    rows, _ = await asked(store, where, [*COLUMNS, "name", "raw"])
    per_day = 1200 if "price" in str(where) else 300
    assert rows.num_rows == per_day * (7 if isinstance(where, str) and WEEK in where else DAYS)


async def test_a_footer_that_is_longer_than_those_before_takes_another_request() -> None:
    store = lake()
    await store.put(f"lake/{by_date(3)}/a.parquet", parquet_bytes(rows_of(3), row_group_size=40), overwrite=True)
    async with cp.open_table("lake", store=store) as table:
        assert await table.scan().count() == DAYS * ROWS
        log = [one.path for one in table.request_log if one.path.endswith(".parquet")]
    assert len(log) == DAYS + 1
    assert log.count(f"lake/{by_date(3)}/a.parquet") == 2


async def test_a_refreshed_lake_is_listed_alone_and_becomes_a_table_when_it_has_a_transaction() -> None:
    store = lake()
    async with cp.open_table("lake", store=store) as table:
        before = len(table.request_log)
        await table.refresh()
        assert [(one.operation, one.path) for one in table.request_log[before:]][:2] == [
            ("list", "lake"),
            ("list", "lake"),
        ]
        assert not [one.path for one in table.request_log[before:] if one.path.rpartition("/")[2] in {"_txn", "_meta"}]
        await store.put("lake/_txn", b"no transaction", overwrite=False)
        with pytest.raises(cp.ColdParquetError):
            await table.refresh()


async def test_a_plan_alone_takes_footers() -> None:
    async with cp.open_table("lake", store=lake()) as table:
        scan = table.scan(COLUMNS, where=WEEK)
        plan = await scan.plan()
        first, *others = [one.fetched_bytes for one in table.request_log if one.path.endswith(".parquet")]
        assert first <= 65_536, "nothing is known of the length of a footer yet"
        assert max(others) <= MOST_FOOTER_BYTES
        assert plan.bytes_fetched > 7 * MOST_FOOTER_BYTES
        assert (await scan.to_arrow()).num_rows == 7 * ROWS


async def test_a_limit_of_requests_has_no_room_for_a_second_reading() -> None:
    needle = f"price = {rows_of(7).column('price')[5].as_py()!r}"
    limited = cp.ReadOptions(goal="few-bytes", max_requests=DAYS)
    async with cp.open_table("lake", store=lake()) as table:
        free = table.scan(COLUMNS, where=needle, options=cp.ReadOptions(goal="few-bytes"))
        assert "(round trip 2)" in (await free.plan()).explain()
        scan = table.scan(COLUMNS, where=needle, options=limited)
        assert (await scan.to_arrow()).num_rows == 1
