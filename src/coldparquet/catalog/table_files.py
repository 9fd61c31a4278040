"""Reads the files that define a QuestDB table: `_txn`, `_meta` and, where needed, `_cv`.

`_txn` names the version of the other two. A writer, or a publisher, may replace them during the read, so the files are
only accepted if their versions agree.

:class:`CommittedRowsStore` also checks that rows of native partitions, read from a disk, are still those of the
snapshot.

A running QuestDB mostly appends to its column files, but not always. Late rows can cut a native partition short and
move the rest into a directory of its own. When QuestDB joins the pieces again, it overwrites the rows behind the cut,
in the same files. QuestDB waits for its own readers, which register with it; this library cannot. Both steps are
commits, in this order. So a `_txn` that is read after the rows tells whether they can have changed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import numpy as np
from msgspec import Struct

from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import AccessError, FormatError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.format.native import parse_column_versions
from coldparquet.format.partition_names import parse_partition_directory
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.txn import parse_txn
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.checked import read_whole
from coldparquet.storage.local import may_be_overwritten
from coldparquet.storage.log import metadata_requests, note_metadata
from coldparquet.storage.requests import RangeRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coldparquet.catalog.hive_keys import KeyColumn
    from coldparquet.format.native import ColumnVersions
    from coldparquet.format.partition_names import PartitionDirectory, PartitionInterval
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.format.table_metadata import TableMetadata
    from coldparquet.format.txn import PartitionRecords, TableTransaction
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import FetchedRange


ColumnVersionsFor: TypeAlias = Literal["native", "symbols", "anything"]
"""``native``: only for native partitions; ``symbols``: for symbol columns too."""

TRANSACTION_FILE = "_txn"
TODO_FILE = "_todo_"
METADATA_FILE = "_meta"
COLUMN_VERSIONS_FILE = "_cv"

_LARGEST_FILE_BYTES = {
    TRANSACTION_FILE: 64 * 1024 * 1024,
    METADATA_FILE: 16 * 1024 * 1024,
    COLUMN_VERSIONS_FILE: 512 * 1024 * 1024,
}
"""Size limits: for 2 million partitions, for 30,000 columns with the longest names, and for 16 million column
versions."""

TRANSACTION_HEADER_BYTES = 64
_VERSION_HEADER_BYTES = {TRANSACTION_FILE: TRANSACTION_HEADER_BYTES, COLUMN_VERSIONS_FILE: 40}
"""Files that are overwritten in place, and the size of the header that identifies their state (note sections 4.1,
4.6)."""

_RETRY_DELAYS_S = (0.0, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0, 1.0)
"""Pauses before each attempt. A commit takes microseconds on a disk; a publisher may take a second between files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMoment:
    """Identifies a table and the age of a committed state of it."""

    table_id: int
    truncate_version: int
    """Changes when the table is emptied."""
    txn: int

    def continues(self, earlier: TableMoment) -> bool:
        """Tell whether this is a state of the same table that is not older.

        A table that was dropped, emptied or restored from a copy may record the same partition for other rows.
        """
        is_same_table = self.table_id == earlier.table_id and self.truncate_version == earlier.truncate_version
        return is_same_table and self.txn >= earlier.txn


class TableFiles(Struct, frozen=True, kw_only=True):
    """One committed state of a table."""

    transaction: TableTransaction
    metadata: TableMetadata
    records: PartitionRecords
    """The partitions of the transaction, oldest first."""
    column_versions: ColumnVersions | None
    """Names and tops of column files; None where they were not requested and no partition is native."""
    transaction_etag: str | None
    """Version of the `_txn` that was read, as the store names it; on a disk derived from the file and its header."""

    @property
    def moment(self) -> TableMoment:
        """The table's identity and the age of this state."""
        return TableMoment(
            table_id=self.metadata.table_id,
            truncate_version=self.transaction.truncate_version,
            txn=self.transaction.txn,
        )

    def continues(self, earlier: TableFiles) -> bool:
        """Tell whether this is a state of the same table that is not older; see :meth:`TableMoment.continues`."""
        return self.moment.continues(earlier.moment)


