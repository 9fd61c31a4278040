"""Small objects: read as a whole, and written so that what is there already is recognised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.errors import InvalidInputError, ObjectChangedError
from coldparquet.ranges import ByteRange
from coldparquet.storage.base import FetchedRange, RangeRequest
from coldparquet.storage.checked import CheckedStore

if TYPE_CHECKING:
    from coldparquet.storage.base import ObjectStore

_FIRST_REQUEST_BYTES = 16 * 1024 * 1024


async def read_whole(store: ObjectStore, path: str, *, version_header_bytes: int = 0) -> FetchedRange:
    """Fetch a whole object. 1 request, more for one above 16 MiB.

    Args:
        store: Where it lies.
        path: The object.
        version_header_bytes: As in :class:`~coldparquet.storage.base.RangeRequest`.

    Raises:
        NotFoundError: There is no such object.
        ObjectChangedError: It was replaced between two requests.
    """
    checked = CheckedStore(store)
    data, etag, size_bytes = b"", None, None
    while size_bytes is None or len(data) < size_bytes:
        answer = await checked.get(
            RangeRequest(
                path=path,
                byte_range=ByteRange(len(data), len(data) + _FIRST_REQUEST_BYTES),
                reason="table files",
                may_be_short=True,
                version_header_bytes=version_header_bytes,
            )
        )
        data += answer.data
        etag = answer.etag
        # A store that tells no size has sent everything once it sends less than was asked for.
        size_bytes = answer.object_size_bytes
        if size_bytes is None and len(answer.data) < _FIRST_REQUEST_BYTES:
            size_bytes = len(data)
    return FetchedRange(data=data, start=0, etag=etag, object_size_bytes=len(data))


async def put_once(store: ObjectStore, path: str, data: bytes) -> None:
    """Write a small object that never changes; one with the same bytes may be there already. 1 or 2 requests.

    Raises:
        InvalidInputError: ``kind="AlreadyExists"``: it exists with other bytes.
    """
    try:
        await store.put(path, data, overwrite=False)
    except InvalidInputError as error:
        if error.kind != "AlreadyExists":
            raise
        if (await read_whole(store, path)).data != data:
            raise InvalidInputError(
                "the object exists with other contents, although its name stands for one version of the table: it"
                " belongs to another table, or this one was restored from a backup; publish to an empty place",
                kind="AlreadyExists",
                path=path,
            ) from None


def publisher_conflict(path: str) -> ObjectChangedError:
    """Make the error for the one of two publishers that comes second."""
    return ObjectChangedError(
        "another publisher is writing to this table; readers see nothing of this run. Wait until it is done and publish"
        " again: what has been copied so far is not copied twice",
        kind="PublisherConflict",
        path=path,
    )
