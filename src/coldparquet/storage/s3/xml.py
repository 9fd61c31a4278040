"""What S3 says in XML and headers: listings, facts of an object, restores, and the words of its writes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import zlib
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from msgspec import Struct

from coldparquet.errors import AccessError, ArchivedObjectError, InvalidInputError, StorageError, UnsupportedError
from coldparquet.storage.checksums import CHECKSUM_BYTES
from coldparquet.storage.http import CRC32_HEADER, checksum_from_headers, parse_checksum, seconds_of_date
from coldparquet.storage.http_errors import parse_xml, read_up_to
from coldparquet.storage.refusals import restore_unsupported
from coldparquet.storage.requests import ObjectInfo, RestoreState, StoredChecksum

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import aiohttp

    from coldparquet.errors import ColdParquetError
    from coldparquet.prices import RestoreTier
    from coldparquet.storage.http_errors import XmlReader
    from coldparquet.storage.requests import UploadedPart


MAX_PAGE_BYTES = 16 * 1024 * 1024
"""1,000 keys of 1,024 bytes, each byte percent-encoded, and their attributes stay below 4 MiB."""
_MOST_PAGES = 2_000
_MOST_KEPT_BYTES = 512 * 1024 * 1024
_BYTES_PER_NAME = 400
"""What is kept of an object beside its name, roughly. More than a million names fit into the limit, on 1,200 pages of S3."""


class ListedPage(Struct, frozen=True, kw_only=True):
    """What one ListObjectsV2 answer says about the level below a prefix."""

    directories: tuple[str, ...]
    """Full paths, without a trailing slash."""
    objects: tuple[ObjectInfo, ...]
    has_marker: bool
    """An object with the prefix itself as its key: how some tools write an empty directory."""
    next_token: str | None


class UnfinishedUpload(Struct, frozen=True, kw_only=True):
    """A multipart upload that was neither completed nor aborted."""

    path: str
    upload_id: str
    started_s: float
    """Seconds since 1970."""


class UploadPage(Struct, frozen=True, kw_only=True):
    """What one ListMultipartUploads answer says."""

    uploads: tuple[UnfinishedUpload, ...]
    next_markers: tuple[str, str] | None
    """Key and upload id behind which the next page begins."""


class ListingProgress:
    """Sees to it that a listing comes to an end, whatever a server answers: page behind page of new names, or of none.

    Args:
        path: What is listed.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._names: set[str] = set()
        self._pages = 0
        self._kept_bytes = 0

    def note(self, names: Iterable[str]) -> None:
        """Note the names of a page behind which there is another one, or where that begins if they do not count."""
        new = set(names) - self._names
        if not new:
            raise StorageError(
                "the store repeats a page of its listing for ever, or goes on without a name in it",
                path=self._path,
                kind="BadListing",
            )
        self._names |= new
        self._pages += 1
        self._kept_bytes += sum(_BYTES_PER_NAME + len(name) for name in new)
        if self._pages >= _MOST_PAGES or self._kept_bytes > _MOST_KEPT_BYTES:
            raise StorageError(
                f"the listing goes on after {self._pages:,} pages with {len(self._names):,} names, and was given up; is this"
                " the directory of a table?",
                path=self._path,
                kind="ListingTooLong",
            )


def parse_list_page(answer: XmlReader, *, bucket: str, prefix: str) -> ListedPage:
    """Parse the answer to ListObjectsV2 with ``delimiter=/``."""
    try:
        root = answer.root()
        decode = unquote_plus if root.findtext("EncodingType") == "url" else str
        found = [
            ObjectInfo(
                path=f"{bucket}/{decode(entry.findtext('Key', ''))}",
                size_bytes=int(entry.findtext("Size", "")),
                etag=entry.findtext("ETag"),
                modified_s=_seconds(entry.findtext("LastModified")),
                storage_class=entry.findtext("StorageClass"),
            )
            for entry in root.iter("Contents")
        ]
        # A name without characters ("a//b") cannot be told from its parent once the slash is gone; skip it.
        prefixes = [decode(entry.findtext("Prefix", "")) for entry in root.iter("CommonPrefixes")]
        folders = [name for name in prefixes if name.endswith("/") and name != f"{prefix}/"]
        truncated = root.findtext("IsTruncated") == "true"
        token = root.findtext("NextContinuationToken")
    except (ET.ParseError, ValueError):
        raise _bad_listing(bucket, prefix) from None
    inside = all(name.startswith(prefix) for name in folders)
    goes_on = token is not None and bool(found or prefixes)
    if root.tag != "ListBucketResult" or not inside or (truncated and not goes_on):
        raise _bad_listing(bucket, prefix)
    return ListedPage(
        directories=tuple(f"{bucket}/{name[:-1]}" for name in folders),
        objects=tuple(info for info in found if info.path != f"{bucket}/{prefix}"),
        has_marker=any(info.path == f"{bucket}/{prefix}" for info in found),
        next_token=token if truncated else None,
    )