def metadata_copy_name(metadata_version: int) -> str:
    """Name the copy of `_meta` that a publisher leaves for readers of this version."""
    return f"{METADATA_FILE}.v{metadata_version}"


def column_versions_copy_name(column_version: int) -> str:
    """Name the copy of `_cv` that a publisher leaves for readers of this version."""
    return f"{COLUMN_VERSIONS_FILE}.v{column_version}"


async def read_table_files(
    store: ObjectStore,
    path: str,
    *,
    column_versions_for: ColumnVersionsFor = "native",
    known: Mapping[str, FetchedRange] = MappingProxyType({}),
) -> TableFiles | None:
    """Read one committed state of the table in a directory.

    Requests: `_txn` and `_meta` at the same time, but for those that are ``known`` by name; `_cv` after them if a partition is native, or if
    ``column_versions_for`` needs it. If `_meta` or `_cv` is of another version than `_txn` names, 1 more each, for the
    copy under that version that a publisher leaves. All of these again only while a writer replaces the files: 8
    attempts, with less than 4 seconds of waiting.
    """
    contradiction = ""
    for attempt, delay_s in enumerate(_RETRY_DELAYS_S, start=1):
        await asyncio.sleep(delay_s)
        try:
            tried = _Attempt(store, path.rstrip("/"), known if attempt == 1 else {})
            return await tried.read(column_versions_for=column_versions_for)
        except _NotOneStateError as error:
            contradiction = str(error)
        except ObjectChangedError as error:
            contradiction = error.message
        except FormatError as error:
            # A file that grows during the read appears truncated, but hardly twice.
            may_be_torn = error.kind == "TornTransaction" or (error.kind == "Truncated" and attempt == 1)
            if not may_be_torn or attempt == len(_RETRY_DELAYS_S):
                raise
            contradiction = error.message
    raise StorageError(
        f"{TRANSACTION_FILE}, {METADATA_FILE} and {COLUMN_VERSIONS_FILE} kept contradicting each other"
        f" ({contradiction}); if nobody is writing to the table, one of them is left over from another state: copy all"
        " of them again",
        kind="TableBusy",
        path=path,
        attempts=len(_RETRY_DELAYS_S),
    )


class _NotOneStateError(Exception):
    """The files are of different states of the table."""


