"""A cold object store on this machine: S3's requests over a directory, with latency, bandwidth and faults.

    with ColdStoreServer(Path("data"), ColdStoreOptions(first_byte_s=0.03, bandwidth_bytes_per_s=90e6)) as server:
        table = coldparquet.sync.open_table("s3://bucket/trades", storage_options=server.storage_options)
        print(len(server.requests))

The first level of folders below the root are the buckets. Boto3, s3fs, pyarrow, Polars and DuckDB read from it too,
so that readers can be compared on one store. It listens on 127.0.0.1 only. For benchmarks run it in a process of its
own (:class:`~coldparquet.testing.simulator_process.ColdStoreProcess`), or it takes the reader's interpreter lock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import stat
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from coldparquet.errors import InvalidInputError
from coldparquet.testing.simulator_handler import ColdStoreHandler
from coldparquet.testing.simulator_objects import DirectoryStore
from coldparquet.testing.simulator_options import ColdStoreOptions, ServedRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

SECRET_KEY_VARIABLE = "COLD_STORE_SECRET_KEY"  # noqa: S105 - the name of a variable
"""Environment variable that gives the command line its ``secret_key``; arguments are visible to every user."""

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

    Raises:
        InvalidInputError: ``root`` is not a directory.
    """

    def __init__(self, root: Path, options: ColdStoreOptions | None = None, *, port: int = 0) -> None:
        if not root.is_dir():
            raise InvalidInputError(f"the root of a simulated store must be a directory, not {root}", path=str(root))
        self._options = options or ColdStoreOptions()
        self._handler = ColdStoreHandler(DirectoryStore(root), self._options)
        self._port = port
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: OSError | None = None

    @property
    def endpoint_url(self) -> str:
        """Where the server listens, such as ``http://127.0.0.1:41234``."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def storage_options(self) -> dict[str, Any]:
        """What to pass as ``storage_options`` to coldparquet, s3fs or fsspec."""
        return storage_options_for(self.endpoint_url, self._options.secret_key)

    @property
    def requests(self) -> tuple[ServedRequest, ...]:
        """Every request that was finished since the start or the last :meth:`reset`."""
        return tuple(self._handler.served)

    def reset(self) -> None:
        """Forget the requests so far."""
        self._handler.served.clear()

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
        async with serve(self._handler, port=self._port) as self._port:
            self._started.set()
            await self._stopping.wait()


@asynccontextmanager
async def serve(handler: ColdStoreHandler, *, port: int) -> AsyncIterator[int]:
    """Listen on 127.0.0.1 in the running event loop, and give the port."""
    # The bare server: routes and middlewares would cost as much as the rest of an answer. asyncio sets TCP_NODELAY.
    runner = web.ServerRunner(web.Server(handler.answer, access_log=None), shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def command_line_for(root: Path, options: ColdStoreOptions, *, port: int) -> list[str]:
    """Return the arguments that make :func:`main` serve ``root`` with ``options``, all but the secret."""
    arguments = ["--root", str(root), "--port", str(port), "--first-byte-ms", repr(options.first_byte_s * 1e3)]
    if options.bandwidth_bytes_per_s is not None:
        arguments += ["--bandwidth-mb", repr(options.bandwidth_bytes_per_s / 1e6)]
    return [
        *arguments,
        *("--slow-tail-probability", repr(options.slow_tail_probability)),
        *("--slow-tail-factor", repr(options.slow_tail_factor)),
        *("--error-503-probability", repr(options.error_503_probability)),
        *("--cut-body-probability", repr(options.cut_body_probability)),
        *("--seed", str(options.seed)),
    ]


def main(arguments: list[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT; print one JSON line when the port is open.

    When standard input is a pipe, its end stops the server too, so that it does not outlive the program that made it.
    """
    parser = argparse.ArgumentParser(prog="python -m coldparquet.testing.simulator", description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="directory whose folders are the buckets")
    parser.add_argument("--port", type=int, default=0, help="TCP port; 0 takes a free one")
    parser.add_argument("--first-byte-ms", type=float, default=0.0, help="latency of every request")
    parser.add_argument("--bandwidth-mb", type=float, help="million bytes per second of one connection")
    parser.add_argument("--slow-tail-probability", type=float, default=0.0, help="share of slow requests")
    parser.add_argument("--slow-tail-factor", type=float, default=10.0, help="how much slower they are")
    parser.add_argument("--error-503-probability", type=float, default=0.0, help="share of requests that fail")
    parser.add_argument("--cut-body-probability", type=float, default=0.0, help="share of bodies that end too early")
    parser.add_argument("--seed", type=int, default=0, help="start of the random numbers")
    given = parser.parse_args(arguments)
    options = ColdStoreOptions(
        first_byte_s=given.first_byte_ms / 1e3,
        bandwidth_bytes_per_s=given.bandwidth_mb * 1e6 if given.bandwidth_mb else None,
        slow_tail_probability=given.slow_tail_probability,
        slow_tail_factor=given.slow_tail_factor,
        error_503_probability=given.error_503_probability,
        cut_body_probability=given.cut_body_probability,
        seed=given.seed,
        secret_key=os.environ.get(SECRET_KEY_VARIABLE),
    )
    asyncio.run(_serve_until_told(given.root, options, given.port))


async def _serve_until_told(root: Path, options: ColdStoreOptions, port: int) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)

    def wait_for_end_of_input() -> None:
        # Not sys.stdin.read: a thread that waits inside its buffer makes the interpreter abort at exit.
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(stopping.set)

    async with serve(ColdStoreHandler(DirectoryStore(root), options), port=port) as opened_port:
        print(json.dumps({"endpoint_url": f"http://127.0.0.1:{opened_port}"}), flush=True)  # noqa: T201
        if stat.S_ISFIFO(os.fstat(0).st_mode):
            threading.Thread(target=wait_for_end_of_input, daemon=True).start()
        await stopping.wait()


if __name__ == "__main__":
    main()
