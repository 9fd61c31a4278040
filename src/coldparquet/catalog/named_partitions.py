"""Partitions of a table that somebody names, in place of all that lie there: where they are, without a listing."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from coldparquet.catalog.discovery import partition_location
from coldparquet.catalog.partition_location import DATA_FILE
from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coldparquet.catalog.partition_location import PartitionLocation
    from coldparquet.format.partition_names import PartitionDirectory


def table_of_partitions(urls: Iterable[str | os.PathLike[str]]) -> tuple[str, tuple[str, ...]]:
    """Split the URLs of partitions of one table.

    Args:
        urls: Their directories, or the ``data.parquet`` in them.

    Returns:
        The URL of the table's directory, and the names of the partitions' directories.

    Raises:
        InvalidInputError: There are none, or they are not all in one directory (kind ``NotOneTable``): columns of two tables
            may share ids and mean different things.
    """
    if isinstance(urls, (str, os.PathLike)):
        raise InvalidInputError("open_partitions takes a list of URLs; for one there is open_partition")
    tables, names = [], []
    for url in urls:
        directory = os.fspath(url).rstrip("/").removesuffix(f"/{DATA_FILE}")
        table, slash, name = directory.rpartition("/")
        tables.append(table if slash else ".")
        names.append(name)
    if not all(names) or not names:
        raise InvalidInputError(
            f"open_partitions was given {'an empty URL' if names else 'no URL'}; needed: at least one partition directory"
        )
    other = next((table for table in tables if table != tables[0]), None)
    if other is not None:
        raise InvalidInputError(
            f"partitions of one table lie in one directory, and these are in {tables[0]} and in {other}; open each table by"
            " itself",
            kind="NotOneTable",
        )
    return tables[0], tuple(names)


def named_locations(paths: Sequence[str]) -> tuple[PartitionLocation, ...]:
    """Say where partitions lie that are named. No request.

    Args:
        paths: Of one partition, or one Parquet file; or of directories of one table.

    Returns:
        In time order. Where a name alone does not tell how long a partition is, such as ``2024-03-05``, it ends where the next
        one begins: partitions of a table do not overlap.

    Raises:
        InvalidInputError: One of several has no partition's name (kind ``NotAPartition``), or two are of the same time (kind
            ``SamePartition``).
    """
    locations = [partition_location(path) for path in paths]
    if len(locations) == 1:
        return tuple(locations)
    ordered = sorted(((_directory_of(location), location) for location in locations), key=_start_of)
    for (directory, location), (next_directory, next_location) in pairwise(ordered):
        if directory.base_name == next_directory.base_name:
            raise InvalidInputError(
                f"{location.name} and {next_location.name} are one partition, whose rows would be read twice; name one of them",
                kind="SamePartition",
                path=location.directory_path,
            )
    stops = [directory.start_ns for directory, _ in ordered[1:]] + [ordered[-1][0].stop_ns]
    return tuple(
        replace(location, directory=replace(directory, stop_ns=min(stop, directory.stop_ns)))
        for (directory, location), stop in zip(ordered, stops, strict=True)
    )


def _directory_of(location: PartitionLocation) -> PartitionDirectory:
    if location.directory is None:
        raise InvalidInputError(
            f"{location.name} is no partition's name, such as 2024-03-01 or 2024-03-01.12; loose files are opened one by one",
            kind="NotAPartition",
            path=location.directory_path,
        )
    return location.directory


def _start_of(found: tuple[PartitionDirectory, PartitionLocation]) -> int:
    return found[0].start_ns
