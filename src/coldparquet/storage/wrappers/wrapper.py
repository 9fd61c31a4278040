"""What all wrappers have in common: they pass on what they do not care about."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.prices import RestoreTier
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import Listing, ObjectInfo, Upload, UploadedPart
    from coldparquet.storage.requests import FetchedRange, RangeRequest


class StoreWrapper:
    """A store that does whatever the store within does. Wrappers derive from it and change what is theirs.

    Args:
        store: Where the requests go. Closing this store closes it.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def label(self) -> str:
        """Label of the store within."""
        return self._store.label

    @property
    def has_storage_classes(self) -> bool:
        """Whether the store within has them."""
        return self._store.has_storage_classes

    @property
    def has_version_listings(self) -> bool:
        """Whether the store within has them."""
        return self._store.has_version_listings

    @property
    def has_spare_connections(self) -> bool:
        """Whether the store within has them."""
        return self._store.has_spare_connections

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range; see :class:`~coldparquet.storage.base.ObjectStore` for this and all below."""
        return await self._store.get(request)

    async def info(self, path: str) -> ObjectInfo:
        """Tell what is known about one object."""
        return await self._store.info(path)

    async def infos_at_hand(self, paths: Sequence[str]) -> tuple[ObjectInfo | None, ...] | None:
        """Tell what is known about objects without a request."""
        return await self._store.infos_at_hand(paths)

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        """List one level."""
        return await self._store.list(path, first_page_only=first_page_only)

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        """List the objects between two paths."""
        return await self._store.list_between(path, start=start, stop=stop)

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Write one whole object."""
        return await self._store.put(path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class)

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Begin to write an object in parts."""
        return await self._store.start_upload(path, storage_class=storage_class)

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        """Send one part."""
        return await self._store.upload_part(upload, number, start=start, data=data)

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        """Make the object of its parts."""
        return await self._store.finish_upload(upload, parts, overwrite=overwrite)

    async def abort_upload(self, upload: Upload) -> None:
        """Throw an unfinished upload away."""
        await self._store.abort_upload(upload)

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:
        """Remove what killed uploads left behind."""
        return await self._store.remove_unfinished(path, started_before_s=started_before_s)

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove objects."""
        await self._store.delete(paths)

    async def restore(self, path: str, *, days: int, tier: RestoreTier) -> None:
        """Ask for a restored copy."""
        await self._store.restore(path, days=days, tier=tier)

    async def change_class(self, path: str, *, storage_class: str, if_match: str) -> str | None:
        """Move to another storage class."""
        return await self._store.change_class(path, storage_class=storage_class, if_match=if_match)

    async def aclose(self) -> None:
        """Close the store within."""
        await self._store.aclose()
