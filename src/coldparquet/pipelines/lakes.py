"""From what a person calls a lake to its tables and partitions; a bad table does not keep others from being planned."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from msgspec import structs

from coldparquet.catalog.hive_keys import is_key_directory, key_as_data, key_from_data
from coldparquet.catalog.other_layouts import is_parquet_name, refuse_inside_logged_table, refuse_logged_table
from coldparquet.catalog.table_files import (
    DATA_FILE,
    TRANSACTION_FILE,
    PartitionLocation,
    partition_location,
)
from coldparquet.concurrency import gather_or_cancel, map_or_cancel
from coldparquet.errors import AccessError, ColdParquetError, NotFoundError
from coldparquet.format.partition_names import (
    PartitionDirectory,
    PartitionInterval,
    is_partition_name,
)
from coldparquet.format.partition_records import PartitionRecord
from coldparquet.options import ReadOptions, checked_store_options
from coldparquet.pipelines.model import (
    FEW_AT_ONCE,
    NOT_OPENED,
    Access,
    Lake,
    LakeStores,
    WorkItem,
    WorkPlan,
    failure,
    join_url,
)
from coldparquet.records import replace
from coldparquet.storage.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from coldparquet.pipelines.model import Place, WorkResult
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import Listing, ObjectInfo


Done = TypeVar("Done")

_DEEPEST = 16
"""Levels of directories below a lake."""

_LISTINGS_AT_ONCE = 16


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
    """
    found = await search_tables(store, root, pattern)
    for error in found.failures.values():
        raise error
    return list(found.tables)


async def search_tables(store: ObjectStore, root: str, pattern: Sequence[str]) -> FoundTables:
    """Find the tables below a directory, and leave out what cannot be listed.

    A table is a directory with a ``_txn``, with Parquet files, or with directories named like partitions or ``key=value``. What
    lies below a table is its own.
    Requests: 1 listing per directory that is looked into, more for those with more than 1,000 entries.
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
            "no table lies there: expected directories with a _txn, with Parquet files, or with partitions such as"
            " 2024-03-01/data.parquet or date=2024-03-01"
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
        if TRANSACTION_FILE in _object_names(listing):  # of what lies below, only `_txn` knows what counts
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
    names = [path.rpartition("/")[2] for path in listing.directories]
    has_partitions = any(is_partition_name(name) or is_key_directory(name) for name in names)
    return has_partitions or any(map(is_parquet_name, _object_names(listing)))


def _object_names(listing: Listing) -> set[str]:
    return {info.path.rpartition("/")[2] for info in listing.objects}


_TABLES_AT_ONCE = 16
_LAKES_AT_ONCE = 4
"""A search lists 16 directories at once, and each lake has a store of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableToPlan:
    """One table of a lake, while a job is planned."""

    item: WorkItem
    """The table as work on the whole of it."""
    store: ObjectStore
    path: str
    """Of its directory, without a trailing slash."""
    stores: LakeStores
    is_alone: bool = False
    """Whether it was named itself, and not found in a lake."""

    def named(self, notes: Iterable[str]) -> tuple[str, ...]:
        """Say of which table notes are, where there may be others."""
        place = self.item.table or self.item.lake
        return tuple(notes) if self.is_alone else tuple(f"{place}: {note}" for note in notes)


