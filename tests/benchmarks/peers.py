"""One question to many readers: rows of a few columns under a few conditions, from files on the simulated store.

DuckDB needs its extension httpfs, which it finds where ``INSTALL httpfs`` or the package ``duckdb-extension-httpfs`` put
it. A reader that is not installed is left out. DataFusion does not list a folder of the simulated store, so that it only
takes part where one file is asked; pyarrow does not compare UUIDs.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import datetime
from functools import partial, reduce
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

import coldparquet as cp
from coldparquet.storage.open_store import open_store
from tests.benchmarks.harness import BUCKET, OURS, Reader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.benchmarks.harness import MakeReader

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Rows of some columns that satisfy every condition; the answer is their number."""

    table: str
    """Path of the table's directory in the bucket; each partition is a directory with a ``data.parquet``."""
    columns: tuple[str, ...]
    conditions: tuple[tuple[str, str, datetime | UUID | float | int], ...]
    """``(column, operator, value)``; times have no zone and mean UTC."""
    partition: str | None = None
    """Name of the only partition that is asked; None for all."""

    @property
    def path(self) -> str:
        """Bucket and path of what is asked: the table's directory, or the partition's."""
        return "/".join(filter(None, (BUCKET, self.table, self.partition)))

    @property
    def files(self) -> str:
        """URL of the Parquet files, with a star where all partitions are asked."""
        return f"s3://{self.path}/data.parquet" if self.partition else f"s3://{self.path}/*/data.parquet"


def readers(question: Question, **our_options: cp.ReadOptions) -> dict[str, MakeReader]:
    """Return every installed reader for a question.

    Args:
        question: What they are asked.
        our_options: More readings of ours, by what their name says after ``coldparquet``.
    """
    ours: dict[str, MakeReader] = {OURS: partial(coldparquet_reader, question, cp.ReadOptions())}
    for name, options in our_options.items():
        ours[f"{OURS} {name}"] = partial(coldparquet_reader, question, options)
    peers = {"Polars": polars_reader, "DuckDB": duckdb_reader}
    if not any(isinstance(value, UUID) for _, _, value in question.conditions):
        peers["pyarrow"] = pyarrow_reader
    if question.partition is not None:
        peers["DataFusion"] = datafusion_reader
    return ours | {name: partial(make, question) for name, make in peers.items() if find_spec(name.lower())}


def coldparquet_reader(question: Question, options: cp.ReadOptions, endpoint_url: str) -> Reader:
    """Open the table or the partition at the first call, and keep it open for the calls after it."""
    where = [
        (name, how, value.isoformat() if isinstance(value, datetime) else value)
        for name, how, value in question.conditions
    ]

    async def ask(table: cp.Table) -> int:
        return (await table.scan(question.columns, where).to_arrow()).num_rows

    opener = cp.open_partition if question.partition else cp.open_table
    return our_reader(question.path, endpoint_url, ask, opener=opener, options=options)


def our_reader(
    path: str,
    endpoint_url: str,
    ask: Callable[[cp.Table], Awaitable[Any]],
    *,
    opener: Callable[..., Any] = cp.open_table,
    options: cp.ReadOptions | None = None,
) -> Reader:
    """Make a reader of ours, whose client is made before the clock starts.

    Args:
        path: Bucket and path.
        endpoint_url: Where the store listens.
        ask: Asks the question of the open table, and returns the answer.
        opener: ``open_table`` or ``open_partition``.
        options: How to read.
    """
    store, path_in_store = open_store(f"s3://{path}", storage_options={"endpoint_url": endpoint_url, "anon": True})
    opened: list[cp.Table] = []

    async def first() -> Any:
        opened.append(await opener(path_in_store, store=store, options=options))
        return await warm()

    async def warm() -> Any:
        return await ask(opened[0])

    async def close() -> None:
        await opened[0].aclose()
        await store.aclose()

    return Reader(first=first, warm=warm, close=close)


def polars_options(endpoint_url: str) -> dict[str, str]:
    """Return the storage options with which Polars reads from the simulated store."""
    return {
        "aws_endpoint_url": endpoint_url,
        "aws_access_key_id": "x",
        "aws_secret_access_key": "x",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }


