"""HTTP requests as they are, without a client that repairs them."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coldparquet_testing.simulator import ColdStoreServer


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
