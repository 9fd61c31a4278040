"""What is told of one scan after it was read: plain data, and one HTML page that needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from coldparquet import __version__
from coldparquet.errors import InvalidInputError
from coldparquet.plan.cost import prices_of
from coldparquet.records import replace
from coldparquet.report.kinds import KINDS, colours_in_notebooks, escaped, escaped_lines, kind_of, remarks_on
from coldparquet.report.waterfall_drawing import WATERFALL_STYLE, busy_s, html_waterfall, svg_waterfall
from coldparquet.scan.stats import request_dollars
from coldparquet.text import (
    few_names,
    human_bytes,
    human_dollars,
    human_milliseconds,
    human_price,
    human_seconds,
    plural,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from coldparquet.plan.model import ReadPlan
    from coldparquet.prices import PriceTable
    from coldparquet.scan.stats import ScanStatistics
    from coldparquet.storage.log import RequestRecord
    from coldparquet.table_scan import Scan


_LEAST_CLIENT_S = 0.001

_MOST_ROWS = 5_000
"""Requests that the table lists before it says how many more there are; browsers become slow beyond."""

_STYLE = """\
* { box-sizing: border-box; }
h1 { font-size: 21px; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 34px 0 10px; }
p { margin: 0 0 4px; overflow-wrap: anywhere; }
.faint, footer { color: var(--faint); }
code, pre { font: 13px/1.5 ui-monospace, monospace; color: inherit; background: none; }
.tiles { display: flex; flex-wrap: wrap; gap: 10px; margin-top: 20px; }
.tile { flex: 1 1 150px; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
.tile b { display: block; font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; line-height: 1.35; }
.tile span { display: block; font-size: 13px; color: var(--faint); line-height: 1.4; }
.tile span[title] { text-decoration: underline dotted; text-underline-offset: 3px; cursor: help; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; color: inherit; margin: 0; }
th, td { text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; background: none; }
th { color: var(--faint); font-weight: 600; }
td.text, th.text { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 110px; }
tr:last-child td { border-bottom: 0; }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 7px; }
pre { margin: 0; padding: 12px 14px; background: var(--card); }
summary { cursor: pointer; font-weight: 600; font-size: 16px; margin: 34px 0 10px; }
footer { margin-top: 36px; font-size: 13px; }
@media (max-width: 820px) {
.tile { flex-basis: 30%; }
th, td { padding: 4px 7px; }
.kinds th:nth-child(4), .kinds td:nth-child(4) { display: none; }
}
@media (max-width: 480px) {
.tile { flex-basis: 40%; }
.kinds th:nth-child(5), .kinds td:nth-child(5) { display: none; }
}
"""
_DOT_STYLE = "".join(f".dot.{kind} {{ background: var(--{kind}); }}\n" for kind in KINDS)
_PAGE_STYLE = "body { margin: 0; }\nmain { max-width: 1180px; margin: 0 auto; padding: 28px 20px 48px; }\n"


def _scoped(style: str) -> str:
    """Put every rule below ``.coldparquet``, so that it changes nothing else of a notebook."""
    lines = []
    for line in style.splitlines():
        selectors, brace, rest = line.partition(" {")
        is_rule = brace and not selectors.startswith("@")
        inner = ", ".join(f".coldparquet {selector}" for selector in selectors.split(", ")) if is_rule else selectors
        lines.append(f"{inner}{brace}{rest}")
    return "\n".join(lines) + "\n"


STYLE = (
    colours_in_notebooks(".coldparquet")
    + ".coldparquet { background: var(--paper); color: var(--ink); font: 15px/1.5 ui-sans-serif, system-ui, sans-serif; }\n"
    + _scoped(_STYLE + _DOT_STYLE + WATERFALL_STYLE)
)
"""What any element of the class ``coldparquet`` needs, in a page or in a notebook."""


def html_report(report: ScanReport) -> str:
    """Write a report as an HTML page.

    The page asks for no other resource, and forbids the browser to: its policy allows nothing but its own style.
    """
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">""",
            f"<title>coldparquet: {escaped(report.title)}</title>",
            f"<style>\n{_PAGE_STYLE}{STYLE}</style>",
            "</head>",
            '<body class="coldparquet">',
            "<main>",
            *question(report),
            *tiles(report.statistics, report),
            "<h2>Requests over time</h2>",
            f'<div class="wide">{html_waterfall(report.records)}</div>',
            "<h2>What they were for</h2>",
            f'<div class="wide kinds">{_by_kind(report)}</div>',
            *_plan(report),
            f"<details><summary>All {plural(len(report.records), 'request')}</summary>",
            f'<div class="wide">{_request_table(report)}</div></details>',
            _footer(report),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def question(report: ScanReport) -> Iterator[str]:
    """Write what was asked, where and when."""
    yield f"<h1>{escaped(report.url)}</h1>"
    yield f"<p>columns: {escaped(few_names(report.columns) or 'none')}</p>"
    if report.predicate is not None:
        yield f"<p>where <code>{escaped(report.predicate)}</code></p>"
    if report.limit is not None:
        yield f"<p>at most {plural(report.limit, 'row')}</p>"
    yield f'<p class="faint">{escaped(report.origin)}</p>'


