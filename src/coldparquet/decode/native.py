"""Decodes one slice of a native partition's column files to an Arrow table, equal to that of the same rows in Parquet.

STRING, BINARY, VARCHAR and arrays are decoded without a loop over values. The lengths and places of all values of a
slice are compared at once, and one step copies their bytes out of the data file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from coldparquet.decode.arrow import (
    arrow_field,
    check_values,
    decode_raw_arrays,
    missing_values,
    numbers_to_arrow,
    rows_without_columns,
    strings_to_arrow,
)
from coldparquet.decode.parquet_reader import RowsLabel
from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.format.binary import UNIT_BYTES, utf16_to_utf8
from coldparquet.format.native import INLINED_VALUE_OFFSET, MAX_INLINED_BYTES, EntryKind, VariableLayout, native_layout
from coldparquet.format.type_codes import TypeTag, is_decimal
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from coldparquet.decode.arrow import TextAs
    from coldparquet.format.binary import Utf8Strings
    from coldparquet.format.native import FixedLayout, Mask, Offsets
    from coldparquet.format.types import ColumnType
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.model import FileRole, Read, StoredColumn

    ByteArray = npt.NDArray[np.uint8]

_WORD_BITS = 64


def decode_fixed(
    stored: npt.NDArray[np.uint8], layout: FixedLayout, type_: Any, *, tag: TypeTag, label: RowsLabel
) -> pa.Array[Any]:
    """Decode fixed-width values."""
    values = stored.view(layout.word).reshape(-1, layout.words)
    is_null = layout.is_null(values)
    data: npt.NDArray[Any]
    if tag is TypeTag.BOOLEAN:
        label.check(values[:, 0] <= 1, "is neither true nor false", field="BOOLEAN")
        data = np.packbits(values[:, 0], bitorder="little")
    elif tag is TypeTag.UUID:
        # Low word first and each word little-endian: reversed, this is the byte order of RFC 4122.
        data = values[:, ::-1].byteswap()
    elif is_decimal(tag):
        data = _decimal_words(values, type_, tag, label)
    else:
        data = values
    array: pa.Array[Any] = pa.Array.from_buffers(type_, len(values), [validity(is_null), pa.py_buffer(data.tobytes())])
    if is_decimal(tag):
        check_values(pa.chunked_array([array]), label)
    return array


def validity(is_null: Mask | None) -> pa.Buffer | None:
    """Return Arrow's validity bitmap; None without nulls."""
    if is_null is None or not is_null.any():
        return None
    return pa.py_buffer(np.packbits(~is_null, bitorder="little").tobytes())


def _decimal_words(values: npt.NDArray[Any], type_: Any, tag: TypeTag, label: RowsLabel) -> npt.NDArray[np.int64]:
    """Return unscaled values in Arrow's form: two or four words of 64 bits, the lowest one first."""
    # The wide ones are stored highest word first; the others have one word or less.
    words = values[:, ::-1].astype(np.int64, copy=False)
    arrow_words = type_.bit_width // _WORD_BITS
    if words.shape[1] > arrow_words:
        raise UnsupportedError(
            f"{label}: stored as {tag.name}, which is wider than {type_}; leave the column out",
            kind="UnsupportedType",
            path=label.path,
            columns=label.columns,
        )
    sign = words[:, -1:] >> (_WORD_BITS - 1)
    return np.hstack([words, np.repeat(sign, arrow_words - words.shape[1], axis=1)])


def decode_symbol_keys(
    stored: npt.NDArray[np.uint8],
    layout: FixedLayout,
    type_: Any,
    *,
    dictionary: Utf8Strings,
    label: RowsLabel,
) -> pa.Array[Any]:
    """Decode the symbols of a slice."""
    keys = stored.view(layout.word)
    is_null = layout.is_null(keys[:, None])
    present = keys if is_null is None else keys[~is_null]
    label.check(
        keys < len(dictionary),
        f"has a symbol key outside of the dictionary, which has {len(dictionary):,} symbols",
        field="SYMBOL",
    )
    is_used = np.zeros(len(dictionary), dtype=bool)
    is_used[present] = True
    renumbered = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
    positions = np.zeros(len(keys), dtype=np.int32)
    positions[keys >= 0] = renumbered[present]
    indices: Any = pa.Array.from_buffers(pa.int32(), len(keys), [validity(is_null), pa.py_buffer(positions.tobytes())])
    used: pa.Array[Any] = strings_to_arrow(dictionary).take(
        numbers_to_arrow(np.flatnonzero(is_used).astype(np.int32), pa.int32())
    )
    if pa.types.is_dictionary(type_):
        return pa.DictionaryArray.from_arrays(indices, used)
    plain: pa.Array[Any] = used.take(indices)
    return plain


