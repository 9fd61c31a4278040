"""Makes Arrow types, fields, arrays and batches for a table's columns.

Small arrays are made from numpy and bytes, and converted back, over shared memory. ``pyarrow.array``,
``pyarrow.scalar`` and ``to_numpy`` import pandas if it is installed, which takes half a second in the first read of a
process. Building arrays from buffers does not.

QuestDB's own arrays are one byte string per row and become nested Arrow lists. Layout of a byte string: the length of
each dimension as i32, zeros up to a multiple of 8 bytes, then the elements as float64 in row-major order; everything
little-endian. A NaN element is QuestDB's null element. It becomes null, as in the other encoding of arrays, Parquet
lists.
"""

from __future__ import annotations

from functools import lru_cache, partial, reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from coldparquet.decode.stored_types import type_of_schema
from coldparquet.errors import FormatError, InternalError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from coldparquet.decode.parquet_reader import ChunkLabel
    from coldparquet.format.binary import Utf8Strings
    from coldparquet.format.types import ArrowKind, ColumnType
    from coldparquet.options import ReadOptions
    from coldparquet.plan.columns import TableColumn
    from coldparquet.plan.literals import DomainValue


SymbolsAs: TypeAlias = Literal["dictionary", "global", "string"]
"""SYMBOL columns: dictionary-encoded as stored, with one dictionary for the whole result, or plain strings."""

StringsAs: TypeAlias = Literal["dictionary", "string", "view"]
"""Other text columns: dictionary-encoded, plain strings, or views of strings."""

QUESTDB_TYPE_KEY = b"questdb.type"
"""Field metadata: the type as ``SHOW COLUMNS`` prints it."""

DICTIONARY_TYPE: Any = pa.dictionary(pa.int32(), pa.string())
"""Arrow type of text that stays dictionary-encoded."""

VIEW_TYPE: Any = pa.string_view()
"""Arrow type of text as views."""


class TextAs(Struct, frozen=True, kw_only=True):
    """Which text columns become dictionary arrays, which plain strings, and which views."""

    symbols: SymbolsAs
    strings: StringsAs

    @classmethod
    def of(cls, options: ReadOptions) -> Self:
        """Return the choice in the options of a read."""
        return cls(symbols=options.symbols, strings=options.strings)

    @classmethod
    def while_decoding(cls, options: ReadOptions) -> Self:
        """Return what decoding makes: it leaves strings where views are wanted, for these are made last."""
        return cls(symbols=options.symbols, strings="string" if options.strings == "view" else options.strings)


PLAIN_TEXT = TextAs(symbols="string", strings="string")
"""All text as plain strings."""

TEXT_AS_STORED = TextAs(symbols="dictionary", strings="string")
"""SYMBOL as dictionaries, which is how QuestDB always stores it, and other text as plain strings."""

_STRING_TYPES: dict[str, pa.DataType] = {"dictionary": DICTIONARY_TYPE, "string": pa.string(), "view": VIEW_TYPE}

_PLAIN_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date32": pa.date32(),
    "binary": pa.binary(),
}


def arrow_field(name: str, column_type: ColumnType, *, text: TextAs) -> pa.Field[Any]:
    """Return the Arrow field of a column: nullable, with its QuestDB type in the metadata."""
    try:
        type_ = arrow_type(column_type, text=text)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"column {name!r} cannot be read: {error.message}; leave it out with columns=[...]",
            kind="UnsupportedColumn",
            column=name,
        ) from error
    return pa.field(name, type_, metadata={QUESTDB_TYPE_KEY: column_type.name.encode()})


def arrow_schema(columns: Iterable[TableColumn], options: ReadOptions) -> pa.Schema:
    """Return the fields of columns in results."""
    text = TextAs.of(options)
    return pa.schema([arrow_field(column.name, column.readable_type, text=text) for column in columns])


def arrow_type(column_type: ColumnType, *, text: TextAs) -> pa.DataType:
    """Return the Arrow type of a column. Arrays are lists of lists whose items have Arrow's default field names."""
    return _arrow_type(column_type.arrow, text)


