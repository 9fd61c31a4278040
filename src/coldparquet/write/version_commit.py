"""Committing the new version of one partition, while others may commit to other partitions of the table."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import random
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.catalog.table_files import read_table_files
from coldparquet.errors import InternalError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.write.new_version import remove_version
from coldparquet.write.table_commit import commit_partitions

if TYPE_CHECKING:
    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.format.partition_records import PartitionRecord, PartitionRecords
    from coldparquet.storage.base import ObjectStore

_ATTEMPTS = 10
_FIRST_PAUSE_S = 0.05
"""Longest wait behind a first commit of somebody else; it doubles with each further one. Those who were turned away together
come back at different times, so that many who compact one table all get their turn."""


async def commit_version(  # noqa: PLR0913 - what can be told is told by name
    store: ObjectStore,
    path: str,
    location: PartitionLocation,
    *,
    version: int,
    parquet_size_bytes: int,
    table: TableFiles,
) -> TableFiles:
    """Let the table name a new version of a partition, if the partition is still the one that was read.

    2 requests; for each commit of somebody else that comes first about 4 more.

    Args:
        store: Where the table lies; it must not pin versions.
        path: Its directory.
        location: The partition as it was read.
        version: Suffix of the new directory, which is complete.
        parquet_size_bytes: Size of the Parquet file in it.
        table: The newest state that is known.

    Returns:
        The state that was committed.

    Raises:
        ObjectChangedError: The partition was changed since it was read (kind ``PartitionChanged``); the new version is
            removed again.
        StorageError: Others were faster every time (kind ``TableBusy``), or the store failed.
    """
    record = location.record
    if record is None:
        raise InternalError("a partition of a transaction has a record", path=location.directory_path)
    wanted = replace(record, name_txn=version, parquet_size=parquet_size_bytes)
    for attempt in range(_ATTEMPTS):
        found = _record_at(table.records, record.timestamp)
        if found == wanted:  # by a request of ours that seemed to fail
            return table
        if found != record:
            await remove_version(store, f"{path}/{location.name.partition('.')[0]}.{version}")
            raise ObjectChangedError(
                "the partition was changed while it was written anew; compact it again",
                kind="PartitionChanged",
                path=location.directory_path,
            )
        partitions = _with_record(table.records, wanted)
        try:
            return await commit_partitions(
                store, path, started_from=table, partitions=partitions, least_txn=version + 1
            )
        except ObjectChangedError:
            await asyncio.sleep(random() * _FIRST_PAUSE_S * 2**attempt)  # noqa: S311 - jitter, not a secret
            newest = await read_table_files(store, path)
            if newest is None:
                raise NotFoundError("the table was removed", path=path) from None
            table = newest
    raise StorageError(
        "others keep committing to this table; try again when there is less to do", kind="TableBusy", path=path
    )


def _record_at(records: PartitionRecords, timestamp: int) -> PartitionRecord | None:
    position = int(np.searchsorted(records.timestamps, timestamp))
    is_there = position < len(records) and int(records.timestamps[position]) == timestamp
    return records.record(position) if is_there else None


def _with_record(records: PartitionRecords, record: PartitionRecord) -> PartitionRecords:
    """Return all partitions, one of them with the version and the size of this record."""
    position = int(np.searchsorted(records.timestamps, record.timestamp))
    name_txns, sizes = records.name_txns.copy(), records.parquet_sizes.copy()
    name_txns[position], sizes[position] = record.name_txn, record.parquet_size
    return replace(records, name_txns=name_txns, parquet_sizes=sizes)
