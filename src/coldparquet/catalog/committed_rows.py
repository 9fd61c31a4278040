"""Making sure that the rows of native partitions are still those of the snapshot after they were read from a disk.

A running QuestDB mostly appends to its column files, but not always. Late rows can cut a native partition short and put
the rest into a directory of its own; joining the pieces again, it writes over the rows behind the cut, in the same
files. Its own readers are registered with it, and it waits for them; we are not. Both steps are commits, in this order,
so a `_txn` that is read after the rows tells whether they can have been touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from coldparquet.catalog.table_files import TRANSACTION_FILE, TRANSACTION_HEADER_BYTES, read_table_files
from coldparquet.errors import NotFoundError, ObjectChangedError
from coldparquet.ranges import ByteRange
from coldparquet.storage.local.store import may_be_overwritten
from coldparquet.storage.requests import RangeRequest
from coldparquet.storage.wrappers.wrapper import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.catalog.table_files import TableFiles, TableMoment
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import FetchedRange

_VERSION_BYTES = 8
"""Read for the sake of the answer's version alone, which is made of the file and its whole header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedState:
    """What of a snapshot has to hold still when rows of its native partitions were read."""

    table_path: str
    """The table's directory."""
    moment: TableMoment
    native_partitions: Mapping[str, PartitionRecord]
    """By directory: what the snapshot says of them."""

    @classmethod
    def of(cls, files: TableFiles, *, table_path: str, locations: Iterable[PartitionLocation]) -> Self:
        """Take it from a snapshot.

        Args:
            files: The table's files.
            table_path: Its directory.
            locations: Its partitions, or some of them.
        """
        records = ((location.directory_path, location.record) for location in locations)
        native = {path: record for path, record in records if record is not None and not record.is_parquet}
        return cls(table_path=table_path, moment=files.moment, native_partitions=native)


class CommittedRowsStore(StoreWrapper):
    """Refuses bytes of native partitions that are perhaps no longer those of a snapshot.

    Only files on a disk are looked after, for another read of 8 bytes each time: objects are never written over.

    Args:
        store: Where the requests go. It must not pin versions, because `_txn` changes.
        state: The snapshot.
        newest: The newest table files that are known; None makes the first read of a native partition look for them.
    """

    def __init__(self, store: ObjectStore, state: CommittedState, *, newest: TableFiles | None = None) -> None:
        super().__init__(store)
        self._state = state
        self._newest = newest

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range.

        Raises:
            ObjectChangedError: The partition was changed since the snapshot.
        """
        answer = await super().get(request)
        record = self._state.native_partitions.get(request.path.rpartition("/")[0])
        if record is not None and may_be_overwritten(answer.etag) and not await self._holds(record):
            raise ObjectChangedError(
                "the database has changed this partition since the table was opened; refresh the table, and ask again",
                path=request.path,
            )
        return answer

    async def _holds(self, record: PartitionRecord) -> bool:
        """Tell whether a `_txn` that is read now still has the rows of a partition where they were."""
        newest = await self._read_newest()
        if newest is None or not newest.moment.continues(self._state.moment):
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
            path=f"{self._state.table_path}/{TRANSACTION_FILE}",
            byte_range=ByteRange(0, _VERSION_BYTES),
            reason="table files",
            version_header_bytes=TRANSACTION_HEADER_BYTES,
        )
        try:
            header = await self._store.get(request)
        except NotFoundError:
            return None  # the table was dropped
        known = self._newest
        if known is not None and header.etag is not None and header.etag == known.transaction_etag:
            return known
        newest = await read_table_files(self._store, self._state.table_path)
        if newest is not None:
            self._newest = newest
        return newest
