"""Reads what describes the pages of a Parquet file: its own page index, and coldparquet's `_pages` beside the sidecar.

The page index: for each column chunk a writer may leave an OffsetIndex, with the places and rows of the data pages, and
a ColumnIndex, with bounds of their values. Both are between the last chunk and the footer, which has their offsets. Of
the ColumnIndex only ``null_counts`` and the bounds are used: QuestDB marks every page without bounds as a null page,
pages of arrays among them, and calls every order UNORDERED (note section 10.1).

``_pages`` has the pages of all column chunks in one small object. With it, page pruning costs no dependent round trip:
it is fetched together with the sidecar. It belongs to one version of one Parquet file, which it identifies, and can
always be rebuilt from that file.

The version is identified by the size of the Parquet file, by its sidecar's metadata of the chunks and, in an object
store, by the ETag. A scan compares size and chunks with the sidecar, and the ETag with that of the data answers. On a
disk a ``_pages`` that is older than its Parquet file is not used. So a stale ``_pages`` goes unnoticed only if the new
Parquet file has the same size and the same chunks, with the same statistics. On a disk it must also be older; in an
object store the scan must have no page left to read. ``coldparquet index --force`` rewrites both.

All numbers are little-endian. A header of 68 bytes:

    offset  type  field
    0       8s    magic, ``COLDPAGE``
    8       u32   version of this format: 1
    12      u32   CRC-32 of everything behind this field
    16      u64   size of this file
    24      u64   size of the Parquet file, as far as it is committed
    32      u64   bytes of the body, decompressed
    40      u64   number of pages
    48      u32   number of row groups
    52      u32   number of leaf columns
    56      u32   fingerprint of the chunks, see ``ChunkPlaces.fingerprint``
    60      u32   bytes of the ETag
    64      u32   reserved, 0

Then the ETag of the Parquet object in ASCII, quotes included (none where the store has no such thing: files on a disk),
and the body, compressed with zlib, to the end of the file. The body, chunk = row group * number of columns + column:

    u32[chunks]  number of data pages; 0 where nothing is known of them
    u32[chunks]  bytes before the first data page: those of the dictionary page
    u32[pages]   bytes of each page, header included; pages follow one another up to the end of their chunk
    u32[pages]   rows of each page
    u32[pages]   NULLs in each page; 2**32 - 1 where unknown
    u32[pages]   bytes of each lower bound; 2**32 - 1 where there is none
    u32[pages]   bytes of each upper bound
    bytes        the lower bounds, one after the other, then the upper ones
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.binary import Envelope
from coldparquet.format.blooms import locate_blooms
from coldparquet.format.fetch import WantedRanges
from coldparquet.format.pages import (
    ClaimedPages,
    PageBounds,
    PageLists,
    PagesFound,
    check_pages,
    first_rows_of,
    last_chunk_stops,
)
from coldparquet.format.parquet_thrift import ColumnIndex, OffsetIndex
from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from coldparquet.format.fetch import FetchedRanges
    from coldparquet.format.pages import ChunkPlaces, PartitionPages
    from coldparquet.format.parquet_footer import FooterRowGroup, ParquetFooter
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_chunks import RowGroupTable

LARGEST_INDEX_BYTES = 8 * 1024 * 1024
"""Most bytes to fetch for page pruning: the index of 100,000 pages or more."""

_BLOOM_HEADER_BYTES = 64
"""A filter begins with a header of about 16 bytes, which is not part of its range."""

_LARGEST_PAGE_BYTES = (1 << 31) - 1
_DAMAGED = "it is damaged"
_ELSEWHERE = "it does not lie right before the footer"
_LISTS_DIFFER = "its lists differ in length"


def page_index_range(sidecar: Sidecar, *, start: int | None = None) -> ByteRange:
    """Return the range of the page index in a Parquet file, footer included.

    It covers at most the last ``LARGEST_INDEX_BYTES``; indexes before that are not found.
    """
    if start is None:
        (start,) = page_index_starts(sidecar, np.array([0, sidecar.row_group_count])).tolist()
    size_bytes = sidecar.parquet_size_bytes
    return ByteRange(max(start, size_bytes - LARGEST_INDEX_BYTES), size_bytes)


def page_index_starts(table: RowGroupTable, borders: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the earliest start of the page index of Parquet files: what follows the last chunk.

    Bloom filters directly behind the chunks are skipped where the sidecar knows them; other writers put them behind the
    page index.
    """
    file_count = len(borders) - 1
    file_of = np.repeat(np.arange(file_count), np.diff(borders))
    chunk_stops, bloom_stops = np.zeros(file_count, np.int64), np.zeros(file_count, np.int64)
    bloom_starts = np.full(file_count, np.iinfo(np.int64).max)
    np.maximum.at(chunk_stops, file_of, last_chunk_stops(table))
    for column in table.bloom_columns if table.blooms_external else ():
        blooms = locate_blooms(table, column)
        known = blooms.present & (blooms.starts > 0) & (blooms.lengths > 0)
        np.minimum.at(bloom_starts, file_of[known], blooms.starts[known])
        np.maximum.at(bloom_stops, file_of[known], (blooms.starts + blooms.lengths)[known])
    is_behind = (chunk_stops <= bloom_starts) & (bloom_starts - chunk_stops <= _BLOOM_HEADER_BYTES)
    starts: npt.NDArray[np.int64] = np.where(is_behind, bloom_stops, chunk_stops)
    return starts