def parse_upload_page(answer: XmlReader, *, bucket: str, prefix: str) -> UploadPage:
    """Parse the answer to ListMultipartUploads."""
    try:
        root = answer.root()
        decode = unquote_plus if root.findtext("EncodingType") == "url" else str
        uploads = [
            UnfinishedUpload(
                path=f"{bucket}/{decode(entry.findtext('Key', ''))}",
                upload_id=entry.findtext("UploadId", ""),
                started_s=_seconds(entry.findtext("Initiated", "")) or 0.0,
            )
            for entry in root.iter("Upload")
        ]
        key_marker, id_marker = root.findtext("NextKeyMarker"), root.findtext("NextUploadIdMarker")
        truncated = root.findtext("IsTruncated") == "true"
    except (ET.ParseError, ValueError):
        raise _bad_listing(bucket, prefix) from None
    if root.tag != "ListMultipartUploadsResult" or (truncated and not key_marker):
        raise _bad_listing(bucket, prefix)
    return UploadPage(
        # Whatever a store answers, nothing outside of the prefix is touched.
        uploads=tuple(found for found in uploads if found.path.startswith(f"{bucket}/{prefix}")),
        next_markers=(decode(key_marker), id_marker or "") if truncated and key_marker else None,
    )


def _seconds(iso: str | None) -> float | None:
    """Return the seconds since 1970 of a time as S3's documents write it."""
    return None if iso is None else datetime.fromisoformat(iso).timestamp()


def _bad_listing(bucket: str, prefix: str) -> StorageError:
    return StorageError(
        "the store's answer to a listing cannot be understood; is endpoint_url that of an S3 store?",
        path=f"{bucket}/{prefix}",
        kind="BadListing",
    )


ASK_FOR_CHECKSUM = {"x-amz-checksum-mode": "ENABLED"}
"""S3 tells the checksum of an object only to those who ask, and only with HEAD or with all of its bytes."""

_SIZE = re.compile(r"\d{1,18}", re.ASCII)
_ONGOING = re.compile(r'ongoing-request="(true|false)"')
_EXPIRES = re.compile(r'expiry-date="([^"]{1,64})"')
_ARCHIVE_STATUSES = frozenset({"ARCHIVE_ACCESS", "DEEP_ARCHIVE_ACCESS"})


def info_from_headers(path: str, headers: Mapping[str, str]) -> ObjectInfo:
    """Return what the answer to HEAD says."""
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


def checksum_text(crc32: int) -> str:
    """Return a CRC-32 as S3 writes it."""
    return base64.b64encode(crc32.to_bytes(CHECKSUM_BYTES["CRC32"], "big")).decode()


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
    """Return the body of RestoreObject."""
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


MAX_DELETED_KEYS = 1_000
"""As many keys as one DeleteObjects request may name."""

_MAX_ANSWER_BYTES = 1024 * 1024
"""Answers to deletions name at most 1,000 keys of 1,024 bytes, and only those that failed."""
_IN_THREAD_BYTES = 256 * 1024
_LONGEST_ANSWER_STALLS = 30
"""While S3 puts an upload together or copies an object, which may take minutes, it sends blanks now and then."""


class WriteAnswer(Struct, frozen=True, kw_only=True):
    """What S3 answers to a write."""

    status: int
    headers: Mapping[str, str]
    """Looked up without regard to case."""
    body: bytes


async def take_write_answer(response: aiohttp.ClientResponse, *, stall_timeout_s: float) -> WriteAnswer:
    """Read the answer to a write."""
    body = await read_up_to(response, _MAX_ANSWER_BYTES, stall_s=_LONGEST_ANSWER_STALLS * stall_timeout_s)
    return WriteAnswer(status=response.status, headers=response.headers, body=body)


def condition_headers(*, overwrite: bool, if_match: str | None) -> dict[str, str]:
    """Return the headers that make a write conditional."""
    if not overwrite:
        return {"If-None-Match": "*"}
    return {} if if_match is None else {"If-Match": if_match}


