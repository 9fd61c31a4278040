"""What is planned and fetched while a listing, or HEADs, tell whether the metadata is stale: a round trip less, and never another row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import coldparquet as cp
from coldparquet.maintenance.pack import pack_table
from coldparquet.options import ReadOptions
from coldparquet.storage.requests import FetchedRange, ObjectInfo, RangeRequest
from coldparquet.table_scan import Scan
from tests.support.questdb_tables import plain
from tests.support.request_logs import assert_plan_was_followed
from tests.support.small_tables import (
    TABLE,
    StoreWithClasses,
    day_of_trades,
    name_of,
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


async def packed(objects: dict[str, bytes]) -> TellsLate:
    store = TellsLate(objects)
    report = await pack_table(TABLE, store=store)
    assert report.action == "written"
    return store


@pytest.mark.parametrize(
    "objects",
    [partitions_alone(DAYS), table_of_days(DAYS), table_of_days(2)],
    ids=["directories", "transaction", "HEADs"],
)
async def test_data_is_on_the_way_before_it_is_known_that_the_metadata_is_current(objects: dict[str, bytes]) -> None:
    store = await packed(objects)
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
    store = await packed(partitions_alone(DAYS))
    store.told_before_data = 0
    async with cp.open_table(TABLE, store=store, options=options) as table:
        await read(table.scan())
    assert store.told_before_data > 0


async def test_who_may_stop_early_gets_no_data_ahead() -> None:
    store = await packed(partitions_alone(DAYS))
    store.told_before_data = 0
    async with (
        cp.open_table(TABLE, store=store) as table,
        table.scan().batches(slow_start=True) as batches,
    ):
        assert await batches.next_batch() is not None
    assert store.told_before_data > 0


async def test_of_what_was_replaced_the_rows_that_are_there_are_read() -> None:
    """And the plan tells of the requests that were in vain."""
    store, anew = await packed(partitions_alone(DAYS)), day_of_trades(4, rows=100, row_groups=1)
    await store.put(f"{TABLE}/{name_of(4)}/data.parquet", anew, overwrite=True)
    await store.delete([f"{TABLE}/{name_of(4)}/_pm"])
    store.waits = True
    async with cp.open_table(TABLE, store=store) as table:
        scan = table.scan(["price"])
        rows = await scan.to_arrow()
        assert rows.num_rows == ROWS * (DAYS - 1) + 100
        plan = await scan.plan()
    vain = [request for request in plan.metadata_requests if request.reason.startswith("data, by metadata")]
    assert vain
    assert len(vain) == store.gets, "what was fetched in vain is not fetched again"
    by_name = {partition.name: partition.metadata_source for partition in plan.partitions}
    assert (by_name[name_of(3)], by_name[name_of(4)]) == ("catalogue", "footer")


async def test_a_repeated_question_asks_only_what_tells_whether_its_answer_is_current() -> None:
    store = await packed(partitions_alone(DAYS))
    async with cp.open_table(TABLE, store=store) as table:
        first = await table.scan().to_arrow()
        gets = store.gets
        await table.refresh()
        scan = table.scan()
        assert (await scan.to_arrow()).equals(first)
    assert store.gets == gets


@pytest.mark.parametrize("leaves", ["cancelled", "closed"])
async def test_leaving_cancels_what_is_on_the_way(leaves: str) -> None:
    store = await packed(partitions_alone(DAYS))
    before = asyncio.all_tasks()
    async with cp.open_table(TABLE, store=store) as table:
        reading = asyncio.create_task(table.scan().to_arrow())
        await store.is_asked_for_data.wait()
        if leaves == "cancelled":
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert (await table.scan().to_arrow()).num_rows == DAYS * ROWS
    if leaves == "closed":
        with pytest.raises(cp.ColdParquetError):
            await reading
    await eventually(lambda: asyncio.all_tasks() <= before)
