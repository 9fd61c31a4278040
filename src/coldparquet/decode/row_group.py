"""The bytes of one row group -> an Arrow table of the requested columns, in the requested order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.decode.arrow_schema import arrow_field, arrow_type
from coldparquet.decode.chunk_label import ChunkLabel
from coldparquet.decode.conversion import convert_values
from coldparquet.decode.missing_values import missing_values, rows_without_columns, zero
from coldparquet.decode.parquet_reader import check_values, read_columns
from coldparquet.decode.raw_arrays import decode_raw_arrays
from coldparquet.decode.symbols import decode_symbols
from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.format.logical_types import LogicalKind
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.plan.type_changes import holds_same_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.decode.arrow_schema import SymbolsAs
    from coldparquet.decode.virtual_file import RowGroupBuffer
    from coldparquet.format.column_types import ColumnType
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.plan.read_plan import RowGroupRead

_CHECKED_KINDS = frozenset({LogicalKind.STRING, LogicalKind.DECIMAL})
"""Kinds of which pyarrow decodes invalid values without complaint."""

_INT96_LIMIT_S = 9_223_372_036
"""Seconds from 1970 to the last whole second that nanoseconds in 64 bits can count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputColumn:
    """One column of the decoded table."""

    name: str
    type: ColumnType
    """Type of the column in the table that the partition belongs to."""
    place: int | None
    """Index of the column in the partition's sidecar; None where the partition was written without it. There it may be of
    another type, the one that it had when the partition was written."""


def decode_row_group(  # noqa: PLR0913 - one plan, one snapshot and how to show them
    buffer: RowGroupBuffer,
    read: RowGroupRead,
    sidecar: Sidecar,
    *,
    columns: Sequence[OutputColumn],
    symbols: SymbolsAs,
    path: str | None,
) -> pa.Table:
    """Decode one row group. Blocks; pyarrow releases the GIL meanwhile and spreads the columns over its own threads.

    Args:
        buffer: The row group's virtual file, complete.
        read: What it holds.
        sidecar: The partition's sidecar.
        columns: The result's columns; each is fetched or made by ``read``, or missing in the partition.
        symbols: Arrow type of SYMBOL columns.
        path: The Parquet file, for error messages.

    Returns:
        ``read.row_count`` rows. A column that is null in every row, or missing, is nulls; BOOLEAN, BYTE, SHORT and CHAR
        are never null but false or 0. Dictionaries hold only values that occur.

    Raises:
        FormatError: The bytes do not decode to the promised number of values of the promised type; names the file, the
            row group and the columns.
        UnsupportedError: An encoding that pyarrow cannot read.
        InternalError: The buffer is incomplete, or a column was not planned.
    """
    wanted_types = {column.place: column.type for column in columns if column.place is not None}
    fetched = _decode_chunks(buffer, read, sidecar, wanted_types, symbols, path) if read.columns else {}
    fields, arrays = [], []
    for column in columns:
        field = arrow_field(column.name, column.type, symbols=symbols)
        label = ChunkLabel(path=path, row_group=read.row_group, columns=(column.name,))
        if column.place in fetched:
            array = fetched[column.place]
        elif column.place is None:
            array = missing_values(read.row_count, field.type, never_null=column.type.never_null)
        elif column.place in read.made_columns:
            array = _made_values(read.row_count, sidecar, column.place, column.type, symbols)
        else:
            raise InternalError(f"row group {read.row_group} was planned without column {column.name!r}", path=path)
        if column.place is not None:
            array = _as_in_table(array, sidecar.column_type(column.place), column.type, field.type, label)
        fields.append(field)
        arrays.append(array)
    if not columns:
        return rows_without_columns(read.row_count)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _decode_chunks(  # noqa: PLR0913, PLR0917 - one plan, one snapshot and how to show them
    buffer: RowGroupBuffer,
    read: RowGroupRead,
    sidecar: Sidecar,
    wanted_types: Mapping[int, ColumnType],
    symbols: SymbolsAs,
    path: str | None,
) -> dict[int | None, pa.ChunkedArray[Any]]:
    """Decode every fetched chunk; returns the columns as they were stored, by their index in the sidecar."""
    types = [sidecar.column_type(column) for column in read.columns]
    labels = {
        position: ChunkLabel(path=path, row_group=read.row_group, columns=(sidecar.column(column).name,))
        for position, column in enumerate(read.columns)
    }
    decoded: dict[int, pa.ChunkedArray[Any]] = {}
    if symbols == "dictionary":
        for position, type_ in enumerate(types):
            if type_.arrow.name == "dictionary":
                array = _decode_symbol_chunk(buffer, read, sidecar, position, labels[position])
                if array is not None:
                    decoded[position] = array
    decoded |= _decode_whole_chunks(
        buffer.parquet_file(), types, {position: label for position, label in labels.items() if position not in decoded}
    )
    columns: dict[int | None, pa.ChunkedArray[Any]] = {}
    for position, column in enumerate(read.columns):
        array, label = decoded[position], labels[position]
        if len(array) != read.row_count:
            raise label.damaged(f"holds {len(array)} rows, expected {read.row_count}", field="row_count")
        wanted = wanted_types.get(column, types[position])
        columns[column] = _normalised(array, types[position], wanted, symbols, label)
    return columns


