"""Converts Arrow data to the Arrow types in which it is stored.

An array becomes one byte string per row: the length of each dimension as i32, zeros up to a multiple of 8 bytes, then
the elements as float64 in row-major order, null elements as NaN; everything little-endian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.decode.arrow import numbers_to_numpy
from coldparquet.errors import InvalidInputError
from coldparquet.format.type_codes import TypeTag, array_dimensions, decimal_precision_scale, is_decimal
from coldparquet.write.columns import decimal_storage, exact_cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from coldparquet.write.columns import StoredColumn


_WORD_BYTES = 8
_LARGEST_BYTES = (1 << 31) - 1
"""Largest offset in one Arrow array."""


def encode_raw_arrays(lists: pa.ListArray[Any], *, dimensions: int, column: str) -> pa.BinaryArray:
    """Encode the arrays of one row group."""
    is_null = _bits(lists.is_null())
    rows = np.flatnonzero(~is_null)
    nested: Any = lists.drop_null()
    shapes = np.zeros((len(rows), dimensions), dtype=np.int64)
    counts = np.ones(len(rows), dtype=np.int64)  # lists of each row at the current depth; finally elements
    for dimension in range(dimensions):
        if nested.null_count:
            row = np.repeat(rows, counts)[np.argmax(_bits(nested.is_null()))]
            raise _ragged(column, int(row), "one of its lists is null")
        lengths = numbers_to_numpy(pc.list_value_length(nested), np.int32).astype(np.int64)
        has_lists = counts > 0
        first = np.cumsum(counts) - counts
        shapes[has_lists, dimension] = lengths[first[has_lists]]
        differs = lengths != np.repeat(shapes[:, dimension], counts)
        if differs.any():
            raise _ragged(column, int(np.repeat(rows, counts)[np.argmax(differs)]), "its lists differ in length")
        counts = counts * shapes[:, dimension]
        nested = nested.flatten()
    elements = numbers_to_numpy(nested.fill_null(float("nan")), np.float64)
    return _byte_strings(shapes, counts, elements, is_null, column)


def _byte_strings(
    shapes: npt.NDArray[np.int64],
    element_counts: npt.NDArray[np.int64],
    elements: npt.NDArray[np.float64],
    is_null: npt.NDArray[np.bool_],
    column: str,
) -> pa.BinaryArray:
    dimensions = shapes.shape[1]
    header_words = (dimensions + 1) // 2
    word_lengths = header_words + element_counts
    header_positions = (np.cumsum(word_lengths) - word_lengths)[:, None] + np.arange(header_words)
    words = np.empty(int(word_lengths.sum()), dtype="<u8")
    if words.nbytes > _LARGEST_BYTES:
        raise InvalidInputError(
            f"the arrays of column {column!r} take {words.nbytes:,} bytes in one row group, more than Arrow can hold in"
            " one piece; write fewer rows per row group",
            kind="TooLarge",
            field=column,
        )
    headers = np.zeros((len(shapes), 2 * header_words), dtype="<i4")
    headers[:, :dimensions] = shapes
    is_element = np.ones(len(words), dtype=bool)
    is_element[header_positions] = False
    words[header_positions] = headers.view("<u8")
    words[is_element] = elements.view("<u8")
    offsets = np.zeros(len(is_null) + 1, dtype=np.int32)
    row_bytes = np.zeros(len(is_null), dtype=np.int64)
    row_bytes[~is_null] = word_lengths * _WORD_BYTES
    np.cumsum(row_bytes, out=offsets[1:])
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little").data) if is_null.any() else None
    buffers = [validity, pa.py_buffer(offsets.data), pa.py_buffer(words.data)]
    byte_strings: pa.BinaryArray = pa.Array.from_buffers(pa.binary(), len(is_null), buffers)  # type: ignore[assignment]
    return byte_strings


def _bits(flags: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    return np.asarray(flags.to_numpy(zero_copy_only=False), dtype=bool)


def _ragged(column: str, row: int, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"row {row} of its row group holds no array in column {column!r}: {why}",
        kind="RaggedArray",
        field=column,
        row=row,
    )


def stored_table(rows: pa.Table, columns: Sequence[StoredColumn]) -> pa.Table:
    """Convert the rows of one row group for the Parquet writer."""
    arrays = [_stored_array(rows.column(column.name), column) for column in columns]
    return pa.Table.from_arrays(arrays, schema=pa.schema([column.arrow_field() for column in columns]))


def _stored_array(values: pa.ChunkedArray[Any], column: StoredColumn) -> Any:
    try:
        values.validate(full=True)  # text that is not UTF-8 would be stored unchanged and be unreadable
        array = _converted(_in_one_piece(values), column)
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"column {column.name!r} of Arrow type {values.type} cannot be stored as {column.type_name}: {error}",
            kind="DoesNotFit",
            field=column.name,
        ) from error
    if column.is_required and array.null_count:  # only known now: the null may be in a dictionary
        why = "the designated timestamp is never null" if column.tag is TypeTag.TIMESTAMP else "it is never null"
        raise InvalidInputError(
            f"column {column.name!r} of type {column.type_name} has {array.null_count:,} nulls, but {why}; fill them or"
            " drop their rows first",
            kind="NullValue",
            field=column.name,
        )
    return array


def _converted(array: Any, column: StoredColumn) -> Any:
    if column.tag is TypeTag.ARRAY:
        dimensions = array_dimensions(column.type_code)
        return encode_raw_arrays(exact_cast(array, _list_type(dimensions)), dimensions=dimensions, column=column.name)
    if pa.types.is_dictionary(column.storage):
        return _symbols(exact_cast(array, pa.string()), column)
    if isinstance(column.storage, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(column.storage, exact_cast(array, column.storage.storage_type))
    if is_decimal(column.tag):  # the storage type has more digits than the type
        array = exact_cast(array, decimal_storage(*decimal_precision_scale(column.type_code)))
    return exact_cast(array, column.storage)


def _symbols(values: Any, column: StoredColumn) -> Any:
    """Encode strings with a dictionary: of the distinct values, or of the table's symbols up to the last used one."""
    if column.symbols is None:
        # Encode again even if they have a dictionary: it may hold one value twice, or values that no row has.
        return values.dictionary_encode()
    keys: Any = pc.index_in(values, value_set=column.symbols)
    if keys.null_count > values.null_count:
        unknown = values.filter(pc.and_(keys.is_null(), values.is_valid()))[0].as_py()
        raise InvalidInputError(
            f"column {column.name!r} holds {unknown!r}, which is none of the {len(column.symbols):,} symbols of the table",
            kind="UnknownSymbol",
            field=column.name,
        )
    last_key = pc.max(keys).as_py()
    return pa.DictionaryArray.from_arrays(keys, column.symbols.slice(0, 0 if last_key is None else last_key + 1))


def _in_one_piece(values: pa.ChunkedArray[Any]) -> Any:
    if isinstance(values.type, pa.BaseExtensionType):
        chunks: Any = values.chunks
        storage: Any = values.type.storage_type
        return pa.chunked_array([chunk.storage for chunk in chunks], storage).combine_chunks()
    if pa.types.is_dictionary(values.type):
        # Together the dictionaries may have more values than their keys can count.
        dictionaries: list[Any] = values.chunks
        values = pa.chunked_array([chunk.dictionary_decode() for chunk in dictionaries], values.type.value_type)
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def _list_type(dimensions: int) -> pa.DataType:
    list_type: pa.DataType = pa.float64()
    for _ in range(dimensions):
        list_type = pa.list_(list_type)
    return list_type
