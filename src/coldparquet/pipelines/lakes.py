"""From what a person calls a lake to its tables: a table, a directory of tables at any depth, or a pattern of them."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from coldparquet.catalog.other_layouts import refuse_inside_logged_table, refuse_logged_table
from coldparquet.catalog.partition_location import DATA_FILE
from coldparquet.catalog.table_files import TRANSACTION_FILE
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import ColdParquetError, InvalidInputError, NotFoundError
from coldparquet.format.partition_names import parse_partition_directory
from coldparquet.storage.local.store import LocalStore
from coldparquet.storage.open_store import shown_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import Listing

_PATTERN_CHARACTERS = frozenset("*?[")

_DEEPEST = 16
"""Levels of directories below a lake."""

_LISTINGS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """Where to look for tables."""

    url: str
    """A directory: everything before the first part with a pattern."""
    pattern: tuple[str, ...] = ()
    """Patterns of the names of the directories below it, one for each level; empty for all tables at any depth."""

    @property
    def full_url(self) -> str:
        """The directory and the pattern."""
        return "/".join((self.url.rstrip("/"), *self.pattern)) if self.pattern else self.url

    @classmethod
    def parse(cls, url: str) -> Lake:
        """Take a URL apart.

        Args:
            url: ``s3://bucket/db/trades`` (a table), ``s3://bucket/db`` (all tables below it) or ``s3://bucket/db/*_2024``
                (those of these names, and all tables below such directories). ``*``, ``?`` and ``[ab]`` match within one name.

        Raises:
            InvalidInputError: It is empty, holds a secret, or its pattern begins where a bucket is named.
        """
        if shown_url(url) != url:
            raise InvalidInputError(
                "the URL of a lake becomes part of every piece of work, so that it must hold no password and no signature;"
                " pass them in storage_options, or leave them to the environment",
                path=shown_url(url),
            )
        scheme, separator, path = url.rpartition("://")
        parts = path.rstrip("/").split("/")
        plain = next((place for place, part in enumerate(parts) if _PATTERN_CHARACTERS & set(part)), len(parts))
        base = "/".join(parts[:plain])
        if not url or (plain < len(parts) and not base and separator):
            raise InvalidInputError(f"{url!r} names no lake; needed: s3://bucket/path, or a local path", path=url)
        if not base:
            base = "/" if path.startswith("/") else "."
        return cls(url=f"{scheme}{separator}{base}", pattern=tuple(parts[plain:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTables:
    """What a search for tables has found; paths are below the directory where it began."""

    tables: tuple[str, ...]
    """In alphabetical order; an empty path for the directory itself."""
    failures: Mapping[str, ColdParquetError]
    """Directories that could not be listed, in alphabetical order, and why."""


async def find_tables(store: ObjectStore, root: str, pattern: Sequence[str]) -> list[str]:
    """Find the tables below a directory, all of them or none: for readers, who must not miss any.

    Requests, arguments and errors: those of :func:`search_tables`.

    Raises:
        ColdParquetError: A directory cannot be listed.
    """
    found = await search_tables(store, root, pattern)
    for error in found.failures.values():
        raise error
    return list(found.tables)


async def search_tables(store: ObjectStore, root: str, pattern: Sequence[str]) -> FoundTables:
    """Find the tables below a directory, and leave out what cannot be listed.

    A table is a directory with a ``_txn``, or with directories named like partitions. What lies below a table is its own.
    Requests: 1 listing per directory that is looked into, more for those with more than 1,000 entries.

    Args:
        store: Where they lie.
        root: The directory.
        pattern: As of :class:`Lake`.

    Returns:
        The tables, and the directories that could not be listed.

    Raises:
        NotFoundError: There is no table (kind ``NoTables``), or nothing at all.
        ColdParquetError: The directory itself cannot be listed, or where no table was found, one below it.
    """
    search = _Search(store, root.rstrip("/") or "/")
    found = await search.matching("", tuple(pattern), 0)
    failures = dict(sorted(search.failures.items()))
    if "" in failures:
        raise _with_expectation(failures[""])
    if not found:
        for error in failures.values():
            raise error
        raise NotFoundError(
            "no table lies there: expected directories with a _txn, or with partitions such as 2024-03-01/data.parquet"
            + (f", below directories that match {'/'.join(pattern)}" if pattern else ""),
            kind="NoTables",
            path=root,
        )
    return FoundTables(tables=tuple(sorted(found)), failures=failures)


def _with_expectation(error: ColdParquetError) -> ColdParquetError:
    if not isinstance(error, NotFoundError) or error.kind != NotFoundError.default_kind:
        return error
    message = f"{error.message}; expected a table, or a directory with tables below it"
    return NotFoundError(message, path=error.path, **error.details)


class _Search:
    """Walks through directories; one that cannot be listed does not keep it from the others."""

    def __init__(self, store: ObjectStore, root: str) -> None:
        self._store = store
        self._root = root
        self._slots = asyncio.Semaphore(_LISTINGS_AT_ONCE)
        self.failures: dict[str, ColdParquetError] = {}

    async def matching(self, below: str, pattern: tuple[str, ...], depth: int) -> list[str]:
        if not pattern:
            return await self.tables(below, depth)
        listing = await self._list(below, first_page_only=False)
        if listing is None:
            return []
        if TRANSACTION_FILE in _object_names(listing):  # of what lies below, nobody but `_txn` knows what counts
            return []
        names = [path.rpartition("/")[2] for path in listing.directories]
        chosen = [f"{below}/{name}".lstrip("/") for name in names if fnmatchcase(name, pattern[0])]
        return [
            table
            for tables in await gather_or_cancel([self.matching(path, pattern[1:], depth + 1) for path in chosen])
            for table in tables
        ]

    async def tables(self, below: str, depth: int) -> list[str]:
        listing = await self._list(below, first_page_only=True)
        if listing is not None and not listing.is_complete and not _is_table(listing):
            listing = await self._list(below, first_page_only=False)
        if listing is None or await self._is_of_others(below, listing):
            return []
        if _is_table(listing):
            return [below]
        if depth >= _DEEPEST:
            return []
        inside = [f"{below}/{path.rpartition('/')[2]}".lstrip("/") for path in listing.directories]
        if self._store.label == LocalStore.label:
            inside = [path for path in inside if not await asyncio.to_thread(self._goes_round, path)]
        return [
            table
            for tables in await gather_or_cancel([self.tables(path, depth + 1) for path in inside])
            for table in tables
        ]

    async def _is_of_others(self, below: str, listing: Listing) -> bool:
        """Tell whether a directory is a table of Delta, Iceberg or Hudi, in which there is none of ours."""
        if TRANSACTION_FILE in _object_names(listing):
            return False
        try:
            await refuse_logged_table(self._store, self._path(below), listing)
            if not below:
                await refuse_inside_logged_table(self._store, self._root)
        except ColdParquetError as error:
            if not below or error.kind != "LoggedTable":
                self.failures[below] = error
            return True
        return False

    def _path(self, below: str) -> str:
        return f"{self._root.rstrip('/')}/{below}" if below else self._root

    def _goes_round(self, below: str) -> bool:
        """Tell whether symbolic links lead back to a directory on the way: two of them make 65,536 ways of 16 levels."""
        parts = below.split("/")
        on_the_way = [os.path.realpath("/".join((self._root, *parts[:depth]))) for depth in range(len(parts) + 1)]
        return len(set(on_the_way)) < len(on_the_way)

    async def _list(self, below: str, *, first_page_only: bool) -> Listing | None:
        async with self._slots:
            try:
                return await self._store.list(self._path(below), first_page_only=first_page_only)
            except ColdParquetError as error:
                self.failures[below] = error
                return None


def _is_table(listing: Listing) -> bool:
    if _object_names(listing) & {TRANSACTION_FILE, DATA_FILE}:
        return True
    return any(parse_partition_directory(path.rpartition("/")[2]) is not None for path in listing.directories)


def _object_names(listing: Listing) -> set[str]:
    return {info.path.rpartition("/")[2] for info in listing.objects}
