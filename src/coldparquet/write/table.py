"""Writing a table: rows in any order in, sorted and partitioned Parquet out, seen by readers all at once.

    begin_write     is it possible; claims versions for new partition directories
    stage_rows      sorts the rows, writes a directory for each partition; many tasks may do that at the same time
    join_parts      merges what several tasks have of one partition, and the rows that are there already
    commit_write    `_txn` names the new directories: the moment at which readers see them
    abort_write     removes everything instead

:func:`write_table` does all of it in one process; Spark's writer is made of the same steps.
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


async def write_table(  # noqa: PLR0913 - what can be told is told by name
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
    """Write rows to a table, a new one or one that is there; a reader sees the old table or the new one, never a mixture.

    The rows may come in any order. They are sorted by the designated timestamp, equal ones keeping their order, behind
    those that the table has. Of two writers at the same time one fails, and nothing of it is seen. What a killed run has
    left is never seen either, does not hinder the next, and is removed by ``compact_table(purge=True)`` in time.

    A table that a QuestDB server has open must not be written to; see :mod:`coldparquet.write.versions`.

    Columns of a new table get the QuestDB types that :func:`~coldparquet.write.write_partition` describes. The SYMBOL columns
    of a new table are numbered in each file for itself: this library and every Parquet reader can read them, QuestDB
    cannot. To a table that QuestDB has made only symbols that it knows can be added.

    Requests: about 15 and those of :func:`~coldparquet.write.write_partition` for each partition; where rows are added to
    partitions that exist, those of reading them.

    Args:
        url: The table's directory: any fsspec URL, or a local path.
        rows: A table, a reader, or batches. A stream is read in a worker thread.
        timestamp: The designated timestamp, which every new table needs; 64-bit integers count microseconds since 1970.
            None takes that of the table.
        partition_by: ``HOUR``, ``DAY``, ``WEEK``, ``MONTH`` or ``YEAR``. None takes that of the table, ``DAY`` for a new one.
        mode: What to do if the table exists: ``"error"``, ``"append"`` adds the rows, ``"overwrite"`` replaces those
            partitions that rows belong to and leaves all others, ``"ignore"`` does nothing.
        symbols: Text columns of a new table that become SYMBOL.
        options: How to store them; see :class:`~coldparquet.write.WriteOptions`. They are always sorted.
        memory_limit_bytes: Rows that wait to be sorted in memory; sorting takes as much again.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        store_options: How patient to be with the store; see :class:`~coldparquet.options.StoreOptions`.
        store: A store of your own; ``url`` is then a path in it. It stays open.
        files: How to write to the local disk; for tests.

    Returns:
        Which partitions were written.

    Raises:
        InvalidInputError: The table exists (kind ``AlreadyExists``), there are partitions of none (``NotEmpty``), it is
            another one (``OtherTable``) or has other columns (``SchemaMismatch``); a column has no QuestDB type
            (``UnknownType``) or a value does not fit (``DoesNotFit``, ``NullValue``, ``RaggedArray``,
            ``UnknownSymbol``); a server is at work on it (``ServerRunning``, ``UnfinishedChange``).
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
        with contextlib.suppress(ColdParquetError):  # what led here says more
            await abort_write(write, **access)
        raise
