"""The `_txn` of the version that is about to be published, and its manifest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from coldparquet.catalog.partition_location import partition_location
from coldparquet.format.partition_ranges import partition_stops
from coldparquet.format.partition_records import PartitionRecords
from coldparquet.format.txn import Lag, LeftBehind
from coldparquet.format.txn_writer import encode_txn
from coldparquet.publish.published import Manifest
from coldparquet.publish.source import is_parquet, read_content, record_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.format.partition_records import PartitionRecord
    from coldparquet.publish.changes import Changes, PublishedAlready
    from coldparquet.publish.native_state import NativeState
    from coldparquet.publish.published import PublishedTable
    from coldparquet.publish.source import SourceTable
    from coldparquet.publish.transfer import WrittenPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class NextVersion:
    """What is to be committed."""

    transaction_data: bytes
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class _Member:
    """A partition of the next version."""

    record: PartitionRecord
    name: str
    source_name_txn: int
    native_state: NativeState | None
    time_bounds: tuple[int, int] | None
    """None where they were not looked at."""


async def next_version(
    source: SourceTable,
    published: PublishedTable,
    written: Sequence[WrittenPartition],
    changes: Changes,
) -> NextVersion:
    """Make the `_txn` that names these partitions, and the manifest that goes with it.

    It is the source's transaction, with its number, and with the partitions that were written or stay, under the names
    that they have at the destination; it says what was left behind. No request, but for up to 4 in the source and 4 at the
    destination where the least or the largest timestamp has to be looked up, because native partitions are left out.
    """
    members = sorted([*map(_of_written, written), *map(_of_unchanged, changes.unchanged)], key=_timestamp)
    records = PartitionRecords.of(member.record for member in members)
    transaction = replace(
        source.transaction,
        transient_row_count=int(records.row_counts[-1:].sum()),
        fixed_row_count=int(records.row_counts[:-1].sum()),
        min_timestamp=await _min_timestamp(source, published, members[0]) if members else None,
        max_timestamp=await _max_timestamp(source, published, members[-1]) if members else None,
        lag=Lag(),
        partitions=records,
        left_behind=_left_behind(source, changes),
    )
    data, version = encode_txn(transaction), published.version
    if version is not None and version.data == data and version.manifest is not None:
        return NextVersion(transaction_data=data, manifest=version.manifest)  # it is what is published
    manifest = Manifest(
        directories=frozenset(member.name for member in members),
        metadata_version=transaction.metadata_version,
        column_version=transaction.column_version,
        source_name_txns={
            member.name: member.source_name_txn
            for member in members
            if member.source_name_txn != member.record.name_txn
        },
        native_states={member.name: member.native_state for member in members if member.native_state is not None},
        previous=None if version is None else version.manifest_name,
    )
    return NextVersion(transaction_data=data, manifest=manifest)


def _left_behind(source: SourceTable, changes: Changes) -> LeftBehind | None:
    """Count what the copy lacks, and what the source lacks already if it is a copy itself."""
    rows = [record_of(location).row_count for location in changes.left_behind]
    lacking = source.transaction.left_behind or LeftBehind(partition_count=0, row_count=0)
    row_count = lacking.row_count + sum(rows)
    if not row_count:
        return None
    return LeftBehind(partition_count=lacking.partition_count + sum(map(bool, rows)), row_count=row_count)


async def _min_timestamp(source: SourceTable, published: PublishedTable, first: _Member) -> int | None:
    timestamp = first.record.timestamp
    if source.locations and record_of(source.locations[0]).timestamp == timestamp:
        return source.transaction.min_timestamp
    bounds = await _bounds(source, published, first)
    return timestamp if bounds is None else bounds[0]


async def _max_timestamp(source: SourceTable, published: PublishedTable, last: _Member) -> int | None:
    if source.locations and record_of(source.locations[-1]).timestamp == last.record.timestamp:
        return source.transaction.max_timestamp
    bounds = await _bounds(source, published, last)
    if bounds is not None:
        return bounds[1]
    stops = partition_stops(
        PartitionRecords.of([last.record]).timestamps,
        source.metadata.interval,
        is_nanosecond=source.metadata.is_nanosecond,
    )
    return int(stops[0]) - 1


async def _bounds(source: SourceTable, published: PublishedTable, member: _Member) -> tuple[int, int] | None:
    """Return the bounds of a partition that is not the first, or not the last, of the source."""
    if member.time_bounds is not None:
        return member.time_bounds
    for location in source.locations:
        if record_of(location).timestamp == member.record.timestamp and is_parquet(location):
            return (await read_content(source.store, location)).time_bounds
    location = partition_location(f"{published.path}/{member.name}")
    return (await read_content(published.store, replace(location, record=member.record))).time_bounds


def _of_written(written: WrittenPartition) -> _Member:
    source_name_txn = record_of(written.new.location).name_txn
    return _Member(written.record, written.name, source_name_txn, written.new.native_state, written.time_bounds)


def _of_unchanged(unchanged: PublishedAlready) -> _Member:
    return _Member(unchanged.record, unchanged.name, unchanged.source_name_txn, unchanged.native_state, None)


def _timestamp(member: _Member) -> int:
    return member.record.timestamp
