"""The pages of a column chunk by their headers: for files without a page index.

A header says how long its page is, so that the next one is found without looking at what lies between. Which rows a
page holds is said by headers of version 2; those of version 1 count values, which are rows only where each row is one value. Pages
of lists in version 1 may even begin within a row, so such chunks stay unknown.

    walk = ChunkWalk(ByteRange(4, 40_000), is_flat=True)
    while (wanted := walk.wanted) is not None:
        walk.receive(<the bytes of that range>)
    found = check_walked_pages({0: walk}, places)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import InternalError
from coldparquet.format.page_checks import BoundsList, ClaimedPages, check_pages, first_rows_of
from coldparquet.format.page_headers import MAX_PAGES, PageType, parse_page_run
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.format.chunk_places import ChunkPlaces
    from coldparquet.format.page_headers import Page
    from coldparquet.format.page_thrift import PageHeader
    from coldparquet.format.parquet_thrift import Statistics
    from coldparquet.format.partition_pages import PagesFound

WINDOW_BYTES = 8 * 1024 * 1024
"""Bytes of one chunk that are held at a time."""

_DAMAGED = "its page headers cannot be followed to the end of the chunk"
_ROWS_UNKNOWN = "its page headers do not say which rows they hold"
_TOO_MANY = f"it has more than {MAX_PAGES:,} pages"


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkedPage:
    """One data page as its header describes it."""

    start: int
    """First byte in the file, header included."""
    length_bytes: int
    row_count: int
    null_count: int | None
    lower: bytes | None
    upper: bytes | None


class ChunkWalk:
    """Walk from header to header of one chunk.

    Args:
        chunk: Where it lies in the file.
        is_flat: Whether each of its values is one row.
    """

    def __init__(self, chunk: ByteRange, *, is_flat: bool) -> None:
        self._chunk = chunk
        self._is_flat = is_flat
        self._position = chunk.start
        self._pages: list[WalkedPage] = []
        self._page_count = 0
        self.problem: str | None = None if chunk.length_bytes else _DAMAGED
        """Why the pages cannot be told; None as long as they can."""

    @property
    def wanted(self) -> ByteRange | None:
        """Bytes to read next, ``WINDOW_BYTES`` at most; None at the end."""
        if self.problem is not None or self._position == self._chunk.stop:
            return None
        return ByteRange(self._position, min(self._position + WINDOW_BYTES, self._chunk.stop))

    @property
    def pages(self) -> Sequence[WalkedPage]:
        """The data pages in order, once nothing is wanted; none where there is a problem."""
        return () if self.problem is not None else self._pages

    def receive(self, content: bytes) -> None:
        """Take the bytes of the wanted range.

        Raises:
            InternalError: Nothing was wanted, or they are more or fewer.
        """
        wanted = self.wanted
        if wanted is None or wanted.length_bytes != len(content):
            raise InternalError(f"received {len(content)} bytes of a chunk, wanted {wanted}")
        run = parse_page_run(content, limit=self._chunk.stop - self._position)
        stop = run[-1].stop if run else 0
        for page in run:
            self._add(page)
        if self._page_count > MAX_PAGES:
            self.problem = _TOO_MANY
        elif stop < len(content) and (stop == 0 or wanted.stop == self._chunk.stop):
            # With the rest of the chunk at hand, or a whole window, no header is merely cut off.
            self.problem = _DAMAGED
        self._position += stop

    def _add(self, page: Page) -> None:
        self._page_count += 1
        if page.header.type == PageType.DICTIONARY and self._page_count == 1:
            return
        walked = _walked(page, self._position + page.start, is_flat=self._is_flat)
        if walked is None:
            self.problem = self.problem or _ROWS_UNKNOWN
        else:
            self._pages.append(walked)


def _walked(page: Page, start: int, *, is_flat: bool) -> WalkedPage | None:
    """Describe a data page; None if it is none, or does not tell its rows."""
    row_count, null_count, statistics = _contents(page.header, is_flat=is_flat)
    if row_count is None:
        return None
    if statistics is not None and null_count is None:
        null_count = statistics.null_count
    return WalkedPage(
        start=start,
        length_bytes=page.stop - page.start,
        row_count=row_count,
        null_count=null_count,
        lower=None if statistics is None else statistics.min_value,
        upper=None if statistics is None else statistics.max_value,
    )


def _contents(header: PageHeader, *, is_flat: bool) -> tuple[int | None, int | None, Statistics | None]:
    """Return rows, NULLs and statistics of a data page, as far as its header tells them."""
    first, second = header.data_page_header, header.data_page_header_v2
    if header.type == PageType.DATA and first is not None and is_flat:
        return first.num_values, None, first.statistics
    if header.type == PageType.DATA_V2 and second is not None:
        return second.num_rows, second.num_nulls, second.statistics
    return None, None, None


def check_walked_pages(walks: Mapping[int, ChunkWalk], places: ChunkPlaces) -> PagesFound:
    """Put the pages of walked chunks together, without the chunks whose headers cannot be right.

    Args:
        walks: Walks that want nothing more, by chunk: ``row_group * column_count + column``.
        places: What the sidecar says of the chunks.
    """
    chunks = sorted(walks)
    pages = [page for chunk in chunks for page in walks[chunk].pages]
    chunk_of_page = np.repeat(np.array(chunks, np.int64), [len(walks[chunk].pages) for chunk in chunks])
    lower, upper = BoundsList(), BoundsList()
    lower.add(page.lower for page in pages)
    upper.add(page.upper for page in pages)
    claimed = ClaimedPages(
        chunks=chunk_of_page,
        starts=np.array([page.start for page in pages], np.int64),
        lengths=np.array([page.length_bytes for page in pages], np.int64),
        first_rows=first_rows_of(chunk_of_page, np.array([page.row_count for page in pages], np.int64), places),
        null_counts=np.array([-1 if page.null_count is None else page.null_count for page in pages], np.int64),
        lower=lower.as_arrays(),
        upper=upper.as_arrays(),
    )
    problems = {chunk: problem for chunk in chunks if (problem := walks[chunk].problem) is not None}
    return check_pages(claimed, places, source="page headers", problems=problems)
