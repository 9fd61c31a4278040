"""The data source as Spark uses it, without Spark: sources and readers, what is sent to tasks, and the rows of a scan."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.serializers import CloudPickleSerializer

import coldparquet as cp
from coldparquet.maintenance.index import index_table
from coldparquet.spark.reader import TableReader
from coldparquet.spark.source import DefaultSource
from tests.support.written_tables import trades

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql.types import StructType

    from coldparquet_testing.simulator import ColdStoreServer

DAYS, ROWS = 3, 1_000
URL = "s3://bucket/trades"


async def make_store(root: Path) -> Path:
    """Write the table of :data:`URL`, three days with sidecars, below the root of a simulated store."""
    directory = root / "bucket" / "trades"
    for day in range(DAYS):
        partition = directory / f"2024-03-0{day + 1}"
        partition.mkdir(parents=True)
        pq.write_table(trades(day * ROWS, ROWS), partition / "data.parquet", row_group_size=250)
    await index_table(directory, pages=False, pack=False)
    return root


def remote(server: ColdStoreServer, url: str = URL, **options: str) -> DefaultSource:
    return DefaultSource({"path": url, "storage_options": json.dumps(server.storage_options), **options})


def reader_of(source: DefaultSource, schema: StructType | None = None) -> TableReader:
    reader = source.reader(schema or source.schema())
    assert isinstance(reader, TableReader)
    return reader


def pickled(thing: Any) -> bytes:
    serializer: Any = CloudPickleSerializer
    data: bytes = serializer().dumps(thing)
    return data


def sent(thing: Any) -> Any:
    """Send something as Spark does."""
    return pickle.loads(pickled(thing))  # noqa: S301 - our own bytes


def read(reader: TableReader) -> pa.Table:
    """Read all partitions in tasks."""
    task = sent(reader)
    batches = [batch for partition in reader.partitions() for batch in task.read(sent(partition))]
    return pa.Table.from_batches(batches)


def directly(path: Path, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
    """Read a table without Spark."""
    with cp.sync.open_table(path, options=cp.ReadOptions(symbols="string")) as opened:
        return opened.scan(columns, where).to_arrow().replace_schema_metadata()


def same_rows(found: pa.Table, expected: pa.Table) -> bool:
    return bool(found.combine_chunks().equals(expected.cast(found.schema).combine_chunks()))
