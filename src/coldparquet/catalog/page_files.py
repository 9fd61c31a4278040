"""The pages of a table's partitions: from the ``_pages`` beside them or from the page index of the Parquet file."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from coldparquet.catalog.page_lookup import look_up_pages_file, parse_pages_lookup, read_page_index
from coldparquet.format.partition_pages import PagesFound
from coldparquet.storage.objects import is_written_after

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    import numpy.typing as npt

    from coldparquet.catalog.page_lookup import PagesFileLookup
    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.format.partition_pages import PartitionPages
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.read_plan import MetadataRequest
    from coldparquet.storage.base import ObjectStore


_OLDER_THAN_DATA = (
    "data.parquet was written after it, and may be another file; 'coldparquet index --pages' writes it anew"
)


class PageFiles:
    """What one state of a table knows about the pages of its partitions; each ``_pages`` is fetched once.

    A table either has them beside (nearly) all of its partitions or beside none: where the first one that was looked for
    is absent, no others are.

    Args:
        store: Where the table lies; it should pin versions.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lookups: dict[str, asyncio.Lock] = {}
        self._found: dict[str, PagesFileLookup] = {}
        self._parsed: dict[str, PagesFound] = {}
        self.table_has_files: bool | None = None
        """Whether partitions of this table have a ``_pages``; None until one was looked for."""
        self.has_small_pages: bool | None = None
        """Whether chunks of this table have more than one page; None until the pages of a partition were seen."""

    def adopt(self, earlier: PageFiles, directories: Collection[str], *, are_all: bool) -> None:
        """Take over what another state of the table knew.

        Args:
            earlier: Of that state.
            directories: Those of partitions that did not change since.
            are_all: Whether there are no others now. A new partition may be the first with a ``_pages``.
        """
        for directory, lookup in earlier._found.items():
            if directory in directories and lookup.problem is None:
                self._found[directory] = lookup
                if directory in earlier._parsed:
                    self._parsed[directory] = earlier._parsed[directory]
        if earlier.table_has_files or are_all:
            self.table_has_files = earlier.table_has_files
        self.has_small_pages = earlier.has_small_pages

    async def look_up(self, location: PartitionLocation, spent: list[MetadataRequest]) -> None:
        """Fetch the ``_pages`` of a partition, so that :meth:`pages_of` need not. 1 request, the first time."""
        async with self._lookups.setdefault(location.directory_path, asyncio.Lock()):
            if location.directory_path in self._found:
                return
            lookup = await look_up_pages_file(self._store, location, spent=spent)
            self._found[location.directory_path] = lookup
            if self.table_has_files is None and lookup.problem is None:
                self.table_has_files = lookup.data is not None

    def is_at_hand(self, location: PartitionLocation) -> bool:
        """Tell whether the ``_pages`` of a partition was fetched already."""
        lookup = self._found.get(location.directory_path)
        return lookup is not None and lookup.data is not None

    async def pages_of(
        self,
        location: PartitionLocation,
        sidecar: Sidecar,
        *,
        row_groups: npt.NDArray[np.intp],
        columns: Sequence[int],
        spent: list[MetadataRequest],
    ) -> PagesFound:
        """Return what is known of the pages of some chunks of a partition.

        Requests: none where its ``_pages`` was looked up before and is there; else 1 for it, unless the table is known to
        have no such files; where there is none, 1 for the page index of the Parquet file.

        Args:
            location: The partition.
            sidecar: Its sidecar, which the pages must fit.
            row_groups: Row groups whose pages are wanted.
            columns: Indexes in the sidecar of the columns whose pages are wanted.
            spent: Gets the requests.
        """
        notes: tuple[str, ...] = ()
        if self.table_has_files is not False or location.directory_path in self._found:
            await self.look_up(location, spent)
            found = await self._parse(location, sidecar)
            if found.pages is not None:
                return found
            notes = found.notes
        read = await read_page_index(
            self._store, location, sidecar, row_groups=row_groups, columns=columns, spent=spent
        )
        self._note_page_sizes(read.pages)
        return PagesFound(pages=read.pages, notes=(*notes, *read.notes))

    async def _parse(self, location: PartitionLocation, sidecar: Sidecar) -> PagesFound:
        if location.directory_path not in self._parsed:
            lookup = self._found[location.directory_path]
            if await self._is_older_than_data(lookup, location):
                lookup = replace(lookup, data=None, problem=_OLDER_THAN_DATA)
            found = await parse_pages_lookup(lookup, sidecar)
            self._parsed[location.directory_path] = found
            self._note_page_sizes(found.pages)
        return self._parsed[location.directory_path]

    async def _is_older_than_data(self, lookup: PagesFileLookup, location: PartitionLocation) -> bool:
        """Tell whether a ``_pages`` on a disk may be of another file. Elsewhere it names the version that it was made for."""
        if location.may_grow or lookup.modified_s is None:
            return False
        [info] = await self._store.infos_at_hand([location.data_path]) or [None]
        return info is not None and is_written_after(info.modified_s, lookup.modified_s)

    def _note_page_sizes(self, pages: PartitionPages | None) -> None:
        if pages is not None and len(pages.starts):
            is_small = bool((pages.first_page[1:] - pages.first_page[:-1] > 1).any())
            self.has_small_pages = is_small or bool(self.has_small_pages)
