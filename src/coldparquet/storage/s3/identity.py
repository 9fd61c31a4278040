"""Who we are to S3 and where it lies: accounts of the AWS environment, and SigV4 signatures by botocore."""

from __future__ import annotations

import asyncio
import hmac
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.configloader import load_config, raw_config_parse
from botocore.credentials import Credentials, EnvProvider
from botocore.exceptions import BotoCoreError, ConfigNotFound, ProfileNotFound
from botocore.utils import ensure_boolean

from coldparquet.errors import AccessError, ColdParquetError, InvalidInputError
from coldparquet.storage.s3.parameters import check_addressing_style, check_endpoint_url
from coldparquet.storage.urls import boolean_option

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials

    from coldparquet.storage.s3.parameters import S3Options


DEFAULT_REGION = "us-east-1"
_REDACTED = "***"
_SHORT_SECRET_LETTERS = 8
_SIGNATURE = re.compile(r"[0-9a-f]{64}")
_HASH_IN_THREAD_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Account:
    """Credentials, region and endpoint after options, environment and profile had their say."""

    region: str
    endpoint_url: str | None
    """None means AWS itself."""
    ca_bundle: str | None
    """File of trusted certificate authorities from the AWS configuration."""
    addressing_style: str
    """As in :class:`~coldparquet.storage.s3.parameters.S3Options`."""
    use_dualstack: bool
    """Whether AWS is reached by its hosts with IPv6 addresses."""
    credentials: Credentials | None = field(repr=False)
    """None sends unsigned requests."""


_FOLLOWED_METHODS = {"explicit", "env", "shared-credentials-file", "config-file", "boto-config"}
"""Ways of botocore to credentials that are in the options, in the environment or in a file that is looked at."""

_MOST_ACCOUNTS = 32
"""Kept by a process; those that were looked up longest ago go first."""

_accounts: dict[S3Options, tuple[object, S3Account]] = {}
"""By what was asked for: what they were looked up in, and what was found."""

if hasattr(os, "register_at_fork"):  # another thread may have held a lock of the credentials, which a child never gets
    os.register_at_fork(after_in_child=_accounts.clear)


def known_account(options: S3Options) -> S3Account | None:
    """Return the account where nothing has to be looked up: it is stated, or this process has looked it up before.

    A change of the AWS environment variables or configuration files is noticed. So is the end of credentials that expire;
    before it, botocore renews them.
    """
    stated = stated_account(options)
    kept = _accounts.get(options)
    if stated is not None or kept is None:
        return stated
    looked_up_in, account = kept
    expires = getattr(account.credentials, "refresh_needed", None)  # only renewable credentials have it
    is_over = expires is not None and expires(0)
    return None if is_over or looked_up_in != _surroundings() else account


def forget_account(options: S3Options) -> None:
    """Look the account up again when it is next wanted: the store has refused it."""
    _accounts.pop(options, None)


def resolve_account(options: S3Options) -> S3Account:
    """Look up what ``options`` leave open, and keep it. Blocks on files and, on AWS machines, on the metadata service."""
    account = stated_account(options)
    if account is not None:
        return account
    surroundings = _surroundings()
    failure: ColdParquetError
    try:
        account = _looked_up(options)
    except ProfileNotFound as error:
        failure = _unknown_profile(error.kwargs["profile"], is_given=options.profile is not None)
    except BotoCoreError as error:
        failure = _credentials_failed(error)
    else:
        forget_account(options)
        if _are_followed(account.credentials):
            _accounts[options] = surroundings, account
        for oldest in list(_accounts)[:-_MOST_ACCOUNTS]:
            forget_account(oldest)
        return account
    # Raised out here so that botocore's exception, whose text may quote a credential process, is not its context.
    raise failure


def _are_followed(credentials: Credentials | None) -> bool:
    """Tell whether new credentials in the same place will be noticed: those that a program or a service told for ever will not."""
    return credentials is None or hasattr(credentials, "refresh_needed") or credentials.method in _FOLLOWED_METHODS


def _looked_up(options: S3Options) -> S3Account:
    """Read the environment and the configuration as botocore's session does, which costs twenty times as much to make."""
    full = _configuration()
    scoped = _profile_of(full, options.profile)
    of_s3 = scoped["s3"] if isinstance(scoped.get("s3"), dict) else {}  # botocore leaves a malformed one as text
    return S3Account(
        region=options.region
        or os.environ.get("AWS_DEFAULT_REGION", scoped.get("region"))
        or os.environ.get("AWS_REGION")
        or DEFAULT_REGION,
        endpoint_url=options.endpoint_url or _configured_endpoint(scoped, full),
        ca_bundle=os.environ.get("AWS_CA_BUNDLE", scoped.get("ca_bundle")),
        addressing_style=options.addressing_style or check_addressing_style(of_s3.get("addressing_style", "auto")),
        use_dualstack=_use_dualstack(options, of_s3, scoped),
        credentials=None if options.anonymous else _credentials(options),
    )


