"""A read plan in words, for people at night."""

from __future__ import annotations

from collections import Counter
from textwrap import wrap
from typing import TYPE_CHECKING

from coldparquet.plan.explain_cost import fetch_section, goal_table
from coldparquet.plan.wording import aligned, cut_short, few_names, human_bytes, labelled, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coldparquet.plan.read_plan import ReadPlan, Technique, TechniqueName

_LISTED = 20
"""Partitions, and requests, that the text lists before it says how many more there are."""

_TEXT_WIDTH = 66
"""Longer reasons are continued on a second line. With the label before it, lines have 80 columns."""

_ACHIEVED: dict[TechniqueName, str] = {
    "bloom filter": "ruled out",
    "page index": "left out",
    "late reading": "fetches the condition's columns first for",
}
"""What each technique does to what it counts."""

_PLANNED_FROM = {
    "sidecar": "sidecar",
    "catalogue": "catalogue",
    "footer": "footer: no usable sidecar",
    "native": "native files",
}


def explain_text(plan: ReadPlan) -> str:
    """Describe a plan for a person: what is read and pruned, why, and what it costs. Ends without a newline."""
    sections = [
        [f"Read plan for {plan.table}"],
        _question(plan),
        _pruning(plan),
        _partition_table(plan),
        fetch_section(plan),
        goal_table(plan),
        _request_table(plan),
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
    """Say which partitions are left out, or cannot be read, because they are archived."""
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
        lines += labelled(name, [line for text in texts for line in wrap(text, _TEXT_WIDTH)])
    return lines


def _used(techniques: Sequence[Technique], *, of_several: bool) -> str:
    """Add up what one technique brought in the partitions where it was used."""
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
        return [f"{text} by {cut_short(reason)}" for reason in reasons]
    several = " (some for several reasons)" if reasons.total() > pruned else ""
    width = max((len(f"{count:,}") for count in reasons.values()), default=0)
    return [text + several, *(f"{count:>{width},} by {cut_short(reason)}" for reason, count in reasons.most_common())]


def _partition_table(plan: ReadPlan) -> list[str]:
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
    header, *body = aligned(rows, left={0, 6})
    lines = [header]
    for row, remark in zip(body, remarks, strict=True):
        lines += [row, *remark]
    return lines + _and_more(len(plan.partitions))


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
    return aligned(rows, left={1, 4}) + _and_more(len(plan.requests))


def _and_more(count: int) -> list[str]:
    return [f"  ... and {count - _LISTED:,} more"] if count > _LISTED else []
