"""Runs the simulated cold store in a process of its own, so that it does not share the reader's interpreter lock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from typing import TYPE_CHECKING, Any, Self

from coldparquet.errors import StorageError
from coldparquet_testing.simulator.command import SECRET_KEY_VARIABLE, command_line_for
from coldparquet_testing.simulator.options import ColdStoreOptions, ServedRequest
from coldparquet_testing.simulator.server import storage_options_for

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_TIMEOUT_S = 20.0


class ColdStoreProcess:
    """A simulated cold store as a child process, for benchmarks; same interface as :class:`ColdStoreServer`.

    The child ends when this object is stopped, or when this process dies.

    Args:
        root: Directory whose folders are the buckets.
        options: Latency, bandwidth and faults.
    """

    def __init__(self, root: Path, options: ColdStoreOptions | None = None) -> None:
        self._root = root
        self._options = options or ColdStoreOptions()
        self._process: subprocess.Popen[str] | None = None
        self.endpoint_url = ""
        """Address of the server; empty before :meth:`start`."""

    @property
    def storage_options(self) -> dict[str, Any]:
        """The ``storage_options`` for coldparquet, s3fs or fsspec."""
        return storage_options_for(self.endpoint_url, self._options.secret_key)

    @property
    def process_id(self) -> int | None:
        """The child's process id while it runs; benchmarks use it to read the processor time."""
        return self._process.pid if self._process else None

    @property
    def requests(self) -> tuple[ServedRequest, ...]:
        """All finished requests since the start or the last :meth:`reset`."""
        return self._administer("__log")

    def reset(self) -> tuple[ServedRequest, ...]:
        """Clear the log of requests, and return it."""
        return self._administer("__reset")

    def start(self) -> None:
        """Start the child; returns when its port is open.

        Raises:
            StorageError: The child ended or printed nothing in time; its own message is on standard error.
        """
        command = [sys.executable, "-m", "coldparquet_testing.simulator"]
        environment = dict(os.environ)
        environment.pop(SECRET_KEY_VARIABLE, None)
        if self._options.secret_key is not None:
            environment[SECRET_KEY_VARIABLE] = self._options.secret_key
        process = subprocess.Popen(  # noqa: S603 - our own module with our own arguments
            command + command_line_for(self._root, self._options, port=0),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._process = process
        deadline = threading.Timer(_TIMEOUT_S, process.kill)
        deadline.start()
        line = process.stdout.readline() if process.stdout else ""
        deadline.cancel()
        if not line:
            self.stop()
            raise StorageError(
                "the simulated store did not start; see its message on standard error", kind="NotStarted"
            )
        self.endpoint_url = json.loads(line)["endpoint_url"]

    def stop(self) -> None:
        """End the child; calling it twice is fine."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin and process.stdout:
            process.stdin.close()
            process.stdout.close()
        try:
            process.wait(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _administer(self, name: str) -> tuple[ServedRequest, ...]:
        # A proxy of the environment must not be used: the address is this machine's own.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.endpoint_url}/{name}", timeout=_TIMEOUT_S) as answer:
            return tuple(ServedRequest(**record) for record in json.load(answer))
