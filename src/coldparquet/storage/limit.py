"""A store that sends at most so many requests at once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError
from coldparquet.storage.wrapper import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from coldparquet.storage.base import (
        FetchedRange,
        Listing,
        ObjectInfo,
        ObjectStore,
        RangeRequest,
        Upload,
        UploadedPart,
    )


class LimitedStore(StoreWrapper):
    """Hold back requests while ``max_concurrency`` of them are in flight; they are served in order of arrival.

    Once closed it sends nothing any more, neither new requests nor those that it held back: the store within might
    open new connections for them, which nobody would close.

    Args:
        store: Where the requests go. Closing this store closes it.
        max_concurrency: Requests in flight at once, at least 1.
    """

    def __init__(self, store: ObjectStore, *, max_concurrency: int) -> None:
        super().__init__(store)
        self._slots = asyncio.Semaphore(max_concurrency)
        self._is_closed = False

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Wait for a free slot, then fetch."""
        async with self._slot():
            return await super().get(request)

    async def info(self, path: str) -> ObjectInfo:
        """Wait for a free slot, then ask."""
        async with self._slot():
            return await super().info(path)

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        """Wait for a free slot, then list."""
        async with self._slot():
            return await super().list(path, first_page_only=first_page_only)

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Wait for a free slot, then write."""
        async with self._slot():
            return await super().put(path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class)

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Wait for a free slot, then begin."""
        async with self._slot():
            return await super().start_upload(path, storage_class=storage_class)

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        """Wait for a free slot, then send."""
        async with self._slot():
            return await super().upload_part(upload, number, start=start, data=data)

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        """Wait for a free slot, then finish."""
        async with self._slot():
            return await super().finish_upload(upload, parts, overwrite=overwrite)

    async def abort_upload(self, upload: Upload) -> None:
        """Wait for a free slot, then abort."""
        async with self._slot():
            await super().abort_upload(upload)

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:
        """Wait for a free slot, then remove."""
        async with self._slot():
            return await super().remove_unfinished(path, started_before_s=started_before_s)

    async def delete(self, paths: Sequence[str]) -> None:
        """Wait for a free slot, then remove."""
        async with self._slot():
            await super().delete(paths)

    async def aclose(self) -> None:
        """Close the store within."""
        self._is_closed = True
        await super().aclose()

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        async with self._slots:
            if self._is_closed:
                raise InvalidInputError("the store was closed; open it again to read from it", kind="StoreClosed")
            yield