@lru_cache(maxsize=4096)
def _arrow_type(kind: ArrowKind, text: TextAs) -> pa.DataType:  # noqa: C901, PLR0911 - one case per type
    unit: Any = kind.unit  # the stubs know which units each type takes; the kind's is one of them
    match kind.name:
        case "dictionary":
            return pa.string() if text.symbols == "string" else DICTIONARY_TYPE
        case "string":
            return _STRING_TYPES[text.strings]
        case name if name in _PLAIN_TYPES:
            return _PLAIN_TYPES[name]
        case "timestamp":
            return pa.timestamp(unit, tz=kind.timezone)
        case "time32":
            return pa.time32(unit)
        case "time64":
            return pa.time64(unit)
        case "fixed_size_binary":
            return pa.binary(kind.width)
        case "decimal128":
            return pa.decimal128(kind.precision, kind.scale)
        case "decimal256":
            return pa.decimal256(kind.precision, kind.scale)
        case "list":
            return reduce(lambda items, _: pa.list_(items), range(kind.dimensions), _PLAIN_TYPES["float64"])
        case "parquet":
            return type_of_schema(kind.parquet)
        case name:
            raise InternalError(f"no Arrow type is known for {name!r}")


def schema_without_views(schema: pa.Schema) -> pa.Schema:
    """Return columns with plain strings in place of views, which Arrow neither filters nor takes."""
    return pa.schema([field.with_type(pa.string()) if field.type == VIEW_TYPE else field for field in schema])


_MOST_DIGITS = 38
"""What DuckDB and Polars know; more panics in Polars."""


def known_schema(schema: pa.Schema, *, has_no_half: bool = False) -> pa.Schema:
    """Return columns with types that DuckDB and Polars know: see :func:`_known_type`."""
    return pa.schema([field.with_type(_known_type(field.type, has_no_half=has_no_half)) for field in schema])


