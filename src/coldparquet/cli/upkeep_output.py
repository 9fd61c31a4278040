"""What the commands that keep tables in order show: a bar while they work, then the report as text or JSON.

Each ``print_*_report`` returns the exit code of its command.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from coldparquet.catalog.packed import CATALOGUE_FILE
from coldparquet.catalog.pages import PAGES_FILE
from coldparquet.cli.output import (
    FAILED,
    action_word,
    in_flags,
    output_console,
    print_findings,
    print_json,
    print_listed,
    progress_bar,
)
from coldparquet.text import few_names, human_bytes, plural, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console

    from coldparquet.maintenance.index import IndexReport
    from coldparquet.maintenance.pack import PackAction, PackReport
    from coldparquet.maintenance.verify import VerifyReport
    from coldparquet.plan.advice import Finding, Severity
    from coldparquet.publish import PublishedPartition, PublishProgress, PublishReport
    from coldparquet.write.compact import CompactedPartition, CompactionAction, CompactionProgress, CompactionReport

_BYTES_PER_MB = 1e6


@contextmanager
def counted(title: str, *, unit: str = "partitions") -> Iterator[Callable[[object, int], None]]:
    """Show how many of how many are done: yields what is to be called with each one, and the number of all."""
    with progress_bar() as progress:
        task = progress.add_task(title, total=None, unit=unit)

        def advance(_done: object, total: int) -> None:
            progress.update(task, total=total, advance=1)

        yield advance


@contextmanager
def counted_rows(title: str) -> Iterator[Callable[[CompactionProgress], None]]:
    """Show how many rows are written."""
    with progress_bar() as progress:
        task = progress.add_task(title, total=None, unit="rows")

        def advance(state: CompactionProgress) -> None:
            progress.update(task, total=state.total_rows, completed=state.written_rows)

        yield advance


@contextmanager
def counted_bytes(title: str) -> Iterator[Callable[[PublishProgress], None]]:
    """Show how many bytes are sent, and how many partitions are complete."""
    with progress_bar() as progress:
        task = progress.add_task(title, total=None, unit="MB")

        def advance(reached: PublishProgress) -> None:
            progress.update(
                task,
                total=reached.total_bytes / _BYTES_PER_MB,
                completed=reached.sent_bytes / _BYTES_PER_MB,
                description=f"{title} {reached.finished_partitions} of {plural(reached.total_partitions, 'partition')}",
            )

        yield advance


_SIDECAR_STYLES = {"written": "green", "would write": "green", "kept": "yellow", "skipped": "dim", "failed": "red"}


def print_index_report(report: IndexReport, *, as_json: bool) -> int:
    """Print what became of the sidecars of a table."""
    if as_json:
        _print_indexed_as_json(report)
    else:
        _print_indexed(output_console(), report)
    has_failed = report.count("failed") or report.count_pages("failed") or report.has_misnamed
    has_errors = any(finding.severity == "error" for finding in report.findings)
    return FAILED if has_failed or has_errors else 0


def _print_indexed_as_json(report: IndexReport) -> None:
    counts = Counter(partition.action for partition in report.partitions)
    print_json(
        {
            "url": report.url,
            "counts": dict(counts),
            "partitions": [asdict(partition) for partition in report.partitions],
            "notes": list(report.notes),
            "findings": [asdict(finding) for finding in report.findings],
            "catalogue": None if report.catalogue is None else asdict(report.catalogue),
        }
    )


def _print_indexed(console: Console, report: IndexReport) -> None:
    print_listed(console, _index_remark_table, list(_index_remarks(report)))
    print_findings(console, [asdict(finding) for finding in report.findings])
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    if report.partitions:
        console.print(_index_summary(report))
        if any(done.pages is not None for done in report.partitions):
            console.print(_pages_summary(report))
    if report.catalogue is not None:
        console.print(_catalogue_line(report.catalogue))


def _index_remark_table(remarks: Sequence[tuple[str, str, str]]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("partition", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    for partition, action, remark in remarks:
        table.add_row(Text(partition), Text(action, style=_SIDECAR_STYLES[action]), Text(remark))
    return table


def _index_remarks(report: IndexReport) -> Iterator[tuple[str, str, str]]:
    """Yield what is worth a line of its own: the partition, what became of its sidecar or its pages, and why."""
    for done in report.partitions:
        partition, pages = done.path.split("/")[-2], done.pages
        if done.reason or done.action == "would write":
            yield partition, done.action, done.reason or human_bytes(done.sidecar_bytes or 0)
        if pages is not None and (pages.reason or pages.action == "would write"):
            yield partition, pages.action, f"{PAGES_FILE}: {pages.reason or human_bytes(pages.size_bytes or 0)}"


def _pages_summary(report: IndexReport) -> Text:
    """Write ``_pages: 365 written (1.2 MiB); 3,650 of 3,650 column chunks described``."""
    parts = []
    found = [done.pages for done in report.partitions if done.pages is not None]
    for action, style in _SIDECAR_STYLES.items():
        of_action = [pages for pages in found if pages.action == action]
        if of_action:
            size = sum(pages.size_bytes or 0 for pages in of_action)
            parts.append(Text(f"{len(of_action):,} {action}{f' ({human_bytes(size)})' if size else ''}", style=style))
    known, chunks = sum(pages.chunks_known for pages in found), sum(pages.chunk_count for pages in found)
    return Text(f"{PAGES_FILE}: ") + Text(", ").join(parts) + Text(f"; {known:,} of {chunks:,} column chunks described")


def _index_summary(report: IndexReport) -> Text:
    """Write ``365 partitions: 360 written (1.2 MiB), 5 have a sidecar already``."""
    parts = []
    for action, style in _SIDECAR_STYLES.items():
        of_action = [done for done in report.partitions if done.action == action]
        if not of_action:
            continue
        size = sum(done.sidecar_bytes or 0 for done in of_action)
        with_size = f" ({human_bytes(size)})" if action in ("written", "would write") else ""
        has_one = "has a sidecar already" if len(of_action) == 1 else "have a sidecar already"
        told = has_one if action == "kept" else action
        parts.append(Text(f"{len(of_action):,} {told}{with_size}", style=style))
    stale = sum(done.is_stale for done in report.partitions)
    if stale:
        parts.append(Text(f"{stale:,} of the old ones stale", style="yellow"))
    return Text(f"{plural(len(report.partitions), 'partition')}: ") + Text(", ").join(parts)


_CATALOGUE_STYLES: dict[PackAction, str] = {
    "written": "green",
    "would write": "green",
    "unchanged": "dim",
    "skipped": "yellow",
    "failed": "red",
}


def print_pack_report(report: PackReport, *, as_json: bool) -> int:
    """Print what is in the catalogue of a table."""
    if as_json:
        print_json({**asdict(report), "packed": report.packed_count})
    else:
        _print_packed(output_console(), report)
    return FAILED if report.action == "skipped" else 0


def _catalogue_line(report: PackReport) -> Text:
    """Write ``_catalogue: written (186 KiB), 365 of 365 partitions``."""
    line = Text(f"{CATALOGUE_FILE}: ") + Text(report.action, style=_CATALOGUE_STYLES[report.action])
    if report.catalogue_bytes is not None:
        line += Text(f" ({human_bytes(report.catalogue_bytes)})")
    if report.partitions:
        line += Text(f", {report.packed_count:,} of {plural(len(report.partitions), 'partition')}")
    if report.bloom_bytes:
        line += Text(f", {human_bytes(report.bloom_bytes)} of bloom filters")
    if report.left_out_bloom_bytes:
        line += Text(f", without {human_bytes(report.left_out_bloom_bytes)} of bloom filters")
    return line + Text(f": {visible(report.reason)}" if report.reason else "")


def _print_packed(console: Console, report: PackReport) -> None:
    left_out: dict[str, list[str]] = defaultdict(list)
    for partition in report.partitions:
        if partition.reason is not None:
            left_out[partition.reason].append(partition.name)
    print_listed(console, _left_out_table, list(left_out.items()), noun="reasons")
    console.print(_catalogue_line(report))


def _left_out_table(left_out: Sequence[tuple[str, Sequence[str]]]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for reason, names in left_out:
        table.add_row(Text(few_names(names)), Text(f"left out: {visible(reason)}", style="yellow"))
    return table


_FINDINGS_LISTED = 10
"""Findings of one kind that the text lists before it says how many more there are."""

_SEVERITY_STYLES: dict[Severity, str] = {"error": "red", "warning": "yellow", "advice": "cyan"}
"""From the worst on; the order in which findings are shown."""
_SEVERITY_NOUNS: dict[Severity, tuple[str, str]] = {
    "error": ("error", "errors"),
    "warning": ("warning", "warnings"),
    "advice": ("suggestion", "suggestions"),
}
"""One, and several."""


def print_verify_report(report: VerifyReport, *, as_json: bool) -> int:
    """Print what is wrong with a table, and what could be better."""
    if as_json:
        counts = {severity: report.count(severity) for severity in _SEVERITY_STYLES}
        print_json({**asdict(report), "counts": counts})
    else:
        _print_verified(output_console(), report)
    return FAILED if report.count("error") else 0


def _print_verified(console: Console, report: VerifyReport) -> None:
    alike: dict[tuple[Severity, str, str | None], list[tuple[str, Finding]]] = defaultdict(list)
    for place, finding in _placed_findings(report):
        alike[finding.severity, finding.kind, finding.remedy].append((place, finding))
    for severity, style in _SEVERITY_STYLES.items():
        for (of_severity, kind, remedy), findings in alike.items():
            if of_severity == severity:
                console.print(Text(f"{severity} ", style=f"bold {style}") + Text(kind, style="bold"))
                console.print(_finding_table(findings[:_FINDINGS_LISTED]))
                if len(findings) > _FINDINGS_LISTED:
                    more = f"  ... and {len(findings) - _FINDINGS_LISTED:,} more; --json shows all"
                    console.print(Text(more, style="dim"))
                if remedy is not None:
                    console.print(Text(f"  to do: {in_flags(remedy)}", style="green"))
                console.print()
    console.print(_verify_summary(report))


def _placed_findings(report: VerifyReport) -> Iterator[tuple[str, Finding]]:
    """Yield each finding with the name of its partition; empty for those about the table."""
    for finding in report.findings:
        yield "", finding
    for partition in report.partitions:
        for finding in partition.findings:
            yield partition.name, finding


def _finding_table(findings: Sequence[tuple[str, Finding]]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 0, 0, 2))
    if any(place for place, _ in findings):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for place, finding in findings:
        table.add_row(*([Text(place)] if place else []), Text(visible(in_flags(finding.message))))
    return table


def _verify_summary(report: VerifyReport) -> Text:
    """Write ``365 partitions (transaction 12 of _txn), 5,000,000 rows, 1.2 GiB of Parquet: 1 error, 2 warnings``."""
    rows = sum(partition.rows or 0 for partition in report.partitions)
    size = sum(partition.parquet_size_bytes or 0 for partition in report.partitions)
    native = sum(partition.format == "native" for partition in report.partitions)
    facts = [f"{plural(len(report.partitions), 'partition')} ({report.source})", plural(rows, "row")]
    facts.append(f"{human_bytes(size)} of Parquet")
    read_bytes = sum(partition.read_bytes or 0 for partition in report.partitions)
    if read_bytes:
        facts.append(f"{human_bytes(read_bytes)} read and compared")
    if native:
        facts.append(f"{native:,} native (not checked)")
    counts = [
        Text(f"{count:,} {_SEVERITY_NOUNS[severity][count != 1]}", style=style)
        for severity, style in _SEVERITY_STYLES.items()
        if (count := report.count(severity))
    ]
    found = Text(", ").join(counts) if counts else Text("nothing wrong", style="green")
    return Text(", ".join(facts) + ": ") + found


_COMPACTION_STYLES: dict[CompactionAction, str] = {
    "compacted": "green",
    "would compact": "green",
    "kept": "dim",
    "skipped": "yellow",
    "failed": "red",
}


def print_compaction_report(report: CompactionReport, *, as_json: bool) -> int:
    """Print what compacting a table brought."""
    if as_json:
        counts = {action: count for action in _COMPACTION_STYLES if (count := report.count(action))}
        print_json({**asdict(report), "counts": counts})
    else:
        _print_compacted(output_console(), report)
    return FAILED if report.count("failed") else 0


def _print_compacted(console: Console, report: CompactionReport) -> None:
    changed = [done for done in report.partitions if done.action in {"compacted", "would compact"}]
    refused = [done for done in report.partitions if done.action in {"skipped", "failed"}]
    print_listed(console, _change_table, changed)
    print_listed(console, _refused_table, refused)
    if report.purged:
        verb = "would be removed" if report.is_dry_run else "removed"
        console.print(Text(f"{plural(len(report.purged), 'old version')} {verb}: {few_names(report.purged)}"))
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    if report.catalogue is not None:
        console.print(_catalogue_line(report.catalogue))
    console.print(_compaction_summary(report))


def _change_table(partitions: Sequence[CompactedPartition]) -> Table:
    """Show what became of files, or why something will; a narrow terminal has no room for both."""
    is_done = all(done.action == "compacted" for done in partitions)
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("partition", no_wrap=True)
    for heading in ("bytes", "row groups", *(["pages"] if is_done else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    if not is_done:
        table.add_column("why", overflow="fold")
    for done in partitions:
        shapes = [shape for shape in (done.before, done.after) if shape is not None]
        pages = " -> ".join("unknown" if shape.pages is None else f"{shape.pages:,}" for shape in shapes)
        table.add_row(
            Text(" -> ".join(name for name in (done.name, done.new_name) if name)),
            " -> ".join(human_bytes(shape.parquet_size_bytes) for shape in shapes),
            " -> ".join(f"{shape.row_groups:,}" for shape in shapes),
            pages if is_done else Text(done.reason or ""),
        )
    return table


def _refused_table(partitions: Sequence[CompactedPartition]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for done in partitions:
        table.add_row(
            Text(done.name),
            Text(action_word(done.action), style=_COMPACTION_STYLES[done.action]),
            Text(visible(done.reason or "")),
        )
    return table


def _compaction_summary(report: CompactionReport) -> Text:
    """Write ``12 partitions (transaction 9 of _txn): 3 compacted (1.2 GiB -> 410 MiB), 8 unchanged, 1 skipped``."""
    parts = []
    for action, style in _COMPACTION_STYLES.items():
        of_action = [done for done in report.partitions if done.action == action]
        if of_action:
            parts.append(Text(f"{len(of_action):,} {action_word(action)}{_change_in_bytes(of_action)}", style=style))
    source = report.source if report.txn is None else f"transaction {report.txn:,} of _txn"
    return Text(f"{plural(len(report.partitions), 'partition')} ({source}): ") + Text(", ").join(parts)


def _change_in_bytes(partitions: Sequence[CompactedPartition]) -> str:
    """Say how many bytes became how many; nothing where no file changed."""
    pairs = [(done.before, done.after) for done in partitions if done.before is not None and done.after is not None]
    if not pairs:
        return ""
    before, after = (sum(shape.parquet_size_bytes for shape in shapes) for shapes in zip(*pairs, strict=True))
    return f" ({human_bytes(before)} -> {human_bytes(after)})"


_PURGED_LISTED = 20
"""Removed versions that the text names."""

_PUBLISH_STYLES = {
    "published": "green",
    "would publish": "green",
    "converted": "green",
    "would convert": "green",
    "found": "green",
    "unchanged": "dim",
    "kept": "yellow",
    "removed": "red",
    "left behind": "yellow",
}
_PRICED_SCHEMES = ("s3://", "s3a://")
_LEAST_DOLLARS = 0.0001


def print_publish_report(report: PublishReport, *, as_json: bool) -> int:
    """Print what readers of the copy see now, and what that cost."""
    if as_json:
        counts = Counter(partition.action for partition in report.partitions)
        totals = {"rows": report.rows, "rows_left_behind": report.rows_left_behind, "counts": dict(counts)}
        print_json({**asdict(report), **totals})
    else:
        _print_published(output_console(), report)
    return FAILED if report.rows_left_behind else 0


def _print_published(console: Console, report: PublishReport) -> None:
    remarkable = [partition for partition in report.partitions if partition.action != "unchanged"]
    print_listed(console, _published_table, remarkable)
    if report.purged:
        verb = "would be purged" if report.is_dry_run else "purged"
        console.print(Text(f"{verb}: {visible(', '.join(report.purged[:_PURGED_LISTED]))}", style="dim"))
    for note in report.notes:
        console.print(Text(f"note: {visible(note)}", style="yellow"))
    if report.rows_left_behind:
        native = plural(report.count("left behind"), "native partition")
        told = f"{report.rows_left_behind:,} rows in {native} stay behind, and readers of the copy are told so"
        console.print(Text(told, style="yellow"))
    if report.catalogue is not None:
        console.print(_catalogue_line(report.catalogue))
    for line in _publish_summary(report):
        console.print(line)


def _published_table(partitions: Sequence[PublishedPartition]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("partition", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("published as", no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("Parquet", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for partition in partitions:
        table.add_row(
            Text(partition.name),
            Text(partition.action, style=_PUBLISH_STYLES[partition.action]),
            Text(partition.published_name or "-"),
            f"{partition.rows:,}",
            _published_size(partition),
            partition.storage_class or "",
        )
    return table


def _published_size(partition: PublishedPartition) -> str:
    if partition.parquet_size_bytes is not None:
        return human_bytes(partition.parquet_size_bytes)
    return "-" if partition.native_size_bytes is None else f"from {human_bytes(partition.native_size_bytes)}"


def _publish_summary(report: PublishReport) -> list[Text]:
    """Say what readers see now, and what it cost."""
    partitions = plural(sum(partition.published_name is not None for partition in report.partitions), "partition")
    contents = f"{partitions}, {report.rows:,} rows"
    before = "" if report.previous_txn is None else f", after {report.previous_txn:,}"
    if report.is_dry_run:
        head = Text(f"would publish transaction {report.txn:,}{before}: {contents}")
    elif report.is_committed:
        head = Text(f"published transaction {report.txn:,}{before}: {contents}", style="green")
    else:
        head = Text(f"transaction {report.txn:,} is published already: {contents}", style="green")
    cost = report.cost
    verb = "would send" if report.is_dry_run else "sent"
    if report.count("would convert"):
        verb = "would send about"  # that much before the native partitions among it are compressed
    requests = f"{plural(cost.write_count, 'write')} and {plural(cost.read_count, 'read')}"
    sent = f"{verb} {human_bytes(cost.sent_bytes)} in {requests}"
    if report.destination.startswith(_PRICED_SCHEMES):
        sent += f": {_dollars(cost.dollars)}"
        if cost.sent_bytes:
            sent += f", and {_dollars(cost.dollars_per_month)} a month to store them"
    return [head, Text(sent, style="dim")]


def _dollars(amount: float) -> str:
    """Write an amount; most runs cost less than a cent."""
    if amount < _LEAST_DOLLARS:
        return f"under ${_LEAST_DOLLARS}"
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"
