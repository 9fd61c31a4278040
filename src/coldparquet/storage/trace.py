"""A store that records every request: for benchmarks, for tests of exact request logs, and for curious people."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from coldparquet.errors import ColdParquetError
from coldparquet.storage.wrapper import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from coldparquet.ranges import ByteRange, SuffixRange
    from coldparquet.storage.base import (
        FetchedRange,
        Listing,
        ObjectInfo,
        ObjectStore,
        RangeRequest,
        Upload,
        UploadedPart,
    )

Operation: TypeAlias = Literal[
    "get",
    "info",
    "list",
    "put",
    "start upload",
    "upload part",
    "finish upload",
    "abort upload",
    "remove unfinished",
    "delete",
]
"""The calls of a store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request that is over. Times count from the first request of the store, on a clock that never jumps."""

    operation: Operation
    path: str
    byte_range: ByteRange | SuffixRange | None
    """None for all but GETs."""
    reason: str
    started_s: float
    finished_s: float
    fetched_bytes: int
    """Bytes of data received; 0 for all but GETs, and for failures."""
    status: str
    """``"ok"``, ``"cancelled"``, or the ``kind`` of the error."""
    etag: str | None


@dataclass(slots=True)
class _Received:
    fetched_bytes: int = 0
    etag: str | None = None


class TraceStore(StoreWrapper):
    """Record what goes through to another store.

    Args:
        store: Where the requests go. Closing this store closes it.
        clock: Seconds that only grow.
    """

    def __init__(self, store: ObjectStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(store)
        self._clock = clock
        self._first_started_s: float | None = None
        self._records: list[RequestRecord] = []

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """Requests that are over, in the order in which they started."""
        return tuple(sorted(self._records, key=lambda record: record.started_s))

    def newest(self, count: int) -> tuple[RequestRecord, ...]:
        """Return the last requests that ended, at most so many."""
        return tuple(self._records[-count:])

    def clear(self) -> None:
        """Forget all records and start the clock anew."""
        self._records.clear()
        self._first_started_s = None

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range and record it."""
        with self._recorded("get", request.path, request.reason, byte_range=request.byte_range) as received:
            fetched = await super().get(request)
            received.fetched_bytes, received.etag = len(fetched.data), fetched.etag
            return fetched

    async def info(self, path: str) -> ObjectInfo:
        """Ask and record it."""
        with self._recorded("info", path, "what is known of the object") as received:
            found = await super().info(path)
            received.etag = found.etag
            return found

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        """List and record it."""
        with self._recorded("list", path, "listing"):
            return await super().list(path, first_page_only=first_page_only)

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Write and record it."""
        with self._recorded("put", path, f"write {len(data):,} bytes") as received:
            received.etag = await super().put(
                path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class
            )
            return received.etag

    async def start_upload(self, path: str, *, storage_class: str | None = None) -> Upload:
        """Begin an upload and record it."""
        with self._recorded("start upload", path, "write in parts"):
            return await super().start_upload(path, storage_class=storage_class)

    async def upload_part(self, upload: Upload, number: int, *, start: int, data: bytes) -> UploadedPart:
        """Send one part and record it."""
        with self._recorded("upload part", upload.path, f"part {number}: write {len(data):,} bytes"):
            return await super().upload_part(upload, number, start=start, data=data)

    async def finish_upload(self, upload: Upload, parts: Sequence[UploadedPart], *, overwrite: bool) -> str | None:
        """Finish an upload and record it."""
        with self._recorded("finish upload", upload.path, f"join {len(parts):,} parts") as received:
            received.etag = await super().finish_upload(upload, parts, overwrite=overwrite)
            return received.etag

    async def abort_upload(self, upload: Upload) -> None:
        """Abort an upload and record it."""
        with self._recorded("abort upload", upload.path, "throw the parts away"):
            await super().abort_upload(upload)

    async def remove_unfinished(self, path: str, *, started_before_s: float) -> int:
        """Remove and record it, as one request."""
        with self._recorded("remove unfinished", path, "left behind by killed uploads"):
            return await super().remove_unfinished(path, started_before_s=started_before_s)

    async def delete(self, paths: Sequence[str]) -> None:
        """Remove and record it, as one request under the first path."""
        with self._recorded("delete", paths[0] if paths else "", f"delete {len(paths):,} objects"):
            await super().delete(paths)

    @contextmanager
    def _recorded(
        self, operation: Operation, path: str, reason: str, *, byte_range: ByteRange | SuffixRange | None = None
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
