"""The job that copies QuestDB tables to object storage, table by table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from coldparquet.catalog.table_files import TRANSACTION_FILE
from coldparquet.errors import InvalidInputError
from coldparquet.maintenance.pack import result_of_pack
from coldparquet.pipelines.lakes import TableByTable
from coldparquet.pipelines.model import WorkItem, WorkPlan, WorkResult, join_url, nothing_to_do
from coldparquet.prices import parse_storage_class_rule
from coldparquet.publish.publisher import publish_table
from coldparquet.publish.report import PublishOptions, PublishReport
from coldparquet.records import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.pipelines.lakes import TableRun, TableToPlan
    from coldparquet.pipelines.model import LakeStores, Outcome
    from coldparquet.publish.report import PublishedPartition

_HOUR_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishJob(TableByTable):
    """Publish every QuestDB table of a lake; see :func:`coldparquet.publish.publisher.publish_table`.

    One item is one table, because a table appears as a whole. What has been copied already is found there, by size and
    checksum. A table of which rows stay behind (``native="leave"``) is published, and counts as failed.

    Raises:
        InvalidInputError: There is no destination, or an option cannot be meant.
    """

    name: ClassVar[str] = "publish"
    items_at_once: ClassVar[int] = 2
    tells_of_items: ClassVar[bool] = False

    destination: str = ""
    """URL below which every table gets the path that it has below its lake; a lake that is a table goes right there."""
    native: str = "convert"
    """What to do about partitions in QuestDB's native format: ``convert``, ``leave`` or ``refuse``."""
    storage_class_after: tuple[str, ...] = ()
    """Rules such as ``30d=GLACIER_IR`` for the data of older partitions."""
    dropped: str = "refuse"
    """What to do about published partitions that the source has dropped: ``refuse``, ``keep`` or ``remove``."""
    purge: bool = False
    """Afterwards remove versions that were replaced long enough ago."""
    purge_after_hours: float = 24.0
    """How long readers may go on reading a version that was replaced."""
    pack: bool = False
    """Make the catalogue of each published table that has none; one that is there is renewed in any case."""
    dry_run: bool = False
    """Write nothing; say what would be written, and what that costs."""

    def __post_init__(self) -> None:
        if not self.destination:
            raise InvalidInputError("publish needs a destination, such as s3://bucket/published", field="destination")
        self._options()

    async def plan_table(self, table: TableToPlan) -> WorkPlan:
        """Publish it if it has a ``_txn``. 1 listing, none for a table that was named itself."""
        if table.is_alone:
            return WorkPlan(items=(table.item,))
        listing = await table.store.list(table.path)
        if any(info.path.rpartition("/")[2] == TRANSACTION_FILE for info in listing.objects):
            return WorkPlan(items=(table.item,))
        why = f"there is no {TRANSACTION_FILE}: only tables of a QuestDB are published"
        return WorkPlan(items=(), settled=(nothing_to_do(table.item, "skipped", why),))

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Publish one table. Requests: those of :func:`publish_table`."""
        report = await publish_table(
            item.table_url,
            join_url(self.destination, item.table),
            options=replace(self._options(), prices=stores.prices),
            source_options=stores.access.storage_options,
            storage_options=stores.access.destination_options,
            store_options=stores.access.store_options,
            on_progress=stores.on_progress,
        )
        counts = Counter(partition.action for partition in report.partitions)
        action = "published" if report.is_committed else "unchanged"
        if report.is_dry_run:
            has_changes = counts["would publish"] or counts["would convert"] or report.table_files
            action = "would publish" if has_changes else "unchanged"
        outcome: Outcome = "nothing to do" if action == "unchanged" else "done"
        notes = list(report.notes)
        if report.rows_left_behind:
            outcome = "failed"
            notes.append(f"{report.rows_left_behind:,} rows in native partitions stay behind")
        return WorkResult(
            table=item.table_url,
            outcome=outcome,
            action=action,
            reason="; ".join(notes) or None,
            kind="RowsLeftBehind" if report.rows_left_behind else None,
            rows=report.rows,
            size_bytes=report.cost.sent_bytes,
            dollars=report.cost.dollars,
            details={
                "destination": report.destination,
                "txn": report.txn,
                "previous_txn": report.previous_txn,
                "partitions": dict(counts),
                "rows_left_behind": report.rows_left_behind,
                "dollars_per_month": report.cost.dollars_per_month,
                "write_count": report.cost.write_count,
                "read_count": report.cost.read_count,
                "purged": list(report.purged),
            },
            done=report,
        )

    async def on_table(self, table: TableToPlan, on_progress: Callable[..., None] | None = None) -> TableRun:
        """Publish one table, and tell of its partitions, too."""
        run = await TableByTable.on_table(self, table, on_progress)
        (report,) = run.done(PublishReport)
        place = WorkItem(lake=report.destination, table="")
        results = [*run.results, *(_of_partition(replace(place, partition=one.name), one) for one in report.partitions)]
        if report.catalogue is not None:
            results.append(result_of_pack(place, report.catalogue, is_renewed=True))
        return replace(run, results=tuple(replace(one, table=report.destination) for one in results), report=report)

    def _options(self) -> PublishOptions:
        native: Any = self.native  # anything but the choices is refused there
        dropped: Any = self.dropped
        return PublishOptions(
            dry_run=self.dry_run,
            native=native,
            dropped=dropped,
            storage_classes=tuple(map(parse_storage_class_rule, self.storage_class_after)),
            purge=self.purge,
            purge_after_s=self.purge_after_hours * _HOUR_S,
            pack=self.pack,
        )


def _of_partition(item: WorkItem, done: PublishedPartition) -> WorkResult:
    is_as_before = done.action in {"unchanged", "left behind"}
    return WorkResult(
        table=item.table_url,
        partition=item.partition,
        outcome="nothing to do" if is_as_before else "done",
        action=done.action,
        rows=done.rows,
        size_bytes=done.native_size_bytes if done.parquet_size_bytes is None else done.parquet_size_bytes,
        details={
            "published_name": done.published_name,
            "is_size_of_columns": done.parquet_size_bytes is None,
            "storage_class": done.storage_class,
        },
    )
