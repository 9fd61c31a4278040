"""Writes tables: sorts rows, partitions them into Parquet files, and makes them visible to readers all at once.

    begin_write     checks the table; claims versions for new partition directories
    stage_rows      sorts the rows, writes a directory for each partition; many tasks may run it at the same time
    join_parts      merges the parts of one partition from several tasks with its existing rows
    commit_write    `_txn` names the new directories: from then on readers see them
    abort_write     removes everything instead

:func:`write_table` does all of it in one process; Spark's writer uses the same steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

from coldparquet.errors import ColdParquetError
from coldparquet.storage.urls import shown_url
from coldparquet.write.begin import MEMORY_LIMIT_BYTES, begin_write
from coldparquet.write.commit import WrittenTable, abort_write, commit_write
from coldparquet.write.parquet import schema_and_batches
from coldparquet.write.stage import stage_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.write.begin import WriteMode
    from coldparquet.write.files import FileOperations
    from coldparquet.write.options import WriteOptions
    from coldparquet.write.parquet import Rows


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
    files: FileOperations | None = None,
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
        storage_options=storage_options,
        store_options=store_options,
        store=store,
    )
    if write is None:
        return WrittenTable(url=shown_url(url), is_written=False, is_new=False, txn=None, partitions=())
    access: dict[str, Any] = {"storage_options": storage_options, "store_options": store_options, "store": store}
    try:
        parts = await stage_rows(write, batches, attempt=0, clustered=True, files=files, **access)
        return await commit_write(write, parts, files=files, **access)
    except (Exception, asyncio.CancelledError):
        with contextlib.suppress(ColdParquetError):  # the original error says more
            await abort_write(write, **access)
        raise
