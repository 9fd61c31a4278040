"""The tables of scans: found by patterns, opened, kept open in the process that plans, and brought up to date."""

from __future__ import annotations

import atexit
import json
import os
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from coldparquet.concurrency import background, gather_or_cancel
from coldparquet.opening import open_table
from coldparquet.options import ReadOptions
from coldparquet.storage.open import opened_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coldparquet.options import StoreOptions
    from coldparquet.spark.options import SourceOptions
    from coldparquet.table import Table


_PATTERN_CHARACTERS = frozenset("*?[")
_WEB_SCHEMES = ("http", "https")


async def expand_urls(
    urls: Sequence[str], *, storage_options: Mapping[str, Any], store_options: StoreOptions
) -> tuple[str, ...]:
    """Replace patterns by the matching tables, in alphabetical order; other URLs stay unchanged.

    Requests: 1 listing for each directory that a pattern matches.
    """
    found: list[str] = []
    for url in urls:
        found += await matching_tables(url, storage_options, store_options) if is_pattern(url) else [url]
    return tuple({url.rstrip("/"): url for url in found}.values())  # each once, otherwise its rows would be read twice


def is_pattern(url: str) -> bool:
    """Tell whether a URL is a pattern of tables."""
    scheme, _, path = url.rpartition("://")
    # A question mark on the web begins a query string, and on S3 ``?versionId=`` the version of one object.
    return scheme not in _WEB_SCHEMES and "?versionId=" not in path and bool(_PATTERN_CHARACTERS & set(path))


async def matching_tables(url: str, storage_options: Mapping[str, Any], store_options: StoreOptions) -> list[str]:
    """Return the URLs of the tables that a pattern matches, or that are below a directory."""
    from coldparquet.pipelines.lakes import find_tables  # noqa: PLC0415 - as the next
    from coldparquet.pipelines.model import Lake  # noqa: PLC0415 - only patterns need the pipelines

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


_MOST_OPEN_TABLES = 8

_open_tables: OrderedDict[tuple[str, str, str, str, int], Table] = OrderedDict()
"""Open tables of earlier scans in this process, the last used at the end: their connections and credentials are
reused."""


_LOAD_SERVES_S = 1.0
"""A query that follows its load at once, as every statement about a table of the catalog does, opens no table twice."""

_loads: OrderedDict[str, float] = OrderedDict()
"""When tables were loaded in this process, by the names that coldparquet's jar passes on to the scans of a load."""


def remember_load() -> str:
    """Return a name for a load, whose tables have just been opened; its first scan opens them no more."""
    while len(_loads) >= _MOST_OPEN_TABLES:
        _loads.popitem(last=False)
    name = uuid4().hex
    _loads[name] = time.monotonic()
    return name


def _follows_its_load(options: SourceOptions) -> bool:
    """Tell whether this is the first scan of a load, within a second, in the process of the load."""
    loaded = None if options.pushed is None else _loads.pop(options.pushed.load or "", None)
    return loaded is not None and time.monotonic() - loaded <= _LOAD_SERVES_S


async def opened_tables(options: SourceOptions) -> tuple[Table, ...]:
    """Open the tables, each in its newest state, or in that of a load just before.

    Requests: those of opening or refreshing them, none after a load, and the listings of patterns.
    """
    is_loaded = _follows_its_load(options)
    storage_options = options.credentials.storage_options()
    urls = await expand_urls(options.urls, storage_options=storage_options, store_options=options.store_options)
    known_by = (
        json.dumps(storage_options, sort_keys=True, default=repr),
        repr(options.store_options),
        repr(options.read_options),
        os.getpid(),
    )

    async def newest(url: str) -> Table:
        table = _open_tables.pop((url, *known_by), None)
        if table is None:
            table = await open_table(
                url,
                storage_options=storage_options,
                options=options.read_options,
                store_options=options.store_options,
            )
        elif not is_loaded:
            await _refresh_or_close(table)
        _open_tables[(url, *known_by)] = table
        return table

    tables = tuple(await gather_or_cancel([newest(url) for url in urls]))
    while len(_open_tables) > max(_MOST_OPEN_TABLES, len(tables)):
        _, oldest = _open_tables.popitem(last=False)
        await oldest.aclose()
    return tables


async def _refresh_or_close(table: Table) -> None:
    """Refresh a table that no other caller holds; close it if that fails, or is cancelled."""
    try:
        await table.refresh()
    except BaseException:
        await table.aclose()
        raise


@atexit.register
def close_tables() -> None:
    """Close the tables that this process keeps open, as at its end; the next scan opens its tables again."""
    mine = [key for key in _open_tables if key[-1] == os.getpid()]
    if mine:
        background.run(_close([_open_tables.pop(key) for key in mine]))


async def _close(tables: Sequence[Table]) -> None:
    for table in tables:
        await table.aclose()
