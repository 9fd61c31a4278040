"""Web servers and signed URLs: ranged GETs over aiohttp. Where a server redirects, no other host learns who we are."""

from __future__ import annotations

import html
import re
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urldefrag, urljoin, urlsplit

import aiohttp
from msgspec import Struct
from yarl import URL

from coldparquet.errors import (
    AccessError,
    ArchivedObjectError,
    ColdParquetError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.records import replace
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.http import (
    RANGE_ANSWERS,
    USER_AGENT,
    HttpCall,
    HttpClient,
    environment_proxy,
    object_size,
    range_headers,
    seconds_of_date,
    take_ranged_answer,
)
from coldparquet.storage.http_errors import CONNECTION_FAILURES, Refusal, read_up_to
from coldparquet.storage.refusals import no_object_size, no_versions, object_changed, object_replaced
from coldparquet.storage.requests import FetchedRange, Listing, ObjectInfo, RangeRequest, clipped
from coldparquet.storage.sessions import READ_BUFFER_BYTES, connector
from coldparquet.storage.urls import mapping_option, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from coldparquet.storage.base import Answer
    from coldparquet.storage.fsspec_store import FsspecStore


_CODE = re.compile(r"[A-Za-z]{1,64}")
_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED})
_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


def web_refusal(refusal: Refusal, *, path: str, **facts: Any) -> ColdParquetError:
    """Return our error for an answer that is not a success.

    The server's own words are left out, but for the error code of an object store: they may repeat a signature.
    """
    status, code = refusal.status, refusal.code if _CODE.fullmatch(refusal.code) else "Unknown"
    details = {"status": status, "code": code, "request_id": refusal.request_id, **facts}
    if refusal.retry_after_s is not None:
        details["retry_after_s"] = refusal.retry_after_s
    said = f"the server answered {status} {code}"
    if code == "InvalidObjectState":
        return ArchivedObjectError(
            "the object lies in an archive class and must be restored before it can be read; with a signed URL this"
            " cannot be asked for: use its s3:// URL",
            path=path,
            storage_class=refusal.storage_class,
            **details,
        )
    if status in _GONE:
        return NotFoundError("there is no such object; check the URL", path=path, **details)
    if status in _REFUSED:
        return AccessError(
            f"{said}: check the credentials in storage_options; a signed URL may have expired", path=path, **details
        )
    if status == HTTPStatus.PRECONDITION_FAILED:
        return object_replaced(path, **details)
    kind, advice = _cause_and_advice(status, code)
    return StorageError(f"{said}: {advice}", kind=kind, path=path, **details)


def _cause_and_advice(status: int, code: str) -> tuple[str, str]:
    if status == HTTPStatus.TOO_MANY_REQUESTS or code == "SlowDown":
        return "SlowDown", "too many requests; try again later"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "ServerError", "try again"
    return "RequestRefused", "check the URL"


def redirect_refused(path: str, why: str) -> StorageError:
    """Make the error for a redirection that is not followed."""
    return StorageError(f"{why}; open the address that is meant", kind="RedirectRefused", path=path)


def unsound_options(
    given: Mapping[str, Any], *, name: str = "storage_options", path: str | None = None
) -> ColdParquetError:
    """Make the error for arguments that aiohttp does not take. Their values may be secrets and are left out."""
    told = ", ".join(f"{argument} ({type(value).__name__})" for argument, value in sorted(given.items()))
    return InvalidInputError(
        f"aiohttp does not take what {name} give it, by name and type: {told}; check these against its documentation",
        kind="BadOption",
        path=path,
    )


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
"""In the names of parameters that grant access."""
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_KEPT_IN_PATHS = "%/:@!$&'()*+,;=~"
_ADVICE = {"check": "the URL", "authority_option": "ssl=ssl.create_default_context(cafile=file)"}


