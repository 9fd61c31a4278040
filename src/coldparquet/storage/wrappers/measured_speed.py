"""How fast a store has been answering, from the requests that were sent to it: remembered per endpoint for the process."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from coldparquet.plan.store_speed import CONNECTION_BYTES_PER_S, FIRST_BYTE_S, StoreSpeed

if TYPE_CHECKING:
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.wrappers.trace import RequestRecord

_SMALL_BYTES = 64 * 1024
"""Where nobody noted when the first byte came, requests up to this length tell how long it takes."""

_LEAST_ANSWERS, _KEPT_ANSWERS = 8, 128
"""So many first bytes make an estimate; the newest count."""

_LARGE_BYTES, _LEAST_LARGE, _KEPT_LARGE = 512 * 1024, 4, 64
"""Long requests tell how fast the bytes follow. Shorter ones may lie in a buffer before anybody looks."""

_SHORTEST_TRANSFER_S = 1e-4
"""No transfer is believed to be shorter: clocks and the event loop are not more exact."""

_NO_ENDPOINTS = frozenset({"memory", "local files"})
"""Labels of stores that are not one place for the whole process: what one of them does says nothing about the next."""

_MOST_ENDPOINTS = 256
"""A process that talks to more of them forgets the first ones."""


class SpeedSamples:
    """What the newest requests to one endpoint have shown."""

    def __init__(self) -> None:
        self._first_byte_s: deque[float] = deque(maxlen=_KEPT_ANSWERS)
        self._transfers: deque[tuple[int, float, bool]] = deque(maxlen=_KEPT_LARGE)
        """Bytes and seconds of each long request, and whether the seconds begin with the first byte."""

    def add(self, record: RequestRecord) -> None:
        """Take a request into account: only GETs that were answered in full tell anything."""
        if record.operation != "get" or record.status != "ok":
            return
        first_byte_s = record.first_byte_s
        if first_byte_s is not None:
            self._first_byte_s.append(first_byte_s - record.started_s)
        elif record.fetched_bytes <= _SMALL_BYTES:
            self._first_byte_s.append(record.finished_s - record.started_s)
        if record.fetched_bytes >= _LARGE_BYTES:
            began_s = record.started_s if first_byte_s is None else first_byte_s
            self._transfers.append((record.fetched_bytes, record.finished_s - began_s, first_byte_s is not None))

    def speed(self, *, connections: int) -> StoreSpeed:
        """Estimate latency and throughput as medians of what was seen; published figures where too little was.

        Args:
            connections: Requests in flight at once, at most.
        """
        latencies, transfers = tuple(self._first_byte_s), tuple(self._transfers)
        is_first_byte_measured = len(latencies) >= _LEAST_ANSWERS
        first_byte_s = median(latencies) if is_first_byte_measured else FIRST_BYTE_S
        # Without a first byte of its own a transfer is what is left of the request behind the usual latency.
        rates = [
            length_bytes / max(seconds - (0.0 if has_begun else first_byte_s), _SHORTEST_TRANSFER_S)
            for length_bytes, seconds, has_begun in transfers
            if has_begun or is_first_byte_measured
        ]
        is_throughput_measured = len(rates) >= _LEAST_LARGE
        return StoreSpeed(
            connections=connections,
            first_byte_s=first_byte_s,
            connection_bytes_per_s=median(rates) if is_throughput_measured else CONNECTION_BYTES_PER_S,
            is_first_byte_measured=is_first_byte_measured,
            is_throughput_measured=is_throughput_measured,
        )


_BY_ENDPOINT: dict[str, SpeedSamples] = {}


class SpeedMeter:
    """Measures one store together with all others of the process that talk to the same endpoint.

    Args:
        store: Its label says which endpoint that is; it may become more exact with the first request.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._of_this_store = SpeedSamples()

    def note(self, record: RequestRecord) -> None:
        """Take a request into account that is over."""
        self._samples.add(record)

    def speed(self, *, connections: int) -> StoreSpeed:
        """Tell how fast the store is, as far as it is known; see :meth:`SpeedSamples.speed`."""
        speed = self._samples.speed(connections=connections)
        return replace(speed, is_remote=self._store.label not in _NO_ENDPOINTS)

    @property
    def _samples(self) -> SpeedSamples:
        endpoint = self._store.label
        if endpoint in _NO_ENDPOINTS:
            return self._of_this_store
        samples = _BY_ENDPOINT.setdefault(endpoint, self._of_this_store)
        while len(_BY_ENDPOINT) > _MOST_ENDPOINTS:
            _BY_ENDPOINT.pop(next(iter(_BY_ENDPOINT)), None)
        return samples
