"""Placing a new version of a partition beside the old one, so that nobody ever takes half of it for a partition.

On a local disk the directory is filled under a hidden name, flushed, and renamed. On object stores ``data.parquet`` comes
first: a directory appears with its first object, and with this one it can be read, a little slower until its sidecar
is there. In a QuestDB table other files of the old version, such as the indexes of SYMBOL columns, are carried along: they
count rows, and the rows stay where they are.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from coldparquet.catalog.partition_location import DATA_FILE, SIDECAR_FILE
from coldparquet.catalog.table_files import COLUMN_VERSIONS_FILE, METADATA_FILE, TRANSACTION_FILE
from coldparquet.errors import InvalidInputError
from coldparquet.storage.threads import run_to_end
from coldparquet.storage.upload import MemoryBudget, StoreSource, part_ranges, upload_object
from coldparquet.storage.wrappers.checked import CheckedStore
from coldparquet.write.staged_directory import made_files, staged_directory

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from coldparquet.storage.base import ObjectStore
    from coldparquet.write.partition_rewriter import PartitionRewriter, RewrittenFiles

_WRITTEN_ANEW = frozenset({DATA_FILE, SIDECAR_FILE})
_OF_DETACHING = frozenset({TRANSACTION_FILE, METADATA_FILE, COLUMN_VERSIONS_FILE})
"""A directory that was attached again keeps the table files of the moment when it was detached; nobody reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedFile:
    """A file of the old version that the new one gets as it is."""

    name: str
    content: StoreSource


async def carried_files(store: ObjectStore, directory_path: str) -> tuple[CarriedFile, ...]:
    """List the files of a partition that are carried along. 1 request."""
    listing = await store.list(directory_path)
    checked = CheckedStore(store)
    return tuple(
        CarriedFile(name=name, content=StoreSource(checked, info.path, size_bytes=info.size_bytes or 0))
        for info in listing.objects
        if (name := info.path.rpartition("/")[2]) not in _WRITTEN_ANEW | _OF_DETACHING and not name.startswith(".")
    )


async def write_local_version(path: str, rewriter: PartitionRewriter, carried: Sequence[CarriedFile]) -> RewrittenFiles:
    """Write a new version on a local disk.

    Raises:
        InvalidInputError: The directory exists (kind ``AlreadyExists``), or another writer is making it
            (``PartitionLocked``).
    """
    return await run_to_end(partial(_write_local, path, rewriter, carried))


async def write_object_version(
    store: ObjectStore, path: str, rewriter: PartitionRewriter, carried: Sequence[CarriedFile], *, memory: MemoryBudget
) -> RewrittenFiles:
    """Write a new version on an object store. Its files are made on the local disk first.

    Requests: those of :func:`~coldparquet.storage.upload.upload_object` for each file, and 1 or more to read a carried
    one.

    Raises:
        InvalidInputError: An object of it exists (kind ``AlreadyExists``).
        StorageError: The store failed; what was written is no part of any table.
    """
    with tempfile.TemporaryDirectory(prefix="coldparquet-") as directory:
        written = await run_to_end(partial(rewriter.write, directory))
        for name, source in made_files(directory, written):
            await upload_object(store, f"{path}/{name}", source, overwrite=False, memory=memory)
    for file in carried:
        await upload_object(store, f"{path}/{file.name}", file.content, overwrite=False, memory=memory)
    return written


async def remove_version(store: ObjectStore, path: str) -> None:
    """Remove a version that nobody has ever been told of. 2 requests."""
    listing = await store.list(path)
    await store.delete([info.path for info in listing.objects])


def _write_local(
    path: str, rewriter: PartitionRewriter, carried: Sequence[CarriedFile], give_up: threading.Event
) -> RewrittenFiles:
    check_is_free = partial(_check_is_free, path)
    check_is_free()
    with staged_directory(path, rewriter.files, check_is_free=check_is_free) as staging:
        written = rewriter.write(staging, give_up)
        for file in carried:
            pieces = (file.content.read(piece) for piece in part_ranges(file.content.size_bytes))
            rewriter.copy(f"{staging}/{file.name}", pieces, give_up)
        if give_up.is_set():
            raise asyncio.CancelledError
    return written


def _check_is_free(path: str) -> None:
    if os.path.lexists(path):
        raise InvalidInputError(
            "there is something already: another compaction may be at work; run it again",
            kind="AlreadyExists",
            path=path,
        )
