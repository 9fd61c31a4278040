"""Detects files in a directory that are not part of a coldparquet table: stray files, and tables that keep a log.

Delta Lake, Apache Iceberg and Apache Hudi leave obsolete files behind; only the log of such a table tells which files
count. So its files are never read as if all of them did.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

from coldparquet.catalog.findings import Finding, with_remedy
from coldparquet.catalog.hive_keys import is_key_directory
from coldparquet.catalog.objects import ListedObjects
from coldparquet.catalog.table_files import DATA_FILE, TRANSACTION_FILE
from coldparquet.concurrency import map_or_cancel
from coldparquet.errors import NotFoundError, UnsupportedError
from coldparquet.format.partition_names import (
    has_parquet_suffix,
    is_partition_name,
    parse_partition_directory,
    partition_floor_ns,
)
from coldparquet.storage.local import LocalStore
from coldparquet.text import few_names, plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.format.partition_names import PartitionInterval
    from coldparquet.format.txn import LeftBehind
    from coldparquet.options import ReadOptions
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import Listing

LoggedFormat: TypeAlias = Literal["delta", "iceberg", "hudi"]
LOGGED_FORMATS: frozenset[str] = frozenset(get_args(LoggedFormat))
"""Formats whose tables keep a log of their files, by Spark's names."""

HOW_TO_CONVERT = (
    "'coldparquet convert SOURCE --to DESTINATION --from-format parquet --to-format coldparquet --timestamp COLUMN'"
)

_LOGGER = logging.getLogger("coldparquet")
_LOG = re.compile(
    r"(?:^|/)(?:(?P<delta>_delta_log)|(?P<hudi>\.hoodie|\.hoodie_partition_metadata(?:\.\w+)?)"
    r"|metadata/(?P<iceberg>version-hint\.text|[^/]*\.metadata\.json(?:\.gz)?))(?:/|$)"
)
"""Where in a path a log, or a part of one, is named."""
_ICEBERG_DIRECTORY = "metadata"
"""This name alone proves nothing; the directory's content decides."""
_MARKS_ON_DISK = ("_delta_log", ".hoodie", ".hoodie_partition_metadata", ".hoodie_partition_metadata.parquet")
"""Names that are sufficient evidence, in the order in which they are checked."""
_NAMES_AND_MARKS: dict[str, tuple[str, str]] = {
    "delta": ("Delta", "_delta_log"),
    "iceberg": ("Iceberg", "metadata/*.metadata.json"),
    "hudi": ("Hudi", ".hoodie"),
}
_OF_QUESTDB = re.compile(r"wal\d+|txn_seq|seq|.*(?:\.detached|\.attachable)", re.ASCII)
"""Directories that QuestDB keeps beside partitions, with and without a ``_txn`` beside them."""
_DATE = re.compile(r"(\d{4})[-_./]?(\d\d)(?:[-_./]?(\d\d))?", re.ASCII)
_LISTINGS_AT_ONCE = 32


def logged_format(paths: Iterable[str]) -> LoggedFormat | None:
    """Return the format whose log is among these paths, relative to the directory in question; None if none is."""
    for path in paths:
        match = _LOG.search(path)
        if match is not None:
            return cast("LoggedFormat", match.lastgroup)
    return None


async def refuse_logged_table(store: ObjectStore, path: str, listing: Listing) -> None:
    """Refuse the directory of a table that keeps a log. 1 more listing if it has a directory named ``metadata``."""
    names = [found.rpartition("/")[2] for found in (*listing.directories, *(info.path for info in listing.objects))]
    if any(found.endswith(f"/{_ICEBERG_DIRECTORY}") for found in listing.directories):
        try:
            metadata = await store.list(f"{path.rstrip('/')}/{_ICEBERG_DIRECTORY}")
            names += [f"{_ICEBERG_DIRECTORY}/{info.path.rpartition('/')[2]}" for info in metadata.objects]
        except NotFoundError:
            pass
    found = logged_format(names)
    if found is not None:
        raise logged_table_error(found, path)


async def refuse_inside_logged_table(store: ObjectStore, path: str) -> None:
    """Refuse, on a disk, a path inside a table that keeps a log: a directory below it, or one of its files. No request.

    Checks the directory, and its ancestors as long as their names are those of parts of a table, with one other name
    allowed. In an object store that would take a listing for each, so the check is skipped there.
    """
    if store.label != LocalStore.label:
        return
    found = await asyncio.to_thread(_logged_table_around, path)
    if found is not None:
        raise logged_table_error(*found)


def names_part(directory: str) -> bool:
    """Tell whether a directory name marks a part of a foreign table: ``name=value``, or the ``data`` of Iceberg."""
    return "=" in directory or directory == "data"


