"""Converts reads, pages, symbols, columns and predicates to sections and plain data, and back exactly, without SQL.

Columns and predicates become JSON. Values keep their kind: JSON distinguishes true, 1 and 1.0, and byte strings are
written as ``{"bytes": "hex"}``. Columns and types are lists of their fields in the order of their classes: names would
take half of a small piece.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from coldparquet.errors import InternalError
from coldparquet.format.pages import PageBounds, PartitionPages
from coldparquet.format.sidecar_layout import PhysicalType
from coldparquet.format.types import (
    ArrowKind,
    ColumnType,
    Comparison,
    LogicalKind,
    LogicalType,
    StatisticsTrust,
    TypeTag,
)
from coldparquet.pieces.checks import checked_strings
from coldparquet.pieces.frame import damaged_piece, split
from coldparquet.plan.bind import (
    BoundComparison,
    BoundField,
    BoundIn,
    BoundIsNull,
    BoundPredicate,
    ConstantUnlessNull,
)
from coldparquet.plan.columns import TableColumn
from coldparquet.plan.model import RowGroupRead, RowSelection
from coldparquet.plan.native import NativeColumn, NativeFile, NativeRead, NativeSymbol
from coldparquet.plan.predicate import And, Literal, Not, Operator, Or

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from _typeshed import DataclassInstance

    from coldparquet.format.table_file_text import Utf8Strings
    from coldparquet.pieces.frame import SectionReader, SectionWriter
    from coldparquet.plan.bounds import IntArray
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
    """Return a column of a readable type as plain data."""
    return [column.index, column.name, column.id, types[column.readable_type]]


def column_of(plain: Sequence[Any], types: Sequence[ColumnType]) -> TableColumn:
    """Undo :func:`plain_column`. The ids of earlier types are gone: the column is already found."""
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
    """Return a predicate as plain data: its name, and its parts; fields by their index in the table."""
    match predicate:
        case BoundComparison(field=field, operator=operator, value=value):
            return ["compare", field.index, operator.value, _plain_value(value)]
        case BoundIn(field=field, values=values):
            return ["in", field.index, [_plain_value(value) for value in values]]
        case BoundIsNull(field=field):
            return ["is null", field.index]
        case ConstantUnlessNull(field=field, value=value):
            return ["constant unless null", field.index, value]
        case Literal(value=value):
            return ["literal", value]
        case And(parts=parts):
            return ["and", [plain_predicate(part) for part in parts]]
        case Or(parts=parts):
            return ["or", [plain_predicate(part) for part in parts]]
        case Not(part=part):
            return ["not", plain_predicate(part)]
    raise InternalError(f"a piece cannot hold a predicate of kind {type(predicate).__name__}")


def predicate_of(plain: list[Any], columns: Mapping[int, TableColumn]) -> BoundPredicate:  # noqa: PLR0911 - one per kind
    """Undo :func:`plain_predicate`."""

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
            return Literal(value)
        case ["and", list(parts)]:
            return And(tuple(predicate_of(part, columns) for part in parts))
        case ["or", list(parts)]:
            return Or(tuple(predicate_of(part, columns) for part in parts))
        case ["not", list(part)]:
            return Not(predicate_of(part, columns))
    raise damaged_piece("there is no such kind of predicate")


def _plain_value(value: DomainValue) -> Any:
    return {"bytes": value.hex()} if isinstance(value, bytes) else value


def _value_of(plain: Any) -> DomainValue:
    value: DomainValue = bytes.fromhex(plain["bytes"]) if isinstance(plain, dict) else plain
    return value


def plain_native_column(column: NativeColumn) -> dict[str, Any]:
    """Return a column of a native partition as plain data."""
    symbol = column.symbol
    return {
        "index": column.index,
        "name": column.name,
        "type": plain_type(column.type),
        "name_txn": column.name_txn,
        "top": column.top,
        "symbol": None if symbol is None else [symbol.count, symbol.name_txn],
    }


def native_column_of(plain: Mapping[str, Any]) -> NativeColumn:
    """Undo :func:`plain_native_column`."""
    symbol = plain["symbol"]
    return NativeColumn(
        index=plain["index"],
        name=plain["name"],
        type=type_of(plain["type"]),
        name_txn=plain["name_txn"],
        top=plain["top"],
        symbol=None if symbol is None else NativeSymbol(count=symbol[0], name_txn=symbol[1]),
    )


def plain_files(reads: Sequence[NativeRead]) -> list[list[Any]]:
    """Return the files of a partition's reads as plain data."""
    return [[file.column, file.role, file.path] for file in reads[0].files]


