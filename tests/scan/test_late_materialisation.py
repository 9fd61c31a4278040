"""Late materialisation: the predicate's columns first, the others only where rows are left; the same rows either way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.memory import MemoryStore
from coldparquet_testing.stores import Failure, FaultStore
from tests.support.request_logs import assert_plan_was_followed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.storage.log import RequestRecord
    from coldparquet.storage.requests import FetchedRange, RangeRequest

ROWS, ROW_GROUPS, PAGE_ROWS = 10_000, 5, 500
ALWAYS = cp.ReadOptions(late_materialisation="always", page_index="never", bloom_filters=False, coalesce_gap_bytes=0)
WITH_PAGES = cp.ReadOptions(
    late_materialisation="always", page_index="always", bloom_filters=False, coalesce_gap_bytes=0
)


def rows() -> pa.Table:
    """``key`` is spread over all row groups, so that minima and maxima leave all of them."""
    random = np.random.default_rng(7)
    keys = random.permutation(ROWS)
    return pa.table(
        {
            "payload": pa.array([f"payload of row {number}" for number in range(ROWS)]),
            "key": keys,
            "symbol": pa.array(np.array(["BTC", "ETH", "SOL"])[random.integers(0, 3, ROWS)]).dictionary_encode(),
            "maybe": pa.array(random.normal(size=ROWS), mask=random.random(ROWS) < 0.3),
            "nothing": pa.nulls(ROWS, pa.float64()),
            "list": pa.array([[float(number)] * (number % 4) for number in range(ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def data() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows(),
        sink,
        row_group_size=ROWS // ROW_GROUPS,
        write_batch_size=PAGE_ROWS,
        data_page_size=1,
        write_page_index=True,
        use_dictionary=["symbol"],  # type: ignore[arg-type]  # names of columns are allowed as well
    )
    return sink.getvalue().to_pybytes()


@pytest.fixture
async def store(data: bytes) -> MemoryStore:
    store = MemoryStore({"t/data.parquet": data})
    await index_table("t", store=store)
    return store


def of_data(log: Sequence[RequestRecord]) -> list[str]:
    return sorted(record.reason for record in log if record.role == "data")


def row_of(key: int) -> int:
    return rows().column("key").to_pylist().index(key)


@pytest.mark.parametrize("options", [ALWAYS, WITH_PAGES], ids=["whole chunks", "pages"])
@pytest.mark.parametrize(
    "where",
    [
        "key = 77",
        "key = 77 or key = 4711 or maybe > 2.5",
        "key < 9000",
        "key >= 0 and symbol = 'ETH'",
        "maybe is null and key > 9990",
        "key = 77 and symbol = 'DOGE'",
        "not (key > 3)",
        "key != 5 or nothing is null",
    ],
)
async def test_the_rows_are_those_of_one_stage(store: MemoryStore, where: str, options: cp.ReadOptions) -> None:
    async with cp.open_partition("t", store=store) as partition:
        for columns in (None, ["payload"], ["list", "key", "symbol"], ["nothing", "payload"], ["key"]):
            late = await partition.scan(columns, where, options=options).to_arrow()
            at_once = await partition.scan(
                columns, where, options=cp.ReadOptions(late_materialisation="never", page_index="never")
            ).to_arrow()
            assert late.schema.equals(at_once.schema, check_metadata=True)
            assert late.to_pylist() == at_once.to_pylist()


async def test_the_second_stage_fetches_where_rows_are_left_and_says_so(store: MemoryStore) -> None:
    found = row_of(77) * ROW_GROUPS // ROWS
    async with cp.open_partition("t", store=store, options=ALWAYS) as partition:
        scan = partition.scan(["payload"], "key = 77")
        plan = await scan.plan()
        before = len(partition.request_log)
        assert (await scan.to_arrow()).to_pylist() == [{"payload": f"payload of row {row_of(77)}"}]
        log = partition.request_log[before:]
    assert of_data(log) == sorted(
        [*(f"row group {number}: key" for number in range(ROW_GROUPS)), f"row group {found}: payload (1 matching row)"]
    )
    assert_plan_was_followed(plan, log)
    assert plan.round_trips == 2
    assert sum(record.fetched_bytes for record in log) < plan.bytes_fetched


async def test_without_a_row_left_nothing_more_is_fetched(store: MemoryStore) -> None:
    async with cp.open_partition("t", store=store, options=ALWAYS) as partition:
        before = len(partition.request_log)
        found = await partition.scan(["payload", "key"], "key = 77 and symbol = 'DOGE'").to_arrow()
        assert (found.num_rows, found.schema.names) == (0, ["payload", "key"])
        assert of_data(partition.request_log[before:]) == [
            f"row group {number}: key, symbol" for number in range(ROW_GROUPS)
        ]


async def test_with_known_pages_only_those_of_the_rows_left_are_fetched(store: MemoryStore) -> None:
    fetched = {}
    for name, options in (("chunks", ALWAYS), ("pages", WITH_PAGES)):
        async with cp.open_partition("t", store=store, options=options) as partition:
            before = len(partition.request_log)
            await partition.scan(["payload"], "key = 77").to_arrow()
            fetched[name] = sum(
                record.fetched_bytes
                for record in partition.request_log[before:]
                if record.reason.endswith("(1 matching row)")
            )
    assert 0 < fetched["pages"] < fetched["chunks"] / 3, "one page of four"


async def test_a_count_has_no_second_stage(store: MemoryStore) -> None:
    async with cp.open_partition("t", store=store, options=ALWAYS) as partition:
        before = len(partition.request_log)
        assert await partition.scan(where="key < 50").count() == 50
        assert {reason.split(": ")[1] for reason in of_data(partition.request_log[before:])} == {"key"}


async def test_a_limit_sends_no_second_stage_behind_it(store: MemoryStore) -> None:
    async with cp.open_partition("t", store=store, options=ALWAYS) as partition:
        before = len(partition.request_log)
        found = await partition.scan(["payload", "key"], "key >= 0 and maybe is not null", limit=10).to_arrow()
        assert found.num_rows == 10
        matching = ROWS // ROW_GROUPS - rows().column("maybe")[: ROWS // ROW_GROUPS].null_count
        assert [reason for reason in of_data(partition.request_log[before:]) if "payload" in reason] == [
            f"row group 0: payload ({matching:,} matching rows)"
        ]


class HeldStore(StoreWrapper):
    """Answers some requests only once it is allowed to."""

    def __init__(self, store: MemoryStore, holds: str) -> None:
        super().__init__(store)
        self.holds = holds
        self.allowed = asyncio.Event()
        self.seen: list[str] = []

    async def get(self, request: RangeRequest) -> FetchedRange:
        self.seen.append(request.reason)
        if request.reason.startswith(self.holds):
            await self.allowed.wait()
        return await super().get(request)


async def test_the_second_stage_of_a_row_group_does_not_wait_for_the_first_of_others(store: MemoryStore) -> None:
    held = HeldStore(store, "row group 4: key")
    async with (
        cp.open_partition("t", store=held, options=ALWAYS) as partition,
        partition.scan(["payload"], "key < 9000").batches() as batches,
    ):
        for _ in range(4):
            assert await asyncio.wait_for(batches.next_batch(), timeout=60) is not None
        assert sum("payload" in reason for reason in held.seen) == 4
        held.allowed.set()
        assert await batches.next_batch() is not None
        assert await batches.next_batch() is None


async def test_an_error_of_the_second_stage_reaches_the_consumer_in_its_turn(store: MemoryStore) -> None:
    broken = Failure(cp.errors.StorageError("the wire was cut"))
    faults = FaultStore(store, lambda _, request: broken if "row group 1: payload" in request.reason else None)
    async with (
        cp.open_partition("t", store=faults, options=ALWAYS) as partition,
        partition.scan(["payload"], "key < 9000").batches() as batches,
    ):
        assert await batches.next_batch() is not None
        with pytest.raises(cp.errors.StorageError, match="wire was cut"):
            await batches.next_batch()


@pytest.mark.parametrize("memory_limit_bytes", [1, 50_000])
async def test_two_stages_need_no_memory_that_is_not_there(store: MemoryStore, memory_limit_bytes: int) -> None:
    options = cp.ReadOptions(
        late_materialisation="always", page_index="never", memory_limit_bytes=memory_limit_bytes, coalesce_gap_bytes=0
    )
    async with cp.open_partition("t", store=store, options=options) as partition:
        found = await asyncio.wait_for(partition.scan(["payload"], "key < 9000").to_arrow(), timeout=60)
    assert found.num_rows == 9_000
