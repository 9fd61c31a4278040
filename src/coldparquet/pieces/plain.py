"""Converts reads, pages, symbols, columns and predicates to sections and plain data, and back exactly, without SQL.

Columns and predicates become JSON. Values keep their kind: JSON distinguishes true, 1 and 1.0, and byte strings are
written as ``{"bytes": "hex"}``. Columns and types are lists of their fields in the order of their classes: names would
take half of a small piece.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from coldparquet.errors import InternalError, UnsupportedError
from coldparquet.format.pages import PageBounds, PartitionPages
from coldparquet.format.parquet_schema import MAX_LEVEL
from coldparquet.format.sidecar_layout import PhysicalType, Repetition
from coldparquet.format.types import (
    ArrowKind,
    ColumnType,
    LogicalKind,
    LogicalType,
    StatisticsTrust,
    TypeTag,
    ValueOrder,
)
from coldparquet.pieces.checks import checked_strings
from coldparquet.pieces.frame import damaged_piece, split
from coldparquet.plan.bind import (
    BoundComparison,
    BoundField,
    BoundIn,
    BoundIsNull,
    BoundLike,
    BoundPredicate,
    ConstantUnlessNull,
)
from coldparquet.plan.columns import TableColumn
from coldparquet.plan.model import CHUNK, Read, StoredColumn
from coldparquet.plan.predicate import And, Literal, Not, Operator, Or
from coldparquet.plan.selection import RowSelection
from coldparquet.records import Record, field_defaults, field_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from coldparquet.format.binary import Utf8Strings
    from coldparquet.pieces.frame import SectionReader, SectionWriter
    from coldparquet.plan.bounds import BoolArray, IntArray
    from coldparquet.plan.literals import DomainValue
    from coldparquet.plan.model import StoredData


def field_values(record: Record) -> list[Any]:
    """Return the values of a record's fields in their order, without the defaults at the end."""
    values = {name: getattr(record, name) for name in field_names(type(record))}
    defaults = field_defaults(type(record))
    while values and (last := next(reversed(values))) in defaults and values[last] == defaults[last]:
        del values[last]
    return list(values.values())


def made_of(record_class: type[Record], values: Sequence[Any]) -> Record:
    """Undo :func:`field_values`."""
    names = field_names(record_class)[: len(values)]
    return record_class(**dict(zip(names, values, strict=True)))


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
        comparison=ValueOrder(comparison),
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
        case BoundLike(field=field, pattern=pattern):
            return ["like", field.index, pattern]
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


def predicate_of(  # noqa: C901, PLR0911 - one per kind
    plain: list[Any], columns: Mapping[int, TableColumn]
) -> BoundPredicate:
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
        case ["like", index, str(pattern)]:
            return BoundLike(field_of(index), pattern)
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


def plain_stored(column: StoredColumn) -> list[Any]:
    """Return a column of a partition as plain data; its type is told by what it follows from."""
    leaf = column.leaf
    if leaf is None:
        return [column.name, column.top]
    physical_type, repetition = int(leaf.physical_type), int(leaf.repetition)
    levels = leaf.max_rep_level, leaf.max_def_level
    return [
        column.name,
        column.type_code,
        physical_type,
        leaf.fixed_byte_length,
        repetition,
        *levels,
        column.annotation,
    ]


def stored_of(plain: Sequence[Any], number: int, columns: Mapping[int, TableColumn]) -> StoredColumn:
    """Undo :func:`plain_stored`, given the column's number and those of the table."""
    match plain:
        case [str(name), int() | None as top]:
            return StoredColumn(name=name, type=columns[number].readable_type, top=top)
        case [
            str(name),
            int(type_code),
            physical_type,
            int(fixed_byte_length),
            repetition,
            int(rep),
            int(def_),
            annotation,
        ]:
            if not (0 <= rep <= MAX_LEVEL and 0 <= def_ <= MAX_LEVEL and 0 <= fixed_byte_length < 1 << 31):
                raise damaged_piece("a column is nested too deep, or too wide")
            try:
                return StoredColumn.in_parquet(
                    number,
                    name=name,
                    type_code=type_code,
                    physical_type=PhysicalType(physical_type),
                    fixed_byte_length=fixed_byte_length,
                    repetition=Repetition(repetition),
                    max_rep_level=rep,
                    max_def_level=def_,
                    annotation=annotation,
                )
            except UnsupportedError as error:  # such a column is never read, so no piece has it
                raise damaged_piece(f"a stored column has an impossible type: {error.message}") from error
    raise damaged_piece("a stored column has other fields")


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

_NULL = -1
"""Replaces the length of a made value."""


