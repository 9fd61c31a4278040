"""A read plan in words and as JSON: for people at night and for programs."""

from __future__ import annotations

from collections import Counter
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from coldparquet.plan.cost import (
    CONNECTION_BYTES_PER_S,
    FIRST_BYTE_S,
    PRICES,
    PRICES_AS_OF,
    estimate_dollars,
    estimate_seconds,
)
from coldparquet.ranges import SuffixRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.plan.read_plan import MetadataRequest, ReadPlan, Technique, TechniqueName

_LISTED = 20
"""Partitions, and requests, that the text lists before it says how many more there are."""

_NAMES_LISTED = 12
"""Column names that the text lists before it says how many more there are."""

_LONGEST_TEXT = 300
"""Longest predicate or reason, in characters: an IN list may hold thousands of values."""

_LABEL_WIDTH = 12
_TEXT_WIDTH = 100
"""Longer reasons are continued on a second line."""

_ACHIEVED: dict[TechniqueName, str] = {
    "bloom filter": "ruled out",
    "page index": "left out",
    "late reading": "fetches the condition's columns first for",
}
"""What each technique does to what it counts."""

_PLANNED_FROM = {"sidecar": "sidecar", "footer": "footer: no usable sidecar", "native": "native files"}


def explain_text(plan: ReadPlan) -> str:
    """Describe a plan for a person: what is read and pruned, why, and what it costs. Ends without a newline."""
    sections = [
        [f"Read plan for {plan.table}"],
        _question(plan),
        _pruning(plan),
        _partition_table(plan),
        _fetch(plan),
        _request_table(plan),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section)


def explain_dict(plan: ReadPlan) -> dict[str, Any]:
    """Describe a plan as plain data that ``json.dumps`` takes. Byte ranges are half-open."""
    return {
        "table": plan.table,
        "columns": list(plan.columns),
        "snapshot": plan.snapshot,
        "notes": list(plan.notes),
        "predicate": plan.predicate,
        "limit": plan.limit,
        "rows_at_least": plan.rows_at_least,
        "rows_at_most": plan.rows_at_most,
        "request_count": plan.request_count,
        "bytes_wanted": plan.bytes_wanted,
        "bytes_fetched": plan.bytes_fetched,
        "round_trips": plan.round_trips,
        "estimate": {
            "seconds": _seconds(plan),
            "dollars": _data_dollars(plan),
            "metadata_dollars": _metadata_dollars(plan),
            "unverified_prices": [name for name, price in PRICES.items() if not price.verified],
            "prices_as_of": PRICES_AS_OF,
            "first_byte_s": FIRST_BYTE_S,
            "connection_bytes_per_s": CONNECTION_BYTES_PER_S,
            "concurrency": plan.options.max_concurrency,
        },
        "partitions_pruned": [{"name": pruned.name, "reason": pruned.reason} for pruned in plan.partitions_pruned],
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
            "coalesce_gap_bytes": plan.options.coalescing.gap_bytes,
            "max_request_bytes": plan.options.coalescing.max_request_bytes,
            "max_concurrency": plan.options.max_concurrency,
        },
    }


def human_bytes(count: int) -> str:
    """Write a number of bytes in three digits or so: ``512 B``, ``64 KiB``, ``1.2 MiB``."""
    if count < 1024:
        return f"{count:,} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        # 1023.96 KiB would print as 1,024 KiB: the next unit says it better.
        if value < 1023.5 or unit == "TiB":
            break
    text = f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"
    return f"{text.removesuffix('.0')} {unit}"


def _partition_dict(plan: ReadPlan, index: int) -> dict[str, Any]:
    partition, numbers = plan.partitions[index], plan.numbers_of(index)
    return {
        "name": partition.name,
        "data_path": partition.data_path,
        "parquet_size_bytes": partition.parquet_size_bytes,
        "metadata_source": partition.metadata_source,
        "row_groups_total": partition.row_groups_total,
        "row_groups_read": partition.row_groups_read,
        "row_groups": list(dict.fromkeys(read.row_group for read in plan.row_groups_of(index))),
        "rows_total": partition.rows_total,
        "rows_read": partition.rows_read,
        "request_count": numbers.request_count,
        "bytes_wanted": numbers.bytes_wanted,
        "bytes_fetched": numbers.bytes_fetched,
        "dropped": [{"reason": dropped.reason, "row_groups": dropped.row_groups} for dropped in partition.dropped],
        "made_columns": list(partition.made_columns),
        "techniques": [
            {
                "name": technique.name,
                "is_used": technique.is_used,
                "affected": technique.affected,
                "considered": technique.considered,
                "unit": technique.unit,
                "reason": technique.reason,
                "details": technique.details,
            }
            for technique in partition.techniques
        ],
        "notes": list(partition.notes),
    }


def _metadata_dict(request: MetadataRequest) -> dict[str, Any]:
    asked: dict[str, int | None]
    match request.byte_range:
        case None:
            asked = {"start": None, "stop": None, "suffix_bytes": None}
        case SuffixRange(length_bytes):
            asked = {"start": None, "stop": None, "suffix_bytes": length_bytes}
        case byte_range:
            asked = {"start": byte_range.start, "stop": byte_range.stop, "suffix_bytes": None}
    return {
        "operation": request.operation,
        "path": request.path,
        **asked,
        "reason": request.reason,
        "fetched_bytes": request.fetched_bytes,
    }


