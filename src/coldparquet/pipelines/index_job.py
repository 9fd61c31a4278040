"""The jobs that write sidecars: ``index`` for the files as they are, ``migrate`` for what a QuestDB's ``_txn`` commits."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from coldparquet.catalog.discovery import discover
from coldparquet.catalog.pages import PAGES_FILE
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE
from coldparquet.concurrency import both, gather_or_cancel
from coldparquet.maintenance.index import SidecarWork
from coldparquet.maintenance.index_pages import make_window_slots
from coldparquet.maintenance.migrate import migrate_partition, recorded_partitions
from coldparquet.maintenance.pack import renew_catalogue
from coldparquet.pipelines.lakes import TableByTable, listed_objects, location_as_data, location_from_data
from coldparquet.pipelines.model import WorkItem, WorkPlan, WorkResult, nothing_to_do
from coldparquet.plan.advice import with_remedy
from coldparquet.storage.checked import CheckedStore

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.maintenance.index import IndexedPartition
    from coldparquet.pipelines.lakes import TableToPlan
    from coldparquet.pipelines.model import LakeStores, Outcome
    from coldparquet.plan.advice import Finding
    from coldparquet.storage.requests import ObjectInfo

_ITEMS_AT_ONCE = 32
"""An item is a few small requests, one after the other: as many as may be in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexJob(TableByTable):
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

    async def plan_table(self, table: TableToPlan) -> WorkPlan:
        """Find the partitions, and those that are indexed already.

        A listing tells which sidecars there are, and which were written after their Parquet files; those are kept without
        looking into them, which ``verify`` does. Where there is none, each sidecar is looked at in its turn.

        Requests: those of :func:`~coldparquet.catalog.discovery.discover`, and 1 listing per 1,000 objects.
        """
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
        settled = tuple(nothing_to_do(item, "kept", None) for item in plan.items if item.partition in kept)
        return replace(plan, items=items, settled=(*plan.settled, *settled))

    def _is_indexed(self, prefix: str, objects: Mapping[str, ObjectInfo]) -> bool:
        """Tell whether everything that is asked for was written after the Parquet file, by the times of a listing."""
        wanted = (DATA_FILE, SIDECAR_FILE, *([PAGES_FILE] if self.pages else []))
        found = [objects.get(f"{prefix}{name}") for name in wanted]
        times = [None if info is None else info.modified_s for info in found]
        return None not in times and times[0] == min(time for time in times if time is not None)

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Index one partition. Requests: as :func:`~coldparquet.maintenance.index.index_table` says of one."""
        store, path = stores.table(item)
        # Its own, which forgets with it which versions it saw.
        work = SidecarWork(
            CheckedStore(store),
            stores.read_options,
            replaces="stale",
            force=self.force,
            pages=self.pages,
            dry_run=self.dry_run,
            window_slots=await stores.once("window slots", _window_slots),
        )
        is_sidecar_absent = item.work.get("is_sidecar_absent", False)
        return _result(item, await work.index(location_from_data(item.work, path), is_sidecar_absent=is_sidecar_absent))

    async def finish(self, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores) -> tuple[WorkResult, ...]:
        """Renew the catalogues of the tables in which something was written."""
        return () if self.dry_run else await renew_catalogues(results, plan, stores, make=self.pack)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateJob(TableByTable):
    """Write the sidecars of older QuestDB tables; see :func:`coldparquet.maintenance.migrate.migrate_table`."""

    name: ClassVar[str] = "migrate"
    items_at_once: ClassVar[int] = _ITEMS_AT_ONCE

    force: bool = False
    """Also write sidecars anew that describe the committed size, and each ``_pages`` that exists."""
    pack: bool = False
    """Make the catalogue of each table that has none; one that is there is renewed in any case."""
    dry_run: bool = False
    """Write nothing, but derive every sidecar that would be written."""

    async def plan_table(self, table: TableToPlan) -> WorkPlan:
        """Find the partitions that ``_txn`` names. Requests: those of a listing and the table files."""
        found = await recorded_partitions(table.store, table.path)
        return _plan_partitions(table, found.locations, found.notes)

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Migrate one partition. Requests: as :func:`~coldparquet.maintenance.migrate.migrate_table` says of one."""
        store, path = stores.table(item)
        work = SidecarWork(
            CheckedStore(store),
            stores.read_options,
            replaces="useless",
            force=self.force,
            dry_run=self.dry_run,
            window_slots=await stores.once("window slots", _window_slots),
        )
        return _result(item, await migrate_partition(work, location_from_data(item.work, path)))

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
        item = replace(table.item, partition=location.name, work=location_as_data(location, table.path))
        if location.is_native:
            settled.append(nothing_to_do(item, "skipped", "in QuestDB's native format"))
        else:
            items.append(item)
    return WorkPlan(items=tuple(items), settled=tuple(settled), notes=table.named(notes))


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
