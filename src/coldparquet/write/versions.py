"""Commits new versions of partitions, so that readers never see an incomplete one; claims and purges of versions.

A new version is placed in a directory of its own, see :mod:`coldparquet.write.partition`. In a QuestDB table other files
of the old version, such as the indexes of SYMBOL columns, are carried along. They refer to row numbers, which do not
change.

**Committing.** A new `_txn` replaces the one that the new state was made from. Until then no reader sees what was
written; from then on every reader that opens or refreshes the table does. The replacement is atomic, and happens only
if `_txn` is still the one that the new state was made from. So of two writers that started from the same state one
commits. The other gets an error and has changed nothing that readers see.

A running QuestDB does not follow this protocol. It keeps `_txn` in memory and does not notice a replaced file. It
writes its next transaction into the old file, which is no longer read, so all rows ingested since then are lost. So the
table must not be open in a server. Stop the server, work on the table and start it again; or work on a copy of the
table that no server has open, such as a published one. The library detects some conflicts. It notices a server on a
local disk that runs on the database of the directory. It also notices a change that a killed server left unfinished,
and every commit of this library since the state was read.

**Claiming.** A new version of a partition is a directory of its own, `2024-03-01.65548`, which readers ignore until
`_txn` names it. Many tasks of one write make such directories independently. Failed and superseded tasks leave some
behind, and other writers may work on the same table. So a write first claims a range of versions with an object
`_writing.65548` that no other writer can make. Every directory in that range that `_txn` does not name belongs to this
write, which may remove it.

Compactions and QuestDB use the transaction number as a version, and ignore claims. So a range begins far enough above
that number that they do not reach it during a write. A write commits a transaction number above its versions, as
QuestDB does.

A directory with a claim and without `_txn` is a table during its first write: readers do not treat its partitions as a
table. The claim of a killed write does no harm, and prevents reuse of its range.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from random import random
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.catalog.discovery import WRITING_PREFIX, discover
from coldparquet.catalog.table_files import (
    COLUMN_VERSIONS_FILE,
    DATA_FILE,
    METADATA_FILE,
    SIDECAR_FILE,
    TODO_FILE,
    TRANSACTION_FILE,
    TableFiles,
    read_table_files,
)
from coldparquet.errors import (
    FormatError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    ObjectChangedError,
    StorageError,
    UnsupportedError,
)
from coldparquet.format.partition_names import infer_interval, parse_partition_directory
from coldparquet.format.txn import encode_txn, parse_txn, replace_partitions
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.storage.checked import CheckedStore, read_whole
from coldparquet.storage.requests import Listing, RangeRequest
from coldparquet.write.files import (
    empty_directory,
    exclusive_lock,
    no_server_at,
    staged_name,
)
from coldparquet.write.partition import CarriedFile
from coldparquet.write.upload import StoreSource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.partition_records import PartitionRecord, PartitionRecords
    from coldparquet.format.txn import TableTransaction
    from coldparquet.storage.base import ObjectStore
    from coldparquet.write.files import LocalFiles


_WRITTEN_ANEW = frozenset({DATA_FILE, SIDECAR_FILE})
_OF_DETACHING = frozenset({TRANSACTION_FILE, METADATA_FILE, COLUMN_VERSIONS_FILE})
"""A directory that was attached again keeps the table files from when it was detached; they are never read."""


async def carried_files(store: ObjectStore, directory_path: str) -> tuple[CarriedFile, ...]:
    """List the files of a partition that are carried along. 1 request."""
    listing = await store.list(directory_path)
    checked = CheckedStore(store)
    return tuple(
        CarriedFile(name=name, content=StoreSource(checked, info.path, size_bytes=info.size_bytes or 0))
        for info in listing.objects
        if (name := info.path.rpartition("/")[2]) not in _WRITTEN_ANEW | _OF_DETACHING and not name.startswith(".")
    )


RANGE_VERSIONS = 1 << 32
"""Versions per claim: two for each attempt of a task."""

_GAP_VERSIONS = 1 << 16
"""Versions that compactions and QuestDB may use during a write."""

_TOKEN_BYTES = 16
_ATTEMPTS = 10
_LONGEST_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions that belong to one write."""

    first: int
    token: str = ""
    """Content of the claim, which distinguishes it from a later claim for the same versions."""

    @property
    def stop(self) -> int:
        """First version behind the range."""
        return self.first + RANGE_VERSIONS

    @property
    def claim_name(self) -> str:
        """Name of the claim object."""
        return f"{WRITING_PREFIX}{self.first}"

    def __contains__(self, version: int) -> bool:
        return self.first <= version < self.stop


