"""Web servers that answer as a test says."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.open import open_store
from coldparquet_testing.store_contract import CONTENT, request_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from coldparquet.ranges import ByteRange, SuffixRange

    Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Site:
    """A web server that answers as the test says, and remembers what it was asked."""

    url: str = ""
    answer: Answer | None = None
    requests: list[web.Request] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        assert self.answer is not None
        return await self.answer(request)


@asynccontextmanager
async def web_site() -> AsyncIterator[Site]:
    """Run one such server; two of them are different hosts to each other."""
    site = Site()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", site.handle)
    server = TestServer(application)
    await server.start_server()
    site.url = str(server.make_url("/data.parquet"))
    yield site
    await server.close()


def respond(status: int, body: bytes = b"", **headers: str) -> Answer:
    """Answer every request alike."""

    async def answer(_: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=body, headers=named)

    return answer


async def ranges(request: web.Request) -> web.Response:
    """Serve ranges of CONTENT, but none that count from the end."""
    start, _, last = request.headers["Range"].removeprefix("bytes=").partition("-")
    if not start:
        return web.Response(body=CONTENT, headers={"ETag": '"1"'})
    data = CONTENT[int(start) : int(last) + 1]
    if not data:
        return web.Response(status=416, headers={"Content-Range": f"bytes */{len(CONTENT)}"})
    headers = {"Content-Range": f"bytes {start}-{int(start) + len(data) - 1}/{len(CONTENT)}", "ETag": '"1"'}
    return web.Response(status=206, body=data, headers=headers)


async def fetch(url: str, byte_range: ByteRange | SuffixRange, *, if_match: str | None = None, **options: Any) -> bytes:
    """Fetch one range of a URL with these storage options."""
    store, path = open_store(url, storage_options=options)
    try:
        request = request_for(path, byte_range, may_be_short=True, if_match=if_match)
        return (await CheckedStore(store).get(request)).data
    finally:
        await store.aclose()
