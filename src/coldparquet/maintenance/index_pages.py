"""Writing the ``_pages`` files, so that pages can be left out without asking the Parquet file where they are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from coldparquet.catalog.pages import PAGES_FILE, look_up_pages_file, parse_pages_lookup, read_page_index
from coldparquet.catalog.partition import Partition
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import AccessError, ArchivedObjectError, ColdParquetError, NotFoundError
from coldparquet.format.page_headers import WINDOW_BYTES, ChunkWalk, check_walked_pages
from coldparquet.format.page_index import encode_pages_file, stated_etag
from coldparquet.format.pages import chunk_places, join_pages
from coldparquet.options import KIB
from coldparquet.ranges import ByteRange
from coldparquet.storage.requests import RangeRequest, is_lasting_etag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.pages import ChunkPlaces, PagesFound, PartitionPages
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.storage.base import ObjectStore

PagesAction = Literal["written", "would write", "kept", "skipped", "failed"]

_GAP_BYTES = 128 * KIB
"""Chunks that lie no further apart are read in one request."""

_WINDOWS_AT_ONCE = 8
"""Of all partitions; each holds up to ``WINDOW_BYTES`` in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedPages:
    """What became of the ``_pages`` of one partition."""

    action: PagesAction
    """``kept`` is one that describes the file already, ``skipped`` a file of which no pages are known."""
    size_bytes: int | None = None
    """Size of the ``_pages`` that exists now, or would; None where there is none."""
    chunks_known: int = 0
    """Column chunks whose pages it describes."""
    chunk_count: int = 0
    """Column chunks of the Parquet file."""
    reason: str | None = None
    """Why it was skipped or failed, or why some chunks are not in it; and what became of an old one then."""


class PagesIndexer:
    """Writes the ``_pages`` of one partition after the other.

    Args:
        store: Where the partitions lie; it should pin versions.
        options: How to read.
        force: Also write those anew that describe their Parquet file already.
        dry_run: Write nothing, but find all pages.
        window_slots: Shared by several that work at the same time, so that they hold no more in memory than one does.
    """

    def __init__(
        self,
        store: ObjectStore,
        options: ReadOptions,
        *,
        force: bool,
        dry_run: bool,
        window_slots: asyncio.Semaphore | None = None,
    ) -> None:
        self._store = store
        self._options = options
        self._force = force
        self._dry_run = dry_run
        self._slots = window_slots or make_window_slots()

    async def index(self, location: PartitionLocation) -> IndexedPages:
        """Write the pages of one Parquet partition; only bugs raise.

        One that exists is kept if it describes the file: the ETag of the Parquet object is the one that it was made for,
        or, where there are none to compare, the file was not written after it, as far as the store tells times. One that
        does not, and cannot be replaced because nothing is known of the pages of the file, is removed; so is any that
        ``force`` fails to replace.

        Requests: those for its metadata; 1 or 2 that look for ``_pages``, unless all are replaced, and 1 or 2 that compare
        its version with that of the Parquet file; 1 for the page index of
        the Parquet file, and few more for that of row groups from before an update; where some of its chunks have none,
        their pages are read, in requests of 8 MiB at most, of which those of all partitions together hold 64 MiB at
        once; and 1 that writes.
        """
        try:
            return await self._index(location)
        except ColdParquetError as error:
            file_name = (error.path or location.data_path).rpartition("/")[2]
            # A sidecar was written for the file as it is now, and would vouch for an old description of it.
            removed = await self._remove(location) if self._force else ()
            is_archived = isinstance(error, ArchivedObjectError) and not self._force
            reason = "; ".join((f"{file_name}: {error.message}", *removed))
            return IndexedPages(action="skipped" if is_archived else "failed", reason=reason)

    async def renew(self, location: PartitionLocation) -> IndexedPages | None:
        """Write the pages of one Parquet partition if it has a ``_pages``; otherwise return None. Only bugs raise.

        Requests: 1 that looks for ``_pages``, then those of :meth:`index`.
        """
        try:
            await self._store.info(_pages_path(location))
        except (NotFoundError, AccessError):  # S3 refuses to tell of absent objects where listing is not allowed
            return None
        except ColdParquetError as error:
            return IndexedPages(action="failed", reason=f"{PAGES_FILE}: {error.message}")
        return await self.index(location)

    async def _index(self, location: PartitionLocation) -> IndexedPages:
        sidecar = (await Partition(location, self._store, self._options).metadata()).sidecar
        if not self._force:
            lookup = await look_up_pages_file(self._store, location)
            there = (await parse_pages_lookup(lookup, sidecar)).pages
            if there is not None and lookup.data is not None and await self._is_current(location, lookup.data):
                return _described(there, action="kept", size_bytes=len(lookup.data), notes=())
        places = await asyncio.to_thread(chunk_places, sidecar)
        indexed = await read_page_index(self._store, location, sidecar, also_earlier=True)
        pages, notes = indexed.pages, indexed.notes
        missing = _unknown_chunks(pages, places)
        if missing:
            walked = await self._walk(location, sidecar, places, missing)
            notes = walked.notes
            if walked.pages is not None:
                pages = walked.pages if pages is None else join_pages(pages, walked.pages)
        if pages is None:
            reasons = (
                *(notes or (_why_no_pages(sidecar, places),)),
                *await self._remove(location),
            )
            return IndexedPages(action="skipped", chunk_count=places.chunk_count, reason="; ".join(reasons))
        data = await asyncio.to_thread(
            encode_pages_file,
            pages,
            places,
            parquet_size_bytes=sidecar.parquet_size_bytes,
            etag=indexed.etag if is_lasting_etag(indexed.etag) else "",
        )
        if not self._dry_run:
            await self._store.put(_pages_path(location), data, overwrite=True)
        action: PagesAction = "would write" if self._dry_run else "written"
        return _described(pages, action=action, size_bytes=len(data), notes=notes)

    async def _is_current(self, location: PartitionLocation, pages_file: bytes) -> bool:
        """Tell whether the Parquet file is still the one that its ``_pages`` was made for, as far as the store knows."""
        parquet, described = await self._store.info(location.data_path), stated_etag(pages_file)
        if described is not None and is_lasting_etag(parquet.etag):
            return parquet.etag == described
        if parquet.modified_s is None:
            return True
        written_s = (await self._store.info(_pages_path(location))).modified_s
        return written_s is None or parquet.modified_s <= written_s

    async def _remove(self, location: PartitionLocation) -> tuple[str, ...]:
        """Remove a ``_pages`` that nothing replaces, and say so; nothing is said where there is none. 1 or 2 requests."""
        path = _pages_path(location)
        try:
            await self._store.info(path)
            if not self._dry_run:
                await self._store.delete([path])
        except NotFoundError:
            return ()
        except ColdParquetError as error:
            return (f"an old {PAGES_FILE} may be left, which must be removed: {error.message}",)
        return (f"the old {PAGES_FILE} {'would be' if self._dry_run else 'was'} removed",)

    async def _walk(
        self, location: PartitionLocation, sidecar: Sidecar, places: ChunkPlaces, chunks: Sequence[int]
    ) -> PagesFound:
        """Find the pages of chunks by the headers of the pages."""
        walks = {
            chunk: ChunkWalk(
                ByteRange(int(places.starts[chunk]), int(places.stops[chunk])),
                is_flat=bool(places.is_flat[chunk % places.column_count]),
            )
            for chunk in chunks
        }

        async def step(window: _Window) -> None:
            async with self._slots:
                request = RangeRequest(
                    path=location.data_path,
                    byte_range=window.byte_range,
                    reason="page headers",
                    object_bytes=sidecar.parquet_size_bytes,
                    may_grow=location.may_grow,
                )
                answer = await self._store.get(request)
                await asyncio.to_thread(window.receive, answer.data)

        # Long chunks take several steps: where the next page begins is known only from the header before it.
        while windows := _windows(list(walks.values())):
            await gather_or_cancel([step(window) for window in windows])
        return await asyncio.to_thread(check_walked_pages, walks, places)