async def claim_versions(store: ObjectStore, path: str, *, txn: int | None) -> VersionRange:
    """Claim versions for a write. 3 requests, 4 more for each rival that claims at the same moment."""
    for _ in range(_ATTEMPTS):
        taken = _first_free(await _listing(store, path))
        first = taken if txn is None else max(taken, txn + 1) + _GAP_VERSIONS
        claimed = VersionRange(first, token=secrets.token_hex(_TOKEN_BYTES))
        claim = f"{path}/{claimed.claim_name}"
        try:
            await store.put(claim, claimed.token.encode(), overwrite=False)
        except InvalidInputError as error:
            if error.kind != "AlreadyExists":
                raise
        else:
            after = await _listing(store, path)
            rivals = [found for found in claims(after) if found.first != claimed.first and found.stop > claimed.first]
            if not rivals and all(version < claimed.first for version in _versions(after)):
                return claimed
            await store.delete([claim])
        await asyncio.sleep(random() * _LONGEST_PAUSE_S)  # noqa: S311 - avoids repeated collisions
    raise StorageError("others keep beginning to write to this table; try again later", kind="TableBusy", path=path)


async def release_versions(
    store: ObjectStore, path: str, versions: VersionRange, *, keep: frozenset[str] = frozenset()
) -> None:
    """Remove a write's directories, and its claim last; nothing if the claim is gone, because they were removed before.

    Requests: 1 for the claim, 1 listing per 1,000 names, 2 for each directory that is removed, 1 that removes the
    claim.
    """
    claim = f"{path}/{versions.claim_name}"
    try:
        token = (await read_whole(store, claim)).data
    except NotFoundError:
        return
    if token != versions.token.encode():
        return
    await _remove_directories(store, await _listing(store, path), (versions,), keep=keep)
    await store.delete([claim])


async def remove_dead_writes(store: ObjectStore, path: str, *, before_s: float) -> None:
    """Remove the remains of writes that began before a time, in a directory that is no table yet.

    The caller holds a claim. Otherwise readers could treat the remains as a table once their own claims are gone.
    Requests: 1 listing per 1,000 names, 1 for the claims, 2 for each directory that is removed.
    """
    listing = await _listing(store, path)
    _, given_up = await give_up_old_claims(store, path, listing, before_s=before_s, dry_run=False)
    await _remove_directories(store, listing, given_up)


async def _remove_directories(
    store: ObjectStore, listing: Listing, ranges: Collection[VersionRange], *, keep: frozenset[str] = frozenset()
) -> None:
    for directory in listing.directories:
        name = directory.rpartition("/")[2]
        version = _version(name)
        if version is not None and name not in keep and any(version in one for one in ranges):
            inside = await _listing(store, directory)
            await store.delete([info.path for info in inside.objects])


async def check_claim(store: ObjectStore, path: str, versions: VersionRange) -> None:
    """Check that no other writer has declared this write dead, and removed its directories. 1 request."""
    try:
        token = (await read_whole(store, f"{path}/{versions.claim_name}")).data
    except NotFoundError:
        token = b""
    if token != versions.token.encode():
        raise ObjectChangedError(
            "this write was aborted, or taken for dead and purged because it began so long ago; nothing of it is visible."
            " Write once more",
            kind="WriteGivenUp",
            path=f"{path}/{versions.claim_name}",
        )


async def give_up_old_claims(
    store: ObjectStore, path: str, listing: Listing, *, before_s: float, dry_run: bool
) -> tuple[tuple[VersionRange, ...], tuple[VersionRange, ...]]:
    """Declare writes dead that began before a time: they can no longer commit. 1 request if there are any."""
    began_s = {info.path.rpartition("/")[2]: info.modified_s for info in listing.objects}
    under_way: list[VersionRange] = []
    given_up: list[VersionRange] = []
    for claim in claims(listing):
        start_s = began_s[claim.claim_name]
        (given_up if start_s is not None and start_s < before_s else under_way).append(claim)
    if given_up and not dry_run:
        await store.delete([f"{path}/{claim.claim_name}" for claim in given_up])
    return tuple(under_way), tuple(given_up)


