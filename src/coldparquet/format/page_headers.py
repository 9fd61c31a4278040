"""Finds the pages of a column chunk by their headers, for symbol columns and for files without a page index.

A chunk is a sequence of pages, each a Thrift header followed by its body. Only symbol columns are parsed this far; all
others go to pyarrow as whole chunks.

A header states the length of its page, so the next header is found without reading the body. Headers of version 2 state
the rows of a page. Those of version 1 count values, which are rows only where each row is one value. Pages of lists in
version 1 may even begin within a row, so such chunks stay unknown.

    walk = ChunkWalk(ByteRange(4, 40_000), is_flat=True)
    while (wanted := walk.wanted) is not None:
        walk.receive(<the bytes of that range>)
    found = check_walked_pages({0: walk}, places)
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct
from thrift.protocol.TCompactProtocol import TCompactProtocolAcceleratedFactory
from thrift.transport.TTransport import TMemoryBuffer

from coldparquet.errors import FormatError, InternalError
from coldparquet.format.pages import PageLists, check_pages, first_rows_of
from coldparquet.format.parquet_thrift import PageHeader
from coldparquet.format.thrift import parse_fields, parse_structure_list
from coldparquet.ranges import ByteRange
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coldparquet.format.pages import ChunkPlaces, PagesFound
    from coldparquet.format.parquet_footer import ParquetFooter
    from coldparquet.format.parquet_thrift import Statistics


_PAGE_LOCATIONS = 1
"""Field number of OffsetIndex in parquet.thrift."""

_LARGEST_SPREAD = 2
"""Bytes read per byte of the indexes. Writers put them beside each other; else a page count would read too much."""


def offset_index_span(footer: ParquetFooter) -> ByteRange | None:
    """Return the range of all offset indexes; None if a chunk has none, or they are far apart."""
    places = _places(footer)
    if not places or any(start <= 0 or length <= 0 for start, length in places):
        return None
    first, stop = min(start for start, _ in places), max(start + length for start, length in places)
    if stop > footer.offset or stop - first > _LARGEST_SPREAD * sum(length for _, length in places):
        return None
    return ByteRange(first, stop)


def count_pages(footer: ParquetFooter, offset_indexes: bytes, span: ByteRange) -> int | None:
    """Count the data pages of a file; None if its offset indexes are damaged."""
    starts = ((start - span.start, length) for start, length in _places(footer))
    try:
        return sum(_page_count(offset_indexes[start : start + length]) for start, length in starts)
    except FormatError:
        return None


def _places(footer: ParquetFooter) -> list[tuple[int, int]]:
    """Return start and length of each offset index."""
    return [
        place
        for row_group in footer.row_groups
        for place in zip(row_group.offset_index_offsets, row_group.offset_index_lengths, strict=True)
    ]


def _page_count(offset_index: bytes) -> int:
    fields = {field.number: field.value for field in parse_fields(offset_index)}
    return len(parse_structure_list(fields[_PAGE_LOCATIONS])) if _PAGE_LOCATIONS in fields else 0


MAX_PAGES = 10_000
"""Chunks with more pages are not parsed."""


class PageType(IntEnum):
    """What a page holds."""

    DATA = 0
    DICTIONARY = 2
    DATA_V2 = 3


class Page(Struct, frozen=True, kw_only=True):
    """One page of a chunk."""

    header: PageHeader
    start: int
    """Where its header begins in the chunk."""
    body_start: int
    stop: int
    """Where its body ends, and the next page begins."""


def parse_pages(chunk: bytes) -> list[Page] | None:
    """Find the pages of a chunk."""
    pages = parse_page_run(chunk, limit=len(chunk))
    stop = pages[-1].stop if pages else 0
    return pages if stop == len(chunk) and len(pages) <= MAX_PAGES else None


class FetchedPages:
    """The fetched pages of a chunk. Several checks ask for their headers, which are parsed once."""

    def __init__(self, content: bytes | memoryview) -> None:
        self.content = memoryview(content)

    @cached_property
    def headers(self) -> list[Page] | None:
        """What :func:`parse_pages` finds."""
        return parse_pages(bytes(self.content))


def parse_page_run(content: bytes, *, limit: int) -> list[Page]:
    """Find the pages that begin in some bytes of a chunk."""
    return list(islice(iterate_pages(content, limit), MAX_PAGES + 1))


def first_page(pages: bytes) -> Page | None:
    """Return the first page of some pages; None if they do not begin with a whole one."""
    return next(iterate_pages(pages, len(pages)), None)


def count_values(pages: bytes) -> int | None:
    """Sum up the values that data pages hold by their headers, nulls included; None if the bytes are not whole pages."""
    value_count = stop = 0
    for page in iterate_pages(pages, len(pages)):
        data_page = page.header.data_page_header or page.header.data_page_header_v2
        value_count += 0 if data_page is None else data_page.num_values or 0
        stop = page.stop
    return value_count if stop == len(pages) else None


def iterate_pages(content: bytes, limit: int) -> Iterator[Page]:
    """Yield page after page, up to the first header that is cut off or damaged, or whose page ends behind ``limit``."""
    transport = TMemoryBuffer(content)
    # Every character and list element takes at least one byte, so the content bounds both.
    protocol = TCompactProtocolAcceleratedFactory(
        string_length_limit=len(content), container_length_limit=len(content)
    ).getProtocol(transport)
    position = 0
    while position < len(content):
        header = PageHeader()
        transport.cstringio_buf.seek(position)
        try:
            header.read(protocol)
        except Exception:  # noqa: BLE001 - bad bytes raise a dozen unrelated classes, from EOFError to AssertionError
            return
        body_start = transport.cstringio_buf.tell()
        stop = body_start + (header.compressed_page_size or 0)
        if not body_start <= stop <= limit:
            return
        yield Page(header=header, start=position, body_start=body_start, stop=stop)
        position = stop


WINDOW_BYTES = 8 * 1024 * 1024
"""Bytes of one chunk that are held at a time."""

_DAMAGED = "its page headers cannot be followed to the end of the chunk"
_ROWS_UNKNOWN = "its page headers do not say which rows they hold"
_TOO_MANY = f"it has more than {MAX_PAGES:,} pages"


class WalkedPage(Struct, frozen=True, kw_only=True):
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
        chunk: Its range in the file.
        is_flat: Whether each of its values is one row.
    """

    def __init__(self, chunk: ByteRange, *, is_flat: bool) -> None:
        self._chunk = chunk
        self._is_flat = is_flat
        self._position = chunk.start
        self._pages: list[WalkedPage] = []
        self._page_count = 0
        self.problem: str | None = None if chunk.length_bytes else _DAMAGED
        """Why the pages are unknown; None otherwise."""

    @property
    def wanted(self) -> ByteRange | None:
        """Bytes to read next, ``WINDOW_BYTES`` at most; None at the end."""
        if self.problem is not None or self._position == self._chunk.stop:
            return None
        return ByteRange(self._position, min(self._position + WINDOW_BYTES, self._chunk.stop))

    @property
    def pages(self) -> Sequence[WalkedPage]:
        """The data pages in order, once nothing is wanted; empty where there is a problem."""
        return () if self.problem is not None else self._pages

    def receive(self, content: bytes) -> None:
        """Take the bytes of the wanted range."""
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
            # With the rest of the chunk, or a whole window, every header is complete or damaged.
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
    """Describe a data page; None if it is another page, or does not state its rows."""
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
    """Return rows, NULLs and statistics of a data page, where its header states them."""
    first, second = header.data_page_header, header.data_page_header_v2
    if header.type == PageType.DATA and first is not None and is_flat:
        return first.num_values, None, first.statistics
    if header.type == PageType.DATA_V2 and second is not None:
        return second.num_rows, second.num_nulls, second.statistics
    return None, None, None


def check_walked_pages(walks: Mapping[int, ChunkWalk], places: ChunkPlaces) -> PagesFound:
    """Combine the pages of walked chunks, without the chunks whose headers are wrong."""
    lists = PageLists()
    for chunk, walk in sorted(walks.items()):
        pages = walk.pages
        lists.add(
            chunk,
            starts=[page.start for page in pages],
            lengths=[page.length_bytes for page in pages],
            rows=[page.row_count for page in pages],
            null_counts=[page.null_count for page in pages],
            lower=[page.lower for page in pages],
            upper=[page.upper for page in pages],
        )
    claimed = lists.claimed()
    claimed = replace(claimed, first_rows=first_rows_of(claimed.chunks, claimed.first_rows, places))
    problems = {chunk: walk.problem for chunk, walk in sorted(walks.items()) if walk.problem is not None}
    return check_pages(claimed, places, source="page headers", problems=problems)
