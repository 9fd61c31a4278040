"""The readers of the demo: the same question to coldparquet and to pyarrow's own S3 client, measured at the server."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import S3FileSystem

from coldparquet.catalog.caches import clear_caches
from coldparquet.opening import open_table
from coldparquet.prices import PriceTable
from coldparquet.storage.log import round_trips
from coldparquet_testing.demo_data import ROWS_PER_DAY, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from coldparquet.plan.model import ReadPlan
    from coldparquet.storage.log import RequestRecord
    from coldparquet_testing.simulator import ColdStoreServer, ServedRequest

Told = TypeVar("Told")

STORAGE_CLASSES = {"STANDARD": "S3 Standard", "GLACIER_IR": "Glacier IR"}
"""Storage classes for which the demo names a price, and what people call them."""

_LOG_SETTLES_S = 0.1
"""A client can have the last byte a moment before the server has noted the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoQuestion:
    """One week of one symbol, three columns: what a dashboard or a backtest asks."""

    columns: tuple[str, ...]
    symbol: str
    start: datetime
    stop: datetime
    """Exclusive."""

    @property
    def where(self) -> str:
        """The condition as coldparquet takes it."""
        return f"ts >= '{self.start:%Y-%m-%dT%H:%M}' and ts < '{self.stop:%Y-%m-%dT%H:%M}' and symbol = '{self.symbol}'"

    @property
    def expression(self) -> pc.Expression:
        """The condition as pyarrow takes it."""
        ts, time_type = pc.field("ts"), SCHEMA.field("ts").type
        start, stop = pa.scalar(self.start, time_type), pa.scalar(self.stop, time_type)
        condition: pc.Expression = (ts >= start) & (ts < stop) & (pc.field("symbol") == self.symbol)
        return condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How one reader answered the question, as the server saw it."""

    rows: pa.Table
    wall_s: float
    requests: tuple[ServedRequest, ...]

    @property
    def fetched_bytes(self) -> int:
        """Bytes of all answers, metadata and listings included."""
        return sum(request.bytes_sent for request in self.requests)

    @property
    def round_trips(self) -> int:
        """Length of the longest chain of requests that waited for each other."""
        return round_trips((request.started_s, request.finished_s) for request in self.requests)

    def dollars(self, storage_class: str) -> float:
        """Estimate what S3 would ask for these requests."""
        lists = sum(request.operation == "ListObjectsV2" for request in self.requests)
        gets = len(self.requests) - lists
        return PriceTable.default().read_dollars(
            get_count=gets, retrieved_bytes=self.fetched_bytes, list_count=lists, storage_class=storage_class
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data."""
        return {
            "rows": self.rows.num_rows,
            "requests": len(self.requests),
            "bytes": self.fetched_bytes,
            "round_trips": self.round_trips,
            "wall_s": self.wall_s,
            "dollars": {name: self.dollars(name) for name in STORAGE_CLASSES},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdparquetAnswer:
    """What only coldparquet tells: what it was going to do, and what it did."""

    plan: ReadPlan
    request_log: tuple[RequestRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """Everything that the demo shows."""

    days: int
    table_bytes: int
    question: DemoQuestion
    told: ColdparquetAnswer
    answers: dict[str, Answer]
    """By the name of the reader; coldparquet's comes first."""

    @property
    def table_rows(self) -> int:
        """Rows of the whole table."""
        return self.days * ROWS_PER_DAY

    @property
    def results_equal(self) -> bool:
        """Whether all readers returned the same rows in the same order."""
        first, *others = (answer.rows for answer in self.answers.values())
        return all(first.equals(other) for other in others)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "days": self.days,
            "table_rows": self.table_rows,
            "table_bytes": self.table_bytes,
            "columns": list(self.question.columns),
            "where": self.question.where,
            "results_equal": self.results_equal,
            "answers": {name: answer.as_dict() for name, answer in self.answers.items()},
            "plan": self.told.plan.as_dict(),
        }


def ask_coldparquet(server: ColdStoreServer, url: str, question: DemoQuestion) -> tuple[Answer, ColdparquetAnswer]:
    """Open the table and read, with nothing known before."""

    async def read() -> tuple[pa.Table, ColdparquetAnswer]:
        async with open_table(url, storage_options=server.storage_options) as table:
            scan = table.scan(question.columns, question.where)
            plan = await scan.plan()
            rows = await scan.to_arrow()
            return rows, ColdparquetAnswer(plan=plan, request_log=table.request_log)

    clear_caches()
    return _watched(server, lambda: asyncio.run(read()))


def ask_pyarrow(server: ColdStoreServer, source: str | list[str], question: DemoQuestion) -> Answer:
    """Read a directory, or the files that are named, through pyarrow's dataset and its own S3 client."""

    def read() -> tuple[pa.Table, None]:
        options = server.storage_options
        filesystem = S3FileSystem(
            access_key=options["key"],
            secret_key=options["secret"],
            region=options["client_kwargs"]["region_name"],
            scheme="http",
            endpoint_override=urlsplit(server.endpoint_url).netloc,
        )
        dataset = ds.dataset(source, filesystem=filesystem, format="parquet")
        return dataset.to_table(columns=list(question.columns), filter=question.expression), None

    return _watched(server, read)[0]


def _watched(server: ColdStoreServer, read: Callable[[], tuple[pa.Table, Told]]) -> tuple[Answer, Told]:
    """Run a reader; keep what the server saw of it."""
    server.reset()
    started_s = time.perf_counter()
    rows, told = read()
    wall_s = time.perf_counter() - started_s
    time.sleep(_LOG_SETTLES_S)
    # The readers agree on values, not on which columns are declared nullable.
    plain = pa.Table.from_arrays(rows.columns, names=rows.schema.names)
    return Answer(rows=plain, wall_s=wall_s, requests=server.requests), told
