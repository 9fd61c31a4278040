"""``coldparquet index``: write the missing sidecars, and say what became of each partition."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from coldparquet.catalog.pages import PAGES_FILE
from coldparquet.cli.output import FAILED, output_console, print_findings, print_json, print_listed, progress_bar
from coldparquet.cli.pack_command import catalogue_line
from coldparquet.maintenance.index import index_table
from coldparquet.text import human_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from coldparquet.maintenance.index import IndexedPartition, IndexReport

_STYLES = {"written": "green", "would write": "green", "kept": "yellow", "skipped": "dim", "failed": "red"}


def index_and_report(
    url: str,
    *,
    storage_options: Mapping[str, Any],
    pages: bool,
    force: bool,
    pack: bool,
    inline_bloom_bytes: int | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Write the missing sidecars, and ``_pages`` if they are asked for, and print what happened."""
    with progress_bar() as progress:
        task = progress.add_task("indexing", total=None, unit="partitions")

        def advance(_done: IndexedPartition, total: int) -> None:
            progress.update(task, total=total, advance=1)

        report = asyncio.run(
            index_table(
                url,
                storage_options=storage_options,
                pages=pages,
                force=force,
                pack=pack,
                inline_bloom_bytes=inline_bloom_bytes,
                dry_run=dry_run,
                on_progress=advance,
            )
        )
    return print_index_report(report, as_json=as_json)


def print_index_report(report: IndexReport, *, as_json: bool) -> int:
    """Print what became of the sidecars of a table."""
    if as_json:
        _print_report_json(report)
    else:
        _print_report(output_console(), report)
    has_failed = report.count("failed") or report.count_pages("failed") or report.has_misnamed
    has_errors = any(finding.severity == "error" for finding in report.findings)
    return FAILED if has_failed or has_errors else 0


def _print_report_json(report: IndexReport) -> None:
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


def _print_report(console: Console, report: IndexReport) -> None:
    print_listed(console, _remark_table, list(_remarks(report)))
    print_findings(console, [asdict(finding) for finding in report.findings])
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    if report.partitions:
        console.print(_summary(report))
        if any(done.pages is not None for done in report.partitions):
            console.print(_summary_of_pages(report))
    if report.catalogue is not None:
        console.print(catalogue_line(report.catalogue))


def _remark_table(remarks: Sequence[tuple[str, str, str]]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("partition", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold")
    for partition, action, remark in remarks:
        table.add_row(Text(partition), Text(action, style=_STYLES[action]), Text(remark))
    return table


def _remarks(report: IndexReport) -> Iterator[tuple[str, str, str]]:
    """Yield what is worth a line of its own: the partition, what became of its sidecar or its pages, and why."""
    for done in report.partitions:
        partition, pages = done.path.split("/")[-2], done.pages
        if done.reason or done.action == "would write":
            yield partition, done.action, done.reason or human_bytes(done.sidecar_bytes or 0)
        if pages is not None and (pages.reason or pages.action == "would write"):
            yield partition, pages.action, f"{PAGES_FILE}: {pages.reason or human_bytes(pages.size_bytes or 0)}"


def _summary_of_pages(report: IndexReport) -> Text:
    """Write ``_pages: 365 written (1.2 MiB); 3,650 of 3,650 column chunks described``."""
    parts = []
    found = [done.pages for done in report.partitions if done.pages is not None]
    for action, style in _STYLES.items():
        of_action = [pages for pages in found if pages.action == action]
        if of_action:
            size = sum(pages.size_bytes or 0 for pages in of_action)
            parts.append(Text(f"{len(of_action):,} {action}{f' ({human_bytes(size)})' if size else ''}", style=style))
    known, chunks = sum(pages.chunks_known for pages in found), sum(pages.chunk_count for pages in found)
    return Text(f"{PAGES_FILE}: ") + Text(", ").join(parts) + Text(f"; {known:,} of {chunks:,} column chunks described")


def _summary(report: IndexReport) -> Text:
    """Write ``365 partitions: 360 written (1.2 MiB), 5 have a sidecar already``."""
    parts = []
    for action, style in _STYLES.items():
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
