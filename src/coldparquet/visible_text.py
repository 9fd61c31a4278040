"""Text of others on terminals: names of tables, columns and objects may hold anything."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

UNKNOWN = 0xFFFD

_CONTROL_PICTURES = (
    {code: 0x2400 + code for code in range(32)} | {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), UNKNOWN)
)
"""Unicode has a picture for each control character of ASCII, and none for those behind it."""

_BIDI_CONTROLS = {
    code: f"<U+{code:04X}>" for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""They turn the text behind them around, so that a name reads as another one. Unicode has no pictures for them."""

VISIBLE = _CONTROL_PICTURES | _BIDI_CONTROLS
"""What stands for each character that steers a terminal, for ``str.translate``."""
_VISIBLE_IN_LINES = VISIBLE | {ord("\n"): ord("\n")}


def visible(text: str) -> str:
    """Replace the characters with which data could steer a terminal, line breaks included, by pictures of themselves."""
    return text if text.isprintable() else text.translate(VISIBLE)


def visible_lines(text: str) -> str:
    """Do as :func:`visible` with text of several lines."""
    return text if text.isprintable() else text.translate(_VISIBLE_IN_LINES)


def visible_stream(stream: TextIO) -> TextIO:
    """Return a standard stream to which nothing is written but visible text and line breaks if it is a terminal."""
    return cast("TextIO", _VisibleStream(stream)) if stream.isatty() else stream


class _VisibleStream:
    """A terminal. Consoles of rich, whose colours are control characters, write past it: they have to filter themselves."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # where rich looks for the stream behind another one
        self.buffer = _VisibleBytes(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        """Write text."""
        return self.rich_proxied_file.write(visible_lines(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, one behind the other."""
        for line in lines:
            self.write(line)


class _VisibleBytes:
    """Where bytes for a terminal are written, in UTF-8."""

    def __init__(self, stream: _VisibleStream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: bytes) -> int:
        self._stream.write(self._decoder.decode(data))
        return len(data)
