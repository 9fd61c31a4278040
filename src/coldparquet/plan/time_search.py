"""Finding the rows of a time range in a sorted timestamp column, by few small reads of it.

A state machine without I/O: it says which rows' timestamps it wants next, and is told them. All that it wants at once
can be fetched in one round trip.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.errors import FormatError, InternalError

if TYPE_CHECKING:
    import numpy.typing as npt

WINDOW_ROWS = 8192
"""So many timestamps are 64 KiB, which take hardly longer to fetch than one: they are fetched whole."""

PROBES = 32
"""Single timestamps looked at per edge and round trip. Each round trip leaves a 31st of the rows: three of them, and
one for the window, find an edge among 200 million rows. ``ReadOptions.max_concurrency`` is as large."""

_GREATEST = (1 << 63) - 1


class TimeSearch:
    """The search for the rows whose timestamps lie in a range.

    Args:
        row_count: Rows of the partition, in ascending order of their timestamps.
        lower: Smallest timestamp wanted; None for no bound.
        upper: Largest timestamp wanted; None for no bound.
        path: File of the timestamp column, for error messages.
    """

    def __init__(self, row_count: int, *, lower: int | None, upper: int | None, path: str) -> None:
        self._path = path
        begin = _Edge(threshold=lower or 0, least=0, most=0 if lower is None else row_count)
        has_end = upper is not None and upper < _GREATEST
        threshold = _GREATEST if upper is None else min(upper + 1, _GREATEST)
        end = _Edge(threshold=threshold, least=0 if has_end else row_count, most=row_count)
        if lower is not None and upper is not None and lower > upper:
            begin.most, end.least, end.most = 0, 0, 0
        self._begin, self._end = begin, end
        self._seen: list[tuple[int, int, int]] = []
        """Runs of rows whose timestamps were received: first row, first and last timestamp; ascending."""

    @property
    def rows(self) -> range:
        """The rows in the range, once nothing is wanted any more."""
        if self.wanted():
            raise InternalError("the rows of a time range are asked for before they are found")
        return range(self._begin.least, max(self._begin.least, self._end.least))

    def wanted(self) -> tuple[range, ...]:
        """Return the rows whose timestamps are needed next, in ascending order; none at the end."""
        wanted = {*self._begin.wanted(), *self._end.wanted()}
        return tuple(sorted(wanted, key=lambda rows: (rows.start, rows.stop)))

    def receive(self, rows: range, timestamps: npt.NDArray[np.int64]) -> None:
        """Take the timestamps of rows that were wanted.

        Raises:
            FormatError: They are not in ascending order.
        """
        self._check_order(rows, timestamps)
        for edge in (self._begin, self._end):
            if edge.is_found:
                continue
            before = int(np.searchsorted(timestamps, edge.threshold))
            if before > 0:
                edge.least = max(edge.least, rows.start + before)
            if before < len(timestamps):
                edge.most = min(edge.most, rows.start + before)

    def _check_order(self, rows: range, timestamps: npt.NDArray[np.int64]) -> None:
        """Compare timestamps with each other and with their neighbours among those that came before."""
        falls = np.flatnonzero(timestamps[1:] < timestamps[:-1])
        if len(falls):
            raise self._unsorted(rows.start + int(falls[0]) + 1)
        seen = (rows.start, int(timestamps[0]), int(timestamps[-1]))
        place = bisect_left(self._seen, seen)
        if place > 0 and self._seen[place - 1][2] > seen[1]:
            raise self._unsorted(rows.start)
        if place < len(self._seen) and self._seen[place][1] < seen[2]:
            raise self._unsorted(self._seen[place][0])
        self._seen.insert(place, seen)

    def _unsorted(self, row: int) -> FormatError:
        return FormatError(
            f"row {row:,}: its timestamp is smaller than that of a row before it, but QuestDB keeps the rows of a"
            " partition in the order of time; the partition is damaged: read it without a time range, or restore it",
            path=self._path,
            field="timestamp",
            row=row,
        )


@dataclass(slots=True, kw_only=True)
class _Edge:
    """The first row whose timestamp is at or above the threshold: at least ``least``, at most ``most``."""

    threshold: int
    least: int
    most: int

    @property
    def is_found(self) -> bool:
        return self.least == self.most

    def wanted(self) -> list[range]:
        undecided = self.most - self.least
        if self.is_found:
            return []
        if undecided <= WINDOW_ROWS:
            return [range(self.least, self.most)]
        # Both ends are among the probes: where all rows are on one side of the threshold, one round trip is enough.
        probes = np.linspace(self.least, self.most - 1, PROBES).astype(np.int64).tolist()
        return [range(row, row + 1) for row in probes]
