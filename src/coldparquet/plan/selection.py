"""Selects rows inside of one row group: sorted, disjoint row ranges, as numpy arrays.

Pruning by pages leaves some rows, a predicate leaves some of those, and only the pages that overlap them are fetched.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from coldparquet.errors import InternalError
from coldparquet.format.types import distinct_values

if TYPE_CHECKING:
    import numpy.typing as npt


class RowSelection(Struct, frozen=True, kw_only=True, eq=False):
    """Rows of one row group: ``[starts[i], stops[i])`` for every ``i``, ascending; no range is empty, none touch."""

    starts: npt.NDArray[np.int64]
    """First row of each range, shape ``(ranges,)``."""
    stops: npt.NDArray[np.int64]
    """One past the last row of each range."""

    @classmethod
    def of_range(cls, start: int, stop: int) -> RowSelection:
        """Select one range of rows; none if it is empty."""
        return cls.of_ranges(np.array([start], dtype=np.int64), np.array([stop], dtype=np.int64))

    @classmethod
    def of_ranges(cls, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> RowSelection:
        """Select ascending ranges that do not overlap. Empty ranges are dropped, and touching ones are joined.

        Raises:
            InternalError: They are out of order.
        """
        filled = stops > starts
        starts, stops = starts[filled].astype(np.int64), stops[filled].astype(np.int64)
        if bool((starts[1:] < stops[:-1]).any()):
            raise InternalError("the ranges of a row selection overlap or are out of order")
        begins = np.ones(len(starts), dtype=bool)
        begins[1:] = starts[1:] > stops[:-1]
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(starts))[: len(first)] - 1
        return cls(starts=starts[first], stops=stops[last])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RowSelection)
            and np.array_equal(self.starts, other.starts)
            and np.array_equal(self.stops, other.stops)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def row_count(self) -> int:
        """Number of rows selected."""
        return int((self.stops - self.starts).sum())

    def intersect(self, other: RowSelection) -> RowSelection:
        """Select the rows that are in both."""
        edges = distinct_values(np.concatenate([self.starts, self.stops, other.starts, other.stops]))
        inside = self.holds(edges[:-1]) & other.holds(edges[:-1]) if len(edges) else np.zeros(0, dtype=bool)
        return RowSelection.of_ranges(edges[:-1][inside], edges[1:][inside])

    def holds(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Tell for each row whether it is selected."""
        position = np.searchsorted(self.starts, rows, side="right") - 1
        result: npt.NDArray[np.bool_] = (position >= 0) & (rows < np.append(self.stops, 0)[position])
        return result

    def overlaps(self, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Tell for each range of rows, such as a page, whether any of its rows is selected; an empty range has none."""
        first = np.searchsorted(self.stops, starts, side="right")
        result: npt.NDArray[np.bool_] = (stops > starts) & (
            np.append(self.starts, np.iinfo(np.int64).max)[first] < stops
        )
        return result

    def first(self, count: int) -> RowSelection:
        """Select the first ``count`` of the selected rows; all of them if there are fewer."""
        return self.rows_at(RowSelection.of_range(0, min(count, self.row_count)))

    def last(self, count: int) -> RowSelection:
        """Select the last ``count`` of the selected rows; all of them if there are fewer."""
        return self.rows_at(RowSelection.of_range(max(self.row_count - count, 0), self.row_count))

    def positions_of(self, other: RowSelection) -> RowSelection:
        """Return the positions of the rows of ``other`` among the rows of this selection.

        Args:
            other: Rows that are all in this selection, as the rows of a predicate are among those of the fetched pages.

        Raises:
            InternalError: A row of ``other`` is not in this selection.
        """
        inside = np.searchsorted(self.starts, other.starts, side="right") - 1
        if len(other.starts) and (inside.min() < 0 or bool((other.stops > self.stops[inside]).any())):
            raise InternalError("a row selection holds rows that were not fetched")
        packed_starts = np.cumsum(self.stops - self.starts) - (self.stops - self.starts)
        shift = packed_starts[inside] - self.starts[inside] if len(other.starts) else other.starts
        return RowSelection.of_ranges(other.starts + shift, other.stops + shift)

    def rows_at(self, positions: RowSelection) -> RowSelection:
        """Return the rows at ``positions`` among the rows of this selection: the inverse of :meth:`positions_of`.

        Raises:
            InternalError: There are not that many rows.
        """
        if len(positions.stops) and positions.stops[-1] > self.row_count:
            raise InternalError(f"position {int(positions.stops[-1]) - 1} among {self.row_count} selected rows")
        lengths = self.stops - self.starts
        packed_stops = np.cumsum(lengths)
        packed_starts = packed_stops - lengths
        edges = distinct_values(np.concatenate([positions.starts, positions.stops, packed_starts, packed_stops]))
        kept = positions.holds(edges[:-1]) if len(edges) else np.zeros(0, dtype=bool)
        starts, stops = edges[:-1][kept], edges[1:][kept]
        inside = np.searchsorted(packed_starts, starts, side="right") - 1
        shift = self.starts[inside] - packed_starts[inside] if len(starts) else starts
        return RowSelection.of_ranges(starts + shift, stops + shift)


def selections_of(
    owners: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64], owner_count: int
) -> tuple[RowSelection, ...]:
    """Make many selections in one pass, such as one per row group or per column.

    Args:
        owners: The selection of each range, ascending, shape ``(ranges,)``.
        starts: First row of each range; the ranges of an owner ascend, do not overlap, and none is empty.
        stops: One past its last row.
        owner_count: Number of selections; those without a range select nothing.
    """
    begins = np.ones(len(owners), dtype=bool)
    begins[1:] = (owners[1:] != owners[:-1]) | (starts[1:] > stops[:-1])
    ends = np.append(begins[1:], True)[: len(begins)]
    starts, stops = starts[begins].astype(np.int64), stops[ends].astype(np.int64)
    edges = np.searchsorted(owners[begins], np.arange(owner_count + 1)).tolist()
    return tuple(RowSelection(starts=starts[first:stop], stops=stops[first:stop]) for first, stop in pairwise(edges))
