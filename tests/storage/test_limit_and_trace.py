from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from coldparquet.errors import InvalidInputError, NotFoundError
from coldparquet.ranges import ByteRange
from coldparquet.storage.limit import LimitedStore
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet_testing.store_contract import CONTENT, request_for
from coldparquet_testing.stores import FaultStore, Hang, scripted

if TYPE_CHECKING:
    from coldparquet.storage.requests import Listing

FIRST_BYTES = ByteRange(0, 4)


class Gated(MemoryStore):
    """Requests wait until the test opens the gate; counts those inside."""

    def __init__(self) -> None:
        super().__init__({"table/x": CONTENT})
        self.gate = asyncio.Event()
        self.inside = 0
        self.most_inside = 0
        self.closed = 0

    async def get(self, request: RangeRequest) -> FetchedRange:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            await self.gate.wait()
            return await super().get(request)
        finally:
            self.inside -= 1

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        await self.get(request_for("table/x", FIRST_BYTES))
        return await super().list(path, first_page_only=first_page_only)

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str:
        await self.get(request_for("table/x", FIRST_BYTES))
        return await super().put(path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class)

    async def aclose(self) -> None:
        self.closed += 1


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_never_more_than_the_limit_in_flight() -> None:
    inner = Gated()
    store = LimitedStore(inner, max_concurrency=3)
    reads = [asyncio.create_task(store.get(request_for("table/x", FIRST_BYTES))) for _ in range(10)]
    others = [
        asyncio.create_task(store.list("table")),
        asyncio.create_task(store.put("table/y", b"", overwrite=False)),
    ]
    await settle()
    assert inner.inside == 3
    inner.gate.set()
    await asyncio.gather(*reads, *others)
    assert (inner.most_inside, inner.inside) == (3, 0)


async def test_cancelled_requests_give_their_slots_back() -> None:
    inner = Gated()
    store = LimitedStore(inner, max_concurrency=2)
    tasks = [asyncio.create_task(store.get(request_for("table/x", FIRST_BYTES))) for _ in range(6)]
    await settle()
    for task in tasks[:4]:  # two in flight and two that wait
        task.cancel()
    await settle()
    assert inner.inside == 2
    inner.gate.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes] == [True] * 4 + [False] * 2
    async with asyncio.timeout(60):
        await asyncio.gather(*(store.get(request_for("table/x", FIRST_BYTES)) for _ in range(3)))
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_failed_requests_give_their_slots_back() -> None:
    store = LimitedStore(MemoryStore({"x": CONTENT}), max_concurrency=1)
    for _ in range(3):
        with pytest.raises(NotFoundError):
            await store.get(request_for("absent", FIRST_BYTES))
    async with asyncio.timeout(60):
        assert (await store.get(request_for("x", FIRST_BYTES))).data == CONTENT[:4]


async def test_wrappers_close_the_store_within() -> None:
    inner = Gated()
    await TraceStore(LimitedStore(inner, max_concurrency=1)).aclose()
    assert inner.closed == 1


async def test_a_closed_store_sends_nothing_not_even_what_it_held_back() -> None:
    inner = Gated()
    store = LimitedStore(inner, max_concurrency=1)
    in_flight, held_back = (asyncio.create_task(store.get(request_for("table/x", FIRST_BYTES))) for _ in range(2))
    await settle()
    await store.aclose()
    inner.gate.set()
    assert (await in_flight).data == CONTENT[:4]
    for refused in (held_back, store.get(request_for("table/x", FIRST_BYTES)), store.list("table")):
        with pytest.raises(InvalidInputError, match="closed"):
            await refused
    assert inner.most_inside == 1


async def test_trace_records_what_happened() -> None:
    times = iter([100.0, 101.0, 102.0, 104.0, 104.0, 104.5, 105.0, 106.0, 107.0, 108.0])
    store = TraceStore(MemoryStore({"table/x": CONTENT}), clock=lambda: next(times))
    await store.get(RangeRequest(path="table/x", byte_range=ByteRange(1020, 2000), reason="row group 3: ts"))
    with pytest.raises(NotFoundError):
        await store.get(request_for("table/absent", FIRST_BYTES))
    await store.list("table")
    await store.put("table/y", b"abc", overwrite=False)
    with pytest.raises(InvalidInputError):
        await store.put("table/y", b"abc", overwrite=False)
    rows = [
        (r.operation, r.path, r.byte_range, r.reason, r.started_s, r.finished_s, r.fetched_bytes, r.status, r.etag)
        for r in store.records
    ]
    assert rows == [
        ("get", "table/x", ByteRange(1020, 2000), "row group 3: ts", 0.0, 1.0, 4, "ok", "1"),
        ("get", "table/absent", FIRST_BYTES, "contract", 2.0, 4.0, 0, "NotFound", None),
        ("list", "table", None, "listing", 4.0, 4.5, 0, "ok", None),
        ("put", "table/y", None, "write 3 bytes", 5.0, 6.0, 0, "ok", "2"),
        ("put", "table/y", None, "write 3 bytes", 7.0, 8.0, 0, "AlreadyExists", None),
    ]


async def test_trace_records_cancellation_and_orders_by_start() -> None:
    store = TraceStore(FaultStore(MemoryStore({"x": CONTENT}), scripted({0: Hang()})))
    hanging = asyncio.create_task(store.get(request_for("x", ByteRange(0, 1))))
    await settle()
    await store.get(request_for("x", ByteRange(1, 2)))
    assert [record.status for record in store.records] == ["ok"]
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    assert [(record.byte_range, record.status) for record in store.records] == [
        (ByteRange(0, 1), "cancelled"),
        (ByteRange(1, 2), "ok"),
    ]


async def test_trace_clear_starts_anew() -> None:
    times = iter([5.0, 6.0, 50.0, 51.0])
    store = TraceStore(MemoryStore({"x": CONTENT}), clock=lambda: next(times))
    await store.get(request_for("x", FIRST_BYTES))
    store.clear()
    assert list(store.records) == []
    await store.get(request_for("x", FIRST_BYTES))
    assert [(record.started_s, record.finished_s) for record in store.records] == [(0.0, 1.0)]
