"""``coldparquet verify``: check a table's metadata, and say what is wrong and what could be better."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from coldparquet.cli.output import FAILED, in_flags, output_console, print_json, progress_bar
from coldparquet.maintenance.verify import verify_table
from coldparquet.text import human_bytes, plural, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from coldparquet.maintenance.verify import VerifiedPartition, VerifyReport
    from coldparquet.plan.advice import Finding, Severity

_LISTED = 10
"""Findings of one kind that the text lists before it says how many more there are."""

_STYLES: dict[Severity, str] = {"error": "red", "warning": "yellow", "advice": "cyan"}
"""From the worst on; the order in which findings are shown."""
_NOUNS: dict[Severity, tuple[str, str]] = {
    "error": ("error", "errors"),
    "warning": ("warning", "warnings"),
    "advice": ("suggestion", "suggestions"),
}
"""One, and several."""


def verify_and_report(
    url: str, *, partitions: Sequence[str] | None, deep: bool, storage_options: Mapping[str, Any], as_json: bool
) -> int:
    """Verify a table and print what was found."""
    with progress_bar() as progress:
        task = progress.add_task("verifying", total=None, unit="partitions")

        def advance(_done: VerifiedPartition, total: int) -> None:
            progress.update(task, total=total, advance=1)

        report = asyncio.run(
            verify_table(url, partitions=partitions, deep=deep, storage_options=storage_options, on_progress=advance)
        )
    if as_json:
        counts = {severity: report.count(severity) for severity in _STYLES}
        print_json({**asdict(report), "counts": counts})
    else:
        _print_report(output_console(), report)
    return FAILED if report.count("error") else 0


def _print_report(console: Console, report: VerifyReport) -> None:
    alike: dict[tuple[Severity, str, str | None], list[tuple[str, Finding]]] = defaultdict(list)
    for place, finding in _placed_findings(report):
        alike[finding.severity, finding.kind, finding.remedy].append((place, finding))
    for severity, style in _STYLES.items():
        for (of_severity, kind, remedy), findings in alike.items():
            if of_severity == severity:
                console.print(Text(f"{severity} ", style=f"bold {style}") + Text(kind, style="bold"))
                console.print(_finding_table(findings[:_LISTED]))
                if len(findings) > _LISTED:
                    more = f"  ... and {len(findings) - _LISTED:,} more; --json shows all"
                    console.print(Text(more, style="dim"))
                if remedy is not None:
                    console.print(Text(f"  to do: {in_flags(remedy)}", style="green"))
                console.print()
    console.print(_summary(report))


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


def _summary(report: VerifyReport) -> Text:
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
        Text(f"{count:,} {_NOUNS[severity][count != 1]}", style=style)
        for severity, style in _STYLES.items()
        if (count := report.count(severity))
    ]
    found = Text(", ").join(counts) if counts else Text("nothing wrong", style="green")
    return Text(", ".join(facts) + ": ") + found
