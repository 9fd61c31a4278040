"""Which QuestDB type each column of the data gets, and as what Arrow type it is handed to the Parquet writer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.decode.arrow_schema import DICTIONARY_TYPE, QUESTDB_TYPE_KEY
from coldparquet.errors import InvalidInputError
from coldparquet.format.type_codes import (
    DESIGNATED_BIT,
    MAX_DECIMAL_PRECISION,
    NANOSECOND_BIT,
    UNKNOWN_TYPE_CODE,
    TypeTag,
    array_type_code,
    decimal_precision_scale,
    decimal_type_code,
    is_decimal,
    parse_type_name,
    tag_of,
    timestamp_unit,
    type_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIELD_ID_KEY = b"PARQUET:field_id"
"""Field metadata under which Arrow keeps a column's Parquet field id, which is QuestDB's writer index."""

NEVER_NULL_TAGS = frozenset({TypeTag.BOOLEAN, TypeTag.BYTE, TypeTag.SHORT, TypeTag.CHAR})
"""Types of which QuestDB has no null, and whose columns it therefore writes as required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredColumn:
    """One column, as it is written."""

    name: str
    type_code: int
    """QuestDB's code; on the designated timestamp with its bit."""
    id: int | None
    """Parquet field id, which is the writer index of the column in its table."""
    storage: pa.DataType
    """Arrow type that makes the Parquet writer store the column as QuestDB does."""
    is_required: bool
    """The file has no place for nulls in it."""
    symbols: pa.StringArray | None = field(default=None, compare=False, repr=False)
    """SYMBOL: the table's symbols by their keys; dictionaries then have these keys. None where they are not known."""

    @property
    def tag(self) -> TypeTag:
        """The type without its parameters."""
        return tag_of(self.type_code)

    @property
    def type_name(self) -> str:
        """The type as ``SHOW COLUMNS`` prints it."""
        return type_name(self.type_code)

    def arrow_field(self) -> pa.Field[Any]:
        """Return the Arrow field for the Parquet writer."""
        metadata = None if self.id is None else {FIELD_ID_KEY: str(self.id).encode()}
        return pa.field(self.name, self.storage, nullable=not self.is_required, metadata=metadata)


def columns_of_schema(schema: pa.Schema, *, timestamp: str | None) -> tuple[StoredColumn, ...]:
    """Decide how to store each column of new data.

    Args:
        schema: Its columns. The type is what the field metadata ``questdb.type`` names, as ``SHOW COLUMNS`` prints it;
            without it, the type that has this Arrow type. The writer index is the field metadata ``PARQUET:field_id``
            if every column has it, else the position.
        timestamp: The designated timestamp, by which the rows are sorted; None for a table without one.

    Raises:
        InvalidInputError: A name repeats, there is no type for a column, or the timestamp is not a TIMESTAMP.
    """
    if not schema.names or len(set(schema.names)) < len(schema.names):
        raise InvalidInputError(
            f"the columns are {schema.names}; a partition has at least one, and names do not repeat", kind="Schema"
        )
    if timestamp is not None and timestamp not in schema.names:
        raise InvalidInputError(
            f"there is no column {timestamp!r} to be the designated timestamp; there are {', '.join(schema.names)}",
            kind="UnknownColumn",
            field=timestamp,
        )
    return tuple(
        _column(field, id_, is_designated=field.name == timestamp)
        for field, id_ in zip(schema, _column_ids(schema), strict=True)
    )


def with_symbols(
    columns: Sequence[StoredColumn], symbols: Mapping[str, Sequence[str] | pa.Array[Any]]
) -> tuple[StoredColumn, ...]:
    """Give columns the symbols of their table.

    Args:
        columns: The columns.
        symbols: By column name, all symbols of the table in the order of their keys.

    Raises:
        InvalidInputError: There is no such column, it is not a SYMBOL, or its symbols repeat or are null.
    """
    of_column = {name: _symbol_array(name, values) for name, values in symbols.items()}
    known = {column.name for column in columns if column.tag is TypeTag.SYMBOL}
    if unknown := of_column.keys() - known:
        raise InvalidInputError(
            f"symbols are given for {', '.join(sorted(unknown))}; the SYMBOL columns are {', '.join(sorted(known)) or 'none'}",
            kind="UnknownColumn",
        )
    return tuple(replace(column, symbols=of_column.get(column.name, column.symbols)) for column in columns)