class _Attempt:
    """One attempt to read files that belong together."""

    def __init__(self, store: ObjectStore, path: str, known: Mapping[str, FetchedRange]) -> None:
        self._store = store
        self._path = path
        self._known = known
        self._etags: dict[str, str | None] = {}

    async def read(self, *, column_versions_for: ColumnVersionsFor) -> TableFiles | None:
        transaction_bytes, metadata_bytes = await gather_or_cancel(
            [self._whole(TRANSACTION_FILE), self._whole(METADATA_FILE)]
        )
        if transaction_bytes is None:
            return None
        if metadata_bytes is None:
            raise NotFoundError(
                f"there is a {TRANSACTION_FILE}, but no {METADATA_FILE}, without which the columns are not known: open the table"
                " again if a server altered or dropped it meanwhile; else copy both from the table's directory",
                kind="IncompleteTable",
                path=f"{self._path}/{METADATA_FILE}",
            )
        # Up to 500,000 partitions, or thousands of columns, are parsed: not on the event loop.
        transaction = await asyncio.to_thread(parse_txn, transaction_bytes, path=f"{self._path}/{TRANSACTION_FILE}")
        metadata = await self._metadata(metadata_bytes, transaction)
        _check_symbols(transaction, metadata, path=f"{self._path}/{TRANSACTION_FILE}")
        records = transaction.partitions_of(metadata.interval)
        has_symbols = any(column.symbol_index is not None for column in metadata.columns)
        needs_column_versions = (
            not records.is_parquet.all()
            or column_versions_for == "anything"
            or (column_versions_for == "symbols" and has_symbols)
        )
        return TableFiles(
            transaction=transaction,
            metadata=metadata,
            records=records,
            column_versions=await self._column_versions(transaction) if needs_column_versions else None,
            transaction_etag=self._etags[TRANSACTION_FILE],
        )

    async def _metadata(self, found: bytes, transaction: TableTransaction) -> TableMetadata:
        wanted = transaction.metadata_version
        metadata = await asyncio.to_thread(parse_table_metadata, found, path=f"{self._path}/{METADATA_FILE}")
        if metadata.metadata_version == wanted:
            return metadata
        name = metadata_copy_name(wanted)
        copy = await self._whole(name)
        if copy is None:
            raise _NotOneStateError(
                f"{TRANSACTION_FILE} is of version {wanted} of the columns, {METADATA_FILE} of {metadata.metadata_version}"
            )
        return await asyncio.to_thread(parse_table_metadata, copy, path=f"{self._path}/{name}")

    async def _column_versions(self, transaction: TableTransaction) -> ColumnVersions:
        wanted = transaction.column_version
        for name in (COLUMN_VERSIONS_FILE, column_versions_copy_name(wanted)):
            found = await self._whole(name)
            if found is None:
                continue
            versions = parse_column_versions(found, path=f"{self._path}/{name}")
            if versions.version == wanted:
                return versions
        raise _NotOneStateError(f"no {COLUMN_VERSIONS_FILE} is of version {wanted}, which {TRANSACTION_FILE} names")

    async def _whole(self, name: str) -> bytes | None:
        """Fetch a whole file; None if it does not exist. 1 request for all but giant ones, none for one that is known."""
        path = f"{self._path}/{name}"
        try:
            found = self._known.get(name) or await read_whole(
                self._store,
                path,
                version_header_bytes=_VERSION_HEADER_BYTES.get(name, 0),
                largest_bytes=_LARGEST_FILE_BYTES[name.partition(".")[0]],
            )
        except NotFoundError:
            note_metadata(path, None, f"no {name}")
            return None
        except AccessError as error:
            error.path = self._path  # callers name a table, not its files
            error.details["object"] = path
            raise
        self._etags[name] = found.etag
        return found.data


def _check_symbols(transaction: TableTransaction, metadata: TableMetadata, *, path: str) -> None:
    """Check that both files count the same symbol columns; otherwise columns would get dictionary sizes of others."""
    symbol_columns = sum(column.symbol_index is not None for column in metadata.columns)
    if symbol_columns != len(transaction.symbol_counts):
        raise FormatError(
            f"{TRANSACTION_FILE} counts the symbols of {len(transaction.symbol_counts):,} columns, {METADATA_FILE} has"
            f" {symbol_columns:,} of type SYMBOL: one of them is damaged or from another table; copy both again",
            path=path,
            field="symbol_count",
            expected=symbol_columns,
        )


_VERSION_BYTES = 8
"""Read only for the version in the answer, which is derived from the file and its whole header."""


class CommittedState(Struct, frozen=True, kw_only=True):
    """The part of a snapshot that must still hold after rows of its native partitions were read."""

    table_path: str
    """The table's directory."""
    moment: TableMoment
    native_partitions: Mapping[str, PartitionRecord]
    """By directory: the snapshot's record of each partition."""

    @classmethod
    def of(cls, files: TableFiles, *, table_path: str, locations: Iterable[PartitionLocation]) -> Self:
        """Extract it from a snapshot."""
        records = ((location.directory_path, location.record) for location in locations)
        native = {path: record for path, record in records if record is not None and not record.is_parquet}
        return cls(table_path=table_path, moment=files.moment, native_partitions=native)


