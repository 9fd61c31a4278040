"""W8 without the noise of a machine: what a store that is slow or refuses now and then makes of the time of calls.

The requests of one call of W1 go through the whole stack of wrappers, on a loop whose time jumps.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from statistics import quantiles

import pytest

from coldparquet.errors import StorageError
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange
from coldparquet.storage.hedge import BUDGET_SHARE
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.open import stack_store
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet_testing.store_contract import request_for
from tests.support.waiting import run_in_virtual_time

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
