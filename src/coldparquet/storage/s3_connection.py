"""Sends requests to S3 and reads the answers, with as little processor time as Python allows.

aiohttp moves the bytes and botocore signs; s3fs, which brings both, spends several times as much on a 64 KiB GET.
No request is repeated here, other than once when the answer names the region in which the bucket lies.
"""

from __future__ import annotations

import asyncio
import io
import ssl
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import aiohttp
from yarl import URL

from coldparquet.errors import InvalidInputError, StorageError
from coldparquet.storage.s3_address import BucketAddress, bucket_address
from coldparquet.storage.s3_answers import read_up_to
from coldparquet.storage.s3_credentials import RequestSigner, S3Account, resolve_account
from coldparquet.storage.s3_errors import (
    MAX_ERROR_BODY_BYTES,
    S3Refusal,
    connection_error,
    parse_refusal,
    refusal_error,
)
from coldparquet.storage.s3_options import parse_s3_options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

Answer = TypeVar("Answer")

_CONNECT_TIMEOUT_S = 5.0
_STALL_TIMEOUT_S = 20.0
"""S3 answers within seconds or not at all; a body that stands still this long will not move again."""

_SLOWEST_UPLOAD_BYTES_PER_S = 100_000
"""The stall timer also runs while a PUT is sent, so it is extended by the time that a slow line may need."""

_READ_BUFFER_BYTES = 1024 * 1024
"""aiohttp pauses a transfer when this much waits to be taken; fewer pauses, less processor time at 8 MiB a request."""

_DNS_CACHE_S = 60
_USER_AGENT = "coldparquet"
_READ_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S, sock_read=_STALL_TIMEOUT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Call:
    """One HTTP request, before it is addressed and signed."""

    method: str
    path: str
    """``bucket/key`` for messages."""
    bucket: str
    target: str
    """Percent-encoded key with its query string."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    accepted: frozenset[int] = frozenset({HTTPStatus.OK})
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Details for the errors."""