LARGEST_CHUNK_BYTES = (1 << 31) - 1
"""Arrow's strings and byte strings have offsets of 32 bits: longer data becomes several arrays."""

_UTF8_BYTES_PER_UNIT = 3
"""Most UTF-8 bytes of a UTF-16 unit: a surrogate pair is two units and four bytes."""


def decode_variable(  # noqa: PLR0913 - two files and what they hold
    auxiliary: ByteArray,
    data: ByteArray,
    layout: VariableLayout,
    *,
    column_type: ColumnType,
    data_start: int,
    label: RowsLabel,
) -> list[pa.Array[Any]]:
    """Decode the values of one slice."""
    if layout.entry_kind is EntryKind.OFFSET:
        values = _prefixed_values(auxiliary, data, layout, data_start, label)
    else:
        values = _described_values(auxiliary, data, layout, data_start, label)
    is_string = column_type.tag is TypeTag.STRING
    largest = values.lengths // UNIT_BYTES * _UTF8_BYTES_PER_UNIT if is_string else values.lengths
    return [
        _decode_chunk(values.rows(first, stop), column_type, replace(label, first_row=label.first_row + first))
        for first, stop in _chunks(largest, label)
    ]


class _Values(Struct, frozen=True, kw_only=True, eq=False):
    """The places of values' bytes: arrays of shape ``(rows,)``."""

    data: ByteArray
    """Content of the data file."""
    starts: Offsets
    """First byte of each value in ``data``; ascending for values with bytes there."""
    lengths: Offsets
    """Length of each value, wherever its bytes are; 0 for null."""
    is_null: Mask
    is_inlined: Mask
    """Values stored in their auxiliary entry."""
    entries: ByteArray
    """Auxiliary entries, shape ``(rows, entry_bytes)``."""

    def rows(self, first: int, stop: int) -> _Values:
        return replace(
            self,
            starts=self.starts[first:stop],
            lengths=self.lengths[first:stop],
            is_null=self.is_null[first:stop],
            is_inlined=self.is_inlined[first:stop],
            entries=self.entries[first:stop],
        )

    def joined(self) -> ByteArray:
        """Return the bytes of all values, one after the other."""
        in_data = _gathered(self.data, self.starts[~self.is_inlined], self.lengths[~self.is_inlined])
        if not self.is_inlined.any():
            return in_data
        inlined = self.entries[self.is_inlined, INLINED_VALUE_OFFSET : INLINED_VALUE_OFFSET + MAX_INLINED_BYTES]
        joined = np.empty(int(self.lengths.sum()), dtype=np.uint8)
        is_inlined = np.repeat(self.is_inlined, self.lengths)
        joined[~is_inlined] = in_data
        joined[is_inlined] = inlined[np.arange(MAX_INLINED_BYTES) < self.lengths[self.is_inlined, None]]
        return joined