def parse_page_index(  # noqa: PLR0913 - mostly keyword arguments
    footer: ParquetFooter,
    tail: bytes,
    *,
    tail_start: int,
    places: ChunkPlaces,
    row_groups: Iterable[int] | None = None,
    columns: Iterable[int] | None = None,
    earlier: FetchedRanges | None = None,
) -> PagesFound:
    """Parse the page indexes of some column chunks; columns that keys of directories add have none."""
    leaf_count = len(footer.leaves)
    has_bytes = (places.stops > places.starts).reshape(places.row_group_count, places.column_count)
    is_alike = len(footer.row_groups) == places.row_group_count and leaf_count <= places.column_count
    if not is_alike or has_bytes[:, leaf_count:].any():
        note = "the page index is not used: the Parquet footer has other row groups or columns than the sidecar"
        return PagesFound(pages=None, notes=(note,))
    parser = _IndexParser(tail=tail, tail_start=tail_start, earlier=earlier)
    chosen_columns = range(leaf_count) if columns is None else sorted(set(columns) & set(range(leaf_count)))
    for row_group in range(places.row_group_count) if row_groups is None else sorted(set(row_groups)):
        for column in chosen_columns:
            parser.add_chunk(footer.row_groups[row_group], column, chunk=row_group * places.column_count + column)
    found = check_pages(parser.pages.claimed(), places, source="page index", problems=parser.problems)
    return PagesFound(pages=found.pages, notes=(*_without_index(parser, places), *found.notes))


def earlier_indexes(footer: ParquetFooter, *, tail_start: int) -> WantedRanges | None:
    """Return the ranges of indexes before the end of the file; None if there are none, or too many bytes.

    An update in place appends row groups and a footer, and leaves the indexes of the old row groups where they are.
    """
    ranges = [
        (start, start + length)
        for row_group in footer.row_groups
        for starts, lengths in (
            (row_group.offset_index_offsets, row_group.offset_index_lengths),
            (row_group.column_index_offsets, row_group.column_index_lengths),
        )
        for start, length in zip(starts, lengths, strict=True)
        if 0 < start < tail_start and 0 < length <= tail_start - start
    ]
    if not ranges or sum(stop - start for start, stop in ranges) > LARGEST_INDEX_BYTES:
        return None
    starts, stops = np.array(ranges, np.int64).T
    return WantedRanges(starts=starts, stops=stops)


def _without_index(parser: _IndexParser, places: ChunkPlaces) -> tuple[str, ...]:
    missing = parser.without_index
    if not missing:
        return ()
    others = f" and {len(missing) - 1:,} more column chunks" if len(missing) > 1 else ""
    return (f"{places.describe(missing[0])}{others} {'have' if others else 'has'} no page index",)


