"""``coldparquet scan --profile`` and ``--report``: what a scan did, request by request, on the terminal and as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from coldparquet.cli.output import facts_table, file_in_place, lines_table
from coldparquet.progress import error_console
from coldparquet.report import scan_report
from coldparquet.report.kinds import kind_of, purpose_of, remarks_on
from coldparquet.text import human_bytes, human_milliseconds, human_price, human_seconds, plural, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table as RichTable

    from coldparquet.plan.model import ReadPlan
    from coldparquet.report import ScanReport
    from coldparquet.report.kinds import RequestKind
    from coldparquet.storage.log import RequestRecord
    from coldparquet.table import Table
    from coldparquet.table_scan import Scan


_NUMBER_WIDTH = 8
"""``1,234 ms``, ``1.2 MiB``."""
_BAR_SHARE = 0.35
"""Share of the line that the bar may take."""
_PURPOSE_WIDTH = 30
"""What the bar leaves at least for the purpose of the request."""
BAR_LEGEND = "░ until the first byte  █ until the last  · waiting for a slot"
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_STYLES: dict[RequestKind, str] = {
    "listing": "yellow",
    "metadata": "cyan",
    "data": "green",
    "writing": "magenta",
    "failed": "red",
}


def waterfall(records: Sequence[RequestRecord], *, width: int, max_lines: int) -> RichTable:
    """Draw requests in the order in which they were sent.

    Dots: waiting for a slot; a shaded bar: until the first byte, where that is known; a full one: until the last.
    """
    bar_width = max(8, min(int(width * _BAR_SHARE), width - _PURPOSE_WIDTH - 3 * (_NUMBER_WIDTH + 2) - 2))
    table = lines_table(width=width)
    for header in ("sent", "took", "bytes"):
        table.add_column(header, justify="right", no_wrap=True, width=_NUMBER_WIDTH)
    table.add_column("", no_wrap=True, width=bar_width)
    table.add_column("for", overflow="fold", ratio=1)
    end_s = max((record.finished_s for record in records), default=0.0)
    shown = records if len(records) <= max_lines else records[: max_lines - 1]
    for record in shown:
        remarks = ", ".join(remarks_on(record))
        table.add_row(
            human_milliseconds(record.started_s),
            human_milliseconds(record.finished_s - record.started_s),
            human_bytes(record.fetched_bytes) if record.operation == "get" else "",
            _bar(record, end_s, bar_width),
            Text.assemble(visible(purpose_of(record)), (f"  {remarks}" if remarks else "", _STYLES[kind_of(record)])),
        )
    if len(shown) < len(records):
        table.add_row("...", "", "", "", f"{len(records) - len(shown):,} more requests")
    return table


def _bar(record: RequestRecord, end_s: float, width: int) -> Text:
    """Draw a bar whose right end is exact to an eighth of a character; it is never empty."""
    scale = width * 8 / end_s if end_s > 0 else 0.0
    # The other ends fall on whole characters: there are no blocks that begin with a blank part.
    indent = min(int(record.started_s * scale) // 8, width - 1)
    queued = min(max(int((record.started_s - record.waited_s) * scale) // 8, 0), indent)
    filled = min(max(round(record.finished_s * scale) - indent * 8, 1), (width - indent) * 8)
    first_byte_s = record.started_s if record.first_byte_s is None else record.first_byte_s
    shaded = min(max(int(first_byte_s * scale) // 8 - indent, 0), filled // 8)
    bar = "░" * shaded + "█" * (filled // 8 - shaded) + _EIGHTHS[filled % 8]
    style = _STYLES[kind_of(record)]
    dim = "dim " if record.status == "cancelled" else ""
    return Text.assemble(" " * queued, ("·" * (indent - queued), "dim"), (bar, dim + style))


_PLAIN_WIDTH = 120
_MOST_LINES = 100
"""Requests that the terminal gets; a report shows more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanProfile:
    """What is to be told of a scan when it is over, whether it ended well or not."""

    is_printed: bool = False
    report_path: Path | None = None
    """A .html or .svg file."""

    @property
    def is_wanted(self) -> bool:
        """Whether anything is."""
        return self.is_printed or self.report_path is not None

    def tell(self, table: Table, scan: Scan, plan: ReadPlan | None) -> None:
        """Print, and write, what was done."""
        records = table.request_log
        if self.is_printed:
            _print_profile(scan_report(scan, records=records))
        if self.report_path is not None:
            report = scan_report(scan, plan=plan, records=records)
            with file_in_place(self.report_path) as file:
                file.write(report.document(self.report_path.suffix).encode())


def scan_profile(*, profile: bool, report: str | None) -> ScanProfile:
    """Put together what the flags say."""
    path = None if report is None else Path(report).expanduser()
    if path is not None and ("://" in str(report) or path.suffix not in (".html", ".svg")):
        raise typer.BadParameter("expected a local file that ends in .html or .svg", param_hint="--report")
    return ScanProfile(is_printed=profile, report_path=path)


def _print_profile(report: ScanReport) -> None:
    console = error_console()
    width = console.width if console.is_terminal else _PLAIN_WIDTH
    console.print(waterfall(report.records, width=width, max_lines=_MOST_LINES), soft_wrap=True)
    console.print()
    console.print(_summary(report), soft_wrap=True)
    console.print(Text(BAR_LEGEND, style="dim"))


def _summary(report: ScanReport) -> RichTable:
    stats = report.statistics
    facts = facts_table()
    times = stats.times_physical_limit
    of_scan = " for this scan, opening the table not counted" if report.earlier_requests else ""
    limit = "" if times is None else f", {times:.1f} x the least possible ({human_seconds(stats.physical_limit_s)})"
    facts.add_row("time", f"{human_seconds(stats.elapsed_s)}{of_scan}{limit}; decoding {human_seconds(stats.decode_s)}")
    before = f"{plural(report.earlier_requests, 'request')} to open the table, " if report.earlier_requests else ""
    sent = f"{stats.request_count:,} for this scan" if before else plural(stats.request_count, "request")
    requests = f"{before}{sent} in {plural(stats.round_trips, 'round trip')}"
    again = f", {stats.retries:,} sent again" if stats.retries else ""
    hedges = f", {plural(stats.hedges_sent, 'hedge')} ({stats.hedges_won:,} won)" if stats.hedges_sent else ""
    facts.add_row("requests", requests + again + hedges)
    gaps = f", {human_bytes(stats.gap_bytes)} of gaps" if stats.gap_bytes else ""
    fetched = f"{human_bytes(stats.fetched_bytes)} fetched, {human_bytes(stats.wanted_bytes)} of data wanted{gaps}"
    facts.add_row("bytes", fetched)
    if stats.cache_hits:
        hits = f"{plural(stats.cache_hits, 'answer')}, {human_bytes(stats.cache_hit_bytes)}"
        facts.add_row("from the cache", hits)
    opening = f"{human_price(report.earlier_dollars)} to open the table, " if before else ""
    facts.add_row("price", f"{opening}{human_price(stats.dollars)}{' for this scan' if before else ''}")
    facts.add_row("rows", f"{stats.row_count:,}")
    return facts
