"""Maps the columns of a written table to QuestDB and Arrow types, and casts rows without losing values.

Each QuestDB type has one Arrow type. Rows come from a caller, from parts that tasks have written, or from existing
partitions. All of them are cast to the same Arrow schema. Its field metadata names the QuestDB type and the writer
index of each column; :func:`coldparquet.write.write_partition` relies on both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from coldparquet.decode.arrow import (
    DICTIONARY_TYPE,
    PLAIN_TEXT,
    QUESTDB_TYPE_KEY,
    TEXT_AS_STORED,
    arrow_field,
    arrow_type,
    compute,
)
from coldparquet.decode.convert_text import values_from_text
from coldparquet.decode.parquet_reader import ChunkLabel
from coldparquet.errors import InvalidInputError
from coldparquet.format.table_metadata import SYMBOL_CACHE_FLAG, MetadataSlot, TableMetadata
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
from coldparquet.format.types import canonical_type
from coldparquet.plan.columns import table_columns_of_metadata
from coldparquet.records import replace
from coldparquet.text import few_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from coldparquet.format.parquet_schema import SchemaLeaf
    from coldparquet.format.partition_names import PartitionInterval
    from coldparquet.format.sidecar import Sidecar


def exact_cast(array: Any, type_: pa.DataType) -> Any:
    """Cast values; a value that does not fit is an error.

    Arrow's own safe cast checks whole numbers, times and decimals. But it turns numbers that are too large into
    infinity: doubles and decimals for 32 bits, and text also for 64 bits.
    """
    if array.type == type_:
        return array
    cast = pc.cast(array, type_, safe=True)
    if pa.types.is_floating(type_):
        made_infinite = array.filter(pc.is_inf(cast))
        too_large = made_infinite.filter(pc.invert(_are_infinite(made_infinite)))
        if len(too_large):
            raise pa.ArrowInvalid(f"the number {too_large[0].as_py()!r} is too large for {type_}")
    return cast


def _are_infinite(array: Any) -> Any:
    """Tell which values are infinite in their original type, shape ``(values,)``; none is null."""
    if pa.types.is_dictionary(array.type):
        array = pc.cast(array, array.type.value_type)
    if pa.types.is_floating(array.type):
        return pc.is_inf(array)
    return pc.match_substring(pc.cast(array, pa.string()), "inf", ignore_case=True)


FIELD_ID_KEY = b"PARQUET:field_id"
"""Field metadata key under which Arrow keeps a column's Parquet field id, which is QuestDB's writer index."""

NEVER_NULL_TAGS = frozenset({TypeTag.BOOLEAN, TypeTag.BYTE, TypeTag.SHORT, TypeTag.CHAR})
"""Types without a null in QuestDB, whose columns it therefore writes as required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStorage:
    """How one column is stored."""

    name: str
    type_code: int
    """QuestDB's type code; the designated timestamp has its bit set."""
    id: int | None
    """Parquet field id, which is the writer index of the column in its table."""
    storage: pa.DataType
    """Arrow type with which the Parquet writer stores the column as QuestDB does."""
    is_required: bool
    """Whether the file cannot store nulls in it."""
    symbols: pa.StringArray | None = field(default=None, compare=False, repr=False)
    """SYMBOL: the table's symbols by their keys; dictionaries then use these keys. None where they are unknown."""

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


def columns_of_schema(schema: pa.Schema, *, timestamp: str | None) -> tuple[ColumnStorage, ...]:
    """Decide how to store each column of new data."""
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


def column_of_file(sidecar: Sidecar, leaf: SchemaLeaf, index: int) -> ColumnStorage:
    """Say how a column of an existing file is stored; its decimals are of fixed length, or the caller refuses them."""
    type_ = sidecar.column_type(index)
    storage = arrow_type(type_, text=TEXT_AS_STORED)
    if is_decimal(type_.tag):
        storage = decimal_of_width(leaf.fixed_byte_length, type_.arrow.scale)
    elif type_.tag is TypeTag.ARRAY:
        storage = pa.binary()
    elif type_.tag is TypeTag.SYMBOL:
        storage = DICTIONARY_TYPE
    return ColumnStorage(
        name=leaf.name,
        type_code=sidecar.column(index).type_code,
        id=leaf.field_id,
        storage=storage,
        is_required=leaf.max_def_level == 0,
    )


def with_symbols(
    columns: Sequence[ColumnStorage], symbols: Mapping[str, Sequence[str] | pa.Array[Any]]
) -> tuple[ColumnStorage, ...]:
    """Attach the table's symbols to columns."""
    of_column = {name: _symbol_array(name, values) for name, values in symbols.items()}
    known = {column.name for column in columns if column.tag is TypeTag.SYMBOL}
    if unknown := of_column.keys() - known:
        raise InvalidInputError(
            f"symbols are given for {', '.join(sorted(unknown))}; the SYMBOL columns are {', '.join(sorted(known)) or 'none'}",
            kind="UnknownColumn",
        )
    return tuple(replace(column, symbols=of_column.get(column.name, column.symbols)) for column in columns)