def object_call(method: str, path: str, query: Mapping[str, str] | None = None, **fields: Any) -> S3Call:
    """Make the call about one object.

    Args:
        method: HTTP method.
        path: ``bucket/key``.
        query: Parameters behind the key.
        **fields: Further fields of the call.

    Raises:
        InvalidInputError: The path has no key.
    """
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
    """Connections to S3 for one store. See :class:`~coldparquet.storage.s3.S3Store` for the arguments."""

    def __init__(self, *, storage_options: Mapping[str, Any], max_connections: int = 256) -> None:
        self._options = parse_s3_options(storage_options)
        self._max_connections = max_connections
        self._opening = asyncio.Lock()
        self._account: S3Account | None = None
        self._signer = RequestSigner(None)
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._addresses: dict[str, BucketAddress] = {}

    @property
    def label(self) -> str:
        """``s3 (eu-west-1)`` or ``s3 (http://127.0.0.1:9000)``."""
        known = self._account or self._options
        where = known.endpoint_url or known.region
        return f"s3 ({where})" if where else "s3"

    async def aclose(self) -> None:
        """Close the connections. Calling it twice is fine; a closed store opens again with the next request."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def redact(self, body: bytes) -> bytes:
        """Return a body without our credentials, should the server echo them."""
        return self._signer.redact(body)

    async def exchange(self, call: S3Call, take: Callable[[aiohttp.ClientResponse], Awaitable[Answer]]) -> Answer:
        """Send ``call`` and let ``take`` read an accepted answer; everything else becomes an error.

        A wrong region is corrected once. Errors of aiohttp are not kept as ``__context__``: they hold the request with
        its signature.
        """
        started_s = time.monotonic()
        session, account = await self._opened()
        address = self._address(call.bucket, account)
        answer = await self._send(session, address, call, take, started_s)
        if isinstance(answer, S3Refusal) and answer.region and answer.redirects_from(address.region):
            address = bucket_address(call.bucket, answer.region, account, self._options)
            self._addresses[call.bucket] = address
            answer = await self._send(session, address, call, take, started_s)
        if isinstance(answer, S3Refusal):
            raise refusal_error(answer, path=call.path, elapsed_s=time.monotonic() - started_s, **call.facts)
        return answer

    async def _send(
        self,
        session: aiohttp.ClientSession,
        address: BucketAddress,
        call: S3Call,
        take: Callable[[aiohttp.ClientResponse], Awaitable[Answer]],
        started_s: float,
    ) -> Answer | S3Refusal:
        url = address.base_url + call.target
        headers = {"Host": address.host}
        if self._options.requester_pays:
            headers["x-amz-request-payer"] = "requester"
        headers.update((name, value) for name, value in call.headers.items() if name.startswith("x-amz-"))
        await self._signer.sign(call.method, url, headers, body=call.body, region=address.region)
        # Unsigned, as SigV4 allows: proxies rewrite such headers. No compression, or ranges would lose their meaning.
        headers.update({"Accept-Encoding": "identity", "User-Agent": _USER_AGENT, **call.headers})
        failure: StorageError
        try:
            response = await session.request(
                call.method,
                URL(url, encoded=True),
                headers=headers,
                data=io.BytesIO(call.body) if call.method in ("PUT", "POST") else None,
                allow_redirects=False,
                proxy=address.proxy,
                timeout=_timeout(len(call.body)),
            )
            try:
                if response.status in call.accepted:
                    return await take(response)
                body = await read_up_to(response, MAX_ERROR_BODY_BYTES)
                return parse_refusal(response.status, response.headers, self._signer.redact(body))
            finally:
                # Gives the connection back, or closes it where the body was not read to its end.
                response.release()
        except (aiohttp.ClientError, TimeoutError) as error:
            failure = connection_error(error, path=call.path, elapsed_s=time.monotonic() - started_s, **call.facts)
        raise failure

    def _address(self, bucket: str, account: S3Account) -> BucketAddress:
        address = self._addresses.get(bucket)
        if address is None:
            address = self._addresses[bucket] = bucket_address(bucket, account.region, account, self._options)
        return address

    async def _opened(self) -> tuple[aiohttp.ClientSession, S3Account]:
        """Return session and account, made by the first request."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._account is None:
            async with self._opening:
                if self._account is None:
                    self._account = await asyncio.to_thread(resolve_account, self._options)
                    self._signer = RequestSigner(self._account.credentials)
                if self._session is None:
                    # Reading a bundle of authorities takes a tenth of a second: off the loop, and never for plain http.
                    is_plain = (self._account.endpoint_url or "").startswith("http://")
                    bundle = None if is_plain else self._account.ca_bundle
                    self._session = self._new_session(await asyncio.to_thread(_tls, self._options.verify, bundle))
                    self._loop = loop
        if self._loop is not loop:
            raise InvalidInputError(
                "this S3 store was opened in another event loop; open one store per loop", kind="WrongEventLoop"
            )
        return self._session, self._account

    def _new_session(self, tls: bool | ssl.SSLContext) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=self._max_connections, ttl_dns_cache=_DNS_CACHE_S, ssl=tls)
        return aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER_BYTES,
        )


def _timeout(body_bytes: int) -> aiohttp.ClientTimeout:
    if not body_bytes:
        return _READ_TIMEOUT
    stall_s = _STALL_TIMEOUT_S + body_bytes / _SLOWEST_UPLOAD_BYTES_PER_S
    return aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S, sock_read=stall_s)


def _tls(verify: bool | str, ca_bundle: str | None) -> bool | ssl.SSLContext:
    """Return aiohttp's ``ssl`` argument: True checks certificates against the system's authorities."""
    if verify is False:
        return False
    bundle = verify if isinstance(verify, str) else ca_bundle
    if bundle is None:
        return True
    try:
        return ssl.create_default_context(cafile=bundle)
    except OSError as error:
        raise InvalidInputError(
            f"the file of certificate authorities cannot be read: {error.strerror}", path=bundle, kind="BadCaBundle"
        ) from error
