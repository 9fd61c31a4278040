"""The kinds of requests in reports: names, colours for light and dark screens, and text that is safe in a document.

Those of the kinds are told apart by people who do not see red and green (after Okabe and Ito), and have a contrast of at
least 3:1 to the paper.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from coldparquet.text import UNKNOWN, VISIBLE

if TYPE_CHECKING:
    from coldparquet.storage.log import RequestRecord


_LIGHT = """\
color-scheme: light;
  --paper: #ffffff; --card: #f6f8fa; --line: #d0d7de; --ink: #1f2328; --faint: #59636e; --idle: #eaeef2;
  --listing: #9a6700; --metadata: #0969da; --data: #00805e; --writing: #a0457a; --failed: #c93c00;
"""
_DARK = """\
color-scheme: dark;
  --paper: #0d1117; --card: #161b22; --line: #30363d; --ink: #e6edf3; --faint: #9198a1; --idle: #21262d;
  --listing: #e3b341; --metadata: #58a6ff; --data: #3fb98c; --writing: #d98cb7; --failed: #ff8552;
"""
_LIGHT_NOTEBOOKS = ('[data-jp-theme-light="true"]', ".vscode-light", 'html[theme="light"]')
_DARK_NOTEBOOKS = ('[data-jp-theme-light="false"]', ".vscode-dark", 'html[theme="dark"]')
"""How JupyterLab, Visual Studio Code and Colab say which theme they show, whatever the screen prefers."""


def colours_of(selector: str) -> str:
    """Return the style that gives an element its colours, light or dark as the screen prefers."""
    return f"{selector} {{ {_LIGHT}}}\n@media (prefers-color-scheme: dark) {{ {selector} {{ {_DARK}}} }}\n"


def colours_in_notebooks(selector: str) -> str:
    """Return the style that gives an element its colours, light or dark as the notebook around it is."""

    def under(themes: tuple[str, ...]) -> str:
        return ", ".join(f"{theme} {selector}" for theme in themes)

    return f"{colours_of(selector)}{under(_LIGHT_NOTEBOOKS)} {{ {_LIGHT}}}\n{under(_DARK_NOTEBOOKS)} {{ {_DARK}}}\n"


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


RequestKind: TypeAlias = Literal["listing", "metadata", "data", "writing", "failed"]

KINDS: tuple[RequestKind, ...] = get_args(RequestKind)
"""In the order in which a read usually goes through them."""

_NO_FAILURES = frozenset({"ok", "cancelled", "NotFound"})
"""A sidecar that does not exist is no failure, and neither is a hedged request that the other one overtook."""


def kind_of(record: RequestRecord) -> RequestKind:
    """Return the kind of a request."""
    if record.status not in _NO_FAILURES:
        return "failed"
    if record.operation == "list":
        return "listing"
    if record.operation in ("get", "info"):
        return record.role
    return "writing"


def purpose_of(record: RequestRecord) -> str:
    """Say what a request was for; the directory of its object tells the requests of one table apart."""
    if record.operation == "list":
        return record.reason
    directories = record.path.rsplit("/", 2)
    return f"{directories[-2]}  {record.reason}" if len(directories) > 1 else record.reason


def remarks_on(record: RequestRecord) -> tuple[str, ...]:
    """Return what is unusual about a request: that it repeats another one, or how it ended."""
    remarks = []
    if record.attempt > 1:
        remarks.append(f"attempt {record.attempt}")
    if record.is_hedge:
        remarks.append("hedge")
    if record.status == "NotFound":
        remarks.append("not there")
    elif record.status != "ok":
        remarks.append(record.status)
    return tuple(remarks)