def designated_index(columns: Sequence[ColumnStorage]) -> int | None:
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
    """Return the Arrow decimal with this number of digits."""
    return pa.decimal256(digits, scale) if digits > _DECIMAL128_DIGITS else pa.decimal128(digits, scale)


def decimal_of_width(width_bytes: int, scale: int) -> pa.DataType:
    """Return the Arrow decimal with all digits that always fit into a signed number of this width."""
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
"""Arrow types that map to a single QuestDB type. UINT16 could be a CHAR and UINT32 an IPv4, but rarely are."""
_TIMESTAMP_CODES = {
    "s": TypeTag.TIMESTAMP,
    "ms": TypeTag.DATE,
    "us": TypeTag.TIMESTAMP,
    "ns": TypeTag.TIMESTAMP | NANOSECOND_BIT,
}


def _column(field: pa.Field[Any], id_: int, *, is_designated: bool) -> ColumnStorage:
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
    return ColumnStorage(
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

    A decimal takes as many bytes as its Arrow precision needs, but QuestDB uses the next power of two. So the decimal
    is written with the most digits of its width, and the footer is then corrected to the real number of digits.
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
"""Types without parameters that matter here; arrays are stored as byte strings."""


_SYMBOL_CAPACITY = 256
"""QuestDB's own default."""

_YEAR_10000_US = 253_402_300_800_000_000

_TYPES_OF_TEXT = frozenset({"UUID", "IPv4", "CHAR"})
"""Types whose values may be given as text, as in ``11111111-2222-3333-4444-555555555555``, ``10.0.0.1`` and ``x``."""

_NOT_IN_NAMES = frozenset("?.,'\"\\/:()+-*%~\x7f\ufeff") | frozenset(map(chr, range(16)))
"""Characters that QuestDB forbids in column names, because names become file names and parts of SQL."""

_LONGEST_NAME = 127

_TEXT = frozenset({pa.string(), pa.large_string(), pa.string_view()})


def new_table_metadata(  # noqa: PLR0913 - mostly keyword arguments
    schema: pa.Schema,
    *,
    timestamp: str,
    interval: PartitionInterval,
    symbols: Collection[str],
    table_id: int,
    metadata_version: int,
) -> TableMetadata:
    """Describe a new table with these columns, in this order."""
    columns = columns_of_schema(_with_types(schema, timestamp, symbols), timestamp=timestamp)
    by_lower_case: dict[str, str] = {}
    for name in schema.names:
        _check_name(name)
        other = by_lower_case.setdefault(name.lower(), name)
        if other != name:
            raise InvalidInputError(
                f"{name!r} and {other!r} differ by case alone, and are one name to QuestDB; rename one of them",
                kind="Schema",
                field=name,
            )
    return TableMetadata(
        interval=interval,
        designated_timestamp=schema.names.index(timestamp),
        table_id=table_id,
        metadata_version=metadata_version,
        wal_enabled=False,
        slots=tuple(
            MetadataSlot(
                name=column.name,
                type_code=column.type_code & ~DESIGNATED_BIT,
                flags=SYMBOL_CACHE_FLAG if column.tag is TypeTag.SYMBOL else 0,
                symbol_capacity=_SYMBOL_CAPACITY if column.tag is TypeTag.SYMBOL else 0,
            )
            for column in columns
        ),
    )


def row_schema_of(metadata: TableMetadata) -> pa.Schema:
    """Return the schema of a table's rows: columns in the order that users see, text as plain strings."""
    fields = []
    for column in table_columns_of_metadata(metadata):
        field = arrow_field(column.name, column.readable_type, text=PLAIN_TEXT)
        described: Any = {
            **(field.metadata or {}),
            FIELD_ID_KEY: str(column.id).encode(),
        }  # the stubs want str keys, too
        fields.append(field.with_metadata(described))
    return pa.schema(fields)


def timestamp_name(metadata: TableMetadata) -> str:
    """Return the name of the designated timestamp."""
    if metadata.designated_timestamp is None:
        raise InvalidInputError(
            "the table has no designated timestamp, so that rows have no partition", kind="NoTimestamp"
        )
    return metadata.slots[metadata.designated_timestamp].name


def check_same_columns(schema: pa.Schema, rows: pa.Schema, *, path: str) -> None:
    """Check that rows have exactly the columns of the table, in any order."""
    missing = [name for name in schema.names if name not in rows.names]
    unknown = [name for name in rows.names if name not in schema.names]
    if missing or unknown or len(rows.names) != len(schema.names):
        lacks = f" lack {few_names(missing)}" if missing else ""
        has = f"{' and' if missing else ''} have {few_names(unknown)}, which it does not" if unknown else ""
        raise InvalidInputError(
            f"the rows must have the columns of the table, each once ({few_names(schema.names)}), but they"
            f"{lacks}{has or ('' if missing else ' repeat some')}",
            kind="SchemaMismatch",
            path=path,
        )


def conformed(batch: pa.RecordBatch, schema: pa.Schema, *, timestamp: str) -> pa.RecordBatch:
    """Cast rows to the schema of the table."""
    arrays = [
        _conformed(_as_time(batch.column(field.name)) if field.name == timestamp else batch.column(field.name), field)
        for field in schema
    ]
    times = arrays[schema.names.index(timestamp)]
    if times.null_count:
        raise InvalidInputError(
            f"column {timestamp!r} has {times.null_count:,} nulls, but the designated timestamp is never null; fill them or"
            " drop their rows first",
            kind="NullValue",
            field=timestamp,
        )
    latest = compute.max(times.cast(pa.int64())).as_py()
    if times.type.unit == "us" and latest is not None and latest >= _YEAR_10000_US:
        raise InvalidInputError(
            f"column {timestamp!r} has the time {latest:,}, in microseconds since 1970, which is after the year 9999; are these"
            " nanoseconds?",
            kind="DoesNotFit",
            field=timestamp,
        )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_name(name: str) -> None:
    wrong = sorted(set(name) & _NOT_IN_NAMES)
    if not wrong and 0 < len(name) <= _LONGEST_NAME:
        return
    why = f"{wrong[0]!r} is not allowed in one" if wrong else f"one has 1 to {_LONGEST_NAME} characters"
    raise InvalidInputError(f"a table of QuestDB has no column {name!r}: {why}; rename it", kind="Schema", field=name)


def _with_types(schema: pa.Schema, timestamp: str, symbols: Collection[str]) -> pa.Schema:
    if isinstance(symbols, str):
        raise InvalidInputError(f"symbols is the text {symbols!r}; give a list of column names")
    unknown = sorted(set(symbols) - set(schema.names))
    if unknown:
        raise InvalidInputError(
            f"symbols names columns that the rows do not have: {few_names(unknown)}",
            kind="UnknownColumn",
            field=unknown[0],
        )
    return pa.schema([_with_type(field, timestamp, symbols) for field in schema])


def _with_type(field: pa.Field[Any], timestamp: str, symbols: Collection[str]) -> pa.Field[Any]:
    named = (field.metadata or {}).get(QUESTDB_TYPE_KEY)
    stated: dict[bytes | str, bytes | str] = {} if named is None else {QUESTDB_TYPE_KEY: named}
    if field.name in symbols:
        text = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if not (pa.types.is_string(text) or pa.types.is_large_string(text) or pa.types.is_string_view(text)):
            raise InvalidInputError(
                f"column {field.name!r} is {field.type}; only text becomes SYMBOL", kind="NotText", field=field.name
            )
        stated = {QUESTDB_TYPE_KEY: b"SYMBOL"}
    elif field.name == timestamp and pa.types.is_int64(field.type) and not stated:
        stated = {QUESTDB_TYPE_KEY: b"TIMESTAMP"}
    return field.with_metadata(stated)


def _as_time(array: Any) -> Any:
    """Interpret integers as microseconds, whatever the unit of the table is."""
    return array.cast(pa.timestamp("us", "UTC")) if pa.types.is_int64(array.type) else array


def _conformed(array: Any, field: pa.Field[Any]) -> Any:
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if array.type == field.type:
        return array
    type_name = (field.metadata or {}).get(QUESTDB_TYPE_KEY, b"").decode()
    if pa.types.is_boolean(field.type) and (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        # Arrow casts every number but zero to true.
        raise _does_not_fit(field, f"of Arrow type {array.type}", type_name, "numbers are no truth values")
    try:
        if type_name in _TYPES_OF_TEXT and array.type in _TEXT:
            return _from_text(array.cast(pa.string()), field, type_name)
        return exact_cast(array, field.type)
    except pa.ArrowException as error:
        raise _does_not_fit(field, f"of Arrow type {array.type}", type_name, str(error)) from error


def _from_text(text: Any, field: pa.Field[Any], type_name: str) -> Any:
    """Parse values from the text forms that Spark and most users write."""
    wanted = canonical_type(parse_type_name(type_name))
    values = values_from_text(text, wanted, ChunkLabel(path=None, row_group=0, columns=(field.name,)))
    is_wrong = compute.and_(compute.is_valid(text), compute.is_null(values))
    if wanted.tag is TypeTag.CHAR:
        values = compute.coalesce(values, 0).cast(values.type)  # QuestDB's null
        is_wrong = compute.coalesce(compute.greater(compute.utf8_length(text), 1), False)
    wrong = text.filter(is_wrong)
    if len(wrong):
        raise _does_not_fit(field, f"with the text {wrong[0].as_py()!r}", type_name, "it has not the form of one")
    return values.cast(field.type)


def _does_not_fit(field: pa.Field[Any], what: str, type_name: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"column {field.name!r} {what} cannot be stored as {type_name}: {why}", kind="DoesNotFit", field=field.name
    )
