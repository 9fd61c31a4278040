"""The caches of an open table: of ranges, and of whole sidecars that may be trusted for a while."""

from __future__ import annotations

import asyncio
import os
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

from msgspec import Struct

from coldparquet.options import MIB
from coldparquet.records import replace
from coldparquet.storage.cache import Cache, CachedStore, MemoryCache, digest_of
from coldparquet.storage.fsspec_store import FsspecStore
from coldparquet.storage.local import LocalStore
from coldparquet.storage.requests import FetchedRange

if TYPE_CHECKING:
    from collections.abc import Callable
    from functools import _lru_cache_wrapper

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.checked import CheckedStore
    from coldparquet.storage.disk_cache import DiskCache


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_MEMORY_LIMIT_BYTES = 64 * MIB
"""Holds the sidecars of about a thousand partitions; a process has one such memory for all of its tables."""

PROCESS_SIDECARS = MemoryCache(_MEMORY_LIMIT_BYTES)
"""Holds the sidecars of all tables that this process opens by URL."""

PROCESS_RANGES = MemoryCache(128 * MIB)
"""Holds the fetched ranges of all tables that this process opens by URL, unless they have a memory of their own."""


_MOST_TABLES = 256

_newest: dict[tuple[str, str], PartitionLocation] = {}
"""By the names of a store and a table: its newest partition, as this process has seen it last."""


def clear_caches() -> None:
    """Free the memory in which this process keeps what it fetched: sidecars, and ranges of Parquet files.

    Tables that are open stay valid, and fetch again what they need. What ``StoreOptions.cache_directory`` keeps on disk stays.
    """
    PROCESS_SIDECARS.clear()
    PROCESS_RANGES.clear()
    _newest.clear()
    for results in _remembered:
        results.cache_clear()


_remembered: list[_lru_cache_wrapper[Any]] = []


def remembered(function: Callable[Arguments, Result], *, most: int) -> Callable[Arguments, Result]:
    """Make a function that returns the same object as before if it is given the same bytes again, until :func:`clear_caches`.

    Args:
        function: What is called where no result is kept. Its errors are not kept.
        most: Number of results that are kept; those used longest ago go first.
    """
    results = lru_cache(most)(function)
    _remembered.append(results)
    return cast("Callable[Arguments, Result]", results)


if hasattr(os, "register_at_fork"):
    for _memory in (PROCESS_SIDECARS, PROCESS_RANGES):
        os.register_at_fork(after_in_child=_memory.start_anew_after_fork)


class SidecarCache:
    """The cached sidecars of one table, each kept as a whole.

    Args:
        cache: Where they are kept.
        trust_s: How long a sidecar is used without asking the store whether it is still the newest.
        clock: Seconds since 1970.
    """

    def __init__(self, cache: Cache, *, trust_s: float, clock: Callable[[], float] = time.time) -> None:
        self._cache = cache
        self._trust_s = trust_s
        self._clock = clock

    async def find(self, path: str) -> FetchedRange | None:
        """Return the sidecar at a path up to its committed size, unchecked; None unless it is cached. No request."""
        return await self._cache.find(path, None)

    def is_trusted(self, kept: FetchedRange) -> bool:
        """Tell whether a sidecar may be used without asking the store."""
        return 0 <= self._clock() - kept.confirmed_s < self._trust_s

    def keep(self, path: str, file: bytes | memoryview, etag: str | None) -> None:
        """Cache a sidecar that the store has just sent, unless it has no lasting ETag."""
        kept = FetchedRange(data=bytes(file), start=0, etag=etag, object_size_bytes=len(file))
        self._cache.keep(path, replace(kept, confirmed_s=self._clock()))

    def confirm(self, path: str, kept: FetchedRange) -> None:
        """Record that the store has just confirmed a cached sidecar as the newest one."""
        # On disk the time is worth a write only if sidecars are trusted for a while.
        self._cache.keep(path, replace(kept, confirmed_s=self._clock()), on_disk=self._trust_s > 0)

    def describes(self, path: str, kept: FetchedRange, data_etag: str | None) -> bool:
        """Tell whether a cached sidecar was lately found to describe a version of its Parquet object, by who asks now."""
        return kept.beside_etag is not None and kept.beside_etag == data_etag and self._cache.was_read(path, kept.etag)

    def note_beside(self, path: str, etag: str | None, data_etag: str) -> None:
        """Record which version of its Parquet object a cached sidecar describes: while that is there, the sidecar is valid."""
        self._cache.note_beside(path, etag, data_etag)

    async def forget(self, path: str) -> None:
        """Drop the sidecar at a path from memory. One on disk is used if the store confirms it."""
        await self.distrust(path)
        self._cache.forget(path)

    async def distrust(self, path: str) -> None:
        """Ask the store before the sidecar at a path is used again: its data turned out to be another file's."""
        kept = await self.find(path)
        if kept is not None and self.is_trusted(kept):
            self._cache.keep(path, replace(kept, confirmed_s=0.0))


