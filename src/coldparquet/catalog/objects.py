"""Finds out versions, storage classes and restore states of a table's data objects, by HEADs and listings."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from coldparquet.archive.objects import may_be_archived, needs_restore
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import AccessError, NotFoundError, UnsupportedError
from coldparquet.storage.log import note_metadata
from coldparquet.storage.requests import is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.cache import CachedStore
    from coldparquet.storage.requests import ObjectInfo
    from coldparquet.storage.versions import Versions


LEAST_SAVED_REQUESTS = 13
"""A listing costs as much as 12 GETs. Where it saves fewer, the GETs are cheaper, and not slower."""

_LISTED_TOGETHER = 250
"""Partitions whose versions one listing returns, at up to 4 objects each: S3 lists 1,000 at once."""


class ListedObjects:
    """The listings of one state of a table. Each stretch of partitions is listed once, for all callers.

    Args:
        store: The table's store.
        versions: Where to record what the listings show; None records it nowhere.
        on_listed: Called with the listed paths, and the directories that the listing was for.
        reason: What its requests are for, as plans say it.
        at_hand: What a listing of the whole table showed, by path; then no other is made.
        table_path: Directory of a table that is listed as a whole when the first directory is asked for: for callers that do not
            know which others will be.
    """

    def __init__(  # noqa: PLR0913 - mostly keyword arguments
        self,
        store: ObjectStore,
        *,
        versions: Versions | None = None,
        on_listed: Callable[[Collection[str], Collection[str]], None] | None = None,
        reason: str = "versions and storage classes",
        at_hand: Mapping[str, ObjectInfo] | None = None,
        table_path: str | None = None,
    ) -> None:
        self._store = store
        self._versions = versions
        self._on_listed = on_listed
        self._reason = reason
        self._at_hand = at_hand
        self._table_path = table_path
        self._stretches: dict[str, tuple[str, ...]] = {}
        """For each directory, the directories that are listed together with it."""
        self._turns: dict[tuple[str, ...], asyncio.Lock] = {}
        self._found: dict[tuple[str, ...], Mapping[str, ObjectInfo]] = {}

    def consider(self, directories: Collection[str], *, saved_requests: int) -> None:
        """Decide whether to list some directories."""
        if saved_requests >= LEAST_SAVED_REQUESTS:
            self.list_together(directories)

    def list_together(self, directories: Collection[str]) -> None:
        """Choose some directories for listings of many, which are made when the first of them is needed."""
        if self._at_hand is None and self._store.has_version_listings:
            self._form_stretches(directories)

    def is_worth_listing(self, directory: str) -> bool:
        """Tell whether a directory was chosen for a listing."""
        return self._at_hand is not None or directory in self._stretches

    def are_listed(self, directories: Collection[str]) -> bool:
        """Tell whether :meth:`below` sends no request for these directories."""
        return self._at_hand is not None or all(self._stretches.get(one) in self._found for one in directories)

    async def below(self, directories: Collection[str]) -> Mapping[str, ObjectInfo]:
        """List directories, and everything between them.

        Requests: 1 for 250 partitions, all at once; none for what was listed before.
        """
        if self._at_hand is not None:
            return self._at_hand
        self._form_stretches(directories)
        stretches = list(dict.fromkeys(self._stretches[directory] for directory in directories))
        listings = await gather_or_cancel([self._list(stretch) for stretch in stretches])
        if len(listings) == 1:
            return listings[0]
        return {path: info for listed in listings for path, info in listed.items()}

    def _form_stretches(self, directories: Collection[str]) -> None:
        if self._table_path is not None:
            self._stretches |= dict.fromkeys(directories, (self._table_path,))
            return
        # In the order in which objects are listed: "2024/" comes behind "2024-03-05/".
        new = sorted((one for one in directories if one not in self._stretches), key=lambda one: f"{one}/")
        for start in range(0, len(new), _LISTED_TOGETHER):
            stretch = tuple(new[start : start + _LISTED_TOGETHER])
            self._stretches |= dict.fromkeys(stretch, stretch)

    async def _list(self, stretch: tuple[str, ...]) -> Mapping[str, ObjectInfo]:
        first, last = stretch[0], stretch[-1]
        async with self._turns.setdefault(stretch, asyncio.Lock()):
            if stretch not in self._found:
                table_path = self._table_path or first.rpartition("/")[0]
                infos = await self._store.list_between(table_path, start=f"{first}/", stop=f"{last}/\U0010ffff")
                self._found[stretch] = found = {info.path: info for info in infos}
                if self._versions is not None:
                    self._versions.note_listed(infos, set(stretch))
                if self._on_listed is not None:
                    self._on_listed(found, stretch)
                note_metadata(table_path, None, self._reason, operation="list")
            return self._found[stretch]


class DataObjects:
    """Finds out the state of data objects, each once, except while the object is not readable yet.

    Args:
        store: The table's store. What is found out is in its registry of versions.
        listed: Listings of many objects at once; None makes listings for this purpose alone.
    """

    def __init__(self, store: CachedStore, *, listed: ListedObjects | None = None) -> None:
        self._store = store
        self._versions = store.versions
        self._listed = listed or ListedObjects(store, versions=store.versions)
        self._locks: dict[str, asyncio.Lock] = {}

    @property
    def can_be_asked(self) -> bool:
        """Whether the store has storage classes, so that a HEAD is worth a request."""
        return self._store.has_storage_classes

    async def head(self, paths: Iterable[str]) -> None:
        """Send HEADs for objects: 1 request for each that is not known to be readable, all at once.

        Where a listing of their directories pays off: 1 listing for 250 of them. HEADs then follow only for storage
        classes that a listing cannot prove readable.

        An object that is missing, or whose HEAD is refused, raises no error here: the later read reports it with more
        detail.
        """
        unique = tuple(dict.fromkeys(paths))
        await self._look_at_listed([path for path in unique if not self._versions.was_asked_for(path)])
        # Known objects get no task: thousands of tasks would take longer than all the rest.
        await gather_or_cancel([self._head(path) for path in unique if not self._is_known(path)])

    async def etag_of(self, path: str) -> str | None:
        """Return the version of an object, with the requests of :meth:`head`; None where the store tells no lasting one."""
        await self.head([path])
        info = self._versions.info(path)
        return info.etag if info is not None and is_lasting_etag(info.etag) else None

    async def _look_at_listed(self, paths: Sequence[str]) -> None:
        distrusted = self._versions.distrusted
        by_directory = {path.rpartition("/")[0]: path for path in paths if path not in distrusted}
        directories = [directory for directory in by_directory if self._listed.is_worth_listing(directory)]
        if not directories:
            return
        try:
            found = await self._listed.below(directories)
        except (AccessError, UnsupportedError):
            return
        for path in map(by_directory.__getitem__, directories):
            info = found.get(path)
            if info is not None and is_lasting_etag(info.etag) and not may_be_archived(info):
                self._versions.pin(path, info.etag)
                if not self._versions.was_asked_for(path):
                    self._versions.note(info)

    def _is_known(self, path: str) -> bool:
        """Tell whether the object is in a state that does not change."""
        return self._versions.was_asked_for(path) and not _may_have_changed(self._versions.info(path))

    async def _head(self, path: str) -> None:
        async with self._locks.setdefault(path, asyncio.Lock()):
            if self._is_known(path):
                return
            try:
                self._versions.note(await self._store.info(path))
            except (NotFoundError, AccessError) as error:
                self._versions.note_refused(path, is_missing=isinstance(error, NotFoundError))
            note_metadata(path, None, "storage class", operation="info")


def _may_have_changed(info: ObjectInfo | None) -> bool:
    """Tell whether the object's readability may have changed: a restored copy is kept for some days only."""
    if info is None:
        return False
    expires_s = None if info.restore is None else info.restore.expires_s
    return needs_restore(info) or (expires_s is not None and expires_s <= time.time())
