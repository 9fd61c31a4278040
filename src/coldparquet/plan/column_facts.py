"""What follows from a sidecar about one of its columns, whatever is asked: worked out once, kept as long as the sidecar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.format.sidecar import Sidecar

Fact = TypeVar("Fact")


class ColumnFacts(Generic[Fact]):
    """One fact about every column of every sidecar that is in use.

    Args:
        find: Works it out; what it raises is not kept. Two threads may do so at the same time: they find the same.
    """

    def __init__(self, find: Callable[[Sidecar, int], Fact]) -> None:
        self._find = find
        self._known: WeakKeyDictionary[Sidecar, dict[int, Fact]] = WeakKeyDictionary()

    def of(self, sidecar: Sidecar, column: int) -> Fact:
        """Return the fact about one column.

        Args:
            sidecar: The sidecar.
            column: Index of the column in it.
        """
        of_sidecar = self._known.get(sidecar)
        if of_sidecar is None:
            of_sidecar = self._known.setdefault(sidecar, {})
        if column not in of_sidecar:
            of_sidecar[column] = self._find(sidecar, column)
        return of_sidecar[column]