@asynccontextmanager
async def one_table(
    place: Place, options: ReadOptions | None = None, *, destination_options: Mapping[str, Any] | None = None
) -> AsyncIterator[TableToPlan]:
    """Open one table as a lake of its own, for a block. No request."""
    options = options or ReadOptions()
    access = Access(
        storage_options=dict(place.storage_options or {}),
        destination_options=dict(destination_options or {}),
        max_concurrency=options.max_concurrency,
        store_options=checked_store_options(place.store_options),
    )
    async with place.opened(max_concurrency=options.max_concurrency) as opened:
        stores = LakeStores(access, read_options=options)
        stores.adopt(place.label, opened)
        item = WorkItem(lake=place.label, table="")
        path = opened.path.rstrip("/") or "/"
        yield TableToPlan(item=item, store=opened.stack.store, path=path, stores=stores, is_alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesToPlan:
    """The tables of all lakes, and the places that could not be searched."""

    tables: tuple[TableToPlan, ...]
    failures: tuple[WorkResult, ...]
    """One for each lake, or directory of one, that could not be opened."""


async def listed_objects(table: TableToPlan) -> dict[str, ObjectInfo] | None:
    """List all objects below a table, by their paths. 1 request per 1,000 objects."""
    if not table.store.has_version_listings:
        return None
    try:
        found = await table.store.list_between(table.path, start=f"{table.path}/", stop=f"{table.path}0")
    except AccessError:
        return None
    return {info.path: info for info in found}


def join_plans(plans: Iterable[WorkPlan]) -> WorkPlan:
    """Put plans behind each other."""
    plans = list(plans)
    return WorkPlan(
        items=tuple(item for plan in plans for item in plan.items),
        settled=tuple(result for plan in plans for result in plan.settled),
        notes=tuple(note for plan in plans for note in plan.notes),
        tables=tuple(table for plan in plans for table in plan.tables),
    )


async def tables_of(lakes: Sequence[Lake], stores: LakeStores) -> TablesToPlan:
    """Find the tables of all lakes, each once. Requests: those of :func:`~coldparquet.pipelines.lakes.search_tables`."""
    tables: dict[str, TableToPlan] = {}
    failures: dict[str, WorkResult] = {}
    errors: list[ColdParquetError] = []
    searches = await map_or_cancel(partial(_search, stores), lakes, at_once=_LAKES_AT_ONCE)
    for lake, found in zip(lakes, searches, strict=True):
        if isinstance(found, ColdParquetError):
            errors.append(found)
            failures[lake.full_url] = _not_opened(WorkItem(lake=lake.full_url, table=""), found)
            continue
        for table in found.tables:
            item = WorkItem(lake=lake.url, table=table)
            store, path = stores.table(item)
            tables.setdefault(item.table_url, TableToPlan(item=item, store=store, path=path, stores=stores))
        for directory, error in found.failures.items():
            item = WorkItem(lake=lake.url, table=directory)
            failures[item.table_url] = _not_opened(item, error)
    if len(errors) == len(lakes):
        raise errors[0]
    return TablesToPlan(tables=tuple(tables.values()), failures=tuple(failures.values()))


async def _search(stores: LakeStores, lake: Lake) -> FoundTables | ColdParquetError:
    try:
        store, root = stores.lake(lake.url)
        return await search_tables(store, root, lake.pattern)
    except ColdParquetError as error:
        return error


def _not_opened(place: WorkItem, error: ColdParquetError) -> WorkResult:
    return replace(failure(place, error), action=NOT_OPENED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRun:
    """What a job did to one table, in this process."""

    url: str
    results: tuple[WorkResult, ...]
    """About the table as it was planned, about its partitions, oldest first, and about what finished it."""
    notes: tuple[str, ...]
    report: Any = None
    """What the function for one table returns, where a job that goes its own way made it."""

    def done(self, kind: type[Done]) -> tuple[Done, ...]:
        """Return what was done, as far as it is of this kind."""
        return tuple(result.done for result in self.results if isinstance(result.done, kind))


class TableByTable(ABC):
    """A job that is planned one table after the other, some at once, and has nothing to finish unless it says so."""

    __slots__ = ()
    name: ClassVar[str]
    dry_run: bool
    tells_of_items: ClassVar[bool] = True
    """Whether progress is told item by item; False for jobs that tell more of it, see :attr:`LakeStores.on_progress`."""

    @property
    @abstractmethod
    def items_at_once(self) -> int:
        """See :class:`~coldparquet.pipelines.model.Job`."""

    @abstractmethod
    async def plan_table(self, table: TableToPlan) -> WorkPlan:
        """Find out what is left to do in one table; an error of ours is the result of this table alone."""

    @abstractmethod
    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """See :class:`~coldparquet.pipelines.model.Job`."""

    def report(self, run: TableRun) -> Any:
        """Return what the function for one table returns, of jobs that have one."""
        return run.report

    async def plan(self, lakes: Sequence[Lake], stores: LakeStores) -> WorkPlan:
        """Plan all tables. Requests: those of :func:`search_tables` for each lake, and of :meth:`plan_table` for each table."""

        async def plan_one(table: TableToPlan) -> WorkPlan:
            try:
                return await self.plan_table(table)
            except ColdParquetError as error:
                return WorkPlan(items=(), settled=(failure(table.item, error),))

        found = await tables_of(lakes, stores)
        plans = await map_or_cancel(plan_one, found.tables, at_once=_TABLES_AT_ONCE)
        return join_plans([WorkPlan(items=(), settled=found.failures), *plans])

    async def on_table(self, table: TableToPlan, on_progress: Callable[..., None] | None = None) -> TableRun:
        """Plan, run and finish one table, here. What is wrong with all of it is raised.

        ``on_progress`` is called for each partition with what was done and the number of all, or as the job says.
        """
        plan, stores = await self.plan_table(table), table.stores
        total = len(plan.items) + sum(result.done is not None and result.partition != "" for result in plan.settled)

        def note(result: WorkResult) -> None:
            if on_progress is not None and self.tells_of_items and result.partition:
                on_progress(result.done, total)

        async def run(item: WorkItem) -> WorkResult:
            result = await self.run(item, stores)
            note(result)
            return result

        if not self.tells_of_items:
            stores.on_progress = on_progress
        for result in plan.settled:
            note(result)
        at_once = stores.read_options.max_concurrency
        if self.items_at_once <= FEW_AT_ONCE:
            at_once = min(at_once, self.items_at_once)
        done = await map_or_cancel(run, plan.items, at_once=at_once)
        finished = await self.finish(done, plan, stores)
        place = {name: number for number, name in enumerate(plan.partitions)}
        results = sorted((*plan.settled, *done), key=lambda result: place.get(result.partition, -1))
        return TableRun(url=table.item.lake, results=(*results, *finished), notes=plan.notes)

    async def finish(
        self,
        results: Sequence[WorkResult],  # noqa: ARG002 - for jobs that finish something
        plan: WorkPlan,  # noqa: ARG002
        stores: LakeStores,  # noqa: ARG002
    ) -> tuple[WorkResult, ...]:
        """Do nothing."""
        return ()


def location_as_data(location: PartitionLocation, table_path: str) -> dict[str, Any]:
    """Return where a partition lies as JSON can hold it, without the table's path."""
    directory = location.directory
    interval = None if directory is None or directory.interval is None else directory.interval.name
    return {
        "name": location.name,
        "data": _below(location.data_path, table_path),
        "sidecar": None if location.sidecar_path is None else _below(location.sidecar_path, table_path),
        "is_listed": location.is_listed,
        "listed_size_bytes": location.listed_size_bytes,
        "directory": None if directory is None else {**structs.asdict(directory), "interval": interval},
        "record": None if location.record is None else asdict(location.record),
        "keys": [key_as_data(key) for key in location.keys],
    }


def _below(path: str, table_path: str) -> str:
    return path.removeprefix(f"{table_path.rstrip('/')}/")


def location_from_data(data: Mapping[str, Any], table_path: str) -> PartitionLocation:
    """Return a partition as :func:`location_as_data` has described it."""
    if table_path.endswith(".parquet"):
        return partition_location(table_path)
    name, directory, record = data["name"], data["directory"], data["record"]
    data_path = join_url(table_path.rstrip("/"), data["data"])
    if directory is not None:
        interval = directory["interval"]
        interval = None if interval is None else PartitionInterval[interval]
        directory = PartitionDirectory(**{**directory, "interval": interval})
    return PartitionLocation(
        name=name,
        directory_path=data_path.rpartition("/")[0],
        data_path=data_path,
        sidecar_path=None if data["sidecar"] is None else join_url(table_path.rstrip("/"), data["sidecar"]),
        directory=directory,
        record=None if record is None else PartitionRecord(**record),
        is_listed=data["is_listed"],
        listed_size_bytes=data["listed_size_bytes"],
        keys=tuple(key_from_data(key) for key in data["keys"]),
    )
