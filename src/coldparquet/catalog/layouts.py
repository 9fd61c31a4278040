"""Finds the files of a table in a layout of others: Hive directories, dated directories, loose files, QuestDB's cold storage.

A table of this library has one ``data.parquet`` in each partition directory, whose name states the times of its rows. Here
each file is a partition of its own, named by its path in the table. Nothing states its times, but for QuestDB's own
cold storage (``<table>/year=2026/month=02/day=10/data.parquet``). Keys of Hive directories become columns:
:mod:`coldparquet.catalog.hive_keys`.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from coldparquet.archive.objects import may_be_archived
from coldparquet.catalog.cold_storage import (
    COLD_SIDECAR_FILE,
    COLD_STATE_FILE,
    COLD_TABLES_FILE,
    NUMBERED_TABLE,
    cold_storage_directories,
)
from coldparquet.catalog.findings import Finding
from coldparquet.catalog.hive_keys import (
    KeyColumn,
    KeyKind,
    key_kind,
    key_value,
    parse_keys,
)
from coldparquet.catalog.objects import ListedObjects
from coldparquet.catalog.other_layouts import is_parquet_name, names_part_of_layout
from coldparquet.catalog.table_files import DATA_FILE, PartitionLocation
from coldparquet.concurrency import map_or_cancel
from coldparquet.errors import InvalidInputError, NotFoundError, UnsupportedError
from coldparquet.records import replace
from coldparquet.storage.log import note_metadata
from coldparquet.storage.requests import is_lasting_etag, is_written_after
from coldparquet.text import few_names, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.catalog.table_formats import LiveFiles
    from coldparquet.options import KeyTypes
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import Listing, ObjectInfo
    from coldparquet.storage.versions import Versions


_NOT_DATA = re.compile(r"\.crc$|(?:^|/)[_.]", re.ASCII)
"""Names in a path that no reader of lakes takes for data: hidden ones, and checksums."""
_LISTING_REASON = "list the files"
_LISTINGS_AT_ONCE = 32
_DEEPEST = 32
"""Levels of directories below a table; more are a loop of links."""


class Layout(Struct, frozen=True, kw_only=True):
    """The files of a table, and what their paths state."""

    locations: tuple[PartitionLocation, ...]
    """By the values of their keys, and then by path; in cold storage by time."""
    infos: tuple[ObjectInfo, ...]
    """What the listing says of them, and of their sidecars; empty where the files were named."""
    source: str
    """What was found, and what the directories state, as text."""
    is_cold_storage: bool = False
    """Whether QuestDB alone may write below the table's directory."""
    states_times: bool
    """Whether the directories state the times of their rows, so that files are in time order."""
    notes: tuple[str, ...] = ()
    unread: tuple[Finding, ...] = ()

    def expect_listed(self, versions: Versions) -> None:
        """Expect the versions that were listed, so that no object needs a HEAD, but for those that may be archived."""
        for info in self.infos:
            if is_lasting_etag(info.etag) and info.path not in versions.distrusted:
                versions.pin(info.path, info.etag)
                if not may_be_archived(info):
                    versions.note(info)


async def find_layout(store: ObjectStore, path: str, listing: Listing, *, keys: KeyTypes) -> Layout | None:
    """Find the files of a table that has no partition directories; None if there are none.

    Requests: 1 listing for 250 directories where the store lists what lies below them, all at once, else 1 for each directory.
    On S3 each takes 1 request per 1,000 objects.

    Raises:
        UnsupportedError: The paths of two files state different keys, or one states a key twice.
        NotFoundError: This is the root of QuestDB's cold storage, which has many tables.
    """
    path = path.rstrip("/")
    names = {info.path.rpartition("/")[2] for info in listing.objects}
    directories = [found.rpartition("/")[2] for found in listing.directories]
    if COLD_TABLES_FILE in names and any(map(NUMBERED_TABLE.fullmatch, directories)):
        tables = [name for name in directories if NUMBERED_TABLE.fullmatch(name)]
        raise NotFoundError(
            f"this is the root of a QuestDB's cold storage, with {plural(len(tables), 'table')}; open one of them:"
            f" {few_names(tables)}",
            kind="ManyTables",
            path=path,
        )
    shown_directories = [name for name in directories if not _NOT_DATA.search(name)]
    of_layout = [name for name in shown_directories if names_part_of_layout(name)]
    if not of_layout and not any(map(is_parquet_name, names)):
        return None
    infos = [*listing.objects, *await _list_below(store, [f"{path}/{name}" for name in shown_directories])]
    listed = {info.path[len(path) + 1 :]: info for info in infos}
    below = {name: info for name, info in listed.items() if not _NOT_DATA.search(name)}
    shown = {name: info for name, info in below.items() if all(map(names_part_of_layout, name.split("/")[:-1]))}
    unread = [name for name in below if name not in shown]
    files = {name: info for name, info in shown.items() if is_parquet_name(name) and info.size_bytes != 0}
    if not files:
        return None
    is_cold_storage = COLD_STATE_FILE in names or any(name.endswith(f"/{COLD_SIDECAR_FILE}") for name in listed)
    layout = _cold_storage(path, files, listed) if is_cold_storage else place_files(path, files, keys=keys)
    return replace(
        layout,
        source=f"directory listing: {layout.source}",
        is_cold_storage=is_cold_storage,
        notes=(*layout.notes, *_notes_on_others(shown, files)),
        unread=_unread([name for name in unread if is_parquet_name(name.rpartition("/")[2])]),
    )


