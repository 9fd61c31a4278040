"""What notebooks show of tables, scans, plans and statistics. No request."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import TYPE_CHECKING

from coldparquet.plan.model import ReadPlan
from coldparquet.plan.predicate import Instant
from coldparquet.report.kinds import escaped, escaped_lines
from coldparquet.report.scan_report import STYLE, from_zero, question, scan_report, table_of, tiles
from coldparquet.report.waterfall_drawing import html_waterfall
from coldparquet.scan.stats import ScanStatistics
from coldparquet.table import Table
from coldparquet.table_scan import Scan
from coldparquet.text import human_bytes, plural

if TYPE_CHECKING:
    from coldparquet.catalog.partition import Partition

_MOST_COLUMNS = 50
_MOST_PARTITIONS = 10
_MOST_REQUESTS = 200

_CELL_STYLE = """\
.coldparquet.cell { padding: 12px 14px; border-radius: 6px; font-size: 14px; }
.coldparquet.cell h1 { font-size: 17px; }
.coldparquet.cell summary { font-size: 14px; margin: 12px 0 6px; }
.coldparquet.cell .wide { margin-top: 12px; }
"""


def html_of(shown: object) -> str:
    """Return an object as the HTML of a notebook's cell, with all the style that it needs."""
    body = "\n".join(_cell(shown))
    return f'<div class="coldparquet cell"><style>\n{STYLE}{_CELL_STYLE}</style>\n{body}</div>'


@singledispatch
def _cell(shown: object) -> Iterable[str]:
    raise TypeError(f"{type(shown).__name__} is not shown in notebooks")


@_cell.register
def _(table: Table) -> Iterable[str]:
    snapshot, schema, partitions = table.scan([]).question.snapshot, table.schema, table.partitions
    rows = [partition.rows for partition in partitions]
    known = [count for count in rows if count is not None]
    facts = [plural(len(snapshot.columns), "column"), plural(len(partitions), "partition"), *_time_range(partitions)]
    yield f"<h1>{escaped(table.url)}</h1>"
    yield f"<p>{escaped(', '.join([*facts, plural(sum(known), 'row')] if len(known) == len(rows) else facts))}</p>"
    columns = [
        [
            escaped(column.name),
            escaped("not readable" if column.type is None else column.type.name),
            escaped(str(schema.field(column.name).type) if column.name in schema.names else ""),
            "designated timestamp" if column.index == snapshot.designated_timestamp else "",
        ]
        for column in snapshot.columns[:_MOST_COLUMNS]
    ]
    yield _folded(table_of(["column", "type", "in Arrow", ""], columns, text_columns={0, 1, 2, 3}), "Columns")
    yield from _more(len(snapshot.columns) - _MOST_COLUMNS, "column")
    some, half = list(partitions), _MOST_PARTITIONS // 2
    if len(some) > _MOST_PARTITIONS:
        some = some[:half] + some[-half:]
        yield from _more(len(partitions) - len(some), "partition", "between the first and the last")
    cells = [
        [
            escaped(partition.name),
            *_ends(partition),
            partition.format,
            "" if partition.rows is None else f"{partition.rows:,}",
            "" if partition.parquet_size_bytes is None else human_bytes(partition.parquet_size_bytes),
        ]
        for partition in some
    ]
    header = ["partition", "from", "to", "format", "rows", "Parquet"]
    yield _folded(table_of(header, cells, text_columns={0}), "Partitions")


@_cell.register
def _(scan: Scan) -> Iterable[str]:
    report = scan_report(scan)
    yield from question(report)
    types = [[escaped(field.name), escaped(str(field.type))] for field in scan.schema]
    yield _folded(table_of(["column", "in Arrow"], types, text_columns={0, 1}), "Columns of the result", is_open=False)
    if report.records or report.statistics.row_count:
        yield from tiles(report.statistics, report)
        yield _framed(html_waterfall(report.records))
    else:
        yield "<p class='faint'>Nothing was fetched yet: plan() tells what would be, count() and to_arrow() ask.</p>"


@_cell.register
def _(plan: ReadPlan) -> Iterable[str]:
    yield f"<h1>{escaped(plan.table)}</h1>"
    trips = plural(plan.round_trips, "round trip")
    yield f"<p>{plural(plan.request_count, 'request')} for {human_bytes(plan.bytes_fetched)} in {trips}</p>"
    yield _framed(f"<pre>{escaped_lines(plan.explain())}</pre>")
    rows = [
        [
            escaped(plan.partitions[request.partition_index].name),
            f"{request.byte_range.start:,}",
            human_bytes(request.byte_range.length_bytes),
            str(request.stage),
            escaped(request.reason),
        ]
        for request in plan.requests[:_MOST_REQUESTS]
    ]
    header = ["partition", "first byte", "length", "round trip", "for"]
    table = table_of(header, rows, text_columns={0, 4}) if rows else "<p>none</p>"
    yield _folded(table, f"All {plural(plan.request_count, 'request')}", is_open=False)
    yield from _more(plan.request_count - _MOST_REQUESTS, "request")


@_cell.register
def _(statistics: ScanStatistics) -> Iterable[str]:
    yield from tiles(statistics)
    if statistics.records:
        yield _framed(html_waterfall(from_zero(statistics.records)))


def _framed(body: str) -> str:
    return f'<div class="wide">{body}</div>'


def _folded(body: str, summary: str, *, is_open: bool = True) -> str:
    return f"<details{' open' if is_open else ''}><summary>{escaped(summary)}</summary>{_framed(body)}</details>"


def _more(count: int, noun: str, where: str = "") -> Iterable[str]:
    if count > 0:
        yield f'<p class="faint">... and {plural(count, f"more {noun}")} {where}</p>'


def _time_range(partitions: tuple[Partition, ...]) -> list[str]:
    ranges = [partition.time_range_ns for partition in partitions]
    known = [found for found in ranges if found is not None]
    if not known or len(known) < len(ranges):
        return []
    return [f"{_time(min(start for start, _ in known))} to {_time(max(stop for _, stop in known))}"]


def _ends(partition: Partition) -> tuple[str, str]:
    found = partition.time_range_ns
    return ("", "") if found is None else (_time(found[0]), _time(found[1]))


def _time(nanoseconds: int) -> str:
    return str(Instant(nanoseconds)).removesuffix("T00:00:00Z")
