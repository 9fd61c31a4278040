"""What an open table remembers of its store: from one question to the next, and from one state to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from coldparquet.catalog.sidecar_cache import PROCESS_MEMORY, SidecarCache, SidecarMemory
from coldparquet.storage.cached_store import CachedStore
from coldparquet.storage.disk_cache import DiskCache
from coldparquet.storage.disk_ranges import DiskRanges
from coldparquet.storage.local import LocalStore
from coldparquet.storage.range_cache import RangeCache

if TYPE_CHECKING:
    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.checked import CheckedStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCaches:
    """The caches of one open table; refreshing the table keeps them."""

    ranges: RangeCache | None = None
    disk_ranges: DiskRanges | None = None
    sidecars: SidecarCache | None = None

    @classmethod
    def of(cls, store: ObjectStore, store_options: StoreOptions, *, is_callers_store: bool) -> Self:
        """Make the caches that the options ask for; none for local files, which the system keeps in memory anyway.

        Args:
            store: Where the table lies.
            store_options: How much to keep.
            is_callers_store: Whether the store was not made from a URL: two such stores may have the same label and yet be
                different ones, so that what is kept of one is not for the other.
        """
        if isinstance(store, LocalStore):
            return cls()
        disk = None
        if store_options.cache_directory is not None:
            disk = DiskCache(store_options.cache_directory, limit_bytes=store_options.cache_directory_limit_bytes)
        memory = None
        if store_options.cache_limit_bytes:
            memory = SidecarMemory() if is_callers_store else PROCESS_MEMORY
        return cls(
            ranges=RangeCache(store_options.cache_limit_bytes),
            disk_ranges=None if disk is None else DiskRanges(disk),
            sidecars=SidecarCache(store, memory=memory, disk=disk, trust_s=store_options.sidecar_trust_s),
        )

    def above(self, store: CheckedStore) -> CachedStore:
        """Make the store of one state of the table.

        Args:
            store: Pins the versions of this state.
        """
        return CachedStore(store, ranges=self.ranges, disk=self.disk_ranges)


NO_CACHES = TableCaches()
"""Nothing is remembered."""
