"""What is planned and fetched while a listing, or HEADs, tell whether the metadata is stale: a round trip less, and never another row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet import table_scan
from coldparquet.errors import ColdParquetError
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.options import KIB, MIB, ReadOptions
from coldparquet.ranges import SuffixRange
from coldparquet.storage.requests import FetchedRange, ObjectInfo, RangeRequest
from coldparquet.table_scan import Scan
from tests.support.questdb_tables import plain
from tests.support.request_logs import IN_VAIN, assert_plan_was_followed
from tests.support.small_tables import (
    DAY_US,
    FIRST_DAY_US,
    TABLE,
    QuotingStore,
    StoreWithClasses,
    day_of_trades,
    name_of,
    parquet_of,
    partitions_alone,
    table_of_days,
)
from tests.support.waiting import DEADLINE_S, eventually

DAYS = 30
ROWS = 48


class TellsLate(StoreWithClasses):
    """Tells of objects only once data was asked for, or, while it does not wait, counts how often that was the case."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.waits = False
        self.is_asked_for_data = asyncio.Event()
        self.told_before_data = 0
        self.gets = 0

    async def get(self, request: RangeRequest) -> FetchedRange:
        if request.role == "data":
            self.gets += 1
            self.is_asked_for_data.set()
        return await super().get(request)

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        await self._wait()
        return await super().list_between(path, start=start, stop=stop)

    async def info(self, path: str) -> ObjectInfo:
        await self._wait()
        return await super().info(path)

    async def _wait(self) -> None:
        if self.waits:
            async with asyncio.timeout(DEADLINE_S):
                await self.is_asked_for_data.wait()
        else:
            for _ in range(50):  # what planning ahead would ask for
                await asyncio.sleep(0.001)
            self.told_before_data += not self.is_asked_for_data.is_set()


Store = TypeVar("Store", bound=TellsLate)


async def packed(objects: dict[str, bytes], kind: type[Store]) -> Store:
    store = kind(objects)
    report = await pack_table(TABLE, store=store)
    assert report.action == "written"
    return store


@pytest.mark.parametrize(
    "objects",
    [partitions_alone(DAYS), table_of_days(DAYS), table_of_days(2)],
    ids=["directories", "transaction", "HEADs"],
)
async def test_data_is_on_the_way_before_it_is_known_that_the_metadata_is_current(objects: dict[str, bytes]) -> None:
    store = await packed(objects, TellsLate)
    async with cp.open_table(TABLE, store=StoreWithClasses(dict(objects))) as table:
        expected = plain(await table.scan().to_arrow())
    store.waits = True
    async with cp.open_table(TABLE, store=store) as table:
        scan = table.scan()
        assert plain(await scan.to_arrow()).equals(expected)
        plan = await scan.plan()
        assert_plan_was_followed(plan, scan.request_log)
        assert not any(note.startswith("sidecars believed") for note in plan.notes), "what is told late is in the plan"
        assert scan.stats.cache_hits == 0


@pytest.mark.parametrize(
    ("options", "read"),
    [
        (ReadOptions(), lambda scan: scan.plan()),
        (ReadOptions(), lambda scan: scan.head(5)),
        (ReadOptions(), lambda scan: scan.pieces(2)),
        (ReadOptions(max_requests=1_000), lambda scan: scan.to_arrow()),
        (ReadOptions(goal="cheap"), lambda scan: scan.to_arrow()),
        (ReadOptions(archived="skip"), lambda scan: scan.to_arrow()),
    ],
    ids=["plan", "limit", "pieces", "budget", "cheap", "archived"],
)
async def test_no_data_is_asked_for_ahead_where_it_may_not_be_wanted(
    options: ReadOptions, read: Callable[[Scan], Any]
) -> None:
    store = await packed(partitions_alone(DAYS), TellsLate)
    store.told_before_data = 0
    async with cp.open_table(TABLE, store=store, options=options) as table:
        await read(table.scan())
    assert store.told_before_data > 0


