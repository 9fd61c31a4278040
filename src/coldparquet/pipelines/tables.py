"""Finding the tables and the partitions that a job is about, so that a bad table does not keep others from being planned."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from coldparquet.catalog.partition_location import DATA_FILE, SIDECAR_FILE, PartitionLocation
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import AccessError, ColdParquetError
from coldparquet.format.partition_intervals import PartitionInterval
from coldparquet.format.partition_names import PartitionDirectory
from coldparquet.format.partition_records import PartitionRecord
from coldparquet.pipelines.lakes import FoundTables, search_tables
from coldparquet.pipelines.work import NOT_OPENED, WorkItem, WorkPlan, failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from coldparquet.pipelines.access import LakeStores
    from coldparquet.pipelines.lakes import Lake
    from coldparquet.pipelines.work import WorkResult
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import ObjectInfo

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesToPlan:
    """The tables of all lakes, and the places in which nobody could look for any."""

    tables: tuple[TableToPlan, ...]
    failures: tuple[WorkResult, ...]
    """One for each lake, or directory of one, that could not be opened."""


async def plan_tables(
    lakes: Sequence[Lake], stores: LakeStores, plan_one: Callable[[TableToPlan], Awaitable[WorkPlan]]
) -> WorkPlan:
    """Plan table after table, some at once.

    Args:
        lakes: Where to look for tables.
        stores: Where they lie.
        plan_one: Plans one; its errors become results of that table.

    Raises:
        ColdParquetError: No lake could be opened; the error is that of the first one.
    """
    slots = asyncio.Semaphore(_TABLES_AT_ONCE)

    async def plan(table: TableToPlan) -> WorkPlan:
        async with slots:
            try:
                return await plan_one(table)
            except ColdParquetError as error:
                return WorkPlan(items=(), settled=(failure(table.item, error),))

    found = await tables_of(lakes, stores)
    plans = await gather_or_cancel([plan(table) for table in found.tables])
    return join_plans([WorkPlan(items=(), settled=found.failures), *plans])


async def listed_objects(table: TableToPlan) -> dict[str, ObjectInfo] | None:
    """List all objects below a table, by their paths. 1 request per 1,000 objects.

    Returns:
        None where the store has no such listings, or allows none: then nobody knows what is there.
    """
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
    )


async def tables_of(lakes: Sequence[Lake], stores: LakeStores) -> TablesToPlan:
    """Find the tables of all lakes, each once. Requests: those of :func:`~coldparquet.pipelines.lakes.search_tables`.

    Args:
        lakes: Where to look for tables.
        stores: Where they lie.

    Raises:
        ColdParquetError: No lake could be opened; the error is that of the first one.
    """
    tables: dict[str, TableToPlan] = {}
    failures: dict[str, WorkResult] = {}
    errors: list[ColdParquetError] = []
    slots = asyncio.Semaphore(_LAKES_AT_ONCE)
    searches = await gather_or_cancel([_search(lake, stores, slots) for lake in lakes])
    for lake, found in zip(lakes, searches, strict=True):
        if isinstance(found, ColdParquetError):
            errors.append(found)
            failures[lake.full_url] = _not_opened(WorkItem(lake=lake.full_url, table=""), found)
            continue
        for table in found.tables:
            item = WorkItem(lake=lake.url, table=table)
            store, path = stores.table(item)
            tables.setdefault(item.table_url, TableToPlan(item=item, store=store, path=path))
        for directory, error in found.failures.items():
            item = WorkItem(lake=lake.url, table=directory)
            failures[item.table_url] = _not_opened(item, error)
    if len(errors) == len(lakes):
        raise errors[0]
    return TablesToPlan(tables=tuple(tables.values()), failures=tuple(failures.values()))


async def _search(lake: Lake, stores: LakeStores, slots: asyncio.Semaphore) -> FoundTables | ColdParquetError:
    async with slots:
        try:
            store, root = stores.lake(lake.url)
            return await search_tables(store, root, lake.pattern)
        except ColdParquetError as error:
            return error


def _not_opened(place: WorkItem, error: ColdParquetError) -> WorkResult:
    return replace(failure(place, error), action=NOT_OPENED)


def location_as_data(location: PartitionLocation, table_path: str) -> dict[str, Any]:
    """Return where a partition lies as JSON can hold it, without the table's path."""
    directory = location.directory
    interval = None if directory is None or directory.interval is None else directory.interval.name
    return {
        "name": location.name,
        "is_whole_table": location.directory_path == table_path,
        "is_listed": location.is_listed,
        "directory": None if directory is None else {**asdict(directory), "interval": interval},
        "record": None if location.record is None else asdict(location.record),
    }


def location_from_data(data: Mapping[str, Any], table_path: str) -> PartitionLocation:
    """Return a partition as :func:`location_as_data` has described it.

    Args:
        data: What it returned.
        table_path: Directory of the table in its store.
    """
    name, directory, record = data["name"], data["directory"], data["record"]
    path = table_path if data["is_whole_table"] else f"{table_path}/{name}"
    if directory is not None:
        interval = directory["interval"]
        interval = None if interval is None else PartitionInterval[interval]
        directory = PartitionDirectory(**{**directory, "interval": interval})
    return PartitionLocation(
        name=name,
        directory_path=path,
        data_path=f"{path}/{DATA_FILE}",
        sidecar_path=f"{path}/{SIDECAR_FILE}",
        directory=directory,
        record=None if record is None else PartitionRecord(**record),
        is_listed=data["is_listed"],
    )
