"""Text of others in our documents: names of tables, columns and objects may hold anything."""

from __future__ import annotations

import html

_UNKNOWN = 0xFFFD

CONTROL_PICTURES = (
    {code: 0x2400 + code for code in range(32)} | {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), _UNKNOWN)
)
"""Unicode has a picture for each control character of ASCII, and none for those behind it."""

_NOT_IN_XML = dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), _UNKNOWN)
"""Half characters, which UTF-8 cannot write, and two codes that no document may contain."""

_BIDI_CONTROLS = {
    code: f"<U+{code:04X}>" for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""They turn the text behind them around, so that a name reads as another one. Unicode has no pictures for them."""

_SHOWN = CONTROL_PICTURES | _NOT_IN_XML | _BIDI_CONTROLS
_SHOWN_IN_LINES = _SHOWN | {ord("\n"): ord("\n")}


def escaped(text: str) -> str:
    """Return text that HTML and SVG show as it stands, in elements and in attributes."""
    return html.escape(text.translate(_SHOWN))


def escaped_lines(text: str) -> str:
    """Return text of several lines that HTML shows as it stands."""
    return html.escape(text.translate(_SHOWN_IN_LINES))
