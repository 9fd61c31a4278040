"""What changed between two states of a table: which partitions are new, grown, rewritten or gone.

QuestDB adds rows to a partition by writing row groups after the end of its Parquet file, and then a footer. So the
earlier state is still in the same file. The sidecar leads to it by the earlier size of the file, and the earlier footer
ends there. If all earlier row groups are unchanged and in the same places, the rows before the new ones are the same. A
file that was sorted again, or compacted, holds nothing of the earlier state.

The comparison of states itself reads nothing. A transaction identifies the version of a partition: the directory, the
size of the Parquet file, the number of rows. Equal versions hold equal rows, because committed rows are never
overwritten. A version with more rows may begin with those of the previous one, or may have been sorted again. Only the
metadata of both tells, so such a partition is ``larger`` until it has been read. The pieces of a split partition are
judged together: if they are merged, or split again, rows move from one to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from coldparquet.catalog.partition import Partition, read_packed
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import FormatError, UnsupportedError
from coldparquet.format.blooms import sidecar_in_memory
from coldparquet.format.sidecar import parse_sidecar
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.follow.state import PartitionState, TableState
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions


async def find_grown(
    snapshot: TableSnapshot,
    changes: Iterable[PartitionChange],
    partitions: Mapping[int, Partition],
    *,
    options: ReadOptions,
) -> frozenset[int]:
    """Determine which larger partitions begin with their earlier rows.

    Requests: the metadata of each, which reading its rows needs anyway, in parallel. Without a sidecar, or if the
    sidecar no longer has the earlier state, 1 or 2 more for the earlier Parquet footer.
    """
    asked = [change for change in changes if change.before is not None and change.timestamp in partitions]
    await read_packed([partitions[change.timestamp] for change in asked])
    answers = await gather_or_cancel(
        [
            _has_grown(snapshot, partitions[change.timestamp], change.before, options)
            for change in asked
            if change.before is not None
        ]
    )
    return frozenset(change.timestamp for change, has_grown in zip(asked, answers, strict=True) if has_grown)


async def _has_grown(
    snapshot: TableSnapshot, partition: Partition, before: PartitionState, options: ReadOptions
) -> bool:
    record = partition.location.record
    if record is None or before.parquet_size_bytes <= 0 or before.parquet_size_bytes >= record.parquet_size:
        return False
    metadata = await partition.metadata()
    kept = _earlier_snapshot(metadata.sidecar, before)
    if kept is not None:
        return _begins_with(metadata.sidecar, kept)
    then = replace(record, row_count=before.row_count, parquet_size=before.parquet_size_bytes)
    try:
        footer = await Partition(replace(partition.location, record=then), snapshot.store, options).read_footer()
        earlier = sidecar_in_memory(footer)
    except (FormatError, UnsupportedError):
        return False  # no footer ends there: the file is another one
    return _begins_with(metadata.sidecar, earlier)


def _earlier_snapshot(sidecar: Sidecar, before: PartitionState) -> Sidecar | None:
    """Return the snapshot of an earlier state that a sidecar keeps; None if it keeps none."""
    try:
        earlier = parse_sidecar(
            sidecar.file,
            path=sidecar.path,
            parquet_size_bytes=before.parquet_size_bytes,
            sidecar_size_bytes=sidecar.size_bytes,
        )
    except (FormatError, UnsupportedError):
        return None
    return earlier if earlier.total_rows == before.row_count else None


def _begins_with(now: Sidecar, before: Sidecar) -> bool:
    """Tell whether a partition's first row groups are, byte for byte, all those of an earlier state."""
    count = before.row_group_count
    if now.row_group_count < count or now.column_count != before.column_count:
        return False
    if not np.array_equal(now.row_counts[:count], before.row_counts):
        return False
    return all(
        now.column(index).name == before.column(index).name
        and np.array_equal(now.chunks(index).byte_range_start[:count], before.chunks(index).byte_range_start)
        and np.array_equal(
            now.chunks(index).total_compressed_bytes[:count], before.chunks(index).total_compressed_bytes
        )
        for index in range(before.column_count)
    )


ChangeKind: TypeAlias = Literal["new", "larger", "grown", "rewritten", "dropped"]
"""``larger``: more rows, and it is not yet known whether they begin with the earlier ones; ``grown``: they do."""

_MOVING_ROWS = ("rewritten", "dropped")
"""The rows of a piece that was rewritten, or is gone, may be in another piece of the same partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """What happened to one partition, or to one piece of a split partition."""

    kind: ChangeKind
    before: PartitionState | None
    """None if it did not exist, or nothing of it was delivered."""
    now: PartitionState | None
    """None if it no longer exists."""
    reason: str
    """The change in words, for people: ``2,040 rows, 2,000 before``."""

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
    """The present state of the table."""
    changes: tuple[PartitionChange, ...]
    """In time order; without unchanged partitions."""
    replaced: str | None = None
    """Why this is another table than before, in words; then there are no changes."""

    @property
    def larger(self) -> tuple[PartitionChange, ...]:
        """Partitions whose metadata must tell whether they only have more rows after the earlier ones."""
        return tuple(change for change in self.changes if change.kind == "larger")


def changes_between(before: TableState, now: TableState) -> TableChanges:
    """Compare two states of a table."""
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
    """Decide about larger partitions: those that begin with the earlier rows are grown, the others rewritten."""
    decided = [
        replace(change, kind="grown" if change.timestamp in grown else "rewritten")
        if change.kind == "larger"
        else change
        for change in found.changes
    ]
    return replace(found, changes=_judged_together(found.now, decided, moved=set()))


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
        # No row of another version was delivered, so the difference does not matter.
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
    """Treat all changes of one partition as its rewrite, if its pieces were merged, split or rewritten."""
    in_order = sorted(changes, key=lambda change: change.timestamp)
    moved = moved | {now.partition_of(change.timestamp) for change in in_order if change.kind in _MOVING_ROWS}
    if not moved:
        return tuple(in_order)
    return tuple(
        change
        if change.kind in _MOVING_ROWS or now.partition_of(change.timestamp) not in moved
        else replace(
            change,
            kind="rewritten",
            reason=f"{change.reason}; another piece of its partition was rewritten, or merged",
        )
        for change in in_order
    )
