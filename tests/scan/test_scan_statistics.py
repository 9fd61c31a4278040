"""What `Scan.stats` says: of the scan alone, whatever else goes on with the table."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import StorageError
from coldparquet.maintenance.index import index_table
from coldparquet.prices import PriceTable
from coldparquet.storage.log import note_answer
from coldparquet.storage.memory import MemoryStore

if TYPE_CHECKING:
    from coldparquet.storage.log import RequestRecord
    from coldparquet.storage.requests import FetchedRange, RangeRequest

ROWS, ROW_GROUPS, DAYS = 6_000, 6, 4
DAY_US = 86_400_000_000
FIRST_DAY_US = 19_783 * DAY_US  # 2024-03-01
ALONE = cp.ReadOptions(coalesce_gap_bytes=0, page_index="never", check_storage_classes=False)


def make_day(day: int) -> bytes:
    random = np.random.default_rng(day)
    ts = FIRST_DAY_US + day * DAY_US + np.arange(ROWS) * (DAY_US // ROWS)
    table = pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "price": random.normal(size=ROWS),
            "size": random.integers(0, 1000, ROWS),
        }
    )
    table = table.set_column(0, pa.field("ts", table.schema.field("ts").type, nullable=False), table.column("ts"))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=ROWS // ROW_GROUPS, sorting_columns=[pq.SortingColumn(0)])
    return sink.getvalue().to_pybytes()


class ClassedStore(MemoryStore):
    """In memory, with storage classes, and with pauses in which other scans go on."""

    storage_class = "STANDARD_IA"

    has_storage_classes = True

    async def get(self, request: RangeRequest) -> FetchedRange:
        await asyncio.sleep(0)
        note_answer(http_status=206, storage_class=self.storage_class)
        await asyncio.sleep(0)
        return await super().get(request)


@pytest.fixture(scope="module")
def days() -> list[bytes]:
    return [make_day(day) for day in range(DAYS)]


@pytest.fixture
async def store(days: list[bytes]) -> ClassedStore:
    store = ClassedStore()
    for day, data in enumerate(days):
        await store.put(f"trades/2024-03-0{day + 1}.7/data.parquet", data, overwrite=False)
    await index_table("trades", store=store)
    return store


def summed_up(records: tuple[RequestRecord, ...]) -> tuple[int, int]:
    return len(records), sum(record.fetched_bytes for record in records)


async def test_a_scan_knows_what_it_has_cost(store: ClassedStore) -> None:
    async with cp.open_table("trades", store=store, options=ALONE) as table:
        opened_with = len(table.request_log)
        scan = table.scan(["ts", "price"], "ts >= '2024-03-02T04:00' and ts < '2024-03-03T08:00'")
        assert scan.stats.request_count == 0
        rows = await scan.to_arrow()
        plan, stats = await scan.plan(), scan.stats
        assert scan.request_log == table.request_log[opened_with:]
        assert (stats.request_count, stats.fetched_bytes) == summed_up(scan.request_log)
        assert stats.request_count == 2 + plan.request_count  # the sidecars of two days, and data
        assert (stats.wanted_bytes, stats.gap_bytes) == (plan.bytes_wanted, 0)
        assert (stats.row_count, stats.round_trips) == (rows.num_rows, 2)
        assert {record.role for record in scan.request_log} == {"metadata", "data"}
        assert stats.elapsed_s > 0
        assert stats.decode_s > 0
        json.dumps(stats.as_dict())


async def test_gaps_are_told_from_what_is_wanted(store: ClassedStore) -> None:
    options = cp.ReadOptions(coalesce_gap_bytes=1 << 20, page_index="never", check_storage_classes=False)
    async with cp.open_partition("trades/2024-03-01.7", store=store, options=options) as table:
        scan = table.scan(["ts", "size"])  # "price" lies between them
        await scan.to_arrow()
        plan = await scan.plan()
        assert plan.bytes_fetched > plan.bytes_wanted
        assert scan.stats.wanted_bytes == plan.bytes_wanted
        assert scan.stats.gap_bytes == plan.bytes_fetched - plan.bytes_wanted


async def test_dollars_are_those_of_the_class(store: ClassedStore) -> None:
    async with cp.open_table("trades", store=store, options=ALONE) as table:
        scan = table.scan(["price"])
        await scan.to_arrow()
        stats = scan.stats
        prices = PriceTable.default()
        expected = prices.request_dollars(
            "get",
            storage_class="STANDARD_IA",
            retrieved_bytes=stats.fetched_bytes,
            count=stats.request_count,
        )
        assert stats.dollars == pytest.approx(expected)
        assert stats.dollars != 0
        each = [scan.request_dollars(record) for record in scan.request_log]
        assert sum(dollars for dollars in each if dollars is not None) == pytest.approx(expected)
        assert len(set(each)) > 1, "a request for many bytes costs more"


async def test_no_price_is_made_up(store: ClassedStore, days: list[bytes]) -> None:
    store.storage_class = "OUTPOSTS"
    async with cp.open_table("trades", store=store, options=ALONE) as table:
        scan = table.scan(["price"])
        await scan.to_arrow()
        assert scan.stats.dollars is None
        assert None in map(scan.request_dollars, scan.request_log)
    free = MemoryStore({"2024-03-01.7/data.parquet": days[0]})
    async with cp.open_partition("2024-03-01.7", store=free) as table:
        scan = table.scan(["price"])
        await scan.to_arrow()
        assert scan.stats.dollars == 0.0
        assert {scan.request_dollars(record) for record in scan.request_log} == {0.0}


async def test_scans_that_run_at_once_have_their_own_requests(store: ClassedStore) -> None:
    async with cp.open_table("trades", store=store, options=ALONE) as table:
        opened_with = len(table.request_log)
        wheres = [f"ts >= '2024-03-0{day}' and ts < '2024-03-0{day + 1}'" for day in range(1, DAYS + 1)]
        scans = [table.scan(["ts", "price", "size"][: 1 + day % 3], where) for day, where in enumerate(wheres)]
        counted = table.scan(where="price > 0 and ts < '2024-03-02'")
        results = await asyncio.gather(*(scan.to_arrow() for scan in scans), counted.count())
        for day, scan in enumerate(scans):
            stats, plan = scan.stats, await scan.plan()
            name = f"trades/2024-03-0{day + 1}.7/"
            assert {record.path[: len(name)] for record in scan.request_log} == {name}
            data = [record for record in scan.request_log if record.role == "data"]
            assert len(data) == plan.request_count
            assert (stats.wanted_bytes, stats.row_count) == (plan.bytes_wanted, ROWS)
            assert (stats.request_count, stats.fetched_bytes) == summed_up(scan.request_log)
        assert counted.stats.row_count == results[-1]
        # All requests since the table was opened are charged to one scan each, and to no other.
        charged = sum(scan.stats.request_count for scan in (*scans, counted))
        assert charged == len(table.request_log) - opened_with


async def test_one_scan_read_twice_costs_twice(store: ClassedStore) -> None:
    async with cp.open_table("trades", store=store, options=ALONE) as table:
        scan = table.scan(["price"])
        await scan.to_arrow()
        once = scan.stats
        await scan.to_arrow()
        assert scan.stats.row_count == 2 * once.row_count
        assert scan.stats.wanted_bytes == 2 * once.wanted_bytes
        sidecars = DAYS - 1  # the newest one was read when the table was opened; none is read twice
        assert scan.stats.request_count == sidecars + 2 * (once.request_count - sidecars)
        assert (await scan.head(10)).num_rows == 10
        assert scan.stats.row_count == 2 * once.row_count + 10


@pytest.mark.parametrize(
    "method", ["count", "any", "tail", "top_k", "min", "latest_by", "null_count", "head", "first_timestamp"]
)
async def test_every_way_to_ask_is_charged_to_the_scan(store: ClassedStore, method: str) -> None:
    arguments: dict[str, list[object]] = {
        "tail": [5],
        "top_k": [5],
        "head": [5],
        "min": ["price"],
        "latest_by": ["size"],
        "null_count": ["size"],
    }
    async with cp.open_table("trades", store=store, options=ALONE) as table:
        opened_with = len(table.request_log)
        scan = table.scan(where="size > 990")
        await getattr(scan, method)(*arguments.get(method, []))
        assert scan.stats.request_count == len(table.request_log) - opened_with > 0
        assert scan.stats.elapsed_s > 0


async def test_a_stream_that_is_left_early_is_charged_what_it_has_sent(store: ClassedStore) -> None:
    async with cp.open_table("trades", store=store, options=ALONE) as table:
        opened_with = len(table.request_log)
        scan = table.scan(["ts", "price"])
        async with scan.batches() as batches:
            first = await batches.next_batch()
            assert first is not None
        elapsed_s = scan.stats.elapsed_s
        assert scan.stats.request_count == len(table.request_log) - opened_with
        assert scan.stats.row_count == first.num_rows
        await asyncio.sleep(0.01)
        assert scan.stats.elapsed_s == elapsed_s


async def test_a_scan_that_fails_is_over(store: ClassedStore) -> None:
    async with cp.open_table("trades", store=store, options=ALONE) as table:
        scan = table.scan(["price"])
        await scan.plan()

        async def fail(request: RangeRequest) -> FetchedRange:
            raise StorageError("refused", kind="Refused", path=request.path)

        store.get = fail  # type: ignore[method-assign]
        with pytest.raises(StorageError):
            await scan.to_arrow()
        elapsed_s = scan.stats.elapsed_s
        await asyncio.sleep(0.01)
        assert scan.stats.elapsed_s == elapsed_s
        assert "Refused" in {record.status for record in scan.request_log}


def test_the_physical_limit_is_latency_and_bandwidth(store: ClassedStore) -> None:
    async def read() -> cp.Scan:
        async with cp.open_table("trades", store=store, options=ALONE) as table:
            scan = table.scan(["price"])
            await scan.to_arrow()
            return scan

    at_hand = asyncio.run(read()).stats
    assert (at_hand.physical_limit_s, at_hand.times_physical_limit) == (0, None), "no network lies between"
    store.label = "a far store"
    stats = asyncio.run(read()).stats
    assert stats.physical_limit_s > 0
    assert stats.times_physical_limit == pytest.approx(stats.elapsed_s / stats.physical_limit_s)


def test_blocking_scans_tell_the_same(store: ClassedStore) -> None:
    with cp.sync.open_table("trades", store=store, options=ALONE) as table:
        scan, other = table.scan(["price"]), table.scan(["size"])
        for _ in zip(scan.batches(), other.batches(), strict=True):
            pass
        assert scan.stats.row_count == other.stats.row_count == DAYS * ROWS
        assert scan.stats.request_count == len(scan.request_log)
        data = [record.reason for record in scan.request_log if record.role == "data"]
        assert data
        assert all("price" in reason for reason in data)
