"""Latency and throughput, as estimated from the requests that were sent."""

from __future__ import annotations

import pytest

from coldparquet.plan.reading_choices import StoreSpeed
from coldparquet.ranges import ByteRange
from coldparquet.storage.measured_speed import measured_speed
from coldparquet.storage.trace import RequestRecord

MIB = 1024 * 1024


def get(length_bytes: int, seconds: float, *, status: str = "ok") -> RequestRecord:
    return RequestRecord(
        operation="get",
        path="t/data.parquet",
        byte_range=ByteRange(0, length_bytes),
        reason="test",
        started_s=1.0,
        finished_s=1.0 + seconds,
        fetched_bytes=length_bytes,
        status=status,
        etag=None,
    )


def test_published_figures_until_enough_was_seen() -> None:
    assert measured_speed([get(100, 9.0)] * 7, connections=4) == StoreSpeed(connections=4)


def test_small_requests_tell_the_latency_and_large_ones_the_throughput() -> None:
    records = [get(100, 0.2)] * 8 + [get(MIB, 0.2 + 0.5)] * 4
    speed = measured_speed(records, connections=4)
    assert speed.first_byte_s == pytest.approx(0.2)
    assert speed.connection_bytes_per_s == pytest.approx(2 * MIB)


def test_outliers_and_failures_do_not_count() -> None:
    records = [get(100, 0.2)] * 8 + [get(100, 60.0)] * 3 + [get(100, 30.0, status="Timeout")] * 50
    assert measured_speed(records, connections=4).first_byte_s == pytest.approx(0.2)


def test_a_large_request_as_fast_as_a_small_one_is_no_division_by_zero() -> None:
    records = [get(100, 0.2)] * 8 + [get(MIB, 0.1)] * 4
    assert measured_speed(records, connections=4).connection_bytes_per_s == pytest.approx(MIB / 1e-4)
