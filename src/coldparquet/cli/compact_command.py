"""``coldparquet compact``: write partitions anew, and say what that brought."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from coldparquet.cli.output import FAILED, action_word, output_console, print_json, print_listed, progress_bar
from coldparquet.cli.pack_command import catalogue_line
from coldparquet.text import few_names, human_bytes, plural, visible
from coldparquet.write.compact import CompactionOptions, compact_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from coldparquet.write.compact import (
        CompactedPartition,
        CompactionAction,
        CompactionProgress,
        CompactionReport,
    )

_STYLES: dict[CompactionAction, str] = {
    "compacted": "green",
    "would compact": "green",
    "kept": "dim",
    "skipped": "yellow",
    "failed": "red",
}


def compact_and_report(
    url: str,
    *,
    partitions: Sequence[str] | None,
    storage_options: Mapping[str, Any],
    force: bool,
    dry_run: bool,
    purge: bool,
    pack: bool,
    purge_after_s: float,
    as_json: bool,
) -> int:
    """Compact a table and print what happened."""
    with progress_bar() as progress:
        task = progress.add_task("compacting", total=None, unit="rows")

        def advance(state: CompactionProgress) -> None:
            progress.update(task, total=state.total_rows, completed=state.written_rows)

        report = asyncio.run(
            compact_table(
                url,
                partitions=partitions,
                force=force,
                dry_run=dry_run,
                purge=purge,
                pack=pack,
                options=CompactionOptions(purge_after_s=purge_after_s),
                storage_options=storage_options,
                on_progress=advance,
            )
        )
    if as_json:
        counts = {action: count for action in _STYLES if (count := report.count(action))}
        print_json({**asdict(report), "counts": counts})
    else:
        _print_report(output_console(), report)
    return FAILED if report.count("failed") else 0


def _print_report(console: Console, report: CompactionReport) -> None:
    changed = [done for done in report.partitions if done.action in {"compacted", "would compact"}]
    refused = [done for done in report.partitions if done.action in {"skipped", "failed"}]
    print_listed(console, _change_table, changed)
    print_listed(console, _remark_table, refused)
    if report.purged:
        verb = "would be removed" if report.is_dry_run else "removed"
        console.print(Text(f"{plural(len(report.purged), 'old version')} {verb}: {few_names(report.purged)}"))
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    if report.catalogue is not None:
        console.print(catalogue_line(report.catalogue))
    console.print(_summary(report))


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


def _remark_table(partitions: Sequence[CompactedPartition]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for done in partitions:
        table.add_row(
            Text(done.name),
            Text(action_word(done.action), style=_STYLES[done.action]),
            Text(visible(done.reason or "")),
        )
    return table


def _summary(report: CompactionReport) -> Text:
    """Write ``12 partitions (transaction 9 of _txn): 3 compacted (1.2 GiB -> 410 MiB), 8 unchanged, 1 skipped``."""
    parts = []
    for action, style in _STYLES.items():
        of_action = [done for done in report.partitions if done.action == action]
        if of_action:
            parts.append(Text(f"{len(of_action):,} {action_word(action)}{_sizes(of_action)}", style=style))
    source = report.source if report.txn is None else f"transaction {report.txn:,} of _txn"
    return Text(f"{plural(len(report.partitions), 'partition')} ({source}): ") + Text(", ").join(parts)


def _sizes(partitions: Sequence[CompactedPartition]) -> str:
    """Say how many bytes became how many; nothing where no file changed."""
    pairs = [(done.before, done.after) for done in partitions if done.before is not None and done.after is not None]
    if not pairs:
        return ""
    before, after = (sum(shape.parquet_size_bytes for shape in shapes) for shapes in zip(*pairs, strict=True))
    return f" ({human_bytes(before)} -> {human_bytes(after)})"
