"""The job that puts the data of partitions where it is cheapest for its age: into other storage classes, or out of archives."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from coldparquet.archive.objects import ArchivedObject, needs_restore, restore_offer
from coldparquet.archive.restore import request_restores
from coldparquet.catalog.discovery import discover
from coldparquet.catalog.pages import PAGES_FILE, look_up_pages_file, parse_pages_lookup
from coldparquet.catalog.partition import look_up_sidecar
from coldparquet.concurrency import gather_or_cancel
from coldparquet.errors import AccessError, InvalidInputError
from coldparquet.format.page_index import encode_pages_file
from coldparquet.format.pages import chunk_places
from coldparquet.maintenance.pack import renew_catalogues
from coldparquet.options import KIB, RestoreTerms
from coldparquet.pipelines.lakes import TableByTable, listed_objects, location_as_data, location_from_data
from coldparquet.pipelines.model import WorkItem, WorkPlan, WorkResult, nothing_to_do
from coldparquet.prices import BYTES_PER_PRICED_GB, STANDARD, PriceTable, parse_storage_class_rule, storage_class_of
from coldparquet.records import replace
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.refusals import classes_unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.catalog.table_files import PartitionLocation
    from coldparquet.pipelines.lakes import TableToPlan
    from coldparquet.pipelines.model import LakeStores
    from coldparquet.prices import StorageClassRule
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import ObjectInfo

_DAY_S = 86_400
_SECOND_NS = 1_000_000_000

_LARGEST_COPY_BYTES = 5 * 1024 * 1024 * KIB
"""S3's limit of CopyObject."""