def add_reads(sections: SectionWriter, reads: Sequence[Read]) -> None:
    """Write the reads of a piece, except what those of a partition share: few long arrays cost less than many short."""
    flat = list(_with_deferred(reads))
    selections = [selection for read in flat for selection in (read.selection, *read.column_rows)]
    ranges = [selection for selection in selections if selection is not None]
    made_values = [value for read in flat for value in read.made_values]
    sections.add_numbers([read.partition_index for read in flat])
    sections.add_numbers([read.row_group for read in flat])
    sections.add_numbers([read.row_group_rows for read in flat])
    sections.add_numbers([read.first_row for read in flat])
    sections.add_numbers([_flags(read) for read in flat])
    sections.add_numbers([len(read.columns) for read in flat])
    sections.add_numbers([column for read in flat for column in read.columns])
    sections.add_numbers([len(read.made_columns) for read in flat])
    sections.add_numbers([column for read in flat for column in read.made_columns])
    sections.add_numbers([_NULL if value is None else len(value) for value in made_values])
    sections.add_bytes(b"".join(value for value in made_values if value is not None))
    sections.add_numbers([len(read.piece_columns) for read in flat])
    sections.add_numbers(_joined(read.piece_columns for read in flat))
    sections.add_numbers(_joined(read.piece_files for read in flat if read.piece_files is not None))
    _add_ranges(sections, _joined(read.piece_starts for read in flat), _joined(read.piece_stops for read in flat))
    _add_chunks(sections, [read for read in flat if read.piece_files is None])
    sections.add_numbers([_ALL_ROWS if selection is None else len(selection.starts) for selection in selections])
    sections.add_numbers(_joined(selection.starts for selection in ranges))
    sections.add_numbers(_joined(selection.stops for selection in ranges))


def next_reads(sections: SectionReader, data: Sequence[StoredData]) -> tuple[Read, ...]:
    """Undo :func:`add_reads`, given what the reads of each partition share."""
    owners, row_groups, row_counts, first_rows, flags = (sections.numbers().tolist() for _ in range(5))
    columns = [tuple(found.tolist()) for found in sections.lists()]
    made_columns = [tuple(found.tolist()) for found in sections.lists()]
    made_values = _next_made_values(sections, made_columns)
    piece_counts = sections.numbers()
    piece_columns = split(sections.numbers(), piece_counts)
    if min(owners, default=0) < 0:
        raise damaged_piece("a read has no partition")
    of_data = [data[owner] for owner in owners]
    is_native = np.array([found.decoder == "native" for found in of_data], dtype=np.bool_)
    piece_files = split(sections.numbers(), np.where(is_native, piece_counts, 0))
    piece_starts, piece_stops = (split(edges, piece_counts) for edges in _next_ranges(sections))
    chunks = _next_chunks(sections, columns, row_counts, is_native)
    selections = _selections(sections.numbers(), sections.numbers(), sections.numbers())
    reads: list[Read] = []
    # Backwards, so that a deferred read is made before its owner.
    for number in reversed(range(len(row_groups))):
        of_read = [selections.pop() for _ in range(1 + len(columns[number]))][::-1]
        read = Read(
            partition_index=owners[number],
            data=of_data[number],
            row_group=row_groups[number],
            row_group_rows=row_counts[number],
            first_row=first_rows[number],
            selection=of_read[0],
            columns=columns[number],
            column_rows=tuple(of_read[1:]),
            chunks=chunks[number],
            piece_columns=piece_columns[number],
            piece_starts=piece_starts[number],
            piece_stops=piece_stops[number],
            piece_files=piece_files[number] if is_native[number] else None,
            made_columns=made_columns[number],
            made_values=made_values[number],
            all_rows_match=bool(flags[number] & _ALL_ROWS_MATCH),
            deferred=reads.pop() if flags[number] & _HAS_DEFERRED else None,
        )
        reads.append(read)
    return tuple(reversed(reads))


def _add_chunks(sections: SectionWriter, reads: Sequence[Read]) -> None:
    """Write the chunks column by column, so that neighbours are similar."""
    chunks = np.concatenate([np.empty(0, CHUNK), *(read.chunks for read in reads)])
    row_counts = np.repeat([read.row_group_rows for read in reads], [len(read.columns) for read in reads])
    order = np.argsort([column for read in reads for column in read.columns], kind="stable")
    sections.add_numbers(chunks["codec"][order])
    sections.add_numbers(chunks["encodings"][order])
    sections.add_numbers((chunks["value_count"] - row_counts)[order])
    sections.add_numbers(chunks["decoded_bytes"][order])


