"""A picture of requests over time: one line each, with a bar from the moment it was sent until its last byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from coldparquet.plan.wording import human_bytes
from coldparquet.report.request_kinds import kind_of, purpose_of, remarks_on
from coldparquet.visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.report.request_kinds import RequestKind
    from coldparquet.storage.wrappers.trace import RequestRecord

_NUMBER_WIDTH = 8
"""``1,234 ms``, ``1.2 MiB``."""
_BAR_SHARE = 0.35
"""Share of the line that the bar may take."""
_PURPOSE_WIDTH = 30
"""What the bar leaves at least for the purpose of the request."""
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
_STYLES: dict[RequestKind, str] = {
    "listing": "yellow",
    "metadata": "cyan",
    "data": "green",
    "writing": "magenta",
    "failed": "red",
}


def waterfall(records: Sequence[RequestRecord], *, width: int, max_lines: int) -> Table:
    """Draw requests in the order in which they were sent.

    Dots: waiting for a turn; a shaded bar: until the first byte, where that is known; a full one: until the last.

    Args:
        records: What a :class:`~coldparquet.storage.wrappers.trace.TraceStore` recorded; times count from its first request.
        width: Characters in a line.
        max_lines: Requests that get a line; the last line tells how many did not.
    """
    bar_width = max(8, min(int(width * _BAR_SHARE), width - _PURPOSE_WIDTH - 3 * (_NUMBER_WIDTH + 2) - 2))
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), width=width)
    for header in ("sent", "took", "bytes"):
        table.add_column(header, justify="right", no_wrap=True, width=_NUMBER_WIDTH)
    table.add_column("", no_wrap=True, width=bar_width)
    table.add_column("for", no_wrap=True, overflow="ellipsis", ratio=1)
    end_s = max((record.finished_s for record in records), default=0.0)
    shown = records if len(records) <= max_lines else records[: max_lines - 1]
    for record in shown:
        table.add_row(
            _milliseconds(record.started_s),
            _milliseconds(record.finished_s - record.started_s),
            human_bytes(record.fetched_bytes) if record.operation == "get" else "",
            _bar(record, end_s, bar_width),
            _purpose(record),
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


def _purpose(record: RequestRecord) -> Text:
    remarks = ", ".join(remarks_on(record))
    return Text.assemble((f"{remarks}  " if remarks else "", _STYLES[kind_of(record)]), visible(purpose_of(record)))


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"