def tiles(stats: ScanStatistics, report: ScanReport | None = None) -> Iterator[str]:
    """Write what a scan cost; a report knows more of it, such as the requests before the scan."""
    yield '<div class="tiles">'
    yield _tile("time", human_seconds(stats.elapsed_s), _time_remarks(stats, report))
    yield _tile("requests", f"{stats.request_count:,}", _request_remarks(stats, report))
    yield _tile("bytes fetched", human_bytes(stats.fetched_bytes), _byte_remarks(stats))
    if stats.dollars != 0 if report is None else report.has_prices:
        yield _tile("price", human_price(stats.dollars), _price_remarks(stats, report))
    yield _tile("rows", f"{stats.row_count:,}", [f"decoded in {human_seconds(stats.decode_s)}, all threads together"])
    yield "</div>"


def _tile(label: str, value: str, remarks: list[str | tuple[str, str]]) -> str:
    """Write a number with remarks, of which some explain themselves when the mouse rests on them."""
    pairs = [(remark, "") if isinstance(remark, str) else remark for remark in remarks]
    titles = [f' title="{escaped(why)}"' if why else "" for _, why in pairs]
    lines = "".join(f"<span{title}>{escaped(line)}</span>" for title, (line, _) in zip(titles, pairs, strict=True))
    return f'<div class="tile"><span>{label}</span><b>{escaped(value)}</b>{lines}</div>'


def _time_remarks(stats: ScanStatistics, report: ScanReport | None) -> list[str | tuple[str, str]]:
    remarks: list[str | tuple[str, str]] = []
    times = stats.times_physical_limit
    if times is not None:
        why = (
            f"The least possible time for these requests is {human_seconds(stats.physical_limit_s)}:"
            f" {plural(stats.round_trips, 'round trip')}, each as long as the first byte took, and {human_bytes(stats.fetched_bytes)}"
            " at the throughput of all connections. The rest was spent waiting, decoding, or between requests."
        )
        remarks.append((f"{times:.1f} x the least possible, {human_seconds(stats.physical_limit_s)}", why))
    if report is not None and report.client_s >= _LEAST_CLIENT_S:
        why = (
            "No request was under way: coldparquet planned or decoded, or the program did something else with the rows."
        )
        remarks.append((f"{human_seconds(report.client_s)} of it without a request", why))
    return remarks


def _request_remarks(stats: ScanStatistics, report: ScanReport | None) -> list[str | tuple[str, str]]:
    why = "The longest chain of requests of which each began when the one before was over."
    remarks: list[str | tuple[str, str]] = [(f"in {plural(stats.round_trips, 'round trip')}", why)]
    if report is not None and report.earlier_requests:
        remarks.append(f"{report.earlier_requests:,} more before, to open the table")
    if stats.cache_hits:
        remarks.append(f"{plural(stats.cache_hits, 'answer')} from the cache")
    if stats.retries:
        remarks.append(f"{stats.retries:,} sent again")
    if stats.hedges_sent:
        remarks.append(f"{plural(stats.hedges_sent, 'hedge')}, {stats.hedges_won:,} won")
    return remarks


