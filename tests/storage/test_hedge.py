"""HedgedStore on a loop whose time jumps: what is slow, who wins, what is left behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import quantiles

import pytest

from coldparquet.errors import ColdParquetError, NotFoundError, StorageError
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange
from coldparquet.storage.hedge import BUDGET_SHARE, LEAST_SAMPLES, HedgedStore, HedgePace
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.open import stack_store
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet.storage.retry import FIRST_WAIT_S
from coldparquet_testing.store_contract import CONTENT, request_for
from tests.support.waiting import in_virtual_time, run_in_virtual_time

pytestmark = pytest.mark.hedges

ASKED = ByteRange(0, 100)


@dataclass
class Answer:
    """One request's fate."""

    after_s: float = 1.0
    error: ColdParquetError | None = None


@dataclass
class Slow(MemoryStore):
    """Answers each GET after a time; ``hedge`` says what becomes of the second requests."""

    first: Callable[[int], Answer] = lambda _: Answer()
    hedge: Callable[[int], Answer] = lambda _: Answer()
    sent: list[RangeRequest] = field(default_factory=list)
    in_flight: int = 0
    cancelled: list[RangeRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__({"x": CONTENT})

    async def get(self, request: RangeRequest) -> FetchedRange:
        number = sum(other.is_hedge == request.is_hedge for other in self.sent)
        self.sent.append(request)
        fate = (self.hedge if request.is_hedge else self.first)(number)
        self.in_flight += 1
        try:
            await asyncio.sleep(fate.after_s)
        except asyncio.CancelledError:
            self.cancelled.append(request)
            await asyncio.sleep(0)  # closing a connection takes a turn of the loop
            raise
        finally:
            self.in_flight -= 1
        if fate.error is not None:
            raise fate.error
        return await super().get(request)

    @property
    def hedges(self) -> int:
        return sum(request.is_hedge for request in self.sent)


def request(size_bytes: int = 100) -> RangeRequest:
    return request_for("x", ByteRange(0, size_bytes), may_be_short=True)


async def warmed(inner: Slow, count: int = 40) -> HedgedStore:
    """Send GETs until the store knows what is usual."""
    store = HedgedStore(inner)
    for _ in range(count):
        await store.get(request())
    return store


async def timed(store: HedgedStore, wanted: RangeRequest) -> tuple[bytes, float]:
    started_s = asyncio.get_running_loop().time()
    data = (await store.get(wanted)).data
    return data, round(asyncio.get_running_loop().time() - started_s, 6)


@in_virtual_time
async def test_a_slow_get_is_sent_again_and_the_second_wins() -> None:
    inner = Slow(first=lambda number: Answer(20.0 if number == 40 else 1.0))
    store = await warmed(inner)
    data, elapsed_s = await timed(store, request())
    assert (data, elapsed_s) == (CONTENT[:100], 2.3)  # slow after 1.3 s, and 1 s for the second
    assert (store.sent_count, store.won_count, inner.hedges) == (1, 1, 1)
    assert [gone.is_hedge for gone in inner.cancelled] == [False]
    assert inner.in_flight == 0


@in_virtual_time
async def test_a_first_that_is_only_a_little_slow_wins() -> None:
    inner = Slow(first=lambda number: Answer(1.8 if number == 40 else 1.0))
    store = await warmed(inner)
    assert await timed(store, request()) == (CONTENT[:100], 1.8)
    assert (store.sent_count, store.won_count) == (1, 0)
    assert [gone.is_hedge for gone in inner.cancelled] == [True]
    assert inner.in_flight == 0


@in_virtual_time
async def test_nothing_is_hedged_before_enough_is_known() -> None:
    inner = Slow(first=lambda number: Answer(50.0 if number == LEAST_SAMPLES - 1 else 1.0))
    store = await warmed(inner, LEAST_SAMPLES)
    assert inner.hedges == 0
    await store.get(request())
    large = request_for("x", ByteRange(0, 100_000), may_be_short=True)  # of a class that nothing is known of
    inner.first = lambda _: Answer(50.0)
    await store.get(large)
    assert inner.hedges == 0


@in_virtual_time
async def test_an_error_of_one_waits_for_the_other() -> None:
    reset = StorageError("reset", kind="ConnectionFailed")
    fates = {40: Answer(1.8, reset), 80: Answer(3.0), 120: Answer(1.8, reset)}
    hedges = [Answer(1.0), Answer(0.2, NotFoundError("x")), Answer(1.0, NotFoundError("x"))]
    inner = Slow(first=lambda number: fates.get(number, Answer()), hedge=lambda number: hedges[number])
    store = await warmed(inner)
    assert await timed(store, request()) == (CONTENT[:100], 2.3)  # the first failed, the second came
    for _ in range(39):
        await store.get(request())
    assert await timed(store, request()) == (CONTENT[:100], 3.0)  # the second failed, the first came
    for _ in range(39):
        await store.get(request())
    with pytest.raises(StorageError) as caught:  # both failed: the first one's error counts
        await store.get(request())
    assert caught.value is reset
    assert (store.sent_count, store.won_count) == (3, 1)


def test_a_second_one_that_is_refused_is_tried_once_more() -> None:
    slow_down = StorageError("slow down", kind="SlowDown", status=503)

    async def check(*hedges: Answer) -> tuple[float, list[int]]:
        inner = Slow(first=lambda number: Answer(20.0 if number == 40 else 1.0), hedge=lambda number: hedges[number])
        _, elapsed_s = await timed(await warmed(inner), request())
        assert inner.in_flight == 0
        return elapsed_s, [sent.attempt for sent in inner.sent if sent.is_hedge]

    elapsed_s, attempts = run_in_virtual_time(check(Answer(0.2, slow_down), Answer(1.0)))
    assert 1.3 + 0.2 + 1.0 <= elapsed_s <= 1.3 + 0.2 + 1.0 + FIRST_WAIT_S
    assert attempts == [1, 2]
    assert run_in_virtual_time(check(Answer(0.2, slow_down), Answer(0.2, slow_down))) == (20.0, [1, 2])


@in_virtual_time
async def test_an_error_before_the_get_is_slow_is_raised_at_once() -> None:
    reset = StorageError("reset", kind="ConnectionFailed")
    inner = Slow(first=lambda number: Answer(0.5, reset if number == 40 else None))
    store = await warmed(inner)
    with pytest.raises(StorageError):
        await store.get(request())
    assert inner.hedges == 0


@in_virtual_time
async def test_timeouts_of_the_store_itself_are_not_taken_for_the_end_of_the_race() -> None:
    inner = Slow()
    store = await warmed(inner)

    async def fail(_: RangeRequest) -> FetchedRange:
        raise TimeoutError

    inner.get = fail  # type: ignore[assignment, method-assign]
    with pytest.raises(TimeoutError):
        await store.get(request())


@in_virtual_time
async def test_at_most_a_twentieth_of_the_requests_are_hedges() -> None:
    inner = Slow(first=lambda number: Answer(20.0 if number % 11 == 10 else 1.0))
    store = await warmed(inner, 2_000)
    firsts = len(inner.sent) - inner.hedges
    assert inner.hedges / firsts > 0.5 * BUDGET_SHARE
    assert inner.hedges <= 1 + BUDGET_SHARE * firsts, "one is sent on credit"
    assert store.won_count == store.sent_count == inner.hedges


@in_virtual_time
async def test_partial_outage_turns_hedging_off_and_its_end_on_again() -> None:
    inner = Slow()
    store = await warmed(inner, 300)
    inner.first = inner.hedge = lambda _: Answer(60.0)
    await asyncio.gather(*(store.get(request()) for _ in range(100)))
    assert 1 <= inner.hedges <= 10
    before = inner.hedges
    inner.first = inner.hedge = lambda _: Answer(1.0)
    for _ in range(400):
        await store.get(request())
    inner.first = lambda _: Answer(60.0)
    await store.get(request())
    assert inner.hedges == before + 1


@pytest.mark.parametrize("cancelled_at_s", [0.0, 0.5, 1.3, 1.8, 2.3, 2.4])
@in_virtual_time
async def test_cancelled_at_any_time_nothing_is_left(cancelled_at_s: float) -> None:
    inner = Slow(first=lambda number: Answer(20.0 if number >= 40 else 1.0))
    store = await warmed(inner)
    waiting = asyncio.create_task(store.get(request()))
    await asyncio.sleep(cancelled_at_s)
    waiting.cancel()
    waiting.cancel()
    outcome = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(outcome[0], asyncio.CancelledError) or cancelled_at_s > 2.2
    await asyncio.sleep(0)
    assert inner.in_flight == 0


@in_virtual_time
async def test_a_timeout_around_a_race_is_not_confused_with_its_end() -> None:
    inner = Slow(first=lambda number: Answer(20.0 if number >= 40 else 1.0))
    store = await warmed(inner)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.0):
            await store.get(request())
    async with asyncio.timeout(3.0):
        assert (await store.get(request())).data == CONTENT[:100]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert inner.in_flight == 0


