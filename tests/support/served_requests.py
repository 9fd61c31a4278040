"""Requests as a simulated store saw them: all of them, or made up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coldparquet_testing.simulator import ServedRequest
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from coldparquet_testing.simulator import ColdStoreServer


async def finished_requests(server: ColdStoreServer) -> tuple[ServedRequest, ...]:
    """Return the requests of a server once it has noted the last one, which may be after its client has all of the answer."""
    await eventually(lambda: server.requests_under_way == 0)
    return server.requests


def served_request(**facts: Any) -> ServedRequest:
    """Return a GET of an object with these facts, and nothing remarkable besides."""
    return ServedRequest(
        **{
            "operation": "GetObject", "method": "GET", "path": "bucket/x", "query": "", "range_header": None,
            "status": 206, "started_s": 0.0, "finished_s": 0.0, "bytes_sent": 0,
        } | facts,
    )  # fmt: skip