def _known_type(type_: Any, *, has_no_half: bool) -> Any:
    """Return a type with text in the place of wide decimals, and perhaps single floats in that of half ones, at all levels."""
    known = partial(_known_type, has_no_half=has_no_half)
    if pa.types.is_decimal(type_) and type_.precision > _MOST_DIGITS:
        return pa.string()
    if pa.types.is_float16(type_) and has_no_half:
        return pa.float32()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(known(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(known(type_.key_type), known(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(known(type_.value_type)))
    return type_


def numbers_to_arrow(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array[Any]:
    """Return numbers as an Arrow array without nulls."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(np.ascontiguousarray(values).data)])


def byte_strings_to_arrow(values: Sequence[bytes], type_: pa.DataType) -> pa.Array[Any]:
    """Return byte strings as an Arrow array without nulls; ``type_`` is binary, fixed-size binary or string (UTF-8)."""
    data = pa.py_buffer(b"".join(values))
    if pa.types.is_fixed_size_binary(type_):
        return pa.Array.from_buffers(type_, len(values), [None, data])
    offsets = np.fromiter(accumulate(map(len, values), initial=0), dtype=np.int32, count=len(values) + 1)
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(offsets.data), data])


def strings_to_arrow(strings: Utf8Strings) -> pa.StringArray:
    """Return strings as an Arrow array without nulls that shares their memory."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(strings.offsets).data), pa.py_buffer(strings.utf8)]
    array: Any = pa.Array.from_buffers(pa.string(), len(strings), buffers)
    as_strings: pa.StringArray = array
    return as_strings


def text_to_arrow(texts: Sequence[str]) -> pa.Array[Any]:
    """Return texts as an Arrow array of strings without nulls."""
    return byte_strings_to_arrow([text.encode() for text in texts], pa.string())


def numbers_to_numpy(array: pa.Array[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the numbers of an array that has no nulls."""
    data = array.buffers()[1]
    if data is None:
        return np.empty(0, dtype=dtype)
    return np.frombuffer(memoryview(data), dtype=dtype, count=array.offset + len(array))[array.offset :]


def check_values(array: pa.ChunkedArray[Any], label: ChunkLabel) -> None:
    """Check values that pyarrow decodes without complaint although later code may crash on them."""
    chunks: list[Any] = array.chunks
    try:
        for chunk in chunks:
            # The dictionary alone, for pyarrow takes ten times as long as numpy to compare each row with its length.
            (chunk.dictionary if _has_all_entries(chunk) else chunk).validate(full=True)
    except pa.ArrowInvalid as error:
        raise label.damaged(
            f"{error}; the file's writer stored what the column's type does not allow: rewrite the column with another type,"
            " or leave it out with columns=[...]",
            field="values",
        ) from error


def _has_all_entries(array: Any) -> bool:
    """Tell whether an array has a dictionary, with an entry for the index of each row, null or not."""
    if not pa.types.is_dictionary(array.type) or array.type.index_type != pa.int32():
        return False
    # As unsigned numbers, negative ones are the largest.
    indices = numbers_to_numpy(array.indices, np.uint32)
    return not len(indices) or int(indices.max()) < len(array.dictionary)


def mask_to_numpy(array: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Return truth values without nulls as a copy with one byte each."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(len(array), dtype=np.bool_)
    flags = np.unpackbits(np.frombuffer(memoryview(data), dtype=np.uint8), bitorder="little")
    return flags[array.offset : array.offset + len(array)].view(np.bool_)


def mask_to_arrow(mask: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    """Return truth values as an Arrow array without nulls."""
    bits = np.packbits(mask, bitorder="little")
    array: Any = pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits.data)])
    as_mask: pa.BooleanArray = array
    return as_mask


compute: Any = pc
"""``pyarrow.compute``."""

Values: TypeAlias = Any
"""An Arrow array of any type."""


def only_where(values: Values, holds: Values) -> Values:
    """Return the values for which ``holds`` is true, and null for the others."""
    return compute.if_else(holds, values, pa.nulls(1, values.type)[0])


def to_batches(table: pa.Table, *, batch_rows: int) -> list[pa.RecordBatch]:
    """Split a table without copying, and without releasing the GIL, which pyarrow does for each batch."""
    columns = table.columns
    if not columns or any(column.num_chunks != 1 for column in columns):
        return [batch for batch in table.to_batches(max_chunksize=batch_rows) if batch.num_rows]
    arrays: list[Any] = [column.chunk(0) for column in columns]
    whole = pa.RecordBatch.from_arrays(arrays, schema=table.schema)
    return [whole.slice(start, batch_rows) for start in range(0, whole.num_rows, batch_rows)]


def concatenate(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Join the batches of many row groups; only dictionary indices are copied."""
    return pa.Table.from_batches(batches, schema).unify_dictionaries()


_BLOCK_ROWS = 65_536
"""Made values repeat one block of this many rows, so that they cost next to no memory."""


def missing_values(row_count: int, type_: Any, *, never_null: bool) -> pa.ChunkedArray[Any]:
    """Make the values of rows from before a column existed."""
    block_rows = min(row_count, _BLOCK_ROWS)
    block: Any = pa.repeat(zero(type_), block_rows) if never_null else pa.nulls(block_rows, type_)
    return _repeated_block(block, row_count)


def repeated_value(value: pa.ChunkedArray[Any], row_count: int) -> pa.ChunkedArray[Any]:
    """Make a column that holds one value in every row."""
    same_place = numbers_to_arrow(np.zeros(min(row_count, _BLOCK_ROWS), dtype=np.int32), pa.int32())
    block: Any = value.chunk(0).take(same_place)
    return _repeated_block(block, row_count)


def _repeated_block(block: pa.Array[Any], row_count: int) -> pa.ChunkedArray[Any]:
    blocks, rest = divmod(row_count, _BLOCK_ROWS)
    return pa.chunked_array([block] * blocks + [block.slice(0, rest)], type=block.type)


def zero(type_: pa.DataType) -> Any:
    """Return the replacement for null in a type without null: false or 0."""
    return pa.scalar(0, pa.uint8()).cast(type_)


def rows_without_columns(row_count: int) -> pa.Table:
    """Make a table with rows but without columns; Arrow has no direct way to state its number of rows."""
    return pa.table({"": pa.nulls(row_count)}).select([])


def to_arrow_value(value: DomainValue, type_: Any, *, path: str | None, column: str) -> Any:
    """Return a value of a column's domain as an Arrow array of length 1, without importing pandas."""
    if isinstance(value, bytes):
        if pa.types.is_string(type_):
            _check_text(value, path=path, column=column)
        array: Any = byte_strings_to_arrow([value], pa.binary() if pa.types.is_string(type_) else type_)
        return array.cast(type_) if pa.types.is_string(type_) else array
    if pa.types.is_floating(type_):
        return numbers_to_arrow(
            np.array([value], dtype=np.float32 if pa.types.is_float32(type_) else np.float64), type_
        )
    if pa.types.is_boolean(type_):
        false = pa.repeat(zero(type_), 1)
        return false if not value else false.is_valid()
    number = int(value).to_bytes(type_.bit_width // 8, "little", signed=value < 0)
    return pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(number)])


def to_domain_value(scalar: Any) -> DomainValue | None:
    """Return an Arrow scalar as a value of a column's domain; None for null."""
    array: Any = pa.repeat(scalar, 1)
    type_ = array.type
    if array.null_count:
        return None
    if pa.types.is_string(type_):
        array, type_ = array.cast(pa.binary()), pa.binary()
    is_plain = pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_)
    if is_plain or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        value: DomainValue = array[0].as_py()
        return value
    is_signed = not pa.types.is_unsigned_integer(type_)
    return int.from_bytes(memoryview(array.buffers()[1])[: type_.bit_width // 8], "little", signed=is_signed)


def _check_text(value: bytes, *, path: str | None, column: str) -> None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise FormatError(
            f"a bound of column {column!r} is not UTF-8, and so no text of it; make the sidecar anew with"
            " 'coldparquet index --force'",
            path=path,
            field="MIN/MAX",
            column=column,
        ) from error


MAX_EMPTY_LISTS = 1 << 24
"""Most lists in the arrays without elements of one chunk. A shape such as (2000000000, 0) takes 8 bytes in the file but
two billion empty lists in Arrow."""

_WORD_BYTES = 8
_SATURATED = 1 << 31
"""Products of dimensions are capped here; no byte string in Arrow holds as many elements."""


def decode_raw_arrays(payloads: pa.BinaryArray, *, dimensions: int, label: ChunkLabel) -> pa.ListArray[Any]:
    """Decode the byte strings of one chunk."""
    is_null = np.asarray(payloads.is_null().to_numpy(zero_copy_only=False), dtype=bool)
    rows = np.flatnonzero(~is_null)
    first_byte, lengths_bytes, data = _byte_strings(payloads.drop_null())
    header_words = (dimensions + 1) // 2
    _check(
        (lengths_bytes % _WORD_BYTES == 0) & (lengths_bytes >= header_words * _WORD_BYTES),
        rows,
        label,
        f"an array of {dimensions} dimensions begins with {header_words * _WORD_BYTES} bytes and goes on in words of 8",
    )
    word_lengths = lengths_bytes // _WORD_BYTES
    words = np.frombuffer(memoryview(data), dtype="<u8", count=int(word_lengths.sum()), offset=first_byte)
    header_positions = (np.cumsum(word_lengths) - word_lengths)[:, None] + np.arange(header_words)
    shapes = words[header_positions].view("<i4")[:, :dimensions].astype(np.int64)
    _check((shapes >= 0).all(axis=1), rows, label, "a dimension is negative")

    lists = [np.ones(len(rows), dtype=np.int64)]  # number of lists (finally: elements) of each row at each depth
    for dimension in range(dimensions):
        lists.append(np.minimum(lists[-1] * shapes[:, dimension], _SATURATED))
    _check(
        (header_words + lists[-1]) * _WORD_BYTES == lengths_bytes,
        rows,
        label,
        "the dimensions ask for another number of elements than there are",
    )
    empty_lists = sum(int(count[lists[-1] == 0].sum()) for count in lists[1:])
    if empty_lists > MAX_EMPTY_LISTS:
        raise label.damaged(f"arrays without elements claim {empty_lists} lists, more than {MAX_EMPTY_LISTS}")

    is_element = np.ones(len(words), dtype=bool)
    is_element[header_positions] = False
    elements = words[is_element].view("<f8")
    nested: pa.Array[Any] = pa.array(elements, type=pa.float64(), mask=np.isnan(elements))
    for dimension in range(dimensions - 1, 0, -1):
        list_lengths = np.repeat(shapes[:, dimension], lists[dimension])
        nested = pa.ListArray.from_arrays(_offsets(list_lengths), nested)
    row_lengths = np.zeros(len(payloads), dtype=np.int64)
    row_lengths[rows] = shapes[:, 0]
    return pa.ListArray.from_arrays(_offsets(row_lengths), nested, mask=pa.array(is_null))


def _byte_strings(present: pa.BinaryArray) -> tuple[int, npt.NDArray[np.int64], pa.Buffer]:
    """Split byte strings, none of them null, into offsets and data."""
    _, offsets_buffer, data = present.buffers()
    if len(present) == 0 or offsets_buffer is None:
        return 0, np.empty(0, dtype=np.int64), pa.py_buffer(b"")
    offsets = np.frombuffer(memoryview(offsets_buffer), dtype=np.int32, count=present.offset + len(present) + 1)[
        present.offset :
    ]
    return int(offsets[0]), np.diff(offsets).astype(np.int64), data or pa.py_buffer(b"")


def _offsets(list_lengths: npt.NDArray[np.int64]) -> pa.Int32Array:
    offsets = np.zeros(len(list_lengths) + 1, dtype=np.int32)
    np.cumsum(list_lengths, out=offsets[1:])
    return pa.array(offsets, type=pa.int32())


def _check(holds: npt.NDArray[np.bool_], rows: npt.NDArray[np.intp], label: ChunkLabel, message: str) -> None:
    if not holds.all():
        row = int(rows[np.argmin(holds)])
        raise label.damaged(f"row {row}: {message}", row=row, field="array")
