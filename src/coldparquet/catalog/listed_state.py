"""The state of a table without a `_txn`: its partitions as they are listed, each with size and version of its Parquet file."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from coldparquet.catalog.listed_objects import ListedObjects
from coldparquet.catalog.partition import read_packed
from coldparquet.catalog.table_state import PartitionState, TableState
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.catalog.partition import Partition
    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.format.partition_intervals import PartitionInterval
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import ObjectInfo

NO_TABLE_ID = -1
_DIGEST_BYTES = 7
"""A number that is not negative in 64 bits."""


class ListedPartitions:
    """Looks at the partitions of a table that has no `_txn`, and remembers how many rows each version has.

    Nothing tells several writes that belong together, so a look may find one of two partitions that were written together;
    the next look finds the other.
    """

    def __init__(self) -> None:
        self._row_counts: dict[tuple[int, int, int, int], int] = {}

    async def state(self, snapshot: TableSnapshot) -> TableState:
        """Describe the table as it is listed; nothing of it is handed over yet.

        Requests: where listings tell versions, 1 for 250 partitions; else a look at each Parquet file. And the metadata of the
        partitions that were not seen in this version before.

        Args:
            snapshot: A fresh one. Directories without a `data.parquet` are left out: it may still be on its way.

        Raises:
            InvalidInputError: It is no table but one partition, or one file (kind ``NotATable``).
            FormatError: The metadata of a partition is damaged.
        """
        partitions = [partition for partition in snapshot.partitions if partition.location.directory is not None]
        if len(partitions) < len(snapshot.partitions) or any(not found.location.is_listed for found in partitions):
            raise InvalidInputError(
                "this is one partition, or one Parquet file, to which nothing is added; give the directory of the table",
                kind="NotATable",
                path=snapshot.partitions[0].directory_path,
            )
        found = await _data_objects(snapshot.store, partitions)
        await read_packed(partitions)
        states = await gather_or_cancel(
            [
                self._state_of(partition, found[partition.data_path])
                for partition in partitions
                if partition.data_path in found
            ]
        )
        return TableState(
            table_id=NO_TABLE_ID,
            txn=0,
            interval=_interval(partitions),
            is_nanosecond=True,
            partitions=tuple(sorted(states, key=lambda state: state.timestamp)),
        )

    async def _state_of(self, partition: Partition, info: ObjectInfo) -> PartitionState:
        directory = partition.location.directory
        begin = 0 if directory is None else directory.timestamp_ns
        size_bytes = -1 if info.size_bytes is None else info.size_bytes
        version = (begin, partition.name_txn, size_bytes, _digest(info.etag))
        if version not in self._row_counts:
            self._row_counts[version] = (await partition.metadata()).sidecar.total_rows
        return PartitionState(
            timestamp=begin,
            name_txn=partition.name_txn,
            parquet_size_bytes=size_bytes,
            row_count=self._row_counts[version],
            object_version=version[-1],
        )


async def _data_objects(store: ObjectStore, partitions: list[Partition]) -> Mapping[str, ObjectInfo]:
    """Return what the store says of the Parquet files, by path; those that are not there are missing."""
    paths = {partition.data_path for partition in partitions}
    if store.has_version_listings:
        listed = await ListedObjects(store).below([partition.directory_path for partition in partitions], [])
        return {path: listed[path] for path in paths if path in listed}
    looked_at = await gather_or_cancel([_info(store, path) for path in sorted(paths)])
    return {info.path: info for info in looked_at if info is not None}


async def _info(store: ObjectStore, path: str) -> ObjectInfo | None:
    try:
        return await store.info(path)
    except NotFoundError:
        return None


def _interval(partitions: list[Partition]) -> PartitionInterval | None:
    """Return how the table is partitioned, as the names of its directories say; None where they do not."""
    found = {partition.location.directory.interval for partition in partitions if partition.location.directory}
    return found.pop() if len(found) == 1 else None


def _digest(etag: str | None) -> int:
    if etag is None:
        return 0
    return int.from_bytes(hashlib.blake2b(etag.encode(), digest_size=_DIGEST_BYTES).digest(), "little")
