"""Memory and request slots: granted in the order of turns, given back whatever happens."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldparquet.scan.memory import Lease, Quota


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def take(room: Quota, amount: int, turn: int, granted: list[int]) -> None:
    await room.take(amount, turn=turn)
    granted.append(turn)


async def test_what_fits_is_granted_and_the_rest_waits_for_what_is_given_back() -> None:
    room, granted = Quota(10), list[int]()
    tasks = [asyncio.create_task(take(room, 5, turn, granted)) for turn in range(4)]
    await settle()
    assert granted == [0, 1]
    room.hold(-5)
    await settle()
    assert granted == [0, 1, 2]
    room.hold(-10)
    await asyncio.gather(*tasks)
    assert room.most_held == 10


async def test_the_earliest_turn_comes_first_and_small_claims_do_not_overtake_it() -> None:
    room, granted = Quota(10), list[int]()
    await room.take(8, turn=0)
    tasks = [asyncio.create_task(take(room, amount, turn, granted)) for amount, turn in ((9, 2), (1, 3), (3, 1))]
    await settle()
    assert granted == []
    room.hold(-8)
    await settle()
    assert granted == [1], "turn 3 would fit, but turn 2 would wait the longer for it"
    room.hold(-3)
    await settle()
    assert granted == [1, 2, 3]
    await asyncio.gather(*tasks)


async def test_whoever_is_waited_for_goes_on_whatever_is_held() -> None:
    room, granted = Quota(10), list[int]()
    await room.take(10, turn=0)
    tasks = [asyncio.create_task(take(room, 100, turn, granted)) for turn in (1, 2, 3)]
    await settle()
    assert granted == []
    room.hurry(2)
    await settle()
    assert granted == [1, 2]
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_claim_that_is_cancelled_holds_nothing_and_lets_others_pass() -> None:
    room, granted = Quota(10), list[int]()
    await room.take(6, turn=0)
    large = asyncio.create_task(take(room, 10, 1, granted))
    small = asyncio.create_task(take(room, 4, 2, granted))
    await settle()
    large.cancel()
    await small
    assert granted == [2]
    assert room.most_held == 10


async def test_a_claim_that_is_granted_and_cancelled_at_once_holds_nothing() -> None:
    room, granted = Quota(10), list[int]()
    await room.take(10, turn=0)
    unlucky = asyncio.create_task(take(room, 10, 1, granted))
    await settle()
    room.hurry(1)
    unlucky.cancel()
    await asyncio.gather(unlucky, return_exceptions=True)
    room.hold(-10)
    await asyncio.wait_for(room.take(10, turn=2), timeout=60)
    assert granted == []


async def test_memory_given_back_and_taken_in_the_same_breath_is_not_granted_in_between() -> None:
    room, granted = Quota(10), list[int]()
    await room.take(10, turn=0)
    waiting = asyncio.create_task(take(room, 4, 1, granted))
    await settle()
    room.hold(-10)
    room.hold(8)
    await settle()
    assert granted == []
    assert room.most_held == 10
    room.hold(-8)
    await waiting


async def test_a_holding_gives_everything_back_and_takes_no_more() -> None:
    room = Quota(10)
    holding = Lease(room, turn=0)
    await holding.take(4)
    holding.hold(3)
    holding.keep(5)
    holding.release()
    holding.hold(7)
    await holding.take(2)
    await asyncio.wait_for(room.take(10, turn=1), timeout=60)


@given(
    limit=st.integers(1, 20),
    claims=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=12),
    data=st.data(),
)
def test_no_claim_waits_for_ever_and_the_limit_holds_without_hurry(
    limit: int, claims: list[tuple[int, int]], data: st.DataObject
) -> None:
    claims = [(min(amount, limit), turn) for amount, turn in claims]

    async def scenario() -> None:
        room = Quota(limit)

        async def use(amount: int, turn: int) -> None:
            await room.take(amount, turn=turn)
            try:
                await asyncio.sleep(0)
            finally:
                room.hold(-amount)

        tasks = [asyncio.create_task(use(amount, turn)) for amount, turn in claims]
        for task in tasks:
            if data.draw(st.booleans()):
                await asyncio.sleep(0)
            if data.draw(st.booleans()):
                task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), timeout=60)
        assert room.most_held <= limit
        await asyncio.wait_for(room.take(limit, turn=99), timeout=60)

    asyncio.run(scenario())


@pytest.mark.parametrize("amount", [0, 11])
async def test_a_claim_beyond_the_limit_waits_until_it_is_urgent(amount: int) -> None:
    room, granted = Quota(10), list[int]()
    task = asyncio.create_task(take(room, amount, 0, granted))
    await settle()
    assert granted == ([0] if amount == 0 else [])
    room.hurry(0)
    await task
