"""How long a server may keep us waiting: for a connection, for the head of its answer, and for each part of the body.

A server that sends a byte now and then is never silent, so that silence alone is no limit.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coldparquet.options import StoreOptions

_SLOWEST_UPLOAD_BYTES_PER_S = 100_000
"""The stall timer also runs while a PUT is sent, so it is extended by the time that a slow line may need."""
_LEAST_BYTES_PER_STALL = 16 * 1024
"""A body of which not even this arrives in the time in which a silence is a stall has stalled as well."""


class StalledError(TimeoutError):
    """A server sends something, but too little to ever come to an end."""


class NoConnectionError(StalledError):
    """There was no connection in time, so that nothing was sent."""


@dataclass(slots=True)
class _Wait:
    """One request that waits for the head of its answer."""

    limit: asyncio.Timeout
    connect_s: float
    head_s: float
    is_connected: bool = False


_WAIT: ContextVar[_Wait | None] = ContextVar("coldparquet_wait", default=None)


def request_timeout(store_options: StoreOptions, *, body_bytes: int = 0) -> aiohttp.ClientTimeout:
    """Return how long a connection and the next byte may take. There is no limit for the whole of a transfer."""
    return aiohttp.ClientTimeout(
        total=None, sock_connect=store_options.connect_timeout_s, sock_read=_head_s(store_options, body_bytes)
    )


async def head_in_time(
    request: Awaitable[aiohttp.ClientResponse], store_options: StoreOptions, *, body_bytes: int = 0
) -> aiohttp.ClientResponse:
    """Wait for the head of an answer, whatever informational answers and single header lines come before its end.

    The time of waiting for a free connection does not count.

    Args:
        request: Of a session that :func:`watch_heads` has seen.
        store_options: How long a connection and a head may take.
        body_bytes: Sent before an answer can be expected.

    Raises:
        NoConnectionError: There was no connection in time.
        StalledError: The head was not complete in time.
    """
    wait = _Wait(asyncio.timeout(None), store_options.connect_timeout_s, _head_s(store_options, body_bytes))
    token = _WAIT.set(wait)
    try:
        async with wait.limit:
            return await request
    except TimeoutError:
        if not wait.limit.expired():
            raise
        if not wait.is_connected:
            raise NoConnectionError(f"no connection in {wait.connect_s:g} s") from None
        raise StalledError(f"the head of the answer was not complete after {wait.head_s:.1f} s") from None
    finally:
        _WAIT.reset(token)


def watch_heads(session: aiohttp.ClientSession) -> None:
    """Let a session tell :func:`head_in_time` when a request begins to connect, and when it has its connection."""
    watch = aiohttp.TraceConfig()
    watch.on_connection_create_start.append(_connecting)
    watch.on_connection_create_end.append(_connected)
    watch.on_connection_reuseconn.append(_connected)
    watch.freeze()
    session.trace_configs.append(watch)


async def read_blocks(
    response: aiohttp.ClientResponse, most_bytes: int, stall_s: float, take: Callable[[bytes], object]
) -> None:
    """Read at most so many bytes and hand them over as they come.

    Raises:
        StalledError: Less than 16 KiB, and not the end, arrived in ``stall_s``.
    """
    clock = asyncio.get_running_loop().time
    missing_bytes = most_bytes
    checked_s, missing_then_bytes = clock(), missing_bytes
    while missing_bytes:
        block = await response.content.read(missing_bytes)
        if not block:
            return
        take(block)
        missing_bytes -= len(block)
        now_s = clock()
        if now_s - checked_s >= stall_s:
            arrived_bytes = missing_then_bytes - missing_bytes
            if missing_bytes and arrived_bytes < _LEAST_BYTES_PER_STALL:
                raise StalledError(f"only {arrived_bytes} bytes arrived in {now_s - checked_s:.1f} s")
            checked_s, missing_then_bytes = now_s, missing_bytes


async def read_up_to(response: aiohttp.ClientResponse, limit_bytes: int, *, stall_s: float) -> bytes:
    """Return the body, at most ``limit_bytes`` of it. Errors as for :func:`read_blocks`."""
    blocks: list[bytes] = []
    await read_blocks(response, limit_bytes, stall_s, blocks.append)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _head_s(store_options: StoreOptions, body_bytes: int) -> float:
    return store_options.stall_timeout_s + body_bytes / _SLOWEST_UPLOAD_BYTES_PER_S


async def _connecting(*_: Any) -> None:
    _restart(is_connected=False)


async def _connected(*_: Any) -> None:
    _restart(is_connected=True)


def _restart(*, is_connected: bool) -> None:
    wait = _WAIT.get()
    if wait is not None:
        wait.is_connected = is_connected
        wait.limit.reschedule(asyncio.get_running_loop().time() + (wait.head_s if is_connected else wait.connect_s))
