"""Requests that a read sent, and that a simulated store saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from coldparquet.plan.model import ReadPlan
from coldparquet.ranges import ByteRange
from coldparquet.storage.log import RequestRecord
from coldparquet_testing.simulator import ColdStoreServer, ServedRequest
from tests.support.waiting import eventually

IN_VAIN = "data, asked for in vain"
"""Reason of requests for data that were sent by metadata that turned out to be stale."""

# --- Assertions about the requests that a read sent -------------------------------------------------------------------


def data_requests(log: Iterable[RequestRecord]) -> list[tuple[str, ByteRange]]:
    """Return the requests for rows, sorted: path and range of each."""
    return sorted(
        (record.path, record.byte_range)
        for record in log
        if record.role == "data" and isinstance(record.byte_range, ByteRange)
    )


def unannounced_requests(
    sent: Iterable[tuple[str, ByteRange]], plans: Iterable[ReadPlan]
) -> list[tuple[str, ByteRange]]:
    """Return the requests for rows that no plan announced.

    Those of the first stage are announced as they are sent. Of the second, plans announce all that may be needed, and what
    is sent lies within: parts of a planned request, or neighbouring ones with the gap between them. What was sent for
    metadata that turned out to be stale is among the plan's requests for metadata.
    """
    plans = list(plans)
    exactly = Counter((request.path, request.byte_range) for plan in plans for request in plan.requests)
    exactly.update(
        (request.path, request.byte_range)
        for plan in plans
        for request in plan.metadata_requests
        if request.reason == IN_VAIN and isinstance(request.byte_range, ByteRange)
    )
    left = list((Counter(sent) - exactly).elements())
    return [
        (path, byte_range) for path, byte_range in left if not any(_covers(plan, path, byte_range) for plan in plans)
    ]


def _covers(plan: ReadPlan, path: str, wanted: ByteRange) -> bool:
    """Tell whether the second stage of a plan announced a range, but for gaps that requests read over."""
    covered_to = wanted.start
    ranges = [request.byte_range for request in plan.requests if request.stage == 2 and request.path == path]
    for announced in sorted(ranges, key=lambda announced: announced.start):
        if announced.stop <= covered_to:
            continue
        gap_bytes = plan.widest_gap_bytes if covered_to > wanted.start else 0
        if announced.start > covered_to + gap_bytes:
            return False
        covered_to = announced.stop
        if covered_to >= wanted.stop:
            return True
    return False


def assert_plan_was_followed(plan: ReadPlan, log: Iterable[RequestRecord]) -> None:
    """The requests for data are exactly those that the plan announced, and each brought what it asked for.

    Those of a second stage are at most what it announced.
    """
    log = list(log)
    sent = data_requests(log)
    first_stage = Counter((request.path, request.byte_range) for request in plan.requests if request.stage == 1)
    assert not first_stage - Counter(sent)
    assert not unannounced_requests(sent, [plan])
    assert {record.status for record in log} <= {"ok", "NotFound"}
    fetched = sum(record.fetched_bytes for record in log if data_requests([record]))
    assert fetched <= plan.bytes_fetched
    if plan.round_trips < 2:
        assert sum(first_stage.values()) == len(sent)
        assert fetched == plan.bytes_fetched


# --- Requests as a simulated store saw them: all of them, or made up --------------------------------------------------


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
