"""Making sure that the rows of native partitions are still those of the snapshot after they were read from a disk.

A running QuestDB mostly appends to its column files, but not always. Late rows can cut a native partition short and put
the rest into a directory of its own; joining the pieces again, it writes over the rows behind the cut, in the same
files. Its own readers are registered with it, and it waits for them; we are not. Both steps are commits, in this order,
so a `_txn` that is read after the rows tells whether they can have been touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coldparquet.catalog.table_files import TRANSACTION_FILE, TRANSACTION_HEADER_BYTES, read_table_files
from coldparquet.errors import NotFoundError, ObjectChangedError
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import RangeRequest
from coldparquet.storage.local import may_be_overwritten
from coldparquet.storage.wrapper import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet.catalog.partition import PartitionLocation
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.storage.base import FetchedRange, ObjectStore

_VERSION_BYTES = 8
"""Read for the sake of the answer's version alone, which is made of the file and its whole header."""


class CommittedRowsStore(StoreWrapper):
    """Refuses bytes of native partitions that are perhaps no longer those of a snapshot.

    Only files on a disk are looked after, for another read of 8 bytes each time: objects are never written over.

    Args:
        store: Where the requests go. It must not pin versions, because `_txn` changes.
        path: The table's directory.
        files: The snapshot.
        locations: Its partitions.
    """

    def __init__(
        self, store: ObjectStore, *, path: str, files: TableFiles, locations: Iterable[PartitionLocation]
    ) -> None:
        super().__init__(store)
        self._path = path
        self._snapshot = files
        self._newest = files
        self._native_partitions = {
            location.directory_path: location.record
            for location in locations
            if location.record is not None and not location.record.is_parquet
        }

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range.

        Raises:
            ObjectChangedError: The partition was changed since the snapshot.
        """
        answer = await super().get(request)
        record = self._native_partitions.get(request.path.rpartition("/")[0])
        if record is not None and may_be_overwritten(answer.etag) and not await self._holds(record):
            raise ObjectChangedError(
                "the database has changed this partition since the table was opened; refresh the table, and ask again",
                path=request.path,
            )
        return answer

    async def _holds(self, record: PartitionRecord) -> bool:
        """Tell whether a `_txn` that is read now still has the rows of a partition where they were."""
        newest = await self._read_newest()
        if newest is None or not newest.continues(self._snapshot):
            return False
        position = int(np.searchsorted(newest.records.timestamps, record.timestamp))
        if position == len(newest.records):
            return False
        now = newest.records.record(position)
        is_same = (now.timestamp, now.name_txn, now.squash_count) == (
            record.timestamp,
            record.name_txn,
            record.squash_count,
        )
        return is_same and not now.is_parquet and now.row_count >= record.row_count

    async def _read_newest(self) -> TableFiles | None:
        request = RangeRequest(
            path=f"{self._path}/{TRANSACTION_FILE}",
            byte_range=ByteRange(0, _VERSION_BYTES),
            reason="table files",
            version_header_bytes=TRANSACTION_HEADER_BYTES,
        )
        try:
            header = await self._store.get(request)
        except NotFoundError:
            return None  # the table was dropped
        if header.etag is not None and header.etag == self._newest.transaction_etag:
            return self._newest
        newest = await read_table_files(self._store, self._path)
        if newest is not None:
            self._newest = newest
        return newest