def _logged_table_around(path: str) -> tuple[LoggedFormat, str] | None:
    """Return the format and directory of a log beside or above a directory or file."""
    place = path.rstrip("/")
    directory = place.rpartition("/")[0] if is_parquet_name(place.rpartition("/")[2]) else place
    may_climb = True
    while directory and not os.path.exists(f"{directory}/{TRANSACTION_FILE}"):  # noqa: PTH110 - a path of the store
        found = logged_format(_marks_in(directory))
        if found is not None:
            return found, directory
        directory, _, name = directory.rpartition("/")
        if not (names_part(name) or is_partition_name(name)):
            if not may_climb:
                return None
            may_climb = False
    return None


def _marks_in(directory: str) -> Iterator[str]:
    """Return the log names that exist in a local directory: a few stats."""
    yield from (name for name in _MARKS_ON_DISK if os.path.exists(f"{directory}/{name}"))  # noqa: PTH110 - as above
    try:
        with os.scandir(f"{directory}/{_ICEBERG_DIRECTORY}") as entries:
            yield from (f"{_ICEBERG_DIRECTORY}/{entry.name}" for entry in entries)
    except OSError:  # absent, or access is denied
        return


def logged_table_error(found: LoggedFormat, path: str) -> UnsupportedError:
    """Explain why the files of a table that keeps a log are not read directly, and what to do."""
    name, mark = _NAMES_AND_MARKS[found]
    direct = "" if found == "hudi" else f"Open it with ReadOptions(format={found!r}), which reads the log. "
    return UnsupportedError(
        f"this belongs to a table of {name} ({mark}), and its log alone tells which of the Parquet files still count, so they"
        f" are not read as they lie there. {direct}With Spark and its package for {name} 'coldparquet convert NAME --to"
        f" DESTINATION --from-format {found} --to-format coldparquet --timestamp COLUMN --engine spark' makes a table of it"
        f" (NAME as Spark's catalog has it); without Spark let a reader of {name} write its rows to Parquet files, and convert"
        " these",
        kind="LoggedTable",
        path=path,
        format=found,
    )


def is_parquet_name(name: str) -> bool:
    """Tell whether a file name is that of Parquet; hidden files are temporary, or for private use."""
    return has_parquet_suffix(name) and not name.startswith(("_", "."))


def unread_beside(
    listing: Listing, locations: Sequence[PartitionLocation], more_files: Sequence[str], *, has_transaction: bool
) -> tuple[Finding, ...]:
    """Report what the directory of a table or partition contains that is not read although it may hold rows."""
    taken = {location.data_path for location in locations}
    names = [path.rpartition("/")[2] for path in listing.directories]
    files = [info.path.rpartition("/")[2] for info in listing.objects if info.path not in taken]
    certain = [name for name in files if is_parquet_name(name)]
    certain += [name for name in names if "=" in name or (not has_transaction and _is_other_date(name))]
    certain += more_files
    if has_transaction:
        certain += without_version(at_other_times(names, locations))
        return (_not_named(certain),) if certain else ()
    others = [name for name in names if name not in certain and _may_hold_rows(name)]
    findings = []
    if certain:
        findings.append(_rows_are_missing(certain))
    if others:
        findings.append(
            Finding(
                severity="warning",
                kind="UnreadDirectories",
                message=f"rows may be missing: {few_names(others)} not read, because no partition has such a name",
                remedy="move away what is no part of the table",
            )
        )
    return tuple(findings)


def at_other_times(names: Iterable[str], locations: Sequence[PartitionLocation]) -> list[str]:
    """Return directory names that a partition could have, at times at which the transaction has no partition.

    They may remain from dropped partitions or from an uncommitted write, or a user put them there.
    """
    held = [location.directory for location in locations if location.directory is not None]
    interval = held[0].interval if held else None
    starts = {_partition_start_ns(directory.timestamp_ns, interval) for directory in held}
    found = []
    for name in names:
        parsed = parse_partition_directory(name, interval=interval)
        if parsed is None:
            # QuestDB never names a directory by month in a table by day.
            is_other = is_partition_name(name)
        else:
            is_other = _partition_start_ns(parsed.timestamp_ns, interval) not in starts
        if is_other:
            found.append(name)
    return found


def without_version(names: Iterable[str]) -> list[str]:
    """Return these names without transaction numbers, which directories left by writers mostly have."""
    return [name for name in names if "." not in name]


def _partition_start_ns(timestamp_ns: int, interval: PartitionInterval | None) -> int:
    return timestamp_ns if interval is None else partition_floor_ns(timestamp_ns, interval)


def rows_left_behind(left_behind: LeftBehind | None) -> tuple[Finding, ...]:
    """Report the rows that a published table lacks."""
    if left_behind is None:
        return ()
    return (
        Finding(
            severity="warning",
            kind="RowsLeftBehind",
            message=f"rows are missing: {left_behind.row_count:,} rows in"
            f" {plural(left_behind.partition_count, 'native partition')} were left behind when this copy of the table was"
            " published",
            remedy="publish again with --native convert",
        ),
    )


