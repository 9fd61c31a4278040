"""Finds the pages of a table's partitions: in the ``_pages`` beside the sidecar, an index elsewhere, or the Parquet file's page index.

All are optional. Any problem with them becomes a note, and the chunks are then read as a whole.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from coldparquet.catalog.caches import remembered
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import ColdParquetError, FormatError, InternalError, NotFoundError, UnsupportedError
from coldparquet.format.fetch import FetchedRanges, FooterFetch
from coldparquet.format.page_index import (
    LARGEST_PAGES_FILE_BYTES,
    earlier_indexes,
    page_index_range,
    parse_page_index,
    parse_pages_file,
    stated_etag,
    stated_size_bytes,
)
from coldparquet.format.pages import PagesFound, chunk_places
from coldparquet.format.parquet_footer import parse_footer
from coldparquet.options import COALESCING_BY_GOAL
from coldparquet.plan.coalesce import coalesce
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.storage.log import get_metadata, note_cache_hit, note_metadata
from coldparquet.storage.requests import RangeRequest, described_etag, is_written_after

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import numpy as np
    import numpy.typing as npt

    from coldparquet.catalog.catalogue import Catalogue
    from coldparquet.catalog.objects import DataObjects
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.pages import PartitionPages
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.cache import CachedStore
    from coldparquet.storage.requests import FetchedRange


PAGES_FILE = "_pages"

_REASON = "page index"

_FIRST_REQUEST_BYTES = 256 * 1024
"""Holds about 15,000 pages, and takes hardly longer than a smaller request."""

_PARSE_IN_THREAD_BYTES = 64 * 1024
"""Above this size, parsing on the event loop blocks it for longer than handing the work to a thread costs."""


class PagesFileLookup(Struct, frozen=True, kw_only=True):
    """The unchecked ``_pages`` beside one Parquet file, or why there is none."""

    path: str
    data: bytes | None
    """None where it is absent or could not be fetched."""
    problem: str | None = None
    """Why it could not be fetched, though it may be there."""
    modified_s: float | None = None
    """Modification time in seconds since 1970; None where the store does not report it."""


async def look_up_pages_file(store: ObjectStore, location: PartitionLocation) -> PagesFileLookup:
    """Fetch the ``_pages`` of a partition. 1 request where it fits 256 KiB or is absent, else 2.

    None for a Parquet file that is not named ``data.parquet``. The file is optional, so no error is raised: a store
    that fails, or refuses it, counts as one without it. S3 refuses absent objects where listing is not allowed.
    """
    path = _pages_path(location)
    if location.sidecar_path is None:
        return PagesFileLookup(path=path, data=None)
    first = ByteRange(0, _FIRST_REQUEST_BYTES)
    try:
        answer = await get_metadata(store, _of_pages_file(path, first))
        data = answer.data
        size_bytes = stated_size_bytes(data) or len(data)
        if size_bytes > LARGEST_PAGES_FILE_BYTES:
            problem = f"it says that it has {size_bytes:,} bytes, more than any such file needs"
            return PagesFileLookup(path=path, data=None, problem=problem)
        if size_bytes > len(data) == first.stop:
            rest = ByteRange(first.stop, size_bytes)
            data += (await get_metadata(store, _of_pages_file(path, rest))).data
    except NotFoundError:
        note_metadata(path, first, f"no {PAGES_FILE}")
        return PagesFileLookup(path=path, data=None)
    except InternalError:
        raise
    except ColdParquetError as error:
        note_metadata(path, first, f"no {PAGES_FILE}")
        return PagesFileLookup(path=path, data=None, problem=f"it could not be fetched: {error.message}")
    return PagesFileLookup(path=path, data=data, modified_s=answer.modified_s)


async def parse_pages_lookup(lookup: PagesFileLookup, sidecar: Sidecar, *, etag: str | None = None) -> PagesFound:
    """Parse a fetched ``_pages``, in a thread where it is large."""
    if lookup.data is None:
        notes = () if lookup.problem is None else (f"{PAGES_FILE} is not used: {lookup.problem}",)
        return PagesFound(pages=None, notes=notes)
    if len(lookup.data) > _PARSE_IN_THREAD_BYTES:
        return await asyncio.to_thread(_parse_pages_file, lookup.data, sidecar, etag, lookup.path)
    return _parsed(lookup.data, sidecar, etag, lookup.path)


async def read_page_index(  # noqa: PLR0913 - mostly keyword arguments
    store: ObjectStore,
    location: PartitionLocation,
    sidecar: Sidecar,
    *,
    row_groups: Iterable[int] | None = None,
    columns: Iterable[int] | None = None,
    also_earlier: bool = False,
) -> PagesFound:
    """Read the page index in the Parquet file, if any. 1 request: the end of the file behind the last chunk.

    Where that is longer than 8 MiB, only its last part is fetched, and indexes before it are not used. Indexes of row
    groups from before an update in place are not used either, unless requested.
    """
    source = _ParquetSource(store, location, sidecar.parquet_size_bytes)
    place = page_index_range(sidecar)
    answer = await source.get(place)
    tail, in_thread = answer.data, len(answer.data) > _PARSE_IN_THREAD_BYTES
    read_footer = partial(_footer_of_tail, tail, source)
    try:
        footer = await asyncio.to_thread(read_footer) if in_thread else read_footer()
    except (FormatError, UnsupportedError) as error:
        return PagesFound(pages=None, notes=(f"the page index is not used: {error.message}",), etag=answer.etag)
    parse = partial(
        parse_page_index,
        footer,
        tail,
        tail_start=place.start,
        places=chunk_places(sidecar),
        row_groups=row_groups,
        columns=columns,
        earlier=await _read_earlier(source, footer, tail_start=place.start) if also_earlier else None,
    )
    return replace(await asyncio.to_thread(parse) if in_thread else parse(), etag=answer.etag)


def _pages_path(location: PartitionLocation) -> str:
    return f"{location.directory_path}/{PAGES_FILE}"


def _of_pages_file(path: str, byte_range: ByteRange) -> RangeRequest:
    return RangeRequest(path=path, byte_range=byte_range, reason=_REASON, may_be_short=True)


def _parse_pages_file(data: bytes, sidecar: Sidecar, etag: str | None, path: str) -> PagesFound:
    try:
        pages = parse_pages_file(
            data,
            parquet_size_bytes=sidecar.parquet_size_bytes,
            etag=etag,
            places=chunk_places(sidecar),
            path=path,
        )
    except (FormatError, UnsupportedError) as error:
        return PagesFound(pages=None, notes=(f"{PAGES_FILE} is not used: {error.message}",))
    return PagesFound(pages=pages, etag=stated_etag(data))


_parsed = remembered(_parse_pages_file, most=32)


class _ParquetSource(Struct, frozen=True):
    """The committed bytes of one Parquet file."""

    store: ObjectStore
    location: PartitionLocation
    size_bytes: int

    async def get(self, byte_range: ByteRange) -> FetchedRange:
        request = RangeRequest(
            path=self.location.data_path,
            byte_range=byte_range,
            reason=_REASON,
            object_bytes=self.size_bytes,
            may_grow=self.location.may_grow,
        )
        return await get_metadata(self.store, request)


def _footer_of_tail(tail: bytes, source: _ParquetSource) -> ParquetFooter:
    path = source.location.data_path
    fetch = FooterFetch(path=path, suffix_bytes=len(tail), size_bytes=source.size_bytes)
    fetch.receive(tail, start=source.size_bytes - len(tail))
    if fetch.next_range is not None:
        raise UnsupportedError(f"the Parquet footer alone has more than {len(tail):,} bytes", path=path)
    return parse_footer(fetch.footer, path=path, offset=fetch.footer_offset)


async def _read_earlier(source: _ParquetSource, footer: ParquetFooter, *, tail_start: int) -> FetchedRanges:
    earlier, wanted = FetchedRanges(), earlier_indexes(footer, tail_start=tail_start)
    if wanted is not None:
        coalescing = COALESCING_BY_GOAL["fast"]
        requests = coalesce(
            wanted.starts,
            wanted.stops,
            gap_bytes=coalescing.gap_bytes,
            max_request_bytes=coalescing.max_request_bytes,
        )
        ranges = [ByteRange(*bounds) for bounds in zip(requests.starts.tolist(), requests.stops.tolist(), strict=True)]
        answers = await gather_or_cancel([source.get(byte_range) for byte_range in ranges])
        earlier.add_round([(answer.start, answer.data) for answer in answers])
    return earlier


_OLDER_THAN_DATA = "data.parquet was written after it, and may be another file; 'coldparquet index' writes it anew"


class PageFiles:
    """The pages of the partitions in one state of a table; each ``_pages`` is fetched once.

    A table has them beside (nearly) all of its partitions or beside none. If the first one requested is absent, no
    others are requested.

    An index of many files holds the same of each: what it says of several is fetched together, and of a file of which it says
    that its pages are of no use, nothing is asked.

    Args:
        store: The table's store; it should pin versions.
        catalogue: The table's index; None where there is none.
    """

    def __init__(self, store: CachedStore, catalogue: Catalogue | None = None) -> None:
        self._store = store
        self._catalogue = catalogue
        self._packed_turn = asyncio.Lock()
        self._lookups: dict[str, asyncio.Lock] = {}
        self._found: dict[str, PagesFileLookup] = {}
        self._parsed: dict[str, PagesFound] = {}
        self.table_has_files: bool | None = None
        """Whether partitions of this table have a ``_pages``; None before the first lookup."""
        self.has_small_pages: bool | None = None
        """Whether chunks of this table have more than one page; None until the pages of a partition are known."""

    def adopt(self, earlier: PageFiles, data_paths: Collection[str], *, are_all: bool) -> None:
        """Take over what another state of the table has fetched."""
        for path, lookup in earlier._found.items():
            if path in data_paths and lookup.problem is None:
                self._found[path] = lookup
                if path in earlier._parsed:
                    self._parsed[path] = earlier._parsed[path]
        if earlier.table_has_files or are_all:
            self.table_has_files = earlier.table_has_files
        self.has_small_pages = earlier.has_small_pages

    def may_be_packed(self, location: PartitionLocation) -> bool:
        """Tell whether the index says something of the pages of a partition, of which it may know another version."""
        return self._catalogue is not None and self._catalogue.pages_range(location.name) is not None

    def packed_bytes(self, location: PartitionLocation) -> int | None:
        """Return how many bytes the index has of a file's pages: 0 where they are of no use; None where it does not say."""
        place = self._packed_range(location)
        return None if place is None else place.length_bytes

    def _packed_range(self, location: PartitionLocation) -> ByteRange | None:
        catalogue = self._catalogue
        if catalogue is None or not catalogue.has_version_of(location):
            return None
        return catalogue.pages_range(location.name)

    async def look_up(self, location: PartitionLocation, *, heads: DataObjects | None = None) -> None:
        """Fetch the ``_pages`` of a partition ahead of :meth:`pages_of`. 1 request, the first time.

        None for one that this process holds, if the Parquet object has the version that it was found to describe: ``heads`` tells.
        """
        if self.packed_bytes(location):
            await self.look_up_packed([location])
            return
        async with self._lookups.setdefault(location.data_path, asyncio.Lock()):
            if location.data_path in self._found:
                return
            lookup = heads and await self._found_before(location, heads)
            lookup = lookup or await look_up_pages_file(self._store, location)
            self._found[location.data_path] = lookup
            if self.table_has_files is None and lookup.problem is None:
                self.table_has_files = lookup.data is not None

    async def _found_before(self, location: PartitionLocation, heads: DataObjects) -> PagesFileLookup | None:
        path = _pages_path(location)
        held = await self._store.found_before(path, ByteRange(0, _FIRST_REQUEST_BYTES))
        if held is None or held.beside_etag is None or held.beside_etag != await heads.etag_of(location.data_path):
            return None
        note_cache_hit(len(held.data))
        return PagesFileLookup(path=path, data=held.data)

    async def validate(self, location: PartitionLocation) -> None:
        """Ask whether the ``_pages`` of a partition that this process holds is the newest. 1 request; none where it holds none."""
        if await self._store.found_before(_pages_path(location), ByteRange(0, _FIRST_REQUEST_BYTES)) is not None:
            await self.look_up(location)

    def note_what_they_describe(self, location: PartitionLocation) -> None:
        """Record that the ``_pages`` of a partition describes the version of the Parquet object that a HEAD has shown."""
        lookup = self._found.get(location.data_path)
        if lookup is None or lookup.data is None or len(lookup.data) > _FIRST_REQUEST_BYTES:
            return
        data_etag = described_etag(lookup.modified_s, self._store.versions.info(location.data_path))
        if data_etag is not None:
            self._store.note_beside(lookup.path, data_etag)

    def doubt(self, location: PartitionLocation) -> None:
        """Let the next opening of the table fetch the ``_pages`` of a partition again."""
        self._store.forget([_pages_path(location)])

    async def look_up_packed(self, locations: Sequence[PartitionLocation]) -> None:
        """Fetch what the index says of the pages of files. Few requests for all of them, none for what came with the index."""
        async with self._packed_turn:
            wanted = {
                one.name: one.data_path
                for one in locations
                if one.data_path not in self._found and self.packed_bytes(one)
            }
            if not wanted or self._catalogue is None:
                return
            path, data, problem = self._catalogue.file.path, {}, None
            try:
                data = await self._catalogue.pages_of(wanted)
            except InternalError:
                raise
            except ColdParquetError as error:
                problem = f"it could not be fetched: {error.message}"
            for name, data_path in wanted.items():
                self._found[data_path] = PagesFileLookup(path=path, data=data.get(name), problem=problem)

    def is_at_hand(self, location: PartitionLocation) -> bool:
        """Tell whether the ``_pages`` of a partition is already fetched."""
        lookup = self._found.get(location.data_path)
        if lookup is None:
            place = self._packed_range(location)
            return place is not None and place.length_bytes > 0 and self._came_with_index(place)
        return lookup.data is not None

    def _came_with_index(self, place: ByteRange) -> bool:
        return self._catalogue is not None and place.stop <= len(self._catalogue.file.beginning)

    async def pages_of(
        self,
        location: PartitionLocation,
        sidecar: Sidecar,
        *,
        row_groups: npt.NDArray[np.intp],
        columns: Sequence[int],
    ) -> PagesFound:
        """Return the known pages of some chunks of a partition.

        Requests: none where its ``_pages`` was fetched before and exists. Otherwise 1 for those in the index, or, if that says
        nothing, for the ``_pages``, unless the table is known to have no such files. Where there is none, 1 for the page index of
        the Parquet file.
        """
        notes: tuple[str, ...] = ()
        packed_bytes = self.packed_bytes(location)
        may_be_beside = packed_bytes is None and self.table_has_files is not False
        if may_be_beside or packed_bytes or location.data_path in self._found:
            await self.look_up(location)
            found = await self._parse(location, sidecar)
            if found.pages is not None:
                return found
            notes = found.notes
        read = await read_page_index(self._store, location, sidecar, row_groups=row_groups, columns=columns)
        self._note_page_sizes(read.pages)
        return PagesFound(pages=read.pages, notes=(*notes, *read.notes))

    async def _parse(self, location: PartitionLocation, sidecar: Sidecar) -> PagesFound:
        if location.data_path not in self._parsed:
            lookup = self._found.get(location.data_path)
            if lookup is None:
                return PagesFound(pages=None)  # the index turned out to be of another file meanwhile
            if await self._is_older_than_data(lookup, location):
                lookup = replace(lookup, data=None, problem=_OLDER_THAN_DATA)
            found = await parse_pages_lookup(lookup, sidecar)
            self._parsed[location.data_path] = found
            self._note_page_sizes(found.pages)
        return self._parsed[location.data_path]

    async def _is_older_than_data(self, lookup: PagesFileLookup, location: PartitionLocation) -> bool:
        """Tell whether a local ``_pages`` may be of another file. In object stores it names its version."""
        if location.may_grow or lookup.modified_s is None:
            return False
        [info] = await self._store.infos_at_hand([location.data_path]) or [None]
        return info is not None and is_written_after(info.modified_s, lookup.modified_s)

    def _note_page_sizes(self, pages: PartitionPages | None) -> None:
        if pages is not None and len(pages.starts):
            is_small = bool((pages.first_page[1:] - pages.first_page[:-1] > 1).any())
            self.has_small_pages = is_small or bool(self.has_small_pages)
