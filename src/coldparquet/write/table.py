"""Writes tables: sorts rows, partitions them into Parquet files, and makes them visible to readers all at once.

    begin_write     checks the table; claims versions for new partition directories
    stage_rows      sorts the rows, writes a directory for each partition; many tasks may run it at the same time
    join_parts      merges the parts of one partition from several tasks with its existing rows
    commit_write    `_txn` names the new directories: from then on readers see them
    abort_write     removes everything instead

:func:`write_table` does all of it in one process; Spark's writer uses the same steps.

Until `_txn` is replaced, no reader sees the write. It is replaced only if it is still the one that the write started
from. A new table gets its `_meta` and `_cv` first, and `_txn` last, only if there is none yet. If two writers make the
same table, the second may overwrite the first one's `_meta`. `_txn` names the version of the right one, and readers
find a copy under that version. The writer that comes last restores it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from coldparquet.catalog.table_files import (
    COLUMN_VERSIONS_FILE,
    METADATA_FILE,
    TODO_FILE,
    TRANSACTION_FILE,
    metadata_copy_name,
    read_table_files,
)
from coldparquet.errors import ColdParquetError, InvalidInputError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.format.binary import encode_name
from coldparquet.format.native import COLUMN_VERSION, ColumnVersions, encode_column_versions
from coldparquet.format.partition_records import PartitionRecord, PartitionRecords
from coldparquet.format.table_metadata import parse_table_metadata
from coldparquet.format.txn import TableTransaction, encode_txn, parse_txn
from coldparquet.maintenance.pack import renew_catalogue
from coldparquet.options import ReadOptions
from coldparquet.storage.checked import read_whole
from coldparquet.storage.urls import shown_url
from coldparquet.write.begin import MEMORY_LIMIT_BYTES, begin_write, write_conflict
from coldparquet.write.files import open_place
from coldparquet.write.rows import schema_and_batches
from coldparquet.write.stage import check_replaceable, floor_of, join_parts, stage_rows
from coldparquet.write.versions import check_claim, commit_partitions, release_versions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.maintenance.pack import PackReport
    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.write.begin import TableShape, TableWrite, WriteMode
    from coldparquet.write.files import LocalFiles, StoreAccess, TablePlace
    from coldparquet.write.options import WriteOptions
    from coldparquet.write.rows import Rows
    from coldparquet.write.stage import StagedPart


_NAME_FILE = "_name"
_TODO_BYTES = 40
"""All zero: no work is pending. Without the file QuestDB does not open the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedPartition:
    """A partition that a write has made or replaced."""

    name: str
    """Its directory."""
    new_rows: int
    row_count: int
    """Number of its rows after the write."""
    parquet_size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """The result of a write."""

    url: str
    is_written: bool
    """False where the table existed and was to stay unchanged."""
    is_new: bool
    """Whether the write made the table."""
    txn: int | None
    """Transaction that it committed; None where no commit was needed."""
    partitions: tuple[CommittedPartition, ...]
    """The partitions that it made or replaced, in time order."""
    catalogue: PackReport | None = None
    """The result for the table's catalogue; None where there is none."""
    not_removed: str | None = None
    """Why leftovers, which readers never see, could not be removed; None where there are none. The rows are committed
    all the same: writing them again would duplicate them."""

    @property
    def new_rows(self) -> int:
        """Rows that were written."""
        return sum(partition.new_rows for partition in self.partitions)


