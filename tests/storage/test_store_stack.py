"""All wrappers together: their order, and what a bad store looks like from above."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from coldparquet.errors import InvalidInputError, StorageError
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.storage.base import ObjectStore
from coldparquet.storage.fsspec_store import FsspecStore
from coldparquet.storage.hedge import HedgePace
from coldparquet.storage.limit import InFlightLimit
from coldparquet.storage.local import LocalStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.open import StoreStack, stack_store
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet.storage.s3.store import S3Store
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from coldparquet_testing.store_contract import CONTENT, request_for
from coldparquet_testing.stores import Failure, FaultStore, Hang, scripted
from tests.support.http_servers import client_has_gone, respond, scripted_server

OBJECT = bytes(range(256)) * 4_000
PATIENT = StoreOptions(stall_timeout_s=2.0)


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "x").write_bytes(OBJECT)
    return tmp_path


@asynccontextmanager
async def stacked_s3(
    server: ColdStoreServer, store_options: StoreOptions = PATIENT, *, max_concurrency: int = 16
) -> AsyncIterator[StoreStack]:
    store = S3Store(storage_options=server.storage_options, store_options=store_options)
    stack = stack_store(store, store_options=store_options, max_concurrency=max_concurrency)
    try:
        yield stack
    finally:
        await stack.store.aclose()


async def fetch_all(stack: StoreStack, *, part_bytes: int, passes: int = 1) -> None:
    """Fetch the whole object in parts, all at once, and compare every byte."""

    async def fetch(start: int) -> None:
        asked = ByteRange(start, min(start + part_bytes, len(OBJECT)))
        assert (await stack.store.get(request_for("bucket/x", asked))).data == OBJECT[asked.start : asked.stop]

    for _ in range(passes):
        async with asyncio.TaskGroup() as group:
            for start in range(0, len(OBJECT), part_bytes):
                group.create_task(fetch(start))


@pytest.mark.parametrize(
    ("store", "options", "is_hedged"),
    [
        (S3Store(storage_options={"anon": True}), StoreOptions(), True),
        (S3Store(storage_options={"anon": True}), StoreOptions(hedging=False), False),
        (LocalStore(), StoreOptions(), False),
        (MemoryStore(), StoreOptions(), False),
        (FaultStore(MemoryStore(), scripted({})), StoreOptions(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_stores_with_spare_connections_are_hedged(
    store: ObjectStore, options: StoreOptions, is_hedged: bool
) -> None:
    stack = stack_store(store, store_options=options, max_concurrency=4)
    assert (stack.hedges is not None) is is_hedged
    assert stack.store is stack.retries
    assert stack.store.label == store.label


def test_other_filesystems_are_not_hedged() -> None:
    fsspec = pytest.importorskip("fsspec")
    store = FsspecStore(fsspec.filesystem("memory"), label="memory")
    assert stack_store(store, store_options=StoreOptions(), max_concurrency=4).hedges is None


async def test_the_ledger_sees_every_attempt() -> None:
    slow_down = Failure(StorageError("slow down", kind="SlowDown", status=503))
    inner = FaultStore(MemoryStore({"x": CONTENT}), scripted({0: slow_down, 1: slow_down}))
    stack = stack_store(inner, store_options=StoreOptions(), max_concurrency=8)
    assert (await stack.store.get(request_for("x", ByteRange(0, 4)))).data == CONTENT[:4]
    assert [(record.status, record.attempt) for record in stack.trace.records] == [
        ("SlowDown", 1),
        ("SlowDown", 2),
        ("ok", 3),
    ]
    in_flight = stack.limits.in_flight
    assert (in_flight.limit, in_flight.slowdown_count, in_flight.request_count) == (3, 2, 0)
    assert stack.retries.retry_count == 2


async def test_a_request_that_waits_for_its_next_attempt_holds_no_slot() -> None:
    refused = Failure(StorageError("reset", kind="ConnectionFailed", retry_after_s=30.0))
    inner = FaultStore(MemoryStore({"x": CONTENT}), scripted({0: refused}))
    stack = stack_store(inner, store_options=StoreOptions(), max_concurrency=1)
    waiting = asyncio.create_task(stack.store.get(request_for("x", ByteRange(0, 4))))
    async with asyncio.timeout(60):
        await asyncio.sleep(0.01)
        assert (await stack.store.get(request_for("x", ByteRange(4, 8)))).data == CONTENT[4:8]
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert stack.limits.in_flight.request_count == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Counting(MemoryStore):
    """Counts the requests that are in it at once, each under its reason."""

    def __init__(self) -> None:
        super().__init__({"x": CONTENT})
        self.inside, self.most_inside = Counter[str](), Counter[str]()

    async def get(self, request: RangeRequest) -> FetchedRange:
        for name in (request.reason, "all"):
            self.inside[name] += 1
            self.most_inside[name] = max(self.most_inside[name], self.inside[name])
        await asyncio.sleep(0.001)
        self.inside.subtract((request.reason, "all"))
        return await super().get(request)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((3, 3, 3), {"all": 3}),
        ((2, 5), {"all": 5, "stack 0": 2}),
        ((5, 2), {"all": 5, "stack 1": 2}),
    ],
)
async def test_stacks_over_one_store_share_its_limit(limits: tuple[int, ...], expected: dict[str, int]) -> None:
    inner = Counting()
    stacks = [stack_store(inner, store_options=StoreOptions(), max_concurrency=limit) for limit in limits]
    asked = request_for("x", ByteRange(0, 4))
    await asyncio.gather(
        *(
            stack.store.get(replace(asked, reason=f"stack {number}"))
            for _ in range(40)
            for number, stack in enumerate(stacks)
        )
    )
    assert {name: inner.most_inside[name] for name in expected} == expected
    assert len({stack.limits.in_flight for stack in stacks}) == 1
    in_flight = stacks[0].limits.in_flight
    assert (in_flight.request_count, in_flight.byte_count) == (0, 0)


async def test_a_stack_that_is_closed_closes_no_other() -> None:
    inner = MemoryStore({"x": CONTENT})
    stacks = [stack_store(inner, store_options=StoreOptions(), max_concurrency=1) for _ in range(2)]
    await stacks[0].store.aclose()
    assert (await stacks[1].store.get(request_for("x", ByteRange(0, 4)))).data == CONTENT[:4]


def test_event_loops_share_no_limit() -> None:
    inner = MemoryStore({"x": CONTENT})

    async def limit() -> InFlightLimit:
        return stack_store(inner, store_options=StoreOptions(), max_concurrency=1).limits.in_flight

    assert asyncio.run(limit()) is not asyncio.run(limit())


async def test_closed_for_good() -> None:
    stack = stack_store(MemoryStore({"x": CONTENT}), store_options=StoreOptions(), max_concurrency=1)
    await stack.store.aclose()
    with pytest.raises(InvalidInputError, match="closed") as caught:
        await stack.store.get(request_for("x", ByteRange(0, 4)))
    assert caught.value.kind == "StoreClosed"


async def test_errors_of_local_files_are_raised_at_once(tmp_path: Path) -> None:
    inner = FaultStore(LocalStore(), scripted({0: Failure(StorageError("input/output error"))}))
    stack = stack_store(inner, store_options=StoreOptions(), max_concurrency=1)
    with pytest.raises(StorageError):
        await stack.store.get(request_for(str(tmp_path / "x"), ByteRange(0, 4)))
    assert len(stack.trace.records) == 1


@pytest.mark.parametrize(
    "options",
    [
        ColdStoreOptions(error_503_probability=0.2, seed=1),
        ColdStoreOptions(cut_body_probability=0.3, seed=2),
        ColdStoreOptions(error_503_probability=0.1, cut_body_probability=0.1, seed=3),
    ],
    ids=["503", "cut bodies", "both"],
)
async def test_faults_of_a_real_server_are_invisible_from_above(bucket: Path, options: ColdStoreOptions) -> None:
    with ColdStoreServer(bucket, options) as server:
        async with stacked_s3(server) as stack:
            await fetch_all(stack, part_bytes=16_000)
            assert stack.retries.retry_count > 0
            assert stack.limits.in_flight.request_count == 0


async def test_hedges_stay_within_the_budget(bucket: Path) -> None:
    options = ColdStoreOptions(first_byte_s=0.02, slow_tail_probability=0.05, slow_tail_factor=10, seed=5)
    with ColdStoreServer(bucket, options) as server:
        async with stacked_s3(server, max_concurrency=8) as stack:
            await fetch_all(stack, part_bytes=6_000)
            hedges = stack.hedges
            assert hedges is not None
            assert hedges.won_count <= hedges.sent_count <= 0.05 * len(stack.trace.records)
            # One that was still waiting for its turn when the first request was answered never left.
            assert sum(record.is_hedge for record in stack.trace.records) <= hedges.sent_count
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_hanging_connection_is_raced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HedgePace, "slow_after_s", lambda _pace, _size_bytes: 0.05)
    monkeypatch.setattr(HedgePace, "may_hedge", lambda _pace: True)

    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        await client_has_gone(request)
        return web.Response(status=500)

    answer = respond(206, b"abcd", Content_Range="bytes 0-3/4", ETag='"1"')

    async with scripted_server() as script:
        script.answers = [hang, answer]
        store = S3Store(storage_options={"anon": True, "endpoint_url": script.endpoint_url})
        stack = stack_store(store, store_options=StoreOptions(), max_concurrency=1)
        assert (await stack.store.get(request_for("bucket/x", ByteRange(0, 4)))).data == b"abcd"
        await stack.store.aclose()
    assert [(record.is_hedge, record.status) for record in stack.trace.records] == [(False, "cancelled"), (True, "ok")]
    assert stack.hedges is not None
    assert (stack.hedges.sent_count, stack.hedges.won_count) == (1, 1)


@pytest.mark.parametrize("seed", range(5))
async def test_cancelled_in_the_middle_nothing_is_left(bucket: Path, seed: int) -> None:
    options = ColdStoreOptions(
        first_byte_s=0.005, slow_tail_probability=0.1, error_503_probability=0.1, cut_body_probability=0.1, seed=seed
    )
    with ColdStoreServer(bucket, options) as server:
        async with stacked_s3(server) as stack:
            reading = asyncio.create_task(fetch_all(stack, part_bytes=8_000, passes=20))
            await asyncio.sleep(0.03 * (seed + 1))
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            assert stack.limits.in_flight.request_count == 0
            assert stack.limits.in_flight.byte_count == 0
            await fetch_all(stack, part_bytes=128_000)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_hanging_store_and_a_timeout_of_the_caller() -> None:
    inner: Any = FaultStore(MemoryStore({"x": CONTENT}), scripted({0: Hang()}))
    stack = stack_store(inner, store_options=StoreOptions(), max_concurrency=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await stack.store.get(request_for("x", ByteRange(0, 4)))
    assert (inner.hanging_count, stack.limits.in_flight.request_count) == (0, 0)
