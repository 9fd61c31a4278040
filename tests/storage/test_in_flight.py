"""The limit on requests and bytes in flight, by itself: what fits, who is next, what the store's refusals change."""

from __future__ import annotations

import asyncio
import random

import pytest

from coldparquet.errors import InvalidInputError, StorageError
from coldparquet.storage.limit import InFlightLimit, Slot

SLOW_DOWN = StorageError("slow down", kind="SlowDown")
RESET = StorageError("reset", kind="ConnectionFailed")


async def settle() -> None:
    for _ in range(10):
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


async def test_closing_refuses_those_that_wait() -> None:
    limit = InFlightLimit(max_requests=1, max_bytes=100)
    sent_in = await limit.enter(0)
    waiting = asyncio.create_task(limit.enter(0))
    await settle()
    limit.close()
    limit.leave(0, sent_in=sent_in, error=None)
    for refused in (waiting, limit.enter(0)):
        with pytest.raises(InvalidInputError, match="closed"):
            await refused
    assert (limit.request_count, limit.byte_count) == (0, 0)


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


@pytest.mark.parametrize("seed", range(20))
async def test_cancelling_anything_anywhere_leaves_no_slot_behind(seed: int) -> None:
    chance = random.Random(seed)
    limit = InFlightLimit(max_requests=3, max_bytes=100)
    most = 0

    async def work(size_bytes: int) -> None:
        nonlocal most
        async with Slot(limit, size_bytes):
            most = max(most, limit.request_count)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if chance.random() < 0.1:
                raise StorageError("slow down", kind="SlowDown")

    tasks = [asyncio.create_task(work(chance.randrange(120))) for _ in range(60)]
    while not all(task.done() for task in tasks):
        if chance.random() < 0.5:
            chance.choice(tasks).cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (limit.request_count, limit.byte_count) == (0, 0)
    assert 1 <= most <= 3
    await pass_through(limit, None)
