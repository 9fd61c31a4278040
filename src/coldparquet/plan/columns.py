"""Describes the columns of a table, and finds each of them in one partition."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from coldparquet.errors import FormatError, InvalidInputError, UnsupportedError
from coldparquet.format.types import canonical_type
from coldparquet.plan.type_changes import can_convert, holds_same_values, type_in_table, unified_type
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coldparquet.format.sidecar import Sidecar
    from coldparquet.format.sidecar_header import ColumnDescriptor, ColumnSchema
    from coldparquet.format.table_metadata import TableMetadata
    from coldparquet.format.types import ColumnType


_LISTED_NAMES = 20
"""An error about an unknown column lists near matches or, if there are none, this many names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of a table, as its `_meta` describes it or, without one, its newest partition."""

    index: int
    """Position in the table, from 0."""
    name: str
    id: int
    """QuestDB's writer index, which finds a renamed column; -1 in foreign files, or if only names count."""
    type: ColumnType | None
    """None if the type is not readable; ``problem`` then says why."""
    problem: str | None = None
    superseded_ids: tuple[int, ...] = ()
    """Ids that the column had before type changes, newest first: older partitions store it under one of them."""
    names_without_metadata: frozenset[str] | None = field(default=None, compare=False, repr=False)
    """All names of the table, if no ``_meta`` defines ids: columns are then found by name. None beside a ``_meta``."""

    @property
    def readable_type(self) -> ColumnType:
        """The type of a column to be read."""
        if self.type is None:
            raise UnsupportedError(
                f"column {self.name!r} cannot be read: {self.problem}; leave it out with columns=[...]",
                kind="UnsupportedColumn",
                column=self.name,
            )
        return self.type


def table_columns(sidecar: Sidecar) -> tuple[TableColumn, ...]:
    """Describe the columns of a table like those of a partition."""
    columns = [_table_column(sidecar, place, index=index) for index, place in enumerate(sidecar.places)]
    if sidecar.repeated_names:
        problem = "several columns have this name, and columns are chosen by name"
        columns = [
            replace(column, type=None, problem=problem) if column.name in sidecar.repeated_names else column
            for column in columns
        ]
    return tuple(columns)


def timestamp_index(sidecar: Sidecar) -> int | None:
    """Return the index of the designated timestamp among the columns of :func:`table_columns`."""
    place = sidecar.designated_timestamp
    return None if place is None or place not in sidecar.places else sidecar.places.index(place)


def unified_columns(
    newest: Sidecar, others: Iterable[Sidecar] = (), *, by_name: bool = False
) -> tuple[TableColumn, ...]:
    """Describe the columns of a table without ``_meta``, so that partitions with narrower types are readable, too."""
    columns = [_without_metadata(column, by_name=by_name) for column in table_columns(newest)]
    for sidecar in {other.schema: other for other in others if other.schema is not newest.schema}.values():
        by_id, found = _places_by_id(sidecar), set[int]()
        for index, column in enumerate(columns):
            place, _ = _place(column, sidecar, by_id)
            older = None if place is None else _table_column(sidecar, place)
            if place is not None and older is not None:
                found.add(place)
                if column.type is not None and older.type is not None:
                    columns[index] = replace(column, type=unified_type(column.type, older.type) or column.type)
        names = {column.name for column in columns}
        for place in sidecar.places:
            older = _table_column(sidecar, place)
            if place not in found and older.name not in names and (by_name or older.id < 0):
                names.add(older.name)
                columns.append(replace(_without_metadata(older, by_name=by_name), index=len(columns)))
    known = frozenset(column.name for column in columns)
    return tuple(replace(column, names_without_metadata=known) for column in columns)


def _without_metadata(column: TableColumn, *, by_name: bool) -> TableColumn:
    return replace(
        column,
        id=-1 if by_name else column.id,
        type=_type_in_table(column),
        names_without_metadata=frozenset(),  # filled in when all names are known
    )


def _type_in_table(column: TableColumn) -> ColumnType | None:
    if column.type is None:
        return None
    # QuestDB's own BYTE, SHORT and CHAR have no null, even if others have written partitions.
    return replace(column.type, is_unified=True) if column.id >= 0 else type_in_table(column.type)


def columns_left_out(columns: Sequence[TableColumn], sidecar: Sidecar) -> tuple[str, ...]:
    """Return the names of a partition's columns that its table lacks."""
    by_id = _places_by_id(sidecar)
    found = {_place(column, sidecar, by_id)[0] for column in columns}
    left_out = (sidecar.column(place).name for place in sidecar.places if place not in found)
    return tuple(name for name in left_out if name not in sidecar.repeated_names)


