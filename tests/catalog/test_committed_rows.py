"""Native rows that a running QuestDB may have written over since a table was opened are never returned."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import coldparquet as cp
from coldparquet.errors import ObjectChangedError
from coldparquet.format.partition_records import PartitionRecords
from coldparquet.format.table_metadata import encode_table_metadata, parse_table_metadata
from coldparquet.format.txn import encode_txn, parse_txn
from tests.support.questdb_tables import GOLDEN, assert_same_rows, expected_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.format.txn import TableTransaction

    Change = Callable[[PartitionRecord], PartitionRecord]

TABLE = "interval_day"
"""Four partitions in Parquet, and a native one that was written to last."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    copied = tmp_path / TABLE
    shutil.copytree(GOLDEN / TABLE / "table", copied)
    return copied


def commit(table: Path, change: Change, **fields: int) -> None:
    """Commit another transaction, which says something else of the native partition."""
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    records = [transaction.partitions.record(index) for index in range(len(transaction.partitions))]
    records[-1] = change(records[-1])
    following: TableTransaction = replace(
        transaction,
        txn=transaction.txn + 1,
        transient_row_count=records[-1].row_count,
        fixed_row_count=sum(record.row_count for record in records[:-1]),
        partitions=PartitionRecords.of(records),
        **fields,  # type: ignore[arg-type]
    )
    (table / "_txn").write_bytes(encode_txn(following))


def nothing(record: PartitionRecord) -> PartitionRecord:
    return record


def more_rows(record: PartitionRecord) -> PartitionRecord:
    return replace(record, row_count=record.row_count + 5)


def fewer_rows(record: PartitionRecord) -> PartitionRecord:
    return replace(record, row_count=record.row_count - 1)


def joined_pieces(record: PartitionRecord) -> PartitionRecord:
    return replace(record, row_count=record.row_count + 5, squash_count=record.squash_count + 1)


def another_version(record: PartitionRecord) -> PartitionRecord:
    return replace(record, name_txn=record.name_txn + 7)


@pytest.mark.parametrize("change", [nothing, more_rows])
async def test_appended_rows_leave_the_old_ones_where_they_are(table: Path, change: Change) -> None:
    async with cp.open_table(table) as opened:
        commit(table, change)
        assert_same_rows(await opened.scan().to_arrow(), expected_rows(TABLE))


@pytest.mark.parametrize("change", [fewer_rows, joined_pieces, another_version])
async def test_rows_that_may_have_been_written_over_are_refused(table: Path, change: Change) -> None:
    async with cp.open_table(table) as opened:
        commit(table, change)
        with pytest.raises(ObjectChangedError, match="refresh the table"):
            await opened.scan().to_arrow()


async def test_rows_of_a_table_that_was_emptied_meanwhile_are_refused(table: Path) -> None:
    async with cp.open_table(table) as opened:
        commit(table, nothing, truncate_version=99)
        with pytest.raises(ObjectChangedError, match="refresh the table"):
            await opened.scan().to_arrow()


@pytest.mark.parametrize("txn_step", [0, 2, -2])
async def test_rows_of_a_table_that_was_dropped_and_made_anew_are_refused(table: Path, txn_step: int) -> None:
    metadata = parse_table_metadata((table / "_meta").read_bytes(), path=None)
    transaction = parse_txn((table / "_txn").read_bytes(), path=None)
    async with cp.open_table(table) as opened:
        await opened.scan(["price"]).plan()
        first = opened.partitions[0]
        (table / "_txn").unlink()
        with pytest.raises(ObjectChangedError, match="refresh the table"):
            await opened.scan(["price"], "ts >= '2024-03-02'").to_arrow()
        (table / "_meta").write_bytes(encode_table_metadata(replace(metadata, table_id=metadata.table_id + 1)))
        (table / "new").write_bytes(encode_txn(replace(transaction, txn=transaction.txn + txn_step)))
        shutil.move(table / "new", table / "_txn")
        with pytest.raises(ObjectChangedError, match="refresh the table"):
            await opened.scan(["price"], "ts >= '2024-03-02'").to_arrow()
        assert await opened.refresh()
        assert opened.partitions[0] is not first  # what is known of it may be of other rows
        assert_same_rows(await opened.scan().to_arrow(), expected_rows(TABLE))


async def test_partitions_in_parquet_are_not_affected(table: Path) -> None:
    async with cp.open_table(table) as opened:
        commit(table, joined_pieces)
        native_day = opened.partitions[-1].name[:10]
        rows = await opened.scan(where=f"ts < '{native_day}'").to_arrow()
        assert_same_rows(rows, expected_rows(TABLE).slice(0, rows.num_rows))
        assert rows.num_rows > 0
