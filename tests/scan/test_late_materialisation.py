"""Late materialisation: the predicate's columns first, the others only where rows are left; the same rows either way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import coldparquet as cp
from coldparquet.errors import NotFoundError, ObjectChangedError
from coldparquet.format.sidecar import Sidecar
from coldparquet.maintenance.index import index_table
from coldparquet.options import COALESCING_BY_GOAL, Coalescing
from coldparquet.plan.blooms import BloomProbes, find_lookups
from coldparquet.plan.model import MetadataRequest
from coldparquet.plan.prune import prune
from coldparquet.plan.statistics import SidecarStatistics
from coldparquet.ranges import ByteRange
from coldparquet.scan.evidence import BLOOM_REASON, fetch_blooms
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.log import RequestRecord, TraceStore, metadata_requests
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet_testing.stores import Failure, FaultStore
from tests.support.blooms import (
    SIDECARS,
    bound,
    fields_of,
    file_with_blooms,
    numbers_file,
    sidecar_in_memory,
    sidecar_to_keep,
    with_references,
)
from tests.support.parquet_footers import parquet_bytes
from tests.support.request_logs import assert_plan_was_followed

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
    return parquet_bytes(
        rows(),
        row_group_size=ROWS // ROW_GROUPS,
        write_batch_size=PAGE_ROWS,
        data_page_size=1,
        write_page_index=True,
        use_dictionary=["symbol"],
    )


@pytest.fixture
async def store(data: bytes) -> MemoryStore:
    store = MemoryStore({"t/data.parquet": data})
    await index_table("t", store=store, pages=False, pack=False)
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


# --- The requests for bloom filters: few, small, all at once, and bound to the version of the file that was planned ---


PATH = "t/2024-01-01/data.parquet"
FAST = COALESCING_BY_GOAL["fast"]
SINGLE = Coalescing(gap_bytes=0, max_request_bytes=1 << 20, least_part_bytes=1 << 20)


def probes_of(where: str, sidecar: Sidecar) -> BloomProbes:
    predicate = bound(where, fields_of(sidecar))
    statistics = SidecarStatistics(sidecar)
    undecided = prune(predicate, statistics, sidecar.row_group_count)[0].survives
    columns: dict[int, int | None] = {index: index for index in range(sidecar.column_count)}
    return BloomProbes(
        sidecar, find_lookups(predicate, statistics, table=sidecar, columns=columns, row_groups=undecided)
    )


async def fetched(
    file: bytes, probes: BloomProbes, coalescing: Coalescing
) -> tuple[list[MetadataRequest], TraceStore, tuple[str, ...]]:
    trace = TraceStore(MemoryStore({PATH: file}))
    with metadata_requests() as spent:
        answers = await fetch_blooms(CheckedStore(trace), PATH, probes, coalescing=coalescing, may_grow=False)
    assert [(request.path, request.byte_range) for request in spent] == [
        (record.path, record.byte_range) for record in trace.records
    ]
    assert {record.reason for record in trace.records} <= {BLOOM_REASON}
    return spent, trace, answers.notes


async def test_filters_in_the_sidecar_cost_no_request() -> None:
    file, _ = numbers_file()
    spent, _, _ = await fetched(file, probes_of("id = 5", SIDECARS["inlined"](file)), FAST)
    assert spent == []


async def test_one_block_per_filter_in_one_round_trip() -> None:
    file, _ = numbers_file()
    sidecar = SIDECARS["external"](file)
    spent, _, _ = await fetched(file, probes_of("id = 5", sidecar), SINGLE)
    assert [request.fetched_bytes for request in spent] == [32] * 4
    for row_group, request in enumerate(spent):
        place = sidecar.bloom_location(row_group, 0)
        assert place is not None
        assert isinstance(request.byte_range, ByteRange)
        assert place.start <= request.byte_range.start < request.byte_range.stop <= place.stop
        assert (request.byte_range.start - place.start) % 32 == 0


class _AnswersTogether(StoreWrapper):
    """Answers nothing before so many requests have arrived."""

    def __init__(self, store: MemoryStore, count: int) -> None:
        super().__init__(store)
        self._barrier = asyncio.Barrier(count)

    async def get(self, request: RangeRequest) -> FetchedRange:
        await self._barrier.wait()
        return await super().get(request)


async def test_all_requests_of_a_round_trip_are_in_flight_together() -> None:
    file, _ = numbers_file()
    store = _AnswersTogether(MemoryStore({PATH: file}), count=4)
    probes = probes_of("id = 5", SIDECARS["external"](file))
    async with asyncio.timeout(60):
        with metadata_requests() as spent:
            await fetch_blooms(store, PATH, probes, coalescing=SINGLE, may_grow=False)
    assert len(spent) == 4


async def test_filters_that_lie_side_by_side_are_fetched_together() -> None:
    file, _ = numbers_file(rows=100)
    spent, _, _ = await fetched(file, probes_of("id = 5", SIDECARS["external"](file)), FAST)
    assert len(spent) == 1
    assert spent[0].fetched_bytes < 4 * 1024


async def test_a_second_round_trip_only_for_large_filters_of_unknown_length() -> None:
    requests = []
    for rows in (30, 4000):
        file, _ = numbers_file(rows=rows)
        sidecar = with_references(file, lambda place: ByteRange(place.start, place.start))
        spent, _, _ = await fetched(file, probes_of("id = 5", sidecar), SINGLE)
        requests.append([request.fetched_bytes for request in spent])
    small, large = requests
    assert len(small) == 1  # the four guesses overlap
    assert large == [512] * 4 + [32] * 4


async def test_a_file_that_was_replaced_is_noticed() -> None:
    file, _ = numbers_file()
    sidecar = SIDECARS["external"](file)
    with pytest.raises(ObjectChangedError):
        await fetched(file[:-1], probes_of("id = 5", sidecar), FAST)
    with pytest.raises(NotFoundError):
        await fetch_blooms(
            CheckedStore(MemoryStore()), PATH, probes_of("id = 5", sidecar), coalescing=FAST, may_grow=False
        )


async def test_damaged_filters_are_noted() -> None:
    file, _ = numbers_file(row_groups=1, rows=40)
    place = sidecar_in_memory(file).bloom_location(0, 0)
    assert place is not None
    damaged = file[: place.start] + b"\xff" * 20 + file[place.start + 20 :]
    _, _, notes = await fetched(damaged, probes_of("id = 5", sidecar_in_memory(file)), FAST)
    assert len(notes) == 1


def _needles(partitions: int) -> tuple[dict[str, bytes], int]:
    """Partitions of random numbers, with sidecars; the needle is in row group 1 of the last one."""
    random, objects, needle = Random(11), {}, 0
    for day in range(1, partitions + 1):
        numbers = [random.getrandbits(62) for _ in range(6000)]
        numbers[::3000] = [0, 0]
        numbers[1::3000] = [2**62, 2**62]
        needle = numbers[4500]
        file = file_with_blooms(pa.table({"id": numbers, "price": [0.5] * 6000}), row_group_rows=3000)
        directory = f"t/2024-01-{day:02}"
        objects[f"{directory}/data.parquet"] = file
        objects[f"{directory}/_pm"] = bytes(sidecar_to_keep(file, inline_bytes=65_536 if day % 2 else 0).file)
    return objects, needle


async def test_a_needle_in_a_table_reads_one_row_group() -> None:
    objects, needle = _needles(5)
    trace = TraceStore(MemoryStore(objects))
    async with cp.open_table("t", store=trace) as table:
        rows = await table.scan(where=f"id = {needle}").to_arrow()
        assert rows.column("id").to_pylist() == [needle]
        data = [record for record in trace.records if record.reason.startswith("row group")]
        assert {record.path for record in data} == {"t/2024-01-05/data.parquet"}
        blooms = [record for record in trace.records if record.reason == BLOOM_REASON]
        assert {record.path for record in blooms} == {"t/2024-01-02/data.parquet", "t/2024-01-04/data.parquet"}
        before = len(trace.records)
        assert (await table.scan(where="id = 77").to_arrow()).num_rows == 0
        assert {record.reason for record in trace.records[before:]} == {BLOOM_REASON}


async def test_switched_off_filters_are_not_asked() -> None:
    objects, needle = _needles(2)
    trace = TraceStore(MemoryStore(objects))
    async with cp.open_table("t", store=trace, options=cp.ReadOptions(bloom_filters=False)) as table:
        rows = await table.scan(where=f"id = {needle}").to_arrow()
    assert rows.num_rows == 1
    assert BLOOM_REASON not in {record.reason for record in trace.records}