class CommittedRowsStore(StoreWrapper):
    """Refuses bytes of native partitions that may have changed since the snapshot.

    Only files on a disk are checked, with another read of 8 bytes each time: objects are never overwritten.

    Args:
        store: Where the requests go. It must not pin versions, because `_txn` changes.
        state: The snapshot.
        newest: The newest known table files; None makes the first read of a native partition fetch them.
    """

    def __init__(self, store: ObjectStore, state: CommittedState, *, newest: TableFiles | None = None) -> None:
        super().__init__(store)
        self._state = state
        self._newest = newest

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range."""
        answer = await self._store.get(request)
        record = self._state.native_partitions.get(request.path.rpartition("/")[0])
        if record is not None and may_be_overwritten(answer.etag) and not await self._holds(record):
            raise ObjectChangedError(
                "the database has changed this partition since the table was opened; refresh the table, and ask again",
                path=request.path,
            )
        return answer

    async def _holds(self, record: PartitionRecord) -> bool:
        """Tell whether the current `_txn` still has the rows of a partition at the same place."""
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
        with metadata_requests():  # no plan announces this
            newest = await read_table_files(self._store, self._state.table_path)
        if newest is not None:
            self._newest = newest
        return newest


DATA_FILE = "data.parquet"
SIDECAR_FILE = "_pm"
PARQUET_METADATA_FILE = "_metadata"
"""The footers of all files in one, as Arrow, Dask and Spark name it; see `coldparquet.maintenance.parquet_metadata`."""


class PartitionLocation(Struct, frozen=True, kw_only=True, gc=False):
    """The place of a partition, and what is known of it without a request. The garbage collector need not look at it."""

    name: str
    """Directory name, such as ``2024-03-01.12``."""
    directory_path: str
    data_path: str
    sidecar_path: str | None
    """None for a Parquet file that is not named ``data.parquet``: such files share directories. ``_pm.a`` in QuestDB's own cold
    storage, where it need not be a sidecar."""
    directory: PartitionDirectory | None
    """The time range from the name or the transaction; None where the name follows no partition pattern."""
    record: PartitionRecord | None = None
    """The record in the table's transaction file; None where there is none."""
    is_listed: bool = False
    """Whether a listing showed the directory; otherwise it may not exist."""
    listed_size_bytes: int | None = None
    """Size of the Parquet file in the listing that found a table of another layout; it chooses the snapshot of a sidecar."""
    keys: tuple[KeyColumn, ...] = ()
    """Columns that the directories above the file state, as in ``date=2024-03-01/part-0.parquet``."""
    is_being_updated: bool = False
    """Whether a read found bytes of the Parquet file behind the committed ones, as during an update in place."""

    @property
    def committed_size_bytes(self) -> int | None:
        """Size of the Parquet file that the table's transaction states; None where it states none."""
        record = self.record
        return record.parquet_size if record is not None and record.is_parquet and record.parquet_size > 0 else None

    @property
    def may_grow(self) -> bool:
        """Whether a writer may append to the files during a read; committed bytes do not change."""
        return self.record is not None or self.is_being_updated

    @property
    def is_native(self) -> bool:
        """Whether the transaction records the partition as QuestDB's own column files."""
        return self.record is not None and not self.record.is_parquet


def partition_location(
    path: str, *, interval: PartitionInterval | None = None, is_listed: bool = False
) -> PartitionLocation:
    """Locate a partition from its directory or its Parquet file and, where known, its table's interval."""
    path = path.rstrip("/")
    if path.endswith(".parquet"):
        directory_path, _, file_name = path.rpartition("/")
        sidecar_path = f"{directory_path}/{SIDECAR_FILE}" if file_name == DATA_FILE else None
        name = directory_path.rpartition("/")[2] if sidecar_path else file_name
        data_path = path
    else:
        directory_path, name = path, path.rpartition("/")[2]
        data_path, sidecar_path = f"{path}/{DATA_FILE}", f"{path}/{SIDECAR_FILE}"
    directory = parse_partition_directory(name, interval=interval) if sidecar_path else None
    return PartitionLocation(
        name=name,
        directory_path=directory_path,
        data_path=data_path,
        sidecar_path=sidecar_path,
        directory=directory,
        is_listed=is_listed,
    )
