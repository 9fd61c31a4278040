"""The next batch of a follower: how far it goes, and which rows lie between two states. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from coldparquet.errors import ObjectChangedError
from coldparquet.records import replace
from coldparquet.text import few_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet.follow.changes import PartitionChange, TableChanges
    from coldparquet.follow.state import PartitionState, TableState


OnChange: TypeAlias = Literal["error", "ignore", "reread", "append"]
"""What to do about partitions that changed after their rows were delivered.

``error``: stop. ``ignore``: go on; the present content of such a partition counts as delivered. ``reread``: deliver its
whole present content, so that rows arrive again. ``append``: trust that a partition with more rows begins with the
delivered ones, and deliver the rest; anything else stops.
"""

ON_CHANGE: tuple[OnChange, ...] = get_args(OnChange)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimit:
    """How much to deliver in one step; None for no limit.

    A step always delivers at least one row, if there is one. A partition that is cut gives rows of about this many
    bytes.
    """

    partitions: int | None = None
    rows: int | None = None
    compressed_bytes: int | None = None
    """Bytes of the Parquet files, in proportion if only some rows of one are delivered."""


EVERYTHING = StepLimit()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWindow:
    """Rows ``[first_row, stop_row)`` of one version of a partition."""

    partition: PartitionState
    first_row: int
    stop_row: int

    @property
    def row_count(self) -> int:
        """Number of rows, at least 1."""
        return self.stop_row - self.first_row


def next_state(before: TableState, found: TableChanges, *, limit: StepLimit, on_change: OnChange) -> TableState:
    """Decide what to deliver next: partitions in time order, up to the limit."""
    if found.replaced is not None:
        if on_change != "reread":
            raise _table_replaced(found.replaced)
        partitions = _as_far_as(found.now.partitions, limit)
        return replace(found.now, generation=before.generation + 1, partitions=partitions)
    _refuse_rewritten(found, on_change)
    _refuse_dropped(before, found, on_change)
    changed = {change.timestamp: change for change in found.changes}
    waiting = [partition for partition in before.partitions if partition.timestamp not in changed]
    waiting += [accepted for change in found.changes if (accepted := _accepted(change, on_change)) is not None]
    partitions = _as_far_as(sorted(waiting, key=lambda partition: partition.timestamp), limit)
    if partitions == before.partitions:
        return before
    return replace(found.now, generation=before.generation, partitions=partitions)


def windows_between(start: TableState, end: TableState) -> tuple[RowWindow, ...]:
    """Return the rows to deliver between two states, in table order."""
    is_anew = start.generation != end.generation
    earlier = {} if is_anew else {partition.timestamp: partition for partition in start.partitions}
    windows = []
    for partition in end.partitions:
        before = earlier.get(partition.timestamp)
        continues = before is not None and before.epoch == partition.epoch
        first_row = before.delivered_rows if before is not None and continues else partition.epoch_first_row
        if first_row < partition.delivered_rows:
            windows.append(RowWindow(partition=partition, first_row=first_row, stop_row=partition.delivered_rows))
    return tuple(windows)


def _accepted(change: PartitionChange, on_change: OnChange) -> PartitionState | None:
    """Return a partition as it waits for delivery after a change; None if it is gone."""
    before, now = change.before, change.now
    if now is None:
        return None
    if before is None:
        epoch, delivered_rows, epoch_first_row = 0, 0, 0
    else:
        epoch, delivered_rows, epoch_first_row = before.epoch, before.delivered_rows, before.epoch_first_row
    if change.kind == "rewritten" and on_change in ("reread", "ignore"):
        epoch += 1
        epoch_first_row = delivered_rows = now.row_count if on_change == "ignore" else 0
    return replace(now, epoch=epoch, delivered_rows=delivered_rows, epoch_first_row=epoch_first_row)


def _as_far_as(waiting: Iterable[PartitionState], limit: StepLimit) -> tuple[PartitionState, ...]:
    """Deliver what waits until the limit is reached; a state omits partitions of which nothing was delivered."""
    budget = _Budget(limit)
    reached = (
        replace(partition, delivered_rows=partition.delivered_rows + budget.take(partition))
        if partition.rows_left
        else partition
        for partition in waiting
    )
    return tuple(partition for partition in reached if partition.delivered_rows or partition.epoch)


class _Budget:
    """What remains of a limit while a step is assembled."""

    def __init__(self, limit: StepLimit) -> None:
        self._partitions = limit.partitions
        self._rows = limit.rows
        self._bytes = limit.compressed_bytes
        self._is_untouched = True

    def take(self, partition: PartitionState) -> int:
        """Return how many more rows of a partition to deliver, and subtract them from the budget."""
        rows = partition.rows_left
        if self._rows is not None:
            rows = min(rows, self._rows)
        size_bytes = max(partition.parquet_size_bytes, 0)
        if self._bytes is not None and size_bytes:
            rows = min(rows, self._bytes * partition.row_count // size_bytes)
        if self._partitions == 0:
            rows = 0
        if rows == 0 and self._is_untouched:
            rows = 1  # an empty step would be repeated forever
        if rows < partition.rows_left:
            self._partitions = 0  # later partitions wait until this one is complete
        elif self._partitions is not None:
            self._partitions -= 1
        self._rows = None if self._rows is None else max(self._rows - rows, 0)
        taken_bytes = -(-size_bytes * rows // partition.row_count)
        self._bytes = None if self._bytes is None else max(self._bytes - taken_bytes, 0)
        self._is_untouched = False
        return rows


def _refuse_rewritten(found: TableChanges, on_change: OnChange) -> None:
    refused = [change for change in found.changes if change.kind == "rewritten" and not _is_allowed(change, on_change)]
    if not refused:
        return
    shown = [f"{found.now.name_of(change.now or change.before)}: {change.reason}" for change in refused]  # type: ignore[arg-type]
    raise ObjectChangedError(
        f"rows that were handed over already have changed since ({few_names(shown)}); say what to do then with on_change:"
        " 'ignore' leaves such partitions as they were handed over, 'reread' hands them over again, 'append' trusts that"
        " more rows only ever follow the earlier ones",
        kind="PartitionsRewritten",
        partitions=[change.timestamp for change in refused],
    )


def _is_allowed(change: PartitionChange, on_change: OnChange) -> bool:
    if on_change == "append":
        before, now = change.before, change.now
        return before is not None and now is not None and before.row_count == now.row_count
    return on_change != "error"


def _refuse_dropped(before: TableState, found: TableChanges, on_change: OnChange) -> None:
    """Refuse to lose undelivered rows. Delivered rows cannot be withdrawn, so dropping them loses nothing."""
    lost = [
        change.before
        for change in found.changes
        if change.kind == "dropped" and change.before is not None and change.before.rows_left
    ]
    if lost and on_change in ("error", "append"):
        names = [before.name_of(partition) for partition in lost]
        raise ObjectChangedError(
            f"partitions were dropped before all of their rows were handed over ({few_names(names)}); on_change 'ignore' or"
            " 'reread' goes on without those rows",
            kind="PartitionsDropped",
            partitions=[partition.timestamp for partition in lost],
        )


def _table_replaced(reason: str) -> ObjectChangedError:
    return ObjectChangedError(
        f"this is not the table that was followed so far: {reason}; on_change 'reread' hands over all that it holds now,"
        " and a new checkpoint begins anew",
        kind="TableReplaced",
    )