def _decode_symbol_chunk(
    buffer: RowGroupBuffer, read: RowGroupRead, sidecar: Sidecar, position: int, label: ChunkLabel
) -> pa.ChunkedArray[Any] | None:
    length_bytes = int(read.piece_stops[position] - read.piece_starts[position])
    column = read.columns[position]
    return decode_symbols(
        buffer.parquet_file().slice(int(read.buffer_offsets[position]), length_bytes).to_pybytes(),
        codec=int(sidecar.chunks(column).codec[read.row_group]),
        row_count=read.row_count,
        max_def_level=sidecar.column(column).max_def_level,
        label=label,
    )


def _decode_whole_chunks(
    file: pa.Buffer, types: Sequence[ColumnType], labels: Mapping[int, ChunkLabel]
) -> dict[int, pa.ChunkedArray[Any]]:
    """Let pyarrow decode chunks as they are; ``types`` and ``labels`` are by position in the virtual file."""
    if not labels:
        return {}
    int96 = {
        position: label for position, label in labels.items() if types[position].physical_type is PhysicalType.INT96
    }
    if int96:
        for seconds, label in zip(read_columns(file, int96, int96_unit="s"), int96.values(), strict=True):
            _check_int96_range(seconds, label)
    return dict(zip(labels, read_columns(file, labels), strict=True))


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


def _normalised(
    array: pa.ChunkedArray[Any], stored: ColumnType, wanted: ColumnType, symbols: SymbolsAs, label: ChunkLabel
) -> pa.ChunkedArray[Any]:
    """Give a decoded column the form that its type has in every partition, however it was stored."""
    type_: Any = arrow_type(stored, symbols=symbols)
    if pa.types.is_dictionary(array.type):
        return array
    if stored.raw_array:
        chunks: list[Any] = array.chunks
        lists = [decode_raw_arrays(chunk, dimensions=stored.arrow.dimensions, label=label) for chunk in chunks]
        return pa.chunked_array(lists, type=type_)
    if stored.arrow.name == "list":
        return array.cast(type_)  # only the names of the items differ
    if stored.never_null and wanted.never_null and array.null_count:
        return array.fill_null(zero(array.type))
    if stored.parquet_logical is not None and stored.parquet_logical.kind in _CHECKED_KINDS:
        check_values(array, label)
    return array.dictionary_encode() if pa.types.is_dictionary(type_) else array


def _as_in_table(
    array: pa.ChunkedArray[Any], stored: ColumnType, wanted: ColumnType, type_: Any, label: ChunkLabel
) -> pa.ChunkedArray[Any]:
    """Convert a column whose type was changed after its partition was written."""
    if stored.arrow == wanted.arrow and holds_same_values(stored, wanted):
        return array
    chunks: list[Any] = array.chunks
    converted = [convert_values(chunk, stored, wanted, result=type_, label=label) for chunk in chunks]
    return pa.chunked_array(converted, type=type_)


def _made_values(
    row_count: int, sidecar: Sidecar, place: int, wanted: ColumnType, symbols: SymbolsAs
) -> pa.ChunkedArray[Any]:
    """Make a column that is null in every row, as it would have been stored."""
    stored = sidecar.column_type(place)
    # A file that can mark nulls marks the rows from before the column existed. They are null once its type has null.
    marks_nulls = sidecar.column(place).max_def_level > 0
    is_zero = stored.never_null and (wanted.never_null or not marks_nulls)
    return missing_values(row_count, arrow_type(stored, symbols=symbols), never_null=is_zero)
