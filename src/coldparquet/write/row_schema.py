"""The columns of a table as rows are handed around while it is written: one Arrow type for each QuestDB type.

Rows come from many places: from a caller, from parts that tasks have written, from partitions that are there already. All of
them are brought to the same Arrow schema, whose field metadata names the QuestDB type and the writer index of each
column; :func:`coldparquet.write.write_partition` goes by these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coldparquet.decode.arrow_schema import PLAIN_TEXT, QUESTDB_TYPE_KEY, arrow_field
from coldparquet.decode.chunk_label import ChunkLabel
from coldparquet.decode.untyped_compute import compute
from coldparquet.decode.values_from_text import values_from_text
from coldparquet.errors import InvalidInputError
from coldparquet.format.canonical_types import canonical_type
from coldparquet.format.table_metadata import MetadataSlot, TableMetadata
from coldparquet.format.table_metadata_layout import SYMBOL_CACHE_FLAG
from coldparquet.format.type_codes import DESIGNATED_BIT, TypeTag, parse_type_name
from coldparquet.plan.projection import table_columns_of_metadata
from coldparquet.plan.wording import few_names
from coldparquet.write.exact_cast import exact_cast
from coldparquet.write.stored_columns import FIELD_ID_KEY, columns_of_schema

if TYPE_CHECKING:
    from collections.abc import Collection

    from coldparquet.format.partition_intervals import PartitionInterval

_SYMBOL_CAPACITY = 256
"""QuestDB's own default."""

_YEAR_10000_US = 253_402_300_800_000_000

_TYPES_OF_TEXT = frozenset({"UUID", "IPv4", "CHAR"})
"""Types whose values may be given as text, as in ``11111111-2222-3333-4444-555555555555``, ``10.0.0.1`` and ``x``."""

_NOT_IN_NAMES = frozenset("?.,'\"\\/:()+-*%~\x7f\ufeff") | frozenset(map(chr, range(16)))
"""What QuestDB allows in no name of a column, because names become names of files and are written into SQL."""

_LONGEST_NAME = 127

_TEXT = frozenset({pa.string(), pa.large_string(), pa.string_view()})


def new_table_metadata(  # noqa: PLR0913 - what can be told is told by name
    schema: pa.Schema,
    *,
    timestamp: str,
    interval: PartitionInterval,
    symbols: Collection[str],
    table_id: int,
    metadata_version: int,
) -> TableMetadata:
    """Describe a new table with these columns, in this order.

    Args:
        schema: Columns of the rows. The type of each is what its field metadata ``questdb.type`` names, else the one that
            goes with its Arrow type; a designated timestamp of 64-bit integers counts microseconds since 1970.
        timestamp: The designated timestamp.
        interval: How the table is partitioned.
        symbols: Text columns that become SYMBOL.
        table_id: Number of the table, which tells it from others.
        metadata_version: Number of this description.

    Raises:
        InvalidInputError: A column has no QuestDB type (kind ``UnknownType``), the timestamp is none (``NotATimestamp``,
            ``UnknownColumn``), ``symbols`` names something else than text columns, or names repeat, perhaps in other letters,
            or are none that QuestDB allows (``Schema``).
    """
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
    """Return the schema of rows of a table: its columns in the order that people see, text as plain strings.

    Raises:
        UnsupportedError: A column has a type that this version does not know.
    """
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
    """Return the name of the designated timestamp.

    Raises:
        InvalidInputError: The table has none (kind ``NoTimestamp``), and so no partitions by time.
    """
    if metadata.designated_timestamp is None:
        raise InvalidInputError(
            "the table has no designated timestamp, so that rows have no partition", kind="NoTimestamp"
        )
    return metadata.slots[metadata.designated_timestamp].name


def check_same_columns(schema: pa.Schema, rows: pa.Schema, *, path: str) -> None:
    """Make sure that rows have just the columns of the table, in whatever order.

    Raises:
        InvalidInputError: They do not (kind ``SchemaMismatch``).
    """
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
    """Bring rows to the schema of the table.

    Args:
        batch: Columns of the names of ``schema``, in any order.
        schema: From :func:`row_schema_of`.
        timestamp: The designated timestamp.

    Raises:
        InvalidInputError: A value does not fit the type of its column, or a designated timestamp lies after the year 9999,
            so that no directory can be named after it (kind ``DoesNotFit``); or one is null (``NullValue``).
    """
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
    """Take integers for microseconds, whatever the unit of the table is."""
    return array.cast(pa.timestamp("us", "UTC")) if pa.types.is_int64(array.type) else array


def _conformed(array: Any, field: pa.Field[Any]) -> Any:
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if array.type == field.type:
        return array
    type_name = (field.metadata or {}).get(QUESTDB_TYPE_KEY, b"").decode()
    if pa.types.is_boolean(field.type) and (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        # Arrow takes every number but zero for true.
        raise _does_not_fit(field, f"of Arrow type {array.type}", type_name, "numbers are no truth values")
    try:
        if type_name in _TYPES_OF_TEXT and array.type in _TEXT:
            return _from_text(array.cast(pa.string()), field, type_name)
        return exact_cast(array, field.type)
    except pa.ArrowException as error:
        raise _does_not_fit(field, f"of Arrow type {array.type}", type_name, str(error)) from error


def _from_text(text: Any, field: pa.Field[Any], type_name: str) -> Any:
    """Read values that Spark and most people write as text."""
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
