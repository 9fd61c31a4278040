"""Follows a table for any streaming engine: how it changed, and which rows to deliver next."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.catalog.discovery import recorded_locations
from coldparquet.catalog.partition import Partition
from coldparquet.errors import InvalidInputError, NotFoundError, ObjectChangedError
from coldparquet.expressions.sql import depends_on_now
from coldparquet.follow.changes import changes_between, find_grown, with_growth
from coldparquet.follow.progress import RowWindow, next_state, windows_between
from coldparquet.follow.state import ListedPartitions, recorded_state
from coldparquet.format.partition_records import PartitionRecord, PartitionRecords
from coldparquet.records import replace
from coldparquet.table_scan import Scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.snapshot import TableSnapshot
    from coldparquet.catalog.table_files import TableFiles
    from coldparquet.follow.changes import TableChanges
    from coldparquet.follow.progress import OnChange, StepLimit
    from coldparquet.follow.state import TableState
    from coldparquet.options import ReadOptions
    from coldparquet.pieces.read import ScanPieces
    from coldparquet.table import Table


_LOGGER = logging.getLogger("coldparquet")
_MOST_LOGGED_CHANGES = 20
_NOT_REPEATABLE = "StepNotRepeatable"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedRows:
    """The columns and rows wanted of everything that is added to the table."""

    columns: tuple[str, ...]
    """None if only the number of rows is wanted."""
    where: str | None


class TableFollower:
    """Reads the state of a table repeatedly.

    Args:
        table: An open table; the caller closes it.
        rows: The wanted columns and rows.
        on_change: What to do about partitions that changed after their rows were delivered.
        options: How to read.

    Raises:
        InvalidInputError: The condition depends on the time at which it is asked.
    """

    def __init__(self, table: Table, rows: FollowedRows, *, on_change: OnChange, options: ReadOptions) -> None:
        if rows.where is not None and depends_on_now(rows.where):
            raise InvalidInputError(
                f"the condition {rows.where!r} depends on now(), and what is added to a table is read at any later time; write"
                " a fixed time in its place",
                kind="InvalidPredicate",
            )
        self._table = table
        self._options = options
        self._rows = rows
        self._on_change = on_change
        self._listed = ListedPartitions()
        self._seen: TableState | None = None
        """The latest state of the table."""

    async def look(self) -> TableState:
        """Return the present state of the table, with nothing delivered.

        Requests: those of opening a table, except on the first call; without a `_txn` see
        :meth:`coldparquet.follow.state.ListedPartitions.state`.
        """
        if self._seen is not None:
            await self._table.refresh()
        snapshot = self._snapshot()
        self._seen = await self._listed.state(snapshot) if snapshot.files is None else recorded_state(snapshot.files)
        return self._seen

    async def next_state(self, start: TableState, now: TableState, *, limit: StepLimit) -> TableState:
        """Decide how far to go from a state.

        Requests: the metadata of partitions with more rows than before, see
        :func:`coldparquet.follow.changes.find_grown`.

        Args:
            start: What was delivered.
            now: The table, as :meth:`look` returned it.
            limit: How much to deliver.

        Raises:
            ObjectChangedError: See :func:`coldparquet.follow.progress.next_state`.
        """
        found = changes_between(start, now)
        grown: frozenset[int] = frozenset()
        if self._on_change == "append":
            grown = frozenset(change.timestamp for change in found.larger)
        elif found.larger:
            snapshot = self._snapshot()
            grown = await find_grown(snapshot, found.larger, _by_begin(snapshot), options=self._options)
        decided = with_growth(found, grown)
        end = next_state(start, decided, limit=limit, on_change=self._on_change)
        _tell(decided, self._on_change)
        return end

    async def pieces(
        self,
        start: TableState,
        end: TableState,
        *,
        most_pieces: int | None = None,
        target_bytes: int | None = None,
    ) -> ScanPieces:
        """Plan the rows to deliver between two states, as pieces of work.

        The same two states always give the same rows, as long as the files of ``end`` exist. If a version is gone, the
        present one replaces it: with ``append`` its corresponding rows, with ``reread`` all its rows.

        Requests: the metadata of the partitions; on stores with storage classes 1 HEAD of each data object, as for any
        scan.

        Args:
            start: What was delivered before.
            end: The result of :meth:`next_state`, perhaps from an earlier run.
            most_pieces: Largest number of pieces.
            target_bytes: Approximate cost of each; see :meth:`coldparquet.table_scan.Scan.pieces`.

        Raises:
            ObjectChangedError: A version of ``end`` no longer exists (kind ``StepNotRepeatable``).
        """
        now = await self.look() if self._seen is None else self._seen
        windows = windows_between(start, end)
        try:
            return await self._pieces(windows, now, most_pieces, target_bytes)
        except ObjectChangedError as lost:
            if lost.kind != _NOT_REPEATABLE or self._on_change not in ("append", "reread"):
                raise
            now = await self.look()
            windows = _in_present_versions(windows, now, self._on_change, lost)
        return await self._pieces(windows, now, most_pieces, target_bytes)

    async def _pieces(
        self, windows: Sequence[RowWindow], now: TableState, most_pieces: int | None, target_bytes: int | None
    ) -> ScanPieces:
        scan = self._scan(windows, now)
        try:
            return await scan.pieces(most_pieces, target_bytes=target_bytes)
        except NotFoundError as error:
            if error.kind != "PartitionMissing":
                raise
            raise _not_repeatable(error.path) from error

    def _snapshot(self) -> TableSnapshot:
        return self._newest_scan().question.snapshot

    def _newest_scan(self) -> Scan:
        return self._table.scan(self._rows.columns, self._rows.where, options=self._options)

    def _scan(self, windows: Sequence[RowWindow], now: TableState) -> Scan:
        """Make the scan of some rows of some partitions, in versions that may be older than the snapshot's."""
        scan = self._newest_scan()
        snapshot = scan.question.snapshot
        if snapshot.files is None:
            partitions = _listed_versions(snapshot, windows, now)
        else:
            partitions = _recorded_versions(snapshot, snapshot.files, windows, self._options)
        question = replace(
            scan.question,
            snapshot=replace(snapshot, partitions=partitions),
            row_windows={
                partition.data_path: (window.first_row, window.stop_row)
                for partition, window in zip(partitions, windows, strict=True)
            },
        )
        return Scan(question=question, executor=scan.executor, schema=scan.schema)