def designated_index(columns: Sequence[StoredColumn]) -> int | None:
    """Return the position of the designated timestamp among columns of new data."""
    return next(
        (
            index
            for index, column in enumerate(columns)
            if column.tag is TypeTag.TIMESTAMP and column.type_code & DESIGNATED_BIT
        ),
        None,
    )


def decimal_storage(digits: int, scale: int) -> pa.DataType:
    """Return the Arrow decimal of so many digits."""
    return pa.decimal256(digits, scale) if digits > _DECIMAL128_DIGITS else pa.decimal128(digits, scale)


def decimal_of_width(width_bytes: int, scale: int) -> pa.DataType:
    """Return the Arrow decimal of all digits that always fit into a signed number of so many bytes."""
    return decimal_storage(len(str(2 ** (8 * width_bytes - 1) - 1)) - 1, scale)


_DECIMAL128_DIGITS = 38
_DECIMAL_DIGITS = (2, 4, 9, 18, _DECIMAL128_DIGITS, MAX_DECIMAL_PRECISION)
"""Digits that fill QuestDB's decimals of 1, 2, 4, 8, 16 and 32 bytes."""

_CODES: dict[pa.DataType, int] = {
    pa.bool_(): TypeTag.BOOLEAN,
    pa.int8(): TypeTag.BYTE,
    pa.int16(): TypeTag.SHORT,
    pa.int32(): TypeTag.INT,
    pa.int64(): TypeTag.LONG,
    pa.float32(): TypeTag.FLOAT,
    pa.float64(): TypeTag.DOUBLE,
    pa.date32(): TypeTag.DATE,
    pa.string(): TypeTag.VARCHAR,
    pa.large_string(): TypeTag.VARCHAR,
    pa.string_view(): TypeTag.VARCHAR,
    pa.binary(): TypeTag.BINARY,
    pa.large_binary(): TypeTag.BINARY,
    pa.binary_view(): TypeTag.BINARY,
    pa.binary(32): TypeTag.LONG256,
    pa.uuid(): TypeTag.UUID,
}
"""Arrow types that mean just one QuestDB type. UINT16 could be a CHAR and UINT32 an IPv4, but they rarely are."""
_TIMESTAMP_CODES = {
    "s": TypeTag.TIMESTAMP,
    "ms": TypeTag.DATE,
    "us": TypeTag.TIMESTAMP,
    "ns": TypeTag.TIMESTAMP | NANOSECOND_BIT,
}


def _column(field: pa.Field[Any], id_: int, *, is_designated: bool) -> StoredColumn:
    type_code = _stated_code(field) or _code_of_arrow_type(field.type)
    if type_code == UNKNOWN_TYPE_CODE:
        raise InvalidInputError(
            f"column {field.name!r} has the Arrow type {field.type}, which stands for no QuestDB type, or for several;"
            f" cast it, or name the type in the field's metadata, as in {{{QUESTDB_TYPE_KEY.decode()!r}: 'IPv4'}}",
            kind="UnknownType",
            field=field.name,
        )
    if is_designated:
        if tag_of(type_code) is not TypeTag.TIMESTAMP:
            raise InvalidInputError(
                f"column {field.name!r} is {type_name(type_code)}; the designated timestamp is a TIMESTAMP or"
                " TIMESTAMP_NS, so cast it",
                kind="NotATimestamp",
                field=field.name,
            )
        type_code |= DESIGNATED_BIT
    return StoredColumn(
        name=field.name,
        type_code=int(type_code),  # not an enum: members are slow to find in a range
        id=id_,
        storage=_storage_of_code(type_code),
        is_required=is_designated or tag_of(type_code) in NEVER_NULL_TAGS,
    )


def _symbol_array(column: str, values: Sequence[str] | pa.Array[Any]) -> pa.StringArray:
    try:
        array: Any = values.cast(pa.string()) if isinstance(values, pa.Array) else pa.array(list(values), pa.string())
        array.validate(full=True)
    except pa.ArrowException as error:
        raise InvalidInputError(f"the symbols of column {column!r} are no strings: {error}", field=column) from error
    if array.null_count or len(array.unique()) < len(array):
        raise InvalidInputError(
            f"the symbols of column {column!r} repeat, or some are null; a table's symbol has one key", field=column
        )
    return array  # type: ignore[no-any-return]


