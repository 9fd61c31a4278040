"""Decodes the bytes of one read to the selected rows of each fetched column, and checks them against the plan.

Text with a dictionary stays dictionary-encoded, even where the result is to hold plain strings: these are made of the
rows that remain, which takes half the time and checks each string once.

The first decoding of a process is done in advance. It loads Arrow's code, fills its function tables and gives each
thread memory of its own: about 3 ms of processor time, where later decoding of a few rows takes 0.5 ms.

List columns of which only some pages were fetched need care. Page headers give the number of elements, but not always
the number of rows. So runs of pages are decoded one by one, and each must hold exactly the planned rows; otherwise rows
of different columns would be mixed up. pyarrow refuses a run that begins in the middle of a row.

In files without a known writer, pages may be compressed although they claim not to be. Arrow before 3.0 compressed data
pages of version 2 and marked them as uncompressed. pyarrow recognises such a file by its writer, which sidecars made by
QuestDB or older versions of this library do not name. The page itself tells nearly as well: uncompressed values have
the stated length, and do not decompress.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.decode.arrow import DICTIONARY_TYPE, arrow_type, mask_to_arrow
from coldparquet.decode.dictionaries import (
    SEPARABLE_CODECS,
    decode_dictionary_chunk,
    dictionary_value_bytes,
    distinct_entries,
    is_as_stored,
    longest_text,
)
from coldparquet.decode.expansion import (
    check_decoded_size,
    check_decompressed_size,
    delta_text_bytes,
    is_boundless,
    may_decompress_to,
)
from coldparquet.decode.filter import filter_rows
from coldparquet.decode.parquet_reader import ChunkLabel, read_columns
from coldparquet.decode.result_text import most_expanded_bytes
from coldparquet.decode.virtual_file import CODECS, leaf_of, one_column_file
from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.format.page_headers import FetchedPages, PageType, count_values, first_page, iterate_pages
from coldparquet.format.parquet_schema import LeafSpec, note_of_levels
from coldparquet.format.parquet_thrift import DataPageHeader, PageHeader
from coldparquet.format.sidecar_layout import Codec, Encoding, PhysicalType
from coldparquet.format.type_codes import TypeTag
from coldparquet.format.types import resolve_type
from coldparquet.plan.bind import BoundComparison, BoundField
from coldparquet.plan.predicate import And, Operator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.decode.arrow import TextAs
    from coldparquet.decode.virtual_file import ReadFiles, VirtualColumn, VirtualFile
    from coldparquet.format.page_headers import Page
    from coldparquet.plan.model import Read
    from coldparquet.plan.selection import RowSelection


_WRONG_INDEX = "the page index is wrong, or the file is damaged: read with ReadOptions(page_index='never')"


def check_flat_pages(pieces: Sequence[bytes], rows: RowSelection, label: ChunkLabel) -> None:
    """Check by their headers that the pages of a column without lists hold the expected rows."""
    counts = np.array([parsed_value_count(piece, label) for piece in pieces], dtype=np.int64)
    check_rows_of_pieces(counts, rows, label)


def parsed_value_count(piece: bytes, label: ChunkLabel) -> int:
    """Return the number of values, nulls included, in the page headers of a piece."""
    value_count = count_values(piece)
    if value_count is None:
        raise label.damaged(f"the fetched bytes are not a sequence of pages; {_WRONG_INDEX}", field="page_index")
    return value_count


def check_rows_of_pieces(piece_rows: npt.NDArray[np.int64], rows: RowSelection, label: ChunkLabel) -> None:
    """Check that every range of rows ends at the end of a piece, so that no row is mistaken for another."""
    found, expected = np.cumsum(piece_rows).tolist(), np.cumsum(rows.stops - rows.starts).tolist()
    total = found[-1] if found else 0
    if total != rows.row_count or not set(expected).issubset(found):
        raise label.damaged(
            f"the fetched pages hold {total} rows, expected {rows.row_count} in {len(rows.starts)} ranges; {_WRONG_INDEX}",
            field="row_count",
        )


def decode_list_pages(  # noqa: PLR0913 - the pages of one column, and how to decode them
    pieces: Sequence[bytes],
    leaf: LeafSpec,
    *,
    codec: int,
    created_by: str | None,
    rows: RowSelection,
    label: ChunkLabel,
    check_page_checksums: bool,
) -> pa.ChunkedArray[Any]:
    """Decode the fetched pages of a column of lists."""
    dictionary = _dictionary_page(pieces[0]) if pieces else b""
    chunks: list[Any] = []
    row_counts = []
    for index, piece in enumerate(pieces):
        pages = [piece] if index == 0 else [dictionary, piece]
        value_count = parsed_value_count(piece, label)
        # Only a dictionary page: pyarrow makes an array of the right type without rows.
        file = one_column_file(pages, leaf, value_count=value_count, codec=codec, created_by=created_by)
        [decoded] = read_columns(file, {leaf.name: label}, check_page_checksums=check_page_checksums)
        chunks += decoded.chunks
        row_counts.append(len(decoded))
    check_rows_of_pieces(np.array(row_counts, dtype=np.int64), rows, label)
    return pa.chunked_array(chunks)


def _dictionary_page(piece: bytes) -> bytes:
    page = first_page(piece)
    return piece[: page.stop] if page is not None and page.header.type == PageType.DICTIONARY else b""


_LEAST_ROWS_PER_SLICE = 4096
"""Slices cost nothing but make one chunk each, which all later steps handle one by one."""

_LARGEST_SHARE_LEFT_OUT = 0.5
"""A slice keeps all rows of its array in memory, so it must select most of them."""


def select_rows(
    arrays: Sequence[pa.ChunkedArray[Any]], positions: RowSelection | None, *, held_rows: int
) -> list[pa.ChunkedArray[Any]]:
    """Select rows of equally long arrays: as slices if they are few and long, otherwise as copies."""
    if positions is None or positions.row_count == held_rows or not arrays:
        return list(arrays)
    if _slices_pay(positions, held_rows):
        return [_slices(array, positions) for array in arrays]
    held = pa.Table.from_arrays(list(arrays), names=list(map(str, range(len(arrays)))))
    copies: list[Any] = held.filter(_mask(positions, held_rows)).combine_chunks().columns
    return copies


def rows_within(selection: RowSelection | None, fetched: RowSelection | None) -> RowSelection | None:
    """Return the positions of selected rows among the fetched rows."""
    if fetched is None:
        return selection
    if selection is None:
        raise InternalError("all rows of a row group are selected, but only some were fetched")
    return fetched.positions_of(selection)


def _slices_pay(positions: RowSelection, held_rows: int) -> bool:
    kept_rows = positions.row_count
    are_long = kept_rows >= _LEAST_ROWS_PER_SLICE * len(positions.starts)
    return are_long and kept_rows >= held_rows * (1 - _LARGEST_SHARE_LEFT_OUT)


def _slices(array: pa.ChunkedArray[Any], positions: RowSelection) -> pa.ChunkedArray[Any]:
    ranges = zip(positions.starts.tolist(), (positions.stops - positions.starts).tolist(), strict=True)
    slices: list[Any] = [chunk for start, length in ranges for chunk in array.slice(start, length).chunks]
    return pa.chunked_array(slices, type=array.type)


def _mask(positions: RowSelection, row_count: int) -> pa.BooleanArray:
    edges = np.zeros(row_count + 1, dtype=np.int8)
    edges[positions.starts] += 1
    edges[positions.stops] -= 1
    return mask_to_arrow(np.cumsum(edges[:-1], dtype=np.int8).astype(bool))


def check_compression_marks(pages: bytes, codec: int, label: ChunkLabel) -> None:
    """Check that data pages marked as uncompressed cannot be compressed."""
    for page in iterate_pages(pages, len(pages)) if codec else ():
        if page.header.type == PageType.DATA:
            return
        if _may_be_compressed(page, pages, codec):
            raise UnsupportedError(
                f"{label}: a page is marked as not compressed but may be, as in files of Arrow before 3.0, and the sidecar"
                " does not note who wrote the file: make it anew with 'coldparquet index --force'",
                kind="UnknownWriter",
                path=label.path,
                row_group=label.row_group,
                columns=label.columns,
            )


def _may_be_compressed(page: Page, pages: bytes, codec: int) -> bool:
    """Tell whether the values of a page may be compressed although it is marked as uncompressed."""
    header = page.header.data_page_header_v2
    if page.header.type != PageType.DATA_V2 or header is None or header.is_compressed is not False:
        return False
    levels_bytes = (header.definition_levels_byte_length or 0) + (header.repetition_levels_byte_length or 0)
    values = memoryview(pages)[page.body_start + levels_bytes : page.stop]
    size_bytes = (page.header.uncompressed_page_size or 0) - levels_bytes
    if len(values) != size_bytes:
        return True
    name: Any = CODECS[codec]  # the stubs list Arrow's names
    if name not in SEPARABLE_CODECS:
        return size_bytes > 0
    try:
        pa.decompress(values, decompressed_size=size_bytes, codec=name, asbytes=True)
    except (pa.ArrowException, OSError):
        return False
    return size_bytes > 0


_INT96_LIMIT_S = 9_223_372_036
"""Seconds from 1970 to the last whole second that 64-bit nanoseconds can hold."""


class FetchedColumns:
    """The fetched columns of one read.

    Args:
        buffer: The virtual files, complete.
        read: The read that they hold.
        check_page_checksums: Whether to compare the CRC-32 of each page that has one.
        most_bytes: Approximate memory limit; None for none.
    """

    def __init__(self, buffer: ReadFiles, read: Read, *, check_page_checksums: bool, most_bytes: int | None) -> None:
        self._most_bytes = most_bytes
        self._check_page_checksums = check_page_checksums
        self._buffer = buffer
        self._bytes = buffer.bytes()
        self._read = read
        self._columns = [read.data.columns[column] for column in read.columns]
        self._leaves = [leaf_of(column) for column in self._columns]
        self._codecs: list[int] = read.chunks["codec"].tolist()
        self._width = read.columns_per_row_group
        self._row_groups = read.by_row_group
        self._chunk_pages: dict[int, FetchedPages] = {}
        """By position, as far as a check has asked for them."""
        self.labels = [
            ChunkLabel(path=read.data.path, row_group=read.row_group, columns=(column.name,))
            for column in self._columns
        ]
        """Each chunk, for error messages."""

    def decode(self, *, text: TextAs, known: Mapping[int | None, pa.Array[Any]]) -> dict[int, pa.ChunkedArray[Any]]:
        """Decode every column; the result has their numbers, of nested ones those of their first leaves."""
        if not self._read.data.is_writer_known:
            for position, label in enumerate(self.labels):
                check_compression_marks(b"".join(self._pieces(position)), self._codecs[position], label)
        decoded: dict[int, pa.ChunkedArray[Any]] = {}
        for file_index, file in enumerate(self._buffer.files):
            decoded |= self._decode_file(file_index, file, text, known)
        for position, rows in enumerate(self._read.column_rows[: self._width]):
            if position not in decoded and self._columns[position].part_of is None:
                decoded[position] = self._decode_lists(position, rows)
        return {self._read.columns[position]: array for position, array in decoded.items()}

    def _decode_file(
        self, file_index: int, file: VirtualFile, text: TextAs, known: Mapping[int | None, pa.Array[Any]]
    ) -> dict[int, pa.ChunkedArray[Any]]:
        held_rows = self._read.row_group_rows if file.rows is None else file.rows.row_count
        if file.rows is not None:
            for column in file.columns:
                check_flat_pages(self._pieces(column.position), file.rows, self.labels[column.position])
        if self._most_bytes is not None:
            for column in file.columns:
                position = column.position
                if is_boundless(self._codecs[position]) and may_decompress_to(column.length_bytes, self._most_bytes):
                    label, pages = self.labels[position], self._pages(column)
                    check_decompressed_size(pages, self._most_bytes, label, row_count=self._held_rows(file, column))
                self._check_value_bytes(column, self._held_rows(file, column), self._most_bytes)
        arrays = self._decode_columns(file_index, text, known)
        for position, array in arrays.items():
            if len(array) != held_rows:
                message = f"holds {len(array)} rows, expected {held_rows}"
                raise self.labels[position].damaged(message, field="row_count")
        positions = rows_within(self._read.selection, file.rows)
        return dict(zip(arrays, select_rows(list(arrays.values()), positions, held_rows=held_rows), strict=True))

    def _held_rows(self, file: VirtualFile, column: VirtualColumn) -> int:
        """Return the number of rows in the fetched pages of a chunk."""
        return (
            self._row_groups[column.position // self._width].row_group_rows
            if file.rows is None
            else file.rows.row_count
        )

    def _check_value_bytes(self, column: VirtualColumn, row_count: int, most_bytes: int) -> None:
        """Refuse pages of few bytes whose values would exceed the memory limit."""
        leaf = self._leaves[column.position]
        codec, label = self._codecs[column.position], self.labels[column.position]
        value_count = int(self._read.chunks["value_count"][column.position]) if leaf.max_rep_level else row_count
        if leaf.physical_type is not PhysicalType.BYTE_ARRAY or value_count < 2:
            return
        pages = self._pages(column)
        size_bytes = delta_text_bytes(pages, codec=codec, leaf=leaf, label=label, enough_bytes=most_bytes)
        if not self._is_text(column.position):  # text of a dictionary is not expanded here
            size_bytes += dictionary_value_bytes(
                pages,
                codec=codec,
                value_count=value_count,
                levels=self._levels(column.position),
                label=label,
                enough_bytes=most_bytes,
            )
        if size_bytes > most_bytes:
            check_decoded_size(pages, size_bytes, most_bytes, label, row_count=value_count)

    def _levels(self, position: int) -> LeafSpec:
        """Return a column of INT32 that has the levels of another one."""
        leaf, column = self._leaves[position], self._columns[position]
        first = self._read.columns[position] if column.part_of is None else column.part_of
        stored = leaf_of(self._read.data.columns[first]).stored
        return LeafSpec(
            name="numbers",
            physical_type=PhysicalType.INT32,
            max_rep_level=leaf.max_rep_level,
            max_def_level=leaf.max_def_level,
            stored=None if stored is None else note_of_levels(stored, leaf.number),
        )

    def _is_text(self, position: int) -> bool:
        stored = self._columns[position].type
        return stored.arrow.name in {"string", "dictionary"} and not stored.raw_array

    def _is_to_be_dictionary(self, column: VirtualColumn, row_count: int, text: TextAs) -> bool:
        """Tell whether a text column becomes dictionary-encoded however long it takes: plain strings are too large."""
        type_: Any = arrow_type(self._columns[column.position].type, text=text)
        if pa.types.is_dictionary(type_) or self._most_bytes is None:
            return pa.types.is_dictionary(type_)
        most_bytes = most_expanded_bytes(self._most_bytes)
        if not may_decompress_to(column.length_bytes * row_count, most_bytes):
            return False
        longest_bytes = longest_text(
            self._pages(column),
            codec=self._codecs[column.position],
            label=self.labels[column.position],
            check_page_checksums=self._check_page_checksums,
        )
        return row_count * longest_bytes > most_bytes

    def _may_stay_dictionary(self, column: VirtualColumn, text: TextAs) -> bool:
        """Tell whether the caller takes a text column as a dictionary, at least until its rows are delivered."""
        if not self._is_text(column.position):
            return False
        type_: Any = arrow_type(self._columns[column.position].type, text=text)
        return pa.types.is_dictionary(type_) or self._most_bytes is not None

    def _decode_columns(
        self, file_index: int, text: TextAs, known: Mapping[int | None, pa.Array[Any]]
    ) -> dict[int, pa.ChunkedArray[Any]]:
        """Decode the columns of one file with pyarrow, all at once, except text whose dictionary it could get wrong."""
        file = self._buffer.files[file_index]
        arrays: dict[int, pa.ChunkedArray[Any]] = {}
        entry_counts: dict[VirtualColumn, list[int]] = {}
        columns = [column for column in file.columns if column.position < self._width]
        for column in columns:
            if not self._may_stay_dictionary(column, text):
                continue
            strings = known.get(self._read.columns[column.position])
            counts = None if strings is not None else self._distinct_entries(file, column)
            if counts is not None:
                entry_counts[column] = counts
            elif any(
                self._is_to_be_dictionary(chunk, self._held_rows(file, chunk), text)
                for chunk in self._chunks(file, column)
            ):
                array = self._take_apart(file, column, strings)
                if array is not None:
                    arrays[column.position] = array
        others = [
            column
            for column in columns
            if column.position not in arrays and self._columns[column.position].part_of is None
        ]
        arrays |= self._decode_values(file_index, others, as_dictionary=[column.name for column in entry_counts])
        for column, counts in entry_counts.items():
            rows = [self._held_rows(file, chunk) for chunk in self._chunks(file, column)]
            if not is_as_stored(arrays[column.position], counts, rows, self.labels[column.position]):
                array = self._take_apart(file, column, None)
                if array is None:
                    raise InternalError("a dictionary and its indices were not taken apart")
                arrays[column.position] = array
        return arrays

    def _chunks(self, file: VirtualFile, column: VirtualColumn) -> list[VirtualColumn]:
        """Return the chunks of a column, one for each row group of a file."""
        return [chunk for chunk in file.columns if chunk.position % self._width == column.position]

    def _distinct_entries(self, file: VirtualFile, column: VirtualColumn) -> list[int] | None:
        """Return the number of entries in each dictionary of a column if pyarrow may read all of them itself."""
        counts = []
        for chunk in self._chunks(file, column):
            codec, row_count = self._codecs[chunk.position], self._held_rows(file, chunk)
            count = distinct_entries(
                self._pages(chunk), codec, row_count=row_count, created_by=self._read.data.created_by
            )
            if count is None:
                return None
            counts.append(count)
        return counts

    def _take_apart(
        self, file: VirtualFile, column: VirtualColumn, known: pa.Array[Any] | None
    ) -> pa.ChunkedArray[Any] | None:
        arrays: list[Any] = []
        for chunk in self._chunks(file, column):
            array = decode_dictionary_chunk(
                self._pages(chunk),
                codec=self._codecs[chunk.position],
                created_by=self._read.data.created_by,
                row_count=self._held_rows(file, chunk),
                max_def_level=self._leaves[chunk.position].max_def_level,
                label=self.labels[chunk.position],
                known=known,
                check_page_checksums=self._check_page_checksums,
            )
            if array is None:
                return None
            arrays += array.chunks
        return pa.chunked_array(arrays, type=DICTIONARY_TYPE)

    def _decode_values(
        self, file_index: int, columns: Sequence[VirtualColumn], *, as_dictionary: Sequence[str]
    ) -> dict[int, pa.ChunkedArray[Any]]:
        """Decode columns of one file with pyarrow, unchanged."""
        if not columns:
            return {}
        file = self._buffer.parquet_file(file_index)
        end_beside = None if self._buffer.holds_ends else self._buffer.files[file_index].end
        int96 = {column.name: self.labels[column.position] for column in columns if self._holds_int96(column.position)}
        if int96:
            in_seconds = read_columns(
                file,
                int96,
                end_beside=end_beside,
                int96_unit="s",
                check_page_checksums=self._check_page_checksums,
                row_group_count=len(self._row_groups),
            )
            for seconds, label in zip(in_seconds, int96.values(), strict=True):
                _check_int96_range(seconds, label)
        arrays = read_columns(
            file,
            {column.name: self.labels[column.position] for column in columns},
            end_beside=end_beside,
            as_dictionary=as_dictionary,
            check_page_checksums=self._check_page_checksums,
            row_group_count=len(self._row_groups),
        )
        return dict(zip((column.position for column in columns), arrays, strict=True))

    def _holds_int96(self, position: int) -> bool:
        """Tell whether a column, or a leaf of it if it is nested, is stored as INT96."""
        leaves = self._read.data.leaves_of([self._read.columns[position]])
        return any(self._read.data.columns[leaf].type.physical_type is PhysicalType.INT96 for leaf in leaves)

    def _decode_lists(self, position: int, rows: RowSelection | None) -> pa.ChunkedArray[Any]:
        if rows is None:
            raise InternalError("a column whose pages were all fetched is in no virtual file")
        lists = decode_list_pages(
            self._pieces(position),
            self._leaves[position],
            codec=self._codecs[position],
            created_by=self._read.data.created_by,
            rows=rows,
            label=self.labels[position],
            check_page_checksums=self._check_page_checksums,
        )
        positions = rows_within(self._read.selection, rows)
        [selected] = select_rows([lists], positions, held_rows=rows.row_count)
        return selected

    def _pages(self, column: VirtualColumn) -> FetchedPages:
        pages = self._chunk_pages.get(column.position)
        if pages is None:
            content = self._bytes[column.start : column.start + column.length_bytes]
            pages = self._chunk_pages[column.position] = FetchedPages(content)
        return pages

    def _pieces(self, position: int) -> list[bytes]:
        read = self._read
        [of_column] = (read.piece_columns == position).nonzero()
        starts = self._piece_offsets[of_column]
        stops = starts + (read.piece_stops - read.piece_starts)[of_column]
        return [self._bytes[start:stop].tobytes() for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]

    @cached_property
    def _piece_offsets(self) -> npt.NDArray[np.int64]:
        return self._read.buffer_offsets


def _check_int96_range(seconds: pa.ChunkedArray[Any], label: ChunkLabel) -> None:
    """Refuse instants that nanoseconds since 1970 cannot hold: pyarrow would wrap them around to wrong ones."""
    if not all(_are_in_range(times) for chunk in seconds.chunks for times in _times_in(chunk)):
        raise UnsupportedError(
            f"{label}: an INT96 timestamp lies outside the years 1678 to 2261, which nanoseconds since 1970 can hold;"
            " rewrite the file with timestamps in microseconds",
            kind="TimestampOutOfRange",
            path=label.path,
            row_group=label.row_group,
            columns=label.columns,
        )


def _are_in_range(seconds: Any) -> bool:
    bounds = pc.min_max(seconds.cast(pa.int64()))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    return least is None or -_INT96_LIMIT_S < least <= most < _INT96_LIMIT_S


def _times_in(array: Any) -> Iterator[Any]:
    """Yield the timestamps in seconds of an array, at all levels of a nested one."""
    if pa.types.is_timestamp(array.type) and array.type.unit == "s":
        yield array
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _times_in(child)
    elif pa.types.is_map(array.type):
        for child in (array.keys, array.items):
            yield from _times_in(child)
    elif pa.types.is_list(array.type):
        yield from _times_in(array.flatten())


_TIMES = np.arange(4, dtype=np.int64)


@cache
def decode_for_the_first_time() -> None:
    """Decode and filter four timestamps; later calls do nothing. Blocks for some milliseconds."""
    type_ = resolve_type(TypeTag.TIMESTAMP, PhysicalType.INT64, 0, 0)
    leaf = LeafSpec(name="time", physical_type=PhysicalType.INT64, max_def_level=0, logical=type_.parquet_logical)
    page = _TIMES.tobytes()
    header = PageHeader(
        type=PageType.DATA,
        uncompressed_page_size=len(page),
        compressed_page_size=len(page),
        data_page_header=DataPageHeader(
            num_values=len(_TIMES),
            encoding=Encoding.PLAIN,
            definition_level_encoding=Encoding.RLE,
            repetition_level_encoding=Encoding.RLE,
        ),
    )
    file = one_column_file([header.encode(), page], leaf, value_count=len(_TIMES), codec=Codec.UNCOMPRESSED)
    label = ChunkLabel(path=None, row_group=0, columns=(leaf.name,))
    [times] = read_columns(file, {leaf.name: label}, check_page_checksums=False)
    field = BoundField(name=leaf.name, index=0, type=type_)
    since_second = BoundComparison(field, Operator.GREATER_OR_EQUAL, 1)
    before_last = BoundComparison(field, Operator.LESS, 3)
    filter_rows(And((since_second, before_last)), pa.table({leaf.name: times}))
