"""Checks SigV4 signatures of requests to a simulated cold store, in headers and in presigned URLs."""

from __future__ import annotations

import hmac
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Mapping

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/([^/]+)/s3/aws4_request, ?"
    r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})"
)
_CREDENTIAL = re.compile(r"([^/]+)/\d{8}/([^/]+)/s3/aws4_request")
_SIGNATURE_PARAMETER = "X-Amz-Signature"


def is_signed_with(secret_key: str, *, method: str, raw_path: str, headers: Mapping[str, str]) -> bool:
    """Tell whether a request carries a valid SigV4 signature by ``secret_key``.

    Args:
        secret_key: The secret that the client should have used; any access key id is accepted.
        method: HTTP method.
        raw_path: Path and query exactly as they arrived, because that is what a client must have signed.
        headers: The request's headers, looked up without regard to case.
    """
    if "Authorization" in headers:
        return _is_header_signed(secret_key, method, raw_path, headers)
    return _is_presigned(secret_key, method, raw_path, headers)


def _is_header_signed(secret_key: str, method: str, raw_path: str, headers: Mapping[str, str]) -> bool:
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


def _is_presigned(secret_key: str, method: str, raw_path: str, headers: Mapping[str, str]) -> bool:
    """Check a presigned URL, its age included."""
    from botocore.auth import S3SigV4QueryAuth  # noqa: PLC0415 - as above
    from botocore.awsrequest import AWSRequest  # noqa: PLC0415
    from botocore.credentials import Credentials  # noqa: PLC0415

    path, _, raw_query = raw_path.partition("?")
    query = dict(parse_qsl(raw_query))
    credential = _CREDENTIAL.fullmatch(query.get("X-Amz-Credential", ""))
    stamp, lifetime = query.get("X-Amz-Date", ""), query.get("X-Amz-Expires", "")
    if credential is None or not lifetime.isdecimal() or _has_expired(stamp, int(lifetime)):
        return False
    access_key, region = credential.groups()
    unsigned = "&".join(part for part in raw_query.split("&") if not part.startswith(f"{_SIGNATURE_PARAMETER}="))
    signed = {name: headers.get(name, "") for name in query.get("X-Amz-SignedHeaders", "").split(";")}
    url = f"http://{headers.get('Host', '')}{path}?{unsigned}"
    request = AWSRequest(method=method, url=url, headers=signed)
    request.context["timestamp"] = stamp
    signer = S3SigV4QueryAuth(Credentials(access_key, secret_key), "s3", region)
    expected = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    return hmac.compare_digest(expected, query[_SIGNATURE_PARAMETER])


def _has_expired(stamp: str, lifetime_s: int) -> bool:
    try:
        signed_at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return True
    return datetime.now(UTC) > signed_at + timedelta(seconds=lifetime_s)
