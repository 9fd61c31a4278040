"""A store that sends at most so many requests at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coldparquet.storage.base import FetchedRange, Listing, ObjectStore, RangeRequest


class LimitedStore:
    """Hold back requests while ``max_concurrency`` of them are in flight; they are served in order of arrival.

    Args:
        store: Where the requests go. Closing this store closes it.
        max_concurrency: Requests in flight at once, at least 1.
    """

    def __init__(self, store: ObjectStore, *, max_concurrency: int) -> None:
        self._store = store
        self._slots = asyncio.Semaphore(max_concurrency)

    @property
    def label(self) -> str:
        """Label of the store within."""
        return self._store.label

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Wait for a free slot, then fetch."""
        async with self._slots:
            return await self._store.get(request)

    async def list(self, path: str) -> Listing:
        """Wait for a free slot, then list."""
        async with self._slots:
            return await self._store.list(path)

    async def put(self, path: str, data: bytes, *, overwrite: bool) -> None:
        """Wait for a free slot, then write."""
        async with self._slots:
            await self._store.put(path, data, overwrite=overwrite)

    async def aclose(self) -> None:
        """Close the store within."""
        await self._store.aclose()
