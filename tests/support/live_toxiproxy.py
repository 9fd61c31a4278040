"""A toxiproxy: a bad network between us and a server, switched by HTTP."""

from __future__ import annotations

import json
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.live_servers import LiveS3

_PROXY = "/proxies/store"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveToxiproxy:
    """A running toxiproxy with one proxy."""

    control_url: str
    store: LiveS3
    """The server as it is reached through the proxy."""

    @contextmanager
    def toxic(self, kind: str, *, toxicity: float = 1.0, **attributes: int) -> Iterator[None]:
        """Make the network bad within the block.

        Args:
            kind: Of toxic: ``latency``, ``slicer``, ``bandwidth``, ``limit_data``, ``reset_peer`` or ``timeout``.
            toxicity: Share of the connections.
            **attributes: Of the toxic; times in milliseconds, sizes in bytes.
        """
        toxic = {"name": kind, "type": kind, "toxicity": toxicity, "attributes": attributes}
        self._send("POST", f"{_PROXY}/toxics", toxic)
        try:
            yield
        finally:
            self._send("DELETE", f"{_PROXY}/toxics/{kind}")

    @contextmanager
    def down(self) -> Iterator[None]:
        """Let nobody in within the block; connections that are open are closed."""
        self._send("POST", _PROXY, {"enabled": False})
        try:
            yield
        finally:
            self._send("POST", _PROXY, {"enabled": True})

    def _send(self, method: str, path: str, content: dict[str, Any] | None = None) -> None:
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.control_url + path, body, method=method)  # noqa: S310 - our own server
        # A proxy of the environment must not see this: the address is this machine's own.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:  # a toxic is dropped once what it holds was sent
            answer.read()
