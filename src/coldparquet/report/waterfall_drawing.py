"""Requests over time as SVG: one line each, from when it began to wait for a slot until its last byte."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.report.kinds import COLOURS, KINDS, escaped, kind_of, purpose_of, remarks_on
from coldparquet.text import human_bytes, human_milliseconds, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coldparquet.storage.log import RequestRecord

_MOST_LINES = 500
"""More requests than this are summed up in the last line: a drawing of so many cannot be read."""

_WIDTH, _MARGIN = 1120, 12
_LINE_HEIGHT, _BAR_HEIGHT = 18, 10
_AXIS_HEIGHT, _LEGEND_HEIGHT = 26, 26
_LABEL_WIDTH, _NUMBERS_WIDTH = 400, 130
_CHART_LEFT = _MARGIN + _LABEL_WIDTH
_CHART_WIDTH = _WIDTH - 2 * _MARGIN - _LABEL_WIDTH - _NUMBERS_WIDTH
_LABEL_CHARACTERS = 62
"""About as many as fit beside the chart; the whole text appears when the mouse rests on it."""
_LEAST_BAR_WIDTH = 1.5
_TICKS = 8
"""About so many times are written at the axis."""

_STYLE = """\
.waterfall text { font: 11.5px ui-sans-serif, system-ui, sans-serif; fill: var(--ink); }
.waterfall .faint { fill: var(--faint); }
.waterfall .numbers { text-anchor: end; font-variant-numeric: tabular-nums; }
.waterfall .tick { text-anchor: middle; fill: var(--faint); font-variant-numeric: tabular-nums; }
.waterfall .grid { stroke: var(--line); stroke-width: 1; }
.waterfall .waiting { stroke: var(--faint); stroke-width: 1.5; stroke-dasharray: 1.5 2.5; }
.waterfall .latency { opacity: 0.4; }
.waterfall .lost { opacity: 0.45; }
"""
_KIND_STYLE = "".join(f".waterfall .{kind} {{ fill: var(--{kind}); }}\n" for kind in KINDS)

WATERFALL_STYLE = _STYLE + _KIND_STYLE
"""What the drawing needs besides :data:`~coldparquet.report.kinds.COLOURS`."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """From seconds to the chart."""

    begin_s: float
    end_s: float

    def x(self, time_s: float) -> float:
        share = (time_s - self.begin_s) / (self.end_s - self.begin_s)
        return round(_CHART_LEFT + share * _CHART_WIDTH, 2)


def draw_waterfall(records: Sequence[RequestRecord]) -> str:
    """Draw requests as an ``svg`` element for a page that has the colours and :data:`WATERFALL_STYLE`."""
    shown = records if len(records) <= _MOST_LINES else records[: _MOST_LINES - 1]
    scale = _scale_of(records)
    height = _AXIS_HEIGHT + _LINE_HEIGHT * (len(shown) + (len(shown) < len(records))) + _LEGEND_HEIGHT
    chart_bottom = height - _LEGEND_HEIGHT
    description = f"{plural(len(records), 'request')} over time"
    size = f'viewBox="0 0 {_WIDTH} {height}"'
    parts = [
        f'<svg class="waterfall" xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{description}">',
        *_axis(scale, chart_bottom),
    ]
    for number, record in enumerate(shown):
        parts += _line(record, _AXIS_HEIGHT + number * _LINE_HEIGHT, scale)
    if len(shown) < len(records):
        text = f"... and {plural(len(records) - len(shown), 'more request')}"
        parts.append(f'<text class="faint" x="{_MARGIN}" y="{chart_bottom - 5}">{text}</text>')
    parts += [*_legend(records, height - 9), "</svg>"]
    return "\n".join(parts)


def svg_waterfall(records: Sequence[RequestRecord]) -> str:
    """Draw requests as an SVG file of its own, for light and for dark screens.

    Args:
        records: In the order in which they started.
    """
    head, _, body = draw_waterfall(records).partition("\n")
    style = f"<style>\n{COLOURS}{WATERFALL_STYLE}svg {{ background: var(--paper); }}\n</style>"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}\n{style}\n{body}\n'


def _scale_of(records: Sequence[RequestRecord]) -> _Scale:
    begin_s = min((record.started_s - record.waited_s for record in records), default=0.0)
    end_s = max((record.finished_s for record in records), default=0.0)
    return _Scale(begin_s, end_s if end_s > begin_s else begin_s + 1e-3)


def _axis(scale: _Scale, bottom: int) -> Iterator[str]:
    """Draw a vertical line at round times, counted from the first request."""
    length_s = scale.end_s - scale.begin_s
    step_s = _round_step(length_s / _TICKS)
    for number in range(int(length_s / step_s) + 1):
        x = scale.x(scale.begin_s + number * step_s)
        yield f'<line class="grid" x1="{x}" y1="{_AXIS_HEIGHT - 6}" x2="{x}" y2="{bottom}"/>'
        yield f'<text class="tick" x="{x}" y="14">{_time(number * step_s, step_s)}</text>'


def _round_step(least_s: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, 50 ... that is not smaller."""
    power = 10.0 ** math.floor(math.log10(least_s))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least_s * (1 - 1e-9))


