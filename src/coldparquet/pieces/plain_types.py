"""Columns and predicates as data that JSON holds, and back: exact, and without parsing any SQL.

Values keep their kind: JSON tells true, 1 and 1.0 apart, and byte strings are written as ``{"bytes": "hex"}``.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

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
    from collections.abc import Mapping

    from coldparquet.plan.literals import DomainValue


def plain_column(column: TableColumn) -> dict[str, Any]:
    """Return a column of a readable type as plain data."""
    return {"index": column.index, "name": column.name, "id": column.id, "type": plain_type(column.readable_type)}


def column_of(plain: Mapping[str, Any]) -> TableColumn:
    """Undo :func:`plain_column`. The ids of earlier types are gone: nobody looks for the column any more."""
    return TableColumn(index=plain["index"], name=plain["name"], id=plain["id"], type=type_of(plain["type"]))


def plain_type(column_type: ColumnType) -> dict[str, Any]:
    """Return the type of a column as plain data."""
    logical = column_type.parquet_logical
    return {
        "tag": int(column_type.tag),
        "name": column_type.name,
        "arrow": asdict(column_type.arrow),
        "physical_type": int(column_type.physical_type),
        "fixed_byte_length": column_type.fixed_byte_length,
        "comparison": column_type.comparison.value,
        "statistics": column_type.statistics.value,
        "never_null": column_type.never_null,
        "raw_array": column_type.raw_array,
        "parquet_logical": None if logical is None else {**asdict(logical), "kind": logical.kind.value},
    }


def type_of(plain: Mapping[str, Any]) -> ColumnType:
    """Undo :func:`plain_type`."""
    logical = plain["parquet_logical"]
    return ColumnType(
        tag=TypeTag(plain["tag"]),
        name=plain["name"],
        arrow=ArrowKind(**plain["arrow"]),
        physical_type=PhysicalType(plain["physical_type"]),
        fixed_byte_length=plain["fixed_byte_length"],
        comparison=Comparison(plain["comparison"]),
        statistics=StatisticsTrust(plain["statistics"]),
        never_null=plain["never_null"],
        raw_array=plain["raw_array"],
        parquet_logical=None if logical is None else LogicalType(**{**logical, "kind": LogicalKind(logical["kind"])}),
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
