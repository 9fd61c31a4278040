"""Requests over time: a line for each, from when it began to wait for a slot until its last byte.

In a page the lines are rows whose labels wrap, and in an SVG file of its own the same bars stand beside text of one line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coldparquet.report.kinds import KINDS, colours_of, escaped, kind_of, purpose_of, remarks_on
from coldparquet.text import human_bytes, human_milliseconds, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coldparquet.storage.log import RequestRecord

_MOST_LINES = 500
"""More requests than this are summed up in the last line: a drawing of so many cannot be read."""

_WIDTH, _MARGIN = 1120, 12
_LINE_HEIGHT, _BAR_HEIGHT = 18, 10
_TITLE_HEIGHT, _AXIS_HEIGHT, _LEGEND_HEIGHT = 44, 26, 26
_LABEL_WIDTH, _NUMBERS_WIDTH = 400, 130
_LABEL_CHARACTERS = 62
"""About as many as fit beside the chart; the whole text appears when the mouse rests on it."""
_TITLE_CHARACTERS = 150
_TICKS = 8
"""About so many times are written at the axis."""
_LEAST_IDLE_SHARE = 0.01
"""Shorter times without a request are not worth a shade."""

_BAR_STYLE = (
    "".join(f".waterfall .{kind} {{ fill: var(--{kind}); }}\n" for kind in KINDS)
    + """\
.waterfall .grid { stroke: var(--line); stroke-width: 1; }
.waterfall .idle { fill: var(--idle); }
.waterfall .waiting { stroke: var(--faint); stroke-width: 1.5; stroke-dasharray: 1.5 2.5; }
.waterfall .latency { opacity: 0.4; }
.waterfall .lost { opacity: 0.45; }
"""
)
_DRAWING_STYLE = """\
svg { background: var(--paper); }
.waterfall text { font: 11.5px ui-sans-serif, system-ui, sans-serif; fill: var(--ink); }
.waterfall .title { font-weight: 600; font-size: 14px; }
.waterfall .faint { fill: var(--faint); }
.waterfall .numbers { text-anchor: end; font-variant-numeric: tabular-nums; }
.waterfall .tick { text-anchor: middle; fill: var(--faint); font-variant-numeric: tabular-nums; }
"""

WATERFALL_STYLE = (
    _BAR_STYLE
    + """\
