"""Compacting a table: partitions with dead bytes, or with many small row groups, are written anew.

Row order, values, types, column ids, the keys of symbols and the designated timestamp stay as they are. All columns of a
file stay, also those that the table has dropped since, which readers of the table do not see; so no more is lost than
bytes that nobody could read. Key-value metadata of the file, QuestDB's notes in file and sidecar and, where there is a
`_txn`, the indexes that lie beside them stay too.

A partition is written into a directory of its own, under a version that no directory has, and `_txn` names it from the
next transaction on: see `coldparquet.write.table_commit` about that, and about servers. The version is the number of the
transaction that the table stands at, as QuestDB itself chooses it: so the next version that a server makes is a higher
one. Without a `_txn` the directory with the highest version is the partition, so that the new one counts from the
moment in which it is there, all of it.

Each partition is committed by itself. A run that is killed has lost the partition that it was writing, and the next
run goes on there. Old versions, and what killed runs left, stay until they are purged.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from coldparquet.storage.local.store import LocalStore
from coldparquet.storage.open_store import shown_url
from coldparquet.storage.opened_store import opened_store
from coldparquet.write.compaction_report import CompactionOptions
from coldparquet.write.compaction_run import CompactionRun
from coldparquet.write.local_files import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.write.compaction_report import CompactionProgress, CompactionReport
    from coldparquet.write.local_files import FileOperations


async def compact_table(  # noqa: PLR0913 - what can be told is told by name
    url: str | os.PathLike[str],
    *,
    partitions: Collection[str] | None = None,
    force: bool = False,
    dry_run: bool = False,
    purge: bool = False,
    pack: bool = False,
    leave_catalogue: bool = False,
    options: CompactionOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
    files: FileOperations | None = None,
    on_progress: Callable[[CompactionProgress], None] | None = None,
) -> CompactionReport:
    """Write partitions anew that have many dead bytes or small row groups; see the module about what readers see.

    A partition that fails does not stop the others. No server may have the table open.

    Requests: those of opening the table, 1 listing per 1,000 names; 1 or 2 per Parquet partition for its footer. For
    each that is written anew: 1 or 2 for its sidecar, 1 for its page index, 1 listing, 2 per SYMBOL column once; those
    of a scan; those of writing; and 2 for the commit. Those of :func:`coldparquet.maintenance.pack.renew_catalogue`.

    Args:
        url: A table directory or a directory of partitions: any fsspec URL, or a local path.
        partitions: Names of those to look at, with or without their version suffix; None for all.
        force: Write all of them anew, whether it is worth it or not.
        dry_run: Write nothing, and say what would be written.
        purge: Afterwards remove versions that were replaced, and what killed runs have left; see
            :func:`~coldparquet.write.superseded.purge_superseded`.
        pack: Make the catalogue of the table where there is none; one that is there is renewed in any case. See
            :func:`coldparquet.maintenance.pack.pack_table`.
        leave_catalogue: Leave a catalogue as it is: whoever compacts the partitions of a table one by one renews it in the
            end. Until then readers fetch the sidecars of new versions by themselves.
        options: How to compact.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        store_options: How patient to be with the store; see :class:`~coldparquet.options.StoreOptions`.
        store: A store of your own; ``url`` is then a path in it. It stays open.
        files: How to write to the local disk; for tests. With it, the paths of ``store`` are taken for local ones.
        on_progress: Called for each row group that was written and each partition that is done.

    Returns:
        What became of each partition; failures are in there, not raised.

    Raises:
        InvalidInputError: This is no table (kind ``NotATable``), it has no partition of a name in ``partitions``, or a
            server is, or was, at work on it (``ServerRunning``, ``UnfinishedChange``).
        NotFoundError: There is nothing at ``url``, or nothing that is a partition.
        AccessError: The store refused.
        FormatError: A table file is damaged.
        StorageError: The table files kept changing while they were read.
    """
    options = options or CompactionOptions()
    label = shown_url(os.fspath(url))
    async with opened_store(
        os.fspath(url),
        storage_options=storage_options,
        store_options=store_options,
        store=store,
        max_concurrency=options.max_concurrency,
    ) as opened:
        if files is None and isinstance(opened.bare, LocalStore):
            files = LocalFiles()
        run = CompactionRun(opened.stack.store, opened.path.rstrip("/"), options, files, on_progress)
        try:
            return await run.compact(
                label,
                partitions,
                force=force,
                dry_run=dry_run,
                purge=purge,
                pack=pack,
                leave_catalogue=leave_catalogue,
            )
        finally:
            run.close()
