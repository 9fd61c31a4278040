"""One question to many readers: rows of a few columns under a few conditions, from files on the simulated store.

DuckDB needs its extension httpfs, which it finds where ``INSTALL httpfs`` or the package ``duckdb-extension-httpfs`` put
it. A reader that is not installed is left out. DataFusion does not list a folder of the simulated store, so that it only
takes part where files are named; pyarrow does not compare UUIDs. Every reader uses the defaults of its documentation.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import datetime
from functools import partial, reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

import coldparquet as cp
from coldparquet.opening import open_partitions, open_table
from coldparquet_bench.measurement import BUCKET, OURS, Reader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from coldparquet.table import Table
    from coldparquet_bench.measurement import MakeReader

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
    conditions: tuple[tuple[str, str, datetime | UUID | float | int], ...] = ()
    """``(column, operator, value)``; times have no zone and mean UTC."""
    partitions: tuple[str, ...] = ()
    """Names of the partitions that are asked, which every reader is told; none where all are, and readers find them."""

    @property
    def directory(self) -> str:
        """Bucket and path of the table."""
        return f"{BUCKET}/{self.table}"

    @property
    def paths(self) -> list[str]:
        """Bucket and path of the named partitions' files; with a star where all partitions are asked."""
        return [f"{self.directory}/{name}/data.parquet" for name in self.partitions or ("*",)]

    @property
    def urls(self) -> list[str]:
        """URLs of the same."""
        return [f"s3://{path}" for path in self.paths]


@dataclass(frozen=True, slots=True, kw_only=True)
class OurWay:
    """How our own reader is used, where not as its defaults are."""

    options: cp.ReadOptions | None = None
    store_options: cp.StoreOptions | None = None
    table: str | None = None
    """Another copy of the table, such as one without a catalogue."""
    is_kept_open: bool = False
    """Whether all calls ask the same open table. By default, each opens it by its URL and closes it, as a script does."""


KEPT_OPEN = {"kept open": OurWay(is_kept_open=True)}
NO_DATA_KEPT = {"no data kept": OurWay(store_options=cp.StoreOptions(cache_limit_bytes=0), is_kept_open=True)}
"""Ways of a reader by name, for :func:`readers`."""


def readers(question: Question, ways: Mapping[str, OurWay] | None = None) -> dict[str, MakeReader]:
    """Return every installed reader for a question."""
    ours: dict[str, MakeReader] = {OURS: partial(coldparquet_reader, question, OurWay())}
    for name, way in (ways or {}).items():
        ours[f"{OURS}, {name}"] = partial(coldparquet_reader, question, way)
    return ours | peers(question)


def peers(question: Question) -> dict[str, MakeReader]:
    """Return every installed reader for a question but our own."""
    known: dict[str, tuple[str, Callable[[Question, str], Reader]]] = {
        "Polars": ("polars", polars_reader),
        "DuckDB": ("duckdb", duckdb_reader),
    }
    if not any(isinstance(value, UUID) for _, _, value in question.conditions):
        known["pyarrow"] = ("pyarrow", pyarrow_reader)
        known["pyarrow on s3fs"] = ("s3fs", s3fs_reader)
    if question.partitions:
        known["DataFusion"] = ("datafusion", datafusion_reader)
    return {name: partial(make, question) for name, (package, make) in known.items() if find_spec(package)}


def coldparquet_reader(question: Question, way: OurWay, endpoint_url: str) -> Reader:
    """Ask the table, or the named partitions."""
    where = [
        (name, how, value.isoformat() if isinstance(value, datetime) else value)
        for name, how, value in question.conditions
    ]

    async def ask(table: Table) -> int:
        rows = 0
        async with table.scan(question.columns, where or None).batches() as batches:
            async for batch in batches:
                rows += batch.num_rows
        return rows

    return our_reader(
        f"{BUCKET}/{way.table or question.table}", endpoint_url, ask, partitions=question.partitions, way=way
    )