def pace_with_savings() -> HedgePace:
    """Return what has counted enough GETs to be generous."""
    pace = HedgePace()
    for _ in range(200):
        pace.slow_after_s(100)
    return pace


def test_the_last_savings_are_for_the_slowest() -> None:
    pace = HedgePace()
    for _ in range(LEAST_SAMPLES):
        pace.note_answer(100, 1.0)
    waits_s = [pace.slow_after_s(100) for _ in range(100)]
    assert waits_s == pytest.approx([1.69] * 40 + [1.3] * 60)
    assert [pace.may_hedge() for _ in range(2)] == [True, True]
    assert pace.slow_after_s(100) == 1.3
    pace = HedgePace()
    assert [pace.may_hedge() for _ in range(2)] == [True, False], "one is sent on credit"


def test_pace_knows_the_slowest_twentieth_of_each_size() -> None:
    pace = pace_with_savings()
    assert pace.slow_after_s(100) is None
    for number in range(256):
        pace.note_answer(100, 1.0 + number / 256)
        pace.note_answer(3 * 1024 * 1024, 10.0)
    small_s, large_s = pace.slow_after_s(64 * 1024), pace.slow_after_s(2 * 1024 * 1024 + 1)
    assert small_s == pytest.approx(1.9, abs=0.1)
    assert large_s == 13.0, "what takes as long as all others is not slow"
    assert pace.slow_after_s(64 * 1024 + 1) is None
    assert pace.slow_after_s(2 * 1024 * 1024) is None