def _time(time_s: float, step_s: float) -> str:
    if step_s >= 1:
        return f"{time_s:,.0f} s"
    decimals = max(0, -math.floor(math.log10(step_s * 1000) + 1e-9))
    return f"{time_s * 1000:,.{decimals}f} ms"


def _line(record: RequestRecord, top: int, scale: _Scale) -> Iterator[str]:
    remarks = "".join(f" [{remark}]" for remark in remarks_on(record))
    label = _shortened(purpose_of(record), _LABEL_CHARACTERS - len(remarks)) + remarks
    middle, text_y = top + _LINE_HEIGHT / 2, top + 13
    yield f"<g><title>{escaped(_details(record))}</title>"
    yield f'<rect fill="transparent" x="0" y="{top}" width="{_WIDTH}" height="{_LINE_HEIGHT}"/>'
    yield f'<text x="{_MARGIN}" y="{text_y}">{escaped(label)}</text>'
    if record.waited_s > 0:
        begin, end = scale.x(record.started_s - record.waited_s), scale.x(record.started_s)
        yield f'<line class="waiting" x1="{begin}" y1="{middle}" x2="{end}" y2="{middle}"/>'
    yield from _bar(record, middle - _BAR_HEIGHT / 2, scale)
    took = human_milliseconds(record.finished_s - record.started_s)
    size = human_bytes(record.fetched_bytes) if record.operation == "get" else ""
    right = _WIDTH - _MARGIN
    yield f'<text class="numbers faint" x="{right - 68}" y="{text_y}">{took}</text>'
    yield f'<text class="numbers faint" x="{right}" y="{text_y}">{size}</text></g>'


def _bar(record: RequestRecord, y: float, scale: _Scale) -> Iterator[str]:
    """Draw the time until the first byte paler than that of the transfer; the whole bar alike where it is not known."""
    kind = kind_of(record)
    lost = " lost" if record.status == "cancelled" else ""
    begin, end = scale.x(record.started_s), scale.x(record.finished_s)
    first_byte = begin if record.first_byte_s is None else min(scale.x(record.first_byte_s), end)
    end = max(end, begin + _LEAST_BAR_WIDTH)
    for part, left, right in ((" latency", begin, first_byte), ("", first_byte, end)):
        if right > left:
            width = round(right - left, 2)
            yield f'<rect class="{kind}{part}{lost}" x="{left}" y="{y}" width="{width}" height="{_BAR_HEIGHT}" rx="1.5"/>'


def _legend(records: Sequence[RequestRecord], y: int) -> Iterator[str]:
    present = {kind_of(record) for record in records}
    x = float(_CHART_LEFT)
    for kind in KINDS:
        if kind in present:
            yield f'<rect class="{kind}" x="{x}" y="{y - 9}" width="10" height="10" rx="1.5"/>'
            yield f'<text class="faint" x="{x + 15}" y="{y}">{kind}</text>'
            x += 34 + 6.4 * len(kind)
    remark = "pale: until the first byte; dotted: waiting for a slot"
    yield f'<text class="faint" x="{x + 6}" y="{y}">{remark}</text>'


def _details(record: RequestRecord) -> str:
    """Say everything about a request, for the mouse that rests on it."""
    started_s, first_byte_s = record.started_s, record.first_byte_s
    facts = [
        record.operation,
        record.path,
        "" if record.byte_range is None else f"bytes {record.byte_range}",
        record.reason,
        f"sent at {human_milliseconds(started_s, decimals=1)}",
        f"waited {human_milliseconds(record.waited_s, decimals=1)}" if record.waited_s else "",
        "" if first_byte_s is None else f"first byte after {human_milliseconds(first_byte_s - started_s, decimals=1)}",
        f"done after {human_milliseconds(record.finished_s - started_s, decimals=1)}",
        "" if record.http_status is None else f"HTTP {record.http_status}",
        record.storage_class or "",
        *remarks_on(record),
    ]
    return " · ".join(fact for fact in facts if fact)


def _shortened(text: str, most_characters: int) -> str:
    return text if len(text) <= most_characters else f"{text[: max(most_characters - 3, 0)]}..."
