"""Runs the simulated cold store in a thread of this process, and listens for requests."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from coldparquet.errors import InvalidInputError
from coldparquet_testing.simulator.handler import ColdStoreHandler
from coldparquet_testing.simulator.invoice import Invoice, make_invoice
from coldparquet_testing.simulator.objects import DirectoryStore
from coldparquet_testing.simulator.options import ColdStoreOptions, ServedRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path
    from ssl import SSLContext
    from types import TracebackType

    from coldparquet.prices import PriceTable
    from coldparquet_testing.simulator.faults import FaultRule

_START_TIMEOUT_S = 10.0


def storage_options_for(endpoint_url: str, secret_key: str | None) -> dict[str, Any]:
    """Return the ``storage_options`` with which coldparquet, s3fs and fsspec read from a simulated store."""
    return {
        "key": "cold-store",
        "secret": secret_key or "cold-store",
        "endpoint_url": endpoint_url,
        "client_kwargs": {"region_name": "us-east-1"},
    }


class ColdStoreServer:
    """A simulated cold store in a thread of this process, for tests.

    Args:
        root: Directory whose folders are the buckets. Files may change while the server runs.
        options: Latency, bandwidth and faults.
        port: TCP port; 0 takes a free one.
        before_answer: Called in the server's thread with S3's operation and ``bucket/key`` of every request, before it
            is processed. Use it to replace an object in the middle of a read.

    Raises:
        InvalidInputError: ``root`` is not a directory.
    """

    def __init__(
        self,
        root: Path,
        options: ColdStoreOptions | None = None,
        *,
        port: int = 0,
        before_answer: Callable[[str, str], None] | None = None,
    ) -> None:
        if not root.is_dir():
            raise InvalidInputError(f"the root of a simulated store must be a directory, not {root}", path=str(root))
        self._options = options or ColdStoreOptions()
        self._handler = ColdStoreHandler(DirectoryStore(root), self._options, before_answer)
        self._port = port
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: OSError | None = None

    @property
    def endpoint_url(self) -> str:
        """Address of the server, such as ``http://127.0.0.1:41234``."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def storage_options(self) -> dict[str, Any]:
        """The ``storage_options`` for coldparquet, s3fs or fsspec."""
        return storage_options_for(self.endpoint_url, self._options.secret_key)

    @property
    def requests(self) -> tuple[ServedRequest, ...]:
        """All finished requests since the start or the last :meth:`reset`."""
        return tuple(self._handler.served)

    @property
    def requests_under_way(self) -> int:
        """Number of unfinished requests, which are not among :attr:`requests` yet."""
        return self._handler.under_way_count

    def reset(self) -> None:
        """Clear the log of requests."""
        self._handler.served.clear()

    def invoice(self, prices: PriceTable | None = None) -> Invoice:
        """Compute the cost of the requests so far.

        Args:
            prices: None uses the library's table.
        """
        return make_invoice(self.requests, prices)

    def set_faults(self, *rules: FaultRule) -> None:
        """Replace all faults from now on, those of the options included; numbers and random choices start anew."""
        self._handler.set_faults(rules)

    def set_storage_class(self, pattern: str, storage_class: str) -> None:
        """Move objects to another class, as a lifecycle rule does; their restored copies are gone.

        Args:
            pattern: Pattern of ``bucket/key``; ``*`` matches ``/`` too.
            storage_class: As in :attr:`ColdStoreOptions.storage_classes`.

        Raises:
            InvalidInputError: There is no such class.
        """
        self._handler.classes.move(pattern, storage_class)

    def advance_clock(self, seconds: float) -> None:
        """Advance the clock for restores."""
        self._handler.clock.advance(seconds)

    def expire_session_token(self, token: str) -> None:
        """Refuse requests with this session token, as S3 refuses expired ones."""
        self._handler.access.expire_session_token(token)

    def start(self) -> None:
        """Start to listen; returns when the port is open.

        Raises:
            OSError: The port cannot be opened.
        """
        self._thread = threading.Thread(target=self._run, name="cold-store", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_TIMEOUT_S):
            raise TimeoutError("the simulated store did not start")
        if self._failure:
            raise self._failure

    def stop(self) -> None:
        """Close every connection and stop; calling it twice is fine."""
        if self._thread and self._loop and self._stopping and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve_until_stopped())
        except OSError as error:
            self._failure = error
            self._started.set()

    async def _serve_until_stopped(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        async with serve(self._handler.answer, port=self._port) as self._port:
            self._started.set()
            await self._stopping.wait()


_STEPS_OF_ACCEPTING = 4
"""After so many rounds of the loop, a connection that was being accepted is known to the server, which can then cut it."""


@asynccontextmanager
async def serve(
    answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], *, port: int = 0, tls: SSLContext | None = None
) -> AsyncIterator[int]:
    """Listen on 127.0.0.1 in the running event loop, and yield the port; 0 takes a free one."""
    # The bare server: routes and middlewares would cost as much as the rest of an answer. asyncio sets TCP_NODELAY.
    server = web.Server(answer, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
    try:
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await site.stop()
        for _ in range(_STEPS_OF_ACCEPTING):
            await asyncio.sleep(0)
        # Closing politely waits for clients that read no further, for ever.
        await _abort_connections(server)
        await runner.cleanup()
        await _abort_connections(server)


async def _abort_connections(server: web.Server) -> None:
    """Cut every connection, also those that were accepted while the server closed."""
    for connection in server.connections:
        if connection.transport is not None:
            connection.transport.abort()
    await asyncio.sleep(0)
