"""``coldparquet pack``: write the catalogue of a table, and say what is in it; other commands renew it, and say so, too."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from coldparquet.catalog.packed import CATALOGUE_FILE
from coldparquet.cli.output import FAILED, output_console, print_json, print_listed, progress_bar
from coldparquet.maintenance.pack import pack_table
from coldparquet.text import few_names, human_bytes, plural, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.maintenance.pack import PackAction, PackReport

_STYLES: dict[PackAction, str] = {
    "written": "green",
    "would write": "green",
    "unchanged": "dim",
    "skipped": "yellow",
    "failed": "red",
}


def pack_and_report(
    url: str, *, storage_options: Mapping[str, Any], bloom_limit_bytes: int, dry_run: bool, as_json: bool
) -> int:
    """Write the catalogue and print what is in it."""
    with progress_bar() as progress:
        task = progress.add_task("packing", total=None, unit="partitions")

        def advance(_name: str, total: int) -> None:
            progress.update(task, total=total, advance=1)

        report = asyncio.run(
            pack_table(
                url,
                storage_options=storage_options,
                bloom_limit_bytes=bloom_limit_bytes,
                dry_run=dry_run,
                on_progress=advance,
            )
        )
    if as_json:
        print_json({**asdict(report), "packed": report.packed_count})
    else:
        _print_report(report)
    return FAILED if report.action == "skipped" else 0


def catalogue_line(report: PackReport) -> Text:
    """Write ``_catalogue: written (186 KiB), 365 of 365 partitions``."""
    line = Text(f"{CATALOGUE_FILE}: ") + Text(report.action, style=_STYLES[report.action])
    if report.catalogue_bytes is not None:
        line += Text(f" ({human_bytes(report.catalogue_bytes)})")
    if report.partitions:
        line += Text(f", {report.packed_count:,} of {plural(len(report.partitions), 'partition')}")
    if report.bloom_bytes:
        line += Text(f", {human_bytes(report.bloom_bytes)} of bloom filters")
    if report.left_out_bloom_bytes:
        line += Text(f", without {human_bytes(report.left_out_bloom_bytes)} of bloom filters")
    return line + Text(f": {visible(report.reason)}" if report.reason else "")


def _print_report(report: PackReport) -> None:
    console = output_console()
    left_out: dict[str, list[str]] = defaultdict(list)
    for partition in report.partitions:
        if partition.reason is not None:
            left_out[partition.reason].append(partition.name)
    print_listed(console, _reason_table, list(left_out.items()), noun="reasons")
    console.print(catalogue_line(report))


def _reason_table(left_out: Sequence[tuple[str, Sequence[str]]]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for reason, names in left_out:
        table.add_row(Text(few_names(names)), Text(f"left out: {visible(reason)}", style="yellow"))
    return table