async def _list_below(store: ObjectStore, directories: Sequence[str]) -> list[ObjectInfo]:
    """List everything below some directories of a table."""
    if store.has_version_listings:
        listed = await ListedObjects(store, reason=_LISTING_REASON).below(directories)
        wanted = frozenset(f"{one}/" for one in directories)
        beginnings = {len(one) for one in wanted}
        return [info for info in listed.values() if any(info.path[:length] in wanted for length in beginnings)]
    infos: list[ObjectInfo] = []
    level = list(directories)
    for _ in range(_DEEPEST):
        if not level:
            return infos

        async def list_directory(directory: str) -> Listing:
            listing = await store.list(directory)
            note_metadata(directory, None, _LISTING_REASON, operation="list")
            return listing

        listings = await map_or_cancel(list_directory, level, at_once=_LISTINGS_AT_ONCE)
        infos += [info for listing in listings for info in listing.objects]
        level = [
            directory
            for listing in listings
            for directory in listing.directories
            if not directory.rpartition("/")[2].startswith(("_", "."))
        ]
    raise UnsupportedError(
        f"there are more than {_DEEPEST} levels of directories here, perhaps a link that leads back; remove it",
        kind="DeepDirectories",
        path=level[0],
    )


def place_files(path: str, files: Mapping[str, ObjectInfo | None], *, keys: KeyTypes) -> Layout:
    """Place files, by their paths in the table, whose directories may state keys. No request."""
    of_directory = {name.rpartition("/")[0]: name for name in files}
    stated = {directory: parse_keys(name) for directory, name in of_directory.items()}
    first = next(iter(of_directory))
    names = [name for name, _ in stated[first]]
    for directory, found in stated.items():
        if [name for name, _ in found] != names:
            raise UnsupportedError(
                f"{of_directory[first]} states {_stated(names)}, and {of_directory[directory]}"
                f" {_stated([name for name, _ in found])}: these are files of two layouts; open one of their directories, or"
                " move away what is no part of the table",
                kind="MixedLayouts",
                path=path,
            )
    kinds = _kinds_of_keys(
        path, {name: [found[i][1] for found in stated.values()] for i, name in enumerate(names)}, keys
    )
    columns = {
        directory: tuple(KeyColumn(name, kinds[name], key_value(kinds[name], value)) for name, value in found)
        for directory, found in stated.items()
    }
    of_files = {name: columns[name.rpartition("/")[0]] for name in files}
    order = _in_order(of_files)
    of_keys = f", whose directories state {_stated(names, kinds)}" if names else ""
    return Layout(
        locations=tuple(_location(path, name, of_files[name], files[name]) for name in order),
        infos=tuple(info for name in order if (info := files[name]) is not None),
        source=f"{plural(len(files), 'file')}{of_keys}; no name states the times of rows",
        states_times=False,
    )


def _kinds_of_keys(path: str, stated: Mapping[str, Sequence[str | None]], types: KeyTypes) -> dict[str, KeyKind]:
    """Return the type of each key, given the values that the paths state: what the user says, else what all have."""
    if isinstance(types, str):
        return {name: KeyKind.TEXT if types == "text" else key_kind(set(values)) for name, values in stated.items()}
    refuse_unknown_keys(path, list(stated), types)
    kinds = {}
    for name, values in stated.items():
        kind = kinds[name] = KeyKind(types[name]) if name in types else key_kind(set(values))
        wrong = next((one for one in values if one is not None and key_value(kind, one) is None), None)
        if wrong is not None:
            raise InvalidInputError(
                f"ReadOptions.keys makes the key {name!r} {kind}, and the path of a file states {name}={wrong}, which is no {kind};"
                " leave its type out, or make it text",
                kind="KeyType",
                path=path,
                key=name,
            )
    return kinds


def refuse_unknown_keys(path: str, names: Sequence[str], types: KeyTypes) -> None:
    """Refuse a type of a key that a table does not have."""
    unknown = [] if isinstance(types, str) else [name for name in types if name not in names]
    if unknown:
        raise InvalidInputError(
            f"ReadOptions.keys gives a type to {unknown[0]!r}, and the paths of this table state {_stated(names)}",
            kind="UnknownKey",
            path=path,
            key=unknown[0],
        )


