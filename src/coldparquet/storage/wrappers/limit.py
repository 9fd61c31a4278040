"""A store that sends at most so many requests, for so many bytes, at once, and fewer while the store asks for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.storage.wrappers.in_flight import InFlightLimit, Slot
from coldparquet.storage.wrappers.wrapper import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.prices import RestoreTier
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import Listing, ObjectInfo, Upload, UploadedPart
    from coldparquet.storage.requests import FetchedRange, RangeRequest

MAX_BYTES_IN_FLIGHT = 256 * 1024 * 1024
"""More than the 75 MB that fill a line of 20 Gbit/s with 30 ms to the first byte."""


class LimitedStore(StoreWrapper):
    """Hold back requests while too many are in flight, or too many bytes; they are served in order of arrival.

    How many are too many follows the store, see :class:`~coldparquet.storage.wrappers.in_flight.InFlightLimit`.

    Once closed it sends nothing any more, neither new requests nor those that it held back: the store within might
    open new connections for them, which nobody would close.

    Args:
        store: Where the requests go. Closing this store closes it.
        max_concurrency: Requests in flight at once, at least 1.
        max_bytes: Bytes that requests in flight may bring or send. One for more than that goes alone.
    """

    def __init__(self, store: ObjectStore, *, max_concurrency: int, max_bytes: int = MAX_BYTES_IN_FLIGHT) -> None:
        super().__init__(store)
        self.in_flight = InFlightLimit(max_requests=max_concurrency, max_bytes=max_bytes)
        """What is in flight now, and how much may be."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Wait for a free slot, then fetch."""
        async with Slot(self.in_flight, request.byte_range.length_bytes):
            return await self._store.get(request)

    async def info(self, path: str) -> ObjectInfo:
        """Wait for a free slot, then ask."""
        async with Slot(self.in_flight):
            return await super().info(path)

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        """Wait for a free slot, then list."""
        async with Slot(self.in_flight):
            return await super().list(path, first_page_only=first_page_only)

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        """Wait for a free slot, then list."""
        async with Slot(self.in_flight):
            return await super().list_between(path, start=start, stop=stop)

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Wait for a free slot, then write."""
        async with Slot(self.in_flight, len(data)):
            return await super().put(path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class)

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Wait for a free slot, then begin."""
        async with Slot(self.in_flight):
            return await super().start_upload(path, storage_class=storage_class)

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        """Wait for a free slot, then send."""
        async with Slot(self.in_flight, len(data)):
            return await super().upload_part(upload, number, start=start, data=data)

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        """Wait for a free slot, then finish."""
        async with Slot(self.in_flight):
            return await super().finish_upload(upload, parts, overwrite=overwrite)

    async def abort_upload(self, upload: Upload) -> None:
        """Wait for a free slot, then abort."""
        async with Slot(self.in_flight):
            await super().abort_upload(upload)

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:
        """Wait for a free slot, then remove."""
        async with Slot(self.in_flight):
            return await super().remove_unfinished(path, started_before_s=started_before_s)

    async def delete(self, paths: Sequence[str]) -> None:
        """Wait for a free slot, then remove."""
        async with Slot(self.in_flight):
            await super().delete(paths)

    async def restore(self, path: str, *, days: int, tier: RestoreTier) -> None:
        """Wait for a free slot, then ask."""
        async with Slot(self.in_flight):
            await super().restore(path, days=days, tier=tier)

    async def change_class(self, path: str, *, storage_class: str, if_match: str) -> str | None:
        """Wait for a free slot, then move."""
        async with Slot(self.in_flight):
            return await super().change_class(path, storage_class=storage_class, if_match=if_match)

    async def aclose(self) -> None:
        """Close the store within."""
        self.in_flight.close()
        await super().aclose()
