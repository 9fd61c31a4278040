"""What a plan costs in requests, bytes, time and money, in words; and what other goals would cost."""

from __future__ import annotations

from collections import Counter
from textwrap import wrap
from typing import TYPE_CHECKING

from coldparquet.options import COALESCING_BY_GOAL
from coldparquet.plan.budgets import Spending, exceeded_limits, has_budget, planned_restores, what_would_fit
from coldparquet.plan.cost import (
    ClassReads,
    dollars_of,
    metadata_dollars,
    plan_seconds,
    prices_of,
    reads_by_class,
    restore_offers_of,
)
from coldparquet.plan.goal_comparison import compare_goals
from coldparquet.plan.restore_price import about_dollars, describe_hours
from coldparquet.plan.wording import aligned, few_names, human_bytes, human_dollars, human_seconds, labelled, plural
from coldparquet.prices import STANDARD

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.options import ReadOptions
    from coldparquet.plan.cost import Dollars
    from coldparquet.plan.read_plan import MetadataOperation, ReadPlan
    from coldparquet.plan.restore_price import RestoreOffer
    from coldparquet.prices import PriceTable

_ON_THE_INVOICE: dict[MetadataOperation, str] = {"get": "GET", "info": "HEAD", "list": "LIST"}
_MILLION = 1e6
_CENT = 0.01
_TEXT_WIDTH = 66
"""With the label before it, lines have 80 columns."""


def fetch_section(plan: ReadPlan) -> list[str]:
    """Say what fetching the rows takes and costs, and what making the plan has cost."""
    if not plan.requests:
        lines = labelled("fetch", ["nothing: no data byte is needed"])
    else:
        wanted, fetched = plan.bytes_wanted, plan.bytes_fetched
        gap, longest = human_bytes(plan.widest_gap_bytes), human_bytes(plan.longest_request_bytes)
        overhead = f"{(fetched - wanted) / wanted:.1%} more" if fetched != wanted else "nothing more"
        lines = labelled(
            "fetch",
            [
                f"{plural(plan.request_count, 'request')} in {plural(plan.round_trips, 'round trip')}",
                f"{human_bytes(fetched)} for {human_bytes(wanted)} wanted ({overhead})",
                f"goal {plan.options.goal}: gaps up to {gap} read over, requests up to {longest}",
            ],
        )
        lines += labelled("time", [*_restore_first(plan, describe_hours, "for an unknown time"), *_time(plan)])
        prices = _restore_first(plan, lambda offer: about_dollars(offer.dollars), "at an unknown price")
        lines += labelled("price", [*prices, *_price(plan)])
    lines += labelled("spent so far", _spent(plan))
    return lines + (labelled("budget", _budget(plan)) if has_budget(plan.options) else [])


def goal_table(plan: ReadPlan) -> list[str]:
    """Compare the goals side by side; the one of the plan is marked."""
    costs = compare_goals(plan) if plan.requests else ()
    if len(costs) < len(COALESCING_BY_GOAL):
        return []
    _, scale = _scale(min(cost.dollars.amount for cost in costs), "read")
    rows = [("goal", "requests", "fetched", "round trips", "time", "price" if scale == 1 else "price of a million")]
    rows += [
        (
            f"{cost.goal}{' *' if cost.goal == plan.options.goal else ''}",
            f"{cost.request_count:,}",
            human_bytes(cost.bytes_fetched),
            f"{cost.round_trips:,}",
            human_seconds(cost.seconds),
            human_dollars(cost.dollars.amount * scale),
        )
        for cost in costs
    ]
    return aligned(rows, left={0})


def _time(plan: ReadPlan) -> list[str]:
    speed = plan.speed
    first_byte = f"{human_seconds(speed.first_byte_s)} to each first byte"
    throughput = f"{human_bytes(int(speed.connection_bytes_per_s))}/s each"
    if speed.is_first_byte_measured and speed.is_throughput_measured:
        figures = f"{first_byte}, then {throughput} (measured at this store)"
    elif speed.is_first_byte_measured:
        figures = f"{first_byte} (measured), then {throughput} (published for S3)"
    else:
        doubt = "not measured yet" if speed.is_remote else "a disk is faster"
        figures = f"{first_byte}, then {throughput} (published for S3; {doubt})"
    return [f"about {human_seconds(plan_seconds(plan))} with up to {speed.connections} connections", figures]


