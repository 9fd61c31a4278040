"""OpenTelemetry spans: those of a scan, in their order, without a secret; and none where none are wanted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import coldparquet as cp
from coldparquet import telemetry
from coldparquet.errors import StorageError
from coldparquet.maintenance.index import index_table
from coldparquet.storage.memory import MemoryStore
from coldparquet.storage.requests import FetchedRange, RangeRequest
from tests.support.parquet_footers import parquet_bytes

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


PARTITION = "trades/2024-03-01.7"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    telemetry._tracer.cache_clear()
    yield exporter
    telemetry._tracer.cache_clear()


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore(
        {
            f"{PARTITION}/data.parquet": parquet_bytes(
                pa.table({"id": list(range(1000)), "who": ["Ada"] * 1000}), row_group_size=100
            )
        }
    )
    await index_table("trades", store=store, pages=False, pack=False)
    return store


def by_name(spans: tuple[ReadableSpan, ...], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def own_id(span: ReadableSpan) -> int:
    assert span.context is not None
    span_id: int = span.context.span_id
    return span_id


async def test_a_scan_its_plan_and_its_requests(store: MemoryStore, exporter: InMemorySpanExporter) -> None:
    async with cp.open_partition(PARTITION, store=store) as table:
        exporter.clear()
        scan = table.scan(["id"], "id >= 250 and id < 420 and who = 'Ada'")
        async with scan.batches() as batches:
            rows = [batch.num_rows async for batch in batches]
    spans = exporter.get_finished_spans()
    [whole] = by_name(spans, "coldparquet.scan")
    [plan] = by_name(spans, "coldparquet.plan")
    gets = by_name(spans, "coldparquet.get")
    assert len(gets) == scan.stats.request_count > 0
    assert whole.attributes is not None
    assert whole.attributes["coldparquet.rows"] == sum(rows) == 170
    assert whole.attributes["coldparquet.table"] == PARTITION
    assert (parent_id(whole), parent_id(plan)) == (None, own_id(whole))
    assert {parent_id(get) for get in gets} <= {own_id(whole), own_id(plan)}
    assert "Ada" not in str([span.to_json() for span in spans])
    [first, *_] = gets
    assert first.kind == SpanKind.CLIENT
    assert first.attributes is not None
    assert set(first.attributes) >= {"coldparquet.path", "coldparquet.range", "coldparquet.reason"}
    assert whole.start_time is not None
    assert whole.end_time is not None
    for get in gets:
        assert get.start_time is not None
        assert get.end_time is not None
        assert whole.start_time <= get.end_time <= whole.end_time
        assert get.start_time <= get.end_time


async def test_other_questions_are_scans_too(store: MemoryStore, exporter: InMemorySpanExporter) -> None:
    async with cp.open_partition(PARTITION, store=store) as table:
        exporter.clear()
        await table.scan(where="id = 5 or who = 'Bob'").count()
        await table.scan().max("id")
    scans = by_name(exporter.get_finished_spans(), "coldparquet.scan")
    assert [(scan.attributes or {})["coldparquet.method"] for scan in scans] == ["count", "min_max"]


async def test_failures_say_what_failed(store: MemoryStore, exporter: InMemorySpanExporter) -> None:
    async with cp.open_partition(PARTITION, store=store) as table:
        scan = table.scan(["id"])
        await scan.plan()

        async def fail(request: RangeRequest) -> FetchedRange:
            raise StorageError("the answer holds PLANTEDSECRET", kind="Refused", path=request.path)

        store.get = fail  # type: ignore[method-assign]
        exporter.clear()
        with pytest.raises(StorageError):
            await scan.to_arrow()
    spans = exporter.get_finished_spans()
    [whole] = by_name(spans, "coldparquet.scan")
    failed = by_name(spans, "coldparquet.get")
    assert failed
    for span in failed:
        assert span.status.status_code == StatusCode.ERROR
        assert span.attributes is not None
        assert span.attributes["error.type"] == "Refused"
    assert whole.status.status_code == StatusCode.ERROR
    assert (whole.attributes or {})["error.type"] == "StorageError"
    assert "PLANTEDSECRET" not in str([span.to_json() for span in spans])


async def test_a_stream_that_is_cancelled_has_not_failed(store: MemoryStore, exporter: InMemorySpanExporter) -> None:
    async with cp.open_partition(PARTITION, store=store) as table:
        exporter.clear()
        with pytest.raises(asyncio.CancelledError):
            async with table.scan(["id"]).batches():
                raise asyncio.CancelledError
    [whole] = by_name(exporter.get_finished_spans(), "coldparquet.scan")
    assert whole.status.status_code == StatusCode.UNSET


def test_a_program_without_opentelemetry_does_not_load_it() -> None:
    script = (
        "import sys, coldparquet as cp\n"
        "from coldparquet.storage.memory import MemoryStore\n"
        "from coldparquet import telemetry\n"
        "table_store = MemoryStore({'x': b''})\n"
        "try: cp.sync.open_partition('x', store=table_store)\n"
        "except cp.ColdParquetError: pass\n"
        "assert not telemetry.is_wanted()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
