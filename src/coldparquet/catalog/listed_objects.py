"""What one listing tells of the objects of many partitions: versions and classes, in place of a request for each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coldparquet.concurrency import gather_or_cancel
from coldparquet.plan.read_plan import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import ObjectInfo

LEAST_SAVED_REQUESTS = 13
"""A listing costs as much as 12 GETs: where it saves fewer of them, they are cheaper, and not slower."""

_LISTED_TOGETHER = 250
"""Partitions of which one listing tells the versions, if each holds up to 4 objects: S3 lists 1,000 at once."""


class ListedObjects:
    """The listings of one state of a table: each stretch of partitions is listed once, whoever asks for it.

    Args:
        store: Where the table lies.
        on_listed: Called with the paths that a listing showed, and the directories that it was for.
    """

    def __init__(
        self, store: ObjectStore, *, on_listed: Callable[[Collection[str], Collection[str]], None] | None = None
    ) -> None:
        self._store = store
        self._on_listed = on_listed
        self._stretches: dict[str, tuple[str, ...]] = {}
        """The directories that are listed together, by each of them."""
        self._turns: dict[tuple[str, ...], asyncio.Lock] = {}
        self._found: dict[tuple[str, ...], Mapping[str, ObjectInfo]] = {}

    def consider(self, directories: Collection[str], *, saved_requests: int) -> None:
        """Decide whether to list what lies in some directories.

        Args:
            directories: Those of partitions.
            saved_requests: How many other requests a listing of them would be in place of.
        """
        if self._store.has_version_listings and saved_requests >= LEAST_SAVED_REQUESTS:
            self._form_stretches(directories)

    def is_worth_listing(self, directory: str) -> bool:
        """Tell whether it was decided to list what lies in a directory."""
        return directory in self._stretches

    def found(self, path: str) -> ObjectInfo | None:
        """Return what a listing told of an object; None where it was not listed."""
        return self._found_near(path).get(path)

    def has_missed(self, path: str) -> bool:
        """Tell whether the directory of an object was listed, and has others but not this one."""
        directory = path.rpartition("/")[0]
        near = self._found_near(path)
        return path not in near and any(other.rpartition("/")[0] == directory for other in near)

    def _found_near(self, path: str) -> Mapping[str, ObjectInfo]:
        return self._found.get(self._stretches.get(path.rpartition("/")[0], ()), {})

    async def below(self, directories: Collection[str], spent: list[MetadataRequest]) -> dict[str, ObjectInfo]:
        """List what lies in directories, and in whatever is between them.

        Requests: 1 for 250 partitions, all at once; none for what was listed before.

        Args:
            directories: Those of partitions of one table.
            spent: Gets the requests.

        Returns:
            The objects, by path.

        Raises:
            UnsupportedError: The store has no such listings.
            AccessError: Listing is not permitted.
            StorageError: The store failed.
        """
        self._form_stretches(directories)
        stretches = list(dict.fromkeys(self._stretches[directory] for directory in directories))
        found: dict[str, ObjectInfo] = {}
        for listed in await gather_or_cancel([self._list(stretch, spent) for stretch in stretches]):
            found |= listed
        return found

    def _form_stretches(self, directories: Collection[str]) -> None:
        # As their objects are listed: "2024/" comes behind "2024-03-05/".
        new = sorted((one for one in directories if one not in self._stretches), key=lambda one: f"{one}/")
        for start in range(0, len(new), _LISTED_TOGETHER):
            stretch = tuple(new[start : start + _LISTED_TOGETHER])
            self._stretches |= dict.fromkeys(stretch, stretch)

    async def _list(self, stretch: tuple[str, ...], spent: list[MetadataRequest]) -> Mapping[str, ObjectInfo]:
        first, last = stretch[0], stretch[-1]
        async with self._turns.setdefault(stretch, asyncio.Lock()):
            if stretch not in self._found:
                table_path = first.rpartition("/")[0]
                infos = await self._store.list_between(table_path, start=f"{first}/", stop=f"{last}/\U0010ffff")
                self._found[stretch] = found = {info.path: info for info in infos}
                if self._on_listed is not None:
                    self._on_listed(found, stretch)
                spent.append(
                    MetadataRequest(
                        path=table_path,
                        byte_range=None,
                        reason="versions and storage classes",
                        fetched_bytes=0,
                        operation="list",
                    )
                )
            return self._found[stretch]