def class_header(storage_class: str | None) -> dict[str, str]:
    """Return the header that names the storage class."""
    return {} if storage_class is None else {"x-amz-storage-class": storage_class}


def checksum_headers(crc32: int) -> dict[str, str]:
    """Return the header with which a store can check what arrives."""
    return {CRC32_HEADER: checksum_text(crc32)}


async def crc32_of(data: bytes) -> int:
    """Compute a CRC-32, in a thread where that takes long enough to hold up other requests."""
    return zlib.crc32(data) if len(data) < _IN_THREAD_BYTES else await asyncio.to_thread(zlib.crc32, data)


def check_stored_crc(answer: WriteAnswer, crc32: int, *, path: str) -> None:
    """Compare the checksum that the store names in its answer with that of what was sent."""
    stored = parse_checksum(answer.headers.get(CRC32_HEADER))
    if stored is not None and stored.part_count is None and stored.value != crc32:
        raise _mismatch(path, StoredChecksum(value=crc32), stored)


def parse_upload_id(body: bytes, *, path: str) -> str:
    """Return the id that CreateMultipartUpload gave."""
    upload_id = _parsed(body, path).findtext("UploadId")
    if not upload_id:
        raise _bad_answer(path)
    return upload_id


def complete_document(parts: Sequence[UploadedPart]) -> bytes:
    """Return the body of CompleteMultipartUpload."""
    root = ET.Element("CompleteMultipartUpload")
    for part in parts:
        entry = ET.SubElement(root, "Part")
        ET.SubElement(entry, "PartNumber").text = str(part.number)
        ET.SubElement(entry, "ETag").text = part.etag
        ET.SubElement(entry, "ChecksumCRC32").text = checksum_text(part.crc32)
    return ET.tostring(root)


def is_refusal(body: bytes, *, path: str) -> bool:
    """Tell whether an answer with status 200 is an error all the same, as that to CompleteMultipartUpload may be."""
    return _parsed(body, path).tag == "Error"


def parse_completed(body: bytes, parts: Sequence[UploadedPart], *, path: str) -> str | None:
    """Return the ETag of a finished upload, after its checksum was compared."""
    root = _parsed(body, path)
    stored = parse_checksum(root.findtext("ChecksumCRC32"))
    expected = StoredChecksum.of_parts([part.crc32 for part in parts])
    # A store may also answer the CRC-32 of all bytes, which cannot be compared with those of the parts.
    if stored is not None and stored.part_count is not None and stored != expected:
        raise _mismatch(path, expected, stored)
    return root.findtext("ETag")


def parse_copied(body: bytes, *, path: str) -> str | None:
    """Return the ETag of the copy that CopyObject made."""
    return _parsed(body, path).findtext("ETag")


def delete_document(keys: Sequence[str]) -> bytes:
    """Return the body of DeleteObjects."""
    root = ET.Element("Delete")
    ET.SubElement(root, "Quiet").text = "true"
    for key in keys:
        ET.SubElement(ET.SubElement(root, "Object"), "Key").text = key
    return ET.tostring(root)


def md5_header(body: bytes) -> str:
    """Return the Content-MD5 that S3 demands of DeleteObjects."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


def check_deleted(body: bytes, *, bucket: str) -> None:
    """Raise what the answer to DeleteObjects says of the first object that it could not delete."""
    for failed in _parsed(body, bucket).iter("Error"):
        code = failed.findtext("Code") or "Unknown"
        path = f"{bucket}/{failed.findtext('Key') or ''}"
        if code == "AccessDenied":
            raise AccessError("the object could not be deleted: AccessDenied; check the permissions", path=path)
        if code != "NoSuchKey":
            raise StorageError(f"the object could not be deleted: {code}; try again", path=path, code=code)


def _parsed(body: bytes, path: str) -> ET.Element:
    try:
        return parse_xml(body)
    except (ET.ParseError, ValueError):
        raise _bad_answer(path) from None


def _bad_answer(path: str) -> StorageError:
    return StorageError(
        "the store's answer to a write cannot be understood; is endpoint_url that of an S3 store?",
        kind="BadAnswer",
        path=path,
    )


def _mismatch(path: str, sent: StoredChecksum, stored: StoredChecksum) -> StorageError:
    return StorageError(
        f"the store holds other bytes than were sent: their CRC-32 is {stored.value:08x}, it should be"
        f" {sent.value:08x}; write the object again",
        kind="ChecksumMismatch",
        path=path,
    )
