"""Partitions of a table that somebody names, in place of all that lie there: where they are, without a listing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from coldparquet.catalog.partition_location import partition_location
from coldparquet.errors import FormatError, InternalError, InvalidInputError
from coldparquet.plan.stated_times import misplaced_times, stated_times_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.format.partition_names import PartitionDirectory
    from coldparquet.format.sidecar import Sidecar


def named_locations(paths: Sequence[str]) -> tuple[PartitionLocation, ...]:
    """Say where partitions lie that are named. No request.

    Args:
        paths: Of one partition, or one Parquet file; or of several directories that are named as partitions are.

    Returns:
        In time order. Where a name does not tell how long a partition is, such as ``2024-03-05``, it ends where the next one
        begins: partitions of a table do not overlap.

    Raises:
        InvalidInputError: Two begin at the same time (kind ``SamePartition``).
    """
    if len(paths) == 1:
        return (partition_location(paths[0]),)
    ordered = sorted(map(partition_location, paths), key=_start_ns)
    ended = []
    for location, next_location in pairwise(ordered):
        directory, next_directory = _directory_of(location), _directory_of(next_location)
        if directory.start_ns == next_directory.start_ns:
            raise InvalidInputError(
                f"{location.name} and {next_location.name} begin at the same time: they are versions of one partition, whose"
                " rows would be read twice, or of different tables; name one of them",
                kind="SamePartition",
                path=location.directory_path,
            )
        is_told = directory.interval is not None
        stop_ns = directory.stop_ns if is_told else min(directory.stop_ns, next_directory.start_ns)
        ended.append(replace(location, directory=replace(directory, stop_ns=stop_ns)))
    return (*ended, ordered[-1])


def refuse_overlaps(locations: Sequence[PartitionLocation], sidecars: Sequence[Sidecar | None]) -> None:
    """Refuse partitions that were named, and of which rows would be read twice or missed.

    Args:
        locations: In time order.
        sidecars: Of each; None where it cannot be read now.

    Raises:
        FormatError: Rows of one are known to be of times before its name's, or after the beginning of the next one (kind
            ``TimeRangeMismatch``).
    """
    if len(locations) == 1:  # it may have any name; whoever asks about times is told if it is a wrong one
        return
    starts_ns = [_start_ns(location) for location in locations]
    for position, (location, sidecar) in enumerate(zip(locations, sidecars, strict=True)):
        if sidecar is None or sidecar.designated_timestamp is None:
            continue
        borders = np.array([0, sidecar.row_group_count])
        [stated] = stated_times_ns(sidecar, sidecar.designated_timestamp, borders)
        stop_ns = min([_directory_of(location).stop_ns, *starts_ns[position + 1 : position + 2]])
        found = misplaced_times(stated, (starts_ns[position], stop_ns))
        if found is not None:
            raise FormatError(
                f"its rows are of {found}, which is not between the time of its name and that of the next partition that was"
                " named, so that rows would be read twice or missed: one of them is an old version or misnamed; leave it out,"
                " or use open_table, which reads what the table's _txn names",
                kind="TimeRangeMismatch",
                path=location.directory_path,
                field="timestamp",
            )


def _start_ns(location: PartitionLocation) -> int:
    return _directory_of(location).start_ns


def _directory_of(location: PartitionLocation) -> PartitionDirectory:
    if location.directory is None:
        raise InternalError("one of several partitions has a name that was not looked at", path=location.directory_path)
    return location.directory