.waterfall { position: relative; padding: 8px 0 10px; font-size: 12.5px; line-height: 1.45; }
.waterfall .row { display: grid; grid-template-columns: 36% minmax(0, 1fr) 66px 78px; align-items: center; position: relative; }
.waterfall .row:hover .label { text-decoration: underline dotted; }
.waterfall .label { padding: 1px 12px; overflow-wrap: anywhere; }
.waterfall .number { text-align: right; color: var(--faint); font-variant-numeric: tabular-nums; padding-right: 12px; }
.waterfall svg { display: block; width: 100%; }
.waterfall .behind { position: absolute; top: 30px; bottom: 10px; left: 36%; width: calc(64% - 144px); height: calc(100% - 40px); }
.waterfall .times { position: relative; height: 22px; margin: 0 144px 0 36%; }
.waterfall .times text { font-size: 11.5px; fill: var(--faint); font-variant-numeric: tabular-nums; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; padding: 8px 12px; color: var(--faint); font-size: 12.5px; }
.legend i { display: inline-block; height: 10px; width: 10px; border-radius: 2px; margin-right: 6px; }
.legend .pale { opacity: 0.4; background: var(--ink); }
.legend .dots { height: 0; width: 18px; border-radius: 0; border-top: 2px dotted var(--faint); vertical-align: 3px; }
.legend .idle { background: var(--idle); border: 1px solid var(--line); }
@media (max-width: 820px) {
.waterfall .row { grid-template-columns: 62px 74px minmax(0, 1fr); padding-bottom: 5px; }
.waterfall .label { grid-column: 1 / -1; grid-row: 1; }
.waterfall .number { grid-row: 2; }
.waterfall .bar { grid-column: 3; grid-row: 2; }
.waterfall .behind { left: 136px; width: calc(100% - 148px); }
.waterfall .row .bar, .waterfall .times { padding-right: 12px; }
.waterfall .times { margin: 0 0 0 136px; }
}
@media (max-width: 560px) {
.waterfall .times text:not(:nth-child(3n + 1)) { display: none; }
}
"""
)
"""What the rows of a page need besides colours."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """From seconds to the chart: to pixels of a drawing, or to percents of a row."""

    begin_s: float
    end_s: float
    left: float = 0.0
    width: float = 100.0
    unit: str = "%"

    def x(self, time_s: float) -> float:
        share = (time_s - self.begin_s) / (self.end_s - self.begin_s)
        return round(self.left + share * self.width, 2)

    @property
    def least_bar(self) -> float:
        return 1.5 if self.unit == "" else 0.3


def html_waterfall(records: Sequence[RequestRecord]) -> str:
    """Draw requests as rows of a page that has colours and :data:`WATERFALL_STYLE`."""
    shown = _shown(records)
    scale = _Scale(*_times(records))
    ticks = list(_ticks(scale))
    parts = [
        f'<div class="waterfall" role="img" aria-label="{plural(len(records), "request")} over time">',
        '<svg class="behind" aria-hidden="true">',
        *_idle(records, scale, 'y="0" height="100%"'),
        *(f'<line class="grid" x1="{x}%" x2="{x}%" y1="0" y2="100%"/>' for x, _ in ticks),
        "</svg>",
        '<div class="times"><svg height="20" overflow="visible">',
        *(f'<text x="{x}%" y="14" text-anchor="{"start" if x == 0 else "middle"}">{time}</text>' for x, time in ticks),
        "</svg></div>",
    ]
    for record in shown:
        took, size = _numbers(record)
        parts += [
            f'<div class="row" title="{escaped(_details(record))}"><div class="label">{escaped(_label(record))}</div>',
            f'<svg class="bar" height="{_BAR_HEIGHT}">',
            *_bar(record, 0, scale),
            f'</svg><div class="number">{took}</div><div class="number">{size}</div></div>',
        ]
    if len(shown) < len(records):
        parts.append(f'<div class="label">... and {plural(len(records) - len(shown), "more request")}</div>')
    parts.append('</div><div class="legend">')
    parts += [f'<span><i class="dot {kind}"></i>{kind}</span>' for kind in _present(records)]
    parts += [
        '<span><i class="pale"></i>pale: until the first byte</span>',
        '<span><i class="dots"></i>waiting for a slot</span>',
        '<span><i class="idle"></i>no request under way: the client works</span></div>',
    ]
    return "\n".join(parts)


def svg_waterfall(records: Sequence[RequestRecord], *, title: str = "", remark: str = "") -> str:
    """Draw requests as an SVG file of its own, for light and for dark screens.

    Args:
        records: In the order in which they started.
        title: What was asked, above the drawing.
        remark: A second line, such as when and where.
    """
    shown = _shown(records)
    left = _MARGIN + _LABEL_WIDTH
    width = _WIDTH - 2 * _MARGIN - _LABEL_WIDTH - _NUMBERS_WIDTH
    scale = _Scale(*_times(records), left, width, "")
    top = _AXIS_HEIGHT + (_TITLE_HEIGHT if title or remark else 0)
    bottom = top + _LINE_HEIGHT * (len(shown) + (len(shown) < len(records)))
    count = f"{plural(len(records), 'request')} over time"
    size = f'viewBox="0 0 {_WIDTH} {bottom + _LEGEND_HEIGHT}"'
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg class="waterfall" xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{count}">',
        f"<title>{escaped(f'{title}: {count}' if title else count)}</title>",
        f"<style>\n{colours_of(':root')}{_BAR_STYLE}{_DRAWING_STYLE}</style>",
    ]
    if title or remark:
        parts.append(f'<text class="title" x="{_MARGIN}" y="22">{escaped(_shortened(title, _TITLE_CHARACTERS))}</text>')
        parts.append(
            f'<text class="faint" x="{_MARGIN}" y="40">{escaped(_shortened(remark, _TITLE_CHARACTERS))}</text>'
        )
    parts += _idle(records, scale, f'y="{top - 6}" height="{bottom - top + 6}"')
    for x, time in _ticks(scale):
        parts.append(f'<line class="grid" x1="{x}" y1="{top - 6}" x2="{x}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{top - 12}">{time}</text>')
    for number, record in enumerate(shown):
        parts += _line(record, top + number * _LINE_HEIGHT, scale)
    if len(shown) < len(records):
        text = f"... and {plural(len(records) - len(shown), 'more request')}"
        parts.append(f'<text class="faint" x="{_MARGIN}" y="{bottom - 5}">{text}</text>')
    parts += [*_legend(records, bottom + _LEGEND_HEIGHT - 9), "</svg>", ""]
    return "\n".join(parts)


def busy_s(records: Sequence[RequestRecord]) -> float:
    """Return how long some request was under way, or waited for a slot."""
    begin_s, end_s = _times(records)
    return end_s - begin_s - sum(end - begin for begin, end in _idle_times(records)) if records else 0.0


def _idle_times(records: Sequence[RequestRecord]) -> list[tuple[float, float]]:
    """Return the times between the first and the last request in which none was under way or waited for a slot."""
    idle: list[tuple[float, float]] = []
    busy_until_s = -math.inf
    for record in sorted(records, key=lambda record: record.started_s - record.waited_s):
        begin_s = record.started_s - record.waited_s
        if begin_s > busy_until_s > -math.inf:
            idle.append((busy_until_s, begin_s))
        busy_until_s = max(busy_until_s, record.finished_s)
    return idle


def _shown(records: Sequence[RequestRecord]) -> Sequence[RequestRecord]:
    return records if len(records) <= _MOST_LINES else records[: _MOST_LINES - 1]


def _present(records: Sequence[RequestRecord]) -> list[str]:
    present = {kind_of(record) for record in records}
    return [kind for kind in KINDS if kind in present]


def _times(records: Sequence[RequestRecord]) -> tuple[float, float]:
    begin_s = min((record.started_s - record.waited_s for record in records), default=0.0)
    end_s = max((record.finished_s for record in records), default=0.0)
    return begin_s, end_s if end_s > begin_s else begin_s + 1e-3


def _ticks(scale: _Scale) -> Iterator[tuple[float, str]]:
    """Return round times, counted from the first request, and where they are."""
    length_s = scale.end_s - scale.begin_s
    step_s = _round_step(length_s / _TICKS)
    for number in range(int(length_s / step_s) + 1):
        yield scale.x(scale.begin_s + number * step_s), _time(number * step_s, step_s)


def _round_step(least_s: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, 50 ... that is not smaller."""
    power = 10.0 ** math.floor(math.log10(least_s))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least_s * (1 - 1e-9))