async def write_table(  # noqa: PLR0913 - mostly keyword arguments
    url: str | os.PathLike[str],
    rows: Rows,
    *,
    timestamp: str | None = None,
    partition_by: str | None = None,
    mode: WriteMode = "error",
    symbols: Collection[str] = (),
    options: WriteOptions | None = None,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    storage_options: Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
    files: LocalFiles | None = None,
) -> WrittenTable:
    """Write rows to a new or existing table; a reader sees the old table or the new one, never a mixture.

    The rows may come in any order. They are sorted by the designated timestamp; equal ones keep their order, behind
    those that the table has. Of two concurrent writers one fails, and readers see nothing of it. The remains of a
    killed run are never seen either, and do not hinder the next run. ``compact_table(purge=True)`` eventually removes
    them.

    A table that a QuestDB server has open must not be written to; see :mod:`coldparquet.write.versions`.

    Columns of a new table get the QuestDB types that :func:`~coldparquet.write.write_partition` describes. Each file of
    a new table numbers the symbols of SYMBOL columns by itself: this library and every Parquet reader can read them,
    QuestDB cannot. A table that QuestDB has made accepts only symbols that it already has.

    Requests: about 15 and those of :func:`~coldparquet.write.write_partition` for each partition. Where rows are added
    to existing partitions, also those of reading them.

    Args:
        url: The table's directory: any fsspec URL, or a local path.
        rows: A table, a reader, or batches. A stream is read in a worker thread.
        timestamp: The designated timestamp, which every new table needs; 64-bit integers count microseconds since 1970.
            None uses that of the table.
        partition_by: ``HOUR``, ``DAY``, ``WEEK``, ``MONTH`` or ``YEAR``. None uses that of the table, ``DAY`` for a new
            one.
        mode: What to do if the table exists. ``"error"`` refuses, ``"append"`` adds the rows, ``"overwrite"`` replaces
            the partitions to which rows belong and leaves all others, ``"ignore"`` does nothing.
        symbols: Text columns of a new table that become SYMBOL.
        options: How to store them; see :class:`~coldparquet.write.WriteOptions`. They are always sorted.
        memory_limit_bytes: Size of the rows held in memory for sorting; sorting takes as much again.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        store_options: Retries and timeouts; see :class:`~coldparquet.options.StoreOptions`.
        store: A store of your own; ``url`` is then a path in it. It stays open.
        files: How to write to the local disk; for tests.

    Returns:
        The written partitions.

    Raises:
        InvalidInputError: The table exists (kind ``AlreadyExists``), or the directory has partitions but no table
            (``NotEmpty``). The table is another one (``OtherTable``) or has other columns (``SchemaMismatch``). A
            column has no QuestDB type (``UnknownType``) or a value does not fit (``DoesNotFit``, ``NullValue``,
            ``RaggedArray``, ``UnknownSymbol``). A server has the table open (``ServerRunning``), or left a change
            unfinished (``UnfinishedChange``).
        UnsupportedError: Rows belong to a partition that is not in Parquet (kind ``NativePartition``).
        ObjectChangedError: Another writer has committed meanwhile (kind ``CommitConflict``).
        AccessError: Writing is not permitted.
        StorageError: The disk or the store failed.
    """
    access: StoreAccess = {"storage_options": storage_options, "store_options": store_options, "store": store}
    url = os.fspath(url)
    schema, batches = schema_and_batches(rows)
    write = await begin_write(
        url,
        schema,
        timestamp=timestamp,
        partition_by=partition_by,
        mode=mode,
        symbols=symbols,
        options=options,
        memory_limit_bytes=memory_limit_bytes,
        **access,
    )
    if write is None:
        return WrittenTable(url=shown_url(url), is_written=False, is_new=False, txn=None, partitions=())
    try:
        parts = await stage_rows(write, batches, attempt=0, clustered=True, files=files, **access)
        return await commit_write(write, parts, files=files, **access)
    except (Exception, asyncio.CancelledError):
        with contextlib.suppress(ColdParquetError):  # the original error says more
            await abort_write(write, **access)
        raise


