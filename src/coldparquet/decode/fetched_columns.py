"""The bytes of one read -> the selected rows of each fetched column, as they were stored."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.decode.arrow_schema import arrow_type
from coldparquet.decode.batches import most_expanded_bytes
from coldparquet.decode.chunk_label import ChunkLabel
from coldparquet.decode.dictionary_chunks import decode_dictionary_chunk, dictionary_value_bytes, longest_text
from coldparquet.decode.expansion import (
    check_decoded_size,
    check_decompressed_size,
    delta_text_bytes,
    is_boundless,
    may_decompress_to,
)
from coldparquet.decode.list_pages import decode_list_pages
from coldparquet.decode.page_rows import check_flat_pages
from coldparquet.decode.parquet_reader import read_columns
from coldparquet.decode.selected_rows import rows_within, select_rows
from coldparquet.decode.stored_dictionaries import distinct_entries, is_as_stored
from coldparquet.decode.unknown_writer import check_compression_marks
from coldparquet.decode.virtual_file import column_leaf
from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.format.sidecar_layout import PhysicalType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from coldparquet.decode.arrow_schema import TextAs
    from coldparquet.decode.virtual_file import ReadFiles, VirtualColumn, VirtualFile
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.read_plan import RowGroupRead
    from coldparquet.plan.row_selection import RowSelection

_INT96_LIMIT_S = 9_223_372_036
"""Seconds from 1970 to the last whole second that nanoseconds in 64 bits can count."""


class FetchedColumns:
    """The columns of one read whose bytes were fetched.

    Args:
        buffer: The virtual files, complete.
        read: What they hold.
        sidecar: The partition's sidecar.
        path: The Parquet file, for error messages.
        check_page_checksums: Whether the CRC-32 of each page that has one is compared.
        most_bytes: About how much memory may be taken; None for any.
    """

    def __init__(  # noqa: PLR0913 - what to decode, and how
        self,
        buffer: ReadFiles,
        read: RowGroupRead,
        sidecar: Sidecar,
        *,
        path: str | None,
        check_page_checksums: bool,
        most_bytes: int | None,
    ) -> None:
        self._most_bytes = most_bytes
        self._check_page_checksums = check_page_checksums
        self._buffer = buffer
        self._bytes = buffer.bytes()
        self._read = read
        self._sidecar = sidecar
        self._types = [sidecar.column_type(column) for column in read.columns]
        self.labels = [
            ChunkLabel(path=path, row_group=read.row_group_in_file, columns=(sidecar.column(column).name,))
            for column in read.columns
        ]
        """Each column, for error messages."""

    def decode(self, *, text: TextAs, known: Mapping[int | None, pa.Array[Any]]) -> list[pa.ChunkedArray[Any]]:
        """Decode every column.

        Args:
            text: Which text columns become dictionary arrays, if their pages allow it. So do others that would take much
                of the memory as plain strings. All others are of the type that pyarrow gives them.
            known: By index in the sidecar: distinct strings with which a column's dictionary is to begin.

        Returns:
            ``read.row_count`` values of each of ``read.columns``.

        Raises:
            FormatError: The pages do not decode, or hold other rows than planned.
            BudgetExceededError: Pages of few bytes would decompress to more than the memory that may be taken.
            UnsupportedError: pyarrow does not implement an encoding, an INT96 timestamp does not fit 64 bits, or it depends on
                the writer of the file, which is not known, how pages decode.
        """
        if not self._sidecar.is_writer_known:
            for position, label in enumerate(self.labels):
                check_compression_marks(b"".join(self._pieces(position)), self._codec(position), label)
        decoded: dict[int, pa.ChunkedArray[Any]] = {}
        for file_index, file in enumerate(self._buffer.files):
            decoded |= self._decode_file(file_index, file, text, known)
        for position, rows in enumerate(self._read.column_rows):
            if position not in decoded:
                decoded[position] = self._decode_lists(position, rows)
        return [decoded[position] for position in range(len(self._read.columns))]

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
                if is_boundless(self._codec(position)) and may_decompress_to(column.length_bytes, self._most_bytes):
                    label, pages = self.labels[position], self._pages(column)
                    check_decompressed_size(pages, self._most_bytes, label, row_count=held_rows)
                self._check_value_bytes(column, held_rows, self._most_bytes)
        to_dictionary = [column for column in file.columns if self._is_to_be_dictionary(column, held_rows, text)]
        arrays = self._decode_columns(file_index, held_rows, to_dictionary, known)
        for position, array in arrays.items():
            if len(array) != held_rows:
                message = f"holds {len(array)} rows, expected {held_rows}"
                raise self.labels[position].damaged(message, field="row_count")
        positions = rows_within(self._read.selection, file.rows)
        return dict(zip(arrays, select_rows(list(arrays.values()), positions, held_rows=held_rows), strict=True))

    def _check_value_bytes(self, column: VirtualColumn, row_count: int, most_bytes: int) -> None:
        """Refuse pages of few bytes whose values would take more than the memory that may be taken."""
        leaf = column_leaf(self._sidecar, self._read.columns[column.position])
        codec, label = self._codec(column.position), self.labels[column.position]
        if leaf.physical_type is not PhysicalType.BYTE_ARRAY or row_count < 2:
            return
        pages = self._pages(column)
        size_bytes = delta_text_bytes(pages, codec=codec, leaf=leaf, label=label, enough_bytes=most_bytes)
        if leaf.max_rep_level == 0 and not self._is_text(column.position):  # text of a dictionary is not expanded here
            size_bytes += dictionary_value_bytes(
                pages,
                codec=codec,
                row_count=row_count,
                max_def_level=leaf.max_def_level,
                label=label,
                enough_bytes=most_bytes,
            )
        if size_bytes > most_bytes:
            check_decoded_size(pages, size_bytes, most_bytes, label, row_count=row_count)

    def _is_text(self, position: int) -> bool:
        stored = self._types[position]
        return stored.arrow.name in {"string", "dictionary"} and not stored.raw_array

    def _is_to_be_dictionary(self, column: VirtualColumn, row_count: int, text: TextAs) -> bool:
        """Tell whether a column is text that is wanted dictionary-encoded, or takes too much memory in another form."""
        stored = self._types[column.position]
        type_: Any = arrow_type(stored, text=text)
        if pa.types.is_dictionary(type_) or not self._is_text(column.position) or self._most_bytes is None:
            return pa.types.is_dictionary(type_)
        most_bytes = most_expanded_bytes(self._most_bytes)
        if not may_decompress_to(column.length_bytes * row_count, most_bytes):
            return False
        longest_bytes = longest_text(
            self._pages(column),
            codec=self._codec(column.position),
            label=self.labels[column.position],
            check_page_checksums=self._check_page_checksums,
        )
        return row_count * longest_bytes > most_bytes

    def _decode_columns(
        self,
        file_index: int,
        row_count: int,
        to_dictionary: Sequence[VirtualColumn],
        known: Mapping[int | None, pa.Array[Any]],
    ) -> dict[int, pa.ChunkedArray[Any]]:
        """Let pyarrow decode the columns of one file, all at once, but for text whose dictionary it could get wrong."""
        arrays: dict[int, pa.ChunkedArray[Any]] = {}
        entry_counts: dict[VirtualColumn, int] = {}
        for column in to_dictionary:
            strings = known.get(self._read.columns[column.position])
            entry_count = None
            if strings is None:
                codec = self._codec(column.position)
                entry_count = distinct_entries(self._pages(column), codec, row_count=row_count)
            if entry_count is not None:
                entry_counts[column] = entry_count
            elif (array := self._take_apart(column, row_count, strings)) is not None:
                arrays[column.position] = array
        others = [column for column in self._buffer.files[file_index].columns if column.position not in arrays]
        arrays |= self._decode_values(file_index, others, as_dictionary=[column.name for column in entry_counts])
        for column, entry_count in entry_counts.items():
            if not is_as_stored(arrays[column.position], entry_count, self.labels[column.position]):
                array = self._take_apart(column, row_count, None)
                if array is None:
                    raise InternalError("a dictionary and its indices were not taken apart")
                arrays[column.position] = array
        return arrays

    def _take_apart(
        self, column: VirtualColumn, row_count: int, known: pa.Array[Any] | None
    ) -> pa.ChunkedArray[Any] | None:
        return decode_dictionary_chunk(
            self._pages(column),
            codec=self._codec(column.position),
            created_by=self._sidecar.created_by,
            row_count=row_count,
            max_def_level=self._sidecar.column(self._read.columns[column.position]).max_def_level,
            label=self.labels[column.position],
            known=known,
            check_page_checksums=self._check_page_checksums,
        )

    def _decode_values(
        self, file_index: int, columns: Sequence[VirtualColumn], *, as_dictionary: Sequence[str]
    ) -> dict[int, pa.ChunkedArray[Any]]:
        """Let pyarrow decode columns of one file as they are."""
        if not columns:
            return {}
        file = self._buffer.parquet_file(file_index)
        end_beside = None if self._buffer.holds_ends else self._buffer.files[file_index].end
        int96 = {
            column.name: self.labels[column.position]
            for column in columns
            if self._types[column.position].physical_type is PhysicalType.INT96
        }
        if int96:
            in_seconds = read_columns(
                file, int96, end_beside=end_beside, int96_unit="s", check_page_checksums=self._check_page_checksums
            )
            for seconds, label in zip(in_seconds, int96.values(), strict=True):
                _check_int96_range(seconds, label)
        arrays = read_columns(
            file,
            {column.name: self.labels[column.position] for column in columns},
            end_beside=end_beside,
            as_dictionary=as_dictionary,
            check_page_checksums=self._check_page_checksums,
        )
        return dict(zip((column.position for column in columns), arrays, strict=True))

    def _decode_lists(self, position: int, rows: RowSelection | None) -> pa.ChunkedArray[Any]:
        if rows is None:
            raise InternalError("a column whose pages were all fetched is in no virtual file")
        lists = decode_list_pages(
            self._pieces(position),
            column_leaf(self._sidecar, self._read.columns[position]),
            codec=self._codec(position),
            created_by=self._sidecar.created_by,
            rows=rows,
            label=self.labels[position],
            check_page_checksums=self._check_page_checksums,
        )
        positions = rows_within(self._read.selection, rows)
        [selected] = select_rows([lists], positions, held_rows=rows.row_count)
        return selected

    def _pages(self, column: VirtualColumn) -> bytes:
        return self._bytes[column.start : column.start + column.length_bytes].tobytes()

    def _pieces(self, position: int) -> list[bytes]:
        read = self._read
        [of_column] = (read.piece_columns == position).nonzero()
        starts = self._piece_offsets[of_column]
        stops = starts + (read.piece_stops - read.piece_starts)[of_column]
        return [self._bytes[start:stop].tobytes() for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]

    @cached_property
    def _piece_offsets(self) -> npt.NDArray[np.int64]:
        return self._read.buffer_offsets

    def _codec(self, position: int) -> int:
        return int(self._sidecar.chunks(self._read.columns[position]).codec[self._read.row_group])


def _check_int96_range(seconds: pa.ChunkedArray[Any], label: ChunkLabel) -> None:
    """Refuse instants that nanoseconds since 1970 cannot hold: pyarrow would let them overflow into wrong ones."""
    bounds = pc.min_max(seconds.cast(pa.int64()))
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is not None and not -_INT96_LIMIT_S < least <= most < _INT96_LIMIT_S:
        raise UnsupportedError(
            f"{label}: an INT96 timestamp lies outside the years 1678 to 2261, which nanoseconds since 1970 can hold;"
            " rewrite the file with timestamps in microseconds",
            kind="TimestampOutOfRange",
            path=label.path,
            row_group=label.row_group,
            columns=label.columns,
        )
