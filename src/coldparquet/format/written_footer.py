"""What a Parquet library cannot be told about columns: put into the footer that it wrote, before the footer is stored.

All of these footers describe flat columns, so that the schema is its root and one element per column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import FormatError, InternalError
from coldparquet.format.parquet_thrift import SchemaElement, Statistics
from coldparquet.format.thrift_fields import (
    FieldType,
    RawField,
    encode_fields,
    encode_structure_list,
    parse_fields,
    parse_structure_list,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SCHEMA = 2
_ROW_GROUPS = 4
_ROW_GROUP_COLUMNS = 1
_CHUNK_META_DATA = 3
_META_DATA_STATISTICS = 12
"""Field numbers of parquet.thrift."""


def with_decimal_precisions(footer: bytes, precisions: Mapping[int, int]) -> bytes:
    """State how many digits decimals have that were written with all digits of their width.

    Args:
        footer: Thrift bytes.
        precisions: Digits by index of the column.
    """

    def state(elements: bytes) -> bytes:
        schema = parse_structure_list(elements)
        for column, precision in precisions.items():
            element = SchemaElement.decode(schema[column + 1], path=None, offset=0)
            element.precision = precision
            if element.logicalType is not None and element.logicalType.DECIMAL is not None:
                element.logicalType.DECIMAL.precision = precision
            schema[column + 1] = element.encode()
        return encode_structure_list(schema)

    return _with_value(footer, _SCHEMA, state)


def with_schema_of(footer: bytes, other: bytes) -> bytes:
    """Give a footer the schema of another one: other names, annotations and field ids for columns that are stored alike.

    Raises:
        InternalError: They are not stored alike.
    """
    schema = next(field.value for field in parse_fields(other) if field.number == _SCHEMA)

    def replace(elements: bytes) -> bytes:
        if _storage(elements) != _storage(schema):
            raise InternalError("the new row groups are not stored as the schema of the file says", field="schema")
        return schema

    return _with_value(footer, _SCHEMA, replace)


def with_null_counts(footer: bytes, null_counts: Sequence[Mapping[int, int]]) -> bytes:
    """State the null counts of chunks that were written without statistics.

    Args:
        footer: Thrift bytes.
        null_counts: For each row group, the count by index of the column.
    """

    def state(elements: bytes) -> bytes:
        row_groups = parse_structure_list(elements)
        pairs = zip(row_groups, null_counts, strict=True)
        return encode_structure_list([_with_row_group_counts(row_group, counts) for row_group, counts in pairs])

    return _with_value(footer, _ROW_GROUPS, state)


def _storage(elements: bytes) -> list[tuple[int | None, int, int | None]]:
    """Return what each element below the root says about bytes: physical type, length and repetition."""
    schema = [SchemaElement.decode(element, path=None, offset=0) for element in parse_structure_list(elements)[1:]]
    return [(element.type, element.type_length or 0, element.repetition_type) for element in schema]


def _with_row_group_counts(row_group: bytes, counts: Mapping[int, int]) -> bytes:
    def state(elements: bytes) -> bytes:
        chunks = parse_structure_list(elements)
        for column, count in counts.items():
            chunks[column] = _with_null_count(chunks[column], count)
        return encode_structure_list(chunks)

    return _with_value(row_group, _ROW_GROUP_COLUMNS, state)


def _with_null_count(chunk: bytes, count: int) -> bytes:
    statistics = RawField(_META_DATA_STATISTICS, FieldType.STRUCT, Statistics(null_count=count).encode())

    def state(meta_data: bytes) -> bytes:
        others = [field for field in parse_fields(meta_data) if field.number != statistics.number]
        return encode_fields(sorted([*others, statistics], key=lambda field: field.number))

    return _with_value(chunk, _CHUNK_META_DATA, state)


def _with_value(structure: bytes, number: int, change: Callable[[bytes], bytes]) -> bytes:
    """Change the value of one field, which has to be there, of a structure."""
    fields = parse_fields(structure)
    if number not in {field.number for field in fields}:
        raise FormatError(f"field {number} of the structure is missing", kind="InvalidThrift", field=str(number))
    return encode_fields(
        RawField(field.number, field.type, change(field.value)) if field.number == number else field for field in fields
    )
