"""Rows that are in a table, or in a staged part of a write, as sorted runs on the local disk."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.format.partition_intervals import partition_floor_ns
from coldparquet.options import ReadOptions
from coldparquet.scan import Scan
from coldparquet.table import open_partition, open_table
from coldparquet.write.begin_write import write_conflict
from coldparquet.write.row_schema import conformed
from coldparquet.write.sorted_runs import RunWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from coldparquet.catalog.partition import Partition
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.table import Table
    from coldparquet.write.begin_write import TableShape, TableWrite
    from coldparquet.write.table_place import TablePlace

_SCANS_AT_ONCE = 8
"""Partitions that may be read at the same time."""


class ExistingRows:
    """The rows of a table as they were when a write began.

    Args:
        table: Open, in the state that the write started from.
        shape: Of the table.
    """

    def __init__(self, table: Table, shape: TableShape) -> None:
        self._shape = shape
        self._scan = table.scan()
        self._pieces: dict[int, list[Partition]] = {}
        for partition in table.partitions:
            record = partition.location.record
            if record is not None:
                self._pieces.setdefault(floor_of(record, shape), []).append(partition)

    def has(self, timestamp: int) -> bool:
        """Tell whether there is a partition that begins at a timestamp."""
        return timestamp in self._pieces

    def row_count(self, timestamp: int) -> int:
        """Return how many rows the partition that begins at a timestamp has."""
        return sum(piece.location.record.row_count for piece in self._pieces[timestamp] if piece.location.record)

    async def spool(self, timestamp: int, path: str) -> None:
        """Copy the rows of the partition that begins at a timestamp, all pieces of it, into a sorted run.

        Requests: those of a scan of the partition.

        Raises:
            UnsupportedError: A piece is not in Parquet (kind ``NativePartition``).
            InvalidInputError: The partition is read-only (kind ``ReadOnlyPartition``).
        """
        pieces = self._pieces[timestamp]
        for piece in pieces:
            if piece.location.record is not None:
                check_replaceable(piece.location.record, piece.location.directory_path)
        question = self._scan.question
        question = replace(question, snapshot=replace(question.snapshot, partitions=tuple(pieces)))
        scan = Scan(question=question, executor=self._scan.executor, schema=self._scan.schema)
        await _spool(scan, path, self._shape)


@asynccontextmanager
async def existing_rows(place: TablePlace, write: TableWrite) -> AsyncIterator[ExistingRows | None]:
    """Open the table to which rows are added; None where there are none that have to stay.

    Requests: those of opening a table.

    Raises:
        ObjectChangedError: It is not in the state any more that the write started from (kind ``CommitConflict``).
    """
    if write.is_new_table or write.mode == "overwrite":
        yield None
        return
    options = _read_options(write)
    async with open_table(
        place.path, store=place.bare_store, options=options, store_options=place.store_options
    ) as table:
        files = table.scan().question.snapshot.files
        if files is None:
            raise write_conflict(place.path)
        write.check_state(files.transaction, place.path)
        yield ExistingRows(table, write.shape())


async def spool_part(place: TablePlace, write: TableWrite, directory_path: str, path: str) -> None:
    """Copy the rows of a staged part into a sorted run. Requests: those of a scan of it."""
    options = _read_options(write)
    async with open_partition(
        directory_path, store=place.bare_store, options=options, store_options=place.store_options
    ) as part:
        await _spool(part.scan(), path, write.shape())


def floor_of(record: PartitionRecord, shape: TableShape) -> int:
    """Return when the partition begins that a record, perhaps of a piece of it, belongs to; in the unit of the table."""
    unit_ns = 1 if shape.is_nanosecond else 1000
    return partition_floor_ns(record.timestamp * unit_ns, shape.interval) // unit_ns


def check_replaceable(record: PartitionRecord, path: str) -> None:
    """Make sure that a partition may be replaced by one in Parquet.

    Raises:
        UnsupportedError: It is not in Parquet itself (kind ``NativePartition``).
        InvalidInputError: It is read-only (kind ``ReadOnlyPartition``).
    """
    if not record.is_parquet:
        raise UnsupportedError(
            "the rows belong to a partition in QuestDB's own format; let QuestDB convert it first: ALTER TABLE ... CONVERT"
            " PARTITION TO PARQUET",
            kind="NativePartition",
            path=path,
        )
    if record.is_read_only:
        raise InvalidInputError(
            "the rows belong to a partition that is attached read-only; detach it first",
            kind="ReadOnlyPartition",
            path=path,
        )


async def _spool(scan: Scan, path: str, shape: TableShape) -> None:
    run = RunWriter(path)
    try:
        async with scan.batches() as batches:
            async for batch in batches:
                rows = await asyncio.to_thread(conformed, batch, shape.schema, timestamp=shape.timestamp)
                await asyncio.to_thread(run.write, rows)
    finally:
        run.close()


def _read_options(write: TableWrite) -> ReadOptions:
    return ReadOptions(
        symbols="string", strings="string", memory_limit_bytes=max(1, write.memory_limit_bytes // _SCANS_AT_ONCE)
    )