def make_window_slots() -> asyncio.Semaphore:
    """Return what bounds the memory of all windows that are read at the same time."""
    return asyncio.Semaphore(_WINDOWS_AT_ONCE)


@dataclass(frozen=True, slots=True)
class _Window:
    """One request, and the walks that want bytes of it."""

    byte_range: ByteRange
    walks: tuple[ChunkWalk, ...]

    def receive(self, data: bytes) -> None:
        for walk in self.walks:
            if (wanted := walk.wanted) is not None:
                walk.receive(data[wanted.start - self.byte_range.start : wanted.stop - self.byte_range.start])


def _windows(walks: Sequence[ChunkWalk]) -> list[_Window]:
    """Group what is wanted next into requests of at most ``WINDOW_BYTES``."""
    windows: list[_Window] = []
    wanting = sorted(
        ((wanted, walk) for walk in walks if (wanted := walk.wanted) is not None), key=lambda member: member[0]
    )
    group: list[ChunkWalk] = []
    start = stop = 0
    for wanted, walk in wanting:
        if group and (wanted.start > stop + _GAP_BYTES or max(stop, wanted.stop) > start + WINDOW_BYTES):
            windows.append(_Window(ByteRange(start, stop), tuple(group)))
            group = []
        start, stop = (min(start, wanted.start), max(stop, wanted.stop)) if group else (wanted.start, wanted.stop)
        group.append(walk)
    if group:
        windows.append(_Window(ByteRange(start, stop), tuple(group)))
    return windows


def _pages_path(location: PartitionLocation) -> str:
    return f"{location.directory_path}/{PAGES_FILE}"


def _unknown_chunks(pages: PartitionPages | None, places: ChunkPlaces) -> list[int]:
    """Return the chunks that hold rows and of which no pages are known, although reads would use them."""
    has_rows = np.repeat(places.row_counts, places.column_count) > 0
    is_unknown = np.ones(places.chunk_count, np.bool_) if pages is None else np.diff(pages.first_page) == 0
    return np.flatnonzero(has_rows & is_unknown & np.tile(places.has_pages, places.row_group_count)).tolist()


def _why_no_pages(sidecar: Sidecar, places: ChunkPlaces) -> str:
    if not sidecar.column_count:
        return "no columns"
    return "no rows" if places.has_pages.any() else "all columns are nested, and are read as a whole"


def _described(pages: PartitionPages, *, action: PagesAction, size_bytes: int, notes: Sequence[str]) -> IndexedPages:
    page_counts = np.diff(pages.first_page)
    return IndexedPages(
        action=action,
        size_bytes=size_bytes,
        chunks_known=int(np.count_nonzero(page_counts)),
        chunk_count=len(page_counts),
        reason="; ".join(notes) or None,
    )
