"""Decides, without I/O, what to do with each partition so that the published table equals the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coldparquet.errors import InvalidInputError
from coldparquet.format.partition_names import UNVERSIONED, format_partition_directory, partition_floor_ns
from coldparquet.prices import storage_class_of
from coldparquet.publish.native import native_states
from coldparquet.publish.source import is_parquet, nothing_to_publish, record_of
from coldparquet.records import replace
from coldparquet.text import few_names, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.format.table_metadata import TableMetadata
    from coldparquet.prices import StorageClassRule
    from coldparquet.publish.destination import PublishedTable, PublishedVersion
    from coldparquet.publish.native import NativeState
    from coldparquet.publish.source import SourceTable

DroppedPartitions = Literal["refuse", "keep", "remove"]
"""What to do about published partitions that the source has dropped."""

NativePartitions = Literal["convert", "leave", "refuse"]
"""What to do about partitions of the source that are in QuestDB's native format."""

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class DirectoryVersion:
    """One version of a partition's directory."""

    name: str
    name_txn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartition:
    """A partition of the source that is not published in this state."""

    location: PartitionLocation
    candidates: tuple[DirectoryVersion, ...]
    """Names under which it may be published: the first one that no other content uses."""
    storage_class: str | None
    native_state: NativeState | None
    """The native state to convert; None where it is in Parquet already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedAlready:
    """A partition that stays as it is published."""

    name: str
    record: PartitionRecord
    source_name: str
    """Its directory in the source; the published one where the source has dropped it."""
    source_name_txn: int
    native_state: NativeState | None
    """The native state that it was converted from; None where it was in Parquet."""
    is_dropped: bool
    """Whether the source has dropped it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes, in time order."""

    new: tuple[NewPartition, ...]
    unchanged: tuple[PublishedAlready, ...]
    removed: tuple[PublishedAlready, ...]
    """Published before, and no longer part of the table."""
    left_behind: tuple[PartitionLocation, ...]
    """Native partitions of the source that are not in the published table."""


def plan_changes(  # noqa: PLR0913 - mostly keyword arguments
    source: SourceTable,
    published: PublishedTable,
    *,
    native: NativePartitions,
    dropped: DroppedPartitions,
    storage_classes: Sequence[StorageClassRule],
    now_s: float,
) -> Changes:
    """Compare the source with the published table.

    A partition is already published if the published record of the same time came from the same directory of the
    source, with as many rows and bytes: QuestDB only ever appends to the file of a directory. A converted partition is
    already published as long as the table's files record the same native state. A table without rows, as after
    ``TRUNCATE``, has dropped all its partitions: with ``dropped="remove"`` the published table becomes empty.
    """
    version = published.version
    if version is not None:
        _check_same_table(source, version, published.path)
    if native == "refuse":
        _refuse_native(source)
    before = {} if version is None else _published_already(version)
    states = native_states(source)
    new, unchanged, left_behind = [], [], []
    for location in source.locations:
        record = record_of(location)
        earlier = before.get(record.timestamp)
        state = states.get(record.timestamp)
        if earlier is not None and _is_same(record, state, earlier) and earlier.name in published.directories:
            unchanged.append(_of_source(earlier, location))
        elif state is not None and (native == "leave" or not record.row_count):
            left_behind.append(location)
        else:
            stop_ns = location.directory.stop_ns if location.directory is not None else 0
            new.append(
                NewPartition(
                    location=location,
                    candidates=_candidates(source, record, earlier, published),
                    storage_class=storage_class_of(stop_ns / _SECOND_NS, storage_classes, now_s=now_s),
                    native_state=state,
                )
            )
    gone = [
        before[timestamp] for timestamp in before.keys() - {record_of(found).timestamp for found in source.locations}
    ]
    gone_for_good, dropped_by_source = _split_gone(gone, source)
    if dropped_by_source and dropped == "refuse":
        raise _partitions_dropped(dropped_by_source, source, published.path)
    if dropped == "keep":
        unchanged += dropped_by_source
    else:
        gone_for_good += dropped_by_source
    gone_for_good += [
        before[record_of(location).timestamp] for location in left_behind if record_of(location).timestamp in before
    ]
    is_empty = not source.transaction.total_rows
    if is_empty and version is None:
        raise nothing_to_publish("the table has no rows", source.path)
    if not new and not unchanged and not is_empty:
        raise nothing_to_publish(
            "no partition of this table is in Parquet; publish them as Parquet (native='convert', --native convert), or"
            " let QuestDB convert old ones: ALTER TABLE ... CONVERT PARTITION TO PARQUET WHERE ...",
            source.path,
        )
    return Changes(
        new=tuple(new),
        unchanged=tuple(sorted(unchanged, key=_timestamp)),
        removed=tuple(sorted(gone_for_good, key=_timestamp)),
        left_behind=tuple(left_behind),
    )


def _refuse_native(source: SourceTable) -> None:
    native = [location for location in source.locations if not is_parquet(location) and record_of(location).row_count]
    if native:
        rows = sum(record_of(location).row_count for location in native)
        raise InvalidInputError(
            f"{rows:,} rows are in {plural(len(native), 'partition')} in QuestDB's native format"
            f" ({few_names([location.name for location in native])}); publish them as Parquet (native='convert', --native"
            " convert), or convert them in the database first",
            kind="NativePartitions",
            path=source.path,
            partitions=[location.name for location in native],
        )


def _check_same_table(source: SourceTable, version: PublishedVersion, path: str) -> None:
    ours, theirs = source.metadata, version.metadata
    if (ours.table_id, ours.interval, ours.designated_timestamp, ours.is_nanosecond) != (
        theirs.table_id,
        theirs.interval,
        theirs.designated_timestamp,
        theirs.is_nanosecond,
    ):
        raise InvalidInputError(
            f"another table is published there: its id is {theirs.table_id}, partitioned by {theirs.interval.name}; that"
            f" of the source is {ours.table_id}, by {ours.interval.name}. Publish to another place, or remove that one",
            kind="OtherTable",
            path=path,
        )
    if source.transaction.txn < version.transaction.txn:
        raise InvalidInputError(
            f"transaction {version.transaction.txn} of this table is published, but the source is at"
            f" {source.transaction.txn}: it is an older copy. Publish from the newest one, or to another place",
            kind="SourceIsOlder",
            path=path,
        )


def _published_already(version: PublishedVersion) -> dict[int, PublishedAlready]:
    """Return the published partitions by their timestamps."""
    manifest = version.manifest
    renamed = {} if manifest is None else manifest.source_name_txns
    states = {} if manifest is None else manifest.native_states
    records = version.transaction.partitions
    found = {}
    for index in range(len(records)):
        record = records.record(index)
        name = _name(record.timestamp, record.name_txn, version.metadata)
        found[record.timestamp] = PublishedAlready(
            name=name,
            record=record,
            source_name=name,
            source_name_txn=renamed.get(name, record.name_txn),
            native_state=states.get(name),
            is_dropped=True,
        )
    return found


def _of_source(earlier: PublishedAlready, location: PartitionLocation) -> PublishedAlready:
    return replace(earlier, source_name=location.name, is_dropped=False)


def _is_same(record: PartitionRecord, state: NativeState | None, earlier: PublishedAlready) -> bool:
    theirs = earlier.record
    if state is not None or earlier.native_state is not None:
        return state is not None and earlier.native_state is not None and earlier.native_state.has_same_rows(state)
    return (record.name_txn, record.parquet_size, record.row_count) == (
        earlier.source_name_txn,
        theirs.parquet_size,
        theirs.row_count,
    )


def _candidates(
    source: SourceTable, record: PartitionRecord, earlier: PublishedAlready | None, published: PublishedTable
) -> tuple[DirectoryVersion, ...]:
    """Return the possible versions of a published partition: that of the source, or the source's transaction.

    A converted partition may have its previous content, although the table's files record another state.
    """
    is_converted = not record.is_parquet
    before = () if earlier is None or not is_converted else (earlier.record.name_txn,)
    name_txns = dict.fromkeys((*before, record.name_txn, source.transaction.txn))
    if earlier is not None and earlier.name in published.directories and not is_converted:
        name_txns.pop(earlier.record.name_txn, None)  # it has the previous content of the partition
    return tuple(
        DirectoryVersion(_name(record.timestamp, name_txn, source.metadata), name_txn) for name_txn in name_txns
    )


def _split_gone(
    gone: Iterable[PublishedAlready], source: SourceTable
) -> tuple[list[PublishedAlready], list[PublishedAlready]]:
    """Separate pieces that were merged into another piece from partitions that the source dropped."""
    floors = {_floor_ns(record_of(location).timestamp, source.metadata) for location in source.locations}
    merged: list[PublishedAlready] = []
    dropped: list[PublishedAlready] = []
    for partition in gone:
        is_merged = _floor_ns(partition.record.timestamp, source.metadata) in floors
        (merged if is_merged else dropped).append(partition)
    return merged, dropped


def _partitions_dropped(dropped: list[PublishedAlready], source: SourceTable, path: str) -> InvalidInputError:
    names = few_names([partition.name for partition in sorted(dropped, key=_timestamp)])
    what = f"the source has dropped partitions that are published ({names})"
    if not source.transaction.total_rows:
        what = f"the source has no rows any more, as after TRUNCATE, but partitions of it are published ({names})"
    return InvalidInputError(
        f"{what}; say whether to keep them in the published table (dropped='keep', --dropped keep), as after moving them"
        " there, or to remove them (dropped='remove', --dropped remove)",
        kind="PartitionsDropped",
        path=path,
        partitions=[partition.name for partition in dropped],
    )


def _floor_ns(timestamp: int, metadata: TableMetadata) -> int:
    return partition_floor_ns(_nanoseconds(timestamp, metadata), metadata.interval)


def _name(timestamp: int, name_txn: int, metadata: TableMetadata) -> str:
    return format_partition_directory(
        _nanoseconds(timestamp, metadata),
        metadata.interval,
        name_txn=max(name_txn, UNVERSIONED),
        is_nanosecond=metadata.is_nanosecond,
    )


def _nanoseconds(timestamp: int, metadata: TableMetadata) -> int:
    return timestamp if metadata.is_nanosecond else timestamp * 1000


def _timestamp(partition: PublishedAlready) -> int:
    return partition.record.timestamp