_MAY_BE_ARCHIVED = frozenset({"GLACIER", "DEEP_ARCHIVE", "INTELLIGENT_TIERING"})
"""Classes of which a listing does not tell whether an object can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierJob(TableByTable):
    """Move the Parquet files of old partitions to other storage classes, and restore those of young ones from archives.

    A file is moved by a copy onto itself inside of the store: no byte passes through here. Sidecars and table files, which
    every reader needs, stay where they are. Where the copy has another ETag, a ``_pages`` beside it is made to name that;
    readers that have the table open plan once more. A run that is killed between the two leaves a ``_pages`` that no reader
    uses, which ``coldparquet index`` writes anew.

    What is left to do follows from a listing, which tells the class of every object. Dollars are those of the requests and of
    retrieval; what S3 charges for objects that leave a class before its least time is not in there.

    Raises:
        InvalidInputError: There is nothing to do, or a rule cannot be meant.
    """

    name: ClassVar[str] = "tier"
    items_at_once: ClassVar[int] = 32

    storage_class_after: tuple[str, ...] = ()
    """Rules such as ``30d=GLACIER_IR``: partitions that ended so long ago belong into this class. Of several the one with the
    largest age that a partition has reached counts."""
    least_bytes: int = 128 * KIB
    """Smaller files stay: S3 charges for 128 KiB in the colder classes."""
    restore_within_days: int | None = None
    """Restore archived partitions that ended at most so many days ago; None restores none."""
    restore_tier: str = "Standard"
    """How fast: ``Expedited``, ``Standard`` or ``Bulk``."""
    restore_days: int = 1
    """How long restored copies stay."""
    dry_run: bool = False
    """Change nothing; say what would be moved and restored, and what that costs."""

    def __post_init__(self) -> None:
        if not self.storage_class_after and self.restore_within_days is None:
            raise InvalidInputError(
                "tier needs a rule: a storage class by age (30d=GLACIER_IR), or how young partitions are that are restored",
                field="storage_class_after",
            )
        for name in ("least_bytes", "restore_within_days"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InvalidInputError(f"{name} is {value}; it must be at least 0", field=name)
        _ = self._rules, self._terms

    async def plan_table(self, table: TableToPlan) -> WorkPlan:
        """Compare the class of every partition with that of its age.

        Requests: those of :func:`~coldparquet.catalog.discovery.discover`, 1 listing per 1,000 objects and, where
        partitions are to be restored, 1 HEAD for each in a class that may be archived.
        """
        now_s = time.time()
        if not table.store.has_storage_classes:
            raise classes_unsupported(table.path)
        found = await discover(table.store, table.path)
        objects = await listed_objects(table)
        if objects is None:
            raise AccessError("the table cannot be listed, and only a listing tells storage classes", path=table.path)
        decisions = await gather_or_cancel(
            [self._decide(table, location, objects, now_s) for location in found.locations]
        )
        items = tuple(made for made in decisions if isinstance(made, WorkItem))
        settled = tuple(made for made in decisions if isinstance(made, WorkResult))
        if not self.dry_run:
            return WorkPlan(items=items, settled=settled)
        return WorkPlan(items=(), settled=(*settled, *map(_would_do, items)))

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Move or restore one partition. 2 requests; up to 6 more where a ``_pages`` is made to name another ETag."""
        store, path = stores.table(item)
        location = location_from_data(item.work["location"], path)
        info = await store.info(location.data_path)
        if item.work["action"] == "restore":
            return await self._restore(item, location, info, store)
        storage_class = item.work["storage_class"]
        if info.etag is None or (info.storage_class or STANDARD) == storage_class:
            return nothing_to_do(item, "kept", f"in {storage_class} already")
        etag = await store.change_class(location.data_path, storage_class=storage_class, if_match=info.etag)
        has_pages = item.work["has_pages"] and etag is not None and etag != info.etag
        renewed = (
            await _renew_pages(store, location, stores, before=info.etag, after=etag or "") if has_pages else False
        )
        return WorkResult(
            table=item.table_url,
            partition=item.partition,
            outcome="done",
            action="moved",
            size_bytes=item.work["size_bytes"],
            dollars=item.work["dollars"],
            details={**_facts(item), "has_new_etag": etag != info.etag, "has_renewed_pages": renewed},
        )

    async def finish(self, results: Sequence[WorkResult], plan: WorkPlan, stores: LakeStores) -> tuple[WorkResult, ...]:
        """Renew the catalogues of tables in which files have other ETags now."""
        changed = [result for result in results if result.details.get("has_new_etag")]
        places = {result.table for result in changed}
        tables = {item.table_url: replace(item, partition="") for item in plan.items if item.table_url in places}
        plan = replace(plan, tables=tuple(tables.values()))
        return await renew_catalogues(changed, plan, stores, make=False, keeps_rows=True)

    async def _decide(
        self, table: TableToPlan, location: PartitionLocation, objects: Mapping[str, ObjectInfo], now_s: float
    ) -> WorkItem | WorkResult:
        """Say what to do about one partition."""
        item = replace(table.item, partition=location.name)
        info = objects.get(location.data_path)
        if location.is_native or info is None or location.directory is None:
            why = (
                "in QuestDB's native format"
                if location.is_native
                else "there is no data.parquet, or no time in its name"
            )
            return nothing_to_do(item, "skipped", why)
        ended_s = location.directory.stop_ns / _SECOND_NS
        current, size_bytes = info.storage_class or STANDARD, info.size_bytes or 0
        work: dict[str, Any] = {
            "location": location_as_data(location, table.path),
            "from_class": current,
            "size_bytes": size_bytes,
            "has_pages": f"{location.directory_path}/{PAGES_FILE}" in objects,
        }
        is_young = self.restore_within_days is not None and now_s - ended_s <= self.restore_within_days * _DAY_S
        if is_young and current in _MAY_BE_ARCHIVED:
            restore = self._decide_restore(replace(item, work=work), await table.store.info(location.data_path))
            if restore is not None:
                return restore
        wanted = storage_class_of(ended_s, self._rules, now_s=now_s)
        if wanted is None or wanted == current:
            return nothing_to_do(item, "kept", None)
        obstacle = self._obstacle(current, size_bytes)
        if obstacle is not None:
            return nothing_to_do(item, "skipped", obstacle)
        return replace(
            item, work={**work, "action": "move", "storage_class": wanted, **_prices(current, wanted, size_bytes)}
        )

    def _decide_restore(self, item: WorkItem, info: ObjectInfo) -> WorkItem | WorkResult | None:
        """Say what to do about a young partition that may be archived; None if it can be read."""
        if not needs_restore(info):
            return None
        archived = ArchivedObject.of(item.partition, info)
        if archived.is_being_restored:
            return nothing_to_do(item, "kept", "a restore is under way")
        offer = restore_offer([archived], tier=self._terms.tier, days=self._terms.days, prices=PriceTable.default())
        dollars = None if offer is None else offer.dollars
        return replace(item, work={**item.work, "action": "restore", "dollars": dollars})

    def _obstacle(self, current: str, size_bytes: int) -> str | None:
        """Say why a file stays where it is, though its age wants it elsewhere."""
        if current in ("GLACIER", "DEEP_ARCHIVE"):
            return f"in {current}, out of which nothing is moved without restoring it"
        if size_bytes < self.least_bytes:
            return f"{size_bytes:,} bytes are not worth it"
        if size_bytes > _LARGEST_COPY_BYTES:
            return "S3 copies at most 5 GiB at once; use a lifecycle rule"
        return None

    async def _restore(
        self, item: WorkItem, location: PartitionLocation, info: ObjectInfo, store: ObjectStore
    ) -> WorkResult:
        if not needs_restore(info):
            return nothing_to_do(item, "kept", "it can be read by now")
        ticket = await request_restores(
            store,
            [ArchivedObject.of(location.name, info)],
            self._terms,
            url=item.table_url,
            prices=PriceTable.default(),
        )
        return WorkResult(
            table=item.table_url,
            partition=item.partition,
            outcome="done",
            action="restore requested",
            size_bytes=item.work["size_bytes"],
            dollars=ticket.dollars,
            details={**_facts(item), "ticket": ticket.as_dict()},
        )

    @property
    def _rules(self) -> tuple[StorageClassRule, ...]:
        return tuple(map(parse_storage_class_rule, self.storage_class_after))

    @property
    def _terms(self) -> RestoreTerms:
        tier: Any = self.restore_tier  # anything but the choices is refused there
        return RestoreTerms(tier=tier, days=self.restore_days)


