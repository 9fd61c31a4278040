"""Text of others in our documents: names of tables, columns and objects may hold anything."""

from __future__ import annotations

import html

from coldparquet.visible_text import UNKNOWN, VISIBLE

_NOT_IN_XML = dict.fromkeys((*range(0xD800, 0xE000), 0xFFFE, 0xFFFF), UNKNOWN)
"""Half characters, which UTF-8 cannot write, and two codes that no document may contain."""

_SHOWN = VISIBLE | _NOT_IN_XML
_SHOWN_IN_LINES = _SHOWN | {ord("\n"): ord("\n")}


def escaped(text: str) -> str:
    """Return text that HTML and SVG show as it stands, in elements and in attributes."""
    return html.escape(text.translate(_SHOWN))


def escaped_lines(text: str) -> str:
    """Return text of several lines that HTML shows as it stands."""
    return html.escape(text.translate(_SHOWN_IN_LINES))
