"""Removing versions of partitions that newer ones have replaced, and what killed runs have left."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet.catalog.discovery import discover
from coldparquet.errors import InvalidInputError, UnsupportedError
from coldparquet.format.partition_names import infer_interval, parse_partition_directory
from coldparquet.write.local_files import exclusive_lock
from coldparquet.write.staged_directory import empty_directory, staged_name
from coldparquet.write.version_claims import give_up_old_claims

if TYPE_CHECKING:
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import Listing
    from coldparquet.write.local_files import FileOperations


async def purge_superseded(
    store: ObjectStore, path: str, *, before_s: float, dry_run: bool, files: FileOperations | None
) -> tuple[str, ...]:
    """Remove directories of a table that are other versions of partitions which it has.

    Whoever opened the table before such a version was replaced may still read it. So it only goes if nothing in it, nor
    in the version that replaced it, was written since ``before_s``; a version is committed as soon as it is written.
    A write that began before ``before_s`` and was not committed is taken for dead: it cannot commit any more, and what it
    has written goes in the same way. What younger writes have written stays.

    Everything else stays: directories that were detached or are to be attached, those of partitions that the table does
    not have, those that hold directories or are symbolic links, and whatever has another name.

    Requests: those of opening the table, 1 per 1,000 names in it, 1 for each directory that is looked at, and 1 for each
    that is removed.

    Args:
        store: Where the table lies; it must not pin versions.
        path: Its directory.
        before_s: Seconds since 1970.
        dry_run: Remove nothing, and only say what would be.
        files: How to write to the local disk; None on other stores.

    Returns:
        Names of the directories.

    Raises:
        UnsupportedError: The store does not tell when objects were written (kind ``NoTimes``).
    """
    # In this order: a directory that is there before the transaction is read, and that it does not name, is not in use.
    listing = await store.list(path)
    under_way, given_up = await give_up_old_claims(store, path, listing, before_s=before_s, dry_run=dry_run)
    found = await discover(store, path)
    names = [directory.rpartition("/")[2] for directory in listing.directories]
    interval = infer_interval(names) if found.files is None else found.files.metadata.interval
    live = {
        location.directory.base_name: location.name for location in found.locations if location.directory is not None
    }
    last_written: dict[str, float] = {}
    purged = []
    for name in names:
        parsed = parse_partition_directory(staged_name(name) or name, interval=interval)
        if parsed is None or live.get(parsed.base_name) == name or any(parsed.name_txn in claim for claim in under_way):
            continue
        replaced_by = live.get(parsed.base_name)
        if replaced_by is None and not any(parsed.name_txn in claim for claim in given_up):
            continue
        directory = f"{path}/{name}"
        if files is not None and os.path.islink(directory):  # noqa: ASYNC240, PTH114 - one look at a name
            continue
        inside = await store.list(directory)
        if replaced_by is not None and replaced_by not in last_written:
            last_written[replaced_by] = _last_written_s(await store.list(f"{path}/{replaced_by}"), store, path)
        newest_s = max(_last_written_s(inside, store, path), last_written.get(replaced_by or "", 0.0))
        if inside.directories or newest_s >= before_s:
            continue
        if dry_run or await _remove(store, directory, inside, files):
            purged.append(name)
    if not dry_run:
        await store.remove_unfinished(path, started_before_s=before_s)
    return tuple(purged)


def _last_written_s(inside: Listing, store: ObjectStore, path: str) -> float:
    times = [info.modified_s for info in inside.objects]
    if None in times:
        raise UnsupportedError(
            f"{store.label} does not tell when objects were written, so nobody knows what is old; remove old versions by"
            " hand",
            kind="NoTimes",
            path=path,
        )
    return max((time for time in times if time is not None), default=0.0)


async def _remove(store: ObjectStore, directory: str, inside: Listing, files: FileOperations | None) -> bool:
    """Remove a directory; False if somebody is at work in it."""
    if files is None:
        await store.delete([info.path for info in inside.objects])
        return True
    return await asyncio.to_thread(_remove_local, directory, files)


def _remove_local(directory: str, files: FileOperations) -> bool:
    try:
        with exclusive_lock(directory):
            empty_directory(directory, files)
            files.remove_directory(directory)
    except InvalidInputError as error:
        if error.kind != "PartitionLocked":
            raise
        return False
    files.flush_directory(str(Path(directory).parent))
    return True
