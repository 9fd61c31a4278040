"""Measures what a scan did and cost: charges each activity to the scan's ledger, shows it as a span, and sums it up."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from coldparquet.lazy_names import ShownInNotebooks
from coldparquet.records import replace
from coldparquet.telemetry import OpenSpan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coldparquet.plan.model import StoreSpeed
    from coldparquet.prices import PriceTable, RequestKind
    from coldparquet.storage.base import Operation
    from coldparquet.storage.log import Ledger, RequestRecord
    from coldparquet.telemetry import Attributes


class ScanActivity:
    """Measures the time and collects the costs of one activity of a scan.

    A stream of batches begins and ends in different calls, perhaps of different tasks. So begin and end are calls, too.

    Args:
        ledger: The scan's.
        attributes: Attributes of the span.
    """

    def __init__(self, ledger: Ledger, attributes: Attributes) -> None:
        self._ledger = ledger
        self._attributes = attributes
        self._span: OpenSpan | None = None

    def begin(self) -> None:
        """Start the clock."""
        self._ledger.begin()
        self._span = OpenSpan("coldparquet.scan", self._attributes)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Charge everything inside, and the tasks started inside, to the scan."""
        if self._span is None:
            yield
            return
        with self._ledger.current(), self._span.current():
            yield

    def end(self, *, error: BaseException | None = None) -> None:
        """Stop the clock; a second call does nothing."""
        span, self._span = self._span, None
        if span is None:
            return
        self._ledger.end()
        totals = self._ledger.totals
        span.end({"coldparquet.rows": totals.row_count, "coldparquet.requests": totals.request_count}, error=error)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Begin, run the block, and end."""
        self.begin()
        try:
            with self.current():
                yield
        except BaseException as error:
            self.end(error=error)
            raise
        self.end()


_PRICED_AS: dict[Operation, RequestKind] = {
    "get": "get",
    "info": "head",
    "list": "list",
    "remove unfinished": "list",
    "put": "put",
    "start upload": "put",
    "upload part": "put",
    "finish upload": "put",
}
"""How the invoice names each call. Deletes are free; restores are priced where they are offered."""

_LEAST_ANSWERS = 3
"""Number of answers that suffices to measure the time to the first byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanStatistics(ShownInNotebooks):
    """What one scan has cost so far: its planning, and everything that was read through it.

    Counts only requests that this scan sent. What another scan of the same table has fetched, and what was known when
    the table was opened, is free.
    """

    request_count: int
    """HTTP requests, with retries and hedges; calls of a store that does not speak HTTP. A request that found its kept
    connection closed, and was sent again over another one, counts once."""
    round_trips: int
    """Length of the longest chain of requests in which each began after the previous one ended."""
    fetched_bytes: int
    """All bytes of data and metadata that arrived."""
    wanted_bytes: int
    """Bytes of data that rows were decoded from, whatever their source."""
    gap_bytes: int
    """Bytes between these that were read over to save requests."""
    dollars: float | None
    """By ``ReadOptions.prices``, within the store's region. 0 if the store has no storage classes; None if one of the
    classes has no known price."""
    cache_hits: int
    """Answers that needed no request."""
    cache_hit_bytes: int
    retries: int
    """GETs sent again after a failure, and those that resumed a broken answer."""
    hedges_sent: int
    """Requests sent a second time because the first was slow."""
    hedges_won: int
    """Hedges that delivered the bytes."""
    row_count: int
    """Rows that were read and satisfy the predicate; answers from metadata count none."""
    decode_s: float
    """Time that threads spent decoding, in total."""
    waited_s: float
    """Time that requests waited for a slot, in total."""
    elapsed_s: float
    """Duration of the scan, pauses of a slow consumer included."""
    physical_limit_s: float
    """The least time in which the store could have answered these requests: round trips x time to the first byte, plus
    bytes / throughput of all connections that the options allow. 0 for local files, which no network limits."""
    records: tuple[RequestRecord, ...] = field(default=(), repr=False, compare=False)
    """The newest requests, which notebooks show over time."""

    @property
    def times_physical_limit(self) -> float | None:
        """Duration divided by the physical limit; None without requests over a network."""
        return self.elapsed_s / self.physical_limit_s if self.physical_limit_s else None

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data that ``json.dumps`` takes."""
        numbers = asdict(replace(self, records=()))
        del numbers["records"]
        return {**numbers, "times_physical_limit": self.times_physical_limit}


def scan_statistics(ledger: Ledger, *, speed: StoreSpeed, prices: PriceTable) -> ScanStatistics:
    """Sum up a ledger.

    Args:
        ledger: Of one scan.
        speed: Of the store; used where the scan's own requests do not tell.
        prices: What requests and bytes cost.
    """
    totals = asdict(ledger.totals)
    asked_bytes = totals.pop("asked_bytes")
    return ScanStatistics(
        **totals,
        gap_bytes=asked_bytes - totals["wanted_bytes"],
        dollars=ledger_dollars(ledger, prices),
        elapsed_s=ledger.elapsed_s,
        records=ledger.records,
        physical_limit_s=_physical_limit_s(ledger, speed) if speed.is_remote else 0.0,
    )


def request_dollars(record: RequestRecord, prices: PriceTable) -> float | None:
    """Return what one request costs; None where its storage class has no known price."""
    kind = _PRICED_AS.get(record.operation)
    if kind is None or not record.is_billed:
        return 0.0
    return prices.request_dollars(
        kind, storage_class=record.storage_class, retrieved_bytes=record.fetched_bytes, count=record.http_requests
    )


def ledger_dollars(ledger: Ledger, prices: PriceTable) -> float | None:
    """Return what the requests of a ledger cost; None where a storage class has no known price."""
    dollars = 0.0
    for (operation, storage_class), billed in ledger.billed.items():
        kind = _PRICED_AS.get(operation)
        if kind is None:
            continue
        price = prices.request_dollars(
            kind, storage_class=storage_class, retrieved_bytes=billed.fetched_bytes, count=billed.request_count
        )
        if price is None:
            return None
        dollars += price
    return dollars


def _physical_limit_s(ledger: Ledger, speed: StoreSpeed) -> float:
    """Return the least time for the round trips and the bytes of a ledger."""
    bytes_per_s = speed.connections * speed.connection_bytes_per_s
    totals = ledger.totals
    return totals.round_trips * _first_byte_s(ledger.records, speed) + totals.fetched_bytes / bytes_per_s


def _first_byte_s(records: Sequence[RequestRecord], speed: StoreSpeed) -> float:
    """Return how long the first byte takes: the median of what this scan saw, if it saw enough."""
    seen_s = [record.first_byte_s - record.started_s for record in records if record.first_byte_s is not None]
    return median(seen_s) if len(seen_s) >= _LEAST_ANSWERS else speed.first_byte_s