def our_reader(
    path: str,
    endpoint_url: str,
    ask: Callable[[Table], Awaitable[Any]],
    *,
    partitions: Sequence[str] = (),
    way: OurWay | None = None,
) -> Reader:
    """Make a reader of ours. Its imports, as those of the others, come before the clock starts."""
    for module in ("coldparquet.table", "coldparquet.plan.explain", "coldparquet.storage.s3.store", "sqlglot"):
        import_module(module)
    way, url = way or OurWay(), f"s3://{path}"
    how: dict[str, Any] = {
        "storage_options": {"endpoint_url": endpoint_url, "key": "x", "secret": "x"},
        "options": way.options,
        "store_options": way.store_options,
    }
    kept: list[Table] = []

    async def opened() -> Table:
        return await (open_partitions(url, partitions, **how) if partitions else open_table(url, **how))

    async def asked_anew() -> Any:
        async with await opened() as table:
            return await ask(table)

    async def asked_first() -> Any:
        kept.append(await opened())
        return await asked_again()

    async def asked_again() -> Any:
        return await ask(kept[0])

    async def close() -> None:
        for table in kept:
            await table.aclose()

    if way.is_kept_open:
        return Reader(first=asked_first, warm=asked_again, close=close)
    return Reader(first=asked_anew, warm=asked_anew)


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
        frame = pl.scan_parquet(question.urls, storage_options=polars_options(endpoint_url))
        wanted = [_COMPARE[how](pl.col(name), literal(value)) for name, how, value in question.conditions]
        asked = (frame.filter(*wanted) if wanted else frame).select(question.columns)
        return sum(batch.height for batch in asked.collect_batches())

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
    return _dataset_reader(question, pyarrow_filesystem(endpoint_url))


def s3fs_reader(question: Question, endpoint_url: str) -> Reader:
    """Scan a dataset through s3fs, as pandas and many others do."""
    import s3fs

    return _dataset_reader(
        question, s3fs.S3FileSystem(endpoint_url=endpoint_url, key="x", secret="x", skip_instance_cache=True)
    )


def _dataset_reader(question: Question, filesystem: Any) -> Reader:
    import pyarrow.dataset as ds

    source: Any = question.paths if question.partitions else question.directory

    def literal(value: Any) -> Any:
        return pa.scalar(value, pa.timestamp("us", "UTC")) if isinstance(value, datetime) else value

    async def read() -> int:
        dataset = ds.dataset(source, filesystem=filesystem, format="parquet")
        wanted = [_COMPARE[how](ds.field(name), literal(value)) for name, how, value in question.conditions]
        condition = reduce(operator.and_, wanted) if wanted else None
        batches = dataset.to_batches(columns=list(question.columns), filter=condition)
        return sum(batch.num_rows for batch in batches)

    return Reader.that_keeps_nothing(read)


def duckdb_connection(endpoint_url: str) -> Any:
    """Return a connection with the extension httpfs, set up for the simulated store."""
    import duckdb

    connection = duckdb.connect()
    package = find_spec("duckdb_extension_httpfs")
    extension = "httpfs"  # one that DuckDB fetched itself
    if package is not None and package.origin is not None:
        files = Path(package.origin).with_name("extensions") / f"v{duckdb.__version__}"
        extension = f"'{files / 'httpfs.duckdb_extension'}'"
    connection.execute(f"LOAD {extension}")
    connection.execute(
        "CREATE SECRET (TYPE s3, KEY_ID 'x', SECRET 'x', REGION 'us-east-1', USE_SSL false, URL_STYLE 'path',"
        f" ENDPOINT '{endpoint_url.removeprefix('http://')}')"
    )
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def duckdb_reader(question: Question, endpoint_url: str) -> Reader:
    """Ask in SQL; DuckDB keeps what it fetched for later calls."""
    connection = duckdb_connection(endpoint_url)
    statement = _select(question, f"read_parquet({question.urls!r})")

    async def read() -> int:
        return sum(batch.num_rows for batch in connection.sql(statement).to_arrow_reader())

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

    async def read() -> int:
        # A context keeps the metadata of its files: a new one is what a new process would have.
        context = SessionContext(config)
        context.register_object_store("s3://", client, BUCKET)
        names = [f"asked{number}" for number in range(len(question.urls))]
        for name, url in zip(names, question.urls, strict=True):
            context.register_parquet(name, url)
        statement = " UNION ALL ".join(_select(question, name) for name in names)
        return sum(batch.to_pyarrow().num_rows for batch in context.sql(statement).execute_stream())

    return Reader.that_keeps_nothing(read)


def _select(question: Question, source: str) -> str:
    def literal(value: Any) -> str:
        if isinstance(value, UUID):
            return f"'{value}'::UUID"
        return f"TIMESTAMPTZ '{value:%Y-%m-%d %H:%M:%S}+00'" if isinstance(value, datetime) else str(value)

    where = " AND ".join(f"{name} {how} {literal(value)}" for name, how, value in question.conditions)
    condition = f" WHERE {where}" if where else ""
    return f"SELECT {', '.join(question.columns)} FROM {source}{condition}"
