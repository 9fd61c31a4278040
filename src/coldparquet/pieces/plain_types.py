"""Columns and predicates as data that JSON holds, and back: exact, and without parsing any SQL.

Values keep their kind: JSON tells true, 1 and 1.0 apart, and byte strings are written as ``{"bytes": "hex"}``. Columns and
types are lists of their fields in the order of their classes: names would be half of a small piece.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from coldparquet.errors import InternalError
from coldparquet.format.column_types import ArrowKind, ColumnType, Comparison, StatisticsTrust, TypeTag
from coldparquet.format.logical_types import LogicalKind, LogicalType
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.pieces.sections import damaged_piece
from coldparquet.plan.bind import (
    BoundAnd,
    BoundComparison,
    BoundField,
    BoundIn,
    BoundIsNull,
    BoundLiteral,
    BoundNot,
    BoundOr,
    BoundPredicate,
    ConstantUnlessNull,
)
from coldparquet.plan.predicate import Operator
from coldparquet.plan.projection import TableColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from _typeshed import DataclassInstance

    from coldparquet.plan.literals import DomainValue

T = TypeVar("T", bound="DataclassInstance")


def field_values(instance: DataclassInstance) -> list[Any]:
    """Return the values of a dataclass's fields in their order, without the defaults at the end."""
    known = fields(instance)
    values = [getattr(instance, field.name) for field in known]
    while values and values[-1] == known[len(values) - 1].default:
        values.pop()
    return values


def made_of(dataclass: type[T], values: Sequence[Any]) -> T:
    """Undo :func:`field_values`."""
    names = [field.name for field in fields(dataclass)][: len(values)]
    return dataclass(**dict(zip(names, values, strict=True)))


def plain_column(column: TableColumn, types: Mapping[ColumnType, int]) -> list[Any]:
    """Return a column of a readable type as plain data.

    Args:
        column: The column.
        types: Where each type is among those that are written.
    """
    return [column.index, column.name, column.id, types[column.readable_type]]


def column_of(plain: Sequence[Any], types: Sequence[ColumnType]) -> TableColumn:
    """Undo :func:`plain_column`. The ids of earlier types are gone: nobody looks for the column any more."""
    index, name, column_id, type_number = plain
    return TableColumn(index=index, name=name, id=column_id, type=types[type_number])


def plain_type(column_type: ColumnType) -> list[Any]:
    """Return the type of a column as plain data."""
    logical = column_type.parquet_logical
    return [
        int(column_type.tag),
        column_type.name,
        field_values(column_type.arrow),
        int(column_type.physical_type),
        column_type.fixed_byte_length,
        column_type.comparison.value,
        column_type.statistics.value,
        column_type.never_null,
        column_type.raw_array,
        None if logical is None else [logical.kind.value, *field_values(logical)[1:]],
        column_type.is_unified,
    ]


def type_of(plain: Sequence[Any]) -> ColumnType:
    """Undo :func:`plain_type`."""
    (
        tag,
        name,
        arrow,
        physical_type,
        fixed_byte_length,
        comparison,
        statistics,
        never_null,
        raw_array,
        logical,
        is_unified,
    ) = plain
    return ColumnType(
        tag=TypeTag(tag),
        name=name,
        arrow=made_of(ArrowKind, arrow),
        physical_type=PhysicalType(physical_type),
        fixed_byte_length=fixed_byte_length,
        comparison=Comparison(comparison),
        statistics=StatisticsTrust(statistics),
        never_null=never_null,
        raw_array=raw_array,
        parquet_logical=None if logical is None else made_of(LogicalType, [LogicalKind(logical[0]), *logical[1:]]),
        is_unified=is_unified,
    )


def plain_predicate(predicate: BoundPredicate) -> list[Any]:  # noqa: PLR0911 - one per kind
    """Return a predicate as plain data: its name, and what it is made of; fields by their index in the table."""
    match predicate:
        case BoundComparison(field=field, operator=operator, value=value):
            return ["compare", field.index, operator.value, _plain_value(value)]
        case BoundIn(field=field, values=values):
            return ["in", field.index, [_plain_value(value) for value in values]]
        case BoundIsNull(field=field):
            return ["is null", field.index]
        case ConstantUnlessNull(field=field, value=value):
            return ["constant unless null", field.index, value]
        case BoundLiteral(value=value):
            return ["literal", value]
        case BoundAnd(parts=parts):
            return ["and", [plain_predicate(part) for part in parts]]
        case BoundOr(parts=parts):
            return ["or", [plain_predicate(part) for part in parts]]
        case BoundNot(part=part):
            return ["not", plain_predicate(part)]
    raise InternalError(f"a piece cannot hold a predicate of kind {type(predicate).__name__}")


def predicate_of(plain: list[Any], columns: Mapping[int, TableColumn]) -> BoundPredicate:  # noqa: PLR0911 - one per kind
    """Undo :func:`plain_predicate`.

    Args:
        plain: What it returned.
        columns: By index in the table, the columns that the predicate looks at.
    """

    def field_of(index: int) -> BoundField:
        return BoundField(name=columns[index].name, index=index, type=columns[index].readable_type)

    match plain:
        case ["compare", index, operator, value]:
            return BoundComparison(field_of(index), Operator(operator), _value_of(value))
        case ["in", index, values]:
            return BoundIn(field_of(index), tuple(_value_of(value) for value in values))
        case ["is null", index]:
            return BoundIsNull(field_of(index))
        case ["constant unless null", index, bool(value)]:
            return ConstantUnlessNull(field_of(index), value)
        case ["literal", None | bool() as value]:
            return BoundLiteral(value)
        case ["and", list(parts)]:
            return BoundAnd(tuple(predicate_of(part, columns) for part in parts))
        case ["or", list(parts)]:
            return BoundOr(tuple(predicate_of(part, columns) for part in parts))
        case ["not", list(part)]:
            return BoundNot(predicate_of(part, columns))
    raise damaged_piece("there is no such kind of predicate")


def _plain_value(value: DomainValue) -> Any:
    return {"bytes": value.hex()} if isinstance(value, bytes) else value


def _value_of(plain: Any) -> DomainValue:
    value: DomainValue = bytes.fromhex(plain["bytes"]) if isinstance(plain, dict) else plain
    return value
