"""Finds the partitions of a table: by its transaction file, by a directory listing, or by given names."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import re
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from msgspec import Struct

from coldparquet.catalog.layouts import find_layout
from coldparquet.catalog.other_layouts import (
    HOW_TO_CONVERT,
    at_other_times,
    find_second_files,
    is_parquet_name,
    names_part_of_layout,
    refuse_inside_logged_table,
    refuse_logged_table,
    rows_left_behind,
    unread_beside,
    without_version,
)
from coldparquet.catalog.packed import is_of_transaction, remembered_files
from coldparquet.catalog.table_files import (
    DATA_FILE,
    SIDECAR_FILE,
    TRANSACTION_FILE,
    PartitionLocation,
    partition_location,
    read_table_files,
)
from coldparquet.concurrency import both
from coldparquet.errors import (
    AccessError,
    ColdParquetError,
    FormatError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from coldparquet.format.partition_names import (
    PartitionDirectory,
    infer_interval,
    is_partition_name,
    parse_partition_directory,
    recorded_directory_name,
)
from coldparquet.format.partition_records import partition_ranges
from coldparquet.plan.model import MetadataRequest
from coldparquet.plan.prune import misplaced_times, stated_time_range_ns
from coldparquet.records import replace
from coldparquet.storage.log import metadata_requests, note_metadata
from coldparquet.storage.requests import Listing
from coldparquet.text import few_names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Sequence

    from coldparquet.catalog.findings import Finding
    from coldparquet.catalog.layouts import Layout
    from coldparquet.catalog.packed import CatalogueFile
    from coldparquet.catalog.table_files import ColumnVersionsFor, TableFiles
    from coldparquet.format.sidecar import Sidecar
    from coldparquet.options import ReadOptions
    from coldparquet.storage.base import ObjectStore


_LATEST_TIMESTAMP = (1 << 63) - 1
"""The largest timestamp, which no half-open range of 64-bit times can contain."""
_YEAR_DIGITS = 4
"""Partition names begin with a year; other directories that do get a note."""
PUBLISHING_FILE = "_publishing"
"""Marks a table while its first publication runs, when only some of its partitions are there."""
_MANIFEST_NAME = re.compile(r"_published\.v\d{1,19}-[0-9a-f]{8}", re.ASCII)
WRITING_PREFIX = "_writing."
"""Prefix of the objects with which writers claim versions of partitions; see `coldparquet.write.versions`."""
_SET_ASIDE_SUFFIXES = (".detached", ".attachable")
"""Directories that a user took out of the table, or may put back into it."""


class Discovery(Struct, frozen=True, kw_only=True):
    """The partitions of a table, and how they were found."""

    locations: tuple[PartitionLocation, ...]
    """In time order."""
    files: TableFiles | None
    """The table's own files; None where the directory listing decided."""
    source: str
    """What decided, as text: ``transaction 12 of _txn``, ``directory listing, ...``."""
    notes: tuple[str, ...]
    """What a user should know about the choice, one sentence each."""
    unread: tuple[Finding, ...] = ()
    """What is in the directory and is not read although it may hold rows; the notes contain it, too."""
    requests: tuple[MetadataRequest, ...]
    layout: Layout | None = None
    """The layout of others that the table has; None where each partition is a directory of this library or QuestDB."""

    @property
    def other_notes(self) -> tuple[str, ...]:
        """The notes without what is not read, for callers that report that separately."""
        told = {finding.message for finding in self.unread}
        return tuple(note for note in self.notes if note not in told)


