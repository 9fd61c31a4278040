"""``coldparquet index``: write the missing sidecars, and say what became of each partition."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from coldparquet.cli.failures import FAILED
from coldparquet.cli.output import output_console, print_json, progress_bar
from coldparquet.maintenance.index import index_table
from coldparquet.plan.explain import human_bytes, plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from coldparquet.maintenance.index import IndexedPartition, IndexReport

_LISTED = 20
"""Partitions that the text lists before it says how many more there are."""

_STYLES = {"written": "green", "would write": "green", "kept": "yellow", "skipped": "dim", "failed": "red"}


def index_and_report(url: str, *, storage_options: Mapping[str, Any], force: bool, dry_run: bool, as_json: bool) -> int:
    """Write the missing sidecars and print what happened.

    Returns:
        The exit code: 1 if any partition failed.
    """
    with progress_bar() as progress:
        task = progress.add_task("indexing", total=None, unit="partitions")

        def advance(_done: IndexedPartition, total: int) -> None:
            progress.update(task, total=total, advance=1)

        report = asyncio.run(
            index_table(url, storage_options=storage_options, force=force, dry_run=dry_run, on_progress=advance)
        )
    return print_index_report(report, as_json=as_json)


def print_index_report(report: IndexReport, *, as_json: bool) -> int:
    """Print what became of the sidecars of a table.

    Returns:
        The exit code: 1 if any partition failed.
    """
    if as_json:
        _print_report_json(report)
    else:
        _print_report(output_console(), report)
    return FAILED if report.count("failed") else 0


def _print_report_json(report: IndexReport) -> None:
    counts = Counter(partition.action for partition in report.partitions)
    print_json(
        {
            "url": report.url,
            "counts": dict(counts),
            "partitions": [asdict(partition) for partition in report.partitions],
            "notes": list(report.notes),
        }
    )


def _print_report(console: Console, report: IndexReport) -> None:
    remarkable = [done for done in report.partitions if done.reason or done.action == "would write"]
    if remarkable:
        table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column("partition", no_wrap=True)
        table.add_column("", no_wrap=True)
        table.add_column("", overflow="fold")
        for done in remarkable[:_LISTED]:
            remark = done.reason or human_bytes(done.sidecar_bytes or 0)
            table.add_row(Text(done.path.split("/")[-2]), Text(done.action, style=_STYLES[done.action]), Text(remark))
        console.print(table)
        if len(remarkable) > _LISTED:
            console.print(Text(f"... and {len(remarkable) - _LISTED:,} more; --json shows all", style="dim"))
        console.print()
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    if report.partitions:
        console.print(_summary(report))


def _summary(report: IndexReport) -> Text:
    """Write ``365 partitions: 360 written (1.2 MiB), 5 kept``."""
    parts = []
    for action, style in _STYLES.items():
        of_action = [done for done in report.partitions if done.action == action]
        if not of_action:
            continue
        size = sum(done.sidecar_bytes or 0 for done in of_action)
        with_size = f" ({human_bytes(size)})" if action in ("written", "would write") else ""
        parts.append(Text(f"{len(of_action):,} {action}{with_size}", style=style))
    stale = sum(done.is_stale for done in report.partitions)
    if stale:
        parts.append(Text(f"{stale:,} of the kept ones stale", style="yellow"))
    return Text(f"{plural(len(report.partitions), 'partition')}: ") + Text(", ").join(parts)