async def commit_write(
    write: TableWrite,
    parts: Sequence[StagedPart],
    *,
    files: LocalFiles | None = None,
    **access: Unpack[StoreAccess],
) -> WrittenTable:
    """Commit all parts of a write to the table at once, and remove what else the write has made.

    If it raises, call ``abort_write``, which removes what was not committed.

    Requests: those of :func:`~coldparquet.write.stage.join_parts` for parts that are not whole; 2 that read table
    files, 1 for the claim and 2 that commit, for a new table 9; those of removing leftovers; 1 for the catalogue, more
    if there is one.

    ``parts`` are those of all tasks that have succeeded, each once, in the order for rows of equal timestamps; other
    arguments are those of ``stage_rows``.

    Raises:
        ObjectChangedError: Another writer has committed to the table since the write began (kind ``CommitConflict``),
            or has declared the write dead (``WriteGivenUp``).
        InvalidInputError: A server is running on the table (kind ``ServerRunning``), or a partition that would be
            replaced is read-only (``ReadOnlyPartition``).
        UnsupportedError: A partition that would be replaced is not in Parquet (kind ``NativePartition``).
        StorageError: The store failed. If it failed while `_txn` was replaced, `_txn` was read again: it does not name
            what was written, or could not be read. In the latter case only a later read tells whether it was replaced.
    """
    whole = sorted(await join_parts(write, parts, attempt=0, files=files, **access), key=attrgetter("timestamp"))
    async with open_place(write.url, **access) as place:
        shape = write.shape()
        names = frozenset(shape.directory_name(part.timestamp, part.version) for part in whole)
        try:
            if write.is_new_table:
                txn: int | None = await _make_table(place, write, whole)
            else:
                txn = await _commit(place, write, shape, whole) if whole else None
        except ObjectChangedError:
            await _settle_metadata(place)
            raise
        except StorageError:
            txn = await _txn_with(place, write, names)
            if txn is None:
                raise
        not_removed = await _release(place, write, keep=names)
        catalogue = await renew_catalogue(
            place.store, place.path, ReadOptions(), changed=names, make=False, keeps_rows=write.is_new_table
        )
    return WrittenTable(
        url=shown_url(write.url),
        is_written=True,
        is_new=write.is_new_table,
        txn=txn,
        partitions=tuple(
            CommittedPartition(
                name=shape.directory_name(part.timestamp, part.version),
                new_rows=part.new_rows,
                row_count=part.row_count,
                parquet_size_bytes=part.parquet_size_bytes,
            )
            for part in whole
        ),
        catalogue=catalogue,
        not_removed=not_removed,
    )


async def abort_write(write: TableWrite, **access: Unpack[StoreAccess]) -> None:
    """Remove everything that a write has made and not committed. None of its tasks may still be running.

    Requests: 1 that reads `_txn`, and those of :func:`~coldparquet.write.versions.release_versions`.

    Raises:
        AccessError: Removing is not permitted.
        StorageError: The store failed; some of it remains, invisible to readers.
    """
    async with open_place(write.url, **access) as place:
        files = await _files_of_table(place)  # a commit whose answer was lost may have named what was written
        if write.is_new_table:
            version = parse_table_metadata(write.metadata, path=None).metadata_version
            if files is None or files.transaction.metadata_version != version:
                await place.store.delete([f"{place.path}/{metadata_copy_name(version)}"])
        await release_versions(place.store, place.path, write.versions, keep=_named_directories(files, write))


async def _txn_with(place: TablePlace, write: TableWrite, names: frozenset[str]) -> int | None:
    """Return the transaction if `_txn` names what was written, so that only the answer was lost; else None."""
    try:
        files = await _files_of_table(place)
    except ColdParquetError:
        return None
    if files is None or not names <= _named_directories(files, write):
        return None
    # A write without rows has no names either. But the number of a new table's metadata is unique.
    is_ours = (
        bool(names)
        or files.transaction.metadata_version == parse_table_metadata(write.metadata, path=None).metadata_version
    )
    return files.transaction.txn if is_ours else None


async def _release(place: TablePlace, write: TableWrite, *, keep: frozenset[str]) -> str | None:
    """Remove what a committed write no longer needs. The commit stands if that fails; then return why."""
    try:
        await release_versions(place.store, place.path, write.versions, keep=keep)
    except ColdParquetError as error:
        return str(error)
    return None


async def _commit(place: TablePlace, write: TableWrite, shape: TableShape, parts: Sequence[StagedPart]) -> int:
    """Replace the table's partitions by the parts."""
    table = await read_table_files(place.store, place.path)
    if table is None:
        raise write_conflict(place.path)
    before = table.transaction
    write.check_state(before, place.path)
    replaced = {part.timestamp for part in parts}
    records = [_record(part) for part in parts]
    for index in range(len(table.records)):
        record = table.records.record(index)
        if floor_of(record, shape) in replaced:
            check_replaceable(record, f"{place.path}/{shape.directory_name(record.timestamp, record.name_txn)}")
        else:
            records.append(record)
    records.sort(key=attrgetter("timestamp"))
    await check_claim(place.store, place.path, write.versions)
    bounds = _time_bounds(before, records, parts)
    committed = await commit_partitions(
        place.store,
        place.path,
        started_from=table,
        partitions=PartitionRecords.of(records),
        time_bounds=bounds,
        least_txn=_least_txn(parts),
    )
    return committed.transaction.txn


