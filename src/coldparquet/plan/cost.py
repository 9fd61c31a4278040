"""Estimates what a plan and its restores cost in dollars and in time, with the assumptions as data."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from coldparquet.prices import STANDARD, PriceTable
from coldparquet.text import human_dollars

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coldparquet.options import ReadOptions
    from coldparquet.plan.model import PartitionRead, ReadPlan, StoreSpeed
    from coldparquet.prices import RestoreTier


RESTORE_TIERS: tuple[RestoreTier, ...] = ("Expedited", "Standard", "Bulk")
"""From the fastest to the cheapest."""

INTELLIGENT_TIERING = "INTELLIGENT_TIERING"
"""The class that moves objects into archive tiers and back; restoring one makes no copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedBytes:
    """Objects of one class that are restored alike."""

    storage_class: str
    object_count: int
    """Number of restores to request; 0 if all are in progress."""
    object_bytes: int
    """Their total size."""
    days: int
    """How long the copies stay; 0 if none is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOffer:
    """Price and duration of restoring some objects in one tier."""

    tier: RestoreTier
    dollars: float
    """Requests, retrieval and copies; only of restores that are not in progress."""
    hours_typical: float
    hours_most: float
    """S3 guarantees nothing; most restores complete within this time."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data that ``json.dumps`` takes."""
        return asdict(self)


def price_restore(archived: Sequence[ArchivedBytes], *, tier: RestoreTier, prices: PriceTable) -> RestoreOffer | None:
    """Price one tier; None if one of the classes has no known price for it."""
    dollars = hours_typical = hours_most = 0.0
    for each in archived:
        known = prices.find(each.storage_class)
        price = next((price for price in known.restores if price.tier == tier), None) if known is not None else None
        if price is None:
            return None
        dollars += prices.restore_dollars(
            each.storage_class,
            tier,
            object_count=each.object_count,
            object_bytes=each.object_bytes,
            days=each.days,
        )
        hours_typical, hours_most = max(hours_typical, price.hours_typical), max(hours_most, price.hours_most)
    return RestoreOffer(tier=tier, dollars=dollars, hours_typical=hours_typical, hours_most=hours_most)


def describe_offer(offer: RestoreOffer) -> str:
    """Write ``Standard: 4 to 5 hours, $0.03``."""
    return f"{offer.tier}: {describe_hours(offer)}, {about_dollars(offer.dollars)}"


def describe_hours(offer: RestoreOffer) -> str:
    """Write ``3 to 5 minutes``, ``4 to 5 hours``."""
    if offer.hours_most < 1:
        return f"{offer.hours_typical * 60:.0f} to {offer.hours_most * 60:.0f} minutes"
    return f"{offer.hours_typical:g} to {offer.hours_most:g} hours"


def about_dollars(dollars: float | None) -> str:
    """Write ``$0.03``, ``nothing`` or ``at an unknown price``."""
    if dollars is None:
        return "at an unknown price"
    return human_dollars(dollars) if dollars else "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassReads:
    """GETs of objects of one storage class."""

    storage_class: str
    request_count: int
    fetched_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dollars:
    """A sum of money, and what it excludes."""

    amount: float
    unpriced_classes: tuple[str, ...] = ()
    """Storage classes without a known price; the sum excludes their requests."""


def prices_of(options: ReadOptions) -> PriceTable:
    """Return the price table to use: the caller's, or the library's."""
    return options.prices or PriceTable.default()


def reads_by_class(plan: ReadPlan) -> tuple[ClassReads, ...]:
    """Sum the data requests of a plan by the storage class of their objects; ``STANDARD`` if unknown."""
    classes = [partition.storage_class or STANDARD for partition in plan.partitions]
    counts: Counter[str] = Counter()
    fetched_bytes: Counter[str] = Counter()
    for request in plan.requests:
        storage_class = classes[request.partition_index]
        counts[storage_class] += 1
        fetched_bytes[storage_class] += request.byte_range.length_bytes
    return tuple(
        ClassReads(storage_class=name, request_count=count, fetched_bytes=fetched_bytes[name])
        for name, count in counts.items()
    )