class _IndexParser(Struct, kw_only=True):
    """Parses one chunk's indexes after the other."""

    tail: bytes
    tail_start: int
    earlier: FetchedRanges | None
    problems: dict[int, str] = field(default_factory=dict)
    without_index: list[int] = field(default_factory=list)
    pages: PageLists = field(default_factory=PageLists)

    def add_chunk(self, row_group: FooterRowGroup, column: int, *, chunk: int) -> None:
        if row_group.offset_index_lengths[column] == 0:
            self.without_index.append(chunk)
            return
        try:
            located = self._bytes_at(row_group.offset_index_offsets[column], row_group.offset_index_lengths[column])
            pages = OffsetIndex.decode(located, path=None, offset=0).page_locations
            bounded = None
            if row_group.column_index_lengths[column] != 0:
                located = self._bytes_at(row_group.column_index_offsets[column], row_group.column_index_lengths[column])
                bounded = ColumnIndex.decode(located, path=None, offset=0)
        except _OutsideError:
            self.problems[chunk] = _ELSEWHERE
            return
        except FormatError:
            self.problems[chunk] = _DAMAGED
            return
        if bounded is not None and not _is_about(bounded, len(pages)):
            self.problems[chunk] = _LISTS_DIFFER
            return
        if not pages or any(not 0 < page.compressed_page_size <= _LARGEST_PAGE_BYTES for page in pages):
            self.problems[chunk] = _DAMAGED
            return
        unknown: list[bytes | None] = [None] * len(pages)
        lower = unknown if bounded is None else _without_fillers(bounded, bounded.min_values)
        upper = unknown if bounded is None else _without_fillers(bounded, bounded.max_values)
        self.pages.add(
            chunk,
            starts=[page.offset for page in pages],
            lengths=[page.compressed_page_size for page in pages],
            rows=[page.first_row_index for page in pages],
            null_counts=None if bounded is None else bounded.null_counts,
            lower=lower,
            upper=upper,
        )

    def _bytes_at(self, start: int, length: int) -> bytes:
        first = start - self.tail_start
        if 0 <= first <= len(self.tail) and 0 < length <= len(self.tail) - first:
            return self.tail[first : first + length]
        if self.earlier is not None and start > 0 and 0 < length <= -first:
            found = self.earlier.bytes_at(start, start + length)
            if found is not None:
                return found
        raise _OutsideError


class _OutsideError(Exception):
    """An index is outside the fetched bytes."""


def _is_about(index: ColumnIndex, page_count: int) -> bool:
    lists = (index.null_pages, index.min_values, index.max_values, index.null_counts)
    return all(len(values) == page_count for values in lists if values is not None)


def _without_fillers(index: ColumnIndex, bounds: Sequence[bytes]) -> list[bytes | None]:
    """Return bounds without those of null pages, which mean nothing."""
    return [None if is_null else value for is_null, value in zip(index.null_pages, bounds, strict=True)]


LARGEST_PAGES_FILE_BYTES = 64 * 1024 * 1024
"""Longer files are not fetched: this describes millions of pages."""
LARGEST_BODY_BYTES = 128 * 1024 * 1024
"""Limit of the decompressed body."""

ENVELOPE = Envelope(
    b"COLDPAGE",
    1,
    name="_pages",
    what="a _pages file",
    remedy="'coldparquet index' writes it anew",
    largest_inflated_bytes=LARGEST_BODY_BYTES,
    file_bytes="u8",
    parquet_size_bytes="u8",
    body_bytes="u8",
    page_count="u8",
    row_group_count="u4",
    column_count="u4",
    fingerprint="u4",
    etag_bytes="u4",
    reserved="u4",
)
_HEADER_BYTES = ENVELOPE.header.size
_UNKNOWN = (1 << 32) - 1


def encode_pages_file(pages: PartitionPages, places: ChunkPlaces, *, parquet_size_bytes: int, etag: str = "") -> bytes:
    """Encode the pages of a Parquet file. Chunks with numbers beyond 32 bits count as unknown."""
    body, page_count = _encode_body(pages, places)
    compressed = zlib.compress(body)
    if len(body) > LARGEST_BODY_BYTES or _HEADER_BYTES + len(compressed) > LARGEST_PAGES_FILE_BYTES:
        raise UnsupportedError(
            f"{page_count:,} pages make a description of {len(body):,} bytes, more than is read; larger pages make it smaller",
            kind="TooLarge",
        )
    etag_bytes = etag.encode("ascii")
    return ENVELOPE.encode(
        etag_bytes,
        compressed,
        file_bytes=_HEADER_BYTES + len(etag_bytes) + len(compressed),
        parquet_size_bytes=parquet_size_bytes,
        body_bytes=len(body),
        page_count=page_count,
        row_group_count=pages.row_group_count,
        column_count=pages.column_count,
        fingerprint=places.fingerprint,
        etag_bytes=len(etag_bytes),
        reserved=0,
    )


