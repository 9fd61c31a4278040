"""Latency and throughput, as estimated from the requests that were sent, and remembered per endpoint."""

from __future__ import annotations

from uuid import uuid4

import pytest

from coldparquet.plan.model import StoreSpeed
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import Operation, StoreWrapper
from coldparquet.storage.log import RequestRecord, SpeedMeter, SpeedSamples
from coldparquet.storage.memory import MemoryStore

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