class WebConnection:
    """Connections to one web server, and to those that it points to.

    Args:
        options: What the caller said about it.
        query: Query string with its question mark, sent with every request to this host and kept out of all messages.
        store_options: How long a connection and a silence may take.
    """

    def __init__(self, options: WebOptions, *, query: str, store_options: StoreOptions) -> None:
        self._options = options
        self._query = query
        self._store_options = store_options
        self._proxies: dict[tuple[str, str], str | None] = {}
        self._has_own_timeout = "timeout" in options.request or "timeout" in options.client
        """Whether the caller says how long an answer may take."""
        self._own = HttpClient(self._own_session, label="web", store_options=store_options)
        self._others = HttpClient(self._plain_session, label="web", store_options=store_options)

    @property
    def stall_timeout_s(self) -> float:
        """Longest time in which no byte may arrive."""
        return self._store_options.stall_timeout_s

    async def aclose(self) -> None:
        """Close the connections. Calling it twice is fine; the next request opens new ones."""
        await self._own.aclose()
        await self._others.aclose()

    async def exchange(self, call: HttpCall, take: Callable[[aiohttp.ClientResponse], Awaitable[Answer]]) -> Answer:
        """Send a call to a URL without its query string and let ``take`` read an accepted answer; all else is an error."""
        started_s = time.monotonic()
        home = url = self._url(call.path)
        is_home = True
        for _ in range(self._options.max_redirects + 1):
            answer = await self._send(call, url, take, is_home=is_home, started_s=started_s)
            if isinstance(answer, Refusal):
                raise web_refusal(answer, path=call.path, elapsed_s=time.monotonic() - started_s, **call.facts)
            if not isinstance(answer, _Redirection):
                return answer
            url = self._next_url(call, home, url, answer.location)
            # A request that another host sends back goes without credentials.
            is_home = is_home and _is_same_host(home, url)
        raise redirect_refused(call.path, f"the server points elsewhere more than {self._options.max_redirects} times")

    async def _send(
        self,
        call: HttpCall,
        url: URL,
        take: Callable[[aiohttp.ClientResponse], Awaitable[Answer]],
        *,
        is_home: bool,
        started_s: float,
    ) -> Answer | Refusal | _Redirection:
        client = self._own if is_home else self._others

        async def send(session: aiohttp.ClientSession) -> aiohttp.ClientResponse:
            try:
                return await session.get(url, allow_redirects=False, **self._arguments(call, url, is_home=is_home))
            except CONNECTION_FAILURES:
                raise
            except (AttributeError, TypeError, ValueError):
                # The URL was sound, so it is the caller's arguments; what aiohttp says of them may repeat a secret.
                given = {**self._options.request, **self._options.personal}
                if not given:
                    raise
                failure = unsound_options(given, path=call.path)
            raise failure

        async def take_or_follow(response: aiohttp.ClientResponse) -> Answer | _Redirection:
            if response.status in _REDIRECTIONS:
                return _Redirection(response.headers.get("Location", ""))
            return await take(response)

        call = replace(call, accepted=call.accepted | _REDIRECTIONS)
        return await client.exchange(
            call, send, take_or_follow, started_s=started_s, has_own_timeout=self._has_own_timeout, advice=_ADVICE
        )

    def _arguments(self, call: HttpCall, url: URL, *, is_home: bool) -> dict[str, Any]:
        """Return aiohttp's arguments. Another host learns nothing that the caller gave us for this one."""
        # No compression, or ranges would lose their meaning.
        headers = {"Accept-Encoding": "identity", "User-Agent": USER_AGENT}
        options = {**self._options.request, **(self._options.personal if is_home else {})}
        if not self._has_own_timeout:
            options["timeout"] = self._own.timeout(call)
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

    def _next_url(self, call: HttpCall, home: URL, url: URL, location: str) -> URL:
        """Return where a redirection leads."""
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

    async def _own_session(self, **_: object) -> aiohttp.ClientSession:
        if self._options.get_client is not None:
            return await self._options.get_client(**self._options.client)
        return self._session(**self._options.client)

    async def _plain_session(self, **_: object) -> aiohttp.ClientSession:
        return self._session()

    def _session(self, **arguments: Any) -> aiohttp.ClientSession:
        ours: dict[str, Any] = {"auto_decompress": False, "read_bufsize": READ_BUFFER_BYTES}
        try:
            if "connector" not in arguments:
                ours["connector"] = connector(tls=True)
            return aiohttp.ClientSession(**{**ours, **arguments})
        except (AttributeError, TypeError, ValueError):
            failure = unsound_options(arguments, name="client_kwargs")
        raise failure


class _Redirection(Struct, frozen=True):
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


MAX_PAGE_BYTES = 16 * 1024 * 1024
"""More than a page with 50,000 links has."""

_LINK = re.compile(r"""<a\s(?:[^<>]*?\s)?href\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)'|([^\s"'<>]+))""", re.IGNORECASE)
_HTML = frozenset({"text/html", "application/xhtml+xml"})


def is_page(headers: Mapping[str, str]) -> bool:
    """Tell whether an answer is a page that may hold links."""
    return headers.get("Content-Type", "text/html").partition(";")[0].strip().lower() in _HTML