class TableCaches(Struct, frozen=True, kw_only=True):
    """The caches of one open table; refreshing the table keeps them."""

    ranges: Cache | None = None
    sidecars: SidecarCache | None = None
    disk: DiskCache | None = None
    store_name: Callable[[], str] | None = None
    """Of a store whose tables are remembered; see :class:`~coldparquet.storage.cache.Cache`."""

    @classmethod
    def of(cls, store: ObjectStore, store_options: StoreOptions, *, url: str | None) -> Self:
        """Make the caches that the options request; none for local files, which the operating system caches.

        Caches shared with other tables and processes are used only for stores named by S3 or web URLs: two other stores
        may have the same label.
        """
        if isinstance(store, LocalStore):
            return cls()
        is_shared = url is not None and not isinstance(store, FsspecStore)
        # The query string may select another object, and may be a secret.
        query = "" if url is None else url.partition("?")[2]
        suffix = f" {digest_of(query).hex()}" if query else ""

        def store_name() -> str:
            return store.label + suffix

        disk = None
        if is_shared and store_options.cache_directory is not None:
            from coldparquet.storage.disk_cache import DiskCache  # noqa: PLC0415 - SQLite is for those who keep on disk

            disk = DiskCache(store_options.cache_directory, limit_bytes=store_options.cache_directory_limit_bytes)
        limit_bytes = store_options.cache_limit_bytes
        if limit_bytes is None and is_shared:
            ranges = PROCESS_RANGES
        else:
            ranges = MemoryCache(_MEMORY_LIMIT_BYTES if limit_bytes is None else limit_bytes)
        sidecars = PROCESS_SIDECARS if is_shared else MemoryCache(_MEMORY_LIMIT_BYTES)
        return cls(
            ranges=Cache("range", store_name, memory=ranges, disk=disk, reader=lambda: store.reader),
            sidecars=SidecarCache(
                Cache(
                    "sidecar",
                    store_name,
                    memory=sidecars if ranges.limit_bytes else MemoryCache(0),
                    disk=disk,
                    reader=lambda: store.reader,
                ),
                trust_s=store_options.sidecar_trust_s,
            ),
            disk=disk,
            store_name=store_name if is_shared and ranges.limit_bytes else None,
        )

    def newest_of(self, table_path: str) -> PartitionLocation | None:
        """Return which partition of a table was the newest when this process last saw it."""
        return None if self.store_name is None else _newest.get((self.store_name(), table_path))

    def note_newest(self, table_path: str, location: PartitionLocation) -> None:
        """Remember it for the next opening."""
        if self.store_name is not None:
            table = self.store_name(), table_path
            _newest.pop(table, None)
            _newest[table] = location
            for oldest in list(_newest)[:-_MOST_TABLES]:
                _newest.pop(oldest, None)

    def above(self, store: CheckedStore) -> CachedStore:
        """Make the store of one state of the table."""
        return CachedStore(store, self.ranges)

    async def aclose(self) -> None:
        """Close the cache on disk."""
        if self.disk is not None:
            await asyncio.to_thread(self.disk.close)


NO_CACHES = TableCaches()
"""Caches nothing."""
