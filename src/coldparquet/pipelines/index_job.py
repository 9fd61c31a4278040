"""The jobs that write sidecars: ``index`` for the files as they are, ``migrate`` for what a QuestDB's ``_txn`` commits."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from coldparquet.catalog.discovery import discover
from coldparquet.catalog.pages import PAGES_FILE
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.maintenance.index import PartitionIndexer, index_with_pages
from coldparquet.maintenance.index_pages import PagesIndexer, make_window_slots
from coldparquet.maintenance.migrate import migrate_partition, recorded_partitions
from coldparquet.maintenance.pack import renew_catalogue
from coldparquet.pipelines.lakes import listed_objects, location_as_data, location_from_data, plan_tables
from coldparquet.pipelines.model import WorkItem, WorkPlan, WorkResult
from coldparquet.plan.advice import with_remedy
from coldparquet.storage.checked import CheckedStore

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence
    from typing import Literal

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.maintenance.index import IndexedPartition
    from coldparquet.pipelines.lakes import TableToPlan
    from coldparquet.pipelines.model import Lake, LakeStores, Outcome
    from coldparquet.plan.advice import Finding
    from coldparquet.storage.requests import ObjectInfo

_ITEMS_AT_ONCE = 32
"""An item is a few small requests, one after the other: as many as may be in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexJob:
    """Write the missing ``_pm`` of every partition of a lake; see :func:`coldparquet.maintenance.index.index_table`."""

    name: ClassVar[str] = "index"
    items_at_once: ClassVar[int] = _ITEMS_AT_ONCE

    pages: bool = False
    """Also write a ``_pages`` beside each sidecar."""
    force: bool = False
    """Write sidecars and ``_pages`` anew that exist."""
    pack: bool = False
    """Make the catalogue of each table that has none; one that is there is renewed in any case."""
    dry_run: bool = False
    """Write nothing, but derive every sidecar that would be written."""

    async def plan(self, lakes: Sequence[Lake], stores: LakeStores) -> WorkPlan:
        """Find the partitions, and those that are indexed already.

        A listing tells which sidecars there are, and which were written after their Parquet files; those are kept without
        looking into them, which ``verify`` does. Where there is none, each sidecar is looked at in its turn.

        Requests per table: those of :func:`~coldparquet.catalog.discovery.discover`, and 1 listing per 1,000 objects.
        """

        async def plan_one(table: TableToPlan) -> WorkPlan:
            found, objects = await both(discover(table.store, table.path, ask_inside=True), listed_objects(table))
            plan = _plan_partitions(table, found.locations, found.other_notes)
            plan = replace(plan, settled=(*plan.settled, *(_unread(table.item, one) for one in found.unread)))
            if objects is None or self.force:
                return plan
            kept = {item.partition for item in plan.items if self._is_indexed(f"{_directory(table, item)}/", objects)}
            items = tuple(
                replace(
                    item,
                    work={**item.work, "is_sidecar_absent": f"{_directory(table, item)}/{SIDECAR_FILE}" not in objects},
                )
                for item in plan.items
                if item.partition not in kept
            )
            settled = tuple(_settled(item, "kept", None) for item in plan.items if item.partition in kept)
            return replace(plan, items=items, settled=(*plan.settled, *settled))

        return await plan_tables(lakes, stores, plan_one)

    def _is_indexed(self, prefix: str, objects: Mapping[str, ObjectInfo]) -> bool:
        """Tell whether everything that is asked for was written after the Parquet file, by the times of a listing."""
        wanted = (DATA_FILE, SIDECAR_FILE, *([PAGES_FILE] if self.pages else []))
        found = [objects.get(f"{prefix}{name}") for name in wanted]
        times = [None if info is None else info.modified_s for info in found]
        return None not in times and times[0] == min(time for time in times if time is not None)

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Index one partition. Requests: as :func:`~coldparquet.maintenance.index.index_table` says of one."""
        tools = await _Tools.of(item, stores, replaces="all" if self.force else "stale", job=self)
        done = await index_with_pages(
            tools.location,
            tools.indexer,
            tools.pages_indexer,
            pages=self.pages,
            force=self.force,
            is_sidecar_absent=item.work.get("is_sidecar_absent", False),
        )
        return _result(item, done)

    async def finish(self, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores) -> tuple[WorkResult, ...]:
        """Renew the catalogues of the tables in which something was written."""
        return () if self.dry_run else await renew_catalogues(results, plan, stores, make=self.pack)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateJob:
    """Write the sidecars of older QuestDB tables; see :func:`coldparquet.maintenance.migrate.migrate_table`."""

    name: ClassVar[str] = "migrate"
    items_at_once: ClassVar[int] = _ITEMS_AT_ONCE

    force: bool = False
    """Also write sidecars anew that describe the committed size, and each ``_pages`` that exists."""
    pack: bool = False
    """Make the catalogue of each table that has none; one that is there is renewed in any case."""
    dry_run: bool = False
    """Write nothing, but derive every sidecar that would be written."""

    async def plan(self, lakes: Sequence[Lake], stores: LakeStores) -> WorkPlan:
        """Find the partitions that ``_txn`` names. Requests: those of a listing and the table files per table."""

        async def plan_one(table: TableToPlan) -> WorkPlan:
            found = await recorded_partitions(table.store, table.path)
            return _plan_partitions(table, found.locations, found.notes)

        return await plan_tables(lakes, stores, plan_one)

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Migrate one partition. Requests: as :func:`~coldparquet.maintenance.migrate.migrate_table` says of one."""
        tools = await _Tools.of(item, stores, replaces="all" if self.force else "useless", job=self)
        done = await migrate_partition(tools.location, tools.indexer, tools.pages_indexer, force=self.force)
        return _result(item, done)

    async def finish(self, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores) -> tuple[WorkResult, ...]:
        """Renew the catalogues of the tables in which something was written."""
        return () if self.dry_run else await renew_catalogues(results, plan, stores, make=self.pack)


