"""The verb ``index``: writing the sidecars that are missing, so that every later read plans from one small request per partition."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from coldparquet.catalog.cold_storage import refuse_below_cold_storage
from coldparquet.catalog.discovery import discover_any
from coldparquet.catalog.findings import Finding, with_remedy
from coldparquet.catalog.other_layouts import refuse_inside_logged_table
from coldparquet.catalog.pages import PAGES_FILE
from coldparquet.catalog.table_files import DATA_FILE, SIDECAR_FILE, partition_location
from coldparquet.concurrency import both
from coldparquet.errors import InvalidInputError
from coldparquet.maintenance.index_pages import PagesIndexer, make_window_slots
from coldparquet.maintenance.pack import (
    PackJob,
    PackReport,
    discovery_key,
    is_packed,
    is_renewal_due,
    renew_catalogues,
    result_of_pack,
)
from coldparquet.maintenance.sidecars import IndexedPartition, PartitionIndexer
from coldparquet.pipelines.lakes import TableByTable, listed_objects, location_as_data, location_from_data, one_table
from coldparquet.pipelines.model import Place, WorkPlan, WorkResult, nothing_to_do
from coldparquet.records import replace
from coldparquet.storage.checked import CheckedStore
from coldparquet.text import few_names, plural

if TYPE_CHECKING:
    import asyncio
    import os
    from collections.abc import Callable, Mapping, Sequence

    from coldparquet.catalog.discovery import Discovery
    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.catalog.table_formats import TableFormat
    from coldparquet.maintenance.index_pages import PagesAction
    from coldparquet.maintenance.sidecars import IndexAction
    from coldparquet.options import ReadOptions, StoreOptions
    from coldparquet.pipelines.lakes import TableRun, TableToPlan
    from coldparquet.pipelines.model import LakeStores, Outcome, WorkItem
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import ObjectInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """What became of all partitions, in table order."""

    url: str
    partitions: tuple[IndexedPartition, ...]
    notes: tuple[str, ...] = ()
    """Directories that were not looked into, and what the sidecars lack, one sentence each."""
    findings: tuple[Finding, ...] = ()
    """Files beside the partitions that no reader reads."""
    catalogue: PackReport | None = None
    """What became of the table's catalogue; None where there is none."""

    @property
    def has_misnamed(self) -> bool:
        """Whether partitions were skipped that hold Parquet files, but none of the name ``data.parquet``."""
        return any(partition.misnamed for partition in self.partitions)

    def count(self, action: IndexAction) -> int:
        """Return how many partitions met this fate."""
        return sum(partition.action == action for partition in self.partitions)

    def count_pages(self, action: PagesAction) -> int:
        """Return how many ``_pages`` met this fate."""
        return sum(partition.pages is not None and partition.pages.action == action for partition in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain data that ``json.dumps`` takes."""
        return {**asdict(self), "counts": dict(Counter(partition.action for partition in self.partitions))}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPartitions:
    """The partitions that a verb is about, and what a person should know of the others."""

    locations: tuple[PartitionLocation, ...]
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Files beside the partitions that no reader reads."""
    discovery: Discovery | None = None
    """How they were found; None where they were named."""
    is_table: bool = True
    """False for a single partition, which has no catalogue, and where there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexJob(TableByTable):
    """Write the missing ``_pm`` of every partition of a table, or of all tables of a lake; see :func:`index_table`."""

    name: ClassVar[str] = "index"
    items_at_once: ClassVar[int] = 32
    """An item is a few small requests, one after the other: as many as may be in flight."""
    replaces: ClassVar[Literal["stale", "useless"]] = "stale"
    """Which sidecars that exist are written anew unless ``force`` takes all; see :class:`PartitionIndexer`."""

    pages: bool = True
    """Also write a ``_pages`` beside each sidecar."""
    force: bool = False
    """Also write sidecars and ``_pages`` anew that exist."""
    pack: bool | None = None
    """Make the catalogue of each table that has none; one that is there is renewed in any case. None makes it where readers
    use it and it pays: of a few partitions or more, in stores that list versions."""
    inline_bloom_bytes: int | None = None
    """Bloom filters go into a sidecar if it then has at most so many bytes; see :func:`index_table`."""
    index: str | None = None
    """Directory for an index of the whole table in one object; None is that of the table."""
    format: TableFormat | None = None
    """Which log says what files the tables have, whose index this is to be."""
    dry_run: bool = False
    """Write nothing, but derive every sidecar that would be written."""

    async def find(self, store: ObjectStore, path: str, options: ReadOptions) -> FoundPartitions:
        """Find the partitions at ``path``. Requests: those of :func:`discover_any`; none for a Parquet file."""
        if path.endswith(".parquet"):
            location = partition_location(path)
            if location.sidecar_path is None:
                raise InvalidInputError(
                    f"a sidecar can only be found beside a file named {DATA_FILE}; rename the file",
                    kind="NotAPartition",
                    path=path,
                )
            await refuse_inside_logged_table(store, path)
            await refuse_below_cold_storage(store, path, is_new=False)
            return FoundPartitions(locations=(location,), is_table=False)
        found = await discover_any(store, path, options, ask_inside=True)
        if found.layout is None and self.index is None:
            await refuse_below_cold_storage(store, path, is_new=False)
        return FoundPartitions(
            locations=found.locations,
            discovery=found,
            notes=tuple(found.other_notes),
            findings=found.unread,
            is_table=all(
                location.sidecar_path is None or location.directory_path != path.rstrip("/")
                for location in found.locations
            ),
        )

    def excuse(self, location: PartitionLocation) -> str | None:  # noqa: ARG002 - for jobs that pass over some
        """Say why a partition is passed over; None where it is not."""
        return None

    async def plan_table(self, table: TableToPlan) -> WorkPlan:
        """Find the partitions, and those that are indexed already.

        In a lake a listing tells which sidecars there are, and which were written after their Parquet files; those are kept
        without looking into them, which ``verify`` does. Where there is none, and in a table that is named itself, each
        sidecar is looked at in its turn.

        Requests: those of :meth:`find`, and in a lake 1 listing per 1,000 objects.
        """
        if self.format is not None:
            return WorkPlan(items=(replace(table.item, work={"as_one": True}),))
        find = self.find(table.store, table.path, table.stores.read_options)
        found, objects = await both(find, self._listed(table))
        if self.index is not None and not found.is_table:
            raise InvalidInputError(
                "this is one partition, and an index at another place is of a whole table; name the table's directory",
                kind="NotATable",
                path=table.path,
            )
        discovery = found.discovery
        if discovery is not None and (discovery.layout is not None or self.index is not None):
            if table.is_alone:  # of many tables they would take much memory
                table.stores.remember(discovery_key(table.path), discovery)
            return WorkPlan(
                items=(replace(table.item, work={"as_one": True}),),
                settled=tuple(_unread(table.item, finding) for finding in found.findings),
                notes=table.named(found.notes),
            )
        items, settled = [], [_unread(table.item, finding) for finding in found.findings]
        for location in found.locations:
            item = replace(table.item, partition=location.name, work=location_as_data(location, table.path))
            known = self._known(location, objects)
            if known is not None:
                settled.append(replace(nothing_to_do(item, known.action, known.reason), done=known))
            else:
                is_absent = objects is not None and f"{location.directory_path}/{SIDECAR_FILE}" not in objects
                items.append(replace(item, work={**item.work, "is_sidecar_absent": is_absent and not self.force}))
        return WorkPlan(
            items=tuple(items),
            settled=tuple(settled),
            notes=table.named(found.notes),
            tables=(table.item,) if found.is_table else (),
            partitions=tuple(location.name for location in found.locations),
        )

    async def _listed(self, table: TableToPlan) -> Mapping[str, ObjectInfo] | None:
        return None if table.is_alone else await listed_objects(table)

    def _known(self, location: PartitionLocation, objects: Mapping[str, ObjectInfo] | None) -> IndexedPartition | None:
        """Say what becomes of a partition if that is known without a request."""
        path = f"{location.directory_path}/{SIDECAR_FILE}"
        excuse = "in QuestDB's native format" if location.is_native else self.excuse(location)
        if excuse is not None:
            return IndexedPartition(path=path, action="skipped", reason=excuse)
        if objects is None or self.force or not self._is_indexed(f"{location.directory_path}/", objects):
            return None
        return IndexedPartition(path=path, action="kept", sidecar_bytes=objects[path].size_bytes)

    def _is_indexed(self, prefix: str, objects: Mapping[str, ObjectInfo]) -> bool:
        """Tell whether everything that is asked for was written after the Parquet file, by the times of a listing."""
        wanted = (DATA_FILE, SIDECAR_FILE, *([PAGES_FILE] if self.pages else []))
        found = [objects.get(f"{prefix}{name}") for name in wanted]
        times = [None if info is None else info.modified_s for info in found]
        return None not in times and times[0] == min(time for time in times if time is not None)

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Index one partition; only bugs raise. Requests: as :func:`index_table` says of one."""
        if item.work.get("as_one"):
            job = PackJob(index=self.index, format=self.format, pages=self.pages, dry_run=self.dry_run)
            report = await job.pack(item, stores, force=self.force)
            packed = result_of_pack(item, replace(report, url=item.table_url))
            unreadable = [one for one in report.partitions if one.is_unreadable]
            if not unreadable:
                return packed
            reason = f"{few_names([one.name for one in unreadable])} cannot be read: {unreadable[0].reason}"
            return replace(packed, outcome="failed", kind="UnreadableFiles", reason=reason)
        store, path = stores.table(item)
        checked = CheckedStore(store)  # its own, which forgets with it which versions it saw
        location, options = location_from_data(item.work, path), stores.read_options
        indexer = PartitionIndexer(
            checked,
            options,
            replaces="all" if self.force else self.replaces,
            inline_bloom_bytes=self.inline_bloom_bytes,
            dry_run=self.dry_run,
        )
        done = await indexer.index(location, is_sidecar_absent=item.work["is_sidecar_absent"])
        is_left_by_dry_run = done.is_stale and done.action != "written"
        wants_pages = self.pages or self.force or done.is_stale
        if wants_pages and done.action not in {"skipped", "failed"} and not is_left_by_dry_run:
            slots = await stores.once("window slots", _window_slots)
            pages = PagesIndexer(checked, options, force=self.force, dry_run=self.dry_run, window_slots=slots)
            done = replace(done, pages=await (pages.index if self.pages else pages.renew)(location))
        return _result(item, done)

    async def finish(self, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores) -> tuple[WorkResult, ...]:
        """Renew the catalogues of the tables; a dry run says which would be made, and about how large they would be."""
        if not self.dry_run:
            return await renew_catalogues(results, plan, stores, make=self.pack)
        planned = []
        for table in plan.tables:
            store, path = stores.table(table)
            sizes = [_sidecar_bytes(one) for one in (*results, *plan.settled) if _has_sidecar(one, table)]
            is_changed = any(one.action.startswith("would write") for one in results if one.table == table.table_url)
            make = is_packed(self.pack, store, len(sizes))
            if await is_renewal_due(store, path, stores.read_options, is_changed=is_changed, make=make):
                only_if = (
                    ""
                    if store.has_version_listings
                    else "if the table has a _txn, since this store lists no versions: "
                )
                report = PackReport(
                    url=table.table_url,
                    action="would write",
                    catalogue_bytes=sum(sizes),
                    partitions=(),
                    reason=f"{only_if}at most the size of the sidecars; bloom filters that these leave out add up to 64 MiB",
                )
                planned.append(result_of_pack(table, report, is_renewed=True))
        return tuple(planned)

    def report(self, run: TableRun) -> IndexReport:
        """Say what became of one table."""
        partitions = run.done(IndexedPartition)
        return IndexReport(
            url=run.url,
            partitions=partitions,
            notes=(*run.notes, *_note_on_timestamps(partitions)),
            findings=run.done(Finding),
            catalogue=next(iter(run.done(PackReport)), None),
        )


def _note_on_timestamps(partitions: Sequence[IndexedPartition]) -> tuple[str, ...]:
    unsorted = sum(not partition.has_timestamp for partition in partitions)
    if not unsorted:
        return ()
    written = plural(sum(partition.action == "written" for partition in partitions), "new sidecar")
    note = (
        f"{unsorted} of {written} {'names' if unsorted == 1 else 'name'} no designated timestamp, because the file does not, so"
        " that the names of their directories prune nothing; name one when you read (ReadOptions(timestamp=...), --timestamp), or"
        " make it the file's first sorting column, ascending and never null"
    )
    return (note,)


def _unread(table: WorkItem, finding: Finding) -> WorkResult:
    is_error = finding.severity == "error"
    return WorkResult(
        table=table.table_url,
        outcome="failed" if is_error else "nothing to do",
        action=finding.severity,
        reason=with_remedy(finding.message, finding.remedy),
        kind=finding.kind if is_error else None,
        done=finding,
    )


def _has_sidecar(result: WorkResult, table: WorkItem) -> bool:
    return result.table == table.table_url and result.partition != "" and result.action != "skipped"


def _sidecar_bytes(result: WorkResult) -> int:
    """Return the size of a partition's sidecar, as far as it is known here."""
    if isinstance(result.done, IndexedPartition):
        return result.done.sidecar_bytes or 0
    return (result.size_bytes or 0) - ((result.details.get("pages") or {}).get("size_bytes") or 0)


async def _window_slots() -> asyncio.Semaphore:
    return make_window_slots()


def _result(item: WorkItem, done: IndexedPartition) -> WorkResult:
    pages = done.pages
    actions = {done.action} | ({pages.action} if pages is not None else set())
    outcome: Outcome = "nothing to do"
    if "failed" in actions or done.misnamed:
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
        done=done,
    )


