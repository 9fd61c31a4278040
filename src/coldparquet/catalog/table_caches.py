"""What an open table remembers of its store: from one question to the next, and from one state to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from coldparquet.catalog.sidecar_cache import PROCESS_MEMORY, SidecarCache, SidecarMemory
from coldparquet.storage.caches.cached_store import CachedStore
from coldparquet.storage.caches.disk_cache import DiskCache, group_of
from coldparquet.storage.caches.disk_ranges import DiskRanges
from coldparquet.storage.caches.range_cache import RangeCache
from coldparquet.storage.fsspec_store import FsspecStore
from coldparquet.storage.local.store import LocalStore

if TYPE_CHECKING:
    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.wrappers.checked import CheckedStore


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

        Args:
            store: Where the table lies.
            store_options: How much to keep.
            url: What the store was made from; None if the caller made it.
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
        """Make the store of one state of the table.

        Args:
            store: Pins the versions of this state.
        """
        return CachedStore(store, ranges=self.ranges, disk=self.disk_ranges)


NO_CACHES = TableCaches()
"""Nothing is remembered."""
