"""Publishing a table of 1 GB, against plain uploads of the same files, in turn on the same store on this machine.

    python tests/benchmarks/publish.py

The store is the simulated one, in a process of its own, over loopback and without added latency: what is measured is
the processor time and the waiting of the publisher. "upload_object" is our own upload without anything around it,
"boto3" its managed transfer with parts of the same length and without checksums.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coldparquet.format.column_versions import ColumnVersions, encode_column_versions, parse_column_versions
from coldparquet.format.partition_names import PartitionInterval
from coldparquet.format.partition_records import PartitionRecord, PartitionRecords
from coldparquet.format.table_metadata import MetadataSlot, TableMetadata, encode_table_metadata
from coldparquet.format.txn import TableTransaction, encode_txn
from coldparquet.publish import publish_table
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.local import LocalStore
from coldparquet.storage.s3.store import S3Store
from coldparquet.storage.transfer import PART_BYTES, MemoryBudget, StoreSource, upload_object
from coldparquet_testing.simulator import ColdStoreProcess

DAY_US = 86_400_000_000
FIRST_DAY_US = 19_783 * DAY_US  # 2024-03-01
TIMESTAMP, DOUBLE = 8 | 1 << 17, 10
"""QuestDB's type codes: a designated timestamp of microseconds, and a double."""
PARTITIONS = 10
BUDGET_BYTES = 128 * 1024 * 1024


def make_table(directory: Path, total_bytes: int) -> None:
    """Write a table of equal days: random doubles, which nothing compresses."""
    rows = total_bytes // PARTITIONS // 32
    random = np.random.default_rng(1)
    values = {name: random.random(rows) for name in ("a", "b", "c")}
    names, records = ["ts", *values], []
    for day in range(PARTITIONS):
        start_us = FIRST_DAY_US + day * DAY_US
        times = pa.array(start_us + np.arange(rows) * (DAY_US // rows), pa.timestamp("us"))
        fields: list[pa.Field[Any]] = [
            pa.field("ts", times.type, nullable=False),
            *(pa.field(name, pa.float64()) for name in values),
        ]
        table = pa.table([times, *values.values()], schema=pa.schema(fields))
        path = directory / f"2024-03-{day + 1:02}" / "data.parquet"
        path.parent.mkdir(parents=True)
        sorting = [pq.SortingColumn(0)]
        pq.write_table(table, path, compression="none", use_dictionary=False, sorting_columns=sorting)
        records.append(
            PartitionRecord(timestamp=start_us, row_count=rows, is_parquet=True, parquet_size=path.stat().st_size)
        )
    metadata = TableMetadata(
        interval=PartitionInterval.DAY,
        designated_timestamp=0,
        table_id=1,
        metadata_version=0,
        wal_enabled=False,
        slots=tuple(MetadataSlot(name=name, type_code=TIMESTAMP if name == "ts" else DOUBLE) for name in names),
    )
    transaction = TableTransaction(
        txn=2,
        transient_row_count=rows,
        fixed_row_count=rows * (PARTITIONS - 1),
        min_timestamp=FIRST_DAY_US,
        max_timestamp=FIRST_DAY_US + PARTITIONS * DAY_US - 1,
        metadata_version=0,
        column_structure_version=0,
        data_version=0,
        partition_table_version=0,
        column_version=0,
        truncate_version=0,
        seq_txn=0,
        symbol_counts=(),
        partitions=PartitionRecords.of(records),
    )
    versions: ColumnVersions = parse_column_versions(bytes(64), path=None)
    (directory / "_meta").write_bytes(encode_table_metadata(metadata))
    (directory / "_cv").write_bytes(encode_column_versions(versions))
    (directory / "_txn").write_bytes(encode_txn(transaction))


def with_publish(table: Path, server: ColdStoreProcess) -> None:
    """Publish, from nothing to the commit."""
    report = asyncio.run(publish_table(table, "s3://bucket/t", storage_options=server.storage_options))
    assert report.is_committed


def with_upload_object(table: Path, server: ColdStoreProcess) -> None:
    """Upload the same files, four at a time."""

    files = [(path, path.stat().st_size) for path in sorted(table.glob("*/data.parquet"))]

    async def upload() -> None:
        store, memory, slots = (
            S3Store(storage_options=server.storage_options),
            MemoryBudget(BUDGET_BYTES),
            asyncio.Semaphore(4),
        )
        local = CheckedStore(LocalStore())

        async def one(path: Path, file_bytes: int) -> None:
            async with slots:
                source = StoreSource(local, str(path), size_bytes=file_bytes)
                target = f"bucket/t/{path.relative_to(table)}"
                await upload_object(store, target, source, overwrite=False, memory=memory)

        await asyncio.gather(*(one(path, file_bytes) for path, file_bytes in files))
        await store.aclose()

    asyncio.run(upload())


def with_boto3(table: Path, server: ColdStoreProcess) -> None:
    """Upload the same files with boto3, one after the other, eight parts at a time."""
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    options = server.storage_options
    client = boto3.client(
        "s3",
        endpoint_url=options["endpoint_url"],
        aws_access_key_id=options["key"],
        aws_secret_access_key=options["secret"],
        region_name="us-east-1",
        config=Config(request_checksum_calculation="when_required", max_pool_connections=16),
    )
    transfer = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=8)
    for path in sorted(table.glob("*/data.parquet")):
        client.upload_file(str(path), "bucket", f"t/{path.relative_to(table)}", Config=transfer)
    client.close()


CONTENDERS: dict[str, Callable[[Path, ColdStoreProcess], None]] = {
    "publish": with_publish,
    "upload_object": with_upload_object,
    "boto3": with_boto3,
}


def run(*, total_bytes: int, rounds: int) -> dict[str, float]:
    """Return the median time of each contender, in seconds."""
    times_s: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory(prefix="coldparquet-publish-") as directory:
        table, root = Path(directory, "table"), Path(directory, "store")
        make_table(table, total_bytes)
        for number in range(rounds):
            for name in list(CONTENDERS)[number % 3 :] + list(CONTENDERS)[: number % 3]:
                (root / "bucket").mkdir(parents=True)
                with ColdStoreProcess(root) as server:
                    started_s = time.perf_counter()
                    CONTENDERS[name](table, server)
                    times_s[name].append(time.perf_counter() - started_s)
                shutil.rmtree(root)
    return {name: statistics.median(times) for name, times in times_s.items()}


def report(medians_s: dict[str, float], total_bytes: int) -> str:
    """Return the table that is printed."""
    lines = []
    for name, seconds in medians_s.items():
        rate = total_bytes / seconds / 1e6
        share = medians_s["upload_object"] / seconds
        lines.append(f"{name:15}{seconds:8.2f} s {rate:8.0f} MB/s {share:8.0%} of upload_object's speed")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    size_bytes = given.megabytes * 1_000_000
    print(report(run(total_bytes=size_bytes, rounds=given.rounds), size_bytes))