def table_columns_of_metadata(metadata: TableMetadata) -> tuple[TableColumn, ...]:
    """Describe the columns of a table as its `_meta` does, in the order that people see.

    The types are those that QuestDB itself stores; a partition may store the same values differently.
    """
    columns = []
    for index, column in enumerate(metadata.columns):
        column_type, problem = _type_or_problem(partial(canonical_type, column.type_code))
        columns.append(
            TableColumn(
                index=index,
                name=column.name,
                id=column.writer_index,
                type=column_type,
                problem=problem,
                superseded_ids=column.replaced_writer_indexes,
            )
        )
    return tuple(columns)


def _table_column(sidecar: Sidecar, place: int, *, index: int = -1) -> TableColumn:
    """Describe a column of a partition, given the index that it has in the table."""
    descriptor = sidecar.column(place)
    column_type, problem = _type_or_problem(partial(sidecar.column_type, place))
    return TableColumn(index=index, name=descriptor.name, id=descriptor.id, type=column_type, problem=problem)


def _type_or_problem(find_type: Callable[[], ColumnType]) -> tuple[ColumnType | None, str | None]:
    try:
        return find_type(), None
    except UnsupportedError as error:
        return None, error.message


def select_columns(columns: Sequence[TableColumn], names: Iterable[str] | None) -> tuple[TableColumn, ...]:
    """Choose columns by name, in the requested order; None chooses all. Without any, rows are counted alone."""
    if names is None:
        chosen = tuple(columns)
    else:
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise InvalidInputError(f"columns must be a list of names, such as ['ts', 'price'], not {names!r}")
        by_name = {column.name: column for column in columns}
        wanted = list(names)
        for name in wanted:
            if not isinstance(name, str):
                raise InvalidInputError(f"columns are chosen by name, not by {name!r}")
            if name not in by_name:
                raise unknown_column(name, by_name)
        repeated = [name for name, count in Counter(wanted).items() if count > 1]
        if repeated:
            raise InvalidInputError(f"column {repeated[0]!r} is asked for more than once", column=repeated[0])
        chosen = tuple(by_name[name] for name in wanted)
    for column in chosen:
        _ = column.readable_type
    return chosen


def unknown_column(name: str, known: Iterable[str]) -> InvalidInputError:
    """Return the error for a column that does not exist, with similar names."""
    names = list(known)
    # Names that differ only in case come first: QuestDB treats them as the same column.
    same = [candidate for candidate in names if candidate.casefold() == name.casefold()]
    near = same + [candidate for candidate in difflib.get_close_matches(name, names, n=3) if candidate not in same]
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    else:
        more = f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else ""
        hint = f"columns are {', '.join(names[:_LISTED_NAMES])}{more}" if names else "the table has no columns"
    return InvalidInputError(
        f"there is no column {name!r}; {hint}", kind="UnknownColumn", column=name, near_matches=near
    )


class ColumnMatcher:
    """Finds the columns of a question in partitions: once for all partitions that describe their columns alike.

    Args:
        columns: The needed columns.
    """

    def __init__(self, columns: Iterable[TableColumn]) -> None:
        self._columns = tuple(columns)
        self._places: dict[ColumnSchema, Mapping[int, int | None]] = {}

    def places(self, sidecar: Sidecar) -> Mapping[int, int | None]:
        """Return the result of :func:`match_columns` for a partition; see there for errors."""
        found = self._places.get(sidecar.schema)
        if found is None:
            found = self._places[sidecar.schema] = match_columns(self._columns, sidecar)
        return found


def match_columns(columns: Iterable[TableColumn], sidecar: Sidecar) -> dict[int, int | None]:
    """Find columns of the table in one partition.

    Beside a ``_meta``, columns are found by id. In a partition older than a type change, the column still has its id
    from that time. So a rename hides nothing, and a dropped column does not return with a new one of the same name.
    Foreign files have no ids; their columns are found by name.

    Without a ``_meta`` names count, too: ids may be QuestDB's, or the positions of columns in each file. If names and
    ids contradict each other so that only a ``_meta`` could decide, that is an error.
    """
    by_id = _places_by_id(sidecar)
    return {column.index: _find(column, sidecar, by_id) for column in columns}


def _places_by_id(sidecar: Sidecar) -> dict[int, int]:
    ids: list[int] = sidecar.header.descriptors["id"].tolist()
    by_id = {column_id: index for index, column_id in enumerate(ids) if column_id >= 0}
    is_unique = len(by_id) == sum(column_id >= 0 for column_id in ids)
    return by_id if is_unique else {}  # Repeated ids are not QuestDB's, and identify nothing.


