"""What S3's headers say about an object, and the words in which a restore is asked for."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from coldparquet.errors import ArchivedObjectError, InvalidInputError, StorageError, UnsupportedError
from coldparquet.storage.object_checksums import CHECKSUM_BYTES
from coldparquet.storage.objects import ObjectInfo, RestoreState, StoredChecksum
from coldparquet.storage.refusals import restore_unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.errors import ColdParquetError
    from coldparquet.prices import RestoreTier
    from coldparquet.storage.objects import ChecksumAlgorithm

CRC32_HEADER = "x-amz-checksum-crc32"
_CHECKSUM_HEADERS: dict[ChecksumAlgorithm, str] = {
    "CRC32": CRC32_HEADER,
    "CRC32C": "x-amz-checksum-crc32c",
    "CRC64NVME": "x-amz-checksum-crc64nvme",
}
_CHECKSUM_TYPE_HEADER = "x-amz-checksum-type"
ASK_FOR_CHECKSUM = {"x-amz-checksum-mode": "ENABLED"}
"""S3 tells the checksum of an object only to those who ask, and only with HEAD or with all of its bytes."""

_CHECKSUM = re.compile(r"([A-Za-z0-9+/=]{8,12})(?:-(\d{1,5}))?", re.ASCII)
_ETAG_OF_PARTS = re.compile(r'"[0-9a-f]{32}-(\d{1,5})"', re.ASCII)
_SIZE = re.compile(r"\d{1,18}", re.ASCII)
_ONGOING = re.compile(r'ongoing-request="(true|false)"')
_EXPIRES = re.compile(r'expiry-date="([^"]{1,64})"')
_ARCHIVE_STATUSES = frozenset({"ARCHIVE_ACCESS", "DEEP_ARCHIVE_ACCESS"})


def info_from_headers(path: str, headers: Mapping[str, str]) -> ObjectInfo:
    """Return what the answer to HEAD says.

    Args:
        path: ``bucket/key``.
        headers: Looked up without regard to case. What cannot be understood counts as not said.
    """
    size = headers.get("Content-Length", "")
    archive_status = headers.get("x-amz-archive-status")
    return ObjectInfo(
        path=path,
        size_bytes=int(size) if _SIZE.fullmatch(size) else None,
        etag=headers.get("ETag"),
        modified_s=seconds_of_date(headers.get("Last-Modified")),
        storage_class=headers.get("x-amz-storage-class", "STANDARD"),
        checksum=checksum_from_headers(headers),
        restore=parse_restore(headers.get("x-amz-restore")),
        archive_status=archive_status if archive_status in _ARCHIVE_STATUSES else None,
        version_id=headers.get("x-amz-version-id"),
    )


def checksum_from_headers(headers: Mapping[str, str]) -> StoredChecksum | None:
    """Return the checksum of an object. Where it does not say whether it is one of parts, the ETag does."""
    for algorithm, name in _CHECKSUM_HEADERS.items():
        checksum = parse_checksum(headers.get(name), algorithm)
        if checksum is not None:
            break
    else:
        return None
    in_parts = _ETAG_OF_PARTS.fullmatch(headers.get("ETag", ""))
    if checksum.algorithm == "CRC64NVME":  # always that of all bytes
        return checksum
    if checksum.part_count or not in_parts or headers.get(_CHECKSUM_TYPE_HEADER) == "FULL_OBJECT":
        return checksum
    return replace(checksum, part_count=int(in_parts[1]))


def checksum_text(crc32: int) -> str:
    """Return a CRC-32 as S3 writes it."""
    return base64.b64encode(crc32.to_bytes(CHECKSUM_BYTES["CRC32"], "big")).decode()


def parse_checksum(text: str | None, algorithm: ChecksumAlgorithm = "CRC32") -> StoredChecksum | None:
    """Parse a checksum as S3 writes it; None where it says nothing that we know."""
    match = _CHECKSUM.fullmatch(text or "")
    if not match:
        return None
    try:
        value = base64.b64decode(match[1], validate=True)
    except binascii.Error:
        return None
    if len(value) != CHECKSUM_BYTES[algorithm]:
        return None
    return StoredChecksum(
        value=int.from_bytes(value, "big"), algorithm=algorithm, part_count=int(match[2]) if match[2] else None
    )


def parse_restore(header: str | None) -> RestoreState | None:
    """Return the restore state of ``x-amz-restore``; None where it says nothing that we know.

    Source: https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html
    """
    ongoing = _ONGOING.search(header or "")
    if ongoing is None:
        return None
    expires = _EXPIRES.search(header or "")
    return RestoreState(
        is_ongoing=ongoing[1] == "true", expires_s=seconds_of_date(expires[1]) if expires is not None else None
    )


def restore_document(*, tier: RestoreTier, days: int) -> bytes:
    """Return the body of RestoreObject.

    Args:
        tier: How fast.
        days: How long the copy stays; 0 for Intelligent-Tiering, whose objects move back for good, so that S3 takes none.
    """
    root = ET.Element("RestoreRequest", xmlns="http://s3.amazonaws.com/doc/2006-03-01/")
    if days:
        ET.SubElement(root, "Days").text = str(days)
    ET.SubElement(ET.SubElement(root, "GlacierJobParameters"), "Tier").text = tier
    return ET.tostring(root)


def restore_refusal(refusal: ColdParquetError, *, tier: RestoreTier) -> ColdParquetError | None:
    """Return what a refused RestoreObject means; None where nothing is wrong, because the restore is under way already.

    Source: https://docs.aws.amazon.com/AmazonS3/latest/API/API_RestoreObject.html
    """
    path, code = refusal.path, refusal.details.get("code")
    if code == "RestoreAlreadyInProgress":
        return None
    if isinstance(refusal, ArchivedObjectError):  # InvalidObjectState has the opposite meaning here
        return InvalidInputError("this object is not archived; read it as it is", kind="NotArchived", path=path)
    if code == "GlacierExpeditedRetrievalNotAvailable":
        return StorageError(
            f"S3 has no capacity for {tier} restores now; try later, or restore in tier Standard or Bulk",
            kind="TierNotAvailable",
            path=path,
            **refusal.details,
        )
    if code == "InvalidArgument" and tier == "Expedited":
        return UnsupportedError(
            "S3 does not restore this object in tier Expedited: DEEP_ARCHIVE knows only Standard and Bulk",
            kind="TierNotOffered",
            path=path,
            **refusal.details,
        )
    if refusal.details.get("status") in (HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.METHOD_NOT_ALLOWED):
        return restore_unsupported(path or "")
    return refusal


def seconds_of_date(http_date: str | None) -> float | None:
    """Return the seconds since 1970 of a date as HTTP writes it; None where it is none."""
    try:
        return parsedate_to_datetime(http_date).timestamp() if http_date else None
    except (ValueError, OverflowError):
        return None
