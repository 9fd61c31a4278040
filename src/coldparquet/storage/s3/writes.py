"""The words of S3's writes: conditions and checksums in headers, uploads in parts and deletions in XML."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from coldparquet.errors import AccessError, StorageError
from coldparquet.storage.http.patience import read_up_to
from coldparquet.storage.objects import StoredChecksum
from coldparquet.storage.s3.errors import parse_xml
from coldparquet.storage.s3.object_facts import CRC32_HEADER, checksum_text, parse_checksum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import aiohttp

    from coldparquet.storage.objects import UploadedPart

MAX_DELETED_KEYS = 1_000
"""As many keys as one DeleteObjects request may name."""

_MAX_ANSWER_BYTES = 1024 * 1024
"""Answers to deletions name at most 1,000 keys of 1,024 bytes, and only those that failed."""
_IN_THREAD_BYTES = 256 * 1024
_LONGEST_ANSWER_STALLS = 30
"""While S3 puts an upload together or copies an object, which may take minutes, it sends blanks now and then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAnswer:
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
    """Compare the checksum that the store names in its answer with that of what was sent.

    Raises:
        StorageError: ``kind="ChecksumMismatch"``.
    """
    stored = parse_checksum(answer.headers.get(CRC32_HEADER))
    if stored is not None and stored.part_count is None and stored.value != crc32:
        raise _mismatch(path, StoredChecksum(value=crc32), stored)


def parse_upload_id(body: bytes, *, path: str) -> str:
    """Return the id that CreateMultipartUpload gave.

    Raises:
        StorageError: ``kind="BadAnswer"``.
    """
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
    """Tell whether an answer with status 200 is an error all the same, as that to CompleteMultipartUpload may be.

    Raises:
        StorageError: ``kind="BadAnswer"``.
    """
    return _parsed(body, path).tag == "Error"


def parse_completed(body: bytes, parts: Sequence[UploadedPart], *, path: str) -> str | None:
    """Return the ETag of a finished upload, after its checksum was compared.

    Raises:
        StorageError: ``kind="ChecksumMismatch"`` or ``kind="BadAnswer"``.
    """
    root = _parsed(body, path)
    stored = parse_checksum(root.findtext("ChecksumCRC32"))
    expected = StoredChecksum.of_parts([part.crc32 for part in parts])
    # A store may also answer the CRC-32 of all bytes, which cannot be compared with those of the parts.
    if stored is not None and stored.part_count is not None and stored != expected:
        raise _mismatch(path, expected, stored)
    return root.findtext("ETag")


def parse_copied(body: bytes, *, path: str) -> str | None:
    """Return the ETag of the copy that CopyObject made.

    Raises:
        StorageError: ``kind="BadAnswer"``.
    """
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