def _prices(current: str, wanted: str, size_bytes: int) -> dict[str, float | None]:
    """Price a move: the copy and what it retrieves, once; what storing costs more or less, each month."""
    table = PriceTable.default()
    source, target = table.find(current), table.find(wanted)
    if source is None or target is None:
        return {"dollars": None, "dollars_per_month": None}
    gigabytes = size_bytes / BYTES_PER_PRICED_GB
    return {
        "dollars": target.million_puts.dollars / 1e6 + gigabytes * source.gb_retrieved.dollars,
        "dollars_per_month": gigabytes * (target.gb_month.dollars - source.gb_month.dollars),
    }


async def _renew_pages(
    store: ObjectStore, location: PartitionLocation, stores: LakeStores, *, before: str, after: str
) -> bool:
    """Let a ``_pages`` that was made for the version before name the one after; tell whether there was one."""
    checked = CheckedStore(store)
    sidecar = (await look_up_sidecar(checked, location, stores.read_options)).sidecar
    if sidecar is None:
        return False
    found = await parse_pages_lookup(await look_up_pages_file(checked, location), sidecar, etag=before)
    if found.pages is None:
        return False
    data = encode_pages_file(
        found.pages, chunk_places(sidecar), parquet_size_bytes=sidecar.parquet_size_bytes, etag=after
    )
    await checked.put(f"{location.directory_path}/{PAGES_FILE}", data, overwrite=True)
    return True


def _facts(item: WorkItem) -> dict[str, Any]:
    names = ("from_class", "storage_class", "dollars_per_month")
    return {name: item.work[name] for name in names if name in item.work}


def _would_do(item: WorkItem) -> WorkResult:
    return WorkResult(
        table=item.table_url,
        partition=item.partition,
        outcome="done",
        action=f"would {item.work['action']}",
        size_bytes=item.work["size_bytes"],
        dollars=item.work["dollars"],
        details=_facts(item),
    )