async def discover(  # noqa: PLR0913 - mostly keyword arguments
    store: ObjectStore,
    path: str,
    *,
    column_versions_for: ColumnVersionsFor = "native",
    ask_inside: bool = False,
    any_layout: ReadOptions | None = None,
    remembered: Awaitable[CatalogueFile] | None = None,
) -> Discovery:
    """Find the partitions below a directory.

    Requests: the listing, ``_txn`` and ``_meta``, all at the same time; see
    :func:`coldparquet.catalog.table_files.read_table_files` for what may follow. Where an index at a place of its own comes at
    the same time, or an earlier state of the table had no ``_txn`` (``remembered``), only the listing, unless that does not
    rule out a ``_txn``; no others then either, if it shows the versions that the index holds. Without a ``_txn``, 1 more listing if
    a directory is named ``metadata``, as in Iceberg tables. Where there are no partition directories and ``any_layout`` says
    how to read another layout, those of :func:`coldparquet.catalog.layouts.find_layout`.
    """
    listed = MetadataRequest(
        path=path, byte_range=None, reason="list the partitions", fetched_bytes=0, operation="list"
    )
    with metadata_requests([listed]) as requests:
        listing, files = await _list_and_read(
            store, path, column_versions_for=column_versions_for, remembered=remembered
        )
    if files is not None and not _is_partition(listing):
        locations = await asyncio.to_thread(recorded_locations, path.rstrip("/"), files)
        unread = (
            *rows_left_behind(files.transaction.left_behind),
            *unread_beside(listing, locations, (), has_transaction=True),
        )
        notes = _notes_beside_transaction(listing, locations)
        return Discovery(
            locations=locations,
            files=files,
            source=f"transaction {files.transaction.txn:,} of {TRANSACTION_FILE}",
            notes=(*notes, *(finding.message for finding in unread)),
            unread=unread,
            requests=tuple(requests),
        )
    if not listing.is_complete:
        listing = await store.list(path)
        requests.append(listed)
    await refuse_logged_table(store, path, listing)
    await refuse_inside_logged_table(store, path)
    locations, notes = _listed_locations(listing, path)
    if not locations:
        with metadata_requests() as more:
            layout = await find_layout(store, path, listing, keys=any_layout.keys) if any_layout else None
        if layout is None:
            raise _no_partitions(listing, path)
        return _of_layout(layout, (*requests, *more))
    directories = [] if _is_partition(listing) else [location.directory_path for location in locations]
    second_files = await find_second_files(store, directories, may_ask=ask_inside)
    unread = unread_beside(listing, locations, second_files, has_transaction=False)
    return Discovery(
        locations=locations,
        files=None,
        source=f"directory listing, because there is no {TRANSACTION_FILE}",
        notes=(*notes, *(finding.message for finding in unread)),
        unread=unread,
        requests=tuple(requests),
    )


def _of_layout(layout: Layout, requests: tuple[MetadataRequest, ...]) -> Discovery:
    return Discovery(
        locations=layout.locations,
        files=None,
        source=layout.source,
        notes=(*layout.notes, *(finding.message for finding in layout.unread)),
        unread=layout.unread,
        requests=requests,
        layout=layout,
    )


async def discover_any(store: ObjectStore, path: str, options: ReadOptions, *, ask_inside: bool = False) -> Discovery:
    """Find the partitions of a table in any layout.

    Requests: those of :func:`discover`; without a ``_txn``, but on a disk, 1 listing of the newest partition directory; those of
    :func:`discover_layout` if that has other files than ``data.parquet``.
    """
    found = await discover(store, path, ask_inside=ask_inside, any_layout=options)
    if found.files is not None or found.layout is not None or found.locations[-1].directory_path == path.rstrip("/"):
        return found
    newest = found.locations[-1]
    if (await store.infos_at_hand([newest.data_path]) or [None])[0] is not None:
        return found
    listing = await store.list(newest.directory_path, first_page_only=True)
    if any(info.path == newest.data_path for info in listing.objects) or not _holds_others(listing):
        return found
    return await discover_layout(store, path, options) or found


def _holds_others(listing: Listing) -> bool:
    """Tell whether a directory without ``data.parquet`` holds other Parquet files, or directories of another layout."""
    files = any(is_parquet_name(info.path.rpartition("/")[2]) for info in listing.objects)
    return files or any(names_part_of_layout(found.rpartition("/")[2]) for found in listing.directories)


async def discover_layout(store: ObjectStore, path: str, options: ReadOptions) -> Discovery | None:
    """Find the files in directories that are named like partitions, if none has a ``data.parquet``; None if there are none.

    Requests: 1 listing, and those of :func:`coldparquet.catalog.layouts.find_layout`.
    """
    listed = MetadataRequest(path=path, byte_range=None, reason="list the files", fetched_bytes=0, operation="list")
    with metadata_requests([listed]) as requests:
        listing = await store.list(path)
        versions = [parse_partition_directory(found.rpartition("/")[2]) for found in listing.directories]
        if any(version is not None and version.name_txn >= 0 for version in versions):
            return None  # of two versions of a partition one counts
        layout = await find_layout(store, path, listing, keys=options.keys)
    if layout is not None and any(
        location.name.endswith(f"/{DATA_FILE}") and location.name.count("/") == 1 for location in layout.locations
    ):
        return None  # partitions, some of which have another file by mistake
    return None if layout is None else _of_layout(layout, tuple(requests))


