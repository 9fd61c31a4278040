"""Rows with what orders them: the best of them, and the best of each key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldparquet.decode.numpy_bridge import numbers_to_arrow, numbers_to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.plan.bounds import IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankedRows:
    """Rows of one read or of many; the arrays have shape ``(rows,)``, and in each of them the greatest is the best."""

    table: pa.Table
    ranks: IntArray
    places: IntArray
    """Of the read that each row is from: decides between rows of equal rank."""
    numbers: IntArray
    """Of the row in its read: decides between rows of one read and equal rank."""

    @classmethod
    def joined(cls, parts: Sequence[RankedRows]) -> RankedRows:
        """Join rows, at least one part of them; each dictionary column gets one dictionary."""
        return cls(
            table=pa.concat_tables([part.table for part in parts]).unify_dictionaries(),
            ranks=np.concatenate([part.ranks for part in parts]),
            places=np.concatenate([part.places for part in parts]),
            numbers=np.concatenate([part.numbers for part in parts]),
        )

    @property
    def from_worst_to_best(self) -> IntArray:
        """Positions of the rows in ascending order."""
        order: IntArray = np.lexsort((self.numbers, self.places, self.ranks))
        return order

    def at(self, positions: IntArray) -> RankedRows:
        """Return the rows at some positions, in their order."""
        if np.array_equal(positions, np.arange(len(self.ranks))):
            return self
        return RankedRows(
            table=self.table.take(numbers_to_arrow(positions, pa.int64())),
            ranks=self.ranks[positions],
            places=self.places[positions],
            numbers=self.numbers[positions],
        )

    def best(self, count: int) -> RankedRows:
        """Return the best ``count`` rows, in the order in which they are here."""
        if len(self.ranks) <= count:
            return self
        return self.at(np.sort(self.from_worst_to_best[-count:]))

    def best_of_each(self, keys: Sequence[str]) -> RankedRows:
        """Return the best row of each combination of values of the columns ``keys``; NULL is a value like others."""
        order = self.from_worst_to_best
        goodness = np.empty_like(order)
        goodness[order] = np.arange(len(order))
        names = [f"key {number}" for number in range(len(keys))]
        columns: list[Any] = [plain_values(self.table.column(key)) for key in keys]
        grouped = pa.table([*columns, numbers_to_arrow(goodness, pa.int64())], names=[*names, "goodness"])
        found: Any = grouped.group_by(names, use_threads=False).aggregate([("goodness", "max")])
        best = numbers_to_numpy(found.column("goodness_max").combine_chunks(), np.int64)
        return self.at(np.sort(order[best]))


def plain_values(column: Any) -> Any:
    """Return a column with its values in place of dictionary indices."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
