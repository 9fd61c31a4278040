"""What is noted of requests, and to which scan they are charged."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from coldparquet.errors import InvalidInputError, NotFoundError, StorageError
from coldparquet.options import StoreOptions
from coldparquet.plan.model import StoreSpeed
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import Operation, StoreWrapper
from coldparquet.storage.hedge import HedgePace
from coldparquet.storage.limit import LimitedStore
from coldparquet.storage.log import (
    KEPT_RECORDS,
    Ledger,
    RequestRecord,
    SlotWait,
    SpeedMeter,
    SpeedSamples,
    TraceStore,
    current_ledger,
    note_answer,
    note_cache_hit,
    note_received,
    round_trips,
)
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.open import stack_store
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet.storage.retry import RetryStore
from coldparquet_testing.store_contract import CONTENT, request_for
from coldparquet_testing.stores import FaultStore, Hang, scripted


def request(start: int = 0, stop: int = 10, *, attempt: int = 1, is_hedge: bool = False) -> RangeRequest:
    return RangeRequest(
        path="t/x", byte_range=ByteRange(start, stop), reason="test", attempt=attempt, is_hedge=is_hedge, role="data"
    )


class Answering(MemoryStore):
    """Says what HTTP says; fails when it is told to."""

    has_storage_classes = True

    def __init__(self, *, statuses: tuple[int, ...] = (206,), storage_class: str | None = None) -> None:
        super().__init__({"t/x": CONTENT})
        self.statuses = statuses
        self.storage_class = storage_class
        self.received_before_failing: int | None = None

    async def get(self, request: RangeRequest) -> FetchedRange:
        await asyncio.sleep(0)
        for status in self.statuses:
            note_answer(http_status=status, storage_class=self.storage_class)
        if self.received_before_failing is not None:
            note_received(self.received_before_failing)
            raise StorageError("cut off", kind="ShortRead", path=request.path)
        return await super().get(request)


async def test_a_record_says_what_was_noted() -> None:
    times = iter([10.0, 10.25, 11.0])
    store = TraceStore(Answering(storage_class="GLACIER_IR"), clock=lambda: next(times))
    await store.get(request(attempt=3, is_hedge=True))
    [record] = store.records
    assert (record.started_s, record.first_byte_s, record.finished_s) == (0.0, 0.25, 1.0)
    assert (record.http_status, record.storage_class, record.http_requests) == (206, "GLACIER_IR", 1)
    assert (record.attempt, record.is_hedge, record.role, record.waited_s) == (3, True, "data", 0.0)


async def test_the_first_answer_tells_the_first_byte_and_the_last_one_the_status() -> None:
    times = iter([0.0, 1.0, 5.0])
    store = TraceStore(Answering(statuses=(301, 206)), clock=lambda: next(times))
    await store.get(request())
    [record] = store.records
    assert (record.first_byte_s, record.http_status, record.http_requests, record.finished_s) == (1.0, 206, 2, 5.0)


async def test_bytes_of_a_broken_answer_count() -> None:
    inner = Answering()
    inner.received_before_failing = 7
    store, ledger = TraceStore(inner), Ledger()
    with ledger.current(), pytest.raises(StorageError):
        await store.get(request())
    assert [(record.fetched_bytes, record.status) for record in store.records] == [(7, "ShortRead")]
    assert ledger.totals.fetched_bytes == 7


async def test_a_request_says_how_long_it_waited_and_the_next_attempt_since_when(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr("coldparquet.storage.log.monotonic", lambda: now_s)
    store = TraceStore(MemoryStore({"t/x": CONTENT}))
    with SlotWait():
        now_s = 102.0
        with SlotWait():
            now_s = 102.5
            await store.get(request())
        now_s = 103.5
        await store.get(request(attempt=2))
    await store.get(request())
    assert [record.waited_s for record in store.records] == [2.5, 1.0, 0.0]


async def test_a_hedge_has_not_waited() -> None:
    store = TraceStore(Answering())
    with SlotWait():
        await asyncio.gather(store.get(request()), store.get(request(is_hedge=True)))
    waited_s = {record.is_hedge: record.waited_s for record in store.records}
    assert waited_s[False] > waited_s[True] == 0.0


async def test_requests_wait_for_a_slot_of_the_limit() -> None:
    trace = TraceStore(Answering())
    store = RetryStore(LimitedStore(trace, max_concurrency=1), max_attempts=1)
    await asyncio.gather(*(store.get(request(number, number + 1)) for number in range(3)))
    waited_s = [record.waited_s for record in trace.records]
    assert waited_s == sorted(waited_s)
    assert waited_s[2] >= trace.records[1].finished_s - trace.records[1].started_s > 0


async def test_nothing_is_noted_outside_of_a_request() -> None:
    note_answer(http_status=500)
    note_received(10)
    note_cache_hit(10)
    assert current_ledger() is None


async def test_each_ledger_has_the_requests_of_its_own_tasks() -> None:
    store = TraceStore(Answering())

    async def send(count: int) -> None:
        # Tasks of tasks, as retries, hedges and streams start them.
        await asyncio.gather(*(asyncio.create_task(store.get(request(number, number + 1))) for number in range(count)))
        note_cache_hit(count)

    async def charged(ledger: Ledger, count: int) -> None:
        with ledger.current():
            await asyncio.create_task(send(count))

    ledgers = [Ledger() for _ in range(4)]
    await asyncio.gather(*(charged(ledger, 3 + number) for number, ledger in enumerate(ledgers)), send(5))
    assert [ledger.totals.request_count for ledger in ledgers] == [3, 4, 5, 6]
    assert [ledger.totals.cache_hit_bytes for ledger in ledgers] == [3, 4, 5, 6]
    assert len(store.records) == 3 + 4 + 5 + 6 + 5
    assert current_ledger() is None


async def test_totals() -> None:
    store, ledger = TraceStore(Answering(storage_class="STANDARD_IA")), Ledger()
    with ledger.current():
        await store.get(request(0, 10))
        await store.get(request(0, 20, attempt=2))
        await store.get(request(0, 30, is_hedge=True))
        with pytest.raises(NotFoundError):
            await store.info("t/absent")
    totals = ledger.totals
    assert (totals.request_count, totals.fetched_bytes, totals.round_trips) == (4, 60, 4)
    assert (totals.retries, totals.hedges_sent, totals.hedges_won) == (1, 1, 1)
    gets = ledger.billed["get", "STANDARD_IA"]
    assert (gets.request_count, gets.fetched_bytes, ledger.billed["info", None].request_count) == (3, 60, 1)


async def test_a_hedge_that_was_cancelled_has_not_won() -> None:
    class Hanging(MemoryStore):
        async def get(self, request: RangeRequest) -> FetchedRange:
            await asyncio.Event().wait()
            return await super().get(request)

    store, ledger = TraceStore(Hanging({"t/x": CONTENT})), Ledger()
    with ledger.current():
        losing = asyncio.create_task(store.get(request(is_hedge=True)))
    await asyncio.sleep(0)
    losing.cancel()
    await asyncio.gather(losing, return_exceptions=True)
    assert (ledger.totals.hedges_sent, ledger.totals.hedges_won) == (1, 0)


async def test_a_store_without_prices_bills_nothing() -> None:
    store, ledger = TraceStore(MemoryStore({"t/x": CONTENT})), Ledger()
    with ledger.current():
        await store.get(request())
    assert ledger.totals.request_count == 1
    assert not ledger.billed


async def test_the_stores_own_errors_are_not_billed() -> None:
    inner = Answering(statuses=(503,))
    inner.received_before_failing = 0
    store, ledger = TraceStore(inner), Ledger()
    with ledger.current(), pytest.raises(StorageError):
        await store.get(request())
    assert ledger.totals.request_count == 1
    assert not ledger.billed


async def test_memory_does_not_grow_with_the_number_of_requests() -> None:
    store, ledger = TraceStore(MemoryStore({"t/x": CONTENT})), Ledger()
    with ledger.current():
        for number in range(KEPT_RECORDS + 10):
            await store.get(request(number % 50, number % 50 + 1))
    assert len(store.records) == len(ledger.records) == KEPT_RECORDS
    assert ledger.totals.request_count == store.operation_counts["get"] == KEPT_RECORDS + 10


def record(started_s: float, finished_s: float) -> RequestRecord:
    return RequestRecord(
        operation="get",
        path="t/x",
        byte_range=None,
        reason="test",
        started_s=started_s,
        finished_s=finished_s,
        fetched_bytes=0,
        status="ok",
        etag=None,
    )


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 1), (0, 2), (0.5, 3)], 1),
        ([(0, 1), (1, 2), (2, 3)], 3),
        ([(1, 1), (0, 1)], 2),
        ([(2, 3), (0, 1), (0, 2)], 2),
        ([(0, 5), (1, 2), (3, 4), (5, 6)], 3),
        ([(0, 2), (1, 3), (2, 4)], 2),
        ([(0, 9), (0, 1), (1, 2), (2, 3)], 3),
        ([(0, 1), (0.9, 2), (2.1, 3), (1, 1.5)], 3),
    ],
)
def test_round_trips_are_the_longest_chain(spans: list[tuple[float, float]], expected: int) -> None:
    assert round_trips(spans) == expected
    ledger = Ledger()
    for started_s, finished_s in sorted(spans, key=lambda span: (span[1], span[0])):
        ledger.add(record(started_s, finished_s))
    assert ledger.totals.round_trips == expected


def test_time_counts_while_anything_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr("coldparquet.storage.log.monotonic", lambda: now_s)
    ledger = Ledger()
    ledger.begin()
    now_s = 1.0
    ledger.begin()
    now_s = 3.0
    ledger.end()
    assert ledger.elapsed_s == 3.0
    now_s = 4.0
    ledger.end()
    now_s = 10.0
    assert ledger.elapsed_s == 4.0
    with ledger.counting():
        now_s = 12.0
        assert current_ledger() is ledger
    assert ledger.elapsed_s == 6.0


async def test_hedges_of_a_whole_stack_are_charged_to_the_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HedgePace, "slow_after_s", lambda _pace, _size_bytes: 0.05)
    monkeypatch.setattr(HedgePace, "may_hedge", lambda _pace: True)

    class OneHangs(MemoryStore):
        has_spare_connections = True

        async def get(self, request: RangeRequest) -> FetchedRange:
            if not request.is_hedge:
                await asyncio.Event().wait()
            return await super().get(request)

    stack = stack_store(OneHangs({"t/x": CONTENT}), store_options=StoreOptions(), max_concurrency=4)
    ledger = Ledger()
    with ledger.current():
        await stack.store.get(request(0, 10))
    assert ledger.totals.request_count == 2
    assert (ledger.totals.hedges_sent, ledger.totals.hedges_won, ledger.totals.fetched_bytes) == (1, 1, 10)
    assert sorted(record.status for record in ledger.records) == ["cancelled", "ok"]
    assert {record.waited_s for record in ledger.records if record.is_hedge} == {0.0}


async def test_trace_records_what_happened() -> None:
    times = iter([100.0, 101.0, 102.0, 104.0, 104.0, 104.5, 105.0, 106.0, 107.0, 108.0])
    store = TraceStore(MemoryStore({"table/x": CONTENT}), clock=lambda: next(times))
    await store.get(RangeRequest(path="table/x", byte_range=ByteRange(1020, 2000), reason="row group 3: ts"))
    with pytest.raises(NotFoundError):
        await store.get(request_for("table/absent", ByteRange(0, 4)))
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
        ("get", "table/absent", ByteRange(0, 4), "contract", 2.0, 4.0, 0, "NotFound", None),
        ("list", "table", None, "listing", 4.0, 4.5, 0, "ok", None),
        ("put", "table/y", None, "write 3 bytes", 5.0, 6.0, 0, "ok", "2"),
        ("put", "table/y", None, "write 3 bytes", 7.0, 8.0, 0, "AlreadyExists", None),
    ]


async def test_trace_records_cancellation_and_orders_by_start() -> None:
    store = TraceStore(FaultStore(MemoryStore({"x": CONTENT}), scripted({0: Hang()})))
    hanging = asyncio.create_task(store.get(request_for("x", ByteRange(0, 1))))
    await asyncio.sleep(0)
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
    await store.get(request_for("x", ByteRange(0, 4)))
    store.clear()
    assert list(store.records) == []
    await store.get(request_for("x", ByteRange(0, 4)))
    assert [(record.started_s, record.finished_s) for record in store.records] == [(0.0, 1.0)]


# --- Latency and throughput, as estimated from the requests that were sent, and remembered per endpoint ---------------


MIB = 1024 * 1024


class StoreAt(StoreWrapper):
    """A store at an endpoint, which may become known with the first request."""

    def __init__(self, label: str) -> None:
        super().__init__(MemoryStore())
        self.endpoint = label

    @property
    def label(self) -> str:
        return self.endpoint


def get(
    length_bytes: int,
    seconds: float,
    *,
    first_byte_after_s: float | None = None,
    status: str = "ok",
    operation: Operation = "get",
) -> RequestRecord:
    return RequestRecord(
        operation=operation,
        path="t/data.parquet",
        byte_range=ByteRange(0, length_bytes),
        reason="test",
        started_s=1.0,
        finished_s=1.0 + seconds,
        fetched_bytes=length_bytes,
        status=status,
        etag=None,
        first_byte_s=None if first_byte_after_s is None else 1.0 + first_byte_after_s,
    )  # fmt: skip


def speed_of(*records: RequestRecord) -> StoreSpeed:
    samples = SpeedSamples()
    for record in records:
        samples.add(record)
    return samples.speed(connections=4)


def unique_label() -> str:
    return f"s3 (http://{uuid4()})"


def test_published_figures_until_enough_was_seen() -> None:
    assert speed_of(*[get(100, 9.0)] * 7) == StoreSpeed(connections=4)
    assert speed_of(*[get(MIB, 9.0)] * 4) == StoreSpeed(connections=4)


def test_small_requests_tell_the_latency_and_large_ones_the_throughput() -> None:
    speed = speed_of(*[get(100, 0.2)] * 8, *[get(MIB, 0.2 + 0.5)] * 4)
    assert speed.first_byte_s == pytest.approx(0.2)
    assert speed.connection_bytes_per_s == pytest.approx(2 * MIB)
    assert speed.is_first_byte_measured
    assert speed.is_throughput_measured


def test_the_first_byte_counts_where_its_time_is_known() -> None:
    """Long requests then tell the throughput by themselves."""
    speed = speed_of(*[get(60_000, 0.9, first_byte_after_s=0.2)] * 8, *[get(MIB, 3.5, first_byte_after_s=3.0)] * 4)
    assert speed.first_byte_s == pytest.approx(0.2)
    assert speed.connection_bytes_per_s == pytest.approx(2 * MIB)
    alone = speed_of(*[get(MIB, 3.5, first_byte_after_s=3.0)] * 4)
    assert (alone.is_first_byte_measured, alone.is_throughput_measured) == (False, True)
    assert speed_of(*[get(200_000, 0.9, first_byte_after_s=0.2)] * 8).first_byte_s == pytest.approx(0.2)
    assert not speed_of(*[get(200_000, 0.9)] * 8).is_first_byte_measured


def test_outliers_failures_and_other_requests_do_not_count() -> None:
    others = [*[get(100, 30.0, status="Timeout")] * 50, *[get(0, 30.0, operation="list")] * 50]
    assert speed_of(*[get(100, 0.2)] * 8, *[get(100, 60.0)] * 3, *others).first_byte_s == pytest.approx(0.2)


def test_the_newest_requests_count() -> None:
    assert speed_of(*[get(100, 9.0)] * 500, *[get(100, 0.2)] * 128).first_byte_s == pytest.approx(0.2)


def test_a_large_request_as_fast_as_a_small_one_is_no_division_by_zero() -> None:
    speed = speed_of(*[get(100, 0.2)] * 8, *[get(MIB, 0.1)] * 4)
    assert speed.connection_bytes_per_s == pytest.approx(MIB / 1e-4)


def test_stores_at_one_endpoint_learn_from_each_other() -> None:
    label = unique_label()
    first = SpeedMeter(StoreAt(label))
    for _ in range(8):
        first.note(get(100, 0.2))
    assert SpeedMeter(StoreAt(label)).speed(connections=9).first_byte_s == pytest.approx(0.2)
    assert SpeedMeter(StoreAt(label)).speed(connections=9).connections == 9
    assert SpeedMeter(StoreAt(unique_label())).speed(connections=9) == StoreSpeed(connections=9, is_remote=True)


def test_a_label_that_becomes_exact_takes_what_was_measured_along() -> None:
    store, label = StoreAt(unique_label()), unique_label()
    meter = SpeedMeter(store)
    for _ in range(8):
        meter.note(get(100, 0.2))
    store.endpoint = label
    meter.note(get(100, 0.2))
    assert SpeedMeter(StoreAt(label)).speed(connections=1).is_first_byte_measured


@pytest.mark.parametrize("label", ["memory", "local files"])
def test_what_is_no_endpoint_is_measured_by_itself(label: str) -> None:
    meter = SpeedMeter(StoreAt(label))
    for _ in range(8):
        meter.note(get(100, 0.2))
    assert meter.speed(connections=1).is_first_byte_measured
    assert not SpeedMeter(StoreAt(label)).speed(connections=1).is_first_byte_measured