def _column_ids(schema: pa.Schema) -> list[int]:
    stated = [(field.metadata or {}).get(FIELD_ID_KEY) for field in schema]
    if all(id_ is None for id_ in stated):
        return list(range(len(schema)))
    ids = [int(id_) if id_ is not None and id_.isdigit() else -1 for id_ in stated]
    if min(ids) < 0 or len(set(ids)) < len(ids):
        raise InvalidInputError(
            f"the columns have the field ids {[None if id_ is None else id_.decode() for id_ in stated]}; either each has"
            " its own, the writer index in its QuestDB table, or none has one",
            kind="FieldIds",
        )
    return ids


def _stated_code(field: pa.Field[Any]) -> int | None:
    stated = (field.metadata or {}).get(QUESTDB_TYPE_KEY)
    if stated is None:
        return None
    try:
        return parse_type_name(stated.decode(errors="replace"))
    except InvalidInputError as error:
        raise InvalidInputError(
            f"the metadata of column {field.name!r}: {error.message}", kind=error.kind, field=field.name
        ) from None


def _code_of_arrow_type(type_: Any) -> int:
    if type_ in _CODES:
        return _CODES[type_]
    if pa.types.is_timestamp(type_):
        return _TIMESTAMP_CODES[type_.unit]
    if pa.types.is_decimal(type_):
        return decimal_type_code(type_.precision, type_.scale)
    if pa.types.is_dictionary(type_) and _CODES.get(type_.value_type) == TypeTag.VARCHAR:
        return TypeTag.SYMBOL
    dimensions = 0
    while isinstance(type_, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        dimensions, type_ = dimensions + 1, type_.value_type
    return array_type_code(dimensions) if dimensions and type_ == pa.float64() else UNKNOWN_TYPE_CODE


def _storage_of_code(type_code: int) -> pa.DataType:
    """Return the Arrow type that pyarrow stores just as QuestDB stores the type.

    A decimal takes as many bytes as its Arrow precision needs, but QuestDB's take the next power of two: so it is written
    with the most digits of its width, and the footer is told the real number of digits afterwards.
    """
    tag = tag_of(type_code)
    if is_decimal(tag):
        precision, scale = decimal_precision_scale(type_code)
        return decimal_storage(next(digits for digits in _DECIMAL_DIGITS if precision <= digits), scale)
    if tag is TypeTag.TIMESTAMP:
        unit: Any = timestamp_unit(type_code)  # the stubs list them
        return pa.timestamp(unit, tz="UTC")
    storage: pa.DataType = _STORAGE[tag]
    return storage


_STORAGE: dict[TypeTag, Any] = {
    TypeTag.BOOLEAN: pa.bool_(),
    TypeTag.BYTE: pa.int8(),
    TypeTag.SHORT: pa.int16(),
    TypeTag.CHAR: pa.uint16(),
    TypeTag.INT: pa.int32(),
    TypeTag.LONG: pa.int64(),
    TypeTag.DATE: pa.timestamp("ms", tz="UTC"),
    TypeTag.FLOAT: pa.float32(),
    TypeTag.DOUBLE: pa.float64(),
    TypeTag.STRING: pa.string(),
    TypeTag.SYMBOL: DICTIONARY_TYPE,
    TypeTag.LONG256: pa.binary(32),
    TypeTag.GEOBYTE: pa.int8(),
    TypeTag.GEOSHORT: pa.int16(),
    TypeTag.GEOINT: pa.int32(),
    TypeTag.GEOLONG: pa.int64(),
    TypeTag.BINARY: pa.binary(),
    TypeTag.UUID: pa.uuid(),
    TypeTag.LONG128: pa.binary(16),
    TypeTag.IPV4: pa.uint32(),
    TypeTag.VARCHAR: pa.string(),
    TypeTag.ARRAY: pa.binary(),
}
"""Types without parameters that matter here; arrays as the byte strings that hold them."""
