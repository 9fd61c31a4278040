"""Requests, answers, listings and uploads of stores, as plain data."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, TypeGuard

from msgspec import Struct

from coldparquet.ranges import ByteRange, SuffixRange

if TYPE_CHECKING:
    from collections.abc import Sequence


ChecksumAlgorithm: TypeAlias = Literal["CRC32", "CRC32C", "CRC64NVME"]
"""The checksums of S3 that can be put together from those of parts, in S3's own words."""


class RestoreState(Struct, frozen=True, kw_only=True):
    """What S3 says of the restored copy of an archived object (``x-amz-restore``)."""

    is_ongoing: bool
    """Whether the restore has been asked for and is not over."""
    expires_s: float | None = None
    """When the restored copy goes away, in seconds since 1970; None while it is ongoing."""


class StoredChecksum(Struct, frozen=True, kw_only=True):
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


class ObjectInfo(Struct, frozen=True, kw_only=True):
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


class Upload(Struct, frozen=True, kw_only=True):
    """An object that is being written in parts; readers do not see it before :meth:`ObjectStore.finish_upload`."""

    path: str
    upload_id: str
    """The store's own name for it."""
    storage_class: str | None = None


class UploadedPart(Struct, frozen=True, kw_only=True):
    """The store's receipt for one part of an upload."""

    number: int
    """From 1, in the order of the bytes."""
    size_bytes: int
    etag: str
    crc32: int
    """Of the part's bytes; the store compared it where it can."""


class Listing(Struct, frozen=True, kw_only=True):
    """What lies directly below one path: both tuples are sorted by path."""

    directories: tuple[str, ...]
    """Full paths without a trailing slash."""
    objects: tuple[ObjectInfo, ...]
    is_complete: bool = True
    """False if only the first page was asked for and more follows."""


def is_written_after(modified_s: float | None, described_s: float | None) -> bool:
    """Tell whether an object was written after a description of it; False where one of the times is not known."""
    return modified_s is not None and described_s is not None and modified_s > described_s


def described_etag(modified_s: float | None, info: ObjectInfo | None) -> str | None:
    """Return the version of an object that a description of it, written at a time, is of; None where that is not sure.

    It is not where the object is younger: a program that replaces both may upload the description first or last. Stores tell
    whole seconds, so where both are of the same one, it has to be over for long.
    """
    if info is None or info.modified_s is None or modified_s is None or not is_lasting_etag(info.etag):
        return None
    is_younger = is_written_after(modified_s, info.modified_s)
    is_settled = modified_s == info.modified_s and time.time() - modified_s > _SETTLED_S
    return info.etag if is_younger or is_settled else None


_SETTLED_S = 10.0
"""A program that replaces an object and its description has written both by then; the clocks of store and reader may differ by less."""


def is_lasting_etag(etag: str | None) -> TypeGuard[str]:
    """Tell whether this is an object store's ETag, which it quotes, and not the version of a file on a disk.

    Such a one belongs to the bytes of an object: it may be written down, and compared by another process later.
    """
    return etag is not None and etag.startswith('"') and etag.isascii()


Role: TypeAlias = Literal["metadata", "data"]
"""What a request is for: rows, or what has to be known to read rows."""


class RangeRequest(Struct, frozen=True, kw_only=True):
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
    Only :class:`~coldparquet.storage.versions.Versions` uses it."""
    may_be_short: bool = False
    """True where the range may reach past the end of the object, as the first guess at a sidecar's size does."""
    wants_whole: bool = False
    """True where the whole object is wanted, and ``byte_range``, from 0 on, says how much of it is taken at once: S3 then gets no
    ``Range``, because it tells an object's checksum only with an answer that is not one to a range."""
    object_bytes: int | None = None
    """Size that the object must have, such as the Parquet size of the snapshot that was planned: exactly this one or, with
    ``may_grow``, at least. Only :class:`~coldparquet.storage.versions.Versions` uses it."""
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
    attempt: int = 1
    """How many times this request has been sent before, plus 1: set by ``RetryStore``, for the log."""
    is_hedge: bool = False
    """Whether it is the second one for bytes that are already being asked for: it goes over connections of its own."""
    pins_version: bool = True
    """Whether later requests must see the version that answers this one. Only
    :class:`~coldparquet.storage.checked.CheckedStore` uses it."""
    may_be_kept: bool = True
    """Whether a cache may keep the answer; False for scans that would push everything else out of it."""
    role: Role = "metadata"
    """Whether the bytes hold rows, or say where rows are; for the log."""
    rank: int = 0
    """Where too many are in flight, requests of lower ranks are sent first; rows are requested in the order of row groups."""


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
    """Whether ``data`` was held already, or came for another request: no byte of it was sent for this request."""
    checksum: StoredChecksum | None = None
    """Checksum of the whole object, where the store told it with this answer. Where ``data`` is the whole object,
    :class:`~coldparquet.storage.checked.CheckedStore` compares both."""
    modified_s: float | None = field(default=None, compare=False)
    """When the object was written, in seconds since 1970; None where this answer does not tell."""
    confirmed_s: float = field(default=0.0, compare=False)
    """When the store last confirmed that a cached version is the newest, in seconds since 1970; 0 where no question relies on it."""
    beside_etag: str | None = field(default=None, compare=False)
    """Version of the Parquet object that a cached sidecar or ``_pages`` was found to describe; None where that is not known."""

    @property
    def is_whole(self) -> bool:
        """Whether ``data`` is the whole object."""
        return self.start == 0 and not self.is_unchanged and len(self.data) == self.object_size_bytes


def clipped(asked: ByteRange | SuffixRange, *, object_size_bytes: int) -> ByteRange:
    """Return the part of a range that an object of this size can answer; empty past its end."""
    if isinstance(asked, SuffixRange):
        return ByteRange(max(0, object_size_bytes - asked.length_bytes), object_size_bytes)
    return ByteRange(asked.start, max(asked.start, min(asked.stop, object_size_bytes)))