def _seconds(plan: ReadPlan) -> float:
    stages: dict[int, list[int]] = {}
    for request in plan.requests:
        stages.setdefault(request.stage, []).append(request.byte_range.length_bytes)
    return estimate_seconds(stages.values(), concurrency=plan.options.max_concurrency)


def _data_dollars(plan: ReadPlan) -> dict[str, float]:
    """Price of the planned GETs, by storage class."""
    return {name: estimate_dollars(plan.request_count, plan.bytes_fetched, storage_class=name) for name in PRICES}


def _metadata_dollars(plan: ReadPlan) -> dict[str, float]:
    """Price of the requests that made the plan, by storage class."""
    lists = sum(request.operation == "list" for request in plan.metadata_requests)
    gets = len(plan.metadata_requests) - lists
    fetched_bytes = sum(request.fetched_bytes for request in plan.metadata_requests)
    return {name: estimate_dollars(gets, fetched_bytes, list_count=lists, storage_class=name) for name in PRICES}


def _question(plan: ReadPlan) -> list[str]:
    lines = [] if plan.snapshot is None else _labelled("snapshot", [plan.snapshot, *plan.notes])
    lines += _labelled("columns", [few_names(plan.columns) or "none: only rows are counted"])
    lines += _labelled("where", [_cut(plan.predicate or "every row")])
    if plan.limit is not None:
        lines += _labelled("limit", [f"{plan.limit:,}"])
    return lines


def _pruning(plan: ReadPlan) -> list[str]:
    looked_at, pruned = len(plan.partitions), len(plan.partitions_pruned)
    partition_reasons = Counter(partition.reason for partition in plan.partitions_pruned)
    lines = _labelled(
        "partitions", _with_reasons(f"{looked_at:,} of {looked_at + pruned:,} looked into", pruned, partition_reasons)
    )

    total = sum(partition.row_groups_total for partition in plan.partitions)
    read = sum(partition.row_groups_read for partition in plan.partitions)
    row_group_reasons: Counter[str] = Counter()
    for partition in plan.partitions:
        for dropped in partition.dropped:
            if dropped.row_groups:
                row_group_reasons[dropped.reason] += dropped.row_groups
    lines += _labelled("row groups", _with_reasons(f"{read:,} of {total:,} read", total - read, row_group_reasons))
    lines += _techniques(plan)

    least, most = plan.rows_at_least, plan.rows_at_most
    bounds = f"between {least:,} and {most:,}" if least else f"at most {most:,}"
    return lines + _labelled("result rows", [f"{most:,}" if least == most else bounds])


def _techniques(plan: ReadPlan) -> list[str]:
    """Say of each technique what it brought, added up over the partitions, and where and why it was not used."""
    by_name: dict[TechniqueName, list[Technique]] = {}
    for partition in plan.partitions:
        for technique in partition.techniques:
            # Where nothing is read, nothing could be saved by what was not used.
            if technique.is_used or partition.row_groups_read:
                by_name.setdefault(technique.name, []).append(technique)
    lines = []
    for name, techniques in by_name.items():
        used = [technique for technique in techniques if technique.is_used]
        unused = [technique for technique in techniques if not technique.is_used]
        of_several = len(plan.partitions) > 1
        texts = [_used(used, of_several=of_several)] if used else []
        texts += [_unused(unused, of_several=of_several)] if unused else []
        lines += _labelled(name, [line for text in texts for line in wrap(text, _TEXT_WIDTH)])
    return lines


def _used(techniques: Sequence[Technique], *, of_several: bool) -> str:
    """Add up what one technique brought in the partitions where it was used."""
    affected = sum(technique.affected for technique in techniques)
    considered = sum(technique.considered for technique in techniques)
    first = techniques[0]
    where = f" in {plural(len(techniques), 'partition')}" if of_several else ""
    text = f"{_ACHIEVED[first.name]} {affected:,} of {considered:,} {first.unit}{where}"
    is_shared = all(technique.reason == first.reason for technique in techniques)
    return f"{text}: {_reason(techniques)}" if first.reason and is_shared else text


def _unused(techniques: Sequence[Technique], *, of_several: bool) -> str:
    """Give the reason of most of the partitions in which one technique was not used."""
    [(reason, count)] = Counter(technique.reason for technique in techniques).most_common(1)
    where = f" in {plural(len(techniques), 'partition')}" if of_several else ""
    mostly = "" if count == len(techniques) else f", in {count:,} of them because"
    shared = [technique for technique in techniques if technique.reason == reason]
    return f"not used{where}{mostly}: {_reason(shared)}"


def _reason(techniques: Sequence[Technique]) -> str:
    """Return the reason that partitions share, with its numbers where it is that of one partition."""
    [first, *others] = techniques
    return f"{first.reason} ({first.details})" if first.details and not others else first.reason


