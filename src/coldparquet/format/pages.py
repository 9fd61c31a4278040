"""Describes and checks the data pages of every column chunk of one Parquet file: places, rows and bounds.

The pages are flat arrays over all pages of all chunks, so that planning works on thousands of pages at once. They come
from the page index of the file itself or from coldparquet's ``_pages`` file, which was made by walking the page
headers.

All chunks are checked in one step, and bad ones are left out. A page index is optional, so a wrong one may only cost
its benefit: its chunk counts as unknown, and is then read as a whole. Errors such as merely wrong bounds cannot be
detected without decoding.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from coldparquet.errors import FormatError
from coldparquet.format import sidecar_layout as layout
from coldparquet.format.sidecar_header import parse_name
from coldparquet.format.types import distinct_values
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_chunks import RowGroupTable


_BOUND_BYTES = {
    layout.PhysicalType.BOOLEAN: 1,
    layout.PhysicalType.INT32: 4,
    layout.PhysicalType.INT64: 8,
    layout.PhysicalType.FLOAT: 4,
    layout.PhysicalType.DOUBLE: 8,
}
"""Physical types of which every bound has the width of a value."""

_UNBOUNDED_TYPES = (layout.PhysicalType.INT96,)
"""Types without a defined order, so that writers' bounds mean nothing."""

_LARGEST_I64 = np.uint64((1 << 63) - 1)
_UNKNOWN = ~np.uint64(0)
"""-1 as a signed number."""


class ChunkPlaces(Struct, frozen=True, kw_only=True, eq=False):
    """Places and contents of the chunks of a Parquet file: chunk ``row_group * column_count + column``."""

    sidecar: Sidecar
    row_group_count: int
    column_count: int
    row_counts: npt.NDArray[np.int64]
    """Rows of each row group, shape ``(row_groups,)``; 0 where the sidecar names a number beyond any file."""
    starts: npt.NDArray[np.int64]
    """First byte of each chunk, shape ``(chunks,)``; 0 where it is not between magic bytes and footer."""
    stops: npt.NDArray[np.int64]
    """One past its last byte; 0 likewise."""
    null_counts: npt.NDArray[np.int64]
    """NULLs in each chunk; -1 where unknown."""
    is_flat: npt.NDArray[np.bool_]
    """Per column: each row is one value or NULL, so that values and NULLs count rows."""
    has_bounds: npt.NDArray[np.bool_]
    """Per column: bounds of pages are used. Not for lists, whose pages writers mark inconsistently. Otherwise only
    where the sidecar bounds a chunk of the column: the sidecar's writer knows whether the file declares a known order
    of bounds, and whether its writer got them right (``sidecar_content_from_footer``)."""
    bound_bytes: npt.NDArray[np.int64]
    """Per column: length of every bound in bytes; -1 where it varies."""
    may_be_empty: npt.NDArray[np.bool_]
    """Per column: a bound of no bytes is an empty string, and not a missing one."""
    has_pages: npt.NDArray[np.bool_]
    """Per column: its pages are used. Those of a nested column are not: rows of its leaves do not begin with their pages."""
    fingerprint: int
    """CRC-32 of all metadata of the chunks, bounds included: a file with other statistics has another one."""

    @property
    def chunk_count(self) -> int:
        """Number of column chunks."""
        return self.row_group_count * self.column_count

    def describe(self, chunk: int) -> str:
        """Name one chunk in a message."""
        row_group, column = divmod(chunk, self.column_count)
        try:
            name = repr(parse_name(self.sidecar.file, column, path=self.sidecar.path))
        except FormatError:
            name = str(column)
        return f"column {name} of row group {row_group}"


