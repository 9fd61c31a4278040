"""From what ``load`` was given to the URLs of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldparquet.options import ReadOptions
from coldparquet.storage.opened_store import opened_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.options import StoreOptions

_PATTERN_CHARACTERS = frozenset("*?[")
_WEB_SCHEMES = ("http", "https")


async def expand_urls(
    urls: Sequence[str], *, storage_options: Mapping[str, Any], store_options: StoreOptions
) -> tuple[str, ...]:
    """Replace patterns by the tables that they match, in alphabetical order; other URLs stay as they are.

    Requests: 1 listing for each directory that a pattern leads into.

    Args:
        urls: As they were given; ``*``, ``?`` and ``[ab]`` stand for characters of one directory's name.
        storage_options: Settings of the store.
        store_options: How patient to be.

    Raises:
        NotFoundError: A pattern matches no table.
    """
    found: list[str] = []
    for url in urls:
        found += await _matching(url, storage_options, store_options) if is_pattern(url) else [url]
    return tuple({url.rstrip("/"): url for url in found}.values())  # each once, or its rows would come twice


def is_pattern(url: str) -> bool:
    """Tell whether a URL stands for the tables that it matches."""
    scheme, _, path = url.rpartition("://")
    # A question mark on the web begins a query string, and on S3 ``?versionId=`` the version of one object.
    return scheme not in _WEB_SCHEMES and "?versionId=" not in path and bool(_PATTERN_CHARACTERS & set(path))


async def _matching(url: str, storage_options: Mapping[str, Any], store_options: StoreOptions) -> list[str]:
    from coldparquet.pipelines.lakes import Lake, find_tables  # noqa: PLC0415 - only patterns need the pipelines

    lake = Lake.parse(url)
    async with opened_store(
        lake.url,
        storage_options=storage_options,
        store_options=store_options,
        store=None,
        max_concurrency=ReadOptions().max_concurrency,
    ) as opened:
        tables = await find_tables(opened.stack.store, opened.path, lake.pattern)
    return [f"{lake.url.rstrip('/')}/{table}" if table else lake.url for table in tables]
