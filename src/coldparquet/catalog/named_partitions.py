"""Partitions of a table that somebody names, in place of all that lie there: where they are, without a listing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from coldparquet.catalog.partition_location import partition_location
from coldparquet.errors import InvalidInputError
from coldparquet.format.partition_names import parse_partition_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.format.partition_names import PartitionDirectory


def checked_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of some partitions of a table.

    Raises:
        InvalidInputError: There are none, or one is not the name of a partition's directory (kind ``NotAPartition``).
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InvalidInputError(
            f"names is a {type(names).__name__}; needed: a list of names such as ['2024-03-01', '2024-03-02.12']"
        )
    listed = tuple(names)
    if not listed:
        raise InvalidInputError("no partition was named; open_table opens all of a table")
    for name in listed:
        if not isinstance(name, str) or parse_partition_directory(name) is None:
            raise InvalidInputError(
                f"{name!r} is no name of a partition's directory, such as '2024-03-01' or '2024-03-01.12'; one file is opened"
                " with open_partition",
                kind="NotAPartition",
            )
    return listed


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
    located = [(location, location.directory) for location in map(partition_location, paths)]
    ordered = sorted(((location, directory) for location, directory in located if directory is not None), key=_start_of)
    ended = []
    for (location, directory), (next_location, next_directory) in pairwise(ordered):
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
    return (*ended, ordered[-1][0])


def _start_of(located: tuple[PartitionLocation, PartitionDirectory]) -> int:
    return located[1].start_ns
