"""Sends requests to S3 and reads the answers, with as little processor time as Python allows.

aiohttp moves the bytes and botocore signs; s3fs, which brings both, spends several times as much on a 64 KiB GET.
No request is repeated here, other than once when the answer names the region in which the bucket lies. Credentials that
have expired are replaced, where the AWS environment has newer ones by now, and the error says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import ssl
import time
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

from botocore.exceptions import BotoCoreError
from yarl import URL

from coldparquet.errors import AccessError, ColdParquetError, InvalidInputError
from coldparquet.options import StoreOptions
from coldparquet.storage.cache import writes
from coldparquet.storage.http import (
    USER_AGENT,
    HttpCall,
    HttpClient,
    environment_proxy,
)
from coldparquet.storage.http_errors import EXPIRED_CODES, Refusal, refusal_error
from coldparquet.storage.s3.identity import (
    RequestSigner,
    S3Account,
    forget_account,
    known_account,
    resolve_account,
    state_of_file,
)
from coldparquet.storage.s3.parameters import parse_s3_options
from coldparquet.storage.sessions import plain_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import aiohttp

    from coldparquet.storage.base import Answer
    from coldparquet.storage.s3.parameters import S3Options


_BAD_KEY_CODES = EXPIRED_CODES | {"InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"}
"""The credentials are of no use, such as keys that were replaced. AccessDenied does not say so: who may not list a bucket is
told that of each object that does not exist, such as the ``_txn`` of most tables."""

_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
"""Answers to HEAD, which have no code, that may mean the same."""

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
    """Return the address of ``bucket``."""
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


class S3Call(HttpCall, frozen=True, kw_only=True):
    """One HTTP request about ``bucket/key``, before it is addressed and signed."""

    bucket: str
    target: str
    """Percent-encoded key with its query string."""


def object_call(method: str, path: str, query: Mapping[str, str] | None = None, **fields: Any) -> S3Call:
    """Make the call about one object."""
    bucket, _, key = path.partition("/")
    if not key:
        raise InvalidInputError("a path in S3 looks like 'bucket/key'; the key is missing", path=path)
    return S3Call(method=method, path=path, bucket=bucket, target=quote(key) + encoded_query(query), **fields)


def encoded_query(query: Mapping[str, str] | None) -> str:
    """Return the query string with its question mark; parameters are sorted, as the signature wants them."""
    if not query:
        return ""
    return "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted(query.items()))


class S3Connection:
    """Connections to S3 for one store.

    Args:
        storage_options: See :class:`~coldparquet.storage.s3.store.S3Store`.
        store_options: How long a connection and a silence may take.
    """

    def __init__(self, *, storage_options: Mapping[str, Any], store_options: StoreOptions | None = None) -> None:
        self._options = parse_s3_options(storage_options)
        self._store_options = store_options or StoreOptions()
        self._client = HttpClient(
            self._session,
            label="S3",
            store_options=self._store_options,
            class_header="x-amz-storage-class",
            owns_sessions=False,
        )
        self._resolving = asyncio.Lock()
        self._account: S3Account | None = None
        self._signer = RequestSigner(None)
        self._addresses: dict[str, BucketAddress] = {}

    @property
    def stall_timeout_s(self) -> float:
        """Longest time in which no byte may arrive."""
        return self._store_options.stall_timeout_s

    @property
    def label(self) -> str:
        """``s3 (eu-west-1)`` or ``s3 (http://127.0.0.1:9000)``."""
        known = self._known_account() or self._options
        where = known.endpoint_url or known.region
        return f"s3 ({where})" if where else "s3"

    @property
    def reader(self) -> str | None:
        """Access key with which the last request was signed; None where none was."""
        return self._signer.access_key

    async def aclose(self) -> None:
        """Close the connections. Calling it twice is fine; a closed store opens again with the next request."""
        await self._client.aclose()

    def redact(self, text: str) -> str:
        """Return a text of the server without our credentials, should it echo them."""
        return self._signer.redact(text)

    async def exchange(self, call: S3Call, take: Callable[[aiohttp.ClientResponse], Awaitable[Answer]]) -> Answer:
        """Send ``call`` and let ``take`` read an accepted answer; everything else becomes an error.

        A wrong region is corrected once.
        """
        started_s = time.monotonic()
        account = await self._resolved()
        with contextlib.nullcontext() if call.method in ("GET", "HEAD") else writes.counted():
            address = self._address(call.bucket, account)
            answer = await self._send(address, call, take, started_s)
            if isinstance(answer, Refusal) and answer.region and answer.redirects_from(address.region):
                address = bucket_address(call.bucket, answer.region, account, self._options)
                self._addresses[call.bucket] = address
                answer = await self._send(address, call, take, started_s)
        if isinstance(answer, Refusal):
            raise await self._error(answer, call, account, elapsed_s=time.monotonic() - started_s)
        return answer

    async def _send(
        self,
        address: BucketAddress,
        call: S3Call,
        take: Callable[[aiohttp.ClientResponse], Awaitable[Answer]],
        started_s: float,
    ) -> Answer | Refusal:
        url = address.base_url + call.target
        headers = {"Host": address.host}
        if self._options.requester_pays:
            headers["x-amz-request-payer"] = "requester"
        headers.update((name, value) for name, value in call.headers.items() if name.startswith("x-amz-"))
        signer = self._signer
        await signer.sign(call.method, url, headers, body=call.body, region=address.region)
        # Unsigned, as SigV4 allows: proxies rewrite such headers. No compression, or ranges would lose their meaning.
        headers.update({"Accept-Encoding": "identity", "User-Agent": USER_AGENT, **call.headers})

        def send(session: aiohttp.ClientSession) -> Awaitable[aiohttp.ClientResponse]:
            return session.request(
                call.method,
                URL(url, encoded=True),
                headers=headers,
                data=io.BytesIO(call.body) if call.method in ("PUT", "POST") else None,
                allow_redirects=False,
                proxy=address.proxy,
                timeout=self._client.timeout(call),
            )

        return await self._client.exchange(call, send, take, started_s=started_s, redact=signer.redact)

    def _address(self, bucket: str, account: S3Account) -> BucketAddress:
        address = self._addresses.get(bucket)
        if address is None:
            address = self._addresses[bucket] = bucket_address(bucket, account.region, account, self._options)
        return address

    async def _resolved(self) -> S3Account:
        """Return the account, which the first request looks up."""
        if self._account is None:
            async with self._resolving:
                if self._known_account() is None:
                    self._use(await asyncio.to_thread(resolve_account, self._options))
        return cast("S3Account", self._account)

    def _known_account(self) -> S3Account | None:
        """Return the account where it needs no looking up; the first call decides, for as long as the store refuses nothing."""
        if self._account is None and (account := known_account(self._options)) is not None:
            self._use(account)
        return self._account

    def _use(self, account: S3Account) -> None:
        self._signer = RequestSigner(account.credentials)
        self._account = account  # after its signer, which a request takes once there is an account

    async def _error(self, refusal: Refusal, call: S3Call, account: S3Account, *, elapsed_s: float) -> ColdParquetError:
        """Return the error for a refusal; where the credentials have expired, with new ones ready for another attempt."""
        facts = {"elapsed_s": elapsed_s, **call.facts}
        has_no_code = call.method == "HEAD" and refusal.status in _REFUSED
        if refusal.code in _BAD_KEY_CODES or has_no_code:
            forget_account(self._options)
        if refusal.code in EXPIRED_CODES or (has_no_code and refusal.status == HTTPStatus.BAD_REQUEST):
            facts["credentials_renewed"] = await self._has_renewed(account)
        return refusal_error(refusal, path=call.path, **facts)

    async def _has_renewed(self, refused: S3Account) -> bool:
        """Look up the account anew, unless another request has done so already; tell whether its credentials are others."""
        async with self._resolving:
            if self._account is not refused:
                return True
            try:
                renewed = await asyncio.to_thread(resolve_account, self._options)
                is_other = await asyncio.to_thread(_has_other_credentials, refused, renewed)
            except (AccessError, InvalidInputError, BotoCoreError, RuntimeError):
                return False  # botocore found none that are any better: what the store said is what there is to say
            if is_other:
                self._use(renewed)
            return is_other

    async def _session(self, *, is_hedge: bool) -> aiohttp.ClientSession:
        account = await self._resolved()
        # Reading a bundle of authorities takes a tenth of a second: off the loop, and never for plain http.
        is_plain = (account.endpoint_url or "").startswith("http://")
        verify = self._options.verify
        bundle = verify if isinstance(verify, str) else account.ca_bundle
        tls: bool | ssl.SSLContext = verify is not False  # True checks certificates against the system's authorities
        if tls and bundle is not None and not is_plain:
            tls = await asyncio.to_thread(lambda path: _trusting(path, state_of_file(path)), bundle)
        return await plain_session(tls, is_hedge=is_hedge)


def _has_other_credentials(before: S3Account, after: S3Account) -> bool:
    """Compare what would be signed with. Blocks where credentials have to be fetched."""
    if before.credentials is None or after.credentials is None:
        return before.credentials is not after.credentials
    other: bool = before.credentials.get_frozen_credentials() != after.credentials.get_frozen_credentials()
    return other


@lru_cache(maxsize=8)
def _trusting(bundle: str, _state: tuple[int, ...] | None) -> ssl.SSLContext:
    """Return a context that checks certificates against a file of authorities. Made again when the file has changed."""
    try:
        return ssl.create_default_context(cafile=bundle)
    except OSError as error:
        raise InvalidInputError(
            f"the file of certificate authorities cannot be read: {error.strerror}", path=bundle, kind="BadCaBundle"
        ) from error
