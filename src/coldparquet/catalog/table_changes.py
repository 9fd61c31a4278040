"""What changed between two states of a table. Pure: nothing is read here.

What a transaction says of a partition tells its version: the directory, the size of the Parquet file, the number of rows.
Equal versions hold equal rows, because nobody overwrites what was committed. A version with more rows may begin with those
of the one before, or may have been sorted anew; that takes a look at both (:mod:`coldparquet.catalog.appended_rows`), so it
is ``larger`` until somebody has looked. Pieces of a partition that was split are judged together: where they are merged,
or split again, rows move from one to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from coldparquet.catalog.table_state import PartitionState, TableState

ChangeKind: TypeAlias = Literal["new", "larger", "grown", "rewritten", "dropped"]
"""``larger``: more rows, and nobody knows yet whether they begin with the earlier ones; ``grown``: they do."""

_MOVING_ROWS = ("rewritten", "dropped")
"""A piece that was rewritten, or is gone, may have its rows in another piece of the same partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """What happened to one partition, or to one piece of a partition that was split."""

    kind: ChangeKind
    before: PartitionState | None
    """None where it was not there, or nothing of it was handed over."""
    now: PartitionState | None
    """None where it is not there any more."""
    reason: str
    """What was seen, for people: ``2,040 rows, 2,000 before``."""

    @property
    def timestamp(self) -> int:
        """Begin of the partition or of the piece, in the unit of the table."""
        found = self.now if self.now is not None else self.before
        assert found is not None, "a change is of something"  # noqa: S101 - an invariant of this class
        return found.timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges:
    """What happened to a table."""

    now: TableState
    """The table as it lies there."""
    changes: tuple[PartitionChange, ...]
    """In time order; partitions that did not change are not among them."""
    replaced: str | None = None
    """Why this is not the table that was there before, in words; then there are no changes."""

    @property
    def larger(self) -> tuple[PartitionChange, ...]:
        """Partitions of which somebody has to find out whether they only have more rows behind the earlier ones."""
        return tuple(change for change in self.changes if change.kind == "larger")


def changes_between(before: TableState, now: TableState) -> TableChanges:
    """Compare two states of a table.

    Args:
        before: What was handed over.
        now: The table as it lies there. A partition that is in the native format now and was in Parquet before is left
            out: it counts again once it is converted.
    """
    replaced = _replaced(before, now)
    if replaced is not None:
        return TableChanges(now=now, changes=(), replaced=replaced)
    earlier = {partition.timestamp: partition for partition in before.partitions}
    changes = [
        change
        for partition in now.partitions
        if (change := _change(earlier.pop(partition.timestamp, None), partition)) is not None
    ]
    changes += [
        PartitionChange(kind="dropped", before=partition, now=None, reason="it is not in the table any more")
        for timestamp, partition in earlier.items()
        if timestamp not in now.native_timestamps
    ]
    # Rows of a partition that is native for now may be in a piece that is not.
    native = {now.partition_of(timestamp) for timestamp in earlier.keys() & now.native_timestamps}
    return TableChanges(now=now, changes=_judged_together(now, changes, moved=native))


def with_growth(found: TableChanges, grown: Collection[int]) -> TableChanges:
    """Decide about larger partitions: those that begin with the earlier rows have grown, the others were rewritten.

    Args:
        found: What changed.
        grown: Begins of the larger partitions of which it is known that they begin with the rows of the version before.
    """
    decided = [
        change
        if change.kind != "larger"
        else PartitionChange(
            kind="grown" if change.timestamp in grown else "rewritten",
            before=change.before,
            now=change.now,
            reason=change.reason,
        )
        for change in found.changes
    ]
    changes = _judged_together(found.now, decided, moved=set())
    return TableChanges(now=found.now, changes=changes, replaced=found.replaced)


def _replaced(before: TableState, now: TableState) -> str | None:
    if before.table_id != now.table_id:
        return f"another table lies there: its id is {now.table_id}, it was {before.table_id}"
    if before.txn > now.txn:
        return f"it is at transaction {now.txn:,}, but was at {before.txn:,}: it was put back to an earlier state"
    return None


def _change(before: PartitionState | None, now: PartitionState) -> PartitionChange | None:
    if before is not None and before.version == now.version:
        return None
    if before is None or before.delivered_rows == 0:
        # Nobody has seen a row of another version, so that it does not matter how it differs.
        reason = f"{now.row_count:,} rows"
        return PartitionChange(kind="new", before=before, now=now, reason=reason) if now.row_count else None
    if now.row_count > before.row_count:
        reason = f"{now.row_count:,} rows, {before.row_count:,} before"
        return PartitionChange(kind="larger", before=before, now=now, reason=reason)
    reason = f"another version with {now.row_count:,} rows, {before.row_count:,} before"
    return PartitionChange(kind="rewritten", before=before, now=now, reason=reason)


def _judged_together(
    now: TableState, changes: Iterable[PartitionChange], *, moved: set[int]
) -> tuple[PartitionChange, ...]:
    """Take all changes of one partition for a rewrite of it, where its pieces were merged, split or rewritten.

    Args:
        now: The table as it lies there.
        changes: Piece by piece.
        moved: Partitions of which that is known already, by their begins.
    """
    in_order = sorted(changes, key=lambda change: change.timestamp)
    moved = moved | {now.partition_of(change.timestamp) for change in in_order if change.kind in _MOVING_ROWS}
    if not moved:
        return tuple(in_order)
    return tuple(
        change
        if change.kind in _MOVING_ROWS or now.partition_of(change.timestamp) not in moved
        else PartitionChange(
            kind="rewritten",
            before=change.before,
            now=change.now,
            reason=f"{change.reason}; another piece of its partition was rewritten, or merged",
        )
        for change in in_order
    )
