"""Writes numbers and names in text for people; makes external names safe for terminals."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_NAMES_LISTED = 12
"""Names that a text lists before it only counts the others."""

_NAMES_IN_REASON = 4
"""Column names, or spans of row groups, that a request's reason names before it says ``+7 more``."""

_LONGEST_TEXT = 300
"""Longest predicate or reason, in characters: an IN list may hold thousands of values."""

_LABEL_WIDTH = 12


def human_bytes(count: int) -> str:
    """Write a number of bytes in about three digits: ``512 B``, ``64 KiB``, ``1.2 MiB``."""
    if count < 1024:
        return f"{count:,} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        # 1023.96 KiB would print as 1,024 KiB, so the next unit is used.
        if value < 1023.5 or unit == "TiB":
            break
    text = f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"
    return f"{text.removesuffix('.0')} {unit}"


def human_seconds(seconds: float) -> str:
    """Write a time: ``30 ms``, ``1.5 s``."""
    return f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def human_milliseconds(seconds: float, *, decimals: int = 0) -> str:
    """Write a time in milliseconds, however long: ``30 ms``, ``1,500 ms``."""
    return f"{seconds * 1000:,.{decimals}f} ms"


def human_dollars(dollars: float) -> str:
    """Write a sum of money in cents, or in two digits if it is less: ``$1.20``, ``$0.0000064``."""
    if dollars == 0 or dollars >= 0.1:
        return f"${dollars:,.2f}"
    digits = f"{dollars:.1e}"
    decimals = 1 - int(digits[digits.index("e") + 1 :])
    return f"${dollars:.{decimals}f}"


def human_price(dollars: float | None) -> str:
    """Write a sum of money as :func:`human_dollars`, or that it is unknown."""
    return "unknown" if dollars is None else human_dollars(dollars)


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: ``1 request``, ``2,000 requests``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def few_names(names: Sequence[str]) -> str:
    """Join names with commas; of many, the first ones and the number of the others."""
    more = f" and {len(names) - _NAMES_LISTED:,} more" if len(names) > _NAMES_LISTED else ""
    return ", ".join(names[:_NAMES_LISTED]) + more


def row_group_spans(numbers: list[int]) -> str:
    """Write ascending row group numbers as spans: ``row groups 3-5, 9``."""
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    noun = "row group" if len(numbers) == 1 else "row groups"
    return f"{noun} {few_of([str(first) if first == last else f'{first}-{last}' for first, last in spans])}"


def few_of(names: Sequence[str]) -> str:
    """Join the first names with commas, and count the others: ``ts, price, amount, id +7 more``."""
    shown = ", ".join(names[:_NAMES_IN_REASON])
    return shown if len(names) <= _NAMES_IN_REASON else f"{shown} +{len(names) - _NAMES_IN_REASON} more"


def cut_short(text: str) -> str:
    """Cut the end of a very long text and say how long it is."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ... ({len(text):,} characters)"


def labelled(label: str, lines: list[str]) -> list[str]:
    """Put a label before the first line and indent the others to the same column."""
    return [f"{label if number == 0 else '':{_LABEL_WIDTH}}  {line}" for number, line in enumerate(lines)]


def shortened(text: str, width: int) -> str:
    """Cut out the middle of a text that is longer than ``width``: the ends of names tell most."""
    if len(text) <= width:
        return text
    kept = max(width - 1, 0)
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


_SHORT_NAME, _FOLDED_WIDTH = 24, 24
"""A longer name makes way for a last column that would be folded to less."""


def aligned_rows(rows: Sequence[tuple[str, ...]], *, left: set[int], width: int | None = None) -> list[list[str]]:
    """Return the lines of each row, with columns aligned: those in ``left`` to the left, all others to the right.

    If the table is wider than ``width``, what is in its last column is folded there, and a name in the first one of ``left``
    that leaves no room for the others gets a line of its own.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    name, last = min(left), len(widths) - 1
    if width is None or (room := width - sum(widths) - 2 * last) >= 0 or last not in left:
        return [[_aligned_row(row, widths, left)] for row in rows]
    from textwrap import wrap  # noqa: PLC0415 - only a narrow terminal needs it

    longest_word = max(len(word) for row in rows for word in row[last].split() or [""])
    least = longest_word if widths[name] <= _SHORT_NAME else min(widths[last], _FOLDED_WIDTH)
    if widths[last] + room < least:
        widths[name] = len(rows[0][name])
    widths[last] = max(width - sum(widths[:last]) - 2 * last, longest_word)
    table = []
    for row in rows:
        parts = wrap(row[last], widths[last]) or [""]
        cells, lines = (*row[:last], parts[0]), list[str]()
        if len(row[name]) > widths[name]:
            before = "".join(f"{cell:>{size}}  " for cell, size in zip(row[:name], widths, strict=False))
            lines.append(before + shortened(row[name], width - len(before)))
            cells = (*[""] * (name + 1), *cells[name + 1 :])
        lines.append(_aligned_row(cells, widths, left))
        lines += [" " * (sum(widths[:last]) + 2 * last) + part for part in parts[1:]]
        table.append(lines)
    return table


def _aligned_row(cells: Sequence[str], widths: Sequence[int], left: set[int]) -> str:
    return "  ".join(
        f"{cell:<{width}}" if column in left else f"{cell:>{width}}"
        for column, (cell, width) in enumerate(zip(cells, widths, strict=False))
    ).rstrip()


UNKNOWN = 0xFFFD

_CONTROL_PICTURES = (
    {code: 0x2400 + code for code in range(32)} | {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), UNKNOWN)
)
"""Unicode has a picture for each control character of ASCII, and none for later ones."""

_BIDI_CONTROLS = {
    code: f"<U+{code:04X}>" for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""They reverse the text after them, so that a name reads as another one. Unicode has no pictures for them."""

VISIBLE = _CONTROL_PICTURES | _BIDI_CONTROLS
"""The replacement of each character that controls a terminal, for ``str.translate``."""
_VISIBLE_IN_LINES = VISIBLE | {ord("\n"): ord("\n")}


def visible(text: str) -> str:
    """Replace the characters with which data could control a terminal, line breaks included, by their pictures."""
    return text if text.isprintable() else text.translate(VISIBLE)


def visible_lines(text: str) -> str:
    """Apply :func:`visible` to text of several lines."""
    return text if text.isprintable() else text.translate(_VISIBLE_IN_LINES)


def visible_stream(stream: TextIO) -> TextIO:
    """Return a standard stream; if it is a terminal, only visible text and line breaks are written to it."""
    return cast("TextIO", _VisibleStream(stream)) if stream.isatty() else stream


class _VisibleStream:
    """A terminal. Consoles of rich bypass it, as their colours are control characters: they must filter themselves."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # where rich finds the wrapped stream
        self.buffer = _VisibleBytes(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        """Write text."""
        return self.rich_proxied_file.write(visible_lines(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, one after the other."""
        for line in lines:
            self.write(line)


class _VisibleBytes:
    """The byte stream of a terminal, in UTF-8."""

    def __init__(self, stream: _VisibleStream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: bytes) -> int:
        self._stream.write(self._decoder.decode(data))
        return len(data)