def parse_index_page(body: bytes, *, path: str) -> Listing:
    """Return what the links of a page say lies directly below it."""
    directories: set[str] = set()
    objects: set[str] = set()
    for link in _links(body.decode(errors="replace")):
        name = _name_below(path, link)
        if name is not None:
            (directories if name.endswith("/") else objects).add(f"{path}/{name.rstrip('/')}")
    return Listing(
        directories=tuple(sorted(directories)),
        objects=tuple(
            ObjectInfo(path=name, size_bytes=None, etag=None) for name in sorted(objects) if name not in directories
        ),
    )


def _links(page: str) -> Iterator[str]:
    """Yield the links of a page, but for those in comments. In a time that grows with its length, however it is made."""
    first, *others = page.split("<!--")
    for part in (first, *(other.partition("-->")[2] for other in others)):
        for match in _LINK.finditer(part):
            yield html.unescape(next(filter(None, match.groups()), ""))


def _name_below(path: str, link: str) -> str | None:
    """Return the name that a link adds to a directory, with a slash if it is a directory itself; None for other places."""
    try:
        target = urlsplit(urldefrag(urljoin(f"{path}/", link)).url)
        base = urlsplit(path)
    except ValueError:  # such as a bracket in the host
        return None
    # Pages of a server that speaks both may name either.
    is_here = target.netloc == base.netloc and {target.scheme, base.scheme} <= {"http", "https"}
    name = target.path.removeprefix(f"{base.path}/")
    if not is_here or name == target.path or name.strip("/") == "" or "/" in name[:-1]:
        return None
    return name


_FOR_EACH_REQUEST = frozenset(
    {
        "allow_redirects",
        "auth",
        "cookies",
        "headers",
        "max_redirects",
        "params",
        "proxy",
        "proxy_auth",
        "proxy_headers",
        "server_hostname",
        "ssl",
        "timeout",
        "trace_request_ctx",
    }
)
"""What aiohttp takes with a request."""

_PERSONAL = ("auth", "cookies", "headers", "params", "server_hostname")
"""What says who we are, or was meant for one host: it goes with requests to the host of the URL, and to no other."""

_OF_THE_FILESYSTEM = frozenset({"client_kwargs", "encoded", "get_client"})
_MEANINGFUL_TO_FSSPEC_ONLY = frozenset(
    {
        "asynchronous",
        "block_size",
        "cache_options",
        "cache_type",
        "listings_expiry_time",
        "loop",
        "max_paths",
        "same_scheme",
        "simple_links",
        "size_policy",
        "skip_instance_cache",
        "use_listings_cache",
    }
)
"""Caches, buffers and listings of fsspec: without meaning for a GET."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """What the caller said about a web server."""

    personal: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of requests to the host of the URL: ``auth``, ``cookies``, ``headers`` and so on."""
    request: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Further arguments of every request."""
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of ``aiohttp.ClientSession``."""
    get_client: Callable[..., Awaitable[aiohttp.ClientSession]] | None = None
    """Makes sessions in place of ours."""
    is_encoded: bool = False
    """Whether the URL's path is percent-encoded already and has to be sent exactly as it is."""
    follows_redirects: bool = True
    max_redirects: int = 10


def parse_web_options(storage_options: Mapping[str, Any]) -> WebOptions:
    """Check ``storage_options`` and bring their several spellings together."""
    refuse_unknown(storage_options, known=_FOR_EACH_REQUEST | _OF_THE_FILESYSTEM, ignored=_MEANINGFUL_TO_FSSPEC_ONLY)
    client = dict(mapping_option(storage_options, "client_kwargs"))
    for options in (storage_options, client):
        for name in ("cookies", "headers"):
            mapping_option(options, name)
    max_redirects = storage_options.get("max_redirects", 10)
    if isinstance(max_redirects, bool) or not isinstance(max_redirects, int) or max_redirects < 0:
        raise InvalidInputError("the storage option max_redirects must be a whole number, 0 or more", kind="BadOption")
    get_client = storage_options.get("get_client")
    if get_client is not None and not callable(get_client):
        raise InvalidInputError(
            "the storage option get_client must be a function that makes sessions", kind="BadOption"
        )
    request = {name: value for name, value in storage_options.items() if name in _FOR_EACH_REQUEST - {"max_redirects"}}
    personal: dict[str, Any] = {}
    for name in _PERSONAL:
        of_session, of_request = client.pop(name, None), request.pop(name, None)
        if of_session is not None and of_request is not None and name != "auth":
            personal[name] = {**of_session, **of_request}
        elif of_session is not None or of_request is not None:
            personal[name] = of_session if of_request is None else of_request
    return WebOptions(
        personal=personal,
        follows_redirects=bool(request.pop("allow_redirects", True)),
        max_redirects=max_redirects,
        request=request,
        client=client,
        get_client=get_client,
        is_encoded=bool(storage_options.get("encoded")),
    )


