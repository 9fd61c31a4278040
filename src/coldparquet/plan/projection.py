"""The columns of a table, and where each of them lies in one partition."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.format.column_types import ColumnType
    from coldparquet.format.sidecar import Sidecar

_LISTED_NAMES = 20
"""An error about an unknown column lists the near matches, or so many names where nothing is near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column of a table, as its newest partition describes it."""

    index: int
    """Position in the table, from 0."""
    name: str
    id: int
    """QuestDB's writer index, by which a renamed column is still found; -1 in foreign files."""
    type: ColumnType | None
    """None where the type is not readable; ``problem`` then says why."""
    problem: str | None = None

    @property
    def readable_type(self) -> ColumnType:
        """The type, for a column that somebody wants to read.

        Raises:
            UnsupportedError: The column has a type that this version does not read.
        """
        if self.type is None:
            raise UnsupportedError(
                f"column {self.name!r} cannot be read: {self.problem}; leave it out with columns=[...]",
                kind="UnsupportedColumn",
                column=self.name,
            )
        return self.type


def table_columns(sidecar: Sidecar) -> tuple[TableColumn, ...]:
    """Describe the columns of a partition as those of its table.

    Raises:
        UnsupportedError: Two columns have the same name.
    """
    repeated = [name for name, count in Counter(column.name for column in sidecar.columns).items() if count > 1]
    if repeated:
        raise UnsupportedError(
            f"several columns are named {repeated[0]!r}; columns are chosen by name, so names must differ",
            kind="DuplicateColumn",
            path=sidecar.path,
            column=repeated[0],
        )
    return tuple(_table_column(sidecar, index) for index in range(sidecar.column_count))


def _table_column(sidecar: Sidecar, index: int) -> TableColumn:
    descriptor = sidecar.column(index)
    column_type, problem = None, None
    try:
        column_type = sidecar.column_type(index)
    except UnsupportedError as error:
        problem = error.message
    return TableColumn(index=index, name=descriptor.name, id=descriptor.id, type=column_type, problem=problem)


def select_columns(columns: Sequence[TableColumn], names: Iterable[str] | None) -> tuple[TableColumn, ...]:
    """Choose columns by name, in the order asked for; None chooses all.

    Raises:
        InvalidInputError: A name is unknown (with the near matches), comes twice, or there is none.
        UnsupportedError: A chosen column has a type that this version does not read.
    """
    if names is None:
        chosen = tuple(columns)
    else:
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise InvalidInputError(f"columns must be a list of names, such as ['ts', 'price'], not {names!r}")
        by_name = {column.name: column for column in columns}
        wanted = list(names)
        if not wanted:
            raise InvalidInputError("columns is empty: name at least one, or use count() for the number of rows")
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
    """Return the error for a column that does not exist, with the names that are near to it."""
    names = list(known)
    # Names that differ in case alone come first: in QuestDB they would be the same column.
    same = [candidate for candidate in names if candidate.casefold() == name.casefold()]
    near = same + [candidate for candidate in difflib.get_close_matches(name, names, n=3) if candidate not in same]
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    else:
        more = f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else ""
        hint = f"columns are {', '.join(names[:_LISTED_NAMES])}{more}"
    return InvalidInputError(
        f"there is no column {name!r}; {hint}", kind="UnknownColumn", column=name, near_matches=near
    )


def match_columns(columns: Iterable[TableColumn], sidecar: Sidecar) -> dict[int, int | None]:
    """Find columns of the table in one partition.

    Columns of QuestDB are found by id, so that a rename does not hide data that was written under the old name;
    those of foreign files, which have no ids, by name.

    Args:
        columns: Those that are needed; what the partition says of others does not matter.
        sidecar: The partition.

    Returns:
        By index in the table, the index in the sidecar, or None where the partition was written without the column.

    Raises:
        UnsupportedError: The partition holds the column with another type.
    """
    ids: list[int] = sidecar.header.descriptors["id"].tolist()
    by_id = {column_id: index for index, column_id in enumerate(ids)}
    has_ids = min(ids, default=-1) >= 0 and len(by_id) == len(ids)
    places: dict[int, int | None] = {}
    for column in columns:
        place = by_id.get(column.id) if has_ids and column.id >= 0 else sidecar.column_index(column.name)
        places[column.index] = place
        if place is None:
            continue
        found = _table_column(sidecar, place)
        if found.type != column.type:
            raise UnsupportedError(
                f"column {column.name!r} is {found.type.name if found.type else found.problem} here,"
                f" but {column.readable_type.name} in the newest partition; read the partitions one by one",
                kind="ChangedColumnType",
                path=sidecar.path,
                column=column.name,
            )
    return places