def _time_bounds(
    before: TableTransaction, records: Sequence[PartitionRecord], parts: Sequence[StagedPart]
) -> tuple[int, int]:
    """Return the least and the largest timestamp of the table, from its first and its last partition."""
    of_part = {part.timestamp: part for part in parts}
    first, last = of_part.get(records[0].timestamp), of_part.get(records[-1].timestamp)
    lower = before.min_timestamp if first is None else first.first_timestamp
    upper = before.max_timestamp if last is None else last.last_timestamp
    if lower is None or upper is None:
        raise InvalidInputError(
            "the table's _txn states no bounds of its timestamps, although it has rows", kind="NoBounds"
        )
    return lower, upper


async def _make_table(place: TablePlace, write: TableWrite, parts: Sequence[StagedPart]) -> int:
    """Write the files of a new table, `_txn` last."""
    metadata = parse_table_metadata(write.metadata, path=None)
    transaction = TableTransaction(
        txn=max(1, _least_txn(parts)),
        transient_row_count=parts[-1].row_count if parts else 0,
        fixed_row_count=sum(part.row_count for part in parts[:-1]),
        min_timestamp=parts[0].first_timestamp if parts else None,
        max_timestamp=parts[-1].last_timestamp if parts else None,
        metadata_version=metadata.metadata_version,
        column_structure_version=metadata.metadata_version,
        data_version=0,
        partition_table_version=0,
        column_version=0,
        truncate_version=0,
        seq_txn=0,
        symbol_counts=tuple(0 for column in metadata.columns if column.symbol_index is not None),
        partitions=PartitionRecords.of([_record(part) for part in parts]),
    )
    column_versions = encode_column_versions(ColumnVersions(version=0, records=np.empty(0, COLUMN_VERSION)))
    store, path = place.store, place.path
    try:
        await store.put(f"{path}/{metadata_copy_name(metadata.metadata_version)}", write.metadata, overwrite=False)
        await store.put(f"{path}/{METADATA_FILE}", write.metadata, overwrite=True)
        await store.put(f"{path}/{COLUMN_VERSIONS_FILE}", column_versions, overwrite=True)
        await store.put(f"{path}/{_NAME_FILE}", encode_name(path.rpartition("/")[2]) + b"\0", overwrite=True)
        await store.put(f"{path}/{TODO_FILE}", bytes(_TODO_BYTES), overwrite=True)
        await check_claim(store, path, write.versions)
        await store.put(f"{path}/{TRANSACTION_FILE}", encode_txn(transaction), overwrite=False)
    except InvalidInputError as error:
        if error.kind != "AlreadyExists":
            raise
        raise write_conflict(path) from error
    await _settle_metadata(place)
    return transaction.txn


async def _settle_metadata(place: TablePlace) -> None:
    """Restore the `_meta` that `_txn` names, if another writer of the same new table has replaced it. 2 requests."""
    store, path = place.store, place.path
    try:
        transaction = parse_txn((await read_whole(store, f"{path}/{TRANSACTION_FILE}")).data, path=None)
        metadata = (await read_whole(store, f"{path}/{METADATA_FILE}")).data
        if parse_table_metadata(metadata, path=None).metadata_version != transaction.metadata_version:
            copy = await read_whole(store, f"{path}/{metadata_copy_name(transaction.metadata_version)}")
            await store.put(f"{path}/{METADATA_FILE}", copy.data, overwrite=True)
    except ColdParquetError:  # readers do not need it
        return


async def _files_of_table(place: TablePlace) -> TableFiles | None:
    """Return the state of the table; None where it has none (yet). 2 requests."""
    try:
        return await read_table_files(place.store, place.path)
    except NotFoundError:
        return None


def _named_directories(files: TableFiles | None, write: TableWrite) -> frozenset[str]:
    """Return the names of all directories that `_txn` names."""
    if files is None:
        return frozenset()
    shape, records = write.shape(), files.records
    pairs = zip(records.timestamps.tolist(), records.name_txns.tolist(), strict=True)
    return frozenset(shape.directory_name(timestamp, name_txn) for timestamp, name_txn in pairs)


def _record(part: StagedPart) -> PartitionRecord:
    return PartitionRecord(
        timestamp=part.timestamp,
        row_count=part.row_count,
        name_txn=part.version,
        is_parquet=True,
        parquet_size=part.parquet_size_bytes,
    )


def _least_txn(parts: Sequence[StagedPart]) -> int:
    """Return a transaction number above all versions, as QuestDB's are."""
    return max((part.version for part in parts), default=0) + 1
