from __future__ import annotations

import asyncio

import pytest

from coldparquet.errors import StorageError
from coldparquet.ranges import ByteRange
from coldparquet.storage.memory import MemoryStore
from coldparquet_testing.store_contract import CONTENT, request_for
from coldparquet_testing.stores import Failure, FaultStore, Hang, LatencyStore, ShortBody, scripted, seeded


async def test_latency_is_first_byte_and_transfer() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    store = LatencyStore(
        MemoryStore({"table/x": CONTENT}), first_byte_s=0.03, bandwidth_bytes_per_s=1024.0, sleep=sleep
    )
    await store.get(request_for("table/x", ByteRange(0, 512)))
    await store.get(request_for("table/x", ByteRange(1000, 5000)))
    await store.list("table")
    await store.put("table/y", bytes(1024), overwrite=False)
    assert slept == pytest.approx([0.53, 0.03 + 24 / 1024, 0.03, 1.03])


async def test_faults_come_as_scripted() -> None:
    store = FaultStore(
        MemoryStore({"x": CONTENT}),
        scripted(
            {1: ShortBody(3), 2: Failure(StorageError("slow down", kind="SlowDown", attempts=5)), 4: ShortBody(9)}
        ),
    )
    request = request_for("x", ByteRange(0, 8))
    assert (await store.get(request)).data == CONTENT[:8]
    assert (await store.get(request)).data == CONTENT[:5]
    with pytest.raises(StorageError) as caught:
        await store.get(request)
    assert (caught.value.kind, caught.value.path, caught.value.details) == ("SlowDown", "x", {"attempts": 5})
    assert (await store.get(request)).data == CONTENT[:8]
    assert (await store.get(request)).data == b""
    assert store.get_count == 5


async def test_hanging_request_ends_by_cancellation() -> None:
    store = FaultStore(MemoryStore({"x": CONTENT}), scripted({0: Hang()}))
    reader = asyncio.create_task(store.get(request_for("x", ByteRange(0, 8))))
    await asyncio.sleep(0)
    assert store.hanging_count == 1
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert store.hanging_count == 0


async def test_seeded_faults_repeat() -> None:
    def outcomes(seed: int) -> list[bool]:
        choose = seeded(seed, probability=0.5, faults=[ShortBody(), Hang()])
        return [choose(number, request_for("x", ByteRange(0, 8))) is None for number in range(200)]

    assert outcomes(7) == outcomes(7)
    assert outcomes(7) != outcomes(8)
    assert 50 < sum(outcomes(7)) < 150
