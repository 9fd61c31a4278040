"""The limit on requests and bytes in flight: what fits, who is next, what the store's refusals change."""

from __future__ import annotations

import asyncio
import random

import pytest

from coldparquet.errors import InvalidInputError, StorageError
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.storage.limit import InFlightLimit, LimitedStore
from coldparquet.storage.log import TraceStore
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import FetchedRange, Listing, RangeRequest
from coldparquet_testing.store_contract import CONTENT, request_for

SLOW_DOWN = StorageError("slow down", kind="SlowDown")
RESET = StorageError("reset", kind="ConnectionFailed")
FIRST_BYTES = ByteRange(0, 4)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def pass_through(limit: InFlightLimit, *outcomes: StorageError | None) -> None:
    """Send requests one after the other, with these outcomes."""
    for outcome in outcomes:
        limit.leave(0, sent_in=await limit.enter(0), error=outcome)


async def test_bytes_are_limited_as_well() -> None:
    limit = InFlightLimit(max_requests=10, max_bytes=100)
    first = await limit.enter(60)
    second = asyncio.create_task(limit.enter(50))
    third = asyncio.create_task(limit.enter(1))
    await settle()
    assert not second.done()
    assert not third.done(), "who came later waits, though it would fit"
    limit.leave(60, sent_in=first, error=None)
    await asyncio.gather(second, third)
    assert (limit.request_count, limit.byte_count) == (2, 51)


async def test_what_is_larger_than_the_limit_goes_alone() -> None:
    limit = InFlightLimit(max_requests=10, max_bytes=100)
    small = await limit.enter(1)
    large = asyncio.create_task(limit.enter(1_000))
    await settle()
    assert not large.done()
    limit.leave(1, sent_in=small, error=None)
    sent_in = await large
    another = asyncio.create_task(limit.enter(0))
    await settle()
    assert not another.done()
    limit.leave(1_000, sent_in=sent_in, error=None)
    await another


async def test_refusals_halve_the_limit_once_per_round_trip() -> None:
    limit = InFlightLimit(max_requests=16, max_bytes=100)
    in_flight = [await limit.enter(0) for _ in range(16)]
    for sent_in in in_flight[:10]:
        limit.leave(0, sent_in=sent_in, error=SLOW_DOWN)
    assert (limit.limit, limit.slowdown_count) == (8, 10)
    for sent_in in in_flight[10:]:
        limit.leave(0, sent_in=sent_in, error=None)
    assert limit.limit == 8, "successes of the old round say nothing about the new limit"
    await pass_through(limit, SLOW_DOWN, SLOW_DOWN, SLOW_DOWN, SLOW_DOWN, SLOW_DOWN)
    assert limit.limit == 1


async def test_a_window_of_successes_raises_the_limit_by_one() -> None:
    limit = InFlightLimit(max_requests=10, max_bytes=100)
    await pass_through(limit, SLOW_DOWN)
    limits = []
    for _ in range(24):
        await pass_through(limit, None)
        limits.append(limit.limit)
    assert limits == [6, 7, 8, *[8] * 7, *[9] * 9, *[10] * 5], "a small limit grows with every success"


async def test_other_failures_change_nothing() -> None:
    limit = InFlightLimit(max_requests=4, max_bytes=100)
    await pass_through(limit, SLOW_DOWN, RESET, RESET)
    assert (limit.limit, limit.slowdown_count) == (2, 1)
    await pass_through(limit, None)
    assert limit.limit == 3


async def test_fewer_fit_while_more_are_still_in_flight() -> None:
    limit = InFlightLimit(max_requests=4, max_bytes=100)
    in_flight = [await limit.enter(0) for _ in range(4)]
    waiting = asyncio.create_task(limit.enter(0))
    await settle()
    was_admitted = []
    for sent_in in in_flight:
        limit.leave(0, sent_in=sent_in, error=SLOW_DOWN)
        await settle()
        was_admitted.append(waiting.done())
    assert was_admitted == [False, False, True, True], "two fit now"


async def test_a_cancelled_giant_lets_the_others_pass() -> None:
    limit = InFlightLimit(max_requests=4, max_bytes=100)
    await limit.enter(60)
    giant = asyncio.create_task(limit.enter(90))
    small = asyncio.create_task(limit.enter(1))
    await settle()
    giant.cancel()
    await settle()
    assert small.done()
    assert (limit.request_count, limit.byte_count) == (2, 61)


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


async def test_the_rows_that_are_needed_first_are_requested_first() -> None:
    inner = Gated()
    trace = TraceStore(inner)
    store = LimitedStore(trace, max_concurrency=1)
    ranks = [0, 5, 3, 9, 3, 0]
    tasks = [
        asyncio.create_task(store.get(replace(request_for("table/x", ByteRange(0, place)), rank=rank)))
        for place, rank in enumerate(ranks, start=1)
    ]
    await settle()
    inner.gate.set()
    await asyncio.gather(*tasks)
    assert [record.byte_range.length_bytes for record in trace.records if record.byte_range] == [1, 6, 3, 5, 2, 4]


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
    assert (store.in_flight.request_count, store.in_flight.byte_count) == (0, 0)


async def test_wrappers_close_the_store_within() -> None:
    inner = Gated()
    await TraceStore(LimitedStore(inner, max_concurrency=1)).aclose()
    assert inner.closed == 1


@pytest.mark.parametrize("seed", range(20))
async def test_cancelling_and_failing_anywhere_leaves_no_slot_behind(seed: int) -> None:
    chance = random.Random(seed)
    most = 0

    class Busy(MemoryStore):
        async def get(self, request: RangeRequest) -> FetchedRange:
            nonlocal most
            most = max(most, store.in_flight.request_count)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if chance.random() < 0.1:
                raise SLOW_DOWN
            return await super().get(request)

    in_flight = InFlightLimit(max_requests=3, max_bytes=100)
    store = LimitedStore(Busy({"x": CONTENT}), max_concurrency=3, in_flight=in_flight)
    requests = [
        replace(request_for("x", ByteRange(0, chance.randrange(1, 120))), rank=chance.randrange(5)) for _ in range(60)
    ]
    tasks = [asyncio.create_task(store.get(request)) for request in requests]
    while not all(task.done() for task in tasks):
        if chance.random() < 0.5:
            chance.choice(tasks).cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    limit = store.in_flight
    assert (limit.request_count, limit.byte_count) == (0, 0)
    assert 1 <= most <= 3
    await pass_through(limit, None)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_question_with_late_ranks_is_not_overtaken_by_others_forever() -> None:
    limit = InFlightLimit(max_requests=1, max_bytes=1_000)
    await limit.enter(10)
    admitted: list[str] = []

    async def wait(question: str, rank: int) -> None:
        await limit.enter(10, rank=rank, question=question)
        admitted.append(f"{question}{rank}")
        limit.leave(10, sent_in=0, error=None)

    order = [("export", 500), ("short", 0), ("export", 400), ("short", 1), ("export", 450)]
    waiting = [asyncio.create_task(wait(question, rank)) for question, rank in order]
    await asyncio.sleep(0)
    limit.leave(10, sent_in=0, error=None)
    await asyncio.gather(*waiting)
    # Places go by arrival; each question fills its own by ranks.
    assert admitted == ["export400", "short0", "export450", "short1", "export500"]