async def _list_and_read(
    store: ObjectStore,
    path: str,
    *,
    column_versions_for: ColumnVersionsFor,
    remembered: Awaitable[CatalogueFile] | None,
) -> tuple[Listing, TableFiles | None]:
    """List the first page of a directory and read its table files, all in one round trip.

    Where the transaction file decides, only the first page is read: it serves notes about ignored directories alone.
    For the same reason a store that refuses to list does not stop a read.
    """
    read = partial(read_table_files, store, path, column_versions_for=column_versions_for)
    if remembered is None:
        listing, files = await both(_listing_or_error(store, path), read())
    else:
        listing, files = await _listing_or_error(store, path), None
        if not isinstance(listing, Listing):
            files = await read()
        elif _shows_transaction(listing):
            files = await read(known=await remembered_files(await remembered, listing, path))
        elif not listing.is_complete and is_of_transaction(await remembered):
            files = await read()
        elif not listing.is_complete:
            # A lake of more directories than a page needs them all anyway.
            listing, files = await both(store.list(path), read())
            note_metadata(path, None, "list the partitions", operation="list")
    if isinstance(listing, Listing):
        if files is None and _shows_transaction(listing) and not _is_partition(listing):
            # It was written meanwhile, or the store denied it by mistake. Without it, native partitions would be
            # missing.
            files = await read()
            if files is None:
                raise StorageError(
                    f"the store lists a {TRANSACTION_FILE} here, and says that it does not exist; try again",
                    kind="ContradictoryStore",
                    path=path,
                )
        return listing, files
    if files is None:
        raise await _nothing_there(store, listing, path) if isinstance(listing, NotFoundError) else listing
    return Listing(directories=(), objects=(), is_complete=False), files


async def _listing_or_error(store: ObjectStore, path: str) -> Listing | AccessError | NotFoundError:
    try:
        return await store.list(path, first_page_only=True)
    except (AccessError, NotFoundError) as error:
        return error


async def _nothing_there(store: ObjectStore, error: NotFoundError, path: str) -> NotFoundError:
    """Make the error for a path that does not exist. 1 listing, of its parent directory."""
    if error.kind != NotFoundError.default_kind:
        return error  # it concerns more than this path, such as a bucket
    parent, _, name = path.rstrip("/").rpartition("/")
    names: list[str] = []
    with contextlib.suppress(ColdParquetError):
        listing = await store.list(parent, first_page_only=True) if parent else Listing(directories=(), objects=())
        names = [found.rpartition("/")[2] for found in (*listing.directories, *(info.path for info in listing.objects))]
    alike = few_names(difflib.get_close_matches(name, names, n=3) or sorted(names))
    advice = f"{parent} holds no {name!r}, but {alike}" if names else "check the path"
    return NotFoundError(f"there is no such table, partition or Parquet file; {advice}", path=path)


def _shows_transaction(listing: Listing) -> bool:
    return any(info.path.rpartition("/")[2] == TRANSACTION_FILE for info in listing.objects)


def _is_partition(listing: Listing) -> bool:
    """Tell whether a listed directory is itself a partition, not a table.

    A ``_txn`` does not rule that out: partitions that were once detached keep a copy of it. A ``data.parquet`` beside
    partition directories is a stray file and does not make a table a partition.
    """
    has_data = any(info.path.rpartition("/")[2] in {DATA_FILE, SIDECAR_FILE} for info in listing.objects)
    return has_data and not any(is_partition_name(path.rpartition("/")[2]) for path in listing.directories)


def recorded_locations(path: str, files: TableFiles) -> tuple[PartitionLocation, ...]:
    """Locate the partitions of a transaction, in time order."""
    records, metadata = files.records, files.metadata
    unit_ns = 1 if metadata.is_nanosecond else 1000
    starts, stops = partition_ranges(records.timestamps, metadata.interval, is_nanosecond=metadata.is_nanosecond)
    last = files.transaction.max_timestamp
    if last is not None:
        stops[-1:] = np.minimum(stops[-1:], min(last, _LATEST_TIMESTAMP - 1) + 1)
    locations = []
    for index, (timestamp, start, stop) in enumerate(
        zip(records.timestamps.tolist(), starts.tolist(), stops.tolist(), strict=True)
    ):
        record = records.record(index)
        name = recorded_directory_name(
            timestamp, metadata.interval, name_txn=record.name_txn, is_nanosecond=metadata.is_nanosecond
        )
        directory = PartitionDirectory(
            base_name=name.partition(".")[0],
            name_txn=record.name_txn,
            interval=metadata.interval,
            timestamp_ns=timestamp * unit_ns,
            start_ns=start * unit_ns,
            stop_ns=stop * unit_ns,
        )
        locations.append(
            PartitionLocation(
                name=name,
                directory_path=f"{path}/{name}",
                data_path=f"{path}/{name}/{DATA_FILE}",
                sidecar_path=f"{path}/{name}/{SIDECAR_FILE}",
                directory=directory,
                record=record,
            )
        )
    _check_distinct(locations, f"{path}/{TRANSACTION_FILE}")
    return tuple(locations)


