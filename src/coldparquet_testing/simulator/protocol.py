"""Encodes and parses S3's HTTP: ranges and XML documents, as far as the simulated store needs them."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.etree import ElementTree as ET

from coldparquet.ranges import ByteRange
from coldparquet_testing.simulator.objects import AnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coldparquet_testing.simulator.checksums import Algorithm, ObjectChecksum
    from coldparquet_testing.simulator.classes import ObjectClass
    from coldparquet_testing.simulator.objects import ListPage, StoredObject


_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def resolve_range(header: str | None, size_bytes: int) -> tuple[HTTPStatus, ByteRange]:
    """Return the status of the answer to a Range header, and the bytes that it carries.

    Args:
        header: The header, or None. All but one valid range (RFC 9110 section 14.2) is ignored, as S3 does.
        size_bytes: Length of the object.

    Returns:
        200 with the whole object, 206 with a part of it, or 416 with nothing when the range begins behind the end.
    """
    whole = HTTPStatus.OK, ByteRange(0, size_bytes)
    nothing = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, ByteRange(0, 0)
    match = _RANGE.fullmatch(header or "")
    if not match or not (match[1] or match[2]):
        return whole
    if not match[1]:
        length = min(int(match[2]), size_bytes)
        return (HTTPStatus.PARTIAL_CONTENT, ByteRange(size_bytes - length, size_bytes)) if length else nothing
    start = int(match[1])
    stop = int(match[2]) + 1 if match[2] else max(size_bytes, start + 1)
    if stop <= start:
        return whole
    if start >= size_bytes:
        return nothing
    return HTTPStatus.PARTIAL_CONTENT, ByteRange(start, min(stop, size_bytes))


def error_document(code: str, message: str, resource: str, request_id: str, **facts: str) -> bytes:
    """Return the XML body of an error answer."""
    root = ET.Element("Error")
    for name, text in {
        "Code": code,
        "Message": message,
        "Resource": resource,
        "RequestId": request_id,
        **facts,
    }.items():
        ET.SubElement(root, name).text = text
    return _document(root)


def list_document(
    bucket: str,
    page: ListPage,
    query: Mapping[str, str],
    max_keys: int,
    *,
    storage_class_of: Callable[[StoredObject], str],
) -> bytes:
    """Return the XML body of a ListObjectsV2 answer to the request with this ``query``."""
    encoded = query.get("encoding-type") == "url"

    def text(value: str) -> str:
        return quote(value, safe="/") if encoded else value

    root = ET.Element("ListBucketResult", xmlns=_NAMESPACE)
    fields = {
        "Name": bucket,
        "Prefix": text(query.get("prefix", "")),
        "MaxKeys": str(max_keys),
        "KeyCount": str(len(page.objects) + len(page.common_prefixes)),
        "IsTruncated": "true" if page.next_after else "false",
    }
    if delimiter := query.get("delimiter"):
        fields["Delimiter"] = text(delimiter)
    if encoded:
        fields["EncodingType"] = "url"
    if token := query.get("continuation-token"):
        fields["ContinuationToken"] = token
    if page.next_after:
        fields["NextContinuationToken"] = urlsafe_b64encode(page.next_after.encode()).decode()
    for name, value in fields.items():
        ET.SubElement(root, name).text = value
    for found in page.objects:
        _add_object(root, text(found.key), found, storage_class_of(found))
    for prefix in page.common_prefixes:
        ET.SubElement(ET.SubElement(root, "CommonPrefixes"), "Prefix").text = text(prefix)
    return _document(root)


def list_position(query: Mapping[str, str]) -> str:
    """Return the name behind which the requested page of a listing begins; empty for the first page.

    Raises:
        ValueError: The continuation token is not from this store.
    """
    if token := query.get("continuation-token"):
        return urlsafe_b64decode(token.encode()).decode()
    return query.get("start-after", "")


def buckets_document(buckets: list[str]) -> bytes:
    """Return the XML body of a ListBuckets answer."""
    root = ET.Element("ListAllMyBucketsResult", xmlns=_NAMESPACE)
    owner = ET.SubElement(root, "Owner")
    ET.SubElement(owner, "ID").text = "cold-store"
    listed = ET.SubElement(root, "Buckets")
    for bucket in buckets:
        entry = ET.SubElement(listed, "Bucket")
        ET.SubElement(entry, "Name").text = bucket
        ET.SubElement(entry, "CreationDate").text = "2024-01-01T00:00:00.000Z"
    return _document(root)


def location_document() -> bytes:
    """Return the XML body of a GetBucketLocation answer: us-east-1, which S3 writes as an empty element."""
    return _document(ET.Element("LocationConstraint", xmlns=_NAMESPACE))


def upload_document(bucket: str, key: str, upload_id: str) -> bytes:
    """Return the XML body of a CreateMultipartUpload answer."""
    root = ET.Element("InitiateMultipartUploadResult", xmlns=_NAMESPACE)
    for name, value in {"Bucket": bucket, "Key": key, "UploadId": upload_id}.items():
        ET.SubElement(root, name).text = value
    return _document(root)


def completed_document(bucket: str, key: str, facts: ObjectFacts) -> bytes:
    """Return the XML body of a CompleteMultipartUpload answer."""
    root = ET.Element("CompleteMultipartUploadResult", xmlns=_NAMESPACE)
    checksum = facts.checksum
    named = {"Bucket": bucket, "Key": key, "ETag": facts.etag, f"Checksum{checksum.algorithm}": checksum.value}
    for name, value in named.items():
        ET.SubElement(root, name).text = value
    return _document(root)


def copied_document(facts: ObjectFacts) -> bytes:
    """Return the XML body of a CopyObject answer."""
    root = ET.Element("CopyObjectResult", xmlns=_NAMESPACE)
    ET.SubElement(root, "ETag").text = facts.etag
    return _document(root)


def uploads_document(bucket: str, uploads: list[PendingUpload], query: Mapping[str, str]) -> bytes:
    """Return the XML body of a ListMultipartUploads answer; it has one page."""
    encoded = query.get("encoding-type") == "url"
    root = ET.Element("ListMultipartUploadsResult", xmlns=_NAMESPACE)
    ET.SubElement(root, "Bucket").text = bucket
    ET.SubElement(root, "IsTruncated").text = "false"
    if encoded:
        ET.SubElement(root, "EncodingType").text = "url"
    for upload in uploads:
        entry = ET.SubElement(root, "Upload")
        ET.SubElement(entry, "Key").text = quote(upload.key, safe="/") if encoded else upload.key
        ET.SubElement(entry, "UploadId").text = upload.upload_id
        ET.SubElement(entry, "Initiated").text = _iso(upload.started_s)
    return _document(root)


def deleted_document() -> bytes:
    """Return the XML body of an answer to a quiet, fully successful DeleteObjects."""
    return _document(ET.Element("DeleteResult", xmlns=_NAMESPACE))


def texts_in(body: bytes, name: str) -> list[str]:
    """Return the texts of all elements with this name in a client's document.

    Raises:
        AnswerError: It is not XML.
    """
    try:
        root = ET.fromstring(body)  # noqa: S314 - from a test on this machine
    except ET.ParseError:
        raise AnswerError(HTTPStatus.BAD_REQUEST, "MalformedXML", "The XML you provided was not well-formed.") from None
    return [element.text or "" for element in root.iter() if element.tag.rpartition("}")[2] == name]


def _iso(seconds: float) -> str:
    moment = datetime.fromtimestamp(int(seconds * 1_000) / 1_000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _add_object(root: ET.Element, key: str, found: StoredObject, storage_class: str) -> None:
    entry = ET.SubElement(root, "Contents")
    ET.SubElement(entry, "Key").text = key
    ET.SubElement(entry, "LastModified").text = _iso(found.modified_ns / 1e9)
    ET.SubElement(entry, "ETag").text = found.etag
    ET.SubElement(entry, "Size").text = str(found.size_bytes)
    ET.SubElement(entry, "StorageClass").text = storage_class


def _document(root: ET.Element) -> bytes:
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFacts:
    """Facts about an object that a file cannot express."""

    etag: str
    """Version of the object."""
    checksum: ObjectChecksum
    storage_class: ObjectClass


@dataclass(slots=True, kw_only=True)
class PendingUpload:
    """A multipart upload that is neither completed nor aborted."""

    bucket: str
    key: str
    upload_id: str
    started_s: float
    """Seconds since 1970."""
    storage_class: ObjectClass
    algorithm: Algorithm
    is_composite: bool
    """Whether its checksum is computed from the checksums of its parts, or from all bytes."""
    parts: dict[int, tuple[Path, ObjectChecksum]] = field(default_factory=dict)
    """File and checksum of each part, by its number."""
