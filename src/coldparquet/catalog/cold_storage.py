"""QuestDB's own cold storage: the times that its directories state, and the places where nothing of ours is written.

The Enterprise edition lays tables out as ``<root>/trades~5/year=2026/month=02/day=10/data.parquet``, with ``_tables`` in the root,
``_manifest`` in a table and ``_pm.a`` beside the data. QuestDB must be the only writer below the root.
"""

from __future__ import annotations

import asyncio
import os
import re
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from coldparquet.catalog.hive_keys import is_key_directory
from coldparquet.catalog.other_layouts import is_parquet_name
from coldparquet.errors import AccessError, InvalidInputError, NotFoundError, UnsupportedError
from coldparquet.format.partition_names import (
    EARLIEST_NS,
    PartitionDirectory,
    PartitionInterval,
    day_start_ns,
    partition_stop_ns,
)
from coldparquet.storage.local import LocalStore
from coldparquet.text import few_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coldparquet.storage.base import ObjectStore

COLD_SIDECAR_FILE = "_pm.a"
COLD_STATE_FILE = "_manifest"
COLD_TABLES_FILE = "_tables"
NUMBERED_TABLE = re.compile(r".+~\d+", re.ASCII)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_KEYS = ("year", "month", "day", "hour")
_INTERVALS = (PartitionInterval.YEAR, PartitionInterval.MONTH, PartitionInterval.DAY, PartitionInterval.HOUR)
_MONDAY = 0


def cold_storage_directories(paths: Sequence[str]) -> list[PartitionDirectory | None]:
    """Return the times of directories such as ``year=2026/month=02/day=10`` in QuestDB's own cold storage.

    Where all begin on Mondays they may be weeks, so that each counts as one: a longer time drops no row.
    """
    parsed = [_parsed_time(path) for path in paths]
    is_weekly = all(found is None or _begins_week(*found) for found in parsed)
    directories: list[PartitionDirectory | None] = []
    for path, found in zip(paths, parsed, strict=True):
        if found is None:
            directories.append(None)
            continue
        timestamp_ns, interval = found
        if is_weekly and interval is PartitionInterval.DAY:
            interval = PartitionInterval.WEEK
        directories.append(
            PartitionDirectory(
                base_name=path,
                name_txn=-1,
                interval=interval,
                timestamp_ns=timestamp_ns,
                start_ns=EARLIEST_NS if timestamp_ns <= 0 else timestamp_ns,
                stop_ns=partition_stop_ns(timestamp_ns, interval),
            )
        )
    return directories


def _begins_week(timestamp_ns: int, interval: PartitionInterval) -> bool:
    begin = date.fromordinal(_EPOCH.toordinal() + timestamp_ns // day_start_ns(_EPOCH.toordinal() + 1))
    return interval is PartitionInterval.DAY and begin.weekday() == _MONDAY


def _parsed_time(path: str) -> tuple[int, PartitionInterval] | None:
    """Return begin and interval; None if the path is not made of year, month, day and hour, in this order."""
    segments = [segment.partition("=")[::2] for segment in path.split("/")]
    names, values = [name for name, _ in segments], [value for _, value in segments]
    if not names or tuple(names) != _TIME_KEYS[: len(names)] or not all(value.isdecimal() for value in values):
        return None
    year, month, day, hour = (*map(int, values), *(1, 1, 1, 0)[len(values) :])
    try:
        begin_ns = day_start_ns(date(year, month, day).toordinal())
    except ValueError:
        return None
    hours = hour if 0 <= hour < 24 else None
    return None if hours is None else (begin_ns + hours * 3600 * 1_000_000_000, _INTERVALS[len(values) - 1])


def refuse_writing_below(table_path: str, path: str) -> None:
    """Refuse to write the index of a table in cold storage to a place of which QuestDB is the only writer. No request."""
    segments = table_path.split("/")
    depth = next((number for number, name in enumerate(segments) if NUMBERED_TABLE.fullmatch(name)), len(segments) - 1)
    root = "/".join(segments[:depth])
    if f"{path}/".startswith(f"{root}/"):
        raise UnsupportedError(
            "this is a QuestDB's cold storage, and QuestDB must be the only writer below its root; name another place with --index"
            " URL, or ReadOptions(index=...)",
            kind="ColdStorage",
            path=table_path,
        )


async def refuse_place_of_others(
    store: ObjectStore, path: str, directories: Iterable[str], files: Iterable[str]
) -> None:
    """Refuse to begin a table where other tools keep files, or below the root of QuestDB's cold storage.

    Args:
        store: Of the table.
        path: Its directory.
        directories: Names of what is in it.
        files: The same.

    1 HEAD, for the file that marks such a root; another one below a directory such as ``trades~5``.

    Raises:
        InvalidInputError: There are Parquet files, whose rows readers would no longer see.
        UnsupportedError: QuestDB must be the only writer there.
    """
    names = [
        *(name for name in directories if is_key_directory(name)),
        *(name for name in files if is_parquet_name(name)),
    ]
    if names:
        raise InvalidInputError(
            f"files of another layout lie there ({few_names(sorted(names))}), and readers would no longer see their rows; write"
            " to an empty directory",
            kind="NotEmpty",
            path=path,
        )
    await refuse_below_cold_storage(store, path, is_new=True)


async def refuse_below_cold_storage(store: ObjectStore, path: str, *, is_new: bool) -> None:
    """Refuse a directory below the root of QuestDB's cold storage: where a table would begin, or one that is below ``trades~5``.

    No request where no part of the path is named like such a table; 1 HEAD for a table that would begin.
    """
    segments = path.rstrip("/").split("/")
    depths = {number for number, segment in enumerate(segments) if NUMBERED_TABLE.fullmatch(segment)}
    for depth in depths | ({len(segments) - 1} if is_new else set()):
        root = "/".join(segments[:depth])
        if root and await _exists(store, f"{root}/{COLD_TABLES_FILE}"):
            raise UnsupportedError(
                f"{root} is the root of a QuestDB's cold storage, and QuestDB must be the only writer below it; write to another"
                " place",
                kind="ColdStorage",
                path=path,
            )


async def _exists(store: ObjectStore, path: str) -> bool:
    if store.label == LocalStore.label:  # which may be confined to the table
        return await asyncio.to_thread(os.path.exists, path)
    try:
        await store.info(path)
    except (AccessError, NotFoundError):
        return False
    return True