async def test_nothing_is_planned_where_no_partition_is_asked() -> None:
    store = await packed(partitions_alone(DAYS), TellsLate)
    async with cp.open_table(TABLE, store=store) as table:
        none = table.scan(where="ts < '1990-01-01'")
        assert (await none.to_arrow()).num_rows == await none.count() == (await none.tail(1)).num_rows == 0
    assert store.gets == 0


async def test_who_may_stop_early_gets_no_data_ahead() -> None:
    store = await packed(partitions_alone(DAYS), TellsLate)
    store.told_before_data = 0
    async with (
        cp.open_table(TABLE, store=store) as table,
        table.scan().batches(slow_start=True) as batches,
    ):
        assert await batches.next_batch() is not None
    assert store.told_before_data > 0


async def test_of_what_was_replaced_the_rows_that_are_there_are_read() -> None:
    """And the plan tells of the requests that were in vain."""
    store, anew = await packed(partitions_alone(DAYS), TellsLate), day_of_trades(4, rows=100, row_groups=1)
    await store.put(f"{TABLE}/{name_of(4)}/data.parquet", anew, overwrite=True)
    await store.delete([f"{TABLE}/{name_of(4)}/_pm"])
    store.waits = True
    async with cp.open_table(TABLE, store=store) as table:
        scan = table.scan(["price"])
        rows = await scan.to_arrow()
        assert rows.num_rows == ROWS * (DAYS - 1) + 100
        plan = await scan.plan()
    vain = [request for request in plan.metadata_requests if request.reason == IN_VAIN]
    assert len(vain) == DAYS - 1, "the newest partition is read by its own sidecar, which tells no version"
    assert store.gets == len(vain) + 1, "what was fetched in vain is not fetched again"
    by_name = {partition.name: partition.metadata_source for partition in plan.partitions}
    assert (by_name[name_of(3)], by_name[name_of(4)]) == ("catalogue", "footer")


async def test_a_repeated_question_asks_only_what_tells_whether_its_answer_is_current() -> None:
    store = await packed(partitions_alone(DAYS), TellsLate)
    async with cp.open_table(TABLE, store=store) as table:
        first = await table.scan().to_arrow()
        gets = store.gets
        await table.refresh()
        scan = table.scan()
        assert (await scan.to_arrow()).equals(first)
    assert store.gets == gets


