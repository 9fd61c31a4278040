"""What stores tell of their objects, and of the uploads that become objects, as plain data."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Sequence

ChecksumAlgorithm: TypeAlias = Literal["CRC32", "CRC32C", "CRC64NVME"]
"""The checksums of S3 that can be put together from those of parts, in S3's own words."""


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


def is_written_after(modified_s: float | None, described_s: float | None) -> bool:
    """Tell whether an object was written after a description of it; False where one of the times is not known."""
    return modified_s is not None and described_s is not None and modified_s > described_s


def is_lasting_etag(etag: str | None) -> TypeGuard[str]:
    """Tell whether this is an object store's ETag, which it quotes, and not the version of a file on a disk.

    Such a one belongs to the bytes of an object: it may be written down, and compared by somebody else later.
    """
    return etag is not None and etag.startswith('"') and etag.isascii()