def _by_begin(snapshot: TableSnapshot) -> dict[int, Partition]:
    """Return a transaction's Parquet partitions by their begins."""
    found = ((partition.location.record, partition) for partition in snapshot.partitions)
    return {record.timestamp: partition for record, partition in found if record is not None and record.is_parquet}


def _recorded_versions(
    snapshot: TableSnapshot, files: TableFiles, windows: Sequence[RowWindow], options: ReadOptions
) -> tuple[Partition, ...]:
    """Return the partitions in the wanted versions: those of the snapshot, or earlier ones that may still exist."""
    live = _by_begin(snapshot)
    wanted = [
        PartitionRecord(
            timestamp=window.partition.timestamp,
            row_count=window.partition.row_count,
            name_txn=window.partition.name_txn,
            is_parquet=True,
            parquet_size=window.partition.parquet_size_bytes,
        )
        for window in windows
    ]
    is_live = [
        record.timestamp in live and _version(live[record.timestamp].location.record) == _version(record)
        for record in wanted
    ]
    earlier = [record for record, is_found in zip(wanted, is_live, strict=True) if not is_found]
    if earlier and not snapshot.partitions:
        raise _not_repeatable(None)
    older: dict[int, Partition] = {}
    if earlier:
        table_path = snapshot.partitions[0].directory_path.rpartition("/")[0]
        locations = recorded_locations(table_path, replace(files, records=PartitionRecords.of(earlier)))
        older = {
            record.timestamp: Partition(location, snapshot.store, options)
            for record, location in zip(earlier, locations, strict=True)
        }
    return tuple(older.get(record.timestamp) or live[record.timestamp] for record in wanted)


def _version(record: PartitionRecord | None) -> tuple[int, int, int] | None:
    return None if record is None else (record.name_txn, record.parquet_size, record.row_count)


def _listed_versions(snapshot: TableSnapshot, windows: Sequence[RowWindow], now: TableState) -> tuple[Partition, ...]:
    """Return the partitions of a table without `_txn`, which have only the listed version."""
    by_begin = {
        partition.location.directory.timestamp_ns: partition
        for partition in snapshot.partitions
        if partition.location.directory is not None
    }
    versions = {partition.timestamp: partition.version for partition in now.partitions}
    for window in windows:
        wanted = window.partition
        if versions.get(wanted.timestamp) != wanted.version:
            found = by_begin.get(wanted.timestamp)
            raise _not_repeatable(None if found is None else found.directory_path)
    return tuple(by_begin[window.partition.timestamp] for window in windows)


def _in_present_versions(
    windows: Sequence[RowWindow], now: TableState, on_change: OnChange, lost: ObjectChangedError
) -> tuple[RowWindow, ...]:
    """Take the rows of versions that may be gone from the present ones; dropped partitions have none."""
    present = {partition.timestamp: partition for partition in now.partitions}
    moved = []
    for window in windows:
        partition = present.get(window.partition.timestamp)
        if partition is not None and partition.version == window.partition.version:
            moved.append(window)
        elif partition is not None and on_change == "reread":
            moved.append(RowWindow(partition=partition, first_row=0, stop_row=partition.row_count))
        elif partition is not None and partition.row_count >= window.stop_row:
            moved.append(RowWindow(partition=partition, first_row=window.first_row, stop_row=window.stop_row))
        elif on_change != "reread":
            raise lost
    return tuple(moved)


def _not_repeatable(path: str | None) -> ObjectChangedError:
    return ObjectChangedError(
        "these rows were to be handed over, but the partition was rewritten or removed before they were read, and this"
        " version of it is not there any more; begin with a new checkpoint, and keep replaced versions for longer than a"
        " step takes",
        kind=_NOT_REPEATABLE,
        path=path,
    )


def _tell(found: TableChanges, on_change: OnChange) -> None:
    """Log changes of delivered rows that were accepted."""
    if found.replaced is not None:
        _LOGGER.warning("the table is handed over anew: %s", found.replaced)
    accepted = [change for change in found.changes if change.kind in ("rewritten", "dropped")]
    for change in accepted[:_MOST_LOGGED_CHANGES]:
        partition = change.now if change.now is not None else change.before
        name = "" if partition is None else found.now.name_of(partition)
        _LOGGER.warning("partition %s was %s (%s); on_change=%s", name, change.kind, change.reason, on_change)
    if len(accepted) > _MOST_LOGGED_CHANGES:
        _LOGGER.warning("%s more partitions were rewritten or dropped", f"{len(accepted) - _MOST_LOGGED_CHANGES:,}")
