"""Where a table is written: its store, with and without the wrappers that make requests patient, and its path in it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldparquet.options import StoreOptions, checked_store_options
from coldparquet.storage.opened_store import opened_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from coldparquet.storage.base import ObjectStore

_REQUESTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """A table directory in a store."""

    path: str
    """Without a trailing slash."""
    store: ObjectStore
    """Sends requests again where that may help."""
    bare_store: ObjectStore
    """For functions that put the wrappers on it themselves."""
    store_options: StoreOptions


@asynccontextmanager
async def open_place(
    url: str,
    *,
    storage_options: Mapping[str, Any] | None,
    store_options: StoreOptions | None,
    store: ObjectStore | None,
) -> AsyncIterator[TablePlace]:
    """Open the store of a table directory, and close it again unless it is the caller's. No request."""
    async with opened_store(
        url,
        storage_options=storage_options,
        store_options=store_options,
        store=store,
        max_concurrency=_REQUESTS_AT_ONCE,
    ) as opened:
        yield TablePlace(
            path=opened.path.rstrip("/"),
            store=opened.stack.store,
            bare_store=opened.bare,
            store_options=checked_store_options(store_options),
        )
