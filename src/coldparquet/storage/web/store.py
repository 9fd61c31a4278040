"""Web servers and signed URLs: ranged GETs over aiohttp, on the same path as S3's. fsspec writes."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

from coldparquet.errors import NotFoundError, StorageError, UnsupportedError
from coldparquet.options import StoreOptions
from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.http.patience import read_up_to
from coldparquet.storage.http.ranged_get import RANGE_ANSWERS, object_size, range_headers, take_ranged_answer
from coldparquet.storage.objects import ObjectInfo
from coldparquet.storage.refusals import object_changed
from coldparquet.storage.requests import FetchedRange, RangeRequest, clipped
from coldparquet.storage.s3.object_facts import seconds_of_date
from coldparquet.storage.web.connection import WebCall, WebConnection
from coldparquet.storage.web.listing import MAX_PAGE_BYTES, is_page, parse_index_page
from coldparquet.storage.wrappers.wrapper import StoreWrapper

if TYPE_CHECKING:
    import aiohttp

    from coldparquet.storage.fsspec_store import FsspecStore
    from coldparquet.storage.objects import Listing
    from coldparquet.storage.web.options import WebOptions

_FIRST_BYTE = ByteRange(0, 1)
_NO_SUFFIX_KINDS = frozenset({"RangeIgnored", "WrongRange", "RequestRefused"})


class WebStore(StoreWrapper):
    """An :class:`~coldparquet.storage.base.ObjectStore` over HTTP. Paths are URLs without a query string.

    Args:
        fsspec_store: The same server through fsspec, for writes. Closing this store closes it.
        options: What the caller said about the server.
        query: Query string with its question mark, sent with every request and kept out of all messages.
        store_options: How long a connection and a silence may take.
        max_connections: Requests beyond this many wait for a connection.
    """

    def __init__(
        self,
        fsspec_store: FsspecStore,
        *,
        options: WebOptions,
        query: str = "",
        store_options: StoreOptions | None = None,
        max_connections: int = 256,
    ) -> None:
        super().__init__(fsspec_store)
        self._connection = WebConnection(
            options, query=query, store_options=store_options or StoreOptions(), max_connections=max_connections
        )
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
            raise UnsupportedError(
                f"{self.label} does not tell the object's size, which is needed to read its end; "
                "write a sidecar for the file, then its end need not be read",
                kind="NoObjectSize",
                path=request.path,
            )
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

        call = WebCall(path=f"{directory}/", headers={}, accepted=frozenset({HTTPStatus.OK}))
        listing = await self._connection.exchange(call, take)
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
            raise UnsupportedError(
                f"{self.label} does not tell versions, so if_match cannot be honoured",
                kind="NoVersions",
                path=request.path,
            )
        if request.if_match not in (None, fetched.etag):
            raise object_changed(request, found_etag=fetched.etag)
        return fetched


def _call(request: RangeRequest) -> WebCall:
    # Web servers keep no checksums to tell, and some send the length of a whole body only after it.
    headers = range_headers(replace(request, wants_whole=False))
    if request.if_match is not None and request.if_match.startswith("W/"):
        del headers["If-Match"]  # never true for a weak ETag (RFC 9110, 13.1.1); the answer's own one is compared
    return WebCall(
        path=request.path,
        headers=headers,
        accepted=RANGE_ANSWERS,
        is_hedge=request.is_hedge,
        facts={"byte_range": request.byte_range},
    )