def _check_distinct(locations: Sequence[PartitionLocation], path: str) -> None:
    """Refuse two records of one directory: partitions before 1970 share the name of the first one."""
    seen: set[str] = set()
    for location in locations:
        base_name = location.name.partition(".")[0]
        if base_name in seen:
            raise FormatError(
                f"two partitions are recorded that are both named {base_name}, so their rows would be read twice; the"
                " file is damaged: copy it from the database again",
                path=path,
                field="partitions",
                partition=base_name,
            )
        seen.add(base_name)


def unnamed_directories(listing: Listing, locations: Sequence[PartitionLocation]) -> tuple[list[str], list[str]]:
    """Return directories whose names look like partitions that this transaction does not have."""
    recorded = {location.name for location in locations}
    names = [path.rpartition("/")[2] for path in listing.directories]
    others = [name for name in names if name not in recorded and name[:_YEAR_DIGITS].isdecimal()]
    set_aside = [name for name in others if name.endswith(_SET_ASIDE_SUFFIXES)]
    return [name for name in others if not name.endswith(_SET_ASIDE_SUFFIXES)], set_aside


def _notes_beside_transaction(listing: Listing, locations: Sequence[PartitionLocation]) -> list[str]:
    """Report directories whose names look like partitions that this transaction does not have."""
    stale, set_aside = unnamed_directories(listing, locations)
    told = set(without_version(at_other_times(stale, locations)))  # see unread_beside
    stale = [name for name in stale if name not in told]
    notes = _notes_on_set_aside(set_aside)
    if stale:
        notes.append(f"not read, because {TRANSACTION_FILE} does not name them: {few_names(stale)}")
    if not listing.is_complete:
        notes.append("the listing was not read to its end: other directories may be left aside as well")
    return notes


def _notes_on_set_aside(names: Sequence[str]) -> list[str]:
    return [f"not read, because detached or not attached yet: {few_names(names)}"] if names else []


def _listed_locations(listing: Listing, path: str) -> tuple[tuple[PartitionLocation, ...], list[str]]:
    """Choose the partitions of a directory without a transaction file."""
    if _is_partition(listing):
        return (partition_location(path),), []
    if any(info.path.rpartition("/")[2] == PUBLISHING_FILE for info in listing.objects):
        raise NotFoundError(
            f"this table is being published for the first time, and has no {TRANSACTION_FILE} yet; wait until that is"
            " done, or publish again if it was interrupted",
            kind="NotPublishedYet",
            path=path,
        )
    if any(info.path.rpartition("/")[2].startswith(WRITING_PREFIX) for info in listing.objects):
        raise NotFoundError(
            f"this table is being written for the first time, and has no {TRANSACTION_FILE} yet; wait until that is done,"
            " or write it again if it was interrupted",
            kind="NotWrittenYet",
            path=path,
        )
    locations, notes = _newest_versions(listing)
    return tuple(locations), notes


def _no_partitions(listing: Listing, path: str) -> NotFoundError:
    return NotFoundError(
        f"no partitions here: expected a {TRANSACTION_FILE}, directories such as 2024-03-01 or 2024-03-01.12 with a {DATA_FILE} in"
        f" each, or where other layouts are read Parquet files, also below date=2024-03-01{_what_lies_there(listing)}",
        kind="NoPartitions",
        path=path,
    )


def _what_lies_there(listing: Listing) -> str:
    """Explain how to import a dataset of other tools, or name the directories, one of which may be the table."""
    names = [found.rpartition("/")[2] for found in listing.directories]
    if any("=" in name for name in names) or any(
        is_parquet_name(info.path.rpartition("/")[2]) for info in listing.objects
    ):
        return f"; of a dataset such as this one {HOW_TO_CONVERT} makes a table"
    return f"; it holds {few_names(names)}: if one of them is a table, open that" if names else ""


def chosen_partitions(
    locations: tuple[PartitionLocation, ...], names: Collection[str] | None, path: str
) -> tuple[PartitionLocation, ...]:
    """Return the partitions with these names, which may lack the version suffix; None selects all."""
    if names is None:
        return locations
    known = {name for location in locations for name in _names_of(location)}
    unknown = sorted(set(names) - known)
    if unknown:
        raise InvalidInputError(
            f"the table has no partition {few_names(unknown)}; 'coldparquet inspect' lists those that it has",
            kind="UnknownPartition",
            path=path,
        )
    return tuple(location for location in locations if _names_of(location) & set(names))


