"""``coldparquet publish``: copy a table to object storage, and say what that took."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from coldparquet.cli.flags import price_table
from coldparquet.cli.output import output_console, print_json, print_listed, progress_bar
from coldparquet.cli.pack_command import catalogue_line
from coldparquet.publish import PublishOptions, parse_storage_class_rule, publish_table
from coldparquet.text import human_bytes, plural, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from coldparquet.publish import PublishedPartition, PublishProgress, PublishReport

_LISTED = 20
"""Removed versions that the text names."""

_STYLES = {
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
_BYTES_PER_MB = 1e6
_HOUR_S = 3600


def publish_options(
    *,
    dry_run: bool,
    native: str,
    storage_class_after: Sequence[str] | None,
    dropped: str,
    pack: bool,
    purge: bool,
    purge_after_hours: float,
    prices: str | None,
) -> PublishOptions:
    """Make the options of a run from the command line's flags."""
    return PublishOptions(
        dry_run=dry_run,
        native=native,  # type: ignore[arg-type] # anything else is refused there, with the choices
        dropped=dropped,  # type: ignore[arg-type] # anything else is refused there, with the choices
        storage_classes=tuple(map(parse_storage_class_rule, storage_class_after or ())),
        pack=pack,
        purge=purge,
        purge_after_s=purge_after_hours * _HOUR_S,
        prices=price_table(prices),
    )


def publish_and_report(
    source: str,
    destination: str,
    *,
    options: PublishOptions,
    source_options: Mapping[str, Any],
    storage_options: Mapping[str, Any],
    as_json: bool,
) -> int:
    """Publish a table and print what happened."""
    with progress_bar() as progress:
        task = progress.add_task("publishing", total=None, unit="MB")

        def advance(reached: PublishProgress) -> None:
            progress.update(
                task,
                total=reached.total_bytes / _BYTES_PER_MB,
                completed=reached.sent_bytes / _BYTES_PER_MB,
                description=f"publishing {reached.finished_partitions} of {plural(reached.total_partitions, 'partition')}",
            )

        report = asyncio.run(
            publish_table(
                source,
                destination,
                options=options,
                source_options=source_options,
                storage_options=storage_options,
                on_progress=advance,
            )
        )
    if as_json:
        counts = Counter(partition.action for partition in report.partitions)
        totals = {"rows": report.rows, "rows_left_behind": report.rows_left_behind, "counts": dict(counts)}
        print_json({**asdict(report), **totals})
    else:
        _print_report(output_console(), report)
    return 1 if report.rows_left_behind else 0


def _print_report(console: Console, report: PublishReport) -> None:
    remarkable = [partition for partition in report.partitions if partition.action != "unchanged"]
    print_listed(console, _partition_table, remarkable)
    if report.purged:
        verb = "would be purged" if report.is_dry_run else "purged"
        console.print(Text(f"{verb}: {visible(', '.join(report.purged[:_LISTED]))}", style="dim"))
    for note in report.notes:
        console.print(Text(f"note: {visible(note)}", style="yellow"))
    if report.rows_left_behind:
        native = plural(report.count("left behind"), "native partition")
        told = f"{report.rows_left_behind:,} rows in {native} stay behind, and readers of the copy are told so"
        console.print(Text(told, style="yellow"))
    if report.catalogue is not None:
        console.print(catalogue_line(report.catalogue))
    for line in _summary(report):
        console.print(line)


def _partition_table(partitions: Sequence[PublishedPartition]) -> Table:
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
            Text(partition.action, style=_STYLES[partition.action]),
            Text(partition.published_name or "-"),
            f"{partition.rows:,}",
            _size(partition),
            partition.storage_class or "",
        )
    return table


def _size(partition: PublishedPartition) -> str:
    if partition.parquet_size_bytes is not None:
        return human_bytes(partition.parquet_size_bytes)
    return "-" if partition.native_size_bytes is None else f"from {human_bytes(partition.native_size_bytes)}"


def _summary(report: PublishReport) -> list[Text]:
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
