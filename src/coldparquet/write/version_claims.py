"""Versions of partition directories for a write that is not committed yet: which are free, and whose are which.

A new version of a partition is a directory of its own, `2024-03-01.65548`, which nobody sees until `_txn` names it. Many
tasks of one write make such directories without knowing of each other, tasks that fail or lose a race leave some behind,
and other writers may be at work on the same table. So a write first claims a range of versions with an object
`_writing.65548` that nobody else can make. Whatever lies in that range and is not named by `_txn` was made by this write,
and can be removed by it.

Compactions and QuestDB take the number of the transaction for a version, and know nothing of claims. A range therefore begins
far enough above that number that they do not reach it while a write is under way. The transaction that a write commits
has a number above its versions, as QuestDB's own have.

A directory without `_txn` that holds a claim is a table that is being written for the first time: readers do not take the
partitions in it for a table. A claim that a killed write has left does no harm, and keeps its range from being used again.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.catalog.discovery import WRITING_PREFIX
from coldparquet.errors import InvalidInputError, NotFoundError, ObjectChangedError, StorageError
from coldparquet.format.partition_names import parse_partition_directory
from coldparquet.storage.objects import Listing
from coldparquet.storage.whole_object import read_whole
from coldparquet.write.staged_directory import staged_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from coldparquet.storage.base import ObjectStore

RANGE_VERSIONS = 1 << 32
"""Versions that one claim covers: two for each attempt of a task."""

_GAP_VERSIONS = 1 << 16
"""Versions that compactions and QuestDB may use up while a write is under way."""

_TOKEN_BYTES = 16
_ATTEMPTS = 10
_LONGEST_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions that belong to one write."""

    first: int
    token: str = ""
    """What the claim holds, so that a claim for the same versions by a later write is told apart."""

    @property
    def stop(self) -> int:
        """First version that does not belong to it any more."""
        return self.first + RANGE_VERSIONS

    @property
    def claim_name(self) -> str:
        """Name of the object that claims it."""
        return f"{WRITING_PREFIX}{self.first}"

    def __contains__(self, version: int) -> bool:
        return self.first <= version < self.stop


async def claim_versions(store: ObjectStore, path: str, *, txn: int | None) -> VersionRange:
    """Claim versions for a write. 3 requests, 4 more for each rival that claims at the same moment.

    Args:
        store: Where the table lies.
        path: Its directory.
        txn: Transaction that the table stands at; None for a table that is to be made.

    Raises:
        StorageError: Others were faster every time (kind ``TableBusy``), or the store failed.
        AccessError: Writing is not permitted.
    """
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
        await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311 - so that rivals do not meet again
    raise StorageError("others keep beginning to write to this table; try again later", kind="TableBusy", path=path)


async def release_versions(
    store: ObjectStore, path: str, versions: VersionRange, *, keep: frozenset[str] = frozenset()
) -> None:
    """Remove what a write has made, and its claim last; nothing if the claim is gone, because that was done already.

    Requests: 1 for the claim, 1 listing per 1,000 names, 2 for each directory that is removed, 1 that removes the claim.

    Args:
        store: Where the table lies.
        path: Its directory.
        versions: The write's own.
        keep: Names of directories that were committed.
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
    """Remove what writes have left that began before a time, in a directory in which there is no table yet.

    The caller holds a claim itself, so that readers do not take what is left for a table while the claims on it are gone.
    Requests: 1 listing per 1,000 names, 1 for the claims, 2 for each directory that is removed.

    Args:
        store: Where the table lies.
        path: Its directory.
        before_s: Seconds since 1970.
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
    """Make sure that nobody has taken a write for dead, and removed what it has made. 1 request.

    Raises:
        ObjectChangedError: Its claim is gone (kind ``WriteGivenUp``).
    """
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
    """Take writes that began before a time for dead: they cannot commit any more. 1 request if there are any.

    Args:
        store: Where the table lies.
        path: Its directory.
        listing: Of the directory.
        before_s: Seconds since 1970.
        dry_run: Remove no claim, and only say which would be.

    Returns:
        The ranges of writes that may be under way, and those of writes that were given up.
    """
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
    """Return the ranges that are claimed in a table, by writes that are under way or were killed."""
    names = (info.path.rpartition("/")[2] for info in listing.objects)
    numbers = (name.removeprefix(WRITING_PREFIX) for name in names if name.startswith(WRITING_PREFIX))
    return tuple(VersionRange(int(number)) for number in numbers if number.isascii() and number.isdigit())


def _first_free(listing: Listing) -> int:
    """Return a version above all that there are and all that are claimed."""
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
