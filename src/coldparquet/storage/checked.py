"""A store whose answers are checked: each is of the version that was seen first, and exactly what was asked for; whole objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import FormatError, ObjectChangedError
from coldparquet.options import MIB
from coldparquet.ranges import ByteRange
from coldparquet.records import replace
from coldparquet.storage.base import OBJECT_WRITES, StoreWrapper
from coldparquet.storage.checksums import check_whole
from coldparquet.storage.log import get_metadata
from coldparquet.storage.refusals import object_changed
from coldparquet.storage.requests import FetchedRange, RangeRequest, is_lasting_etag
from coldparquet.storage.versions import AS_IT_IS, Versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.storage.base import Answer, Call, ObjectStore
    from coldparquet.storage.requests import ObjectInfo


class CheckedStore(StoreWrapper):
    """Pin each object to the version that was seen first and verify every answer.

    The first ETag seen for a path is sent as ``if_match`` with later requests for it. A store that tells no ETags
    gives no such protection; lengths are checked all the same. Listings pin nothing, and
    :meth:`info` only an object store's ETag: a disk's versions have other words for each kind of request.

    Args:
        store: Where the requests go. Closing this store closes it.
        versions: What is known of the objects; None begins with nothing.
    """

    def __init__(self, store: ObjectStore, versions: Versions | None = None) -> None:
        super().__init__(store)
        self.versions = Versions() if versions is None else versions
        """Which version of each object is read."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range and check it. 1 request."""
        kind = (request.may_grow, request.version_header_bytes)
        known = self.versions.of(request.path)
        if request.if_match is None and request.if_none_match is None:
            request = replace(request, if_match=known.etag_for(kind))
        try:
            fetched = await self._store.get(request)
            found_etag = request.if_none_match if fetched.is_unchanged else fetched.etag
            # The pin is looked at again: of several first requests in flight, another may have been answered meanwhile.
            expected_etag = request.if_match or known.etag_for(kind)
            if expected_etag is not None and found_etag not in (None, expected_etag):
                raise object_changed(replace(request, if_match=expected_etag), found_etag=found_etag)
        except ObjectChangedError:
            self.versions.changed.add(request.path)
            raise
        self.versions.check(request, fetched)
        if fetched.is_whole:
            stored = fetched.checksum or known.checksums.get(fetched.etag)
            if stored is not None:
                await check_whole(fetched.data, stored, path=request.path)
        if found_etag is not None and request.pins_version:
            known.confirm(kind, found_etag)
        return fetched

    async def info(self, path: str) -> ObjectInfo:
        """Tell what is known about one object, and pin it to an object store's version. 1 request."""
        found = await super().info(path)
        if is_lasting_etag(found.etag):
            self.versions.of(path).confirm(AS_IT_IS, found.etag)
            if found.checksum is not None:
                self.versions.of(path).checksums[found.etag] = found.checksum
        return found

    async def send(self, call: Call[Answer]) -> Answer:
        """Make a call, and forget the version of the object that it writes."""
        if call.operation not in OBJECT_WRITES:
            return await call.make(self._store)
        self.versions.forget(call.path)
        answer = await call.make(self._store)
        # A read that was under way during the write may have pinned the old version again.
        self.versions.forget(call.path)
        return answer

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove through the store within, and forget the versions that were there."""
        await super().delete(paths)
        for path in paths:
            self.versions.forget(path)


_REQUEST_BYTES = 16 * MIB
"""More than a `_txn` of 500,000 partitions has. Of a longer body so much is taken, and the rest is fetched by ranges."""


async def read_whole(
    store: ObjectStore,
    path: str,
    *,
    reason: str = "table files",
    version_header_bytes: int = 0,
    largest_bytes: int | None = None,
) -> FetchedRange:
    """Fetch a whole object, and compare it with the checksum that the store keeps of it. 1 request, more for one above 16 MiB."""
    checked = CheckedStore(store)
    data, etag, size_bytes, checksum = b"", None, None, None
    while size_bytes is None or len(data) < size_bytes:
        wanted = ByteRange(len(data), len(data) + _REQUEST_BYTES)
        answer = await get_metadata(
            checked,
            RangeRequest(
                path=path,
                byte_range=wanted,
                reason=reason,
                may_be_short=True,
                wants_whole=not data,
                version_header_bytes=version_header_bytes,
            ),
        )
        checksum = checksum or answer.checksum
        data += answer.data
        etag = answer.etag
        size_bytes = answer.object_size_bytes
        # A store that tells no size has sent everything once it sends less than was asked for.
        if size_bytes is None and len(answer.data) < _REQUEST_BYTES:
            size_bytes = len(data)
        if largest_bytes is not None and max(len(data), size_bytes or 0) > largest_bytes:
            raise FormatError(
                f"the object has {max(len(data), size_bytes or 0):,} bytes, but never more than {largest_bytes:,} where it is"
                " sound; it is damaged: copy it again",
                kind="TooLarge",
                path=path,
                expected=largest_bytes,
            )
        if not answer.data:
            break
    if checksum is not None and len(data) > _REQUEST_BYTES:  # otherwise the only answer was compared with it
        await check_whole(data, checksum, path=path)
    return FetchedRange(data=data, start=0, etag=etag, object_size_bytes=len(data))