def add_native_reads(sections: SectionWriter, reads: Sequence[NativeRead]) -> None:
    """Write the reads of one partition, except its files and the partition itself."""
    sections.add_numbers([read.row_group for read in reads])
    sections.add_numbers([read.first_row for read in reads])
    sections.add_numbers([read.row_count for read in reads])
    sections.add_numbers([int(read.all_rows_match) for read in reads])
    sections.add_numbers([len(read.made_columns) for read in reads])
    sections.add_numbers([column for read in reads for column in read.made_columns])
    # File by file, so that neighbours are similar.
    sections.add_numbers(np.stack([read.starts for read in reads], axis=1).ravel())
    sections.add_numbers(np.stack([read.stops - read.starts for read in reads], axis=1).ravel())


def next_native_reads(
    sections: SectionReader, *, files: Sequence[Sequence[Any]], partition_index: int
) -> tuple[NativeRead, ...]:
    """Undo :func:`add_native_reads`."""
    shared_files = tuple(NativeFile(column, role, path) for column, role, path in files)
    numbers, first_rows, row_counts, matches = (sections.numbers().tolist() for _ in range(4))
    made_columns = list(sections.lists())
    starts = sections.numbers().reshape(len(shared_files), len(numbers))
    stops = starts + sections.numbers().reshape(len(shared_files), len(numbers))
    return tuple(
        NativeRead(
            partition_index=partition_index,
            row_group=numbers[position],
            first_row=first_rows[position],
            row_count=row_counts[position],
            files=shared_files,
            starts=np.ascontiguousarray(starts[:, position]),
            stops=np.ascontiguousarray(stops[:, position]),
            made_columns=tuple(made_columns[position].tolist()),
            all_rows_match=bool(matches[position]),
        )
        for position in range(len(numbers))
    )


def add_strings(sections: SectionWriter, strings: Utf8Strings) -> None:
    """Write the symbols of a column."""
    sections.add_numbers(strings.offsets.astype(np.int64))
    sections.add_bytes(strings.utf8)


def next_strings(sections: SectionReader) -> Utf8Strings:
    """Undo :func:`add_strings`."""
    offsets = sections.numbers()
    return checked_strings(bytes(sections.bytes()), offsets)


_ALL_ROWS_MATCH, _HAS_DEFERRED = 1, 2
"""Bits of a read's flags. A deferred read follows its own."""

_ALL_ROWS = -1
"""Replaces the number of ranges of a row selection: all rows are selected."""


def add_reads(sections: SectionWriter, reads: Sequence[RowGroupRead]) -> None:
    """Write the reads of all partitions of a piece: few long arrays cost less than many short ones."""
    flat = list(_with_deferred(reads))
    selections = [selection for read in flat for selection in (read.selection, *read.column_rows)]
    ranges = [selection for selection in selections if selection is not None]
    sections.add_numbers([read.partition_index for read in flat])
    sections.add_numbers([read.row_group for read in flat])
    sections.add_numbers([read.row_groups_left_out for read in flat])
    sections.add_numbers([read.row_group_rows for read in flat])
    sections.add_numbers([_flags(read) for read in flat])
    sections.add_numbers([len(read.columns) for read in flat])
    sections.add_numbers([column for read in flat for column in read.columns])
    sections.add_numbers([len(read.made_columns) for read in flat])
    sections.add_numbers([column for read in flat for column in read.made_columns])
    sections.add_numbers([len(read.piece_columns) for read in flat])
    sections.add_numbers(_joined(read.piece_columns for read in flat))
    _add_ranges(sections, _joined(read.piece_starts for read in flat), _joined(read.piece_stops for read in flat))
    sections.add_numbers([_ALL_ROWS if selection is None else len(selection.starts) for selection in selections])
    sections.add_numbers(_joined(selection.starts for selection in ranges))
    sections.add_numbers(_joined(selection.stops for selection in ranges))


def next_reads(sections: SectionReader) -> list[RowGroupRead]:
    """Undo :func:`add_reads`."""
    owners, row_groups, left_out, row_counts, flags = (sections.numbers().tolist() for _ in range(5))
    columns = [tuple(found.tolist()) for found in sections.lists()]
    made_columns = [tuple(found.tolist()) for found in sections.lists()]
    piece_counts = sections.numbers()
    piece_columns = split(sections.numbers(), piece_counts)
    piece_starts, piece_stops = (split(edges, piece_counts) for edges in _next_ranges(sections))
    selections = _selections(sections.numbers(), sections.numbers(), sections.numbers())
    reads: list[RowGroupRead] = []
    # Backwards, so that a deferred read is made before its owner.
    for number in reversed(range(len(row_groups))):
        of_read = [selections.pop() for _ in range(1 + len(columns[number]))][::-1]
        read = RowGroupRead(
            partition_index=owners[number],
            row_group=row_groups[number],
            row_group_rows=row_counts[number],
            selection=of_read[0],
            columns=columns[number],
            column_rows=tuple(of_read[1:]),
            piece_columns=piece_columns[number],
            piece_starts=piece_starts[number],
            piece_stops=piece_stops[number],
            made_columns=made_columns[number],
            all_rows_match=bool(flags[number] & _ALL_ROWS_MATCH),
            deferred=reads.pop() if flags[number] & _HAS_DEFERRED else None,
            row_groups_left_out=left_out[number],
        )
        reads.append(read)
    reads.reverse()
    return reads


