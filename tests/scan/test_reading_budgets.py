"""Budgets and goals of real reads: nothing is fetched that a budget refuses, and classes decide what is cheap."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.errors import BudgetExceededError
from coldparquet.maintenance.index import index_table
from coldparquet.storage.memory import MemoryStore
from coldparquet.table_scan import Scan
from tests.support.archive_store import ArchiveStore
from tests.support.parquet_footers import parquet_bytes
from tests.support.request_logs import data_requests

DAYS, ROWS, ROW_GROUPS = 3, 4_000, 8
DAY_US, FIRST_DAY_US = 86_400_000_000, 19_783 * 86_400_000_000  # 2024-03-01
ABOUT_2000 = "size >= 1990 and size < 2010"
NO_CACHE = cp.StoreOptions(cache_limit_bytes=0)


def day(number: int) -> bytes:
    """Every row group holds all sizes, so that only data tells which rows match."""
    random = np.random.default_rng(number)
    ts = pa.array(FIRST_DAY_US + number * DAY_US + np.arange(ROWS) * (DAY_US // ROWS), pa.timestamp("us", "UTC"))
    payload = [f"payload {value}" for value in random.integers(0, 10**9, ROWS)]
    table = pa.table(
        {
            "ts": ts,
            "size": pa.array(random.permutation(ROWS)),
            "payload": pa.array(payload, mask=random.random(ROWS) < 0.01),
        }
    )
    # A timestamp that is never null and sorted is the designated one.
    table = table.set_column(0, pa.field("ts", ts.type, nullable=False), ts)
    return parquet_bytes(
        table,
        row_group_size=ROWS // ROW_GROUPS,
        write_batch_size=50,
        data_page_size=1,
        write_page_index=True,
        use_dictionary=False,
        compression="none",
        sorting_columns=[pq.SortingColumn(0)],
    )


def path_of(number: int) -> str:
    return f"trades/2024-03-{number + 1:02}.7/data.parquet"


@pytest.fixture(scope="module")
def days() -> list[bytes]:
    return [day(number) for number in range(DAYS)]


@pytest.fixture
async def store(days: list[bytes]) -> MemoryStore:
    store = MemoryStore({path_of(number): data for number, data in enumerate(days)})
    await index_table("trades", store=store, pages=False, pack=False)
    return store


@pytest.fixture
async def classes(days: list[bytes]) -> ArchiveStore:
    store = ArchiveStore()
    for number, data in enumerate(days):
        await store.put(path_of(number), data, overwrite=False)
    await index_table("trades", store=store, pages=False, pack=False)
    return store


def one_by_one(**limits: Any) -> cp.ReadOptions:
    """Row groups are fetched apart, and data decides."""
    return cp.ReadOptions(coalesce_gap_bytes=0, bloom_filters=False, page_index="never", **limits)


READS: dict[str, Callable[[Scan], Awaitable[Any]]] = {
    "to_arrow": lambda scan: scan.to_arrow(),
    "head": lambda scan: scan.head(5),
    "count": lambda scan: scan.count(),
    "any": lambda scan: scan.any(),
    "null_count": lambda scan: scan.null_count("payload"),
    "min_max": lambda scan: scan.min_max("payload"),
    "first_timestamp": lambda scan: scan.first_timestamp(),
    "tail": lambda scan: scan.tail(5),
    "top_k": lambda scan: scan.top_k(5),
    "latest_by": lambda scan: scan.latest_by("size"),
}


@pytest.mark.parametrize("limit", [{"max_requests": 0}, {"max_bytes": 10}, {"max_usd": 1e-12}], ids=str)
@pytest.mark.parametrize("read", READS)
async def test_nothing_is_fetched_that_the_budget_refuses(store: MemoryStore, read: str, limit: dict[str, Any]) -> None:
    async with cp.open_table("trades", store=store, options=one_by_one(**limit)) as table:
        scan = table.scan(where="size < 10")
        with pytest.raises(BudgetExceededError, match=f"but {next(iter(limit))} is .*; nothing of it was fetched"):
            await READS[read](scan)
        assert data_requests(table.request_log) == []
        assert "budget        exceeded" in (await scan.plan()).explain()


async def test_what_metadata_answers_needs_no_budget(store: MemoryStore) -> None:
    async with cp.open_table("trades", store=store, options=one_by_one(max_requests=0, max_usd=0)) as table:
        assert await table.scan().count() == DAYS * ROWS
        assert (await table.scan(["size"], limit=0).to_arrow()).num_rows == 0
        assert str(await table.scan().last_timestamp()).startswith("2024-03-03")
        assert await table.scan().min("size") == 0


async def test_waves_spend_one_budget_together(store: MemoryStore) -> None:
    """The last rows with a rare size are looked for in 1, 2, 4 ... row groups, each with the columns of one request."""
    async with cp.open_table("trades", store=store, options=one_by_one(max_requests=8)) as table:
        scan = table.scan(["size", "payload"], "size = 2000")
        with pytest.raises(BudgetExceededError, match="for the same answer, but max_requests is 8") as raised:
            await scan.tail(3)
        sent = len(data_requests(table.request_log))
        assert 0 < sent <= 8
        assert sent == raised.value.details["spent_requests"]
        # Each answer has a budget of its own.
        with pytest.raises(BudgetExceededError) as again:
            await scan.tail(3)
        assert again.value.details["spent_requests"] == sent


async def test_reading_twice_takes_the_budget_twice(store: MemoryStore) -> None:
    async with cp.open_table("trades", store=store) as table:
        requests = (await table.scan(["size"], options=one_by_one()).plan()).request_count
        scan = table.scan(["size"], options=one_by_one(max_requests=requests))
        assert (await scan.to_arrow()).num_rows == (await scan.to_arrow()).num_rows == DAYS * ROWS
        with pytest.raises(BudgetExceededError, match="Goal '"):
            await table.scan(["size"], options=one_by_one(max_requests=requests - 1)).to_arrow()


@pytest.mark.parametrize("limit", [{}, {"max_requests": 10_000}], ids=["any number", "limited"])
async def test_a_second_stage_keeps_to_the_requests_that_were_announced(
    store: MemoryStore, limit: dict[str, Any]
) -> None:
    """Rows survive here and there: their pages are many requests, or what was planned, without its ends."""
    pages = cp.ReadOptions(
        coalesce_gap_bytes=0, bloom_filters=False, late_materialisation="always", page_index="always", **limit
    )
    async with cp.open_table("trades", store=store, store_options=NO_CACHE) as table:
        scan = table.scan(["payload"], ABOUT_2000, options=pages)
        plan, before = await scan.plan(), len(table.request_log)
        found = await scan.to_arrow()
        sent = data_requests(table.request_log[before:])
        assert found == await table.scan(["payload"], ABOUT_2000, options=one_by_one()).to_arrow()
        assert plan.round_trips == 2
        assert (len(sent) <= plan.request_count) == bool(limit)
        assert sum(byte_range.length_bytes for _, byte_range in sent) < plan.bytes_fetched


async def test_cheap_requests_depend_on_the_class_of_each_partition(classes: ArchiveStore) -> None:
    classes.archive(path_of(1), storage_class="STANDARD_IA")
    async with cp.open_table("trades", store=classes, options=cp.ReadOptions(goal="cheap")) as table:
        plan = await table.scan(["size"]).plan()
        gaps = [coalescing.gap_bytes for coalescing in plan.coalescings]
        assert gaps == [16 << 20, 100_000, 16 << 20]
        assert "in STANDARD_IA (price unverified)" in plan.explain()
        assert (await table.scan(["size"]).to_arrow()).num_rows == DAYS * ROWS


async def test_a_count_that_needs_data_knows_the_class_before_it_reads(classes: ArchiveStore) -> None:
    """Metadata answers do not ask for classes; as soon as data is needed, budget and gaps go by them."""
    for number in range(DAYS):
        classes.archive(path_of(number), storage_class="GLACIER_IR")
    standard = 2 * DAYS * 0.40e-6
    options = cp.ReadOptions(goal="cheap", max_usd=standard, bloom_filters=False, page_index="never")
    async with cp.open_table("trades", store=classes, options=options) as table:
        with pytest.raises(BudgetExceededError, match="but max_usd is") as raised:
            await table.scan(where="size < 10").count()
        assert raised.value.details["planned_usd"] > DAYS * 10e-6
        assert data_requests(table.request_log) == []
