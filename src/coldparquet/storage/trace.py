"""A store that records every request: for benchmarks, for tests of exact request logs, and for curious people."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coldparquet.errors import ColdParquetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coldparquet.ranges import ByteRange, SuffixRange
    from coldparquet.storage.base import FetchedRange, Listing, ObjectStore, RangeRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request that is over. Times count from the first request of the store, on a clock that never jumps."""

    operation: Literal["get", "list", "put"]
    path: str
    byte_range: ByteRange | SuffixRange | None
    """None for listings and writes."""
    reason: str
    started_s: float
    finished_s: float
    fetched_bytes: int
    """Bytes of data received; 0 for listings, writes and failures."""
    status: str
    """``"ok"``, ``"cancelled"``, or the ``kind`` of the error."""
    etag: str | None


@dataclass(slots=True)
class _Received:
    fetched_bytes: int = 0
    etag: str | None = None


class TraceStore:
    """Record what goes through to another store.

    Args:
        store: Where the requests go. Closing this store closes it.
        clock: Seconds that only grow.
    """

    def __init__(self, store: ObjectStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._first_started_s: float | None = None
        self._records: list[RequestRecord] = []

    @property
    def label(self) -> str:
        """Label of the store within."""
        return self._store.label

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """Requests that are over, in the order in which they started."""
        return tuple(sorted(self._records, key=lambda record: record.started_s))

    def clear(self) -> None:
        """Forget all records and start the clock anew."""
        self._records.clear()
        self._first_started_s = None

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range and record it."""
        with self._recorded("get", request.path, request.byte_range, request.reason) as received:
            fetched = await self._store.get(request)
            received.fetched_bytes, received.etag = len(fetched.data), fetched.etag
            return fetched

    async def list(self, path: str) -> Listing:
        """List and record it."""
        with self._recorded("list", path, None, "listing"):
            return await self._store.list(path)

    async def put(self, path: str, data: bytes, *, overwrite: bool) -> None:
        """Write and record it."""
        with self._recorded("put", path, None, f"write {len(data):,} bytes"):
            await self._store.put(path, data, overwrite=overwrite)

    async def aclose(self) -> None:
        """Close the store within; the records stay."""
        await self._store.aclose()

    @contextmanager
    def _recorded(
        self,
        operation: Literal["get", "list", "put"],
        path: str,
        byte_range: ByteRange | SuffixRange | None,
        reason: str,
    ) -> Iterator[_Received]:
        """Record the request made inside; what a GET receives is noted in the object that it yields."""
        started_s = self._clock()
        if self._first_started_s is None:
            self._first_started_s = started_s
        first_started_s = self._first_started_s
        received = _Received()
        status = "ok"
        try:
            yield received
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        except Exception as error:
            status = error.kind if isinstance(error, ColdParquetError) else type(error).__name__
            raise
        finally:
            self._records.append(
                RequestRecord(
                    operation=operation,
                    path=path,
                    byte_range=byte_range,
                    reason=reason,
                    started_s=started_s - first_started_s,
                    finished_s=self._clock() - first_started_s,
                    fetched_bytes=received.fetched_bytes,
                    status=status,
                    etag=received.etag,
                )
            )


def round_trips(spans: Iterable[tuple[float, float]]) -> int:
    """Return the length of the longest chain of requests of which each began when the one before it was over.

    This is what latency is paid for: requests beside such a chain cost no time of their own.

    Args:
        spans: ``(started_s, finished_s)`` of each request, on one clock, in any order.
    """
    trips, free_at_s = 0, float("-inf")
    # Of all chains of the same length, the one that ends first leaves the most room: so take requests as they finish.
    for started_s, finished_s in sorted(spans, key=lambda span: (span[1], span[0])):
        if started_s >= free_at_s:
            trips, free_at_s = trips + 1, finished_s
    return trips