def _names_of(location: PartitionLocation) -> set[str]:
    base_name = location.directory.base_name if location.directory is not None else location.name
    return {location.name, base_name}


def _newest_versions(listing: Listing) -> tuple[list[PartitionLocation], list[str]]:
    """Choose the partitions of a table directory: for each time slice, the version with the highest suffix."""
    # A name such as 2024-03-05 is a day, or a piece of a month or year. The other names decide which.
    interval = infer_interval(path.rpartition("/")[2] for path in listing.directories)
    newest: dict[str, tuple[PartitionDirectory, PartitionLocation]] = {}
    notes = _notes_on_set_aside(unnamed_directories(listing, ())[1])
    replaced: list[tuple[str, str]] = []
    for path in listing.directories:
        location = partition_location(path, interval=interval, is_listed=True)
        directory = location.directory
        if directory is None:
            continue
        rival = newest.get(directory.base_name)
        if rival is None:
            newest[directory.base_name] = directory, location
            continue
        (_, older), newer = sorted((rival, (directory, location)), key=lambda found: found[0].name_txn)
        newest[directory.base_name] = newer
        replaced.append((older.name, newer[1].name))
    if len(replaced) == 1:
        notes.append(f"{replaced[0][0]} was not read: {replaced[0][1]} is a newer version of it")
    elif replaced:
        names = few_names([name for name, _ in replaced])
        notes.append(f"{len(replaced):,} older versions of partitions were not read: {names}")
    in_time_order = sorted(newest.values(), key=lambda found: found[0].start_ns)
    return [location for _, location in in_time_order], notes


NATIVE_PARTITION, NO_DATA_FILE = "NativePartition", "NoDataFile"
"""Kinds of the errors for a listed partition that is not in Parquet, and for one without any data."""

NOT_IN_PARQUET = frozenset({NATIVE_PARTITION, NO_DATA_FILE})
"""Kinds of the errors about listed directories without a Parquet file."""

_NATIVE_COLUMN_SUFFIX = ".d"
"""Suffix of the one file that every column has in QuestDB's own format."""


async def raise_what_is_missing(store: ObjectStore, location: PartitionLocation, error: NotFoundError) -> NoReturn:
    """Explain why the Parquet file is absent, from what the directory contains instead. 1 listing."""
    directory_path = location.directory_path
    try:
        listing = await store.list(directory_path, first_page_only=True)
    except NotFoundError:
        listing = Listing(directories=(), objects=())
    if any(info.path.endswith(_NATIVE_COLUMN_SUFFIX) for info in listing.objects):
        raise UnsupportedError(
            f"there is neither {SIDECAR_FILE} nor {DATA_FILE}: the partition is in QuestDB's native format, which"
            " can only be read with the table's _txn and _meta; copy them, or restrict the time range",
            kind=NATIVE_PARTITION,
            path=directory_path,
        ) from error
    names = [info.path.rpartition("/")[2] for info in listing.objects]
    misnamed = tuple(name for name in names if is_parquet_name(name))
    found = f"; it holds {few_names(misnamed)}: {advice_for_misnamed(misnamed)}" if misnamed else ""
    raise NotFoundError(
        f"there is no {DATA_FILE} in this directory, and a partition is one file of that name{found}; or the partition was"
        " removed or replaced since the table was opened (refresh it), or the copy of the table is not complete",
        kind=NO_DATA_FILE,
        path=location.data_path,
        misnamed=misnamed,
        holds_others=_holds_others(listing),
    ) from error


def advice_for_misnamed(names: Sequence[str]) -> str:
    """Advise what to do about Parquet files with these names, which a directory has in place of ``data.parquet``."""
    rename = "rename it, or " if len(names) == 1 else ""
    return f"{rename}convert the lake with 'coldparquet convert'"


def named_locations(paths: Sequence[str]) -> tuple[PartitionLocation, ...]:
    """Locate partitions that were given by path. No request."""
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
    """Refuse named partitions whose rows would be read twice or missed."""
    if len(locations) == 1:  # it may have any name; reads with a time range check the name
        return
    starts_ns = [_start_ns(location) for location in locations]
    for position, (location, sidecar) in enumerate(zip(locations, sidecars, strict=True)):
        if sidecar is None or sidecar.designated_timestamp is None:
            continue
        stated = stated_time_range_ns(sidecar, sidecar.designated_timestamp)
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


def is_manifest_name(name: str) -> bool:
    """Tell whether a name is that of a manifest, which ``coldparquet publish`` leaves beside each version of a table."""
    return _MANIFEST_NAME.fullmatch(name) is not None
