"""Where a bucket answers: host, path style and proxy, worked out once per bucket."""

from __future__ import annotations

import re
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from coldparquet.storage.s3.credentials import S3Account
    from coldparquet.storage.s3.options import S3Options

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""What may stand in a host name or path; S3's stricter rules of length are the server's to enforce."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAddress:
    """How to reach one bucket."""

    base_url: str
    """Ends with a slash; the percent-encoded key follows."""
    host: str
    """Value of the Host header."""
    region: str
    """Region that the signature names."""
    proxy: str | None = field(repr=False)
    """Proxy from the environment, which may hold a password; None goes straight."""


def bucket_address(bucket: str, region: str, account: S3Account, options: S3Options) -> BucketAddress:
    """Return the address of ``bucket``.

    Raises:
        InvalidInputError: ``bucket`` cannot be the name of a bucket; access points are not supported.
    """
    if not _BUCKET.fullmatch(bucket):
        raise InvalidInputError(
            f"{bucket!r} is not a bucket's name; paths look like 'bucket/key'", path=bucket, kind="BadBucketName"
        )
    if account.endpoint_url:
        endpoint = account.endpoint_url
        style = "path" if account.addressing_style == "auto" else account.addressing_style
    else:
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        endpoint = f"{'https' if options.use_tls else 'http'}://s3.{'dualstack.' if account.use_dualstack else ''}{region}.{suffix}"
        # A dot in the bucket does not match the wildcard certificate *.s3.region.amazonaws.com.
        style = "path" if account.addressing_style == "path" or "." in bucket else "virtual"
    parts = urlsplit(endpoint)
    host = parts.netloc if style == "path" else f"{bucket}.{parts.netloc}"
    folder = f"{parts.path}/{bucket}/" if style == "path" else f"{parts.path}/"
    return BucketAddress(
        base_url=f"{parts.scheme}://{host}{folder}",
        host=host,
        region=region,
        proxy=environment_proxy(parts.scheme, host),
    )


def environment_proxy(scheme: str, host: str) -> str | None:
    """Return the proxy that the environment names for a host; None goes straight."""
    # Looked up here and not by aiohttp's trust_env, which would also read ~/.netrc for every request.
    proxy = urllib.request.getproxies().get(scheme)
    return None if proxy is None or urllib.request.proxy_bypass(host) else proxy