def _configuration() -> dict[str, Any]:
    """Return the AWS configuration: its profiles, to which the file of credentials adds, and its other sections."""
    config, credentials = _configuration_files()
    try:
        full: dict[str, Any] = load_config(config)
    except ConfigNotFound:
        full = {"profiles": {}}
    with suppress(ConfigNotFound):
        for name, values in raw_config_parse(credentials).items():
            full["profiles"].setdefault(name, {}).update(values)
    return full


def _configuration_files() -> tuple[str, str]:
    return (
        os.environ.get("AWS_CONFIG_FILE", "~/.aws/config"),
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    )


def _profile_of(full: dict[str, Any], given: str | None) -> dict[str, Any]:
    """Return the settings of the profile that was given, or that the environment names."""
    named = (os.environ[name] for name in ("AWS_DEFAULT_PROFILE", "AWS_PROFILE") if name in os.environ)
    name = given or next(named, None)
    if name is not None and name not in full["profiles"]:
        raise ProfileNotFound(profile=name)
    found: dict[str, Any] = full["profiles"].get("default" if name is None else name, {})
    return found


def _surroundings() -> object:
    """Return all that an account is looked up in, to be compared: environment variables, and the state of files."""
    names = sorted(name for name in os.environ if name.startswith(("AWS_", "BOTO_", "HOME")))
    variables = [(name, os.environ.get(name)) for name in names]
    files = (*_configuration_files(), os.environ.get("BOTO_CONFIG", "~/.boto"), "/etc/boto.cfg")
    return variables, [state_of_file(path) for path in files]


def state_of_file(path: str) -> tuple[int, ...] | None:
    """Return what changes when a file is written or replaced; None where there is none."""
    try:
        found = Path(os.path.expandvars(path)).expanduser().stat()
    except (OSError, RuntimeError, ValueError):
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def stated_account(options: S3Options) -> S3Account | None:
    """Return the account where ``options`` say everything, at once; None where the AWS configuration has a say.

    Loading its files takes botocore a tenth of a second. Unsigned requests to an endpoint need no region.
    """
    has_signer = options.anonymous or bool(options.key and options.secret and options.region)
    if options.profile or not options.endpoint_url or not has_signer:
        return None
    return S3Account(
        region=options.region or DEFAULT_REGION,
        endpoint_url=options.endpoint_url,
        ca_bundle=os.environ.get("AWS_CA_BUNDLE"),
        addressing_style=options.addressing_style or "auto",
        use_dualstack=False,  # an endpoint is given, whose name is its own
        credentials=None if options.anonymous else Credentials(options.key or "", options.secret or "", options.token),
    )


def _credentials(options: S3Options) -> Credentials:
    if options.key and options.secret:
        return Credentials(options.key, options.secret, options.token)
    found: Credentials | None = EnvProvider().load() if options.profile is None else None
    if found is None:
        from botocore.session import Session  # noqa: PLC0415 - for those whose keys lie elsewhere

        found = Session(profile=options.profile).get_credentials()
    if found is None:
        raise AccessError(
            "no AWS credentials found; give key and secret or a profile in storage_options, set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or pass anon=True for a public bucket",
            kind="NoCredentials",
        )
    # The first freeze is where deferred providers (SSO, assumed roles) make their requests: do it in this thread.
    found.get_frozen_credentials()
    return found


def _use_dualstack(options: S3Options, of_s3: dict[str, Any], scoped: dict[str, Any]) -> bool:
    if options.use_dualstack is not None:
        return options.use_dualstack
    everywhere = ensure_boolean(os.environ.get("AWS_USE_DUALSTACK_ENDPOINT", scoped.get("use_dualstack_endpoint")))
    return boolean_option(of_s3, "use_dualstack_endpoint", default=everywhere)


def _configured_endpoint(scoped: dict[str, Any], full: dict[str, Any]) -> str | None:
    """Return the endpoint of environment or profile, in the order of the AWS SDK reference.

    Source: https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html
    """
    ignored = os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", scoped.get("ignore_configured_endpoint_urls", ""))
    if str(ignored).lower() == "true":
        return None
    services = full.get("services", {}).get(scoped.get("services"), {})
    url = (
        os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
        or (services["s3"].get("endpoint_url") if isinstance(services.get("s3"), dict) else None)
        or scoped.get("endpoint_url")
    )
    return check_endpoint_url(url) if url else None


def _unknown_profile(name: str, *, is_given: bool) -> InvalidInputError:
    # botocore looks at AWS_DEFAULT_PROFILE first.
    variable = "AWS_DEFAULT_PROFILE" if "AWS_DEFAULT_PROFILE" in os.environ else "AWS_PROFILE"
    origin = "the storage option profile" if is_given else f"the environment variable {variable}"
    return InvalidInputError(
        f"the AWS configuration has no profile {name!r}, which {origin} names; aws configure list-profiles shows what it has",
        kind="UnknownProfile",
    )