def chunk_places(sidecar: Sidecar) -> ChunkPlaces:
    """Collect what pages are checked against; wrong numbers are left out, nothing raises."""
    blocks, column_count = sidecar.blocks, sidecar.column_count
    chunks = blocks.chunks(slice(None), np.arange(column_count))
    row_counts, starts, lengths = blocks.row_counts, chunks["byte_range_start"], chunks["total_compressed"]
    inside = _are_inside(sidecar.data_stops[:, np.newaxis], starts, lengths)
    null_counts = chunks["null_count"]
    is_known = (chunks["stat_flags"] & layout.STAT_NULL_COUNT_PRESENT != 0) & (null_counts <= _LARGEST_I64)
    is_bounded = (chunks["stat_flags"] & (layout.STAT_PRESENT | layout.STAT_PRESENT << layout.STAT_MAX_SHIFT) != 0).any(
        axis=0
    )
    descriptors = sidecar.header.descriptors
    types, is_list = descriptors["physical_type"], descriptors["max_rep_level"] > 0
    bound_bytes = np.full(column_count, -1, np.int64)
    for physical_type, width in _BOUND_BYTES.items():
        bound_bytes[types == physical_type] = width
    return ChunkPlaces(
        sidecar=sidecar,
        row_group_count=sidecar.row_group_count,
        column_count=column_count,
        row_counts=_signed(row_counts, row_counts <= _LARGEST_I64),
        starts=_signed(starts, inside).reshape(-1),
        stops=_signed(starts + lengths, inside).reshape(-1),
        null_counts=np.where(is_known, null_counts, _UNKNOWN).astype(np.int64).reshape(-1),
        is_flat=~is_list & (descriptors["max_def_level"] <= 1),
        has_bounds=~is_list & ~np.isin(types, _UNBOUNDED_TYPES) & is_bounded,
        bound_bytes=bound_bytes,
        may_be_empty=types == layout.PhysicalType.BYTE_ARRAY,
        has_pages=np.isin(np.arange(column_count), list(sidecar.nested), invert=True),
        fingerprint=_fingerprint(sidecar, row_counts, chunks),
    )


def last_chunk_stops(table: RowGroupTable) -> npt.NDArray[np.int64]:
    """Return where the last chunk of each row group ends, shape (row groups,); wrong numbers are left out, nothing raises."""
    starts = table.blocks.chunk_field("byte_range_start")
    lengths = table.blocks.chunk_field("total_compressed")
    inside = _are_inside(table.data_stops[:, np.newaxis], starts, lengths)
    stops: npt.NDArray[np.uint64] = (starts + lengths) * inside
    last: npt.NDArray[np.int64] = stops.max(axis=1, initial=0).astype(np.int64)
    return last


def _are_inside(
    data_stops: npt.NDArray[np.uint64], starts: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64]
) -> npt.NDArray[np.bool_]:
    """Tell which chunks are inside the data of their Parquet file."""
    stops = starts + lengths  # less than the start where the sum exceeds 64 bits
    inside = (starts >= layout.PARQUET_MAGIC_BYTES) & (stops >= starts) & (stops <= data_stops)
    return inside & (data_stops <= _LARGEST_I64)


