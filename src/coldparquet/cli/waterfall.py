"""A picture of requests over time: one line each, a bar from the moment it was sent until its last byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from coldparquet.plan.explain import human_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.storage.trace import RequestRecord

_BAR_WIDTH = 32
_EIGHTHS = " ▏▎▍▌▋▊▉"
_REASON_WIDTH = 44


def waterfall(records: Sequence[RequestRecord], *, max_lines: int) -> Table:
    """Draw requests in the order in which they were sent.

    Args:
        records: What a :class:`~coldparquet.storage.trace.TraceStore` recorded; times count from its first request.
        max_lines: Requests that get a line; the last one tells how many did not.
    """
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("sent", justify="right", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, width=_BAR_WIDTH)
    table.add_column("for", no_wrap=True, max_width=_REASON_WIDTH, overflow="ellipsis")
    end_s = max((record.finished_s for record in records), default=0.0)
    shown = records if len(records) <= max_lines else records[: max_lines - 1]
    for record in shown:
        table.add_row(
            _milliseconds(record.started_s),
            _milliseconds(record.finished_s - record.started_s),
            human_bytes(record.fetched_bytes) if record.operation == "get" else "",
            _bar(record, end_s),
            Text(f"{_partition_name(record)}{record.reason}"),
        )
    if len(shown) < len(records):
        table.add_row("...", "", "", "", f"{len(records) - len(shown):,} more requests")
    return table


def _bar(record: RequestRecord, end_s: float) -> Text:
    """Draw a bar with ends at an eighth of a character; never empty."""
    scale = _BAR_WIDTH * 8 / end_s if end_s > 0 else 0.0
    start = min(round(record.started_s * scale), _BAR_WIDTH * 8 - 8)
    stop = max(round(record.finished_s * scale), start + 8)
    style = "yellow" if record.operation == "list" else "cyan" if _is_metadata(record) else "green"
    # The left end can only be drawn as a whole character: its blank part has no block of its own.
    indent, filled = start // 8, stop - start // 8 * 8
    return Text(" " * indent + "█" * (filled // 8) + _EIGHTHS[filled % 8].strip(), style=style)


def _is_metadata(record: RequestRecord) -> bool:
    return record.reason in ("sidecar", "Parquet footer")


def _partition_name(record: RequestRecord) -> str:
    """Return the directory of the object, which is what tells requests of one table apart."""
    return "" if record.operation == "list" else f"{record.path.rsplit('/', 2)[-2]}  "


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"