def _credentials_failed(error: BotoCoreError) -> AccessError:
    return AccessError(
        f"fetching AWS credentials failed ({type(error).__name__}); check the profile, log in again (aws sso login), "
        "or give key and secret in storage_options",
        kind="NoCredentials",
    )


def _check_characters(credentials: ReadOnlyCredentials) -> None:
    """Refuse what came along with a copy, such as the line break behind the last line of a file."""
    parts = {"access key id": credentials.access_key, "secret": credentials.secret_key, "token": credentials.token}
    for name, value in parts.items():
        if value and not (isinstance(value, str) and value.isprintable() and value == value.strip()):
            raise AccessError(
                f"the {name} of the AWS credentials holds a line break or another character that none has; look for one at"
                " its end",
                kind="BadCredentials",
            )


class RequestSigner:
    """Signs requests with the account's credentials, which botocore renews before they expire.

    Args:
        credentials: From :func:`resolve_account`; None signs nothing.
    """

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._renewal = asyncio.Lock()
        self._signers: dict[str, _RegionSigner] = {}
        """One per region, as long as the credentials stay the same."""
        self._last_access_key: str | None = None

    @property
    def access_key(self) -> str | None:
        """Of the credentials that signed last; None where nothing was signed."""
        return self._last_access_key

    async def sign(self, method: str, url: str, headers: dict[str, str], *, body: bytes, region: str) -> None:
        """Add the signature to ``headers``, over what they hold so far; headers added later are not covered."""
        if self._credentials is None:
            return
        frozen = await self._frozen(self._credentials)
        self._last_access_key = frozen.access_key
        signer = self._signers.get(region)
        if signer is None or signer.credentials != frozen:
            _check_characters(frozen)
            signer = self._signers[region] = _RegionSigner(frozen, region)
        # Large bodies are hashed in a thread, so that other requests go on meanwhile.
        digest = sha256(body) if len(body) < _HASH_IN_THREAD_BYTES else await asyncio.to_thread(sha256, body)
        signer.add_signature(method, url, headers, digest.hexdigest())

    def redact(self, text: str) -> str:
        """Return what a server says without our credentials and signatures, should it echo them.

        Credentials of a few letters, as test servers have them, are looked for as whole words: they are in every text.
        """
        # The attributes of renewable credentials may fetch; those of the signers in use do not.
        for signer in self._signers.values():
            for secret in (signer.credentials.secret_key, signer.credentials.token, signer.credentials.access_key):
                if secret and len(secret) < _SHORT_SECRET_LETTERS:
                    text = re.sub(rf"(?<![\w'-]){re.escape(secret)}(?![\w'-])", _REDACTED, text)
                elif secret:
                    text = text.replace(secret, _REDACTED)
        return _SIGNATURE.sub(_REDACTED, text)

    async def _frozen(self, credentials: Credentials) -> ReadOnlyCredentials:
        refresh_needed = getattr(credentials, "refresh_needed", None)  # only renewable credentials have it
        if refresh_needed is None or not refresh_needed():
            return credentials.get_frozen_credentials()
        failure: AccessError
        async with self._renewal:
            try:
                return await asyncio.to_thread(credentials.get_frozen_credentials)
            except BotoCoreError as error:
                failure = _credentials_failed(error)
        raise failure


class _RegionSigner:
    """botocore's SigV4 for one set of credentials and one region.

    Its steps are called one by one: ``add_auth``, which does them all, writes session tokens to the debug log and
    costs twice the time. The signing key, which changes once a day, is kept.
    """

    def __init__(self, credentials: ReadOnlyCredentials, region: str) -> None:
        self.credentials = credentials
        self._auth = S3SigV4Auth(credentials, "s3", region)
        self._region = region
        self._day = ""
        self._key = b""

    def add_signature(self, method: str, url: str, headers: dict[str, str], body_sha256: str) -> None:
        """Add date, digest, token and ``Authorization`` to ``headers``, which must hold ``Host``."""
        timestamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        headers["X-Amz-Date"] = timestamp
        headers["X-Amz-Content-SHA256"] = body_sha256
        if self.credentials.token:
            headers["X-Amz-Security-Token"] = self.credentials.token
        request = AWSRequest(method=method, url=url, headers=headers)
        request.context["timestamp"] = timestamp
        string_to_sign = self._auth.string_to_sign(request, self._auth.canonical_request(request))
        signature = hmac.digest(self._signing_key(timestamp[:8]), string_to_sign.encode(), "sha256").hex()
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._auth.scope(request)}, "
            f"SignedHeaders={self._auth.signed_headers(request.headers)}, Signature={signature}"
        )

    def _signing_key(self, day: str) -> bytes:
        """Return the key of the day: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html."""
        if day != self._day:
            key = f"AWS4{self.credentials.secret_key}".encode()
            for part in (day, self._region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._day, self._key = day, key
        return self._key
