"""The HTTP sessions of an event loop, with their connections: its stores share them, and they are closed with the loop."""

from __future__ import annotations

import asyncio
import atexit
import os
from typing import TYPE_CHECKING, Any

import aiohttp
from msgspec import Struct

from coldparquet.concurrency import background

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Mapping


READ_BUFFER_BYTES = 1024 * 1024
"""aiohttp pauses a transfer when this much waits to be taken; fewer pauses, less processor time at 8 MiB a request."""

_DNS_CACHE_S = 60


class _LoopSessions(Struct):
    """The sessions of one event loop, which its stores share. aiohttp closes their connections after 15 idle seconds."""

    by_use: dict[tuple[object, bool], aiohttp.ClientSession]
    """By trust, and by whether they are for second requests."""
    end: AsyncGenerator[None]
    """Closes them when it is closed."""


_kept_sessions: dict[asyncio.AbstractEventLoop, _LoopSessions] = {}

_sessions_of_parent = list[_LoopSessions]()
"""Those that a forked child inherits: closing them, as the last reference to them does, would disturb the parent."""


def _leave_to_parent() -> None:
    _sessions_of_parent.extend(_kept_sessions.values())
    _kept_sessions.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


async def plain_session(tls: bool | ssl.SSLContext, *, is_hedge: bool) -> aiohttp.ClientSession:
    """Return a session that knows nothing of who asks: the same for all stores of an event loop, open until the loop ends."""
    sessions = await _sessions_of_loop()
    session = sessions.get((tls, is_hedge))
    if session is None or session.closed:
        session = sessions[tls, is_hedge] = aiohttp.ClientSession(
            connector=connector(tls),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
        )
    return session


async def _sessions_of_loop() -> dict[tuple[object, bool], aiohttp.ClientSession]:
    loop = asyncio.get_running_loop()
    kept = _kept_sessions.get(loop)
    if kept is None:
        sessions: dict[tuple[object, bool], aiohttp.ClientSession] = {}
        # asyncio.run closes the asynchronous generators that were begun in its loop, and so the sessions in time.
        kept = _kept_sessions[loop] = _LoopSessions(sessions, _closing_at_end(sessions))
        await anext(kept.end)
        for other, ended in tuple(_kept_sessions.items()):  # loops of other threads may do the same
            if other.is_closed() and _kept_sessions.pop(other, None) is not None:
                await ended.end.aclose()
    return kept.by_use


async def _closing_at_end(sessions: Mapping[Any, aiohttp.ClientSession]) -> AsyncGenerator[None]:
    loop = asyncio.get_running_loop()
    try:
        yield
    finally:
        _kept_sessions.pop(loop, None)
        for session in sessions.values():
            await session.close()


def close_kept_sessions() -> None:
    """Close the connections of blocking calls, and of loops that ended without closing them. The next call opens new ones."""
    for loop, kept in tuple(_kept_sessions.items()):
        if background.runs(loop):
            background.run(kept.end.aclose())
        elif loop.is_closed():
            asyncio.run(kept.end.aclose())
        elif not loop.is_running():
            loop.run_until_complete(kept.end.aclose())


atexit.register(close_kept_sessions)


def connector(tls: bool | ssl.SSLContext) -> aiohttp.TCPConnector:
    """Make the pool of connections of one session: as many as ``LimitedStore`` lets requests through."""
    return aiohttp.TCPConnector(limit=0, ttl_dns_cache=_DNS_CACHE_S, ssl=tls)