def _encode_body(pages: PartitionPages, places: ChunkPlaces) -> tuple[bytes, int]:
    page_counts = np.diff(pages.first_page)
    chunk_of_page = np.repeat(np.arange(places.chunk_count), page_counts)
    row_counts = places.row_counts[chunk_of_page // max(places.column_count, 1)]
    is_last = np.append(chunk_of_page[1:] != chunk_of_page[:-1], np.ones(min(len(chunk_of_page), 1), np.bool_))
    page_rows = np.where(is_last, row_counts, np.roll(pages.first_rows, -1)) - pages.first_rows
    page_bytes = pages.stops - pages.starts
    too_large = np.maximum.reduce([page_rows, page_bytes, pages.null_counts, pages.lower.lengths, pages.upper.lengths])
    is_kept = pages.dictionary_stops - pages.dictionary_starts < _UNKNOWN
    is_kept[chunk_of_page[too_large >= _UNKNOWN]] = False
    kept = is_kept[chunk_of_page]
    arrays = (
        np.where(is_kept, page_counts, 0),
        np.where(is_kept, pages.dictionary_stops - pages.dictionary_starts, 0),
        page_bytes[kept],
        page_rows[kept],
        pages.null_counts[kept],
        pages.lower.lengths[kept],
        pages.upper.lengths[kept],
    )
    # -1, which says "unknown", becomes 2**32 - 1.
    numbers = b"".join((array & _UNKNOWN).astype("<u4").tobytes() for array in arrays)
    values = b"".join(_values(bounds, kept) for bounds in (pages.lower, pages.upper))
    return numbers + values, int(kept.sum())


def _values(bounds: PageBounds, kept: npt.NDArray[np.bool_]) -> bytes:
    """Return the bytes of all bounds, one after the other."""
    lengths = np.maximum(bounds.lengths[kept], 0)
    stops = np.cumsum(lengths)
    total = int(stops[-1]) if len(stops) else 0
    positions = np.arange(total) + np.repeat(bounds.offsets[kept] - (stops - lengths), lengths)
    return bytes(bounds.values[positions])


def parse_pages_file(
    data: bytes, *, parquet_size_bytes: int, etag: str | None, places: ChunkPlaces, path: str | None
) -> PartitionPages:
    """Parse a whole ``_pages`` file, and check that it belongs to a Parquet file."""
    header = _parse_header(data, path)
    found_etag = stated_etag(data)
    if header.parquet_size_bytes != parquet_size_bytes:
        raise _stale(
            f"it was made for a Parquet file of {header.parquet_size_bytes:,} bytes, not {parquet_size_bytes:,}",
            "parquet_size_bytes",
            path,
        )
    if etag and found_etag and etag != found_etag:
        raise _stale(f"it was made for version {found_etag} of the Parquet file, not {etag}", "etag", path)
    shape = (header.row_group_count, header.column_count)
    if shape != (places.row_group_count, places.column_count) or header.fingerprint != places.fingerprint:
        raise _stale(
            "it was made for a file with other row groups or columns than the sidecar has", "fingerprint", path
        )
    claimed = _parse_body(_decompress(data, header, path), header, places, path)
    found = check_pages(claimed, places, source="description")
    if found.notes or found.pages is None:
        reason = found.notes[0] if found.notes else "it describes no pages"
        raise ENVELOPE.invalid(reason, "body", path)
    return found.pages


def stated_size_bytes(data: bytes) -> int | None:
    """Return the file size that the beginning of a ``_pages`` file states; None for other files."""
    return int(ENVELOPE.header.unpack(data).file_bytes) if ENVELOPE.is_header(data) else None


def stated_etag(data: bytes) -> str | None:
    """Return the version of the Parquet object that a valid ``_pages`` file was made for; None without one."""
    etag_bytes = ENVELOPE.header.unpack(data).etag_bytes
    return data[_HEADER_BYTES : _HEADER_BYTES + etag_bytes].decode("ascii", "replace") or None


def describe_pages_file(data: bytes, *, path: str | None) -> dict[str, Any]:
    """Describe a whole ``_pages`` file as plain data, by its header and checksum alone."""
    header = _parse_header(data, path)
    return {
        "pages_file": {
            "version": header.version,
            "bytes": header.file_bytes,
            "checksum_stored": header.checksum,
            "row_groups": header.row_group_count,
            "columns": header.column_count,
            "pages": header.page_count,
            "parquet_size": header.parquet_size_bytes,
            "parquet_etag": stated_etag(data),
        }
    }


def _parse_header(data: bytes, path: str | None) -> Any:
    header = ENVELOPE.parse_header(data, path)
    if header.file_bytes != len(data):
        message = f"the file has {len(data):,} bytes, but says {header.file_bytes:,}; copy it again, or"
        raise FormatError(
            f"{message} {ENVELOPE.remedy}",
            kind="Truncated",
            path=path,
            offset=ENVELOPE.header.offset("file_bytes"),
            field="file_bytes",
        )
    ENVELOPE.verify(data, header.checksum, path)
    return header


def _decompress(data: bytes, header: Any, path: str | None) -> bytes:
    compressed = memoryview(data)[_HEADER_BYTES + header.etag_bytes :]
    # Limit the size by the counts and the compressed bytes, before anything is allocated.
    chunk_count = header.row_group_count * header.column_count
    least_bytes = 4 * (2 * chunk_count + 5 * header.page_count)
    if not least_bytes <= header.body_bytes <= ENVELOPE.most_bytes(compressed):
        raise ENVELOPE.invalid(
            f"a body of {header.body_bytes:,} bytes does not go with {header.page_count:,} pages of {chunk_count:,} chunks"
            f" in {len(compressed):,} compressed bytes",
            "body_bytes",
            path,
        )
    return ENVELOPE.inflate(compressed, header.body_bytes, "its body", path, field="body")


def _parse_body(body: bytes, header: Any, places: ChunkPlaces, path: str | None) -> ClaimedPages:
    chunk_count, page_count = places.chunk_count, header.page_count
    numbers = np.frombuffer(body, "<u4", 2 * chunk_count + 5 * page_count).astype(np.int64)
    of_chunks, of_pages = numbers[: 2 * chunk_count].reshape(2, -1), numbers[2 * chunk_count :].reshape(5, -1)
    page_counts, dictionary_bytes = of_chunks
    page_bytes, page_rows = of_pages[:2]
    null_counts, lower_lengths, upper_lengths = np.where(of_pages[2:] == _UNKNOWN, -1, of_pages[2:])
    if page_counts.sum() != page_count:
        raise ENVELOPE.invalid(f"its chunks have {page_counts.sum():,} pages, not {page_count:,}", "pages", path)
    values = np.frombuffer(body, np.uint8, offset=4 * len(numbers))
    sides = _bounds([lower_lengths, upper_lengths], values)
    if sides is None:
        raise ENVELOPE.invalid("its bounds do not fill the body", "bounds", path)
    chunks = np.repeat(np.arange(chunk_count), page_counts)
    # Pages follow one another, so each begins behind those before it, less those of other chunks.
    bytes_before = np.cumsum(page_bytes) - page_bytes
    first_of_chunk = (np.cumsum(page_counts) - page_counts)[chunks]
    return ClaimedPages(
        chunks=chunks,
        starts=(places.starts + dictionary_bytes)[chunks] + bytes_before - bytes_before[first_of_chunk],
        lengths=page_bytes,
        first_rows=first_rows_of(chunks, page_rows, places),
        null_counts=null_counts,
        lower=sides[0],
        upper=sides[1],
    )


def _bounds(sides: Sequence[npt.NDArray[np.int64]], values: npt.NDArray[np.uint8]) -> list[PageBounds] | None:
    """Find the bounds of both sides in their bytes; None if they do not fill these bytes exactly."""
    found, begin = [], 0
    for lengths in sides:
        found.append(PageBounds.one_by_one(lengths, values, begin))
        begin += int(np.maximum(lengths, 0).sum())
    return found if begin == len(values) else None


def _stale(reason: str, field: str, path: str | None) -> FormatError:
    return ENVELOPE.invalid(reason, field, path, kind="StalePages")
