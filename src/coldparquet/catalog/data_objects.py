"""What a store says of the data objects of one state of a table: class, restore state, size and version."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import AccessError, NotFoundError
from coldparquet.plan.read_plan import MetadataRequest
from coldparquet.restoring.archive_state import needs_restore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet.storage.base import ObjectInfo, ObjectStore


class DataObjects:
    """Remembers each data object that was looked at once, unless it could not be read yet.

    Args:
        store: Where the table lies; a store that pins versions pins those that are seen here.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._looks: dict[str, asyncio.Lock] = {}
        self._seen: dict[str, ObjectInfo | None] = {}

    @property
    def can_be_asked(self) -> bool:
        """Whether the store has storage classes, so that looking is worth a request."""
        return self._store.has_storage_classes

    def keep(self, other: DataObjects, paths: Iterable[str]) -> None:
        """Take over what another state of the table has seen of some objects, which have not changed since.

        Args:
            other: What was seen there.
            paths: The objects.
        """
        self._seen |= {path: other._seen[path] for path in paths if path in other._seen}

    def info(self, path: str) -> ObjectInfo | None:
        """Return what was seen of an object; None where nobody has looked, or nothing was found."""
        return self._seen.get(path)

    def note(self, info: ObjectInfo) -> None:
        """Take what somebody else has seen of an object meanwhile."""
        self._seen[info.path] = info

    async def look_at(self, paths: Iterable[str], spent: list[MetadataRequest]) -> None:
        """Look at objects: 1 request for each that was not seen in a state in which it can be read, all at once.

        An object that is not there, or may not be looked at, is left to whoever reads it, who can say more about it.

        Args:
            paths: The objects.
            spent: Gets the requests.

        Raises:
            StorageError: The store failed.
        """
        await gather_or_cancel([self._look(path, spent) for path in dict.fromkeys(paths)])

    async def _look(self, path: str, spent: list[MetadataRequest]) -> None:
        async with self._looks.setdefault(path, asyncio.Lock()):
            if path in self._seen and not _may_have_changed(self._seen[path]):
                return
            try:
                self._seen[path] = await self._store.info(path)
            except (NotFoundError, AccessError):
                self._seen[path] = None
            spent.append(
                MetadataRequest(path=path, byte_range=None, reason="storage class", fetched_bytes=0, operation="info")
            )


def _may_have_changed(info: ObjectInfo | None) -> bool:
    """Tell whether the object may be readable by now, or not any more: a restored copy stays for some days only."""
    if info is None:
        return False
    expires_s = None if info.restore is None else info.restore.expires_s
    return needs_restore(info) or (expires_s is not None and expires_s <= time.time())
