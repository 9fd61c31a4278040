"""A store for as long as one call needs it: opened for its URL and closed again, or the caller's own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldparquet.options import checked_store_options
from coldparquet.storage.open_store import open_store
from coldparquet.storage.url_paths import errors_name_urls
from coldparquet.storage.wrappers.store_stack import StoreStack, stack_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from coldparquet.options import StoreOptions
    from coldparquet.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedStore:
    """A store, and the place in it that was asked for."""

    path: str
    bare: ObjectStore
    """The store itself, for functions that put the wrappers on it themselves."""
    stack: StoreStack
    """The same with everything that requests pass through on their way to it."""


@asynccontextmanager
async def opened_store(
    url: str,
    *,
    storage_options: Mapping[str, Any] | None,
    store_options: StoreOptions | None,
    store: ObjectStore | None,
    max_concurrency: int,
) -> AsyncGenerator[OpenedStore, None]:
    """Open a store with the wrappers that every reader and writer needs, and close it afterwards. No request.

    Errors that leave the block name objects by URL; see :func:`~coldparquet.storage.url_paths.errors_name_urls`.

    Args:
        url: A place in any store, or a path in ``store``.
        storage_options: Credentials, endpoint and so on, as fsspec and s3fs take them.
        store_options: How patient to be.
        store: A store of the caller's own, which stays open; None opens that of the URL.
        max_concurrency: Requests in flight at once, at most.

    Raises:
        InvalidInputError: ``store_options`` are of another type; and what
            :func:`~coldparquet.storage.open_store.open_store` raises.
    """
    store_options = checked_store_options(store_options)
    if store is None:
        bare, path = open_store(url, storage_options=storage_options, store_options=store_options)
    else:
        bare, path = store, url
    try:
        stack = stack_store(bare, store_options=store_options, max_concurrency=max_concurrency)
        with errors_name_urls(url, path):
            yield OpenedStore(path=path, bare=bare, stack=stack)
    finally:
        if store is None:
            await bare.aclose()
