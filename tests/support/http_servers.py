"""Web servers that answer as a test says, and requests as they are, without a client that repairs them."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from coldparquet.ranges import ByteRange, SuffixRange
from coldparquet.storage.checked import CheckedStore
from coldparquet.storage.open import open_store
from coldparquet_testing.simulator import ColdStoreServer
from coldparquet_testing.simulator.server import serve
from coldparquet_testing.store_contract import CONTENT, request_for

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


# --- A web server that answers what each test wants -------------------------------------------------------------------


@dataclass
class Script:
    """Answers the n-th request with the n-th answer, and the last answer from then on."""

    answers: list[Answer] = field(default_factory=list)
    requests: list[web.BaseRequest] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    endpoint_url: str = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        self.arrived.set()
        return await self.answers[min(len(self.requests), len(self.answers)) - 1](request)


@asynccontextmanager
async def scripted_server() -> AsyncIterator[Script]:
    """Run a server on a free port; the test writes its script."""
    script = Script()
    async with serve(script.handle) as port:
        script.endpoint_url = f"http://127.0.0.1:{port}"
        yield script


def respond(status: int, body: bytes = b"", **headers: str) -> Answer:
    """Answer every request alike."""

    async def answer(_: web.BaseRequest) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=body, headers=named)

    return answer


def refuse(status: int, code: str, more: str = "", **headers: str) -> Answer:
    document = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>Words.</Message>{more}</Error>"
    return respond(status, document.encode(), x_amz_request_id="4442587FB7D0A2F9", **headers)


async def client_has_gone(request: web.BaseRequest) -> None:
    """Say nothing until the client gives up."""
    while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110 - aiohttp tells no handler
        await asyncio.sleep(0.005)


def raw(head: str, body: bytes) -> Answer:
    """Answer with these bytes and close the connection."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        transport.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        transport.close()
        await asyncio.sleep(0)
        return web.Response()

    return answer


# --- Web servers that answer as a test says ---------------------------------------------------------------------------


@dataclass
class Site:
    """A web server that answers as the test says, and remembers what it was asked."""

    url: str = ""
    answer: Answer | None = None
    requests: list[web.BaseRequest] = field(default_factory=list)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
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


async def ranges(request: web.BaseRequest) -> web.Response:
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


# --- HTTP requests as they are, without a client that repairs them ----------------------------------------------------


def ask(
    server: ColdStoreServer, target: str, *, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, Any, bytes]:
    """Send one request with the target as it is, and return status, headers and body.

    Names of headers are written with ``_`` for ``-``.
    """
    connection = http.client.HTTPConnection(server.endpoint_url.removeprefix("http://"), timeout=60)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, target, body, named)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()
