"""What every store can do, and the plain data that goes in and out of it.

A store is anything that holds objects under paths: S3, a local disk, a dictionary, any fsspec filesystem. Paths have
no scheme (``bucket/db/trades/2024-03-01.12/_pm``); local ones are absolute file paths. Wrappers
(:class:`~coldparquet.storage.wrappers.checked.CheckedStore`, :class:`~coldparquet.storage.wrappers.limit.LimitedStore`,
:class:`~coldparquet.storage.wrappers.trace.TraceStore`) are stores themselves and can be stacked.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias, TypeGuard

from coldparquet.errors import InvalidInputError, ObjectChangedError, UnsupportedError
from coldparquet.ranges import ByteRange, SuffixRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldparquet.options import RestoreTier

ChecksumAlgorithm: TypeAlias = Literal["CRC32", "CRC32C", "CRC64NVME"]
"""The checksums of S3 that can be put together from those of parts, in S3's own words."""

Role: TypeAlias = Literal["metadata", "data"]
"""What a request is for: rows, or what has to be known to read rows."""


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
    expected_etag: str | None = None
    """ETag of the object for which a description of it was made that this request relies on: the ``_pages`` beside a
    Parquet file. Unlike ``if_match`` it is not sent, and says nothing where the versions of this store do not last.
    Only :class:`~coldparquet.storage.wrappers.checked.CheckedStore` looks at it."""
    may_be_short: bool = False
    """True where the range may reach past the end of the object, as the first guess at a sidecar's size does."""
    least_object_bytes: int | None = None
    """Size that the object must have at least, such as the Parquet size of the snapshot that was planned.
    Only :class:`~coldparquet.storage.wrappers.checked.CheckedStore` looks at it."""
    may_grow: bool = False
    """True where the object is only ever appended to and the bytes asked for are committed, as those of a Parquet file
    that a running QuestDB adds row groups to: a local file that has grown is still the same version. Object stores
    never append, and ignore it."""
    version_header_bytes: int = 0
    """For files that are overwritten in place, as ``_txn`` is: the length of the header at their beginning that changes
    with every commit. A local store compares it before and after the read, because the times of files that are written
    through a memory map say nothing. Object stores never overwrite in place, and ignore it."""
    if_none_match: str | None = None
    """ETag of a copy that the caller holds: where the object still has it, the answer is empty and ``is_unchanged``. Stores
    that know no such condition send the bytes."""
    version_id: str | None = None
    """The object's version in a bucket that keeps versions; other stores ignore it."""
    attempt: int = 1
    """How many times this request has been sent before, plus 1: set by ``RetryStore``, for the log."""
    is_hedge: bool = False
    """Whether it is the second one for bytes that are already being asked for: it goes over connections of its own."""
    may_be_kept: bool = True
    """Whether a cache may keep the answer; False for scans that would push everything else out of it."""
    role: Role = "metadata"
    """Whether the bytes hold rows, or say where rows are; for the log."""


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
    is_unchanged: bool = False
    """Whether the object still has the ETag ``if_none_match`` of the request; ``data`` is then empty."""
    is_from_cache: bool = False
    """Whether ``data`` was held already, or came for somebody else: no byte of it was sent for this request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreState:
    """What S3 says of the restored copy of an archived object (``x-amz-restore``)."""

    is_ongoing: bool
    """Whether the restore has been asked for and is not over."""
    expires_s: float | None = None
    """When the restored copy goes away, in seconds since 1970; None while it is ongoing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChecksum:
    """The checksum that a store keeps of an object, in S3's two kinds."""

    value: int
    algorithm: ChecksumAlgorithm = "CRC32"
    part_count: int | None = None
    """None: ``value`` is that of all bytes. Otherwise the object came in so many parts, and ``value`` is that of their
    checksums, each in big-endian bytes, one after the other."""

    @classmethod
    def of_parts(cls, crc32s: Sequence[int]) -> Self:
        """Return the checksum of an object that came in parts with these CRC-32s."""
        joined = b"".join(crc32.to_bytes(4, "big") for crc32 in crc32s)
        return cls(value=zlib.crc32(joined), part_count=len(crc32s))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What a store tells about one object."""

    path: str
    """Full path, ready for a :class:`RangeRequest`."""
    size_bytes: int | None
    """Size of the whole object; None where a listing does not tell, as most web servers' do not."""
    etag: str | None
    """Version of the object; None where a listing does not tell."""
    modified_s: float | None = None
    """When it was written, in seconds since 1970; None where the store does not tell."""
    storage_class: str | None = None
    """S3's name of the class it lies in, such as ``STANDARD``; None where the store has no classes."""
    checksum: StoredChecksum | None = None
    """None where the store keeps none; listings never tell."""
    restore: RestoreState | None = None
    """None where no restore was asked for; listings never tell."""
    archive_status: str | None = None
    """``ARCHIVE_ACCESS`` or ``DEEP_ARCHIVE_ACCESS`` for objects that Intelligent-Tiering has archived; else None."""
    version_id: str | None = None
    """None where the bucket keeps no versions; listings never tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An object that is being written in parts; nobody sees it before :meth:`ObjectStore.finish_upload`."""

    path: str
    upload_id: str
    """The store's own name for it."""
    storage_class: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedPart:
    """The store's receipt for one part of an upload."""

    number: int
    """From 1, in the order of the bytes."""
    size_bytes: int
    etag: str
    crc32: int
    """Of the part's bytes; the store compared it where it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What lies directly below one path: both tuples are sorted by path."""

    directories: tuple[str, ...]
    """Full paths without a trailing slash."""
    objects: tuple[ObjectInfo, ...]
    is_complete: bool = True
    """False if only the first page was asked for and more follows."""


