"""Finding the partitions of a table by their directories' names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import InternalError, NotFoundError
from coldparquet.format.partition_names import infer_interval, parse_partition_directory
from coldparquet.partition import DATA_FILE, SIDECAR_FILE, PartitionLocation

if TYPE_CHECKING:
    from coldparquet.format.partition_names import PartitionInterval
    from coldparquet.storage.base import Listing, ObjectStore

_YEAR_DIGITS = 4
"""The names of partitions begin with a year; other directories that do are worth a note."""


async def find_partitions(store: ObjectStore, path: str) -> tuple[list[PartitionLocation], list[str]]:
    """List a directory and find the partitions in it. 1 request.

    Args:
        store: Where the directory lies.
        path: A directory of partition directories, or one partition directory.

    Returns:
        The partitions in time order, and a note for everything that a person should know about the choice.

    Raises:
        NotFoundError: There is nothing at ``path``, or nothing that is a partition.
    """
    listing = await store.list(path)
    names = {info.path.rpartition("/")[2] for info in listing.objects}
    if names & {DATA_FILE, SIDECAR_FILE}:
        return [partition_location(path)], []
    locations, notes = newest_versions(listing)
    if not locations:
        raise NotFoundError(
            "no partitions here: expected directories such as 2024-03-01 or 2024-03-01.12 with a"
            f" {DATA_FILE} in each, or a {DATA_FILE} itself",
            kind="NoPartitions",
            path=path,
        )
    if "_txn" in names:
        notes.append("the newest version of each directory was taken; _txn is not consulted by this version")
    return locations, notes


def partition_location(
    path: str, *, interval: PartitionInterval | None = None, is_listed: bool = False
) -> PartitionLocation:
    """Say where a partition lies, given its directory or its Parquet file and, where known, its table's interval."""
    path = path.rstrip("/")
    if path.endswith(".parquet"):
        directory_path, _, file_name = path.rpartition("/")
        sidecar_path = f"{directory_path}/{SIDECAR_FILE}" if file_name == DATA_FILE else None
        name = directory_path.rpartition("/")[2] if sidecar_path else file_name
        data_path = path
    else:
        name = path.rpartition("/")[2]
        data_path, sidecar_path = f"{path}/{DATA_FILE}", f"{path}/{SIDECAR_FILE}"
    directory = parse_partition_directory(name, interval=interval) if sidecar_path else None
    return PartitionLocation(
        name=name, data_path=data_path, sidecar_path=sidecar_path, directory=directory, is_listed=is_listed
    )


def newest_versions(listing: Listing) -> tuple[list[PartitionLocation], list[str]]:
    """Choose the partitions of a table directory: of each time slice the version with the highest suffix.

    Returns:
        The partitions in time order, and a note for each directory that looks like a partition but was not taken.
    """
    # A name such as 2024-03-05 is a day, or a piece of a month or of a year: the other names tell which.
    interval = infer_interval(path.rpartition("/")[2] for path in listing.directories)
    newest: dict[str, PartitionLocation] = {}
    notes = []
    for path in listing.directories:
        location = partition_location(path, interval=interval, is_listed=True)
        if location.directory is None:
            if location.name[:_YEAR_DIGITS].isdecimal():
                notes.append(f"{location.name} was not read: no partition of such a table has this name")
            continue
        rival = newest.get(location.directory.base_name)
        if rival is None or rival.directory is None:
            newest[location.directory.base_name] = location
            continue
        older, newer = sorted((rival, location), key=_version)
        newest[location.directory.base_name] = newer
        notes.append(f"{older.name} was not read: {newer.name} is a newer version of it")
    return sorted(newest.values(), key=_start), notes


def _version(location: PartitionLocation) -> int:
    if location.directory is None:
        raise InternalError("only directories with a partition name have versions")
    return location.directory.name_txn


def _start(location: PartitionLocation) -> int:
    if location.directory is None:
        raise InternalError("only directories with a partition name have a start")
    return location.directory.start_ns