def claims(listing: Listing) -> tuple[VersionRange, ...]:
    """Return the ranges that running or killed writes have claimed in a table."""
    names = (info.path.rpartition("/")[2] for info in listing.objects)
    numbers = (name.removeprefix(WRITING_PREFIX) for name in names if name.startswith(WRITING_PREFIX))
    return tuple(VersionRange(int(number)) for number in numbers if number.isascii() and number.isdigit())


def _first_free(listing: Listing) -> int:
    """Return a version above all existing and claimed ones."""
    return max(
        (*(version + 1 for version in _versions(listing)), *(claim.stop for claim in claims(listing))), default=0
    )


def _versions(listing: Listing) -> Iterator[int]:
    names = (directory.rpartition("/")[2] for directory in listing.directories)
    return (version for version in map(_version, names) if version is not None)


def _version(name: str) -> int | None:
    directory = parse_partition_directory(staged_name(name) or name)
    return None if directory is None else directory.name_txn


async def _listing(store: ObjectStore, path: str) -> Listing:
    try:
        return await store.list(path)
    except NotFoundError:
        return Listing(directories=(), objects=())


async def purge_superseded(
    store: ObjectStore, path: str, *, before_s: float, dry_run: bool, files: LocalFiles | None
) -> tuple[str, ...]:
    """Remove directories with other versions of partitions that the table has.

    A reader that opened the table before such a version was replaced may still read it. So the directory is removed
    only if nothing in it, nor in the version that replaced it, was written since ``before_s``; a version is committed
    as soon as it is written. A write that began before ``before_s`` and was not committed counts as dead: it can no
    longer commit, and its directories are removed by the same rule. Those of younger writes stay.

    Everything else stays: directories that were detached or are to be attached, those of partitions that the table does
    not have, those that hold directories or are symbolic links, and all with other names.

    Requests: those of opening the table, 1 per 1,000 names in it, 1 for each candidate directory, and 1 for each that
    is removed.
    """
    # In this order: a directory that exists before the transaction is read, and that it does not name, is not in use.
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
        if files is not None and os.path.islink(directory):  # noqa: ASYNC240, PTH114 - a single stat
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


async def _remove(store: ObjectStore, directory: str, inside: Listing, files: LocalFiles | None) -> bool:
    """Remove a directory; False if another process holds its lock."""
    if files is None:
        await store.delete([info.path for info in inside.objects])
        return True
    return await asyncio.to_thread(_remove_local, directory, files)


def _remove_local(directory: str, files: LocalFiles) -> bool:
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


_TODO_COUNT_RANGE = ByteRange(32, 40)
"""Number of steps of an unfinished change of the table (note section 4.7)."""


async def commit_partitions(  # noqa: PLR0913 - mostly keyword arguments
    store: ObjectStore,
    path: str,
    *,
    started_from: TableFiles,
    partitions: PartitionRecords,
    time_bounds: tuple[int, int] | None = None,
    least_txn: int = 0,
) -> TableFiles:
    """Replace partitions of a table, if there was no other commit since its files were read.

    The new directories and files must be complete, and flushed, before the call. Requests: 1 reads `_txn`, 1 replaces
    it.
    """
    path = path.rstrip("/")
    before = started_from.transaction
    lower, upper = time_bounds or (before.min_timestamp, before.max_timestamp)
    following = replace_partitions(before, partitions, min_timestamp=lower, max_timestamp=upper)
    following = replace(following, txn=max(following.txn, least_txn))
    encoded = encode_txn(following)
    try:
        records = following.partitions_of(started_from.metadata.interval)
    except FormatError as error:
        raise InvalidInputError(f"this would be no valid state of the table: {error.message}") from error
    with no_server_at(store, path):
        answer = await read_whole(store, f"{path}/{TRANSACTION_FILE}")
        found = await asyncio.to_thread(parse_txn, answer.data, path=f"{path}/{TRANSACTION_FILE}")
        if encode_txn(found) != encode_txn(before):
            raise _conflict(path, before, found)
        try:
            await store.put(f"{path}/{TRANSACTION_FILE}", encoded, overwrite=True, if_match=answer.etag)
        except ObjectChangedError as error:
            raise _conflict(path, before, None) from error
    return replace(started_from, transaction=following, records=records)


