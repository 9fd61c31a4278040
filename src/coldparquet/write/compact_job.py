"""The job that writes partitions anew which have many dead bytes or small row groups."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import ColdParquetError, InvalidInputError
from coldparquet.maintenance.pack import renew_catalogues, result_of_pack
from coldparquet.options import MIB
from coldparquet.pipelines.lakes import TableByTable
from coldparquet.pipelines.model import WorkItem, WorkPlan, WorkResult, failure
from coldparquet.storage.local import LocalStore
from coldparquet.write.compact import CompactionOptions, compact_table
from coldparquet.write.files import LocalFiles
from coldparquet.write.options import WriteOptions
from coldparquet.write.versions import purge_superseded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coldparquet.pipelines.lakes import TableToPlan
    from coldparquet.pipelines.model import LakeStores, Outcome, Place
    from coldparquet.write.compact import CompactedPartition, CompactionProgress, CompactionReport

_HOUR_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactJob(TableByTable):
    """Write partitions anew where that is worth it; see :func:`coldparquet.write.compact.compact_table`.

    No QuestDB may have the tables open. Partitions of one table may be worked on in several places: each commits by itself,
    and the second one begins its commit again from the newer state.

    Raises:
        InvalidInputError: A number is too small.
    """

    name: ClassVar[str] = "compact"
    items_at_once: ClassVar[int] = 1

    partitions: tuple[str, ...] | None = None
    """Names of the partitions to look at, with or without their version suffix; None for all."""
    force: bool = False
    """Write partitions anew even if that is not worth it."""
    row_group_rows: int = WriteOptions().row_group_rows
    """Rows that a row group should have; partitions with much smaller ones are due."""
    purge: bool = False
    """Afterwards remove versions that were replaced long enough ago."""
    purge_after_hours: float = 24.0
    """How long readers may go on reading a version that was replaced."""
    pack: bool = False
    """Make the catalogue of each table that has none; one that is there is renewed in any case."""
    memory_limit_bytes: int = 64 * MIB
    """Rows of one partition that were fetched or decoded and not written yet, in each process."""
    dry_run: bool = False
    """Write nothing; say what would be written."""

    def __post_init__(self) -> None:
        if not self.purge_after_hours >= 0:  # NaN is not
            raise InvalidInputError(f"purge_after_hours is {self.purge_after_hours}; it must be at least 0")
        self._options()

    async def on_table(
        self, place: Place, on_progress: Callable[[CompactionProgress], None] | None
    ) -> CompactionReport:
        """Do everything for one table, here."""
        return await compact_table(
            place.url,
            partitions=self.partitions,
            force=self.force,
            dry_run=self.dry_run,
            purge=self.purge,
            pack=self.pack,
            options=self._options(),
            storage_options=place.storage_options,
            store_options=place.store_options,
            store=place.store,
            on_progress=on_progress,
        )

    def results(self, report: CompactionReport) -> tuple[WorkResult, ...]:
        """Say what became of one table as results of many say it."""
        table = WorkItem(lake=report.url, table="")
        catalogue = [] if report.catalogue is None else [result_of_pack(table, report.catalogue, is_renewed=True)]
        purged = [_purged(table, report.purged, dry_run=report.is_dry_run)] if self.purge else []
        done = (_result(replace(table, partition=done.name), done) for done in report.partitions)
        return (*done, *catalogue, *purged)

    async def plan_table(self, table: TableToPlan) -> WorkPlan:
        """Look at the footers of all partitions. Requests: those of a dry run of :func:`compact_table`."""
        store, path = table.stores.bare_table(table.item)
        report = await compact_table(
            path,
            partitions=self.partitions,
            store=store,
            store_options=table.stores.access.store_options,
            force=self.force,
            dry_run=True,
            options=self._options(),
        )
        items, settled = [], []
        for found in report.partitions:
            size_bytes = 0 if found.before is None else found.before.parquet_size_bytes
            item = replace(table.item, partition=found.name, cost_bytes=size_bytes)
            if found.action == "would compact" and not self.dry_run:
                items.append(item)
            else:
                settled.append(_result(item, found))
        return WorkPlan(items=tuple(items), settled=tuple(settled), notes=table.named(report.notes))

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Write one partition anew and commit it. Requests: those of :func:`compact_table` for one partition."""
        store, path = stores.bare_table(item)
        # Without its version: a second run of the same item finds what the first one has left, and keeps it.
        base_name = item.partition.partition(".")[0]
        report = await compact_table(
            path,
            partitions=[base_name],
            store=store,
            store_options=stores.access.store_options,
            force=self.force,
            options=self._options(),
            leave_catalogue=True,
        )
        return _result(item, report.partitions[0])

    async def finish(self, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores) -> tuple[WorkResult, ...]:
        """Renew the catalogues, and remove old versions where that was asked for."""
        if self.dry_run:
            return ()
        renewed = await renew_catalogues(results, plan, stores, make=self.pack)
        if not self.purge:
            return renewed
        tables = {(item.lake, item.table): item for item in plan.items}
        purged = await gather_or_cancel([self._purge(item, stores) for item in tables.values()])
        return (*renewed, *purged)

    async def _purge(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        store, path = stores.bare_table(item)
        files = LocalFiles() if isinstance(store, LocalStore) else None
        before_s = time.time() - self._options().purge_after_s
        try:
            removed = await purge_superseded(store, path, before_s=before_s, dry_run=False, files=files)
        except ColdParquetError as error:
            return failure(replace(item, partition=""), error)
        return _purged(item, removed, dry_run=False)

    def _options(self) -> CompactionOptions:
        return CompactionOptions(
            write=WriteOptions(row_group_rows=self.row_group_rows),
            purge_after_s=self.purge_after_hours * _HOUR_S,
            memory_limit_bytes=self.memory_limit_bytes,
        )


def _purged(item: WorkItem, removed: Sequence[str], *, dry_run: bool) -> WorkResult:
    return WorkResult(
        table=item.table_url,
        outcome="done" if removed else "nothing to do",
        action="would purge" if dry_run else "purged",
        details={"directories": list(removed)},
    )


def _result(item: WorkItem, done: CompactedPartition) -> WorkResult:
    outcomes: dict[str, Outcome] = {"compacted": "done", "would compact": "done", "failed": "failed"}
    shape = done.after or done.before
    return WorkResult(
        table=item.table_url,
        partition=item.partition,
        outcome=outcomes.get(done.action, "nothing to do"),
        action=done.action,
        reason=done.reason,
        kind="NotCompacted" if done.action == "failed" else None,
        rows=done.rows,
        size_bytes=None if shape is None else shape.parquet_size_bytes,
        details={
            "directory": done.new_name or done.name,
            "before": None if done.before is None else asdict(done.before),
            "after": None if done.after is None else asdict(done.after),
        },
    )
