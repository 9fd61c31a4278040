"""Caches what was fetched before: sidecars in process memory and on disk, and all caches of an open table."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Self

from coldparquet.concurrency import run_to_end
from coldparquet.options import MIB
from coldparquet.storage.cache import CachedStore, RangeCache
from coldparquet.storage.disk_cache import DiskCache, DiskRanges, group_of
from coldparquet.storage.fsspec_store import FsspecStore
from coldparquet.storage.local import LocalStore
from coldparquet.storage.requests import is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.checked import CheckedStore


_MEMORY_LIMIT_BYTES = 64 * MIB
"""Holds the sidecars of about a thousand partitions; a process has one such memory for all of its tables."""

_ENTRY_OVERHEAD_BYTES = 512
"""Approximate memory for the bookkeeping of one sidecar."""

_ENTRY = "sidecar"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSidecar:
    """A sidecar as it was fetched, up to its committed size; no byte of it is checked yet."""

    file: bytes | memoryview
    etag: str
    """ETag of the object, from an object store."""
    confirmed_s: float
    """When the store last confirmed that this is the newest version, in seconds since 1970."""


class SidecarMemory:
    """Caches sidecars in memory. Safe to use from several threads.

    Args:
        limit_bytes: Memory limit; the least recently used sidecars are evicted first.
    """

    def __init__(self, limit_bytes: int = _MEMORY_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._sidecars: OrderedDict[tuple[str, str], KeptSidecar] = OrderedDict()
        """By name of the store and path, least recently used first."""
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """Memory in use, bookkeeping included."""
        return self._held_bytes

    def find(self, store: str, path: str) -> KeptSidecar | None:
        """Return the sidecar at a path; None unless it is cached."""
        with self._lock:
            kept = self._sidecars.get((store, path))
            if kept is not None:
                self._sidecars.move_to_end((store, path))
            return kept

    def keep(self, store: str, path: str, kept: KeptSidecar) -> None:
        """Cache a sidecar, replacing one at the same path."""
        with self._lock:
            earlier = self._sidecars.pop((store, path), None)
            self._held_bytes -= 0 if earlier is None else _held_bytes_of(earlier)
            if _held_bytes_of(kept) > self._limit_bytes:
                return
            self._sidecars[store, path] = kept
            self._held_bytes += _held_bytes_of(kept)
            while self._held_bytes > self._limit_bytes:
                self._held_bytes -= _held_bytes_of(self._sidecars.popitem(last=False)[1])


PROCESS_MEMORY = SidecarMemory()
"""Shared by all tables that this process opens by URL."""


class SidecarCache:
    """The cached sidecars of one table. Only object stores have lasting versions, so local files are never cached.

    Args:
        store_name: Returns a unique name of the store. Called each time: a store may learn its location with its first
            request.
        memory: The memory cache; None for none.
        disk: The cache that outlives the process; None for none.
        trust_s: How long a sidecar is used without asking the store whether it is still the newest.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        store_name: Callable[[], str],
        *,
        memory: SidecarMemory | None,
        disk: DiskCache | None,
        trust_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store_name = store_name
        self._memory = memory
        self._disk = disk
        self._trust_s = trust_s
        self._clock = clock

    async def find(self, path: str) -> KeptSidecar | None:
        """Return the sidecar at a path; None unless it is cached. No request."""
        kept = None if self._memory is None else self._memory.find(self._store_name(), path)
        if kept is None and self._disk is not None:
            kept = await asyncio.to_thread(_read, self._disk, group_of(self._store_name(), path))
            if kept is not None and self._memory is not None:
                self._memory.keep(self._store_name(), path, kept)
        return kept

    def is_trusted(self, kept: KeptSidecar) -> bool:
        """Tell whether a sidecar may be used without asking the store."""
        return 0 <= self._clock() - kept.confirmed_s < self._trust_s

    async def keep(self, path: str, *, file: bytes | memoryview, etag: str | None) -> None:
        """Cache a sidecar that the store has just sent, unless it has no lasting ETag."""
        if is_lasting_etag(etag):
            await self._keep(path, KeptSidecar(file=file, etag=etag, confirmed_s=self._clock()))

    async def confirm(self, path: str, kept: KeptSidecar) -> None:
        """Record that the store has just confirmed a cached sidecar as the newest one."""
        # On disk the time is worth a write only if sidecars are trusted for a while.
        await self._keep(path, replace(kept, confirmed_s=self._clock()), on_disk=self._trust_s > 0)

    async def distrust(self, path: str) -> None:
        """Ask the store before the sidecar at a path is used again: its data turned out to be another file's."""
        kept = await self.find(path)
        if kept is not None and self.is_trusted(kept):
            await self._keep(path, replace(kept, confirmed_s=0.0))

    async def _keep(self, path: str, kept: KeptSidecar, *, on_disk: bool = True) -> None:
        if self._memory is not None:
            self._memory.keep(self._store_name(), path, kept)
        if self._disk is not None and on_disk:
            write = partial(_write, self._disk, group_of(self._store_name(), path), kept)
            await run_to_end(lambda _: write())


def _held_bytes_of(kept: KeptSidecar) -> int:
    return len(kept.file) + _ENTRY_OVERHEAD_BYTES


def _write(disk: DiskCache, group: str, kept: KeptSidecar) -> None:
    facts = {"etag": kept.etag, "size_bytes": len(kept.file), "confirmed_s": kept.confirmed_s}
    disk.write(group, _ENTRY, json.dumps(facts).encode() + b"\n" + kept.file)


def _read(disk: DiskCache, group: str) -> KeptSidecar | None:
    content = disk.read(group, _ENTRY)
    if content is None:
        return None
    line, _, file = content.partition(b"\n")
    try:
        facts = json.loads(line)
        etag, size_bytes, confirmed_s = facts["etag"], facts["size_bytes"], float(facts["confirmed_s"])
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(etag, str) or not is_lasting_etag(etag) or size_bytes != len(file):
        return None
    return KeptSidecar(file=file, etag=etag, confirmed_s=confirmed_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCaches:
    """The caches of one open table; refreshing the table keeps them."""

    ranges: RangeCache | None = None
    disk_ranges: DiskRanges | None = None
    sidecars: SidecarCache | None = None

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
        suffix = f" {group_of(query)}" if query else ""

        def store_name() -> str:
            return store.label + suffix

        disk = None
        if is_shared and store_options.cache_directory is not None:
            disk = DiskCache(store_options.cache_directory, limit_bytes=store_options.cache_directory_limit_bytes)
        memory = None
        if store_options.cache_limit_bytes:
            memory = PROCESS_MEMORY if is_shared else SidecarMemory()
        return cls(
            ranges=RangeCache(store_options.cache_limit_bytes),
            disk_ranges=None if disk is None else DiskRanges(disk, store_name=store_name),
            sidecars=SidecarCache(store_name, memory=memory, disk=disk, trust_s=store_options.sidecar_trust_s),
        )

    def above(self, store: CheckedStore) -> CachedStore:
        """Make the store of one state of the table."""
        return CachedStore(store, ranges=self.ranges, disk=self.disk_ranges)


NO_CACHES = TableCaches()
"""Caches nothing."""