def dollars_of(reads: Iterable[ClassReads], prices: PriceTable) -> Dollars:
    """Price the data requests of a plan."""
    amount, unpriced = 0.0, []
    for read in reads:
        dollars = prices.request_dollars(
            "get", storage_class=read.storage_class, retrieved_bytes=read.fetched_bytes, count=read.request_count
        )
        if dollars is None:
            unpriced.append(read.storage_class)
        else:
            amount += dollars
    return Dollars(amount=amount, unpriced_classes=tuple(unpriced))


def metadata_dollars(plan: ReadPlan, prices: PriceTable) -> Dollars:
    """Price the requests that made a plan.

    The class of other objects than the plan's data, such as sidecars, is unknown. ``STANDARD`` is assumed, which is
    where ``publish`` puts them.
    """
    class_of_path = {partition.data_path: partition.storage_class for partition in plan.partitions}
    amount, unpriced = 0.0, set[str]()
    for request in plan.metadata_requests:
        kind = "head" if request.operation == "info" else request.operation
        storage_class = class_of_path.get(request.path) if kind != "list" else None
        dollars = prices.request_dollars(kind, storage_class=storage_class, retrieved_bytes=request.fetched_bytes)
        if dollars is None:
            unpriced.add(storage_class or STANDARD)
        else:
            amount += dollars
    return Dollars(amount=amount, unpriced_classes=tuple(sorted(unpriced)))


def archived_reads(plan: ReadPlan) -> list[PartitionRead]:
    """Return the archived partitions that a plan fetches from."""
    places = dict.fromkeys(request.partition_index for request in plan.requests)
    return [plan.partitions[place] for place in places if plan.partitions[place].is_archived]


def restore_offers_of(plan: ReadPlan) -> tuple[RestoreOffer, ...] | None:
    """Price every tier that can restore the archived partitions of a plan; None if none is archived.

    Restores in progress cost nothing. No offer means that no price is known.
    """
    archived = archived_reads(plan)
    if not archived:
        return None
    alike = [
        ArchivedBytes(
            storage_class=each.storage_class or STANDARD,
            object_count=0 if each.is_being_restored else 1,
            object_bytes=0 if each.is_being_restored else each.parquet_size_bytes or 0,
            days=0 if each.storage_class == INTELLIGENT_TIERING else plan.options.restore.days,
        )
        for each in archived
    ]
    offers = (price_restore(alike, tier=tier, prices=prices_of(plan.options)) for tier in RESTORE_TIERS)
    return tuple(offer for offer in offers if offer is not None)


def plan_seconds(plan: ReadPlan) -> float:
    """Estimate how long the data requests of a plan take, see :func:`estimate_seconds`."""
    stages: dict[int, list[int]] = {}
    for request in plan.requests:
        stages.setdefault(request.stage, []).append(request.byte_range.length_bytes)
    return estimate_seconds(stages.values(), speed=plan.speed)


def estimate_seconds(stages: Iterable[Sequence[int]], *, speed: StoreSpeed) -> float:
    """Estimate the time from the first request sent to the last byte received.

    A request takes the time to its first byte plus its length over the throughput of a connection. As many requests run
    at once as there are connections, in plan order; each starts when another ends. A stage starts when the previous one
    ends. The estimate excludes retries, a slow network of the machine, and decoding.
    """
    return sum(
        _makespan_s(
            [speed.first_byte_s + length / speed.connection_bytes_per_s for length in lengths_bytes], speed.connections
        )
        for lengths_bytes in stages
        if lengths_bytes
    )


def _makespan_s(durations_s: list[float], concurrency: int) -> float:
    free_at_s = [0.0] * min(concurrency, len(durations_s))
    for duration_s in durations_s:
        heapq.heapreplace(free_at_s, free_at_s[0] + duration_s)
    return max(free_at_s)
