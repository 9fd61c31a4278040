"""The one place that decides whether an answer is what was asked: exact length, same version.

Whatever passes here is safe to parse: all bytes of one object come from one version of it, none is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from coldparquet.errors import ObjectChangedError, StorageError
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import clipped, is_lasting_etag, object_changed
from coldparquet.storage.wrapper import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.storage.base import FetchedRange, ObjectStore, RangeRequest, Upload, UploadedPart


class CheckedStore(StoreWrapper):
    """Pin each object to the version that was seen first and verify every answer.

    The first ETag seen for a path is sent as ``if_match`` with later requests for it. A store that tells no ETags
    gives no such protection; lengths are checked all the same. Listings and :meth:`info` pin nothing.

    Requests that let a file grow see its version in other words than those that do not, so each kind has its own pin.

    Args:
        store: Where the requests go. Closing this store closes it.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._pins: dict[str, dict[_Kind, _Pin]] = {}

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range and check it. 1 request.

        Raises:
            ObjectChangedError: The object has another version than before, or is smaller than the request says it is; or it
                has another one than that for which a ``_pages`` was made (``kind="StalePages"``).
            StorageError: ``kind="ShortRead"`` when bytes are missing, ``kind="RangeIgnored"`` when the answer holds
                other bytes than those asked for.
        """
        kind = (request.may_grow, request.version_header_bytes)
        pin = self._pins.setdefault(request.path, {}).setdefault(kind, _Pin())
        if request.if_match is None:
            request = replace(request, if_match=pin.etag)
        fetched = await self._store.get(request)
        # The pin is looked at again: of several first requests in flight, another may have been answered meanwhile.
        expected_etag = request.if_match or pin.etag
        if expected_etag is not None and fetched.etag not in (None, expected_etag):
            raise object_changed(replace(request, if_match=expected_etag), found_etag=fetched.etag)
        _check_object_size(request, fetched)
        _check_description(request, fetched)
        _check_bytes(request, fetched)
        pin.etag = pin.etag or fetched.etag
        return fetched

    def forget(self, path: str) -> None:
        """Let the next request for ``path`` see whatever version the object has by then."""
        self._pins.pop(path, None)

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Write through the store within, and forget the version that was there."""
        self.forget(path)
        etag = await super().put(path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class)
        # A read that was under way during the write may have pinned the old version again.
        self.forget(path)
        return etag

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        """Finish through the store within, and forget the version that was there."""
        self.forget(upload.path)
        etag = await super().finish_upload(upload, parts, overwrite=overwrite)
        self.forget(upload.path)
        return etag

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove through the store within, and forget the versions that were there."""
        await super().delete(paths)
        for path in paths:
            self.forget(path)


_Kind: TypeAlias = tuple[bool, int]
"""``may_grow`` and ``version_header_bytes`` of a request: what its file's version is made of."""


@dataclass(slots=True)
class _Pin:
    """The version of one object that all its requests must see.

    Requests hold on to the pin they started with, so an answer that arrives after :meth:`CheckedStore.forget` cannot
    bring an old version back.
    """

    etag: str | None = None


def _check_object_size(request: RangeRequest, fetched: FetchedRange) -> None:
    size, least = fetched.object_size_bytes, request.least_object_bytes or 0
    if isinstance(request.byte_range, ByteRange) and not request.may_be_short:
        least = max(least, request.byte_range.stop)
    if size is not None and size < least:
        # Only tables with a transaction file know files that grow: there, the file itself is what is wrong.
        remedy = (
            "the table's copy is not complete; 'coldparquet verify' says what else is missing"
            if request.may_grow
            else "plan the read again; if it was rewritten on purpose, 'coldparquet index --force' makes its sidecar anew"
        )
        raise ObjectChangedError(
            f"the object has {size:,} bytes, but at least {least:,} were planned with: it was replaced or cut off; {remedy}",
            path=request.path,
            expected_least_bytes=least,
            object_size_bytes=size,
        )


def _check_description(request: RangeRequest, fetched: FetchedRange) -> None:
    described, found = request.expected_etag, fetched.etag
    if is_lasting_etag(described) and is_lasting_etag(found) and described != found:
        raise ObjectChangedError(
            f"the _pages beside this object was made for version {described} of it, and it is {found}: the object was"
            " replaced, or copied in another way; run 'coldparquet index --pages --force', or read with"
            " page_index='never'",
            kind="StalePages",
            path=request.path,
            expected_etag=described,
            found_etag=found,
        )


def _check_bytes(request: RangeRequest, fetched: FetchedRange) -> None:
    expected = _expected_range(request, fetched)
    if fetched.start != expected.start or len(fetched.data) > expected.length_bytes:
        raise StorageError(
            f"asked for bytes {request.byte_range} and received {len(fetched.data):,} bytes from {fetched.start:,} on: "
            "the server ignores ranges, which this library needs",
            kind="RangeIgnored",
            path=request.path,
            byte_range=request.byte_range,
            received_bytes=len(fetched.data),
        )
    may_end_early = request.may_be_short and fetched.object_size_bytes is None
    if len(fetched.data) < expected.length_bytes and not may_end_early:
        raise StorageError(
            f"asked for bytes {request.byte_range} and received only {len(fetched.data):,} of "
            f"{expected.length_bytes:,}: the transfer was cut off, or the object ends early",
            kind="ShortRead",
            path=request.path,
            byte_range=request.byte_range,
            received_bytes=len(fetched.data),
        )


def _expected_range(request: RangeRequest, fetched: FetchedRange) -> ByteRange:
    """Return the bytes that the answer must hold, as far as the object's size is known."""
    asked, size = request.byte_range, fetched.object_size_bytes
    if isinstance(asked, ByteRange):
        return asked if size is None or not request.may_be_short else clipped(asked, object_size_bytes=size)
    if size is None:
        return ByteRange(fetched.start, fetched.start + asked.length_bytes)
    return clipped(asked, object_size_bytes=size)
