"""What `Scan.stats` says: of the scan alone, whatever else goes on with the table."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import StorageError
from coldparquet.maintenance.index import index_table
from coldparquet.plan.model import ReadPlan, Technique
from coldparquet.prices import PriceTable
from coldparquet.scan.stats import request_dollars
from coldparquet.storage.log import RequestRecord, note_answer
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet.write import WriteOptions, write_partition
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer, FaultRule
from tests.support.questdb_tables import PARTITIONS
from tests.support.small_tables import parquet_of_day

ROWS, ROW_GROUPS, DAYS = 6_000, 6, 4
ALONE = cp.ReadOptions(coalesce_gap_bytes=0, page_index="never", check_storage_classes=False)


def make_day(day: int) -> bytes:
    random = np.random.default_rng(day)
    price = random.normal(size=ROWS)
    return parquet_of_day(day, ROW_GROUPS, ROWS, price=price, size=random.integers(0, 1000, ROWS))


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
    await index_table("trades", store=store, pages=False, pack=False)
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


# --- What `Scan.stats` says, beside what the server saw and would put on its invoice ----------------------------------


GOLDEN = next(partition for partition in PARTITIONS if partition.table == "row_groups")
DATA = "*/data.parquet"
UNKEPT = cp.StoreOptions(cache_limit_bytes=0, hedging=False)


@pytest.fixture
async def url(tmp_path: Path) -> str:
    partition = GOLDEN.copied_to(tmp_path / "bucket" / "db")
    await index_table(partition, pages=False, pack=False)
    return f"s3://bucket/db/{partition.name}"


@pytest.mark.parametrize("storage_class", ["STANDARD", "STANDARD_IA", "GLACIER_IR"])
async def test_dollars_are_those_of_the_invoice(url: str, tmp_path: Path, storage_class: str) -> None:
    options = ColdStoreOptions(storage_classes={"*": storage_class})
    with ColdStoreServer(tmp_path, options) as server:
        async with cp.open_partition(url, storage_options=server.storage_options, store_options=UNKEPT) as table:
            opened = [request_dollars(record, PriceTable.default()) for record in table.request_log]
            scan = table.scan(["id", "half"], "id >= 300")
            await scan.to_arrow()
            assert await scan.count() > 0
            assert scan.stats.dollars is not None
            assert sum(dollars or 0 for dollars in opened) + scan.stats.dollars == pytest.approx(
                server.invoice().dollars
            )
            classes = {record.storage_class for record in scan.request_log if record.operation == "get"}
            assert classes == {None if storage_class == "STANDARD" else storage_class}


async def test_what_goes_wrong_is_counted_and_what_the_store_spoils_is_free(url: str, tmp_path: Path) -> None:
    with ColdStoreServer(tmp_path, ColdStoreOptions(storage_classes={"*": "STANDARD_IA"})) as server:
        async with cp.open_partition(url, storage_options=server.storage_options, store_options=UNKEPT) as table:
            scan = table.scan(["id", "half"], "id >= 300")
            await scan.plan()
            planned = scan.stats
            server.reset()
            server.set_faults(
                FaultRule("slow-down", path=DATA, times=1),
                FaultRule("too-many-requests", path=DATA, times=1),
                FaultRule("cut-body", path=DATA, times=1),
            )
            rows = await scan.to_arrow()
            stats, log = scan.stats, scan.request_log
    assert rows.column("id").to_pylist() == list(range(300, GOLDEN.row_count + 1))
    assert stats.request_count - planned.request_count == len(server.requests)
    assert stats.retries == 3
    assert max(record.attempt for record in log) > 1
    assert {record.http_status for record in log if record.status != "ok"} == {503, 429, 206}
    assert (stats.dollars or 0) - (planned.dollars or 0) == pytest.approx(server.invoice().dollars)
    assert stats.fetched_bytes - planned.fetched_bytes == sum(
        served.bytes_sent for served in server.requests if served.status == 206
    )


async def test_first_bytes_are_noted_when_they_come(tmp_path: Path) -> None:
    file = tmp_path / "bucket" / "large.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"value": np.random.default_rng(1).normal(size=100_000)}), file, compression="none")
    with ColdStoreServer(tmp_path, ColdStoreOptions(first_byte_s=0.05, bandwidth_bytes_per_s=1e6)) as server:
        async with cp.open_partition(
            "s3://bucket/large.parquet", storage_options=server.storage_options, store_options=UNKEPT
        ) as table:
            scan = table.scan(options=cp.ReadOptions(goal="few-requests"))
            await scan.to_arrow()
    [data] = [record for record in scan.request_log if record.role == "data"]
    assert data.first_byte_s is not None
    assert data.first_byte_s - data.started_s >= 0.05
    transfer_s = data.fetched_bytes / 1e6
    assert data.finished_s - data.first_byte_s >= 0.3 * transfer_s  # busy machines notice the first byte late
    assert data.fetched_bytes >= 800_000


async def test_what_the_cache_answers_is_a_hit_and_no_request(url: str, tmp_path: Path) -> None:
    with ColdStoreServer(tmp_path) as server:
        async with cp.open_partition(url, storage_options=server.storage_options) as table:
            first, again = (table.scan(["id", "half"], "id >= 300") for _ in range(2))
            rows = await first.to_arrow()
            assert (await again.to_arrow()).equals(rows)
    assert first.stats.cache_hits == 0
    assert (again.stats.request_count, again.stats.fetched_bytes, again.stats.dollars) == (0, 0, 0.0)
    assert again.stats.cache_hits > 0
    assert again.stats.cache_hit_bytes == again.stats.wanted_bytes + again.stats.gap_bytes
    assert again.stats.times_physical_limit is None


# --- What plans say of techniques, on a table that has bloom filters and small pages ----------------------------------


PLANNED_DAYS, PLANNED_ROWS = 3, 4_000
OPTIONS = WriteOptions(row_group_rows=1_000, page_rows=100, pages=True, bloom_columns=("id",))


@pytest.fixture
async def table_path(tmp_path: Path) -> Path:
    """Three days of four row groups: even numbers in no order, all different, as large everywhere."""
    ids = np.random.default_rng(5).permutation(PLANNED_DAYS * PLANNED_ROWS).reshape(PLANNED_DAYS, PLANNED_ROWS) * 2
    for number in range(PLANNED_DAYS):
        day = datetime(2024, 3, 1 + number, tzinfo=UTC)
        times = pa.array([day + timedelta(seconds=20 * row) for row in range(PLANNED_ROWS)], pa.timestamp("us", "UTC"))
        fields: list[pa.Field[Any]] = [
            pa.field("ts", times.type, nullable=False), pa.field("id", pa.int64()), pa.field("x", pa.float64())
        ]  # fmt: skip
        rows = pa.table([times, ids[number], np.arange(PLANNED_ROWS) / 7], schema=pa.schema(fields))
        await write_partition(tmp_path / f"{day:%Y-%m-%d}.1", rows, timestamp="ts", options=OPTIONS)
    return tmp_path


async def plan_of(path: Path, where: str, **options: object) -> ReadPlan:
    async with cp.open_table(path, options=cp.ReadOptions(**options)) as table:  # type: ignore[arg-type]
        return await table.scan(["ts", "x"], where).plan()


def named(plan: ReadPlan, name: str) -> list[Technique]:
    return [technique for read in plan.partitions for technique in read.techniques if technique.name == name]


async def test_bloom_filters_of_all_partitions(table_path: Path) -> None:
    plan = await plan_of(table_path, "id = 11999 or id = 5000")
    assert sum(technique.considered for technique in named(plan, "bloom filter")) == PLANNED_DAYS * 4
    ruled_out = sum(technique.affected for technique in named(plan, "bloom filter"))
    assert ruled_out == PLANNED_DAYS * 4 - sum(read.row_groups_read for read in plan.partitions) > 0
    assert f"bloom filter  ruled out {ruled_out} of 12 row groups in 3 partitions" in plan.explain()


async def test_what_blooms_did_not_drop_is_not_listed(table_path: Path) -> None:
    plan = await plan_of(table_path, "id = 5000 and x >= 0")
    dropped = [one for read in plan.partitions for one in read.dropped if one.reason.startswith("the bloom filter")]
    assert {one.reason for one in dropped} == {"the bloom filter for id = 5000"}
    assert all(one.row_groups for one in dropped)


async def test_pages_leave_out_rows(table_path: Path) -> None:
    plan = await plan_of(table_path, "ts < '2024-03-01T00:10:00'", page_index="always")
    [index] = named(plan, "page index")
    assert (index.affected, index.considered, index.unit) == (900, 1_000, "rows")
    assert "page index    left out 900 of 1,000 rows: " in plan.explain()


async def test_partitions_of_which_nothing_is_left_have_no_page_index(table_path: Path) -> None:
    plan = await plan_of(table_path, "id = 5000")
    for read in plan.partitions:
        assert any(technique.name == "page index" for technique in read.techniques) == (read.row_groups_read > 0)


async def test_late_reading_counts_row_groups(table_path: Path) -> None:
    plan = await plan_of(table_path, "id > 100 and id < 20000", late_materialisation="always")
    assert {(one.affected, one.considered, one.reason) for one in named(plan, "late reading")} == {(4, 4, "asked for")}
    text = "late reading fetches the condition's columns first for 12 of 12 row groups in 3 partitions: asked for"
    assert text in " ".join(plan.explain().split())
