"""How fast a store has been answering, from the requests that were sent to it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from coldparquet.plan.reading_choices import StoreSpeed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coldparquet.storage.trace import RequestRecord

_SMALL_BYTES, _LEAST_SMALL = 64 * 1024, 8
"""Requests up to this length tell how long the first byte takes, once there are so many of them."""

_LARGE_BYTES, _LEAST_LARGE = 512 * 1024, 4
"""Longer ones tell how fast the bytes follow."""

_SHORTEST_TRANSFER_S = 1e-4
"""No transfer is believed to be shorter: clocks and the event loop are not more exact."""


def measured_speed(records: Iterable[RequestRecord], *, connections: int) -> StoreSpeed:
    """Estimate latency and throughput as medians of what was seen; published figures where too little was.

    Args:
        records: The newest requests.
        connections: Requests in flight at once, at most.
    """
    gets = [record for record in records if record.operation == "get" and record.status == "ok"]
    small_s = [record.finished_s - record.started_s for record in gets if record.fetched_bytes <= _SMALL_BYTES]
    large = [record for record in gets if record.fetched_bytes >= _LARGE_BYTES]
    published = StoreSpeed(connections=connections)
    if len(small_s) < _LEAST_SMALL:
        return published
    first_byte_s = median(small_s)
    if len(large) < _LEAST_LARGE:
        return StoreSpeed(connections=connections, first_byte_s=first_byte_s)
    rates = [
        record.fetched_bytes / max(record.finished_s - record.started_s - first_byte_s, _SHORTEST_TRANSFER_S)
        for record in large
    ]
    return StoreSpeed(connections=connections, first_byte_s=first_byte_s, connection_bytes_per_s=median(rates))
