"""The readers of the demo: the same questions to coldparquet and to pyarrow's own S3 client, measured at the server."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import S3FileSystem

from coldparquet.catalog.caches import clear_caches
from coldparquet.opening import open_table
from coldparquet.prices import PriceTable
from coldparquet.storage.log import round_trips
from coldparquet_testing.demo_data import ROWS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow.compute as pc

    from coldparquet.plan.model import ReadPlan
    from coldparquet.storage.log import RequestRecord
    from coldparquet.table_scan import Scan
    from coldparquet_testing.simulator import ServedRequest

STORAGE_CLASSES = {"STANDARD": "S3 Standard", "GLACIER_IR": "Glacier IR"}
"""Storage classes for which the demo names a price, and what people call them."""

_LOG_SETTLES_S = 0.1
"""A client can have the last byte a moment before the server has noted the request."""


class Server(Protocol):
    """A simulated store, in this process or in another one."""

    endpoint_url: str

    @property
    def storage_options(self) -> dict[str, Any]:
        """What opens it."""
        ...

    @property
    def requests(self) -> tuple[ServedRequest, ...]:
        """What it was asked since the last reset."""
        ...

    def reset(self) -> object:
        """Forget what it was asked."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoQuestion:
    """What a dashboard or a backtest asks."""

    columns: tuple[str, ...]
    """None of them: how many rows there are."""
    where: str
    """The condition as coldparquet takes it."""
    expression: pc.Expression
    """The condition as pyarrow takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How one reader answered a question, as the server saw it."""

    rows: pa.Table
    """A count is one row."""
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
    """What only coldparquet tells of the first question: what it was going to do, and what it did."""

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
    """To the question, by the name of the reader; coldparquet's comes first."""
    later: dict[str, tuple[Answer, Answer]]
    """To later questions, by what they are: of coldparquet, whose table stays open, and of pyarrow, told the files it may."""

    @property
    def table_rows(self) -> int:
        """Rows of the whole table."""
        return self.days * ROWS_PER_DAY

    @property
    def results_equal(self) -> bool:
        """Whether all readers returned the same rows in the same order, to every question."""
        groups = [[*self.answers.values()], *self.later.values()]
        return all(first.rows.equals(other.rows) for first, *others in groups for other in others)

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
            "later": {
                name: {"coldparquet": ours.as_dict(), "pyarrow": theirs.as_dict()}
                for name, (ours, theirs) in self.later.items()
            },
            "plan": self.told.plan.as_dict(),
        }


class Watch:
    """Measures one answer: its wall time, and what the server saw of it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        server.reset()
        self._started_s = time.perf_counter()

    def answered(self, rows: pa.Table) -> Answer:
        """Stop the clock."""
        wall_s = time.perf_counter() - self._started_s
        time.sleep(_LOG_SETTLES_S)
        # The readers agree on values, not on which columns are declared nullable.
        plain = pa.Table.from_arrays(rows.columns, names=rows.schema.names)
        return Answer(rows=plain, wall_s=wall_s, requests=self._server.requests)


async def ask_coldparquet(
    server: Server, url: str, questions: Mapping[str, DemoQuestion]
) -> tuple[dict[str, Answer], ColdparquetAnswer]:
    """Open the table and ask the first question, with nothing known before; then ask the others of the open table."""
    clear_caches()
    answers: dict[str, Answer] = {}
    told: ColdparquetAnswer | None = None
    watch = Watch(server)
    async with open_table(url, storage_options=server.storage_options) as table:
        for name, question in questions.items():
            scan = table.scan(question.columns or None, question.where)
            if told is None:
                plan = await scan.plan()
                rows = await _rows(scan, question)
                told = ColdparquetAnswer(plan=plan, request_log=table.request_log)
            else:
                watch = Watch(server)
                rows = await _rows(scan, question)
            answers[name] = watch.answered(rows)
    if told is None:
        raise ValueError("there is no question")
    return answers, told


async def _rows(scan: Scan, question: DemoQuestion) -> pa.Table:
    return await scan.to_arrow() if question.columns else _counted(await scan.count())


def ask_pyarrow(server: Server, source: str | list[str], questions: Sequence[DemoQuestion]) -> list[Answer]:
    """Read a directory, or the files that are named, through pyarrow's dataset and its own S3 client; the dataset is kept."""
    watch = Watch(server)
    options = server.storage_options
    filesystem = S3FileSystem(
        access_key=options["key"],
        secret_key=options["secret"],
        region=options["client_kwargs"]["region_name"],
        scheme="http",
        endpoint_override=urlsplit(server.endpoint_url).netloc,
    )
    dataset = ds.dataset(source, filesystem=filesystem, format="parquet")
    answers: list[Answer] = []
    for question in questions:
        if answers:
            watch = Watch(server)
        if question.columns:
            rows = dataset.to_table(columns=list(question.columns), filter=question.expression)
        else:
            rows = _counted(dataset.count_rows(filter=question.expression))
        answers.append(watch.answered(rows))
    return answers


def _counted(count: int) -> pa.Table:
    return pa.table({"count": [count]})