def _find(column: TableColumn, sidecar: Sidecar, by_id: Mapping[int, int]) -> int | None:
    place, age = _place(column, sidecar, by_id)
    if place is None:
        _refuse_contradiction(column, sidecar, by_id)
        return None
    if age is None and column.name in sidecar.repeated_names:
        raise UnsupportedError(
            f"several columns are named {column.name!r} here; columns are chosen by name, so names must differ: leave it out",
            kind="DuplicateColumn",
            path=sidecar.path,
            column=column.name,
        )
    wanted, found = column.readable_type, _table_column(sidecar, place)
    if found.type is not None and _is_usable(found.type, wanted, age):
        return place
    if found.type is not None and age == 0 and not wanted.is_unified:
        raise FormatError(
            f"column {column.name!r} is {found.type.name} here, but {wanted.name} in the table's _meta, which knows of no"
            " change of its type: one of the two is damaged, or of another table; copy both from the table's directory again",
            kind="SchemaMismatch",
            path=sidecar.path,
            column=column.name,
            stored_type=found.type.name,
            table_type=wanted.name,
        )
    raise UnsupportedError(
        f"column {column.name!r} is {found.type.name if found.type else found.problem} here, but {wanted.name} in the"
        f" table, {_why_not(found.type, wanted, age)}",
        kind="ChangedColumnType",
        path=sidecar.path,
        column=column.name,
        stored_type=found.type.name if found.type else None,
        table_type=wanted.name,
    )


def _place(column: TableColumn, sidecar: Sidecar, by_id: Mapping[int, int]) -> tuple[int | None, int | None]:
    """Return a column's place, and how many type changes ago it had the id found there; None if found by name."""
    if column.id >= 0 and column.names_without_metadata is None:
        for age, column_id in enumerate((column.id, *column.superseded_ids)):
            if (place := by_id.get(column_id)) is not None:
                return place, age
    place = sidecar.column_index(column.name)
    if place is None or (by_id and column.id >= 0 and not _may_be_same(column, sidecar.column(place))):
        return None, None  # a column of this name that has another id is another column
    return place, None


def _may_be_same(column: TableColumn, stored: ColumnDescriptor) -> bool:
    """Tell whether the ids permit that a column of the same name is this one."""
    if stored.id < 0:
        return True
    if column.names_without_metadata is None:
        return False  # all ids of the column were tried before
    # A writer that does not know the table numbers columns by position. Such ids mean nothing.
    return stored.id == column.id or (stored.id == stored.index and column.id == column.index)


def _refuse_contradiction(column: TableColumn, sidecar: Sidecar, by_id: Mapping[int, int]) -> None:
    """Raise an error rather than call a column absent that a partition may have by name or by id, without a ``_meta``.

    If the table has a column with the name that the found column has in the partition, the found column is that one.
    """
    if column.names_without_metadata is None or column.id < 0 or not by_id:
        return
    of_name, of_id = sidecar.column_index(column.name), by_id.get(column.id)
    if of_name is not None:
        stored, what_is_here = sidecar.column(of_name), f"has id {sidecar.column(of_name).id} here"
        why = "dropped and added again, its type was changed, or the partitions were written apart"
    elif of_id is not None and sidecar.column(of_id).name not in column.names_without_metadata:
        stored, what_is_here = (
            sidecar.column(of_id),
            f"is not here, but {sidecar.column(of_id).name!r} with the same id",
        )
        why = "renamed, or the partitions were written apart"
    else:
        return
    raise UnsupportedError(
        f"column {column.name!r}, with id {column.id} in the newest partition, {what_is_here}: it was {why}, and only the"
        " table's _meta could tell; open the table with its _txn and _meta, or with ReadOptions(columns_from='all') to go by"
        " names alone, or leave the column out",
        kind="AmbiguousColumn",
        path=sidecar.path,
        column=column.name,
        stored_name=stored.name,
        stored_id=stored.id,
        table_id=column.id,
    )


def _is_usable(stored: ColumnType, wanted: ColumnType, age: int | None) -> bool:
    if wanted.is_unified or age == 1:
        # Two conversions in sequence may differ from a single one. QuestDB leaves a Parquet partition at most one
        # change behind.
        return can_convert(stored, wanted)
    if holds_same_values(stored, wanted):
        return True
    # Files that other writers rewrote, ids included, may mark nulls in types without null in QuestDB.
    return age == 0 and stored.arrow == wanted.arrow and can_convert(stored, wanted)


def _why_not(stored: ColumnType | None, wanted: ColumnType, age: int | None) -> str:
    if not wanted.is_unified:
        too_often = " more than once" if age is not None and age > 1 else ""
        return (
            f"and such values are not converted{too_often}; leave the column out, read the partition by itself, or"
            " rewrite it with QuestDB (ALTER TABLE ... CONVERT PARTITION TO NATIVE, then TO PARQUET)"
        )
    if stored is not None and (both := unified_type(wanted, stored)) is not None:
        return (
            f"which has the columns of its newest partition; open it with ReadOptions(columns_from='all') to read both as"
            f" {both.name}, or leave the column out"
        )
    return "and no type holds the values of both; leave the column out, or read the partition by itself"
