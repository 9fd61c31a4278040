"""The connections of one store over HTTP: two pools of them, opened by the first request, in one event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp

from coldparquet.errors import InvalidInputError
from coldparquet.storage.http.patience import watch_heads

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

USER_AGENT = "coldparquet"
READ_BUFFER_BYTES = 1024 * 1024
"""aiohttp pauses a transfer when this much waits to be taken; fewer pauses, less processor time at 8 MiB a request."""

_DNS_CACHE_S = 60


class HttpSessions:
    """Sessions of aiohttp: one for requests, and one for the second requests of hedging, on connections of their own.

    Args:
        make_session: Called once per pool, in the loop of the first request.
        label: Which store it is, for the error of a request from another event loop.
    """

    def __init__(self, make_session: Callable[[], Awaitable[aiohttp.ClientSession]], *, label: str) -> None:
        self._make_session = make_session
        self._label = label
        self._opening = asyncio.Lock()
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def session(self, *, is_hedge: bool = False) -> aiohttp.ClientSession:
        """Return the session, made by the first request.

        Raises:
            InvalidInputError: ``kind="WrongEventLoop"``: the sessions were opened in another event loop.
        """
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop) and self._sessions:
            raise InvalidInputError(
                f"this {self._label} store was opened in another event loop; open one store per loop",
                kind="WrongEventLoop",
            )
        session = self._sessions.get(is_hedge)
        if session is not None:
            return session
        async with self._opening:
            if is_hedge not in self._sessions:
                self._sessions[is_hedge] = await self._make_session()
                watch_heads(self._sessions[is_hedge])
                self._loop = loop
        return self._sessions[is_hedge]

    async def aclose(self) -> None:
        """Close the connections. Calling it twice is fine; the next request opens new ones."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()


def connector(*, max_connections: int, tls: bool | ssl.SSLContext) -> aiohttp.TCPConnector:
    """Make the pool of connections of one session."""
    return aiohttp.TCPConnector(limit=max_connections, ttl_dns_cache=_DNS_CACHE_S, ssl=tls)