def _byte_remarks(stats: ScanStatistics) -> list[str | tuple[str, str]]:
    remarks: list[str | tuple[str, str]] = [f"{human_bytes(stats.wanted_bytes)} of data wanted"]
    if stats.gap_bytes:
        remarks.append(f"{human_bytes(stats.gap_bytes)} of gaps read over")
    if stats.cache_hit_bytes:
        remarks.append(f"{human_bytes(stats.cache_hit_bytes)} from the cache")
    return remarks


def _price_remarks(stats: ScanStatistics, report: ScanReport | None) -> list[str | tuple[str, str]]:
    remarks: list[str | tuple[str, str]] = (
        ["the storage class has no known price"]
        if stats.dollars is None
        else [f"{human_dollars(stats.dollars * 1e6)} for a million times"]
    )
    if report is not None and report.earlier_requests:
        remarks.append(f"{human_price(report.earlier_dollars)} more before, to open the table")
    return remarks


def _by_kind(report: ScanReport) -> str:
    rows = []
    for kind in KINDS:
        records = [record for record in report.records if kind_of(record) == kind]
        if records:
            rows.append(
                [
                    f'<span class="dot {kind}"></span>{kind}',
                    f"{sum(record.http_requests for record in records):,}",
                    human_bytes(sum(record.fetched_bytes for record in records)),
                    human_milliseconds(records[0].started_s, decimals=1),
                    human_milliseconds(max(record.finished_s for record in records), decimals=1),
                    *_price_cell(report, records),
                ]
            )
    header = ["", "requests", "bytes", "first sent", "last done", *(["price"] if report.has_prices else [])]
    return table_of(header, rows, text_columns={0})


def _plan(report: ScanReport) -> Iterator[str]:
    if report.plan is not None:
        yield "<details open><summary>The plan, made before any data was fetched</summary>"
        yield f'<div class="wide"><pre>{escaped_lines(report.plan.explain())}</pre></div></details>'


def _request_table(report: ScanReport) -> str:
    rows = []
    for record in report.records[:_MOST_ROWS]:
        kind, first_byte = kind_of(record), ""
        if record.first_byte_s is not None:
            first_byte = human_milliseconds(record.first_byte_s - record.started_s, decimals=1)
        rows.append(
            [
                human_milliseconds(record.started_s, decimals=1),
                human_milliseconds(record.finished_s - record.started_s, decimals=1),
                first_byte,
                human_bytes(record.fetched_bytes) if record.operation == "get" else "",
                "" if record.byte_range is None else escaped(str(record.byte_range)),
                f'<span class="dot {kind}"></span>{escaped(record.reason)}',
                escaped(record.path),
                escaped(", ".join((record.storage_class or "", *remarks_on(record))).strip(", ")),
                *_price_cell(report, [record]),
            ]
        )
    header = ["sent", "took", "first byte", "bytes", "range", "for", "object", "remarks"]
    header += ["price"] if report.has_prices else []
    table = table_of(header, rows, text_columns={5, 6, 7})
    left_out = len(report.records) - _MOST_ROWS
    return table if left_out <= 0 else f"{table}<p>... and {plural(left_out, 'more request')}</p>"


def _price_cell(report: ScanReport, records: list[RequestRecord]) -> list[str]:
    return [human_price(_dollars_of(records, report.prices))] if report.has_prices else []


def _dollars_of(records: Sequence[RequestRecord], prices: PriceTable) -> float | None:
    """Add up what requests cost; None where the price of one is not known."""
    dollars = [request_dollars(record, prices) for record in records]
    known = [price for price in dollars if price is not None]
    return sum(known) if len(known) == len(dollars) else None