def _next_chunks(
    sections: SectionReader, columns: Sequence[tuple[int, ...]], row_counts: Sequence[int], is_native: BoolArray
) -> list[npt.NDArray[Any]]:
    """Undo :func:`_add_chunks`, for each read."""
    counts = np.where(is_native, 0, [len(of_read) for of_read in columns])
    flat = [column for of_read, none in zip(columns, is_native.tolist(), strict=True) if not none for column in of_read]
    order = np.argsort(np.array(flat, dtype=np.int64), kind="stable")
    codecs, encodings, value_counts, decoded_bytes = (sections.numbers() for _ in range(4))
    for codes in (codecs, encodings):
        if codes.min(initial=0) < 0 or codes.max(initial=0) > np.iinfo(np.uint8).max:
            raise damaged_piece("a chunk has no such codec or encodings")
    chunks = np.empty(len(order), CHUNK)
    chunks["codec"][order], chunks["encodings"][order] = codecs, encodings
    chunks["value_count"][order] = value_counts
    chunks["value_count"] += np.repeat(np.array(row_counts, dtype=np.int64), counts)
    chunks["decoded_bytes"][order] = decoded_bytes
    return split(chunks, counts)


def _next_made_values(
    sections: SectionReader, made_columns: Sequence[tuple[int, ...]]
) -> list[tuple[bytes | None, ...]]:
    lengths, content = sections.numbers(), bytes(sections.bytes())
    filled = np.maximum(lengths, 0)
    stops = np.cumsum(filled)
    if len(lengths) != sum(map(len, made_columns)) or (stops[-1] if len(stops) else 0) != len(content):
        raise damaged_piece("its made values do not fill their bytes")
    values = [
        None if length == _NULL else content[stop - length : stop]
        for length, stop in zip(lengths.tolist(), stops.tolist(), strict=True)
    ]
    edges = np.cumsum([0, *map(len, made_columns)]).tolist()
    return [tuple(values[start:stop]) for start, stop in pairwise(edges)]


def add_pages(sections: SectionWriter, pages: PartitionPages) -> list[int]:
    """Write the places of a partition's pages, without statistics; return the numbers of their row groups and columns."""
    sections.add_numbers(np.diff(pages.first_page))
    sections.add_numbers(pages.first_rows)
    _add_ranges(sections, pages.starts, pages.stops)
    _add_ranges(sections, pages.dictionary_starts, pages.dictionary_stops)
    return [pages.row_group_count, pages.column_count, pages.first_row_group]


def next_pages(sections: SectionReader, plain: Sequence[int]) -> PartitionPages:
    """Undo :func:`add_pages`, given the numbers that it returned."""
    row_group_count, column_count, first_row_group = plain
    counts, first_rows = sections.numbers(), sections.numbers()
    starts, stops = _next_ranges(sections)
    dictionary_starts, dictionary_stops = _next_ranges(sections)
    return PartitionPages(
        row_group_count=row_group_count,
        column_count=column_count,
        first_row_group=first_row_group,
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


def pages_of_reads(pages: PartitionPages, reads: Sequence[Read]) -> PartitionPages | None:
    """Keep the pages of the deferred columns of some reads, in table order, without bounds; None if none is deferred."""
    deferred = [read.deferred for read in reads if read.deferred is not None]
    if not deferred:
        return None
    first, stop = deferred[0].row_group, deferred[-1].row_group + 1
    chunks = slice(
        (first - pages.first_row_group) * pages.column_count, (stop - pages.first_row_group) * pages.column_count
    )
    is_kept = np.zeros((stop - first, pages.column_count), dtype=np.bool_)
    for read in deferred:
        is_kept[read.row_group - first, list(read.columns)] = True
    all_first = pages.first_page[chunks]
    counts = np.where(is_kept.ravel(), pages.first_page[chunks.start + 1 : chunks.stop + 1] - all_first, 0)
    first_page = _edges(counts)
    kept = np.repeat(all_first - first_page[:-1], counts) + np.arange(first_page[-1])
    return PartitionPages(
        row_group_count=stop - first,
        column_count=pages.column_count,
        first_row_group=first,
        first_page=first_page,
        first_rows=pages.first_rows[kept],
        starts=pages.starts[kept],
        stops=pages.stops[kept],
        dictionary_starts=np.where(counts > 0, pages.dictionary_starts[chunks], 0),
        dictionary_stops=np.where(counts > 0, pages.dictionary_stops[chunks], 0),
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


def _with_deferred(reads: Iterable[Read]) -> Iterator[Read]:
    for read in reads:
        yield read
        if read.deferred is not None:
            yield read.deferred


def _flags(read: Read) -> int:
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