_FIRST_BYTE = ByteRange(0, 1)
_NO_SUFFIX_KINDS = frozenset({"RangeIgnored", "WrongRange", "RequestRefused"})


class WebStore(StoreWrapper):
    """An :class:`~coldparquet.storage.base.ObjectStore` over HTTP. Paths are URLs without a query string.

    Args:
        fsspec_store: The same server through fsspec, for writes. Closing this store closes it.
        options: What the caller said about the server.
        query: Query string with its question mark, sent with every request and kept out of all messages.
        store_options: How long a connection and a silence may take.
    """

    def __init__(
        self,
        fsspec_store: FsspecStore,
        *,
        options: WebOptions,
        query: str = "",
        store_options: StoreOptions | None = None,
    ) -> None:
        super().__init__(fsspec_store)
        self._connection = WebConnection(options, query=query, store_options=store_options or StoreOptions())
        self._knows_suffixes = True

    def __repr__(self) -> str:
        return f"<WebStore {self.label}>"

    @property
    def has_spare_connections(self) -> bool:
        """True."""
        return True

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range. 1 request; the first :class:`SuffixRange` at a server that knows none costs 3, later ones 2.

        Redirections cost one more each. See :class:`~coldparquet.storage.base.ObjectStore` for the errors.
        """
        if not isinstance(request.byte_range, SuffixRange):
            return await self._get(request)
        if self._knows_suffixes:
            try:
                return await self._get(request)
            except StorageError as error:
                # Azure, among others, ignores ranges that count from the end.
                if error.kind not in _NO_SUFFIX_KINDS and error.details.get("status") != HTTPStatus.NOT_IMPLEMENTED:
                    raise
        size_bytes = (await self.info(request.path)).size_bytes
        if size_bytes is None:
            raise no_object_size(self.label, request.path)
        self._knows_suffixes = False
        wanted = clipped(request.byte_range, object_size_bytes=size_bytes)
        if wanted.length_bytes == 0:
            return FetchedRange(data=b"", start=0, etag=None, object_size_bytes=size_bytes)
        return await self._get(replace(request, byte_range=wanted))

    async def info(self, path: str) -> ObjectInfo:
        """Tell size, version and time. 1 request: a GET of one byte, because a URL that is signed for GET refuses HEAD."""

        async def take(response: aiohttp.ClientResponse) -> ObjectInfo:
            return ObjectInfo(
                path=path,
                size_bytes=object_size(response),
                etag=response.headers.get("ETag"),
                modified_s=seconds_of_date(response.headers.get("Last-Modified")),
            )

        request = RangeRequest(path=path, byte_range=_FIRST_BYTE, reason="what is known of the object")
        return await self._connection.exchange(_call(request), take)

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:  # noqa: ARG002 - all is one page
        """Read the links of the server's index page, which tells no sizes. 1 request."""
        directory = path.rstrip("/")

        async def take(response: aiohttp.ClientResponse) -> Listing | None:
            if not is_page(response.headers):
                return None
            page = await read_up_to(response, MAX_PAGE_BYTES, stall_s=self._connection.stall_timeout_s)
            return parse_index_page(page, path=directory)

        listing = await self._connection.exchange(HttpCall(path=f"{directory}/"), take)
        if listing is None or not (listing.directories or listing.objects):
            raise NotFoundError("there is no such directory, or the server shows no page with links to it", path=path)
        return listing

    async def aclose(self) -> None:
        """Close the connections, fsspec's too."""
        await self._connection.aclose()
        await super().aclose()

    async def _get(self, request: RangeRequest) -> FetchedRange:
        async def take(response: aiohttp.ClientResponse) -> FetchedRange:
            return await take_ranged_answer(response, request, stall_timeout_s=self._connection.stall_timeout_s)

        fetched = await self._connection.exchange(_call(request), take)
        # Many servers do not look at If-Match.
        if request.if_match is not None and fetched.etag is None:
            raise no_versions(self.label, request.path)
        if request.if_match not in (None, fetched.etag):
            raise object_changed(request, found_etag=fetched.etag)
        return fetched


def _call(request: RangeRequest) -> HttpCall:
    # Web servers keep no checksums to tell, and some send the length of a whole body only after it.
    headers = range_headers(replace(request, wants_whole=False))
    if request.if_match is not None and request.if_match.startswith("W/"):
        del headers["If-Match"]  # never true for a weak ETag (RFC 9110, 13.1.1); the answer's own one is compared
    return HttpCall(
        path=request.path,
        headers=headers,
        accepted=RANGE_ANSWERS,
        is_hedge=request.is_hedge,
        facts={"byte_range": request.byte_range},
    )
