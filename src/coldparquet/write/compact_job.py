"""The job that writes partitions anew which have many dead bytes or small row groups."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from coldparquet.concurrency import map_or_cancel
from coldparquet.errors import ColdParquetError, InvalidInputError
from coldparquet.maintenance.pack import renew_catalogues, result_of_pack
from coldparquet.options import MIB
from coldparquet.pipelines.lakes import TableByTable, TableRun
from coldparquet.pipelines.model import WorkPlan, WorkResult, failure
from coldparquet.records import replace
from coldparquet.storage.local import LocalStore
from coldparquet.write.compact import CompactionOptions, compact_table
from coldparquet.write.files import LocalFiles
from coldparquet.write.options import WriteOptions
from coldparquet.write.versions import purge_superseded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coldparquet.pipelines.lakes import TableToPlan
    from coldparquet.pipelines.model import LakeStores, Outcome, WorkItem
    from coldparquet.write.compact import CompactedPartition, CompactionProgress

_HOUR_S = 3600

_PURGES_AT_ONCE = 4


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
        return WorkPlan(
            items=tuple(items), settled=tuple(settled), notes=table.named(report.notes), tables=(table.item,)
        )

    async def on_table(
        self, table: TableToPlan, on_progress: Callable[[CompactionProgress], None] | None = None
    ) -> TableRun:
        """Plan, run and finish one table in one go: footers are read once, and table files after each commit only."""
        report = await compact_table(
            table.path,
            partitions=self.partitions,
            force=self.force,
            dry_run=self.dry_run,
            purge=self.purge,
            pack=self.pack,
            options=self._options(),
            store_options=table.stores.access.store_options,
            store=table.stores.bare_table(table.item)[0],
            on_progress=on_progress,
        )
        report = replace(report, url=table.item.table_url)
        results = [_result(replace(table.item, partition=done.name), done) for done in report.partitions]
        if report.catalogue is not None:
            results.append(result_of_pack(table.item, report.catalogue, is_renewed=True))
        if self.purge:
            results.append(_purged(table.item, report.purged, dry_run=self.dry_run))
        return TableRun(url=report.url, results=tuple(results), notes=report.notes, report=report)

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
        renewed = () if self.dry_run else await renew_catalogues(results, plan, stores, make=self.pack)
        if not self.purge:
            return renewed
        purged = await map_or_cancel(partial(self._purge, stores), plan.tables, at_once=_PURGES_AT_ONCE)
        return (*renewed, *purged)

    async def _purge(self, stores: LakeStores, table: WorkItem) -> WorkResult:
        store, path = stores.bare_table(table)
        files = LocalFiles() if isinstance(store, LocalStore) else None
        before_s = time.time() - self._options().purge_after_s
        try:
            removed = await purge_superseded(store, path, before_s=before_s, dry_run=self.dry_run, files=files)
        except ColdParquetError as error:
            return failure(table, error)
        return _purged(table, removed, dry_run=self.dry_run)

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
        action=("would purge" if dry_run else "purged") if removed else "nothing to purge",
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
