"""What we write and publish is read by a real QuestDB."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

import coldparquet as cp
from coldparquet.format.native import parse_symbol_offsets, parse_symbols, symbol_offsets_range
from coldparquet.format.partition_records import PartitionRecords
from coldparquet.format.txn import encode_txn, parse_txn, replace_partitions
from coldparquet.publish import publish_table
from coldparquet.write.options import Codec, WriteOptions
from coldparquet.write.partition import write_partition
from tests.support.live_questdb import DAILY, SHAPES, LiveTable
from tests.support.live_servers import live_questdb
from tests.support.questdb_tables import assert_same_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.live_questdb import LiveQuestDB
    from tests.support.live_servers import LiveS3

pytestmark = pytest.mark.integration

SHAPE = SHAPES["day_without_wal"]
"""A server finds tables without write-ahead log by their directories when it starts."""


ACTIVE = "2024-03-04"


@pytest.fixture
def table(live_table: LiveTable) -> LiveTable:
    live_table.run(SHAPE.create(), SHAPE.insert("2024-03-01", 1000, seed=43))
    live_table.convert("2024-03-01", "2024-03-02", "2024-03-03")
    return live_table


@pytest.mark.parametrize("codec", ["zstd", "lz4_raw", "snappy", "gzip", "brotli", "none"])
async def test_the_function_read_parquet_reads_our_files(
    live_table: LiveTable, questdb: LiveQuestDB, codec: Codec
) -> None:
    live_table.run(DAILY.create(), DAILY.insert("2024-03-01", 250, seed=47))
    async with cp.open_table(live_table.directory) as opened:
        rows = await opened.scan().to_arrow()
    options = WriteOptions(codec=codec, row_group_rows=100, page_rows=30)
    await write_partition(questdb.root / "import" / live_table.name, rows, timestamp="ts", options=options)
    assert_same_rows(questdb.rows_of_file(f"{live_table.name}/data.parquet"), live_table.expected())


@pytest.mark.slow
async def test_a_restored_table_goes_on(table: LiveTable, minio: LiveS3, tmp_path: Path) -> None:
    prefix = f"restore/{table.name}/"
    await publish_table(table.directory, f"s3://{minio.bucket}/{prefix}", storage_options=minio.storage_options)
    restored = tmp_path / "db" / table.name
    minio.download(prefix, restored)
    (restored / "_todo_").write_bytes(bytes(40))
    with live_questdb(tmp_path) as server:
        assert_same_rows(server.rows(table.name), table.expected())  # the native partition was converted for the copy
        for start, seed in (
            ("2024-03-02T20:00:00.000001Z", 53),
            ("2024-03-04T20:00:00.000001Z", 61),
            ("2024-03-07", 67),
        ):
            more = SHAPE.insert(start, 10, seed=seed)
            if start.startswith(
                ACTIVE
            ):  # without write-ahead log, QuestDB adds rows to a native active partition alone
                server.run(f"ALTER TABLE '{table.name}' CONVERT PARTITION TO NATIVE LIST '{ACTIVE}'")
            server.run(more.replace("{t}", table.name))
            table.run(more)
            assert_same_rows(server.rows(table.name), table.expected())


@pytest.mark.slow
async def test_a_partition_that_we_wrote_is_read_and_updated_by_the_database(table: LiveTable, tmp_path: Path) -> None:
    ours = tmp_path / "db" / table.name
    shutil.copytree(table.directory, ours)
    await _replace_partition(ours, position=1)
    with live_questdb(tmp_path) as server:
        assert_same_rows(server.rows(table.name), table.expected())
        late = SHAPE.insert("2024-03-02T20:00:00.000001Z", 10, seed=59)
        server.run(late.replace("{t}", table.name))
        table.run(late)
        assert_same_rows(server.rows(table.name), table.expected())
        async with cp.open_table(server.directory(table.name)) as opened:
            assert_same_rows(await opened.scan().to_arrow(), table.expected())


async def _replace_partition(table: Path, *, position: int) -> None:
    """Write a partition anew, with more row groups and another codec, and commit it."""
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    records = [transaction.partitions.record(index) for index in range(len(transaction.partitions))]
    async with cp.open_table(table) as opened:
        partition = opened.partitions[position]
    async with cp.open_partition(partition.directory_path) as opened_partition:
        rows = await opened_partition.scan().to_arrow()
    written = await write_partition(
        table / f"{partition.name.partition('.')[0]}.{transaction.txn}",
        rows,
        timestamp="ts",
        symbols={"sym": _symbols(table, "sym", transaction.symbol_counts[0])},
        options=WriteOptions(row_group_rows=70),
    )
    records[position] = replace(records[position], name_txn=transaction.txn, parquet_size=written.parquet_size_bytes)
    following = replace_partitions(
        transaction,
        PartitionRecords.of(records),
        min_timestamp=transaction.min_timestamp,
        max_timestamp=transaction.max_timestamp,
    )
    (table / "_txn").write_bytes(encode_txn(following))


def _symbols(table: Path, column: str, count: int) -> list[str]:
    wanted = symbol_offsets_range(count)
    offsets_data = (table / f"{column}.o").read_bytes()[wanted.start : wanted.stop]
    offsets = parse_symbol_offsets(offsets_data, count, path=None)
    chars = (table / f"{column}.c").read_bytes()[: offsets[-1]]
    strings = parse_symbols(chars, offsets, path=None)
    ends = strings.offsets.tolist()
    return [strings.utf8[start:stop].decode() for start, stop in pairwise(ends)]