def table_of(header: list[str], rows: list[list[str]], *, text_columns: set[int]) -> str:
    """Put cells, which are HTML already, into a table."""

    def cells(tag: str, row: list[str]) -> str:
        texts = [' class="text"' if column in text_columns else "" for column in range(len(row))]
        return "".join(f"<{tag}{text}>{cell}</{tag}>" for text, cell in zip(texts, row, strict=True))

    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', header)}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _footer(report: ScanReport) -> str:
    prices = f" Prices: {escaped(report.prices.name)}, {escaped(report.prices.as_of)}." if report.has_prices else ""
    return (
        f"<footer>{prices.strip()} Round trips: the longest chain of requests of which"
        " each began when the one before was over. Least possible time: round trips x time to the first byte, and bytes over"
        " the throughput of all connections.</footer>"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """What was asked, what was planned, what was sent, and what it cost."""

    url: str
    """The table, without credentials."""
    columns: tuple[str, ...]
    predicate: str | None
    limit: int | None
    plan: ReadPlan | None
    """None where there is not one plan, as for the newest rows, which are found step by step."""
    statistics: ScanStatistics
    records: tuple[RequestRecord, ...]
    """In the order in which they started. Times count from the moment when the first one could have been sent."""
    prices: PriceTable
    has_prices: bool
    """Whether the store is one that asks money for requests."""
    client_s: float
    """Time of the scan in which none of its requests was under way."""
    store: str
    """What the store is, such as ``s3 (eu-west-1)``."""
    made_at: datetime
    """When the report was made."""

    @property
    def title(self) -> str:
        """What was asked, in one line."""
        where = "" if self.predicate is None else f" where {self.predicate}"
        limit = "" if self.limit is None else f", at most {plural(self.limit, 'row')}"
        return f"{self.url}: {few_names(self.columns) or 'no columns'}{where}{limit}"

    @property
    def origin(self) -> str:
        """Where and when, and by which version."""
        return f"{self.store} · {self.made_at:%Y-%m-%d %H:%M:%S} UTC · coldparquet {__version__}"

    def document(self, suffix: str) -> str:
        """Write the page, or for ``.svg`` the drawing alone."""
        if suffix == ".svg":
            return svg_waterfall(self.records, title=self.title, remark=self.origin)
        return html_report(self)

    @property
    def earlier_requests(self) -> int:
        """How many of the requests are not the scan's own: those with which the table was opened."""
        return max(0, sum(record.http_requests for record in self.records) - self.statistics.request_count)

    @property
    def earlier_dollars(self) -> float | None:
        """What these cost; None where the price of something is not known."""
        if not self.has_prices:
            return 0.0
        dollars, of_scan = _dollars_of(self.records, self.prices), self.statistics.dollars
        return None if dollars is None or of_scan is None else max(0.0, dollars - of_scan)


def scan_report(
    scan: Scan, *, plan: ReadPlan | None = None, records: Sequence[RequestRecord] | None = None
) -> ScanReport:
    """Put together what is known of a scan that was read. No request.

    Args:
        scan: The scan.
        plan: Its plan, if the report is to show it.
        records: Requests to show; None shows those of the scan. ``table.request_log`` also has those with which the table
            was opened, and those of other scans.
    """
    question, stats = scan.question, scan.stats
    return ScanReport(
        url=question.url,
        columns=tuple(column.name for column in question.output_columns),
        predicate=question.predicate_text,
        limit=question.limit,
        plan=plan,
        statistics=stats,
        records=from_zero(scan.request_log if records is None else records),
        prices=prices_of(question.options),
        has_prices=question.snapshot.store.has_storage_classes,
        client_s=max(0.0, stats.elapsed_s - busy_s(scan.request_log)),
        store=question.snapshot.store.label,
        made_at=datetime.now(UTC),
    )


def write_report(scan: Scan, path: str | os.PathLike[str], *, plan: ReadPlan | None = None) -> Path:
    """Write a report to a file; see :meth:`coldparquet.table_scan.Scan.report`. No request."""
    target = Path(path).expanduser()
    if "://" in str(path) or target.suffix not in (".html", ".svg"):
        raise InvalidInputError(
            f"a report is a local file that ends in .html or .svg, not {str(path)!r}", kind="InvalidPath"
        )
    target.write_text(scan_report(scan, plan=plan).document(target.suffix), encoding="utf-8")
    return target


def from_zero(records: Sequence[RequestRecord]) -> tuple[RequestRecord, ...]:
    """Count the times of requests from the moment when the first one could have been sent."""
    zero_s = min((record.started_s - record.waited_s for record in records), default=0.0)
    return tuple(
        replace(
            record,
            started_s=record.started_s - zero_s,
            finished_s=record.finished_s - zero_s,
            first_byte_s=None if record.first_byte_s is None else record.first_byte_s - zero_s,
        )
        for record in records
    )