async def check_nothing_unfinished(store: ObjectStore, path: str) -> None:
    """Check that no server was killed while it changed the table. 1 request."""
    request = RangeRequest(
        path=f"{path}/{TODO_FILE}", byte_range=_TODO_COUNT_RANGE, reason="table files", may_be_short=True
    )
    try:
        count = (await store.get(request)).data
    except NotFoundError:
        return
    if any(count):
        raise InvalidInputError(
            "a QuestDB server was killed while it changed this table, and has not finished that yet; start it, let it"
            " recover the table, and stop it again",
            kind="UnfinishedChange",
            path=path,
        )


def _conflict(path: str, before: TableTransaction, found: TableTransaction | None) -> ObjectChangedError:
    now = "" if found is None else f", which is at transaction {found.txn:,} now"
    return ObjectChangedError(
        f"somebody else has committed to this table{now}: this commit was made from transaction {before.txn:,}; nothing"
        " of it is visible. Read the table again, and repeat it",
        kind="CommitConflict",
        path=f"{path}/{TRANSACTION_FILE}",
        started_from=before.txn,
    )


_FIRST_PAUSE_S = 0.05
"""Longest wait after the first lost commit; it doubles with each further one. The random wait separates writers that
lost together, so that many concurrent compactions of one table all succeed."""


async def commit_version(  # noqa: PLR0913 - mostly keyword arguments
    store: ObjectStore,
    path: str,
    location: PartitionLocation,
    *,
    version: int,
    parquet_size_bytes: int,
    table: TableFiles,
) -> TableFiles:
    """Make the table name a new version of a partition, if the partition is unchanged since it was read.

    2 requests; about 4 more for each commit of another writer that comes first.
    """
    record = location.record
    if record is None:
        raise InternalError("a partition of a transaction has a record", path=location.directory_path)
    wanted = replace(record, name_txn=version, parquet_size=parquet_size_bytes)
    for attempt in range(_ATTEMPTS):
        found = _record_at(table.records, record.timestamp)
        if found == wanted:  # a request of this write succeeded although it seemed to fail
            return table
        if found != record:
            unseen = await store.list(f"{path}/{location.name.partition('.')[0]}.{version}")
            await store.delete([info.path for info in unseen.objects])
            raise ObjectChangedError(
                "the partition was changed while it was written anew; compact it again",
                kind="PartitionChanged",
                path=location.directory_path,
            )
        partitions = _with_record(table.records, wanted)
        try:
            return await commit_partitions(
                store, path, started_from=table, partitions=partitions, least_txn=version + 1
            )
        except ObjectChangedError:
            await asyncio.sleep(random() * _FIRST_PAUSE_S * 2**attempt)  # noqa: S311 - jitter, not a secret
            newest = await read_table_files(store, path)
            if newest is None:
                raise NotFoundError("the table was removed", path=path) from None
            table = newest
    raise StorageError(
        "others keep committing to this table; try again when there is less to do", kind="TableBusy", path=path
    )


def _record_at(records: PartitionRecords, timestamp: int) -> PartitionRecord | None:
    position = int(np.searchsorted(records.timestamps, timestamp))
    is_there = position < len(records) and int(records.timestamps[position]) == timestamp
    return records.record(position) if is_there else None


def _with_record(records: PartitionRecords, record: PartitionRecord) -> PartitionRecords:
    """Return all partitions, with the version and size of one replaced by this record's."""
    position = int(np.searchsorted(records.timestamps, record.timestamp))
    name_txns, sizes = records.name_txns.copy(), records.parquet_sizes.copy()
    name_txns[position], sizes[position] = record.name_txn, record.parquet_size
    return replace(records, name_txns=name_txns, parquet_sizes=sizes)
