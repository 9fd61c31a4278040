"""Known secrets are planted, and everything that a person, a log or a disk gets to see is searched for them."""

from __future__ import annotations

import json
import logging
import pickle
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import coldparquet as cp
from coldparquet import telemetry
from coldparquet.errors import ColdParquetError
from coldparquet.maintenance.index import index_table
from coldparquet.maintenance.pack import pack_table
from coldparquet.maintenance.verify import verify_table
from coldparquet.report import html_report, scan_report
from coldparquet.table import Table
from coldparquet_testing.simulator import ColdStoreOptions, ColdStoreServer
from coldparquet_testing.simulator.faults import FaultKind, FaultRule
from tests.support.questdb_tables import copy_parquet_partitions

KEY, SECRET, TOKEN = "PLANTEDKEY", "PLANTED/secret+0123", "PLANTEDtoken=="
SIGNED = "?X-Amz-Signature=PLANTEDsignature&X-Amz-Security-Token=PLANTEDtoken"
TABLE = "s3://bucket/trades"
FAULTS: list[FaultKind] = [
    "slow-down",
    "server-error",
    "forbidden",
    "expired-token",
    "not-found",
    "reset",
    "cut-body",
    "wrong-range",
]
"""Each of them breaks a scan, in a way of its own."""


class Seen:
    """What got out."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, *values: object) -> None:
        """Note values as everybody who gets them can show them: as text, and as bytes."""
        for value in values:
            self.texts += [str(value), repr(value)]

    def add_bytes(self, data: bytes) -> None:
        self.texts.append(data.decode("latin-1"))

    def add_files(self, directory: Path) -> int:
        files = [path for path in directory.rglob("*") if path.is_file()]
        for path in files:
            self.add(path)
            self.add_bytes(path.read_bytes())
        return len(files)

    def add_error(self, error: BaseException) -> None:
        self.texts.append("".join(traceback.format_exception(error)))
        self.add(error, error.args)
        if isinstance(error, ColdParquetError):
            self.add(error.details, error.path)
            self.texts.append(json.dumps(error.as_dict(), default=repr))
            self.add_bytes(pickle.dumps(error))

    def assert_free_of_secrets(self) -> None:
        assert len(self.texts) > 5
        for text in self.texts:
            assert "PLANTED" not in text, text[max(0, text.index("PLANTED") - 200) :][:400]
            assert not re.search("Signature=[0-9a-f]", text)


@pytest.fixture
def seen(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[Seen]:
    """Everything that is noted, logged, traced or printed by the test must be free of secrets."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trace, "_TRACER_PROVIDER", provider)
        telemetry._tracer.cache_clear()
        caplog.set_level(logging.DEBUG)
        seen = Seen()
        yield seen
        telemetry._tracer.cache_clear()
    # Not `caplog.text`, which holds what was logged since the test has ended.
    seen.texts += [f"{record.getMessage()} {record.exc_text}" for record in caplog.get_records("call")]
    assert exporter.get_finished_spans()
    seen.texts += [span.to_json() for span in exporter.get_finished_spans()]
    seen.texts += capfd.readouterr()
    seen.assert_free_of_secrets()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The directory of a store that holds a table."""
    (tmp_path / "root" / "bucket").mkdir(parents=True)
    copied = copy_parquet_partitions("interval_day", tmp_path)
    copied.rename(tmp_path / "root" / "bucket" / "trades")
    return tmp_path / "root"


def partitions(root: Path) -> list[str]:
    return sorted(path.parent.name for path in root.rglob("data.parquet"))


@pytest.fixture
def server(root: Path) -> Iterator[ColdStoreServer]:
    with ColdStoreServer(root, ColdStoreOptions(secret_key=SECRET)) as server:
        yield server


def keys(server: ColdStoreServer) -> dict[str, Any]:
    return {"key": KEY, "secret": SECRET, "token": TOKEN, "endpoint_url": server.endpoint_url}


async def read_everything(table: Table, seen: Seen) -> None:
    """Ask for rows in every way, and note all that comes back but the rows."""
    scan = table.scan(where="ts > '2020-01-01'")
    plan = await scan.plan()
    seen.add(table, scan, plan, plan.explain(), table.url, table.partitions)
    seen.texts.append(json.dumps(plan.as_dict(), default=repr))
    seen.add_bytes(pickle.dumps(plan))
    await scan.to_arrow()
    await scan.count()
    seen.add(scan.stats, scan.request_log, table.request_log)
    report = scan_report(scan, plan=plan, records=table.request_log)
    seen.texts += [repr(report), html_report(report), report.document(".svg")]
    seen.texts += [thing._repr_html_() for thing in (table, scan, plan, scan.stats)]
    pieces = await scan.pieces(2)
    seen.add(pieces, *pieces)
    for piece in pieces:
        seen.add_bytes(piece.to_bytes())
        seen.add_bytes(pickle.dumps(piece))


async def test_a_healthy_store(seen: Seen, server: ColdStoreServer, root: Path, tmp_path: Path) -> None:
    options = cp.StoreOptions(cache_directory=str(tmp_path / "cache"))
    for done in (
        await index_table(TABLE, storage_options=keys(server), pages=True, pack=False),
        await pack_table(TABLE, storage_options=keys(server)),
        await verify_table(TABLE, storage_options=keys(server)),
    ):
        seen.add(done)
    async with cp.open_table(TABLE, storage_options=keys(server), store_options=options) as table:
        await read_everything(table, seen)
    seen.add(options, cp.ReadOptions())
    assert seen.add_files(tmp_path / "cache") > 0
    assert seen.add_files(root) > 10, "nor in what was written to the store"
    assert server.requests


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_store_that_fails(seen: Seen, server: ColdStoreServer, fault: FaultKind) -> None:
    once = cp.StoreOptions(max_attempts=1, stall_timeout_s=1.0)
    async with cp.open_table(TABLE, storage_options=keys(server), store_options=once) as table:
        server.set_faults(FaultRule(fault, operation="*"))
        with pytest.raises(ColdParquetError) as caught:
            await table.scan(["ts"]).to_arrow()
        seen.add_error(caught.value)
        seen.add(table.request_log)
    cp.clear_caches()
    with pytest.raises(ColdParquetError) as caught:
        await cp.open_table(TABLE, storage_options=keys(server), store_options=once)
    seen.add_error(caught.value)


async def test_signed_urls(seen: Seen, root: Path, tmp_path: Path) -> None:
    options = cp.StoreOptions(max_attempts=1, cache_directory=str(tmp_path / "cache"))
    with ColdStoreServer(root) as server:  # which believes every signature
        first, second, *_ = (
            f"{server.endpoint_url}/bucket/trades/{name}/data.parquet{SIGNED}" for name in partitions(root)
        )
        async with cp.open_partition(first, store_options=options) as table:
            await read_everything(table, seen)
        absent = f"{server.endpoint_url}/bucket/absent/data.parquet{SIGNED}"
        for fault, url in ((None, absent), *((fault, second) for fault in FAULTS)):
            server.set_faults(*([] if fault is None else [FaultRule(fault, operation="*")]))
            with pytest.raises(ColdParquetError) as caught:
                await cp.open_partition(url, store_options=options)
            seen.add_error(caught.value)
    assert seen.add_files(tmp_path / "cache") > 0
