"""How numbers, names and tables are written in text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES_LISTED = 12
"""Names that a text lists before it says how many more there are."""

_NAMES_IN_REASON = 4
"""Column names, or spans of row groups, that a request's reason spells out before it says ``+7 more``."""

_LONGEST_TEXT = 300
"""Longest predicate or reason, in characters: an IN list may hold thousands of values."""

_LABEL_WIDTH = 12


def human_bytes(count: int) -> str:
    """Write a number of bytes in three digits or so: ``512 B``, ``64 KiB``, ``1.2 MiB``."""
    if count < 1024:
        return f"{count:,} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        # 1023.96 KiB would print as 1,024 KiB: the next unit says it better.
        if value < 1023.5 or unit == "TiB":
            break
    text = f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"
    return f"{text.removesuffix('.0')} {unit}"


def human_seconds(seconds: float) -> str:
    """Write a time: ``30 ms``, ``1.5 s``."""
    return f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def human_dollars(dollars: float) -> str:
    """Write a sum of money in cents, or in two digits where it is less: ``$1.20``, ``$0.0000064``."""
    if dollars == 0 or dollars >= 0.1:
        return f"${dollars:,.2f}"
    digits = f"{dollars:.1e}"
    decimals = 1 - int(digits[digits.index("e") + 1 :])
    return f"${dollars:.{decimals}f}"


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: ``1 request``, ``2,000 requests``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def few_names(names: Sequence[str]) -> str:
    """Write names with commas between them; of many the first ones and how many more there are."""
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
    """Write the first names with commas between them, and of many how many more there are: ``ts, price, amount, id +7 more``."""
    shown = ", ".join(names[:_NAMES_IN_REASON])
    return shown if len(names) <= _NAMES_IN_REASON else f"{shown} +{len(names) - _NAMES_IN_REASON} more"


def cut_short(text: str) -> str:
    """Leave out the end of a very long text and say how long it is."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]} ... ({len(text):,} characters)"


def labelled(label: str, lines: list[str]) -> list[str]:
    """Put a label before the first line and indent the others to the same column."""
    return [f"{label if number == 0 else '':{_LABEL_WIDTH}}  {line}" for number, line in enumerate(lines)]


def aligned(rows: Sequence[tuple[str, ...]], *, left: set[int]) -> list[str]:
    """Align a table's columns: to the left those named, to the right all others."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if column in left else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
