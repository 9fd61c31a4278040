"""The bytes of one read -> the selected rows of each fetched column, as they were stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.decode.arrow_schema import arrow_type
from coldparquet.decode.chunk_label import ChunkLabel
from coldparquet.decode.dictionary_chunks import decode_dictionary_chunk
from coldparquet.decode.list_pages import decode_list_pages
from coldparquet.decode.page_rows import check_flat_pages
from coldparquet.decode.parquet_reader import read_columns
from coldparquet.decode.selected_rows import rows_within, select_rows
from coldparquet.decode.virtual_file import column_leaf, column_places
from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.format.sidecar_layout import PhysicalType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.decode.arrow_schema import TextAs
    from coldparquet.decode.virtual_file import RowGroupBuffer, VirtualFile
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
    """

    def __init__(
        self,
        buffer: RowGroupBuffer,
        read: RowGroupRead,
        sidecar: Sidecar,
        *,
        path: str | None,
        check_page_checksums: bool,
    ) -> None:
        self._check_page_checksums = check_page_checksums
        self._buffer = buffer
        self._bytes = buffer.bytes()
        self._read = read
        self._sidecar = sidecar
        self._types = [sidecar.column_type(column) for column in read.columns]
        self._places = list(zip(*column_places(read), strict=True))
        self.labels = [
            ChunkLabel(path=path, row_group=read.row_group_in_file, columns=(sidecar.column(column).name,))
            for column in read.columns
        ]
        """Each column, for error messages."""

    def decode(self, *, text: TextAs, known: Mapping[int | None, pa.Array[Any]]) -> list[pa.ChunkedArray[Any]]:
        """Decode every column.

        Args:
            text: Which text columns become dictionary arrays, if their pages allow it. All others are of the type that
                pyarrow gives them.
            known: By index in the sidecar: distinct strings with which a column's dictionary is to begin.

        Returns:
            ``read.row_count`` values of each of ``read.columns``.

        Raises:
            FormatError: The pages do not decode, or hold other rows than planned.
            UnsupportedError: pyarrow does not implement an encoding, or an INT96 timestamp does not fit 64 bits.
        """
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
        arrays: dict[int, pa.ChunkedArray[Any]] = {}
        for position in file.columns:
            if file.rows is not None:
                check_flat_pages(self._pieces(position), file.rows, self.labels[position])
            if pa.types.is_dictionary(arrow_type(self._types[position], text=text)):
                array = self._decode_dictionary(position, held_rows, known.get(self._read.columns[position]))
                if array is not None:
                    arrays[position] = array
        arrays |= self._decode_values(file_index, [position for position in file.columns if position not in arrays])
        for position, array in arrays.items():
            if len(array) != held_rows:
                message = f"holds {len(array)} rows, expected {held_rows}"
                raise self.labels[position].damaged(message, field="row_count")
        positions = rows_within(self._read.selection, file.rows)
        return dict(zip(arrays, select_rows(list(arrays.values()), positions, held_rows=held_rows), strict=True))

    def _decode_dictionary(
        self, position: int, row_count: int, known: pa.Array[Any] | None
    ) -> pa.ChunkedArray[Any] | None:
        start, length_bytes = self._places[position]
        column = self._read.columns[position]
        return decode_dictionary_chunk(
            self._bytes[start : start + length_bytes].tobytes(),
            codec=self._codec(position),
            row_count=row_count,
            max_def_level=self._sidecar.column(column).max_def_level,
            label=self.labels[position],
            known=known,
            check_page_checksums=self._check_page_checksums,
        )

    def _decode_values(self, file_index: int, positions: list[int]) -> dict[int, pa.ChunkedArray[Any]]:
        """Let pyarrow decode columns of one file as they are."""
        if not positions:
            return {}
        file = self._buffer.parquet_file(file_index)
        places = {position: place for place, position in enumerate(self._buffer.files[file_index].columns)}
        int96 = {
            places[position]: self.labels[position]
            for position in positions
            if self._types[position].physical_type is PhysicalType.INT96
        }
        if int96:
            in_seconds = read_columns(file, int96, int96_unit="s", check_page_checksums=self._check_page_checksums)
            for seconds, label in zip(in_seconds, int96.values(), strict=True):
                _check_int96_range(seconds, label)
        labels = {places[position]: self.labels[position] for position in positions}
        columns = read_columns(file, labels, check_page_checksums=self._check_page_checksums)
        return dict(zip(positions, columns, strict=True))

    def _decode_lists(self, position: int, rows: RowSelection | None) -> pa.ChunkedArray[Any]:
        if rows is None:
            raise InternalError("a column whose pages were all fetched is in no virtual file")
        lists = decode_list_pages(
            self._pieces(position),
            column_leaf(self._sidecar, self._read.columns[position]),
            codec=self._codec(position),
            rows=rows,
            label=self.labels[position],
            check_page_checksums=self._check_page_checksums,
        )
        positions = rows_within(self._read.selection, rows)
        [selected] = select_rows([lists], positions, held_rows=rows.row_count)
        return selected

    def _pieces(self, position: int) -> list[bytes]:
        read = self._read
        [of_column] = (read.piece_columns == position).nonzero()
        starts = read.buffer_offsets[of_column]
        stops = starts + (read.piece_stops - read.piece_starts)[of_column]
        return [self._bytes[start:stop].tobytes() for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]

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