def _restore_first(plan: ReadPlan, describe: Callable[[RestoreOffer], str], unknown: str) -> list[str]:
    """Say of each tier what restoring the archived partitions takes, before any of what follows; nothing if none is."""
    offers = restore_offers_of(plan)
    if offers is None:
        return []
    tiers = ", ".join(f"{offer.tier} {describe(offer)}" for offer in offers) or unknown
    return [f"a restore first, for {plural(plan.options.restore.days, 'day')}: {tiers}; then"]


def _price(plan: ReadPlan) -> list[str]:
    prices, reads = prices_of(plan.options), reads_by_class(plan)
    dollars = dollars_of(reads, prices)
    times, scale = _scale(dollars.amount, "read")
    where = "leaving the region" if prices.counts_transfer_out else "in the region"
    is_assumed = all(partition.storage_class is None for partition in plan.partitions)
    is_free = _is_free(plan)
    charged = "as S3 Standard would charge, " if is_free else ""
    lines = [
        f"{_sum(dollars, scale)} {times}, data requests only, {where}",
        f"{charged}with the prices of {prices.name}, {prices.as_of}",
    ]
    for read in [] if is_free else reads:
        found = prices.find(read.storage_class)
        doubt = "" if found is None or found.is_verified else " (price unverified)"
        assumed = " (assumed)" if is_assumed else ""
        lines.append(
            f"{plural(read.request_count, 'request')}, {human_bytes(read.fetched_bytes)} in {read.storage_class}"
            f"{assumed}{doubt}"
        )
    return lines + wrap(_elsewhere(plan, prices, scale), _TEXT_WIDTH) if is_assumed else lines


def _elsewhere(plan: ReadPlan, prices: PriceTable, scale: float) -> str:
    """Say what the plan would cost if its objects were in the other classes that answer a GET at once."""
    found: dict[str, list[str]] = {}
    for of_class in prices.classes:
        if of_class.must_be_restored or of_class.name == STANDARD:
            continue
        read = ClassReads(
            storage_class=of_class.name, request_count=plan.request_count, fetched_bytes=plan.bytes_fetched
        )
        amount = human_dollars(dollars_of([read], prices).amount * scale)
        found.setdefault(amount, []).append(of_class.name)
    return "in other classes " + ", ".join(f"{amount} ({few_names(names)})" for amount, names in found.items())


def _spent(plan: ReadPlan) -> list[str]:
    requests = plan.metadata_requests
    fetched_bytes = sum(request.fetched_bytes for request in requests)
    lines = [f"{plural(len(requests), 'metadata request')}, {human_bytes(fetched_bytes)} to make this plan"]
    if requests:
        operations = Counter(request.operation for request in requests)
        counts = [plural(operations[kind], noun) for kind, noun in _ON_THE_INVOICE.items() if operations[kind]]
        several = " and ".join([", ".join(counts[:-1]), counts[-1]] if len(counts) > 1 else counts)
        dollars = metadata_dollars(plan, prices_of(plan.options))
        times, scale = _scale(dollars.amount, "plan")
        asked = "S3 would charge " if _is_free(plan) else ""
        lines.append(f"{several}: {asked}{_sum(dollars, scale)} {times}")
    return lines


def _budget(plan: ReadPlan) -> list[str]:
    breaches, restores = exceeded_limits(plan), planned_restores(plan)
    counted = "" if restores is None else f", with {restores}"
    if not breaches:
        return [f"within the budget of {_limits(plan.options)}{counted}"]
    return [
        f"exceeded{counted}, so that nothing would be read: {' and '.join(breaches)}",
        what_would_fit(plan, Spending(), restores=restores),
    ]


def _is_free(plan: ReadPlan) -> bool:
    """Tell whether the store charges nothing: it is local, and knows no storage classes."""
    return not plan.speed.is_remote and all(partition.storage_class is None for partition in plan.partitions)


def _limits(options: ReadOptions) -> str:
    limits = [] if options.max_requests is None else [plural(options.max_requests, "request")]
    limits += [] if options.max_bytes is None else [human_bytes(options.max_bytes)]
    limits += [] if options.max_usd is None else [human_dollars(options.max_usd)]
    return " and ".join(limits)


def _sum(dollars: Dollars, scale: float) -> str:
    missing = f" and what {', '.join(dollars.unpriced_classes)} costs" if dollars.unpriced_classes else ""
    return f"{human_dollars(dollars.amount * scale)}{missing}"


def _scale(dollars: float, noun: str) -> tuple[str, float]:
    """Return for how many reads or plans a price is told, in words and as a number.

    One of them costs millionths of a dollar; the price of a million can be compared.
    """
    return (f"for a million {noun}s like this", _MILLION) if dollars < _CENT else (f"for this {noun}", 1)
