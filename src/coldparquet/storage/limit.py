"""A store that sends at most so many requests at once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from coldparquet.storage.base import FetchedRange, Listing, ObjectStore, RangeRequest


class LimitedStore:
    """Hold back requests while ``max_concurrency`` of them are in flight; they are served in order of arrival.

    Once closed it sends nothing any more, neither new requests nor those that it held back: the store within might
    open new connections for them, which nobody would close.

    Args:
        store: Where the requests go. Closing this store closes it.
        max_concurrency: Requests in flight at once, at least 1.
    """

    def __init__(self, store: ObjectStore, *, max_concurrency: int) -> None:
        self._store = store
        self._slots = asyncio.Semaphore(max_concurrency)
        self._is_closed = False

    @property
    def label(self) -> str:
        """Label of the store within."""
        return self._store.label

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Wait for a free slot, then fetch."""
        async with self._slot():
            return await self._store.get(request)

    async def list(self, path: str) -> Listing:
        """Wait for a free slot, then list."""
        async with self._slot():
            return await self._store.list(path)

    async def put(self, path: str, data: bytes, *, overwrite: bool) -> None:
        """Wait for a free slot, then write."""
        async with self._slot():
            await self._store.put(path, data, overwrite=overwrite)

    async def aclose(self) -> None:
        """Close the store within."""
        self._is_closed = True
        await self._store.aclose()

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        async with self._slots:
            if self._is_closed:
                raise InvalidInputError("the store was closed; open it again to read from it", kind="StoreClosed")
            yield
