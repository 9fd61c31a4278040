"""The links of a web server's index page, as a listing."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING
from urllib.parse import urldefrag, urljoin, urlsplit

from coldparquet.storage.objects import Listing, ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_PAGE_BYTES = 16 * 1024 * 1024
"""More than a page with 50,000 links has."""

_LINK = re.compile(r"""<a\s(?:[^<>]*?\s)?href\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)'|([^\s"'<>]+))""", re.IGNORECASE)
_HTML = frozenset({"text/html", "application/xhtml+xml"})


def is_page(headers: Mapping[str, str]) -> bool:
    """Tell whether an answer is a page that may hold links."""
    return headers.get("Content-Type", "text/html").partition(";")[0].strip().lower() in _HTML


def parse_index_page(body: bytes, *, path: str) -> Listing:
    """Return what the links of a page say lies directly below it.

    Args:
        body: The page.
        path: URL of the directory, without a slash at its end and without query string. Links to other places, such as the
            parent, are left out, and so are query strings of links, such as those that sort the page.
    """
    directories: set[str] = set()
    objects: set[str] = set()
    for link in _links(body.decode(errors="replace")):
        name = _name_below(path, link)
        if name is not None:
            (directories if name.endswith("/") else objects).add(f"{path}/{name.rstrip('/')}")
    return Listing(
        directories=tuple(sorted(directories)),
        objects=tuple(
            ObjectInfo(path=name, size_bytes=None, etag=None) for name in sorted(objects) if name not in directories
        ),
    )


def _links(page: str) -> Iterator[str]:
    """Yield the links of a page, but for those in comments. In a time that grows with its length, however it is made."""
    first, *others = page.split("<!--")
    for part in (first, *(other.partition("-->")[2] for other in others)):
        for match in _LINK.finditer(part):
            yield html.unescape(next(filter(None, match.groups()), ""))


def _name_below(path: str, link: str) -> str | None:
    """Return the name that a link adds to a directory, with a slash if it is a directory itself; None for other places."""
    try:
        target = urlsplit(urldefrag(urljoin(f"{path}/", link)).url)
        base = urlsplit(path)
    except ValueError:  # such as a bracket in the host
        return None
    # Pages of a server that speaks both may name either.
    is_here = target.netloc == base.netloc and {target.scheme, base.scheme} <= {"http", "https"}
    name = target.path.removeprefix(f"{base.path}/")
    if not is_here or name == target.path or name.strip("/") == "" or "/" in name[:-1]:
        return None
    return name
