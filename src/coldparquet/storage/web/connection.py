"""Sends GETs to a web server and follows where it points, without telling other hosts who we are."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
from yarl import URL

from coldparquet.storage.http.broken_body import BrokenBodyError
from coldparquet.storage.http.patience import head_in_time, read_up_to, request_timeout
from coldparquet.storage.http.sessions import READ_BUFFER_BYTES, USER_AGENT, HttpSessions, connector
from coldparquet.storage.s3.address import environment_proxy
from coldparquet.storage.s3.errors import CONNECTION_FAILURES, MAX_ERROR_BODY_BYTES, connection_error
from coldparquet.storage.web.errors import redirect_refused, unsound_options, web_refusal
from coldparquet.storage.wrappers.ledger import note_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from coldparquet.options import StoreOptions
    from coldparquet.storage.web.options import WebOptions

Answer = TypeVar("Answer")

_REDIRECTIONS = frozenset(
    {
        HTTPStatus.MOVED_PERMANENTLY,
        HTTPStatus.FOUND,
        HTTPStatus.SEE_OTHER,
        HTTPStatus.TEMPORARY_REDIRECT,
        HTTPStatus.PERMANENT_REDIRECT,
    }
)


_SECRET = re.compile("auth|cred|hmac|key|pass|policy|secret|sig|token|x-amz|x-goog", re.IGNORECASE)
"""In the names of parameters that let somebody in."""
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_KEPT_IN_PATHS = "%/:@!$&'()*+,;=~"
_ADVICE = {"check": "the URL", "authority_option": "ssl=ssl.create_default_context(cafile=file)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebCall:
    """One GET, before it is addressed."""

    path: str
    """The URL without its query string, for messages too."""
    headers: Mapping[str, str]
    accepted: frozenset[int]
    is_hedge: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Details for the errors."""