class ObjectStore(Protocol):
    """What the rest of the library asks of a store. Implementations are safe to use from many tasks of one event loop.

    Cancelling a call leaves nothing behind: no request in flight, no thread that still writes, no temporary file.
    """

    @property
    def label(self) -> str:
        """What the store is, for people: ``"s3 (eu-west-1)"``, ``"local files"``. Never holds a secret."""
        ...

    @property
    def has_storage_classes(self) -> bool:
        """Whether objects may lie in classes of their own, so that :meth:`info` is worth asking before a read."""
        ...

    @property
    def has_version_listings(self) -> bool:
        """Whether :meth:`list_between` answers, so that copies of metadata can be compared with what they are copies of."""
        ...

    @property
    def has_spare_connections(self) -> bool:
        """Whether requests with ``is_hedge`` go over connections of their own, so that a slow GET is worth sending twice."""
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

    async def info(self, path: str) -> ObjectInfo:
        """Tell what is known about one object. 1 request.

        Raises:
            NotFoundError: There is no such object, or it is a directory.
            AccessError: The store refused.
            StorageError: Anything else.
        """
        ...

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        """List what lies directly below ``path`` (delimiter ``/``). 1 request per 1,000 entries on S3.

        Args:
            path: The directory.
            first_page_only: Stop after one request, whatever it brought; ``Listing.is_complete`` then tells.

        Raises:
            NotFoundError: Nothing lies there. Object stores know no empty directories; local disks answer an empty
                :class:`Listing` for one.
            AccessError: Listing is not permitted.
            StorageError: Anything else.
        """
        ...

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        """List the objects below ``path``, at any depth, whose paths lie between two others. 1 request per 1,000 on S3.

        Args:
            path: A directory.
            start: Only paths behind this one, by the values of their characters.
            stop: Only paths before this one.

        Returns:
            What was found, with the ETag of each, sorted by path; nothing where nothing lies there.

        Raises:
            UnsupportedError: The store has no listings that tell versions (:attr:`has_version_listings`).
            AccessError: Listing is not permitted.
            StorageError: Anything else.
        """
        ...

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Write one whole object: others see all of it or nothing. 1 request.

        Args:
            path: The object.
            data: Its whole content; for more than a few MiB use :func:`~coldparquet.storage.upload.upload_object`.
            overwrite: False refuses to replace an object that exists, atomically where the store can.
            if_match: Replace only the version with this ETag, atomically; needs ``overwrite``.
            storage_class: S3's name of a storage class; None is the bucket's own. Other stores ignore it.

        Returns:
            The ETag of what was written; None where the store tells no versions.

        Raises:
            InvalidInputError: ``kind="AlreadyExists"``: the object exists and ``overwrite`` is False.
            ObjectChangedError: The object has another version than ``if_match``, or is gone.
            UnsupportedError: ``if_match`` is given, but the store knows no versions.
            NotFoundError: The bucket does not exist.
            AccessError: Writing is not permitted.
            StorageError: Anything else; ``kind="ChecksumMismatch"``: other bytes arrived than were sent.
        """
        ...

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Begin to write an object in parts. 1 request. Use :func:`~coldparquet.storage.upload.upload_object`.

        Raises:
            NotFoundError: The bucket does not exist.
            AccessError: Writing is not permitted.
            StorageError: Anything else.
        """
        ...

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        """Send one part. 1 request. Parts may arrive in any order, and at the same time.

        Args:
            upload: From :meth:`start_upload`.
            number: From 1 to 10,000, in the order of the bytes.
            start: Where the part begins in the object.
            data: At least 5 MiB, but for the last part.

        Raises:
            StorageError: ``kind="ChecksumMismatch"``: other bytes arrived than were sent; or anything else.
        """
        ...

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        """Make the object of its parts: from now on others see it. 1 request. Errors as for :meth:`put`.

        When it raises, the upload still exists and has to be aborted.
        """
        ...

    async def abort_upload(self, upload: Upload) -> None:
        """Throw an unfinished upload away. 1 request. One that is gone already is fine.

        Raises:
            AccessError: The store refused.
            StorageError: Anything else.
        """
        ...

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:
        """Remove what killed uploads below ``path`` left behind: parts that cost money, temporary files.

        1 request that looks for them, 1 for each that is found.

        Args:
            path: A directory; everything below it is looked at.
            started_before_s: Seconds since 1970. Younger uploads may still be under way.

        Returns:
            How many were removed; 0 where the store leaves nothing behind.
        """
        ...

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove objects; those that do not exist are fine. 1 request per 1,000 objects on S3.

        Raises:
            AccessError: Deleting is not permitted.
            StorageError: Anything else; some of the objects may be gone.
        """
        ...

    async def restore(self, path: str, *, days: int, tier: RestoreTier) -> None:
        """Ask for a restored copy of an archived object. 1 request. One that is under way already is fine.

        Args:
            path: The object.
            days: How long the copy stays; 0 for objects of Intelligent-Tiering, which move back for good.
            tier: How fast; what each costs and takes is in :mod:`coldparquet.prices`.

        Raises:
            NotFoundError: There is no such object.
            AccessError: Restoring is not permitted.
            InvalidInputError: ``kind="NotArchived"``: the object needs no restore.
            UnsupportedError: The store cannot restore, or not in this tier.
            StorageError: Anything else.
        """
        ...

    async def change_class(self, path: str, *, storage_class: str, if_match: str) -> str | None:
        """Move an object to another storage class, by a copy onto itself inside of the store. 1 request.

        Its bytes and what is noted of it stay as they are; its ETag may be another one, as S3's is where the object came in
        parts.

        Args:
            path: The object, of at most 5 GiB.
            storage_class: S3's name of the class.
            if_match: ETag that the object must have, so that nothing is lost which somebody else writes meanwhile.

        Returns:
            The ETag that it has now.

        Raises:
            NotFoundError: There is no such object.
            ObjectChangedError: The object has another version.
            ArchivedObjectError: It must be restored first.
            AccessError: Reading or writing it is not permitted.
            UnsupportedError: The store has no storage classes, or cannot copy.
            StorageError: Anything else.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and files. Calling it twice is fine."""
        ...


def restore_unsupported(path: str) -> UnsupportedError:
    """Make the error for stores without archive classes."""
    return UnsupportedError("this store has no archive classes, so that nothing can be restored", path=path)


def classes_unsupported(path: str) -> UnsupportedError:
    """Make the error for stores that cannot move objects between storage classes."""
    return UnsupportedError(
        "this store has no storage classes, so that nothing can be moved to another one",
        kind="NoStorageClasses",
        path=path,
    )


def versions_not_listed(path: str) -> UnsupportedError:
    """Make the error for stores whose listings do not tell the versions of objects."""
    return UnsupportedError("this store does not list the versions of objects", path=path)


def is_lasting_etag(etag: str | None) -> TypeGuard[str]:
    """Tell whether this is an object store's ETag, which it quotes, and not the version of a file on a disk.

    Such a one belongs to the bytes of an object: it may be written down, and compared by somebody else later.
    """
    return etag is not None and etag.startswith('"') and etag.isascii()


def clipped(asked: ByteRange | SuffixRange, *, object_size_bytes: int) -> ByteRange:
    """Return the part of a range that an object of this size can answer; empty past its end."""
    if isinstance(asked, SuffixRange):
        return ByteRange(max(0, object_size_bytes - asked.length_bytes), object_size_bytes)
    return ByteRange(asked.start, max(asked.start, min(asked.stop, object_size_bytes)))


def object_changed(request: RangeRequest, *, found_etag: str | None) -> ObjectChangedError:
    """Make the error for an object that no longer has the version of ``request.if_match``."""
    return ObjectChangedError(
        f"the object was replaced during the read: its version was {request.if_match}, {_version_now(found_etag)};"
        " plan the read again",
        path=request.path,
        expected_etag=request.if_match,
        found_etag=found_etag,
    )


def version_gone(path: str, if_match: str, *, found_etag: str | None) -> ObjectChangedError:
    """Make the error for a put of an object that no longer has the version ``if_match``."""
    return ObjectChangedError(
        f"somebody else wrote this object: its version was {if_match}, {_version_now(found_etag)}; nothing was written",
        path=path,
        expected_etag=if_match,
        found_etag=found_etag,
    )


def already_exists(path: str) -> InvalidInputError:
    """Make the error for a put that must not replace an object."""
    return InvalidInputError(
        "the object exists already; remove it, choose another path or allow overwriting",
        kind="AlreadyExists",
        path=path,
    )


def _version_now(found_etag: str | None) -> str:
    return f"it is {found_etag} now" if found_etag else "it has another one now"
