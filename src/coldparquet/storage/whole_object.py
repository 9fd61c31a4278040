"""Objects that are read as a whole: table files, manifests, catalogues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import FormatError
from coldparquet.plan.read_plan import MetadataRequest
from coldparquet.ranges import ByteRange
from coldparquet.storage.object_checksums import check_whole
from coldparquet.storage.requests import FetchedRange, RangeRequest
from coldparquet.storage.wrappers.checked import CheckedStore

if TYPE_CHECKING:
    from coldparquet.storage.base import ObjectStore

_REQUEST_BYTES = 16 * 1024 * 1024
"""More than a `_txn` of 500,000 partitions has. Of a longer body so much is taken, and the rest is fetched by ranges."""


async def read_whole(  # noqa: PLR0913 - what can be told is told by name
    store: ObjectStore,
    path: str,
    *,
    reason: str = "table files",
    version_header_bytes: int = 0,
    largest_bytes: int | None = None,
    spent: list[MetadataRequest] | None = None,
) -> FetchedRange:
    """Fetch a whole object, and compare it with the checksum that the store keeps of it. 1 request, more for one above 16 MiB.

    Args:
        store: Where it lies.
        path: The object.
        reason: For the request log.
        version_header_bytes: As in :class:`~coldparquet.storage.requests.RangeRequest`.
        largest_bytes: A longer object is refused as damaged.
        spent: Gets the requests.

    Raises:
        NotFoundError: There is no such object.
        ObjectChangedError: It was replaced between two requests.
        StorageError: These are not the bytes that were stored (kind ``ChecksumMismatch``).
        FormatError: It is longer than ``largest_bytes`` (kind ``TooLarge``).
    """
    checked = CheckedStore(store)
    data, etag, size_bytes, checksum = b"", None, None, None
    while size_bytes is None or len(data) < size_bytes:
        wanted = ByteRange(len(data), len(data) + _REQUEST_BYTES)
        answer = await checked.get(
            RangeRequest(
                path=path,
                byte_range=wanted,
                reason=reason,
                may_be_short=True,
                wants_whole=not data,
                version_header_bytes=version_header_bytes,
            )
        )
        checksum = checksum or answer.checksum
        if spent is not None:
            spent.append(MetadataRequest(path=path, byte_range=wanted, reason=reason, fetched_bytes=len(answer.data)))
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
