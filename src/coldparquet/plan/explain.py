"""Describes a read plan, in words for people and as plain data for programs, with its price and that of other goals."""

from __future__ import annotations

from collections import Counter
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from coldparquet.format.partition_names import has_parquet_suffix
from coldparquet.options import COALESCING_BY_GOAL
from coldparquet.plan.budget import (
    Spending,
    compare_goals,
    exceeded_limits,
    has_budget,
    planned_restores,
    what_would_fit,
)
from coldparquet.plan.cost import (
    ClassReads,
    about_dollars,
    describe_hours,
    dollars_of,
    metadata_dollars,
    plan_seconds,
    prices_of,
    reads_by_class,
    restore_offers_of,
)
from coldparquet.prices import STANDARD
from coldparquet.ranges import SuffixRange
from coldparquet.text import (
    aligned_rows,
    cut_short,
    few_names,
    human_bytes,
    human_dollars,
    human_seconds,
    labelled,
    plural,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coldparquet.options import ReadOptions
    from coldparquet.plan.cost import Dollars, RestoreOffer
    from coldparquet.plan.model import MetadataOperation, MetadataRequest, ReadPlan, Technique, TechniqueName
    from coldparquet.prices import PriceTable


_ON_THE_INVOICE: dict[MetadataOperation, str] = {"get": "GET", "info": "HEAD", "list": "LIST"}
_MILLION = 1e6
_CENT = 0.01
_TEXT_WIDTH = 66
"""With the label before it, lines have 80 columns."""


def fetch_section(plan: ReadPlan) -> list[str]:
    """Say what fetching the rows costs, and what making the plan has cost."""
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
    return [line for row in aligned_rows(rows, left={0}) for line in row]


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
    """Say for each tier what restoring the archived partitions takes; empty if none is archived."""
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
    """Say what the plan would cost in the other storage classes with immediate access."""
    found: dict[str, list[str]] = {}
    for name, dollars in _dollars_if_all_in(plan, prices).items():
        if name != STANDARD:
            found.setdefault(human_dollars(dollars * scale), []).append(name)
    return "in other classes " + ", ".join(f"{amount} ({few_names(names)})" for amount, names in found.items())


def _dollars_if_all_in(plan: ReadPlan, prices: PriceTable) -> dict[str, float]:
    """Price the data requests in each storage class with immediate access, by its name."""
    count, fetched_bytes = plan.request_count, plan.bytes_fetched
    return {
        of_class.name: dollars_of(
            [ClassReads(storage_class=of_class.name, request_count=count, fetched_bytes=fetched_bytes)], prices
        ).amount
        for of_class in prices.classes
        if not of_class.must_be_restored
    }


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
        # A disk is listed directory by directory, S3 is not: what it would charge cannot be told.
        lines.append(several if _is_free(plan) else f"{several}: {_sum(dollars, scale)} {times}")
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
    """Tell whether the store charges nothing: it is local, and has no storage classes."""
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
    """Return the number of reads or plans that a price is quoted for, in words and as a number.

    A single one costs millionths of a dollar; the price of a million can be compared.
    """
    return (f"for a million {noun}s like this", _MILLION) if dollars < _CENT else (f"for this {noun}", 1)


_LISTED = 20
"""Partitions, and requests, that the text lists before it only counts the others."""


_ACHIEVED: dict[TechniqueName, str] = {
    "bloom filter": "ruled out",
    "page index": "left out",
    "late reading": "fetches the condition's columns first for",
}
"""The verb for what each technique does to what it counts."""

_PLANNED_FROM = {
    "sidecar": "sidecar",
    "catalogue": "catalogue",
    "footer": "footer",
    "native": "native files",
}


def explain_text(plan: ReadPlan, width: int | None = None) -> str:
    """Describe a plan for a person: what is read and pruned, why, and what it costs. Ends without a newline.

    Tables are folded to ``width``.
    """
    sections = [
        [f"Read plan for {plan.table}"],
        _question(plan),
        _pruning(plan),
        _partition_table(plan, width),
        fetch_section(plan),
        goal_table(plan),
        _request_table(plan, width),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section)


def _question(plan: ReadPlan) -> list[str]:
    lines = [] if plan.snapshot is None else labelled("snapshot", [plan.snapshot, *plan.notes])
    lines += labelled("columns", [few_names(plan.columns) or "none: only rows are counted"])
    lines += labelled("where", [cut_short(plan.predicate or "every row")])
    if plan.limit is not None:
        lines += labelled("limit", [f"{plan.limit:,}"])
    return lines


def _pruning(plan: ReadPlan) -> list[str]:
    looked_at, pruned = len(plan.partitions), len(plan.partitions_pruned)
    partition_reasons = Counter(partition.reason for partition in plan.partitions_pruned)
    lines = labelled(
        "partitions",
        [
            *_with_reasons(f"{looked_at:,} of {looked_at + pruned:,} looked into", pruned, partition_reasons),
            *_archived(plan),
        ],
    )

    total = sum(partition.row_groups_total for partition in plan.partitions)
    read = sum(partition.row_groups_read for partition in plan.partitions)
    row_group_reasons: Counter[str] = Counter()
    for partition in plan.partitions:
        for dropped in partition.dropped:
            if dropped.row_groups:
                row_group_reasons[dropped.reason] += dropped.row_groups
    lines += labelled("row groups", _with_reasons(f"{read:,} of {total:,} read", total - read, row_group_reasons))
    lines += _techniques(plan)

    least, most = plan.rows_at_least, plan.rows_at_most
    bounds = f"between {least:,} and {most:,}" if least else f"at most {most:,}"
    return lines + labelled("result rows", [f"{most:,}" if least == most else bounds])


def _archived(plan: ReadPlan) -> list[str]:
    """Name the partitions that are skipped, or unreadable, because they are archived."""
    skipped = plan.partitions_skipped
    waiting = [partition for partition in plan.partitions if partition.is_archived]
    lines = []
    if skipped:
        where = _few_classes(partition.storage_class for partition in skipped)
        size = human_bytes(sum(partition.size_bytes for partition in skipped))
        names = few_names([partition.name for partition in skipped])
        count = plural(len(skipped), "archived partition")
        lines.append(f"{count} ({where}), {size}, skipped, so that rows are missing: {names}")
    if waiting:
        where = _few_classes(partition.storage_class or "archive" for partition in waiting)
        size = human_bytes(sum(partition.parquet_size_bytes or 0 for partition in waiting))
        count = plural(len(waiting), "archived partition")
        lines.append(f"{count} ({where}), {size}: to be restored first, see 'coldparquet restore'")
    return lines


def _few_classes(classes: Iterable[str]) -> str:
    return few_names(list(dict.fromkeys(classes)))


def _techniques(plan: ReadPlan) -> list[str]:
    """Say for each technique what it saved over all partitions, and where and why it was not used."""
    by_name: dict[TechniqueName, list[Technique]] = {}
    for partition in plan.partitions:
        for technique in partition.techniques:
            # If nothing is read, an unused technique could not have saved anything.
            if technique.is_used or partition.row_groups_read:
                by_name.setdefault(technique.name, []).append(technique)
    lines = []
    for name, techniques in by_name.items():
        used = [technique for technique in techniques if technique.is_used]
        unused = [technique for technique in techniques if not technique.is_used]
        of_several = len(plan.partitions) > 1
        texts = [_used(used, of_several=of_several)] if used else []
        texts += [_unused(unused, of_several=of_several)] if unused else []
        lines += labelled(name, [line for text in texts for line in wrap(text, _TEXT_WIDTH)])
    return lines


def _used(techniques: Sequence[Technique], *, of_several: bool) -> str:
    """Sum the effect of one technique over the partitions that used it."""
    affected = sum(technique.affected for technique in techniques)
    considered = sum(technique.considered for technique in techniques)
    first = techniques[0]
    where = f" in {plural(len(techniques), 'partition')}" if of_several else ""
    if not affected and first.name != "late reading":
        return f"all {considered:,} {first.unit}{where} may match"
    text = f"{_ACHIEVED[first.name]} {affected:,} of {considered:,} {first.unit}{where}"
    is_shared = all(technique.reason == first.reason for technique in techniques)
    return f"{text}: {_reason(techniques)}" if first.reason and is_shared else text


def _unused(techniques: Sequence[Technique], *, of_several: bool) -> str:
    """Return the reason why most of the other partitions did not use one technique."""
    [(reason, count)] = Counter(technique.reason for technique in techniques).most_common(1)
    where = f" in {plural(len(techniques), 'partition')}" if of_several else ""
    mostly = "" if count == len(techniques) else f", in {count:,} of them because"
    shared = [technique for technique in techniques if technique.reason == reason]
    return f"not used{where}{mostly}: {_reason(shared)}"


def _reason(techniques: Sequence[Technique]) -> str:
    """Return the reason that partitions share; if it concerns a single partition, with its numbers."""
    [first, *others] = techniques
    return f"{first.reason} ({first.details})" if first.details and not others else first.reason


def _with_reasons(kept: str, pruned: int, reasons: Counter[str]) -> list[str]:
    """Say what was pruned: after what was kept if one reason explains it, else one line per reason, the best first."""
    if not pruned:
        return [kept]
    text = f"{kept}, {pruned:,} pruned"
    if [*reasons.values()] == [pruned]:
        return [f"{text} by {cut_short(reason)}" for reason in reasons]
    several = " (some for several reasons)" if reasons.total() > pruned else ""
    width = max((len(f"{count:,}") for count in reasons.values()), default=0)
    return [text + several, *(f"{count:>{width},} by {cut_short(reason)}" for reason, count in reasons.most_common())]


def _partition_table(plan: ReadPlan, width: int | None) -> list[str]:
    if not plan.partitions:
        return []
    rows = [("partition", "row groups", "rows", "wanted", "fetched", "requests", "source")]
    remarks: list[list[str]] = []
    for index, partition in enumerate(plan.partitions[:_LISTED]):
        numbers = plan.numbers_of(index)
        is_native = partition.metadata_source == "native"
        rows.append(
            (
                partition.name,
                "native" if is_native else f"{partition.row_groups_read:,} of {partition.row_groups_total:,}",
                f"{partition.rows_read:,} of {partition.rows_total:,}",
                human_bytes(numbers.bytes_wanted),
                human_bytes(numbers.bytes_fetched),
                f"{numbers.request_count:,}",
                _PLANNED_FROM[partition.metadata_source],
            )
        )
        made = [f"made without fetching: {few_names(partition.made_columns)}"] if partition.made_columns else []
        remarks.append([f"    {remark}" for remark in [*made, *partition.notes]])
    [header, *body] = aligned_rows(rows, left={0, 6}, width=width)
    lines = [*header]
    for row, remark in zip(body, remarks, strict=True):
        lines += [*row, *remark]
    lines += _and_more(len(plan.partitions))
    by_footer = [partition for partition in plan.partitions if partition.metadata_source == "footer"]
    if any(plan.speed.is_remote or not has_parquet_suffix(partition.name) for partition in by_footer):
        lines.append("'coldparquet index' describes the files once, in place of footers")
    return lines


def _request_table(plan: ReadPlan, width: int | None) -> list[str]:
    if not plan.requests:
        return []
    staged = plan.round_trips > 1
    rows = [("request", "partition", "first byte", "length", "for")]
    for number, request in enumerate(plan.requests[:_LISTED], start=1):
        stage = f" (round trip {request.stage})" if staged else ""
        rows.append(
            (
                str(number),
                plan.partitions[request.partition_index].name,
                f"{request.byte_range.start:,}",
                human_bytes(request.byte_range.length_bytes),
                request.reason + stage,
            )
        )
    return [line for row in aligned_rows(rows, left={1, 4}, width=width) for line in row] + _and_more(
        len(plan.requests)
    )


def _and_more(count: int) -> list[str]:
    return [f"  ... and {count - _LISTED:,} more"] if count > _LISTED else []


def explain_dict(plan: ReadPlan) -> dict[str, Any]:
    """Describe a plan as plain data that ``json.dumps`` takes. Byte ranges are half-open."""
    of_plan = (
        *("table", "columns", "snapshot", "notes", "predicate", "limit", "rows_at_least", "rows_at_most"),
        *("request_count", "bytes_wanted", "bytes_fetched", "round_trips"),
    )
    return _named(plan, *of_plan) | {
        "estimate": _estimate_dict(plan),
        "goals": _goals_dict(plan),
        "partitions_pruned": [_named(pruned, "name", "reason") for pruned in plan.partitions_pruned],
        "partitions_skipped": [
            _named(skipped, "name", "storage_class", "size_bytes") for skipped in plan.partitions_skipped
        ],
        "partitions": [_partition_dict(plan, index) for index in range(len(plan.partitions))],
        "requests": [
            {
                "partition": plan.partitions[request.partition_index].name,
                "path": request.path,
                "start": request.byte_range.start,
                "stop": request.byte_range.stop,
                "reason": request.reason,
                "stage": request.stage,
            }
            for request in plan.requests
        ],
        "metadata_requests": [_metadata_dict(request) for request in plan.metadata_requests],
        "options": {
            "goal": plan.options.goal,
            "coalesce_gap_bytes": plan.widest_gap_bytes,
            "max_request_bytes": plan.longest_request_bytes,
            **_named(plan.options, "max_concurrency", "max_bytes", "max_requests", "max_usd"),
        },
    }


def _named(described: object, *names: str) -> dict[str, Any]:
    """Return attributes by their names, tuples as lists."""
    values = {name: getattr(described, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _estimate_dict(plan: ReadPlan) -> dict[str, Any]:
    prices, speed = prices_of(plan.options), plan.speed
    reads = reads_by_class(plan)
    data, metadata = dollars_of(reads, prices), metadata_dollars(plan, prices)
    restores = planned_restores(plan)
    return {
        "seconds": plan_seconds(plan),
        "dollars": data.amount,
        "metadata_dollars": metadata.amount,
        "restores": [offer.as_dict() for offer in restore_offers_of(plan) or ()],
        "unpriced_classes": sorted({*data.unpriced_classes, *metadata.unpriced_classes}),
        "by_storage_class": [
            {"storage_class": read.storage_class, "requests": read.request_count, "bytes": read.fetched_bytes}
            for read in reads
        ],
        "dollars_if_all_in": _dollars_if_all_in(plan, prices),
        "unverified_prices": [entry.name for entry in prices.classes if not entry.is_verified],
        "prices": prices.name,
        "prices_as_of": prices.as_of,
        "counts_transfer_out": prices.counts_transfer_out,
        **_named(speed, "first_byte_s", "is_first_byte_measured", "connection_bytes_per_s", "is_throughput_measured"),
        "concurrency": speed.connections,
        "restore_dollars": None if restores is None else restores.dollars,
        "exceeded": exceeded_limits(plan),
    }


def _goals_dict(plan: ReadPlan) -> dict[str, Any]:
    return {
        cost.goal: _named(cost, "request_count", "bytes_fetched", "round_trips", "seconds")
        | {"dollars": cost.dollars.amount}
        for cost in compare_goals(plan)
    }


def _partition_dict(plan: ReadPlan, index: int) -> dict[str, Any]:
    partition, numbers = plan.partitions[index], plan.numbers_of(index)
    of_partition = (
        *("name", "data_path", "parquet_size_bytes", "storage_class", "is_archived", "is_being_restored"),
        *("metadata_source", "row_groups_total", "row_groups_read"),
    )
    of_technique = ("name", "is_used", "affected", "considered", "unit", "reason", "details")
    return {
        **_named(partition, *of_partition),
        "row_groups": list(dict.fromkeys(read.row_group for read in plan.row_groups_of(index))),
        **_named(partition, "rows_total", "rows_read"),
        **_named(numbers, "request_count", "bytes_wanted", "bytes_fetched"),
        "dropped": [_named(dropped, "reason", "row_groups") for dropped in partition.dropped if dropped.row_groups],
        "made_columns": list(partition.made_columns),
        "techniques": [_named(technique, *of_technique) for technique in partition.techniques],
        "notes": list(partition.notes),
    }


def _metadata_dict(request: MetadataRequest) -> dict[str, Any]:
    asked = dict.fromkeys(("start", "stop", "suffix_bytes"))
    if isinstance(request.byte_range, SuffixRange):
        asked["suffix_bytes"] = request.byte_range.length_bytes
    elif request.byte_range is not None:
        asked |= _named(request.byte_range, "start", "stop")
    return {**_named(request, "operation", "path"), **asked, **_named(request, "reason", "fetched_bytes")}