def _with_reasons(kept: str, pruned: int, reasons: Counter[str]) -> list[str]:
    """Say what was pruned: behind what was kept if one reason explains it, else one line per reason, the best first."""
    if not pruned:
        return [kept]
    text = f"{kept}, {pruned:,} pruned"
    if [*reasons.values()] == [pruned]:
        return [f"{text} by {_cut(reason)}" for reason in reasons]
    several = " (some for several reasons)" if reasons.total() > pruned else ""
    width = max((len(f"{count:,}") for count in reasons.values()), default=0)
    return [text + several, *(f"{count:>{width},} by {_cut(reason)}" for reason, count in reasons.most_common())]


def _partition_table(plan: ReadPlan) -> list[str]:
    if not plan.partitions:
        return []
    rows = [("partition", "row groups", "rows", "wanted", "fetched", "requests", "planned from")]
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
    header, *body = _aligned(rows, left={0, 6})
    lines = [header]
    for row, remark in zip(body, remarks, strict=True):
        lines += [row, *remark]
    return lines + _and_more(len(plan.partitions))


def _fetch(plan: ReadPlan) -> list[str]:
    options = plan.options
    if not plan.requests:
        lines = _labelled("fetch", ["nothing: no data byte is needed"])
    else:
        wanted, fetched = plan.bytes_wanted, plan.bytes_fetched
        gap, longest = human_bytes(options.coalescing.gap_bytes), human_bytes(options.coalescing.max_request_bytes)
        overhead = f"{(fetched - wanted) / wanted:.1%} more" if fetched != wanted else "nothing more"
        lines = _labelled(
            "fetch",
            [
                f"{plural(plan.request_count, 'request')} in {plural(plan.round_trips, 'round trip')}",
                f"{human_bytes(fetched)} for {human_bytes(wanted)} wanted ({overhead})",
                f"goal {options.goal}: gaps up to {gap} read over, requests up to {longest}",
            ],
        )
        lines += _labelled(
            "time on S3",
            [
                f"about {_human_seconds(_seconds(plan))} with up to {options.max_concurrency} connections",
                f"{_human_seconds(FIRST_BYTE_S)} to each first byte, then {human_bytes(CONNECTION_BYTES_PER_S)}/s each",
            ],
        )
        lines += _labelled("price on S3", _prices(plan))
    return lines + _labelled("spent so far", _spent(plan))


def _prices(plan: ReadPlan) -> list[str]:
    dollars = _data_dollars(plan)
    times, scale = _times(dollars, "read")
    rows = [
        (f"${amount * scale:,.2f}", name + ("" if PRICES[name].verified else " (price of a GET unverified)"))
        for name, amount in dollars.items()
    ]
    return [f"data GETs only, {times}, in the region, prices of {PRICES_AS_OF}", *_aligned(rows, left={1})]


def _spent(plan: ReadPlan) -> list[str]:
    requests = plan.metadata_requests
    fetched_bytes = sum(request.fetched_bytes for request in requests)
    lines = [f"{plural(len(requests), 'metadata request')}, {human_bytes(fetched_bytes)} to make this plan"]
    if requests:
        lists = sum(request.operation == "list" for request in requests)
        counts = [plural(count, noun) for count, noun in ((len(requests) - lists, "GET"), (lists, "LIST")) if count]
        dollars = _metadata_dollars(plan)
        times, scale = _times(dollars, "plan")
        cheapest, dearest = min(dollars, key=dollars.__getitem__), max(dollars, key=dollars.__getitem__)
        prices = " to ".join(f"${dollars[name] * scale:,.2f} ({name})" for name in dict.fromkeys((cheapest, dearest)))
        lines.append(f"{' and '.join(counts)} on S3: {prices}, {times}")
    return lines


def _times(dollars: Mapping[str, float], noun: str) -> tuple[str, float]:
    """Return for how many reads or plans a price is told, in words and as a number.

    One of them costs millionths of a dollar; the price of a million can be compared.
    """
    return (f"for a million {noun}s like this", 1e6) if min(dollars.values()) < 0.01 else (f"for this {noun}", 1)


def _request_table(plan: ReadPlan) -> list[str]:
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
    return _aligned(rows, left={1, 4}) + _and_more(len(plan.requests))


def _and_more(count: int) -> list[str]:
    return [f"  ... and {count - _LISTED:,} more"] if count > _LISTED else []


def few_names(names: Sequence[str]) -> str:
    """Write names with commas between them; of many the first ones and how many more there are."""
    more = f" and {len(names) - _NAMES_LISTED:,} more" if len(names) > _NAMES_LISTED else ""
    return ", ".join(names[:_NAMES_LISTED]) + more


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ... ({len(text):,} characters)"


def _labelled(label: str, lines: list[str]) -> list[str]:
    """Put a label before the first line and indent the others to the same column."""
    return [f"{label if number == 0 else '':{_LABEL_WIDTH}}  {line}" for number, line in enumerate(lines)]


def _aligned(rows: Sequence[tuple[str, ...]], *, left: set[int]) -> list[str]:
    """Align a table's columns: to the left those named, to the right all others."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if column in left else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: ``1 request``, ``2,000 requests``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _human_seconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"
