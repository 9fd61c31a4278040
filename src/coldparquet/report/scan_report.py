"""Everything that is told of one scan after it was read, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from coldparquet.plan.cost import prices_of
from coldparquet.scanning.scan_statistics import request_dollars

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.plan.read_plan import ReadPlan
    from coldparquet.prices import PriceTable
    from coldparquet.scan import Scan
    from coldparquet.scanning.scan_statistics import ScanStatistics
    from coldparquet.storage.wrappers.trace import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """What was asked, what was planned, what was sent, and what it cost."""

    url: str
    """The table, without credentials."""
    columns: tuple[str, ...]
    predicate: str | None
    limit: int | None
    plan: ReadPlan | None
    """None where there is not one plan, as for the newest rows, which are looked for step by step."""
    statistics: ScanStatistics
    records: tuple[RequestRecord, ...]
    """In the order in which they started. Times count from the moment when the first one could have been sent."""
    prices: PriceTable
    has_prices: bool
    """Whether the store is one that asks money for requests."""

    @property
    def earlier_requests(self) -> int:
        """How many of the requests are not the scan's own: those with which the table was opened."""
        return max(0, sum(record.http_requests for record in self.records) - self.statistics.request_count)

    @property
    def earlier_dollars(self) -> float | None:
        """What these cost; None where the price of something is not known."""
        if not self.has_prices:
            return 0.0
        dollars = [request_dollars(record, self.prices) for record in self.records]
        known = [price for price in dollars if price is not None]
        if self.statistics.dollars is None or len(known) < len(dollars):
            return None
        return max(0.0, sum(known) - self.statistics.dollars)


def scan_report(
    scan: Scan, *, plan: ReadPlan | None = None, records: Sequence[RequestRecord] | None = None
) -> ScanReport:
    """Put together what is known of a scan that was read. No request.

    Args:
        scan: The scan.
        plan: Its plan, if the report is to show it.
        records: Requests to show; None shows those of the scan. ``table.request_log`` also has those with which the table
            was opened, and those of other scans.
    """
    question = scan.question
    return ScanReport(
        url=question.url,
        columns=tuple(column.name for column in question.output_columns),
        predicate=question.predicate_text,
        limit=question.limit,
        plan=plan,
        statistics=scan.stats,
        records=_from_zero(scan.request_log if records is None else records),
        prices=prices_of(question.options),
        has_prices=question.snapshot.store.has_storage_classes,
    )


def _from_zero(records: Sequence[RequestRecord]) -> tuple[RequestRecord, ...]:
    zero_s = min((record.started_s - record.waited_s for record in records), default=0.0)
    return tuple(
        replace(
            record,
            started_s=record.started_s - zero_s,
            finished_s=record.finished_s - zero_s,
            first_byte_s=None if record.first_byte_s is None else record.first_byte_s - zero_s,
        )
        for record in records
    )