def _prefixed_values(
    auxiliary: ByteArray, data: ByteArray, layout: VariableLayout, data_start: int, label: RowsLabel
) -> _Values:
    """Find the values of STRING and BINARY: each follows its length, at the place that an offset gives."""
    offsets = layout.parse(auxiliary).offsets - data_start
    is_inside = (offsets >= 0) & (offsets <= len(data))
    room = np.diff(offsets) - layout.prefix_bytes
    # The difference of valid offsets cannot overflow.
    holds = is_inside[:-1] & is_inside[1:] & (room >= 0)
    label.check(holds, "has an offset that does not lie behind that of the row before it", field="offset")
    prefixes = data[offsets[:-1, None] + np.arange(layout.prefix_bytes)].view(f"<i{layout.prefix_bytes}")[:, 0]
    is_null = prefixes < 0
    units = np.where(is_null, 0, prefixes).astype(np.int64)
    label.check(units <= room // layout.unit_bytes, "is longer than its offsets leave room for", field="length")
    return _Values(
        data=data,
        starts=offsets[:-1] + layout.prefix_bytes,
        lengths=units * layout.unit_bytes,
        is_null=is_null,
        is_inlined=np.zeros_like(is_null),
        entries=auxiliary.reshape(-1, layout.entry_bytes)[:-1],
    )


def _described_values(
    auxiliary: ByteArray, data: ByteArray, layout: VariableLayout, data_start: int, label: RowsLabel
) -> _Values:
    """Find the values of VARCHAR and arrays: the entries hold everything."""
    entries = layout.parse(auxiliary)
    longest = np.where(entries.is_inlined, MAX_INLINED_BYTES, len(data))
    label.check(
        (entries.lengths >= 0) & (entries.lengths <= longest), "is longer than there is room for", field="length"
    )
    has_bytes = ~entries.is_null & ~entries.is_inlined
    label.check(
        (entries.lengths > 0) | ~has_bytes, "has an entry of zeros, which was never written", field="auxiliary entry"
    )
    starts = np.where(has_bytes, entries.offsets - data_start, 0)
    # After the previous value that has bytes in the data file.
    stops = np.maximum.accumulate(np.where(has_bytes, starts + entries.lengths, 0))
    least = np.concatenate([np.zeros(min(1, len(stops)), dtype=np.int64), stops[:-1]])
    holds = ~has_bytes | ((starts >= least) & (starts + entries.lengths <= len(data)))
    label.check(holds, "has an offset that does not lie behind the value before it", field="offset")
    return _Values(
        data=data,
        starts=starts,
        lengths=entries.lengths,
        is_null=entries.is_null,
        is_inlined=entries.is_inlined,
        entries=auxiliary.reshape(-1, layout.entry_bytes),
    )


def _gathered(data: ByteArray, starts: Offsets, lengths: Offsets) -> ByteArray:
    """Copy ascending, disjoint runs of bytes out of ``data``, one after the other."""
    filled = lengths > 0
    starts, stops = starts[filled], (starts + lengths)[filled]
    if not len(starts):
        return data[:0]
    if (starts[1:] == stops[:-1]).all():
        return data[starts[0] : stops[-1]]
    # Runs and the gaps between them alternate.
    turns = np.empty(2 * len(starts) - 1, dtype=np.int64)
    turns[0::2] = stops - starts
    turns[1::2] = starts[1:] - stops[:-1]
    is_wanted: Mask = np.repeat(np.arange(len(turns)) % 2 == 0, turns)
    return data[starts[0] : stops[-1]][is_wanted]


def _chunks(largest: Offsets, label: RowsLabel) -> Iterator[tuple[int, int]]:
    """Cut rows, given an upper bound of each row's size, so that Arrow's offsets can address each chunk."""
    ends = np.cumsum(largest)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, before + LARGEST_CHUNK_BYTES, side="right"))
        if stop == first:
            raise UnsupportedError(
                f"{label}: row {label.first_row + first:,} may take {int(largest[first]):,} bytes, but a value in Arrow"
                f" has at most {LARGEST_CHUNK_BYTES:,}; leave the column out",
                kind="TooLarge",
                path=label.path,
                columns=label.columns,
                row=label.first_row + first,
            )
        yield first, stop
        first = stop