def _not_named(names: Sequence[str]) -> Finding:
    return Finding(
        severity="warning",
        kind="UnreadFiles",
        message=f"not read, because the table's _txn does not name them: {few_names(names)}",
        remedy="move them away, or add their rows with write_table(mode='append')",
    )


def _rows_are_missing(names: Sequence[str]) -> Finding:
    return Finding(
        severity="error",
        kind="UnreadFiles",
        message=f"rows are missing: {few_names(names)} not read, because a partition is one {DATA_FILE} in a directory such as"
        " 2024-03-01",
        remedy=f"make one table of everything with {HOW_TO_CONVERT}, or move away what is no part of the table",
    )


def names_part_of_layout(name: str) -> bool:
    """Tell whether files below a directory of this name are data in some layout: a key, or a date."""
    return is_key_directory(name) or _DATED.fullmatch(name) is not None


_DATED = re.compile(r"\d{1,4}|\d{4}[-_]?W?\d\d([-_]?\d\d)?(T\d\d.*)?|\d{8,10}", re.ASCII)
"""Directories of years, months, days and hours: ``2024``, ``03``, ``2024-03-01``, ``20240301``, ``2024-03-01T12``."""


def _is_other_date(name: str) -> bool:
    """Tell whether a name is a date in another format, such as ``20240301`` and ``2024_03_01``."""
    match = _DATE.fullmatch(name)
    if match is None or is_partition_name(name):
        return False
    return is_partition_name("-".join(part for part in match.groups() if part))


def _may_hold_rows(name: str) -> bool:
    return not (is_partition_name(name) or name.startswith(("_", ".")) or _OF_QUESTDB.fullmatch(name))


def second_files(paths: Iterable[str], directories: Collection[str]) -> list[str]:
    """Return Parquet files that are beside a ``data.parquet``, or below its directory, and not read: ``2024-03-01/part-1.parquet``."""
    shown = set(paths)
    found = []
    for path in sorted(shown):
        above, _, name = path.rpartition("/")
        if not is_parquet_name(name):
            continue
        directory = _directory_above(above, directories)
        is_its_own = directory == above and name == DATA_FILE
        # Without a data.parquet, the read of the partition reports what the directory contains instead.
        if directory is not None and not is_its_own and f"{directory}/{DATA_FILE}" in shown:
            found.append(path[len(directory.rpartition("/")[0]) + 1 :])
    return found


def _directory_above(path: str, directories: Collection[str]) -> str | None:
    """Return the directory that is a path or above it; None where none is, or a part of the path in between is hidden."""
    place = path
    while place and place not in directories:
        place, _, name = place.rpartition("/")
        if name.startswith(("_", ".")):
            return None
    return place or None


async def find_second_files(store: ObjectStore, directories: Sequence[str], *, may_ask: bool) -> list[str]:
    """Find Parquet files in partition directories that are not read.

    Requests: none on a disk. Elsewhere none unless ``may_ask``; then 1 listing for 250 partitions where the store lists
    versions, else 1 for each.
    """
    if store.label == LocalStore.label:
        return await asyncio.to_thread(_second_files_on_disk, directories)
    if not may_ask:
        return []
    if store.has_version_listings:
        return second_files(await ListedObjects(store).below(directories), set(directories))

    async def listed(directory: str) -> list[str]:
        try:
            listing = await store.list(directory)
        except NotFoundError:
            return []
        return second_files([info.path for info in listing.objects], {directory})

    return [name for names in await map_or_cancel(listed, directories, at_once=_LISTINGS_AT_ONCE) for name in names]


def _second_files_on_disk(directories: Iterable[str]) -> list[str]:
    found = []
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                found_there = [(entry.name, entry.is_dir()) for entry in entries]
        except OSError:  # the read of the partition reports more
            continue
        found += second_files(
            [f"{directory}/{name}" for name, is_directory in found_there if not is_directory], {directory}
        )
        if (DATA_FILE, False) in found_there:  # else the table may have another layout
            found += [
                f"{directory.rpartition('/')[2]}/{name}"
                for name, is_directory in found_there
                if is_directory and names_part_of_layout(name)
            ]
    return found


def tell_of_unread(unread: Sequence[Finding], path: str, options: ReadOptions, *, told: Collection[str] = ()) -> None:
    """Raise an error where rows would be missing, unless the options allow that; then log what is not read."""
    for finding in unread:
        if finding.severity == "error" and options.unread == "refuse":
            raise UnsupportedError(
                f"{with_remedy(finding.message, finding.remedy)}; ReadOptions(unread='skip') reads the others alone",
                kind=finding.kind,
                path=path,
            )
        if finding.message not in told:
            _LOGGER.warning("%s: %s", path, finding.message)


def warn_of_second_files(paths: Iterable[str], directories: Collection[str]) -> None:
    """Log unread files from a listing for another purpose. No error: other reads of the table do not list."""
    names = second_files(paths, directories)
    if names:
        _LOGGER.warning("%s", _rows_are_missing(names).message)