class WebConnection:
    """Connections to one web server, and to those that it points to.

    Args:
        options: What the caller said about it.
        query: Query string with its question mark, sent with every request to this host and kept out of all messages.
        store_options: How long a connection and a silence may take.
        max_connections: Requests beyond this many wait for a connection.
    """

    def __init__(self, options: WebOptions, *, query: str, store_options: StoreOptions, max_connections: int) -> None:
        self._options = options
        self._query = query
        self._store_options = store_options
        self._max_connections = max_connections
        self._proxies: dict[tuple[str, str], str | None] = {}
        self._has_own_timeout = "timeout" in options.request or "timeout" in options.client
        """Whether the caller says how long an answer may take."""
        self._own = HttpSessions(self._own_session, label="web")
        self._others = HttpSessions(self._plain_session, label="web")

    @property
    def stall_timeout_s(self) -> float:
        """Longest time in which no byte may arrive."""
        return self._store_options.stall_timeout_s

    async def aclose(self) -> None:
        """Close the connections. Calling it twice is fine; the next request opens new ones."""
        await self._own.aclose()
        await self._others.aclose()

    async def exchange(self, call: WebCall, take: Callable[[aiohttp.ClientResponse], Awaitable[Answer]]) -> Answer:
        """Send ``call`` and let ``take`` read an accepted answer; everything else becomes an error.

        Errors of aiohttp are not kept as ``__context__``: they hold the request with its signature.
        """
        started_s = time.monotonic()
        home = url = self._url(call.path)
        is_home = True
        for _ in range(self._options.max_redirects + 1):
            answer = await self._send(call, url, take, is_home=is_home, started_s=started_s)
            if not isinstance(answer, _Redirection):
                return answer
            url = self._next_url(call, home, url, answer.location)
            # Whoever is sent back by another host does so without credentials.
            is_home = is_home and _is_same_host(home, url)
        raise redirect_refused(call.path, f"the server points elsewhere more than {self._options.max_redirects} times")

    async def _send(
        self,
        call: WebCall,
        url: URL,
        take: Callable[[aiohttp.ClientResponse], Awaitable[Answer]],
        *,
        is_home: bool,
        started_s: float,
    ) -> Answer | _Redirection:
        sessions = self._own if is_home else self._others
        session = await sessions.session(is_hedge=call.is_hedge)
        failure: Exception
        try:
            response = await self._get(session, call, url, is_home=is_home)
            note_answer(http_status=response.status)
            try:
                if response.status in call.accepted:
                    return await take(response)
                if response.status in _REDIRECTIONS:
                    return _Redirection(response.headers.get("Location", ""))
                body = await read_up_to(response, MAX_ERROR_BODY_BYTES, stall_s=self.stall_timeout_s)
                elapsed_s = time.monotonic() - started_s
                failure = web_refusal(response, body, path=call.path, elapsed_s=elapsed_s, **call.facts)
            finally:
                # Gives the connection back, or closes it where the body was not read to its end.
                response.release()
        except BrokenBodyError as error:
            error.details["elapsed_s"] = time.monotonic() - started_s
            raise
        except CONNECTION_FAILURES as error:
            elapsed_s = time.monotonic() - started_s
            failure = connection_error(error, path=call.path, elapsed_s=elapsed_s, **_ADVICE, **call.facts)
        raise failure

    async def _get(
        self, session: aiohttp.ClientSession, call: WebCall, url: URL, *, is_home: bool
    ) -> aiohttp.ClientResponse:
        try:
            request = session.get(url, allow_redirects=False, **self._arguments(call, url, is_home=is_home))
            return await (request if self._has_own_timeout else head_in_time(request, self._store_options))
        except CONNECTION_FAILURES:
            raise
        except (AttributeError, TypeError, ValueError):
            # The URL was sound, so it is the caller's arguments; what aiohttp says of them may repeat a secret.
            given = {**self._options.request, **self._options.personal}
            if not given:
                raise
            failure = unsound_options(given, path=call.path)
        raise failure

    def _arguments(self, call: WebCall, url: URL, *, is_home: bool) -> dict[str, Any]:
        """Return aiohttp's arguments. Another host learns nothing that the caller gave us for this one."""
        # No compression, or ranges would lose their meaning.
        headers = {"Accept-Encoding": "identity", "User-Agent": USER_AGENT}
        options = {**self._options.request, **(self._options.personal if is_home else {})}
        if not self._has_own_timeout:
            options["timeout"] = request_timeout(self._store_options)
        if "proxy" not in options and not self._options.client.get("trust_env"):
            options["proxy"] = self._proxy(url)
        return {**options, "headers": {**headers, **options.get("headers", {}), **call.headers}}

    def _proxy(self, url: URL) -> str | None:
        origin = (url.scheme, url.host or "")
        if origin not in self._proxies:
            self._proxies[origin] = environment_proxy(*origin)
        return self._proxies[origin]

    def _url(self, path: str) -> URL:
        # Path and query are sent as they came, because signatures may cover their spelling; only what no URL may hold
        # is quoted.
        parts = urlsplit(path)
        spelled = parts.path
        if not self._options.is_encoded:
            spelled = quote(_STRAY_PERCENT.sub("%25", spelled), safe=_KEPT_IN_PATHS)
        host = URL(f"{parts.scheme}://{parts.netloc}")
        return URL(str(host).rstrip("/") + spelled + self._query, encoded=True)

    def _next_url(self, call: WebCall, home: URL, url: URL, location: str) -> URL:
        """Return where a redirection leads.

        Raises:
            StorageError: ``kind="RedirectRefused"``: following it would be unsafe.
        """
        if not self._options.follows_redirects:
            raise redirect_refused(call.path, "the server points elsewhere, and allow_redirects is off")
        try:
            target = url.join(URL(location, encoded=True)) if location else None
        except ValueError:
            target = None
        if target is None or target.scheme not in ("http", "https") or not target.host:
            raise redirect_refused(call.path, "the server points to something that is no web address")
        if url.scheme == "https" and target.scheme == "http":
            raise redirect_refused(call.path, "the server points to an address without encryption")
        if not _is_same_host(home, target) and _share_a_secret(self._query, target.raw_query_string):
            raise redirect_refused(
                call.path, f"the server points to {target.host} and would have it learn the URL's signature"
            )
        return target.with_user(None)

    async def _own_session(self) -> aiohttp.ClientSession:
        if self._options.get_client is not None:
            return await self._options.get_client(**self._options.client)
        return self._session(**self._options.client)

    async def _plain_session(self) -> aiohttp.ClientSession:
        return self._session()

    def _session(self, **arguments: Any) -> aiohttp.ClientSession:
        ours: dict[str, Any] = {"auto_decompress": False, "read_bufsize": READ_BUFFER_BYTES}
        try:
            if "connector" not in arguments:
                ours["connector"] = connector(max_connections=self._max_connections, tls=True)
            return aiohttp.ClientSession(**{**ours, **arguments})
        except (AttributeError, TypeError, ValueError):
            failure = unsound_options(arguments, name="client_kwargs")
        raise failure


@dataclass(frozen=True, slots=True)
class _Redirection:
    location: str


def _is_same_host(home: URL, other: URL) -> bool:
    """Tell whether two URLs lead to the same server; one that has switched to encryption is the same."""
    if home.host != other.host:
        return False
    return home.origin() == other.origin() or (
        home.scheme == "http" and other.scheme == "https" and home.is_default_port() and other.is_default_port()
    )


def _share_a_secret(query: str, other: str) -> bool:
    """Tell whether a parameter of ``query`` that is a secret, by its name, is in another query string."""
    secrets = {pair for pair in query.removeprefix("?").split("&") if _SECRET.search(pair.partition("=")[0])}
    return not secrets.isdisjoint(other.split("&"))