def polars_reader(question: Question, endpoint_url: str) -> Reader:
    """Scan lazily, as its documentation recommends."""
    import polars as pl

    def literal(value: Any) -> Any:
        if isinstance(value, UUID):
            return pl.lit(value.bytes)
        # The literal's type is named, or statistics in another unit are not used.
        return pl.lit(value, pl.Datetime("us", "UTC")) if isinstance(value, datetime) else pl.lit(value)

    async def read() -> int:
        frame = pl.scan_parquet(question.files, storage_options=polars_options(endpoint_url))
        wanted = [_COMPARE[how](pl.col(name), literal(value)) for name, how, value in question.conditions]
        return int(frame.filter(*wanted).select(question.columns).collect().height)

    return Reader.that_keeps_nothing(read)


def pyarrow_filesystem(endpoint_url: str) -> Any:
    """Return Arrow's own S3 client for the simulated store."""
    from pyarrow import fs

    return fs.S3FileSystem(
        access_key="x",
        secret_key="x",
        endpoint_override=endpoint_url.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
    )


def pyarrow_reader(question: Question, endpoint_url: str) -> Reader:
    """Scan a dataset with Arrow's own S3 client."""
    import pyarrow.dataset as ds

    filesystem = pyarrow_filesystem(endpoint_url)
    source = f"{question.path}/data.parquet" if question.partition else question.path

    def literal(value: Any) -> Any:
        return pa.scalar(value, pa.timestamp("us", "UTC")) if isinstance(value, datetime) else value

    async def read() -> int:
        dataset = ds.dataset(source, filesystem=filesystem, format="parquet")
        wanted = [_COMPARE[how](ds.field(name), literal(value)) for name, how, value in question.conditions]
        return int(dataset.to_table(columns=list(question.columns), filter=reduce(operator.and_, wanted)).num_rows)

    return Reader.that_keeps_nothing(read)


def duckdb_connection(endpoint_url: str) -> Any:
    """Return a connection with the extension httpfs, set up for the simulated store."""
    import duckdb

    connection = duckdb.connect()
    if find_spec("duckdb_extensions"):
        from duckdb_extensions import import_extension

        import_extension("httpfs")
    connection.execute("LOAD httpfs")
    connection.execute(
        "CREATE SECRET (TYPE s3, KEY_ID 'x', SECRET 'x', REGION 'us-east-1', USE_SSL false, URL_STYLE 'path',"
        f" ENDPOINT '{endpoint_url.removeprefix('http://')}')"
    )
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def duckdb_reader(question: Question, endpoint_url: str) -> Reader:
    """Ask in SQL; DuckDB keeps what it fetched for later calls."""
    connection = duckdb_connection(endpoint_url)
    statement = _select(question, f"read_parquet('{question.files}')")

    async def read() -> int:
        return int(connection.sql(statement).to_arrow_table().num_rows)

    return Reader.that_keeps_nothing(read)


def datafusion_reader(question: Question, endpoint_url: str) -> Reader:
    """Ask in SQL, with the defaults."""
    from datafusion import SessionConfig, SessionContext
    from datafusion.object_store import AmazonS3

    config = SessionConfig()
    client = AmazonS3(
        bucket_name=BUCKET,
        region="us-east-1",
        access_key_id="x",
        secret_access_key="x",
        endpoint=endpoint_url,
        allow_http=True,
    )
    statement = _select(question, "asked")

    async def read() -> int:
        # A context keeps the metadata of its files: a new one is what a new process would have.
        context = SessionContext(config)
        context.register_object_store("s3://", client, BUCKET)
        context.register_parquet("asked", question.files)
        return int(context.sql(statement).to_arrow_table().num_rows)

    return Reader.that_keeps_nothing(read)


def _select(question: Question, source: str) -> str:
    def literal(value: Any) -> str:
        if isinstance(value, UUID):
            return f"'{value}'::UUID"
        return f"TIMESTAMPTZ '{value:%Y-%m-%d %H:%M:%S}+00'" if isinstance(value, datetime) else str(value)

    where = " AND ".join(f"{name} {how} {literal(value)}" for name, how, value in question.conditions)
    return f"SELECT {', '.join(question.columns)} FROM {source} WHERE {where}"  # noqa: S608 - all of it is ours
