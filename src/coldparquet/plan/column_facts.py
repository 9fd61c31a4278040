"""What follows from row groups about one of their columns, whatever is asked: worked out once, kept as long as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.format.row_group_table import RowGroupTable

Fact = TypeVar("Fact")


class ColumnFacts(Generic[Fact]):
    """One fact about every column of every sidecar, or stack of sidecars, that is in use.

    Args:
        find: Works it out; what it raises is not kept. Two threads may do so at the same time: they find the same.
    """

    def __init__(self, find: Callable[[RowGroupTable, int], Fact]) -> None:
        self._find = find
        self._known: WeakKeyDictionary[RowGroupTable, dict[int, Fact]] = WeakKeyDictionary()

    def of(self, table: RowGroupTable, column: int) -> Fact:
        """Return the fact about one column.

        Args:
            table: The row groups.
            column: Index of the column in it.
        """
        of_table = self._known.get(table)
        if of_table is None:
            of_table = self._known.setdefault(table, {})
        if column not in of_table:
            of_table[column] = self._find(table, column)
        return of_table[column]
