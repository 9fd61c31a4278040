"""``coldparquet scan --profile`` and ``--report``: what a scan did, on the terminal and as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from coldparquet.cli.output import error_console, facts_table
from coldparquet.cli.row_files import file_in_place
from coldparquet.cli.waterfall import waterfall
from coldparquet.plan.wording import human_bytes, human_dollars, human_seconds, plural
from coldparquet.report import html_report, scan_report, svg_waterfall

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from coldparquet.plan.read_plan import ReadPlan
    from coldparquet.report import ScanReport
    from coldparquet.scan import Scan
    from coldparquet.table import Table

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
        """Print, and write, what was done.

        Args:
            table: What was scanned; it was opened for this scan alone.
            scan: The scan that was read.
            plan: Its plan, where it has one.
        """
        records = table.request_log
        if self.is_printed:
            _print_profile(scan_report(scan, records=records))
        if self.report_path is not None:
            report = scan_report(scan, plan=plan, records=records)
            text = svg_waterfall(records) if self.report_path.suffix == ".svg" else html_report(report)
            with file_in_place(self.report_path) as file:
                file.write(text.encode())


def scan_profile(*, profile: bool, report: str | None) -> ScanProfile:
    """Put together what the flags say.

    Raises:
        typer.BadParameter: The format does not follow from the name of the report.
    """
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
    console.print(Text("░ until the first byte  █ until the last  · waiting for a turn", style="dim"))


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
    opening = f"{_price(report.earlier_dollars)} to open the table, " if before else ""
    facts.add_row("price", f"{opening}{_price(stats.dollars)}{' for this scan' if before else ''}")
    facts.add_row("rows", f"{stats.row_count:,}")
    return facts


def _price(dollars: float | None) -> str:
    return "unknown" if dollars is None else human_dollars(dollars)
