"""What was fetched before: sidecars in the memory of the process and on disk, and all caches of an open table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from coldparquet.storage.cache import CachedStore, RangeCache
from coldparquet.storage.disk_cache import DiskCache, DiskRanges, group_of
from coldparquet.storage.fsspec_store import FsspecStore
from coldparquet.storage.local import LocalStore

if TYPE_CHECKING:
    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.checked import CheckedStore

import asyncio
import json
import threading
import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from coldparquet.concurrency import run_to_end
from coldparquet.options import MIB
from coldparquet.storage.requests import is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Callable


_MEMORY_LIMIT_BYTES = 64 * MIB
"""Sidecars of about a thousand partitions; a process has one such memory, however many tables it opens."""

_ENTRY_OVERHEAD_BYTES = 512
"""What keeping track of one sidecar costs, about."""

_ENTRY = "sidecar"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSidecar:
    """A sidecar as it was fetched, up to its committed size; no byte of it is checked yet."""

    file: bytes | memoryview
    etag: str
    """Version of the object that it came from, an object store's."""
    confirmed_s: float
    """When the store last said that this is the newest version, in seconds since 1970."""


class SidecarMemory:
    """The sidecars that are kept in memory. Safe to use from several threads.

    Args:
        limit_bytes: Most that is held; what was used longest ago goes first.
    """

    def __init__(self, limit_bytes: int = _MEMORY_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._sidecars: OrderedDict[tuple[str, str], KeptSidecar] = OrderedDict()
        """By name of the store and path, in the order of their last use."""
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """How much is held, what keeping track costs included."""
        return self._held_bytes

    def find(self, store: str, path: str) -> KeptSidecar | None:
        """Return the sidecar at a path; None unless it is held."""
        with self._lock:
            kept = self._sidecars.get((store, path))
            if kept is not None:
                self._sidecars.move_to_end((store, path))
            return kept

    def keep(self, store: str, path: str, kept: KeptSidecar) -> None:
        """Keep a sidecar in place of the one at the same path."""
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
"""Of all tables that this process opens by their URLs."""


class SidecarCache:
    """What is kept of the sidecars of one table. Only versions of object stores are kept, so never local files.

    Args:
        store_name: Returns a name of the store that no other store has. It is asked each time: a store may learn with its first
            request where it is.
        memory: Where they are kept in memory; None for nowhere.
        disk: Where they are kept between runs; None for nowhere.
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
        """Return the sidecar at a path; None unless it is kept. No request."""
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
        """Keep a sidecar that the store has just sent, unless it has no lasting ETag."""
        if is_lasting_etag(etag):
            await self._keep(path, KeptSidecar(file=file, etag=etag, confirmed_s=self._clock()))

    async def confirm(self, path: str, kept: KeptSidecar) -> None:
        """Note that the store has just said that a kept sidecar is the newest one."""
        # On disk the time matters, and is worth a write, only to those who trust.
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
        """Make the caches that the options ask for; none for local files, which the system keeps in memory anyway.

        What other tables and processes share is kept only of stores that S3 or web URLs name: two others may have the same
        label, and yet be different ones.
        """
        if isinstance(store, LocalStore):
            return cls()
        is_shared = url is not None and not isinstance(store, FsspecStore)
        # What follows a question mark may choose another object, and may be a secret.
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
"""Nothing is remembered."""