async def index_table(  # noqa: PLR0913 - what can be told is told by name
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    pages: bool = True,
    force: bool = False,
    pack: bool | None = None,
    inline_bloom_bytes: int | None = None,
    index: str | None = None,
    format: TableFormat | None = None,  # noqa: A002 - named as in ReadOptions
    dry_run: bool = False,
    options: ReadOptions | None = None,
    store_options: StoreOptions | None = None,
    store: ObjectStore | None = None,
    on_progress: Callable[[IndexedPartition, int], None] | None = None,
) -> IndexReport:
    """Write the missing ``_pm`` beside each ``data.parquet``, derived from its footer; renew those that are stale.

    Stale are those that describe another file than the one beside them: by the transaction or, where there is none, by the
    size of the file, or because it was written after them. The ``_pages`` beside such a one is renewed, too. A sidecar
    without a file beside it is a failure, as is one that cannot be renewed.

    Each sidecar appears complete or not at all, and ``data.parquet`` is only read. A partition that fails does not stop
    the others. Where a table has a ``_txn``, its partitions are indexed, at the sizes that it commits; see also
    :func:`coldparquet.maintenance.migrate.migrate_table`. Bloom filters go into the sidecar where they are small, else it
    says where they are, so that readers need not look for them.

    Requests: 1 listing, and at the same time 2 that look for the table's files, ``_cv`` after them if there are native
    partitions; without a ``_txn`` 1 listing for 250 partitions, or for each where the store does not list versions; per
    partition 1 or 2 that look for the sidecar (none with ``force``); where there is none 1 or 2 for the footer, some for
    bloom filters if it has them, and 1 to write; where there is one, and no ``_txn`` states the size, 1 for the size and the
    time of the Parquet file, and those for a new one if that shows it to be stale. Those of
    :func:`coldparquet.maintenance.pack.renew_catalogue`.

    Args:
        url: A table directory, a partition directory or one ``data.parquet``: any fsspec URL, or a local path.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        pages: Also write a ``_pages`` beside each sidecar, unless one describes the Parquet file already: where the pages of
            its column chunks lie and what bounds them. It comes from the page index of the file; of chunks without one the
            page headers are read, for which most of the file is fetched, in bounded memory. See
            :meth:`coldparquet.maintenance.index_pages.PagesIndexer.index` for the requests. An index of many files takes the page
            indexes that they have, up to 64 MiB: 1 request for each that does not come with the footer.
        force: Write every sidecar anew, and every ``_pages``: without ``pages`` those that exist, for which 1 request per
            partition looks. What a QuestDB noted in its own ones and the footer does not say is lost: older
            snapshots and transaction numbers.
        pack: Make the catalogue of the table where there is none; one that is there is renewed in any case. None makes it
            where readers use it and it pays: of 4 partitions or more, in stores that list versions (S3). See
            :func:`coldparquet.maintenance.pack.pack_table`.
        inline_bloom_bytes: Bloom filters go into a sidecar that is written if it then has at most so many bytes, so that
            those that ask them need no request beyond that for the sidecar; but every other question fetches them, too. None
            takes ``options.sidecar_prefix_bytes``: what comes with the first request anyway. See also ``pack``, which
            copies filters into the catalogue without that drawback.
        index: URL of a directory in the same kind of store, where the index shall lie, for tables that are not ours to write to.
            Readers take ``ReadOptions(index=...)``. None is the table's own directory. Such an index describes all files in one
            object, by their sidecars or footers, keys and versions; what it describes already is not read again. So does that of
            tables in other layouts, such as Hive directories, in either place. Stores without versions in listings, such as
            disks, have none.
        format: ``"delta"`` or ``"iceberg"``: the live files of such a table get an index, at ``index`` or in its directory.
        dry_run: Write nothing, but derive every sidecar that would be written.
        options: How to read; ``max_concurrency`` is also how many partitions are worked on at once.
        store_options: How patient to be with the store; see :class:`~coldparquet.options.StoreOptions`.
        store: A store of your own; ``url`` is then a path in it. It stays open.
        on_progress: Called for each partition when it is done, with the number of all partitions.

    Returns:
        What became of each partition; failures are in there, not raised.

    Raises:
        InvalidInputError: ``url`` is a Parquet file that is not named ``data.parquet``.
        UnsupportedError: It is a table of Delta, Iceberg or Hudi, or on a disk lies in one (kind ``LoggedTable``).
        NotFoundError: There is nothing at ``url``, or nothing that is a partition.
        AccessError: The store refused the credentials for the listing.
    """
    job = IndexJob(
        pages=pages,
        force=force,
        pack=pack,
        inline_bloom_bytes=inline_bloom_bytes,
        index=index,
        format=format,
        dry_run=dry_run,
    )
    async with one_table(Place(url, storage_options, store_options, store), options) as table:
        return job.report(await job.on_table(table, on_progress))
