"""What every store can do, and the plain data that goes in and out of it.

A store is anything that holds objects under paths: S3, a local disk, a dictionary, any fsspec filesystem. Paths have
no scheme (``bucket/db/trades/2024-03-01.12/_pm``); local ones are absolute file paths. Wrappers
(:class:`~coldparquet.storage.checked.CheckedStore`, :class:`~coldparquet.storage.limit.LimitedStore`,
:class:`~coldparquet.storage.trace.TraceStore`) are stores themselves and can be stacked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from coldparquet.errors import InvalidInputError, ObjectChangedError
from coldparquet.ranges import ByteRange, SuffixRange


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRequest:
    """One GET: these bytes of that object, and why."""

    path: str
    """The object, as the store names it: no scheme, no query string."""
    byte_range: ByteRange | SuffixRange
    """The bytes asked for; a :class:`ByteRange` here is never empty."""
    reason: str
    """What the bytes are for, in the words of the domain: ``"sidecar prefix"``, ``"row groups 3-5: ts, price"``."""
    if_match: str | None = None
    """ETag that the object must still have; otherwise the store raises ``ObjectChangedError``."""
    may_be_short: bool = False
    """True where the range may reach past the end of the object, as the first guess at a sidecar's size does."""
    least_object_bytes: int | None = None
    """Size that the object must have at least, such as the Parquet size of the snapshot that was planned.
    Only :class:`~coldparquet.storage.checked.CheckedStore` looks at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRange:
    """The answer to one :class:`RangeRequest`."""

    data: bytes
    """The bytes ``[start, start + len(data))`` of the object."""
    start: int
    """Where ``data`` begins in the object; for a suffix range this is how the caller learns it."""
    etag: str | None
    """Version of the object, as the store writes it; None where the store does not tell."""
    object_size_bytes: int | None
    """Size of the whole object; None where the answer does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object of a listing."""

    path: str
    """Full path, ready for a :class:`RangeRequest`."""
    size_bytes: int | None
    """Size of the whole object; None where a listing does not tell, as most web servers' do not."""
    etag: str | None
    """Version of the object; None where a listing does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What lies directly below one path: both tuples are sorted by path."""

    directories: tuple[str, ...]
    """Full paths without a trailing slash."""
    objects: tuple[ObjectInfo, ...]


class ObjectStore(Protocol):
    """What the rest of the library asks of a store. Implementations are safe to use from many tasks of one event loop.

    Cancelling a call leaves nothing behind: no request in flight, no thread that still writes, no temporary file.
    """

    @property
    def label(self) -> str:
        """What the store is, for people: ``"s3 (eu-west-1)"``, ``"local files"``. Never holds a secret."""
        ...

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range. 1 request, more only where the store retries or cannot serve a suffix by itself.

        The answer is clipped at the end of the object: fewer bytes than asked, or none when the range begins at or
        past the end (an S3 store turns its 416 answer into empty ``data``). A suffix longer than the object is the
        whole object. Whether a short answer is acceptable is decided in one place, by ``CheckedStore``.

        Raises:
            NotFoundError: There is no such object, or it is a directory.
            AccessError: The store refused the credentials or the operating system the permission.
            ObjectChangedError: The object no longer has the ETag ``request.if_match``.
            ArchivedObjectError: The object lies in an archive class.
            UnsupportedError: ``request.if_match`` is given, but the store knows no versions.
            StorageError: Anything else; ``details`` hold ``byte_range`` and, where known, ``attempts``, ``elapsed_s``
                and ``request_id``.
        """
        ...

    async def list(self, path: str) -> Listing:
        """List what lies directly below ``path`` (delimiter ``/``). 1 request per 1,000 entries on S3.

        Raises:
            NotFoundError: Nothing lies there. Object stores know no empty directories; local disks answer an empty
                :class:`Listing` for one.
            AccessError: Listing is not permitted.
            StorageError: Anything else.
        """
        ...

    async def put(self, path: str, data: bytes, *, overwrite: bool) -> None:
        """Write one whole object: others see all of it or nothing. 1 request for objects up to 8 MiB.

        Args:
            path: The object.
            data: Its whole content.
            overwrite: False refuses to replace an object that exists, atomically where the store can.

        Raises:
            InvalidInputError: ``kind="AlreadyExists"``: the object exists and ``overwrite`` is False.
            NotFoundError: The bucket does not exist.
            AccessError: Writing is not permitted.
            StorageError: Anything else.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and files. Calling it twice is fine."""
        ...


def clipped(asked: ByteRange | SuffixRange, *, object_size_bytes: int) -> ByteRange:
    """Return the part of a range that an object of this size can answer; empty past its end."""
    if isinstance(asked, SuffixRange):
        return ByteRange(max(0, object_size_bytes - asked.length_bytes), object_size_bytes)
    return ByteRange(asked.start, max(asked.start, min(asked.stop, object_size_bytes)))


def object_changed(request: RangeRequest, *, found_etag: str | None) -> ObjectChangedError:
    """Make the error for an object that no longer has the version of ``request.if_match``."""
    now = f"it is {found_etag} now" if found_etag else "it has another one now"
    return ObjectChangedError(
        f"the object was replaced during the read: its version was {request.if_match}, {now}; plan the read again",
        path=request.path,
        expected_etag=request.if_match,
        found_etag=found_etag,
    )


def already_exists(path: str) -> InvalidInputError:
    """Make the error for a put that must not replace an object."""
    return InvalidInputError(
        "the object exists already; remove it, choose another path or allow overwriting",
        kind="AlreadyExists",
        path=path,
    )
