"""What a caller says of S3: ``storage_options`` as s3fs takes them, in their several spellings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fsspec.config import conf

from coldparquet.errors import InvalidInputError
from coldparquet.storage.urls import boolean_option, mapping_option, refuse_unknown, text_option

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        "s3_additional_kwargs",
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
_CONFIG_KWARGS = frozenset({"region_name", "s3", "signature_version"})
_CONFIG_OF_BOTOCORE_ONLY = frozenset(
    {
        "connect_timeout",
        "max_pool_connections",
        "parameter_validation",
        "read_timeout",
        "retries",
        "tcp_keepalive",
        "user_agent",
        "user_agent_appid",
        "user_agent_extra",
    }
)
"""How patient botocore is, and how it calls itself: here ``StoreOptions`` say the former."""
_S3_CONFIG = frozenset({"addressing_style", "use_dualstack_endpoint"})
_SIGNATURE_VERSIONS = ("s3v4", "v4")
_WHO_ASKS = frozenset({"anon", "aws_access_key_id", "key", "password", "profile", "secret", "token", "username"})


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
    addressing_style: str | None = None
    """``path``, ``virtual`` or ``auto``: path for custom endpoints and buckets with a dot, else virtual-hosted."""
    use_dualstack: bool | None = None
    """Whether to reach AWS by the hosts that have IPv6 addresses as well."""
    requester_pays: bool = False
    """Agree to pay for the requests to another owner's bucket."""


def parse_s3_options(storage_options: Mapping[str, Any]) -> S3Options:
    """Check ``storage_options`` and bring their several spellings together."""
    refuse_unknown(storage_options, known=_MEANINGFUL, ignored=_MEANINGFUL_TO_S3FS_ONLY)
    client = mapping_option(storage_options, "client_kwargs")
    config = mapping_option(storage_options, "config_kwargs")
    refuse_unknown(client, known=_CLIENT_KWARGS, what="client_kwargs option")
    refuse_unknown(config, known=_CONFIG_KWARGS, ignored=_CONFIG_OF_BOTOCORE_ONLY, what="config_kwargs option")
    s3_config = mapping_option(config, "s3")
    refuse_unknown(s3_config, known=_S3_CONFIG, what="config_kwargs.s3 option")
    additional = mapping_option(storage_options, "s3_additional_kwargs")
    refuse_unknown(additional, known={"RequestPayer"}, what="s3_additional_kwargs option")

    key = text_option(storage_options, "key", "username") or text_option(client, "aws_access_key_id")
    secret = text_option(storage_options, "secret", "password") or text_option(client, "aws_secret_access_key")
    if bool(key) != bool(secret):
        raise InvalidInputError(
            f"storage_options give {'key without secret' if key else 'secret without key'}; give both, or neither to "
            "use the AWS environment",
            kind="IncompleteCredentials",
        )
    endpoint_url = text_option(storage_options, "endpoint_url") or text_option(client, "endpoint_url")
    style, dualstack = s3_config.get("addressing_style") or None, s3_config.get("use_dualstack_endpoint")
    if (config.get("signature_version") or "s3v4") not in _SIGNATURE_VERSIONS:
        raise InvalidInputError(
            "config_kwargs.signature_version must be 's3v4'; for unsigned requests pass anon=True", kind="BadOption"
        )
    return S3Options(
        key=key,
        secret=secret,
        token=text_option(storage_options, "token") or text_option(client, "aws_session_token"),
        anonymous=boolean_option(storage_options, "anon", default=False),
        profile=text_option(storage_options, "profile"),
        endpoint_url=check_endpoint_url(endpoint_url) if endpoint_url else None,
        region=text_option(client, "region_name") or text_option(config, "region_name"),
        verify=client.get("verify", True) if client.get("verify") is not None else True,
        use_tls=boolean_option(storage_options, "use_ssl", default=boolean_option(client, "use_ssl", default=True)),
        addressing_style=None if style is None else check_addressing_style(style),
        use_dualstack=None if dualstack is None else boolean_option(s3_config, "use_dualstack_endpoint", default=False),
        requester_pays=boolean_option(
            storage_options, "requester_pays", default=additional.get("RequestPayer") == "requester"
        ),
    )


def with_fsspec_config(storage_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``storage_options`` on top of what fsspec's own configuration says of S3, as s3fs takes them.

    A caller who names an identity gets nothing of the configured one: a key of one and a token of another are neither.
    """
    configured: dict[str, Any] = {**conf.get("s3a", {}), **conf.get("s3", {})}
    if not _WHO_ASKS.isdisjoint({*storage_options, *mapping_option(storage_options, "client_kwargs")}):
        configured = {name: value for name, value in configured.items() if name not in _WHO_ASKS}
    return {**configured, **storage_options}


def check_addressing_style(style: object) -> str:
    """Return ``style``."""
    if style not in ("auto", "path", "virtual"):
        raise InvalidInputError("the addressing_style of S3 must be 'auto', 'path' or 'virtual'", field="s3")
    return str(style)


def check_endpoint_url(url: str) -> str:
    """Return ``url`` without a trailing slash."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise InvalidInputError(
            "endpoint_url must look like http://host:port or https://host, without credentials or query; "
            "credentials go into key and secret",
            kind="BadEndpoint",
        )
    return url.rstrip("/")
