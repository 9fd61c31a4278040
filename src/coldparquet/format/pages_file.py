"""Reads and writes coldparquet's ``_pages`` file beside a sidecar: the pages of all column chunks, in one small object.

With it, page pruning costs no dependent round trip: it is fetched together with the sidecar. It belongs to one version
of one Parquet file, which it identifies, and can always be rebuilt from that file.

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

from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.binary import Envelope
from coldparquet.format.pages import ClaimedPages, PageBounds, check_pages, first_rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.format.pages import ChunkPlaces, PartitionPages

LARGEST_PAGES_FILE_BYTES = 64 * 1024 * 1024
"""Longer files are not fetched: this describes millions of pages."""
LARGEST_BODY_BYTES = 128 * 1024 * 1024
"""Limit of the decompressed body."""

ENVELOPE = Envelope(
    b"COLDPAGE",
    1,
    name="_pages",
    what="a _pages file",
    remedy="'coldparquet index --pages' writes it anew",
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
