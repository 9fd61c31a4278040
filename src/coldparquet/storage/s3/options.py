"""``storage_options`` for S3, as users of fsspec and s3fs write them, checked and in one place."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from coldparquet.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MEANINGFUL = frozenset(
    {
        "anon",
        "client_kwargs",
        "config_kwargs",
        "endpoint_url",
        "key",
        "password",
        "profile",
        "requester_pays",
        "secret",
        "token",
        "use_ssl",
        "username",
    }
)
_MEANINGFUL_TO_S3FS_ONLY = frozenset(
    {
        "asynchronous",
        "cache_regions",
        "default_block_size",
        "default_cache_type",
        "default_fill_cache",
        "fixed_upload_size",
        "listings_expiry_time",
        "local_expiry_check",
        "loop",
        "max_concurrency",
        "max_paths",
        "skip_instance_cache",
        "use_listings_cache",
        "version_aware",
    }
)
"""Caches and buffers of s3fs: without meaning here, and harmless to leave in options that both libraries get."""

_CLIENT_KWARGS = frozenset(
    {
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "endpoint_url",
        "region_name",
        "use_ssl",
        "verify",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """What the caller said about an S3 store; None where the environment or the AWS profile decides."""

    key: str | None = field(default=None, repr=False)
    """Access key id."""
    secret: str | None = field(default=None, repr=False)
    """Secret access key."""
    token: str | None = field(default=None, repr=False)
    """Session token of temporary credentials."""
    anonymous: bool = False
    """Send unsigned requests, for public buckets."""
    profile: str | None = None
    """AWS profile to take credentials, region and endpoint from."""
    endpoint_url: str | None = None
    """Scheme, host and port of a store other than AWS."""
    region: str | None = None
    """Region of the buckets; a wrong one costs one more request."""
    verify: bool | str = True
    """Check the server's certificate: False is no, a path names a file of trusted authorities."""
    use_tls: bool = True
    """Speak https to AWS; a custom endpoint's own scheme decides for that."""
    addressing_style: str = "auto"
    """``path``, ``virtual`` or ``auto``: path for custom endpoints and buckets with a dot, else virtual-hosted."""
    requester_pays: bool = False
    """Agree to pay for the requests to somebody else's bucket."""


def parse_s3_options(storage_options: Mapping[str, Any]) -> S3Options:
    """Check ``storage_options`` and bring their several spellings together.

    Args:
        storage_options: ``key``, ``secret``, ``token`` (or s3fs's ``username``, ``password``), ``anon``, ``profile``,
            ``endpoint_url``, ``use_ssl``, ``requester_pays``, ``client_kwargs`` (``endpoint_url``, ``region_name``,
            ``verify``, ``use_ssl``, ``aws_access_key_id``, ``aws_secret_access_key``, ``aws_session_token``) and
            ``config_kwargs`` (``region_name``, ``s3.addressing_style``). Options of s3fs's caches are ignored.

    Raises:
        InvalidInputError: An option is unknown, half a pair, or has a value that cannot be meant. Values are not
            repeated in the message, since they may be secrets.
    """
    _refuse_unknown("storage option", storage_options, _MEANINGFUL, _MEANINGFUL_TO_S3FS_ONLY)
    client = storage_options.get("client_kwargs") or {}
    config = storage_options.get("config_kwargs") or {}
    _refuse_unknown("client_kwargs option", client, _CLIENT_KWARGS, ())
    s3_config = config.get("s3") or {}

    key = storage_options.get("key") or storage_options.get("username") or client.get("aws_access_key_id")
    secret = storage_options.get("secret") or storage_options.get("password") or client.get("aws_secret_access_key")
    if bool(key) != bool(secret):
        raise InvalidInputError(
            f"storage_options give {'key without secret' if key else 'secret without key'}; give both, or neither to "
            "use the AWS environment",
            kind="IncompleteCredentials",
        )
    endpoint_url = storage_options.get("endpoint_url") or client.get("endpoint_url")
    style = s3_config.get("addressing_style") or "auto"
    if style not in ("auto", "path", "virtual"):
        raise InvalidInputError("config_kwargs.s3.addressing_style must be 'auto', 'path' or 'virtual'", field="s3")
    return S3Options(
        key=key or None,
        secret=secret or None,
        token=storage_options.get("token") or client.get("aws_session_token") or None,
        anonymous=bool(storage_options.get("anon")),
        profile=storage_options.get("profile") or None,
        endpoint_url=check_endpoint_url(endpoint_url) if endpoint_url else None,
        region=client.get("region_name") or config.get("region_name") or None,
        verify=client.get("verify", True) if client.get("verify") is not None else True,
        use_tls=bool(storage_options.get("use_ssl", client.get("use_ssl", True))),
        addressing_style=style,
        requester_pays=bool(storage_options.get("requester_pays")),
    )


def check_endpoint_url(url: str) -> str:
    """Return ``url`` without a trailing slash.

    Raises:
        InvalidInputError: It is no plain http or https address: credentials and queries do not belong there, because
            an endpoint appears in messages.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise InvalidInputError(
            "endpoint_url must look like http://host:port or https://host, without credentials or query; "
            "credentials go into key and secret",
            kind="BadEndpoint",
        )
    return url.rstrip("/")


def _refuse_unknown(what: str, given: Mapping[str, Any], known: frozenset[str], ignored: Iterable[str]) -> None:
    for name in given:
        if name not in known and name not in ignored:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known ones are {', '.join(sorted(known))}"
            raise InvalidInputError(f"unknown {what} {name!r}; {hint}", kind="UnknownOption", option=name)