def test_pace_is_not_misled_by_slow_ones_among_few() -> None:
    pace = pace_with_savings()
    for number in range(100):
        assert pace.slow_after_s(100) == (None if number < LEAST_SAMPLES else 1.3)
        pace.note_answer(100, 30.0 if number % 40 == 0 else 1.0)
    for _ in range(64):
        pace.note_answer(100, 30.0)
    assert pace.slow_after_s(100) == 4.0, "4 times the median, though more than a third are slower"


def test_pace_follows_the_newest() -> None:
    pace = pace_with_savings()
    for duration_s in (*[1.0] * 256, *[2.0] * 256):
        pace.note_answer(100, duration_s)
    assert pace.slow_after_s(100) == 2.6
    for _ in range(256):
        pace.note_answer(100, 1e-6)
    assert pace.slow_after_s(100) == 0.005, "shorter than this no timer is"


# --- W8 without the noise of a machine: what a store that is slow or refuses makes of the time of calls ---------------


FIRST_BYTE_S, BANDWIDTH_BYTES_PER_S = 0.030, 90e6
SLOW_FACTOR = 20
ASKED_BYTES = (27_654, 26_073, 172_660, 182_749, 668_179)
"""The requests of one call, all at once."""
OWN_S = 0.025
"""What a call takes beside its requests: planning and decoding."""
PROCESSES, CALLS = 40, 100
SEED = 8


@dataclass
class Tail(MemoryStore):
    """Answers late, sometimes very late, and sometimes with a refusal."""

    chance: random.Random
    slow_share: float
    refused_share: float
    first_count: int = 0
    hedge_count: int = 0

    has_spare_connections = True

    def __post_init__(self) -> None:
        super().__init__({})

    async def get(self, request: RangeRequest) -> FetchedRange:
        self.hedge_count += request.is_hedge
        self.first_count += not request.is_hedge
        is_slow, is_refused = (self.chance.random() < share for share in (self.slow_share, self.refused_share))
        await asyncio.sleep(FIRST_BYTE_S * (SLOW_FACTOR if is_slow else 1) + self.chance.uniform(0, 0.003))
        if is_refused:
            raise StorageError("slow down", kind="SlowDown", status=503)
        size_bytes = request.byte_range.length_bytes
        await asyncio.sleep(size_bytes / BANDWIDTH_BYTES_PER_S)
        return FetchedRange(data=bytes(size_bytes), start=0, etag="1", object_size_bytes=size_bytes)


@dataclass
class Times:
    """How long the calls took, and at what price."""

    p50_s: float
    p99_s: float
    mean_s: float
    hedges_per_request: float


def measure(*, slow_share: float = 0.0, refused_share: float = 0.0) -> Times:
    """Let processes ask again and again; each has to learn anew what is slow."""
    times_s: list[float] = []
    first_count = hedge_count = 0

    async def ask(store: Tail) -> None:
        stack = stack_store(store, store_options=StoreOptions(), max_concurrency=32)
        loop = asyncio.get_running_loop()
        for call in range(CALLS + 1):
            started_s = loop.time()
            async with asyncio.TaskGroup() as tasks:
                for size_bytes in ASKED_BYTES:
                    tasks.create_task(stack.store.get(request_for("x", ByteRange(0, size_bytes))))
            if call > 0:
                times_s.append(loop.time() - started_s + OWN_S)

    random.seed(SEED)  # of the waits between attempts
    for number in range(PROCESSES):
        store = Tail(random.Random(number), slow_share, refused_share)
        run_in_virtual_time(ask(store))
        first_count, hedge_count = first_count + store.first_count, hedge_count + store.hedge_count
    percentiles_s = quantiles(times_s, n=100, method="inclusive")
    return Times(percentiles_s[49], percentiles_s[98], sum(times_s) / len(times_s), hedge_count / first_count)


@pytest.mark.slow
def test_the_slowest_hundredth_takes_about_twice_as_long() -> None:
    sound, faulty = measure(), measure(slow_share=0.02, refused_share=0.02)
    assert faulty.p99_s <= 2.1 * faulty.p50_s, (
        "in hardly one call of a hundred two of its requests' attempts meet a fault"
    )
    assert faulty.mean_s <= 1.3 * sound.mean_s
    assert sound.hedges_per_request == 0
    assert faulty.hedges_per_request <= BUDGET_SHARE
