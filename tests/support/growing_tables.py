"""A table on a disk that a test lets grow, one transaction at a time, as a database or a publisher would."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from coldparquet.format.partition_names import PartitionInterval, format_partition_directory
from coldparquet.format.partition_records import PartitionRecord, PartitionRecords
from coldparquet.format.table_metadata import MetadataSlot, TableMetadata, encode_table_metadata
from coldparquet.format.txn import TableTransaction, encode_txn, replace_partitions
from coldparquet.format.type_codes import TypeTag
from coldparquet.storage.base import ObjectStore
from coldparquet.write import WriteOptions, append_rows, write_partition

DAY_US = 86_400_000_000
_DESIGNATED = 1 << 17
"""Of a TIMESTAMP: it is the designated one."""
ROW_GROUP_ROWS = 4


def numbered_rows(day: int, first: int, count: int, *, from_row: int = 0) -> pa.Table:
    """Rows of a day: numbers from ``first`` on, one second apart, the first of them at second ``from_row``."""
    numbers = np.arange(first, first + count)
    times = day * DAY_US + (from_row + np.arange(count)) * 1_000_000
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "number": pa.array(numbers, pa.int64())})


class GrowingTable:
    """A table of days with the columns ``ts`` and ``number``; every row has a number of its own.

    Args:
        directory: Where it is made.
        has_transactions: Whether it has a `_txn` and a `_meta`.
        row_group_rows: Rows of a row group.
    """

    def __init__(
        self, directory: Path, *, has_transactions: bool = True, row_group_rows: int = ROW_GROUP_ROWS, table_id: int = 5
    ) -> None:
        self.directory = directory
        self.has_transactions = has_transactions
        self.options = WriteOptions(row_group_rows=row_group_rows)
        self.numbers: dict[int, list[int]] = {}
        """By day the numbers of the rows that the table holds."""
        self._next_number = 0
        self._records: dict[int, PartitionRecord] = {}
        self._transaction = _nothing_yet()
        self._copied: dict[tuple[str, str], bytes] = {}
        directory.mkdir(exist_ok=True)
        if has_transactions:
            (directory / "_meta").write_bytes(encode_table_metadata(_metadata(table_id)))
            self._commit()

    @property
    def all_numbers(self) -> list[int]:
        """The numbers of all rows, in table order."""
        return [number for day in sorted(self.numbers) for number in self.numbers[day]]

    async def publish(self, day: int, count: int) -> None:
        """Add a day."""
        self.numbers[day] = self._new_numbers(count)
        await self._write(day, numbered_rows(day, self.numbers[day][0], count))

    async def append(self, day: int, count: int) -> None:
        """Add rows behind those of a day, in place: the earlier row groups stay where they are."""
        before = self.numbers[day]
        added = self._new_numbers(count)
        rows = numbered_rows(day, added[0], count, from_row=len(before))
        record = self._records[day]
        updated = await append_rows(
            self.path_of(day), rows, options=self.options, committed_parquet_bytes=record.parquet_size
        )
        self.numbers[day] = before + added
        self._records[day] = _record(day, record.name_txn, len(self.numbers[day]), updated.parquet_size_bytes)
        self._commit()

    async def rewrite(self, day: int, *, more: int = 0) -> None:
        """Write a day anew, with new rows before the earlier ones if there are ``more``."""
        self.numbers[day] = self._new_numbers(more) + self.numbers[day]
        count = len(self.numbers[day])
        rows = numbered_rows(day, 0, count).set_column(1, "number", pa.array(self.numbers[day], pa.int64()))
        await self._write(day, rows)

    def drop(self, day: int) -> None:
        """Drop a day; its files stay, as they do for a while."""
        del self._records[day]
        del self.numbers[day]
        self._commit()

    def path_of(self, day: int) -> Path:
        """Return the directory of a day in its present version."""
        return self.directory / _name(day, self._records[day].name_txn)

    async def copy_to(self, store: ObjectStore, path: str) -> None:
        """Put the files that are new or have changed into a store, `_txn` last, as a publisher does."""
        files = sorted(file for file in self.directory.rglob("*") if file.is_file())
        for file in sorted(files, key=lambda file: file.name == "_txn"):
            name, content = file.relative_to(self.directory).as_posix(), file.read_bytes()
            if self._copied.get((path, name)) != content:
                await store.put(f"{path}/{name}", content, overwrite=True)
                self._copied[path, name] = content

    def _new_numbers(self, count: int) -> list[int]:
        self._next_number += count
        return list(range(self._next_number - count, self._next_number))

    async def _write(self, day: int, rows: pa.Table) -> None:
        name_txn = self._transaction.txn
        written = await write_partition(
            self.directory / _name(day, name_txn), rows, timestamp="ts", options=self.options
        )
        self._records[day] = _record(day, name_txn, rows.num_rows, written.parquet_size_bytes)
        self._commit()

    def _commit(self) -> None:
        records = PartitionRecords.of(self._records[day] for day in sorted(self._records))
        first = min(self.numbers, default=0) * DAY_US
        last = (max(self.numbers, default=0) + 1) * DAY_US - 1
        bounds = (first, last) if self.numbers else (None, None)
        self._transaction = replace_partitions(
            self._transaction, records, min_timestamp=bounds[0], max_timestamp=bounds[1]
        )
        if self.has_transactions:
            (self.directory / "_txn.new").write_bytes(encode_txn(self._transaction))
            (self.directory / "_txn.new").rename(self.directory / "_txn")


def _record(day: int, name_txn: int, row_count: int, parquet_size: int) -> PartitionRecord:
    return PartitionRecord(
        timestamp=day * DAY_US, row_count=row_count, name_txn=name_txn, is_parquet=True, parquet_size=parquet_size
    )


def _name(day: int, name_txn: int) -> str:
    return format_partition_directory(day * DAY_US * 1000, PartitionInterval.DAY, name_txn=name_txn)


def _metadata(table_id: int) -> TableMetadata:
    return TableMetadata(
        interval=PartitionInterval.DAY,
        designated_timestamp=0,
        table_id=table_id,
        metadata_version=0,
        wal_enabled=False,
        slots=(
            MetadataSlot(name="ts", type_code=TypeTag.TIMESTAMP | _DESIGNATED),
            MetadataSlot(name="number", type_code=TypeTag.LONG),
        ),
    )


def _nothing_yet() -> TableTransaction:
    return TableTransaction(
        txn=0,
        transient_row_count=0,
        fixed_row_count=0,
        min_timestamp=None,
        max_timestamp=None,
        metadata_version=0,
        column_structure_version=0,
        data_version=0,
        partition_table_version=0,
        column_version=0,
        truncate_version=0,
        seq_txn=0,
        symbol_counts=(),
        partitions=PartitionRecords.of([]),
    )