async def renew_catalogues(
    results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores, *, make: bool
) -> tuple[WorkResult, ...]:
    """Renew the catalogue of every table in which partitions were written, or of all tables of the plan.

    Requests: those of :func:`~coldparquet.maintenance.pack.renew_catalogue` for each of these tables.
    """
    changed: dict[str, set[str]] = {item.table_url: set() for item in plan.items} if make else {}
    for result in results:
        if result.outcome == "done" and result.partition:
            changed.setdefault(result.table, set()).add(result.details.get("directory", result.partition))
    items = {item.table_url: item for item in plan.items}
    whole_tables = {item.table_url for item in plan.items if item.work.get("is_whole_table")}

    async def renew(item: WorkItem, directories: set[str]) -> WorkResult | None:
        store, path = stores.table(item)
        report = await renew_catalogue(store, path, stores.read_options, changed=directories, make=make)
        if report is None:
            return None
        outcome: Outcome = (
            "failed" if report.action == "failed" else "done" if report.action == "written" else "nothing to do"
        )
        return WorkResult(
            table=item.table_url,
            outcome=outcome,
            action=f"catalogue {report.action}",
            reason=report.reason,
            size_bytes=report.catalogue_bytes,
        )

    renewals = [
        renew(items[table], directories)
        for table, directories in changed.items()
        if table in items and table not in whole_tables
    ]
    return tuple(result for result in await gather_or_cancel(renewals) if result is not None)


def _plan_partitions(table: TableToPlan, locations: Sequence[PartitionLocation], notes: Sequence[str]) -> WorkPlan:
    """Make one item per Parquet partition."""
    items, settled = [], []
    for location in locations:
        data = location_as_data(location, table.path)
        item = WorkItem(lake=table.item.lake, table=table.item.table, partition=location.name, work=data)
        if location.is_native:
            settled.append(_settled(item, "skipped", "in QuestDB's native format"))
        else:
            items.append(item)
    place = table.item.table or table.item.lake
    return WorkPlan(items=tuple(items), settled=tuple(settled), notes=tuple(f"{place}: {note}" for note in notes))


def _unread(table: WorkItem, finding: Finding) -> WorkResult:
    is_error = finding.severity == "error"
    return WorkResult(
        table=table.table_url,
        outcome="failed" if is_error else "nothing to do",
        action=finding.severity,
        reason=with_remedy(finding.message, finding.remedy),
        kind=finding.kind if is_error else None,
    )


def _directory(table: TableToPlan, item: WorkItem) -> str:
    return location_from_data(item.work, table.path).directory_path


def _settled(item: WorkItem, action: str, reason: str | None) -> WorkResult:
    return WorkResult(
        table=item.table_url, partition=item.partition, outcome="nothing to do", action=action, reason=reason
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tools:
    """What writes the sidecar of one partition. Each has a store of its own, which forgets what it saw with it."""

    location: PartitionLocation
    indexer: PartitionIndexer
    pages_indexer: PagesIndexer

    @classmethod
    async def of(
        cls,
        item: WorkItem,
        stores: LakeStores,
        *,
        replaces: Literal["stale", "useless", "all"],
        job: IndexJob | MigrateJob,
    ) -> _Tools:
        store, path = stores.table(item)
        checked, options = CheckedStore(store), stores.read_options
        slots = await stores.once("window slots", _window_slots)
        return cls(
            location=location_from_data(item.work, path),
            indexer=PartitionIndexer(checked, options, replaces=replaces, dry_run=job.dry_run),
            pages_indexer=PagesIndexer(checked, options, force=job.force, dry_run=job.dry_run, window_slots=slots),
        )


async def _window_slots() -> asyncio.Semaphore:
    return make_window_slots()


def _result(item: WorkItem, done: IndexedPartition) -> WorkResult:
    pages = done.pages
    actions = {done.action} | ({pages.action} if pages is not None else set())
    outcome: Outcome = "nothing to do"
    if "failed" in actions:
        outcome = "failed"
    elif actions & {"written", "would write"}:
        outcome = "done"
    reasons = [done.reason, None if pages is None else pages.reason]
    action = done.action if pages is None or done.action == pages.action else f"{done.action}, pages {pages.action}"
    return WorkResult(
        table=item.table_url,
        partition=item.partition,
        outcome=outcome,
        action=action,
        reason="; ".join(reason for reason in reasons if reason) or None,
        kind="NotIndexed" if outcome == "failed" else None,
        size_bytes=(done.sidecar_bytes or 0) + ((pages.size_bytes or 0) if pages is not None else 0),
        details={
            "has_timestamp": done.has_timestamp,
            "is_stale": done.is_stale,
            "pages": None if pages is None else asdict(pages),
        },
    )
