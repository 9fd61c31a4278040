"""A web server that answers what each test wants."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


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
    runner = web.ServerRunner(web.Server(script.handle), shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    script.endpoint_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield script
    await runner.cleanup()


def respond(status: int, body: bytes = b"", **headers: str) -> Answer:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(
            status=status, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )

    return answer


def refuse(status: int, code: str, more: str = "", **headers: str) -> Answer:
    document = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>Words.</Message>{more}</Error>"
    return respond(status, document.encode(), x_amz_request_id="4442587FB7D0A2F9", **headers)


async def client_has_gone(request: web.BaseRequest) -> None:
    """Say nothing until the client gives up."""
    while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110 - aiohttp tells nobody
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