def _signed(values: npt.NDArray[np.uint64], valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    return np.where(valid, values, np.uint64(0)).astype(np.int64)


def _fingerprint(sidecar: Sidecar, row_counts: npt.NDArray[np.uint64], chunks: npt.NDArray[np.void]) -> int:
    """Compute a checksum of rows, all fields of the chunks, shape ``(row_groups, columns)``, and the bounds behind them.

    Only the bytes of the bounds count, not their places: sidecars of one file with and without bloom filters between
    them agree.
    """
    chunks = chunks.copy()
    block_ends = sidecar.blocks.first_words * layout.WORD_BYTES + layout.block_bytes(sidecar.column_count)
    behind_chunks = np.repeat(block_ends[:, np.newaxis], sidecar.column_count, axis=1)
    checksum = zlib.crc32(row_counts.astype("<u8", copy=False).tobytes())
    for side, shift in (("min", 0), ("max", layout.STAT_MAX_SHIFT)):
        place = chunks["stat_flags"] >> shift & (layout.STAT_PRESENT | layout.STAT_INLINED)
        is_long = place == layout.STAT_PRESENT
        references = chunks[side][is_long]
        lengths = references & np.uint64(layout.MAX_OUT_OF_LINE_BYTES)
        # At most 2**48 plus an offset in the file: no overflow.
        offsets = references >> np.uint64(layout.OUT_OF_LINE_LENGTH_BITS)
        starts = behind_chunks[is_long] + offsets.astype(np.int64)
        checksum = zlib.crc32(_bytes_at(sidecar.file, starts, lengths.astype(np.int64)), checksum)
        chunks[side][is_long] = lengths
    return zlib.crc32(chunks.tobytes(), checksum)


def _bytes_at(file: memoryview, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> bytes:
    """Return the bytes of all places inside of a file; none where they are more than it has, as bounds never are."""
    inside = starts + lengths <= len(file)
    starts, lengths = starts[inside], lengths[inside]
    total = int(lengths.sum())
    if total > len(file):
        return b""
    first_positions = np.cumsum(lengths) - lengths
    positions = np.arange(total) + np.repeat(starts - first_positions, lengths)
    return bytes(np.frombuffer(file, np.uint8)[positions])


class PageBounds(Struct, frozen=True, kw_only=True, eq=False):
    """One side's bounds of every page, as the bytes that statistics hold."""

    offsets: npt.NDArray[np.int64]
    """Start of the bytes of each bound in ``values``, shape ``(pages,)``."""
    lengths: npt.NDArray[np.int64]
    """Their number; -1 where there is no bound."""
    values: npt.NDArray[np.uint8]
    """The bytes of all bounds; bounds may be truncated, so that they need not be values of the page."""

    @classmethod
    def one_by_one(cls, lengths: npt.NDArray[np.int64], values: npt.NDArray[np.uint8], begin: int = 0) -> PageBounds:
        """Make bounds whose bytes follow one another from some place in `values` on."""
        taken = np.maximum(lengths, 0)
        return cls(offsets=begin + np.cumsum(taken) - taken, lengths=lengths, values=values)


class PartitionPages(Struct, frozen=True, kw_only=True, eq=False):
    """Pages of one Parquet file, chunk by chunk.

    Chunk ``row_group * column_count + column`` has the pages ``[first_page[chunk], first_page[chunk + 1])``; an unknown
    chunk has none. The code that makes one checks it: within a chunk the rows begin at 0 and ascend to below the row
    count. The pages are inside the chunk, in order, without overlap, the dictionary page before them.
    """

    row_group_count: int
    column_count: int
    first_page: npt.NDArray[np.int64]
    """Shape ``(row_group_count * column_count + 1,)``."""
    first_rows: npt.NDArray[np.int64]
    """First row of each page, counted in its row group, shape ``(pages,)``; a page begins where a row does."""
    starts: npt.NDArray[np.int64]
    """First byte of each page, header included, in the Parquet file."""
    stops: npt.NDArray[np.int64]
    """One past its last byte."""
    dictionary_starts: npt.NDArray[np.int64]
    """First byte of each chunk's dictionary page, shape ``(row_group_count * column_count,)``."""
    dictionary_stops: npt.NDArray[np.int64]
    """One past its last byte; equal to the start where there is none."""
    null_counts: npt.NDArray[np.int64]
    """NULLs in each page, shape ``(pages,)``; -1 where unknown."""
    lower: PageBounds
    upper: PageBounds
    first_row_group: int = 0
    """Number of row group 0 in the file, if the pages of some row groups were taken out."""


def join_pages(preferred: PartitionPages, others: PartitionPages) -> PartitionPages:
    """Complete one description of a file's pages with the chunks that only another description has."""
    unknown = np.diff(preferred.first_page) == 0
    chunk_of_other = np.repeat(np.arange(len(unknown)), np.diff(others.first_page))
    added = np.flatnonzero(unknown[chunk_of_other])
    chunks = np.concatenate([np.repeat(np.arange(len(unknown)), np.diff(preferred.first_page)), chunk_of_other[added]])
    order = np.argsort(chunks, kind="stable")

    def both(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.concatenate([first, second[added]])[order]

    def both_bounds(first: PageBounds, second: PageBounds) -> PageBounds:
        return PageBounds(
            offsets=both(first.offsets, second.offsets + len(first.values)),
            lengths=both(first.lengths, second.lengths),
            values=np.concatenate([first.values, second.values]),
        )

    page_counts = np.bincount(chunks, minlength=len(unknown))
    return PartitionPages(
        row_group_count=preferred.row_group_count,
        column_count=preferred.column_count,
        first_page=np.concatenate([np.zeros(1, np.int64), np.cumsum(page_counts, dtype=np.int64)]),
        first_rows=both(preferred.first_rows, others.first_rows),
        starts=both(preferred.starts, others.starts),
        stops=both(preferred.stops, others.stops),
        dictionary_starts=np.where(unknown, others.dictionary_starts, preferred.dictionary_starts),
        dictionary_stops=np.where(unknown, others.dictionary_stops, preferred.dictionary_stops),
        null_counts=both(preferred.null_counts, others.null_counts),
        lower=both_bounds(preferred.lower, others.lower),
        upper=both_bounds(preferred.upper, others.upper),
    )


class PagesFound(Struct, frozen=True, kw_only=True, eq=False):
    """The result of a search for the pages of a file."""

    pages: PartitionPages | None
    """None where nothing usable was found."""
    notes: tuple[str, ...] = ()
    """What was left out, and why, one sentence each."""
    etag: str | None = None
    """Version of the Parquet object that they describe; None where that is not known."""


class ClaimedPages(Struct, frozen=True, kw_only=True, eq=False):
    """Data pages of some chunks, as a file claims them: nothing is checked yet, but all numbers fit 64 bits."""

    chunks: npt.NDArray[np.int64]
    """Chunk of each page, ``row_group * column_count + column``, ascending, shape ``(pages,)``; those of a chunk in order."""
    starts: npt.NDArray[np.int64]
    """First byte of each page in the file."""
    lengths: npt.NDArray[np.int64]
    """Its bytes, header included."""
    first_rows: npt.NDArray[np.int64]
    """First row of each page, counted in its row group."""
    null_counts: npt.NDArray[np.int64]
    """NULLs in each page; -1 where unknown."""
    lower: PageBounds
    upper: PageBounds


class PageLists:
    """Collects pages, chunk by chunk, in lists over all of them: arrays per chunk would cost more."""

    def __init__(self) -> None:
        self._chunks: list[int] = []
        self._page_counts: list[int] = []
        self._numbers: tuple[list[int], ...] = ([], [], [], [])
        self._bounds: tuple[list[bytes | None], ...] = ([], [])

    def add(  # noqa: PLR0913 - one column of pages each
        self,
        chunk: int,
        *,
        starts: Sequence[int],
        lengths: Sequence[int],
        rows: Sequence[int],
        null_counts: Sequence[int | None] | None,
        lower: Sequence[bytes | None],
        upper: Sequence[bytes | None],
    ) -> None:
        """Add the pages of one chunk; chunks ascend. None is an unknown number, or no bound."""
        self._chunks.append(chunk)
        self._page_counts.append(len(starts))
        known = [-1 if count is None else count for count in null_counts or [None] * len(starts)]
        for column, values in zip(self._numbers, (starts, lengths, rows, known), strict=True):
            column.extend(values)
        for bounds, of_chunk in zip(self._bounds, (lower, upper), strict=True):
            bounds.extend(of_chunk)

    def claimed(self) -> ClaimedPages:
        """Return all pages; `rows` is taken for their first rows."""
        limits = np.iinfo(np.int64)
        starts, lengths, rows, null_counts = (
            np.array([min(max(value, limits.min), limits.max) for value in values], np.int64)
            for values in self._numbers
        )
        lower, upper = map(_page_bounds, self._bounds)
        return ClaimedPages(
            chunks=np.repeat(np.array(self._chunks, np.int64), np.array(self._page_counts, np.int64)),
            starts=starts,
            lengths=lengths,
            first_rows=rows,
            null_counts=null_counts,
            lower=lower,
            upper=upper,
        )


def _page_bounds(bounds: Sequence[bytes | None]) -> PageBounds:
    lengths = np.array([-1 if bound is None else len(bound) for bound in bounds], np.int64)
    values = np.frombuffer(b"".join(bound or b"" for bound in bounds), np.uint8)
    return PageBounds.one_by_one(lengths, values)


def first_rows_of(
    chunks: npt.NDArray[np.int64], page_rows: npt.NDArray[np.int64], places: ChunkPlaces
) -> npt.NDArray[np.int64]:
    """Return the first row of each page from the rows of all pages."""
    stops = np.cumsum(page_rows)
    page_counts = np.bincount(chunks, minlength=places.chunk_count)
    before = np.concatenate([np.zeros(1, np.int64), stops])[np.cumsum(page_counts) - page_counts]
    totals = np.concatenate([np.zeros(1, np.int64), stops])[np.cumsum(page_counts)] - before
    adds_up = totals == np.repeat(places.row_counts, places.column_count)
    return np.where(adds_up[chunks], stops - page_rows - before[chunks], -1)


_NOT_IN_PLACE = "its pages do not follow one another up to the end of the chunk"
_ROWS_NOT_ASCENDING = "its pages do not share out the rows of the row group"
_NULLS_DO_NOT_ADD_UP = "its counts of NULLs do not add up"


def check_pages(
    claimed: ClaimedPages, places: ChunkPlaces, *, source: str, problems: Mapping[int, str] | None = None
) -> PagesFound:
    """Leave out the chunks whose pages are contradictory."""
    is_last = np.append(claimed.chunks[1:] != claimed.chunks[:-1], np.ones(min(len(claimed.chunks), 1), np.bool_))
    is_bad = np.zeros(places.chunk_count, np.bool_)
    reasons: dict[int, str] = dict(problems or {})
    page_rows, in_order = _rows_of_pages(claimed, places, is_last)
    for is_right, reason in (
        (_in_place(claimed, places, is_last), _NOT_IN_PLACE),
        (in_order, _ROWS_NOT_ASCENDING),
        (_nulls_fit(claimed, places, page_rows), _NULLS_DO_NOT_ADD_UP),
    ):
        for chunk in distinct_values(claimed.chunks[~is_right]).tolist():
            is_bad[chunk] = True
            reasons.setdefault(chunk, reason)
    kept = ~is_bad[claimed.chunks] & places.has_pages[claimed.chunks % max(places.column_count, 1)]
    notes = tuple(_notes(reasons, places, source))
    if not kept.any():
        return PagesFound(pages=None, notes=notes)
    return PagesFound(pages=_assemble(claimed, places, kept), notes=notes)


def _in_place(claimed: ClaimedPages, places: ChunkPlaces, is_last: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Tell which pages are inside their chunk and end where the next one begins, the last one where the chunk ends."""
    starts, lengths = claimed.starts, claimed.lengths
    chunk_stops = places.stops[claimed.chunks]
    inside = (starts >= places.starts[claimed.chunks]) & (starts < chunk_stops) & (lengths > 0)
    inside &= lengths <= chunk_stops - starts
    stops = np.where(inside, starts, 0) + np.where(inside, lengths, 0)
    inside &= stops == np.where(is_last, chunk_stops, np.roll(starts, -1))
    return inside


def _rows_of_pages(
    claimed: ClaimedPages, places: ChunkPlaces, is_last: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the number of rows of each page, and whether it holds any, and begins at row 0 if it is its chunk's first."""
    row_counts = places.row_counts[claimed.chunks // max(places.column_count, 1)]
    first_rows = claimed.first_rows
    inside = (first_rows >= 0) & (first_rows < row_counts)
    page_rows = np.where(is_last, row_counts, np.roll(first_rows, -1)) - first_rows
    is_first = np.roll(is_last, 1)
    return page_rows, inside & (page_rows > 0) & (~is_first | (first_rows == 0))


def _nulls_fit(claimed: ClaimedPages, places: ChunkPlaces, page_rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Tell which pages have no more NULLs than rows, and add up to their chunk's NULLs; lists count otherwise."""
    if not len(claimed.chunks):
        return np.ones(0, np.bool_)
    is_known = (claimed.null_counts >= 0) & (claimed.null_counts <= page_rows)
    first_pages = np.flatnonzero(np.append(True, claimed.chunks[1:] != claimed.chunks[:-1]))
    chunk_nulls = places.null_counts[claimed.chunks[first_pages]]
    adds_up = (chunk_nulls < 0) | (np.add.reduceat(claimed.null_counts, first_pages) == chunk_nulls)
    all_known = np.logical_and.reduceat(is_known, first_pages)
    all_unknown = np.logical_and.reduceat(claimed.null_counts == -1, first_pages)
    fits = np.repeat((all_known & adds_up) | all_unknown, np.diff(np.append(first_pages, len(claimed.chunks))))
    return fits | ~places.is_flat[claimed.chunks % places.column_count]


def _assemble(claimed: ClaimedPages, places: ChunkPlaces, kept: npt.NDArray[np.bool_]) -> PartitionPages:
    chunks = claimed.chunks[kept]
    columns = chunks % places.column_count
    page_counts = np.bincount(chunks, minlength=places.chunk_count)
    first_page = np.concatenate([np.zeros(1, np.int64), np.cumsum(page_counts, dtype=np.int64)])
    starts = claimed.starts[kept]
    dictionary_stops = places.starts.copy()
    is_known = page_counts > 0
    dictionary_stops[is_known] = starts[first_page[:-1][is_known]]
    return PartitionPages(
        row_group_count=places.row_group_count,
        column_count=places.column_count,
        first_page=first_page,
        first_rows=claimed.first_rows[kept],
        starts=starts,
        stops=starts + claimed.lengths[kept],
        dictionary_starts=places.starts,
        dictionary_stops=dictionary_stops,
        null_counts=np.where(places.is_flat[columns], claimed.null_counts[kept], -1),
        lower=_usable_bounds(claimed.lower, places, columns, kept),
        upper=_usable_bounds(claimed.upper, places, columns, kept),
    )


def _usable_bounds(
    bounds: PageBounds, places: ChunkPlaces, columns: npt.NDArray[np.int64], kept: npt.NDArray[np.bool_]
) -> PageBounds:
    """Leave out bounds of a width that no value of the column has."""
    lengths, widths = bounds.lengths[kept], places.bound_bytes[columns]
    is_usable = places.has_bounds[columns] & np.where(widths >= 0, lengths == widths, lengths >= 0)
    is_usable &= (lengths > 0) | places.may_be_empty[columns]
    return replace(bounds, offsets=bounds.offsets[kept], lengths=np.where(is_usable, lengths, -1))


def _notes(reasons: Mapping[int, str], places: ChunkPlaces, source: str) -> Iterator[str]:
    by_reason: dict[str, list[int]] = {}
    for chunk in sorted(reasons):
        by_reason.setdefault(reasons[chunk], []).append(chunk)
    for reason, chunks in by_reason.items():
        others = f" and {len(chunks) - 1:,} more column chunks" if len(chunks) > 1 else ""
        yield f"the {source} of {places.describe(chunks[0])}{others} left aside: {reason}"
