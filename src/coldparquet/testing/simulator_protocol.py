"""The words of S3's HTTP: ranges in, XML documents and signatures, as far as a read-only store needs them."""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.etree import ElementTree as ET

from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coldparquet.testing.simulator_objects import ListPage, StoredObject

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/([^/]+)/s3/aws4_request, ?"
    r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})"
)


def resolve_range(header: str | None, size_bytes: int) -> tuple[HTTPStatus, ByteRange]:
    """Return the status of the answer to a Range header, and the bytes that it carries.

    Args:
        header: The header, or None. What is not one valid range (RFC 9110 section 14.2) is ignored, as S3 does.
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


def list_document(bucket: str, page: ListPage, query: Mapping[str, str], max_keys: int) -> bytes:
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
        _add_object(root, text(found.key), found)
    for prefix in page.common_prefixes:
        ET.SubElement(ET.SubElement(root, "CommonPrefixes"), "Prefix").text = text(prefix)
    return _document(root)


def list_position(query: Mapping[str, str]) -> str:
    """Return the name behind which the asked page of a listing begins; empty for the first page.

    Raises:
        ValueError: The continuation token is none of ours.
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


def is_signed_with(secret_key: str, *, method: str, raw_path: str, headers: Mapping[str, str]) -> bool:
    """Tell whether a request carries a valid SigV4 signature by ``secret_key``.

    Args:
        secret_key: The secret that the client should have used; any access key id is accepted.
        method: HTTP method.
        raw_path: Path and query exactly as they arrived, because that is what a client must have signed.
        headers: The request's headers, looked up without regard to case.
    """
    from botocore.auth import S3SigV4Auth  # noqa: PLC0415 - only servers that check signatures need botocore
    from botocore.awsrequest import AWSRequest  # noqa: PLC0415
    from botocore.credentials import Credentials  # noqa: PLC0415

    match = _AUTHORIZATION.fullmatch(headers.get("Authorization", ""))
    if not match:
        return False
    access_key, region, signed_headers, signature = match.groups()
    signed = {name: headers.get(name, "") for name in signed_headers.split(";")}
    request = AWSRequest(method=method, url=f"http://{headers.get('Host', '')}{raw_path}", headers=signed)
    request.context["timestamp"] = headers.get("x-amz-date", "")
    signer = S3SigV4Auth(Credentials(access_key, secret_key), "s3", region)
    expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return hmac.compare_digest(expected, signature)


def _add_object(root: ET.Element, key: str, found: StoredObject) -> None:
    entry = ET.SubElement(root, "Contents")
    modified = datetime.fromtimestamp(found.modified_ns // 1_000_000 / 1_000, tz=UTC)
    ET.SubElement(entry, "Key").text = key
    ET.SubElement(entry, "LastModified").text = modified.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    ET.SubElement(entry, "ETag").text = found.etag
    ET.SubElement(entry, "Size").text = str(found.size_bytes)
    ET.SubElement(entry, "StorageClass").text = "STANDARD"


def _document(root: ET.Element) -> bytes:
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root)
