"""Arrow data as it comes -> the Arrow types in which it is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.errors import InvalidInputError
from coldparquet.format.type_codes import TypeTag, array_dimensions, decimal_precision_scale, is_decimal
from coldparquet.write.exact_cast import exact_cast
from coldparquet.write.raw_arrays import encode_raw_arrays
from coldparquet.write.stored_columns import decimal_storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.write.stored_columns import StoredColumn


def stored_table(rows: pa.Table, columns: Sequence[StoredColumn]) -> pa.Table:
    """Convert the rows of one row group to what is handed to the Parquet writer.

    Args:
        rows: Columns of these names, in any order.
        columns: How to store them.

    Returns:
        The columns in the order of ``columns``, each in one piece.

    Raises:
        InvalidInputError: A value does not fit the type, or a null stands where there can be none (kinds
            ``DoesNotFit``, ``NullValue``, ``RaggedArray``).
    """
    arrays = [_stored_array(rows.column(column.name), column) for column in columns]
    return pa.Table.from_arrays(arrays, schema=pa.schema([column.arrow_field() for column in columns]))


def _stored_array(values: pa.ChunkedArray[Any], column: StoredColumn) -> Any:
    try:
        values.validate(full=True)  # text that is not UTF-8 would be stored as it is, and nobody could read it
        array = _converted(_in_one_piece(values), column)
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"column {column.name!r} of Arrow type {values.type} cannot be stored as {column.type_name}: {error}",
            kind="DoesNotFit",
            field=column.name,
        ) from error
    if column.is_required and array.null_count:  # not known before: the null may stand in a dictionary
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
    if is_decimal(column.tag):  # the storage has room for more digits than the type
        array = exact_cast(array, decimal_storage(*decimal_precision_scale(column.type_code)))
    return exact_cast(array, column.storage)


def _symbols(values: Any, column: StoredColumn) -> Any:
    """Encode strings with a dictionary: of the values that occur, or of the table's symbols up to the last that does."""
    if column.symbols is None:
        # Encoded anew even if they came with a dictionary: that may hold one value twice, or values that no row has.
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