def _decode_chunk(values: _Values, column_type: ColumnType, label: RowsLabel) -> pa.Array[Any]:
    joined = values.joined()
    offsets = np.zeros(len(values.lengths) + 1, dtype=np.int64)
    np.cumsum(values.lengths, out=offsets[1:])
    match column_type.tag:
        case TypeTag.STRING:
            text = utf16_to_utf8(joined.view("<u2"), offsets // UNIT_BYTES)
            return _byte_strings(pa.string(), values.is_null, text.offsets, text.utf8)
        case TypeTag.VARCHAR:
            strings = _byte_strings(pa.string(), values.is_null, offsets, joined.tobytes())
            check_values(pa.chunked_array([strings]), label)
            return strings
        case TypeTag.ARRAY:
            payloads: Any = _byte_strings(pa.binary(), values.is_null, offsets, joined.tobytes())
            return decode_raw_arrays(payloads, dimensions=column_type.arrow.dimensions, label=label)
    return _byte_strings(pa.binary(), values.is_null, offsets, joined.tobytes())


def _byte_strings(type_: Any, is_null: Mask, offsets: npt.NDArray[Any], data: bytes) -> pa.Array[Any]:
    positions = pa.py_buffer(offsets.astype(np.int32).tobytes())
    return pa.Array.from_buffers(type_, len(is_null), [validity(is_null), positions, pa.py_buffer(data)])


def decode_native_rows(buffer: memoryview, read: Read, columns: Sequence[TableColumn], *, text: TextAs) -> pa.Table:
    """Decode one slice of a native partition. Blocks."""
    if not columns:
        return rows_without_columns(read.row_count)
    slice_ = _Slice(buffer, read)
    fields = [arrow_field(column.name, column.readable_type, text=text) for column in columns]
    arrays = [slice_.decode(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


class _Slice:
    """The bytes of one slice, by column."""

    def __init__(self, buffer: memoryview, read: Read) -> None:
        self._read = read
        whole = np.frombuffer(buffer, dtype=np.uint8) if len(buffer) else np.empty(0, dtype=np.uint8)
        files = [read.data.files[file] for file in ([] if read.piece_files is None else read.piece_files.tolist())]
        pieces = [(file.column, file.role) for file in files]
        offsets, lengths = read.buffer_offsets.tolist(), (read.piece_stops - read.piece_starts).tolist()
        self._parts = {
            piece: whole[offset : offset + length]
            for piece, offset, length in zip(pieces, offsets, lengths, strict=True)
        }
        self._starts = dict(zip(pieces, read.piece_starts.tolist(), strict=True))

    def decode(self, wanted: TableColumn, type_: Any) -> pa.ChunkedArray[Any]:
        row_count, number = self._read.row_count, self._read.data.places.get(wanted.index)
        if number is None:
            raise InternalError(f"slice {self._read.row_group} was planned without column {wanted.name!r}")
        column = self._read.data.columns[number]
        if number in self._read.made_columns:
            return missing_values(row_count, type_, never_null=column.type.never_null)
        missing_rows = min(max((column.top or 0) - self._read.first_row, 0), row_count)
        label = RowsLabel(
            path=self._read.data.path,
            row_group=self._read.row_group,
            columns=(column.name,),
            first_row=self._read.first_row + missing_rows,
        )
        stored = self._decode_stored(number, column, type_, label)
        if sum(map(len, stored)) != row_count - missing_rows:
            raise label.damaged(f"holds {sum(map(len, stored)):,} values, expected {row_count - missing_rows:,}")
        if missing_rows:
            missing = missing_values(missing_rows, type_, never_null=column.type.never_null)
            stored = [*missing.chunks, *stored]
        return pa.chunked_array(stored, type=type_)

    def _decode_stored(self, number: int, column: StoredColumn, type_: Any, label: RowsLabel) -> list[pa.Array[Any]]:
        layout = native_layout(column.type.tag)
        if isinstance(layout, VariableLayout):
            decoded = decode_variable(
                self._part(number, "auxiliary"),
                self._part(number, "data"),
                layout,
                column_type=column.type,
                data_start=self._starts[number, "data"],
                label=label,
            )
            return [array.dictionary_encode() for array in decoded] if pa.types.is_dictionary(type_) else decoded
        values = self._part(number, "fixed")
        if column.type.tag is not TypeTag.SYMBOL:
            return [decode_fixed(values, layout, type_, tag=column.type.tag, label=label)]
        dictionary = self._read.data.symbols.get(number)
        if dictionary is None:
            raise InternalError(f"column {column.name!r} is decoded without its dictionary", path=self._read.data.path)
        return [decode_symbol_keys(values, layout, type_, dictionary=dictionary, label=label)]

    def _part(self, number: int, role: FileRole) -> npt.NDArray[np.uint8]:
        part = self._parts.get((number, role))
        if part is None:
            name = self._read.data.columns[number].name
            raise InternalError(f"slice {self._read.row_group} was planned without column {name!r}")
        return part