async def listed_live_files(store: ObjectStore, path: str, live: LiveFiles) -> Layout:
    """Place the files of a table with a log as a listing shows them. 1 request per 1,000 objects on S3.

    Raises:
        NotFoundError: A file that the log names is not there.
    """
    locations = tuple(_location(path, name, live.keys[name], None) for name in _in_order(live.keys))
    infos = {}
    if store.has_version_listings:
        listed = await store.list_between(path, start=f"{path}/", stop=f"{path}/\U0010ffff")
        infos = {info.path: info for info in listed}
        missing = [location.name for location in locations if location.data_path not in infos]
        if missing:
            raise NotFoundError(
                f"the log of the table names {few_names(missing)}, which is not there; copy the whole table",
                kind="PartitionMissing",
                path=path,
            )
    return Layout(
        locations=locations,
        infos=tuple(infos[location.data_path] for location in locations if infos),
        source=f"{live.version}, {plural(len(locations), 'file')}; no name states the times of rows",
        states_times=False,
    )


def _in_order(keys: Mapping[str, tuple[KeyColumn, ...]]) -> list[str]:
    """Return the paths of files, by the values of their keys, NULL last, and then by path."""
    return sorted(
        keys,
        key=lambda name: (*((key.value is None, b"" if key.value is None else key.value) for key in keys[name]), name),
    )


def _location(path: str, name: str, keys: tuple[KeyColumn, ...], info: ObjectInfo | None) -> PartitionLocation:
    directory = name.rpartition("/")[0]
    return PartitionLocation(
        name=name,
        directory_path=f"{path}/{directory}" if directory else path,
        data_path=f"{path}/{name}",
        sidecar_path=None,
        directory=None,
        listed_size_bytes=None if info is None else info.size_bytes,
        keys=keys,
    )


def _stated(names: Sequence[str], kinds: Mapping[str, str] | None = None) -> str:
    if not names:
        return "no key"
    shown = [name if kinds is None else f"{name} ({kinds[name]})" for name in names]
    return f"{'key' if len(names) == 1 else 'keys'} {', '.join(shown)}"


def _cold_storage(path: str, files: Mapping[str, ObjectInfo], listed: Mapping[str, ObjectInfo]) -> Layout:
    """Place the partitions of a table in QuestDB's own cold storage."""
    data = {name.rpartition("/")[0]: info for name, info in files.items() if name.rpartition("/")[2] == DATA_FILE}
    directories = cold_storage_directories(list(data))
    odd = [name for name, directory in zip(data, directories, strict=True) if directory is None]
    if odd or not data:
        raise UnsupportedError(
            f"this has the files of a QuestDB's cold storage, but {few_names(odd) or 'no directory'} is not named as its"
            " partitions are, such as year=2026/month=02/day=10; open such a directory alone",
            kind="MixedLayouts",
            path=path,
        )
    found = sorted(
        ((directory, name) for name, directory in zip(data, directories, strict=True) if directory is not None),
        key=lambda one: (one[0].timestamp_ns, one[1]),
    )
    for (before, first), (after, second) in pairwise(found):
        if before.stop_ns > after.start_ns:
            raise UnsupportedError(
                f"{first} and {second} are directories of the same time, so rows might be read twice; open one of them",
                kind="SamePartition",
                path=path,
            )
    others = [name for name in files if name.rpartition("/")[2] != DATA_FILE]
    locations = tuple(
        PartitionLocation(
            name=name,
            directory_path=f"{path}/{name}",
            data_path=f"{path}/{name}/{DATA_FILE}",
            sidecar_path=_sidecar_path(name, data[name], listed),
            directory=directory,
            listed_size_bytes=data[name].size_bytes,
        )
        for directory, name in found
    )
    return Layout(
        locations=locations,
        infos=(
            *(data[name] for _, name in found),
            *(listed[f"{one.name}/{COLD_SIDECAR_FILE}"] for one in locations if one.sidecar_path is not None),
        ),
        source=f"QuestDB's cold storage, {plural(len(locations), 'partition')} whose directories state"
        " the times of rows",
        states_times=True,
        notes=(
            "rows that the database has not moved to its cold storage yet are not here",
            *([f"not read, because a partition is one {DATA_FILE}: {few_names(others)}"] if others else []),
        ),
    )


def _sidecar_path(name: str, data: ObjectInfo, listed: Mapping[str, ObjectInfo]) -> str | None:
    """Return where the sidecar of a partition lies; None where it is older than the data, and so perhaps of other data."""
    sidecar = listed.get(f"{name}/{COLD_SIDECAR_FILE}")
    if sidecar is None or is_written_after(data.modified_s, sidecar.modified_s):
        return None
    return sidecar.path


def _notes_on_others(shown: Mapping[str, ObjectInfo], files: Mapping[str, ObjectInfo]) -> list[str]:
    """Tell of objects that are not read."""
    empty = [name for name, info in shown.items() if info.size_bytes == 0 and is_parquet_name(name)]
    others = [name for name, info in shown.items() if name not in files and name not in empty and info.size_bytes != 0]
    notes = [f"not read, because they are empty: {few_names(empty)}"] if empty else []
    return notes + (
        [f"not read, because they are not Parquet files by their names: {few_names(others)}"] if others else []
    )


def _unread(names: Sequence[str]) -> tuple[Finding, ...]:
    if not names:
        return ()
    return (
        Finding(
            severity="error",
            kind="UnreadFiles",
            message=f"rows are missing: {few_names(names)} not read, because the name of the directory is neither key=value nor a date",
            remedy="move away what is no part of the table, or open that directory alone",
        ),
    )
