"""Validates the entries of a table's catalogue: all sidecars in one object, which ``coldparquet pack`` writes.

The catalogue is optional. An entry is valid only if it agrees with all that is known of its partition; any problem
becomes a note. Partitions without a valid entry are planned from their own sidecars.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coldparquet.catalog.objects import LEAST_SAVED_REQUESTS, ListedObjects
from coldparquet.catalog.packed import (
    CATALOGUE_FILE,
    PackedBlooms,
    PackedLookup,
    contradictions,
    may_count,
    read_entries,
    read_ranges,
)
from coldparquet.concurrency import both
from coldparquet.storage.requests import is_lasting_etag
from coldparquet.storage.versions import AS_IT_IS
from coldparquet.text import few_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coldparquet.catalog.packed import CatalogueFile
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.ranges import ByteRange
    from coldparquet.storage.cache import CachedStore


class Catalogue:
    """The catalogue of one state of a table.

    An entry is valid if the transaction records the same directory, size and rows for the partition: QuestDB rewrites a
    partition in another directory, or at another size. Without a transaction, a listing must show that both objects of
    the partition are the packed versions. Stores without such listings have no catalogue
    (:class:`~coldparquet.catalog.snapshot.SnapshotReader`).

    Args:
        file: The fetched catalogue.
        store: Where its blocks are fetched from.
        listed: Lists the versions of objects; None makes listings for this catalogue alone.
        is_asked_for: Whether the user named its place, so that a missing one is told, and its entries are always read.
    """

    def __init__(
        self,
        file: CatalogueFile,
        store: CachedStore,
        *,
        listed: ListedObjects | None = None,
        is_asked_for: bool = False,
    ) -> None:
        self.file = file
        self._store = store
        self._versions = store.versions
        if file.index is not None and is_lasting_etag(file.etag):
            self._versions.of(file.path).confirm(
                AS_IT_IS, file.etag
            )  # it was fetched, or found unchanged, for this state
        self._listed = listed or ListedObjects(store, versions=store.versions)
        self.blooms = PackedBlooms(file, store)
        """The bloom filters of the catalogue."""
        self.is_asked_for = is_asked_for
        """Whether the user named its place."""
        self._entries: dict[str, PackedLookup] = {}
        """By partition: usable entries that were read, whether or not they are stale."""
        self._reading = asyncio.Lock()
        """Held while entries are fetched and parsed."""
        self.lock = asyncio.Lock()
        """Held while the metadata of many partitions is read, so that no other task reads the same."""

    @property
    def says_no_pages_files(self) -> bool:
        """Whether no partition had a ``_pages`` beside it."""
        index = self.file.index
        return index is not None and len(index.has_pages) > 0 and not index.has_pages.any()

    def notes_about(self, locations: Sequence[PartitionLocation]) -> tuple[str, ...]:
        """Say why the catalogue is not used, or for which of these partitions, and what to do; empty without a catalogue."""
        if self.file.index is None and self.file.problem is None and self.is_asked_for:
            return (
                f"there is no index at {self.file.path}, which ReadOptions.index names; 'coldparquet index' writes one",
            )
        has_sidecars = any(location.sidecar_path is not None for location in locations)
        verb = "pack" if has_sidecars and not self.is_asked_for else "index"
        advice = "" if self.file.problem is not None else f"; 'coldparquet {verb}' writes it anew"
        return tuple(f"{problem}{advice}" for problem in self.problems(locations))

    def problems(self, locations: Sequence[PartitionLocation]) -> tuple[str, ...]:
        """Say why the catalogue is not used, or for which of these partitions; empty where there is none."""
        index = self.file.index
        if self.file.problem is not None:
            return (f"{CATALOGUE_FILE} is not used: {self.file.problem}",)
        if index is None:
            return ()
        in_parquet = [location for location in locations if not location.is_native]
        others = [location.name for location in in_parquet if not may_count(index, location)]
        if not others:
            return ()
        instead = "own sidecars" if any(one.sidecar_path is not None for one in in_parquet) else "footers"
        lacking = f"{CATALOGUE_FILE} has no entry of this state of {len(others):,} of {len(in_parquet):,} partitions"
        return (f"{lacking} ({few_names(others)}), whose {instead} are read",)

    async def look_up(self, locations: Sequence[PartitionLocation]) -> dict[str, PackedLookup]:
        """Return the valid entries of partitions by name; partitions without one are omitted.

        Requests: those of :meth:`entries` and :meth:`stale`, in parallel.
        """
        wanted = self.wanted(locations)
        if not wanted:
            return {}
        entries, stale = await both(self.entries(wanted), self.stale(wanted))
        return self.valid(wanted, entries, stale)

    def wanted(self, locations: Sequence[PartitionLocation]) -> list[PartitionLocation]:
        """Return the partitions whose entries are worth reading.

        Without a transaction, a listing must show their versions. Where that is neither cheaper nor faster than their
        own sidecars (:class:`~coldparquet.catalog.objects.ListedObjects`), their entries are left alone.
        """
        wanted = [location for location in locations if self.has_entry(location)]
        unconfirmed = sum(location.committed_size_bytes is None for location in wanted)
        if unconfirmed >= LEAST_SAVED_REQUESTS or self.is_asked_for:
            return wanted
        return [
            location
            for location in wanted
            if location.committed_size_bytes is not None or self._listed.is_worth_listing(location.directory_path)
        ]

    async def entries(self, wanted: Sequence[PartitionLocation]) -> dict[str, PackedLookup]:
        """Read entries, some of which may be stale, once. All are fetched, decompressed and parsed together, in a thread.

        Requests: none where the first one returned the sidecars, else few for all of them, in one round trip.
        """
        if self.file.index is None or not wanted:
            return {}
        found = self._read_entries(wanted)
        if len(found) < len(wanted):
            async with self._reading:
                found = self._read_entries(wanted)  # another task may have read them meanwhile
                unread = [location for location in wanted if location.name not in found]
                read = await read_entries(self.file, self.file.index, unread, store=self._store) if unread else {}
            found |= read
            self._entries |= {name: entry for name, entry in read.items() if entry.sidecar is not None}
        return found

    def _read_entries(self, wanted: Sequence[PartitionLocation]) -> dict[str, PackedLookup]:
        entries = self._entries
        return {location.name: entries[location.name] for location in wanted if location.name in entries}

    def pages_range(self, name: str) -> ByteRange | None:
        """Return where the pages of a partition lie in it, which may be those of another version; None where it does not say."""
        return None if self.file.index is None else self.file.index.pages_range(name)

    async def pages_of(self, names: Iterable[str]) -> dict[str, bytes]:
        """Read what the catalogue says of the pages of partitions; those of which it says nothing are omitted. Few requests."""
        places = {name: self.pages_range(name) for name in names}
        wanted = {name: place for name, place in places.items() if place is not None and place.length_bytes}
        found = await read_ranges(self.file, list(wanted.values()), store=self._store)
        return {name: bytes(data) for name, data in zip(wanted, found, strict=True)}

    async def stale(self, wanted: Sequence[PartitionLocation]) -> dict[str, str | None]:
        """Return which of these entries are stale, and why.

        Requests: without a transaction 1 listing for 250 partitions.
        """
        unconfirmed = [location for location in wanted if location.committed_size_bytes is None]
        if self.file.index is None:
            return {}
        return await contradictions(self.file.index, unconfirmed, self._listed)

    def waits_for_listing(self, locations: Sequence[PartitionLocation]) -> bool:
        """Tell whether :meth:`stale` sends requests for those of these partitions that are :meth:`wanted`."""
        if self.file.index is None:
            return False
        unconfirmed = [one.directory_path for one in self.wanted(locations) if one.committed_size_bytes is None]
        return not self._listed.are_listed(unconfirmed)

    def valid(
        self,
        wanted: Sequence[PartitionLocation],
        entries: Mapping[str, PackedLookup],
        stale: Mapping[str, str | None],
    ) -> dict[str, PackedLookup]:
        """Leave the problem of each stale entry in its place, and expect of data objects the versions of the others."""
        found = {**entries, **{name: PackedLookup(sidecar=None, problem=problem) for name, problem in stale.items()}}
        for location in wanted:
            if found[location.name].sidecar is not None:
                self._versions.expect_packed(location.data_path, found[location.name].data_etag)
        return found

    async def of_other_columns(self, locations: Sequence[PartitionLocation]) -> tuple[list[Sidecar], bool]:
        """Return a sidecar for each list of columns that partitions have, newest first, but for that of the newest one.

        The second is whether every entry is of the file that is there: others may have columns that no entry tells.

        Requests: those of :meth:`stale` and :meth:`entries`; the latter none where all have the same columns.
        """
        index = self.file.index
        if index is None or not locations:
            return [], False
        counted = [location for location in locations if self.has_entry(location)]
        stale = await self.stale(counted)
        newest, known = locations[-1].name, {0}
        if newest in index.entry_of and newest not in stale:
            known.add(int(index.column_lists[index.entry_of[newest]]))
        first_of: dict[int, PartitionLocation] = {}
        for location in reversed(counted):
            number = int(index.column_lists[index.entry_of[location.name]])
            if number not in known and location.name not in stale:
                first_of.setdefault(number, location)
        entries = await self.entries(list(first_of.values()))
        return [entry.sidecar for entry in entries.values() if entry.sidecar is not None], not stale

    def saved_by_listing(self, locations: Iterable[PartitionLocation]) -> int:
        """Count the partitions that would use their entries instead of sidecars if a listing showed their versions."""
        return sum(location.committed_size_bytes is None and self.has_entry(location) for location in locations)

    def is_contradicted_by(self, location: PartitionLocation) -> bool:
        """Tell whether a partition's own sidecar, if it was read, is another version than the packed one."""
        index = self.file.index
        if index is None or location.sidecar_path is None or location.name not in index.entry_of:
            return False
        packed = index.sidecar_etags[index.entry_of[location.name]]
        etag = self._versions.lasting_etag(location.sidecar_path)
        return etag is not None and packed is not None and etag != packed

    def has_version_of(self, location: PartitionLocation) -> bool:
        """Tell whether an entry is of the Parquet file version that is read, even if its own sidecar was read, too."""
        index = self.file.index
        if index is None or not self.has_entry(location):
            return False
        packed_etag = index.data_etags[index.entry_of[location.name]]
        path, versions = location.data_path, self._versions
        is_read = packed_etag is not None and packed_etag == (versions.lasting_etag(path) or versions.packed_etag(path))
        return is_read or location.committed_size_bytes is not None

    def rows_at_hand(self, location: PartitionLocation) -> int | None:
        """Return the rows of a partition by its entry, which may be stale; None without one. No request."""
        index = self.file.index
        if index is None or not self.has_entry(location):
            return None
        return int(index.row_counts[index.entry_of[location.name]])

    def has_entry(self, location: PartitionLocation) -> bool:
        """Tell whether there is an entry of a partition that may be of its state."""
        index = self.file.index
        return index is not None and location.data_path not in self._versions.distrusted and may_count(index, location)

    def distrust(self, data_path: str) -> None:
        """Discard the entry of a partition whose Parquet file turned out to be another one."""
        self._versions.distrusted.add(data_path)
        self._versions.expect_packed(data_path, None)
