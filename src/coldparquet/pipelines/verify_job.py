"""The job that checks everything: metadata against itself, and with ``deep`` all data against it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from coldparquet.maintenance.deep_check import read_packed_blooms
from coldparquet.maintenance.verify import (
    PackedEntry,
    PartitionVerifier,
    catalogue_findings,
    find_verifiable,
    open_catalogue,
)
from coldparquet.pipelines.lakes import TableByTable, location_as_data, location_from_data
from coldparquet.pipelines.model import WorkPlan, WorkResult
from coldparquet.storage.checked import CheckedStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.pipelines.lakes import TableToPlan
    from coldparquet.pipelines.model import LakeStores, WorkItem
    from coldparquet.plan.advice import Finding

_ITEMS_AT_ONCE = 32
_DEEP_AT_ONCE = 2
"""A partition that is read whole takes 32 MiB and a temporary file, and decoding it keeps a processor busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyJob(TableByTable):
    """Check every partition of a lake; see :func:`coldparquet.maintenance.verify.verify_table`.

    It writes nothing, so that it checks everything every time. What it finds wrong fails the partition; a warning or advice
    is the reason of a result that is done. All findings are in the details of the results.
    """

    name: ClassVar[str] = "verify"

    deep: bool = False
    """Read every byte of the Parquet files, and compare all values with what is claimed of them."""
    dry_run: bool = False
    """Find the partitions, and check none."""

    @property
    def items_at_once(self) -> int:
        """Few where all data is read."""
        return _DEEP_AT_ONCE if self.deep else _ITEMS_AT_ONCE

    async def plan_table(self, table: TableToPlan) -> WorkPlan:
        """Find the partitions, and check what is about a table as a whole.

        Requests: those of :func:`~coldparquet.maintenance.verify.find_verifiable`, and 1 or more for a catalogue.
        """
        found = await find_verifiable(table.store, table.path)
        is_partition = any(location.directory_path == table.path for location in found.locations)
        catalogue = None if is_partition else await open_catalogue(table.store, table.path)
        notes: tuple[Finding, ...] = ()
        if catalogue is not None:
            blooms = await read_packed_blooms(table.store, catalogue.file, deep=self.deep and not self.dry_run)
            notes = (*catalogue_findings(catalogue, found.locations), *blooms.findings)
        items = tuple(
            replace(
                table.item,
                partition=location.name,
                cost_bytes=location.committed_size_bytes or 0,
                work={
                    "location": location_as_data(location, table.path),
                    "is_missing": location.name in found.missing,
                },
            )
            for location in found.locations
        )
        about_table = _result(table.item, (*found.findings, *notes))
        if self.dry_run:
            return WorkPlan(items=(), settled=(about_table, *map(_would_verify, items)))
        return WorkPlan(items=items, settled=(about_table,))

    async def run(self, item: WorkItem, stores: LakeStores) -> WorkResult:
        """Check one partition. Requests: see :meth:`PartitionVerifier.verify`; 1 per table and process for a catalogue."""
        store, path = stores.table(item)
        location = location_from_data(item.work["location"], path)
        packed = None
        if location.directory_path != path:
            catalogue = await stores.once(("catalogue", path), lambda: open_catalogue(store, path))
            lookup = (await catalogue.look_up([location])).get(location.name)
            if lookup is not None and self.deep:
                read = await stores.once(
                    ("packed blooms", path), lambda: read_packed_blooms(store, catalogue.file, deep=True)
                )
                packed = PackedEntry(lookup=lookup, blooms=read.of_partition.get(location.name))
            elif lookup is not None:
                packed = PackedEntry(lookup=lookup)
        verifier = PartitionVerifier(
            CheckedStore(store),
            stores.read_options,
            missing={location.name} if item.work["is_missing"] else (),
            packed={} if packed is None else {location.name: packed},
            deep=self.deep,
        )
        done = await verifier.verify(location)
        return _result(
            item,
            done.findings,
            rows=done.rows,
            size_bytes=done.read_bytes if self.deep else done.parquet_size_bytes,
            format=done.format,
            sidecar=done.sidecar,
            row_groups=done.row_groups,
            checksum=done.checksum,
        )


def _would_verify(item: WorkItem) -> WorkResult:
    return WorkResult(table=item.table_url, partition=item.partition, outcome="done", action="would verify")


def _result(
    item: WorkItem,
    findings: Sequence[Finding],
    *,
    rows: int | None = None,
    size_bytes: int | None = None,
    **facts: object,
) -> WorkResult:
    errors = [finding for finding in findings if finding.severity == "error"]
    worst = next((severity for severity in ("error", "warning", "advice") if _has(findings, severity)), None)
    told = [finding for finding in findings if finding.severity == worst]
    return WorkResult(
        table=item.table_url,
        partition=item.partition,
        outcome="failed" if errors else "done",
        action="sound" if worst is None else worst,
        reason="; ".join(dict.fromkeys(finding.message for finding in told)) or None,
        kind=errors[0].kind if errors else None,
        rows=rows,
        size_bytes=size_bytes,
        details={**facts, "findings": [asdict(finding) for finding in findings]},
    )


def _has(findings: Sequence[Finding], severity: str) -> bool:
    return any(finding.severity == severity for finding in findings)