def _time(time_s: float, step_s: float) -> str:
    if step_s >= 1:
        return f"{time_s:,.0f} s"
    decimals = max(0, -math.floor(math.log10(step_s * 1000) + 1e-9))
    return f"{time_s * 1000:,.{decimals}f} ms"


def _idle(records: Sequence[RequestRecord], scale: _Scale, height: str) -> Iterator[str]:
    """Shade the times in which no request is under way."""
    least_s = (scale.end_s - scale.begin_s) * _LEAST_IDLE_SHARE
    for begin_s, end_s in _idle_times(records):
        if end_s - begin_s >= least_s:
            x, width = scale.x(begin_s), round(scale.x(end_s) - scale.x(begin_s), 2)
            title = f"no request for {human_milliseconds(end_s - begin_s)}: the client works"
            yield f'<rect class="idle" x="{x}{scale.unit}" width="{width}{scale.unit}" {height}><title>{title}</title></rect>'


def _label(record: RequestRecord, most_characters: int | None = None) -> str:
    remarks = "".join(f" [{remark}]" for remark in remarks_on(record))
    purpose = purpose_of(record)
    return (purpose if most_characters is None else _shortened(purpose, most_characters - len(remarks))) + remarks


def _numbers(record: RequestRecord) -> tuple[str, str]:
    took = human_milliseconds(record.finished_s - record.started_s)
    return took, human_bytes(record.fetched_bytes) if record.operation == "get" else ""


def _line(record: RequestRecord, top: int, scale: _Scale) -> Iterator[str]:
    text_y = top + 13
    yield f"<g><title>{escaped(_details(record))}</title>"
    yield f'<rect fill="transparent" x="0" y="{top}" width="{_WIDTH}" height="{_LINE_HEIGHT}"/>'
    yield f'<text x="{_MARGIN}" y="{text_y}">{escaped(_label(record, _LABEL_CHARACTERS))}</text>'
    yield from _bar(record, top + (_LINE_HEIGHT - _BAR_HEIGHT) / 2, scale)
    took, size = _numbers(record)
    right = _WIDTH - _MARGIN
    yield f'<text class="numbers faint" x="{right - 68}" y="{text_y}">{took}</text>'
    yield f'<text class="numbers faint" x="{right}" y="{text_y}">{size}</text></g>'


def _bar(record: RequestRecord, y: float, scale: _Scale) -> Iterator[str]:
    """Draw the time until the first byte paler than that of the transfer; the whole bar alike where it is not known."""
    kind, unit = kind_of(record), scale.unit
    lost = " lost" if record.status == "cancelled" else ""
    begin, end = scale.x(record.started_s), scale.x(record.finished_s)
    if record.waited_s > 0:
        waits, middle = scale.x(record.started_s - record.waited_s), y + _BAR_HEIGHT / 2
        yield f'<line class="waiting" x1="{waits}{unit}" y1="{middle}" x2="{begin}{unit}" y2="{middle}"/>'
    first_byte = begin if record.first_byte_s is None else min(scale.x(record.first_byte_s), end)
    end = max(end, begin + scale.least_bar)
    for part, left, right in ((" latency", begin, first_byte), ("", first_byte, end)):
        if right > left:
            width = round(right - left, 2)
            yield (
                f'<rect class="{kind}{part}{lost}" x="{left}{unit}" y="{y}" width="{width}{unit}" height="{_BAR_HEIGHT}"'
                ' rx="1.5"/>'
            )


def _legend(records: Sequence[RequestRecord], y: int) -> Iterator[str]:
    x = float(_MARGIN)
    for kind in _present(records):
        yield f'<rect class="{kind}" x="{x}" y="{y - 9}" width="10" height="10" rx="1.5"/>'
        yield f'<text class="faint" x="{x + 15}" y="{y}">{kind}</text>'
        x += 34 + 6.4 * len(kind)
    remark = "pale: until the first byte; dotted: waiting for a slot; shaded: no request under way, the client works"
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