def add_pages(sections: SectionWriter, pages: PartitionPages) -> None:
    """Write the places of a partition's pages, without statistics."""
    sections.add_numbers(np.diff(pages.first_page))
    sections.add_numbers(pages.first_rows)
    _add_ranges(sections, pages.starts, pages.stops)
    _add_ranges(sections, pages.dictionary_starts, pages.dictionary_stops)


def next_pages(sections: SectionReader, *, row_group_count: int, column_count: int) -> PartitionPages:
    """Undo :func:`add_pages`."""
    counts, first_rows = sections.numbers(), sections.numbers()
    starts, stops = _next_ranges(sections)
    dictionary_starts, dictionary_stops = _next_ranges(sections)
    return PartitionPages(
        row_group_count=row_group_count,
        column_count=column_count,
        first_page=_edges(counts),
        first_rows=first_rows,
        starts=starts,
        stops=stops,
        dictionary_starts=dictionary_starts,
        dictionary_stops=dictionary_stops,
        null_counts=np.full(len(starts), -1, dtype=np.int64),
        lower=_no_bounds(len(starts)),
        upper=_no_bounds(len(starts)),
    )


def reduced_pages(
    pages: PartitionPages, *, row_groups: IntArray, columns: Sequence[int], wanted: Collection[int]
) -> PartitionPages:
    """Keep the pages of some columns and row groups, renumbered as in a reduced sidecar, without bounds."""
    of_columns = np.array(columns, dtype=np.int64)
    chunks = (row_groups[:, None] * pages.column_count + of_columns).ravel()
    counts = np.diff(pages.first_page)[chunks]
    counts[~np.tile(np.isin(of_columns, list(wanted)), len(row_groups))] = 0
    first_page = _edges(counts)
    kept = np.repeat(pages.first_page[chunks] - first_page[:-1], counts) + np.arange(first_page[-1])
    return PartitionPages(
        row_group_count=len(row_groups),
        column_count=len(columns),
        first_page=first_page,
        first_rows=pages.first_rows[kept],
        starts=pages.starts[kept],
        stops=pages.stops[kept],
        dictionary_starts=pages.dictionary_starts[chunks],
        dictionary_stops=pages.dictionary_stops[chunks],
        null_counts=pages.null_counts[kept],
        lower=_no_bounds(len(kept)),
        upper=_no_bounds(len(kept)),
    )


def _add_ranges(sections: SectionWriter, starts: IntArray, stops: IntArray) -> None:
    """Write ranges: the distance of each from the end of the previous one, mostly 0, and its length."""
    sections.add_numbers(np.diff(stops, prepend=0) - (stops - starts))
    sections.add_numbers(stops - starts)


def _next_ranges(sections: SectionReader) -> tuple[IntArray, IntArray]:
    """Undo :func:`_add_ranges`."""
    gaps, lengths = sections.numbers(), sections.numbers()
    stops = np.cumsum(gaps + lengths)
    return stops - lengths, stops


def _with_deferred(reads: Iterable[RowGroupRead]) -> Iterator[RowGroupRead]:
    for read in reads:
        yield read
        if read.deferred is not None:
            yield read.deferred


def _flags(read: RowGroupRead) -> int:
    return _ALL_ROWS_MATCH * read.all_rows_match | _HAS_DEFERRED * (read.deferred is not None)


def _joined(arrays: Iterable[IntArray]) -> IntArray:
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])


def _edges(counts: IntArray) -> IntArray:
    """Return the begin of each list, and the end of the last one."""
    edges: IntArray = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    return edges


def _selections(counts: IntArray, starts: IntArray, stops: IntArray) -> list[RowSelection | None]:
    lengths = np.maximum(counts, 0)
    ranges = zip(counts.tolist(), split(starts, lengths), split(stops, lengths), strict=True)
    return [
        None if count == _ALL_ROWS else RowSelection(starts=of_starts, stops=of_stops)
        for count, of_starts, of_stops in ranges
    ]


def _no_bounds(page_count: int) -> PageBounds:
    return PageBounds(
        offsets=np.zeros(page_count, dtype=np.int64),
        lengths=np.full(page_count, -1, dtype=np.int64),
        values=np.empty(0, dtype=np.uint8),
    )