class ReplacedMeanwhile(TellsLate):
    """Replaces an object once it was asked for data, before it tells of it."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.replacements: dict[str, bytes] = {}

    async def _wait(self) -> None:
        await super()._wait()
        replacements, self.replacements = self.replacements, {}
        for path, data in replacements.items():
            for _ in range(20):
                await asyncio.sleep(0.001)  # the answers are there, and of the old version
            await self.put(path, data, overwrite=True)


@pytest.mark.parametrize("objects", [partitions_alone(DAYS), table_of_days(DAYS)], ids=["directories", "transaction"])
async def test_what_is_replaced_between_the_data_and_the_listing_is_read_as_it_is_then(
    objects: dict[str, bytes],
) -> None:
    path = f"{TABLE}/{name_of(4)}/data.parquet"
    store = await packed(dict(objects), ReplacedMeanwhile)
    store.replacements, store.waits = {path: objects[path]}, True
    async with cp.open_table(TABLE, store=store) as table:
        scan = table.scan()
        assert (await scan.to_arrow()).num_rows == ROWS * DAYS
        plan = await scan.plan()
    assert any(request.reason == IN_VAIN for request in plan.metadata_requests)
    assert plan.partitions[4].metadata_source == "sidecar"


class HangsWithData(TellsLate):
    """Answers no request for data, and counts those that were cancelled."""

    hangs = True
    cancelled = 0

    async def get(self, request: RangeRequest) -> FetchedRange:
        answer = await super().get(request)
        if self.hangs and request.role == "data":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return answer


@pytest.mark.parametrize("leaves", ["cancelled", "refused", "stale"])
async def test_leaving_cancels_what_is_on_the_way(leaves: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await packed(partitions_alone(DAYS), HangsWithData)
    before = asyncio.all_tasks()

    async def refuse(_: object) -> None:
        raise ColdParquetError("it is not admitted")

    if leaves == "refused":
        monkeypatch.setattr(table_scan, "admit", refuse)
    if leaves == "stale":
        path = f"{TABLE}/{name_of(4)}/data.parquet"
        await store.put(path, partitions_alone(DAYS)[path], overwrite=True)
    async with cp.open_table(TABLE, store=store) as table:
        reading = asyncio.create_task(table.scan().to_arrow())
        await store.is_asked_for_data.wait()
        if leaves == "stale":
            await eventually(lambda: store.cancelled > 0)
        elif leaves == "cancelled":
            reading.cancel()
        if leaves != "stale":
            with pytest.raises((asyncio.CancelledError, ColdParquetError)):
                await reading
        assert store.cancelled >= DAYS - 2, "all but the newest one, and the stale one"
        store.hangs = False
        monkeypatch.undo()
        rows = await (reading if leaves == "stale" else table.scan().to_arrow())
        assert rows.num_rows == DAYS * ROWS
    assert asyncio.all_tasks() <= before


async def test_closing_the_table_leaves_no_task() -> None:
    store = await packed(partitions_alone(DAYS), TellsLate)
    before = asyncio.all_tasks()
    async with cp.open_table(TABLE, store=store) as table:
        reading = asyncio.create_task(table.scan().to_arrow())
        await store.is_asked_for_data.wait()
    with pytest.raises(ColdParquetError):
        await reading
    assert asyncio.all_tasks() <= before


def day_of_two_columns(day: int, value: int) -> bytes:
    """A file of 50 rows with one number in both columns, one of which is constant, so that its statistics tell it."""
    ts = FIRST_DAY_US + day * DAY_US + np.arange(50) * 1_000_000
    columns = {
        "ts": pa.array(ts, pa.timestamp("us", "UTC")),
        "price": value + np.arange(50.0),
        "tag": np.full(50, value),
    }
    return parquet_of(pa.table(columns), row_groups=1, compression="none", use_dictionary=False)


async def test_no_row_is_of_two_versions_of_a_file() -> None:
    """A file is replaced, with its sidecar, by one of the same size and layout, when its data was fetched and not confirmed."""
    store, anew, days = ReplacedMeanwhile({}), QuotingStore({}), [f"2024-03-{day + 1:02}" for day in range(16)]
    for day, name in enumerate(days):
        await store.put(f"{TABLE}/{name}/data.parquet", day_of_two_columns(day, 1000), overwrite=True)
    await anew.put(f"{TABLE}/{days[3]}/data.parquet", day_of_two_columns(3, 2000), overwrite=True)
    for one in (store, anew):
        await index_table(TABLE, store=one, pages=False, pack=False)
    await pack_table(TABLE, store=store)
    for name in ("data.parquet", "_pm"):
        path = f"{TABLE}/{days[3]}/{name}"
        whole = await anew.get(RangeRequest(path=path, byte_range=SuffixRange(1 << 30), reason="test"))
        store.replacements[path] = whole.data
    store.waits = True
    async with cp.open_table(TABLE, store=store) as table:
        rows = await table.scan(["price", "tag"]).to_arrow()
    assert rows.slice(150, 1).to_pylist() == [{"price": 2000.0, "tag": 2000}]


@pytest.mark.parametrize("memory_limit_bytes", [64 * KIB, 512 * MIB])
async def test_what_is_fetched_ahead_is_a_small_part_of_the_memory_limit(memory_limit_bytes: int) -> None:
    store = await packed(partitions_alone(DAYS), TellsLate)
    store.told_before_data = 0
    options = ReadOptions(memory_limit_bytes=memory_limit_bytes)
    async with cp.open_table(TABLE, store=store, options=options) as table:
        assert (await table.scan().to_arrow()).num_rows == DAYS * ROWS
    assert (store.told_before_data > 0) is (memory_limit_bytes == 64 * KIB)
