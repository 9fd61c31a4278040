"""Paths of a store, shown as the URLs that people can paste elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from coldparquet.errors import ColdParquetError
from coldparquet.storage.open_store import shown_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def paths_outside(paths: Sequence[str], table: str) -> list[str]:
    """Return those paths of a store that are neither that of a table nor of what lies in it.

    In a table at the root of a store, such as that of an archive, lies all of it.
    """
    inside = f"{table.rstrip('/')}/" if table.strip("/") else ""
    return [path for path in paths if (path != table and not path.startswith(inside)) or ".." in path.split("/")]


@contextmanager
def errors_name_urls(url: str, path: str) -> Iterator[None]:
    """Let errors that leave the block name objects by URL: inside, a path says enough; outside, it says not which store.

    Args:
        url: What was opened.
        path: What :func:`~coldparquet.storage.open_store.open_store` made of it.
    """
    try:
        yield
    except ColdParquetError as error:
        name_url(error, url, path)
        raise


def name_url(error: BaseException | None, url: str, path: str) -> None:
    """Turn the path of an error of ours into a URL: the one that was opened, or that of an object in the same bucket.

    Other absolute paths stay as they are: local files, or filesystems whose paths begin with a slash. So does what lies in
    other buckets, of which another store may know more.
    """
    if not isinstance(error, ColdParquetError) or error.path is None:
        return
    scheme, separator, rest = shown_url(url).rpartition("://")
    bucket = path.partition("/")[0]
    if not separator:
        return
    if error.path == path:
        error.path = shown_url(url)  # as it was typed
    elif bucket and rest.startswith(path) and error.path.partition("/")[0] == bucket:
        error.path = f"{scheme}://{error.path}"
