"""Assertions about the requests that a read sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldparquet.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet.plan.read_plan import ReadPlan
    from coldparquet.storage.trace import RequestRecord

METADATA_REASONS = {
    "sidecar",
    "Parquet footer",
    "size of the Parquet file",
    "table files",
    "time search",
    "offsets",
    "symbols",
    "end of the Parquet file",
    "copy",
    "compare with what is to be written",
}
"""Requests that are sent to make plans, sidecars or copies, and so cannot be part of one."""


def data_requests(log: Iterable[RequestRecord]) -> list[tuple[str, ByteRange]]:
    """Return the requests for rows, sorted: path and range of each."""
    return sorted(
        (record.path, record.byte_range)
        for record in log
        if record.reason not in METADATA_REASONS and isinstance(record.byte_range, ByteRange)
    )


def assert_plan_was_followed(plan: ReadPlan, log: Iterable[RequestRecord]) -> None:
    """The requests for data are exactly those that the plan announced, and each brought what it asked for."""
    log = list(log)
    assert data_requests(log) == sorted((request.path, request.byte_range) for request in plan.requests)
    assert {record.status for record in log} <= {"ok", "NotFound"}
    fetched = sum(record.fetched_bytes for record in log if data_requests([record]))
    assert fetched == plan.bytes_fetched
