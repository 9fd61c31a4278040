"""A store that records every request: for benchmarks, for tests of exact request logs, and for curious people."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, deque
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias

from coldparquet import telemetry
from coldparquet.errors import ColdParquetError
from coldparquet.storage.wrappers.ledger import KEPT_RECORDS, RequestNotes, begin_request, current_ledger, end_request
from coldparquet.storage.wrappers.wrapper import StoreWrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from coldparquet.prices import RestoreTier
    from coldparquet.ranges import ByteRange, SuffixRange
    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.objects import Listing, ObjectInfo, Upload, UploadedPart
    from coldparquet.storage.requests import FetchedRange, RangeRequest, Role

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
    "restore",
    "change class",
]
"""The calls of a store."""

_FIRST_SERVER_ERROR = 500

_CLASS_NAME = re.compile("[A-Z_]{1,19}")
"""S3's longest is ``INTELLIGENT_TIERING``. Access keys have 20 characters, and tokens more: a server that sends back what it
was sent gets none of them into the log."""


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
    """Bytes of data received: 0 for all but GETs; of failures and lost races what is known to have arrived."""
    status: str
    """``"ok"``, ``"cancelled"``, or the ``kind`` of the error."""
    etag: str | None
    attempt: int = 1
    """1 for the first one, 2 for the first that repeats it, and so on."""
    role: Role = "metadata"
    """What it was for: rows, or what has to be known to read rows."""
    is_hedge: bool = False
    """Whether it was sent because another one for the same bytes was slow."""
    waited_s: float = 0.0
    """How long it waited for a turn before it started."""
    first_byte_s: float | None = None
    """When its answer began to arrive; None where that is not known."""
    http_status: int | None = None
    """None where no answer came, and for stores that do not speak HTTP."""
    storage_class: str | None = None
    """Class of the object, as the answer says; None where it says nothing, as S3 of objects in STANDARD."""
    http_requests: int = 1
    """What the call took: a long listing comes in several pages."""

    @property
    def is_billed(self) -> bool:
        """Whether a store asks money for it, as S3 does for everything but its own errors and broken connections."""
        if self.http_status is None:
            return self.status in ("ok", "NotFound")
        return self.http_status < _FIRST_SERVER_ERROR


class TraceStore(StoreWrapper):
    """Record what goes through to another store.

    Args:
        store: Where the requests go. Closing this store closes it.
        clock: Seconds that only grow.
        observe: Called with each record.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Callable[[], float] = time.monotonic,
        observe: Callable[[RequestRecord], None] | None = None,
    ) -> None:
        super().__init__(store)
        self._observe = observe
        self._clock = clock
        self._first_started_s: float | None = None
        self._records: deque[RequestRecord] = deque(maxlen=KEPT_RECORDS)
        self._operation_counts: Counter[Operation] = Counter()

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """The newest requests that are over, at most ``KEPT_RECORDS``, in the order in which they started."""
        return tuple(sorted(self._records, key=lambda record: record.started_s))

    @property
    def operation_counts(self) -> Counter[Operation]:
        """How many calls of each kind are over, those included whose records are not kept any more."""
        return self._operation_counts.copy()

    def newest(self, count: int) -> tuple[RequestRecord, ...]:
        """Return the last requests that ended, at most so many."""
        return tuple(islice(self._records, max(0, len(self._records) - count), None))

    def clear(self) -> None:
        """Forget all records and start the clock anew."""
        self._records.clear()
        self._operation_counts.clear()
        self._first_started_s = None

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range and record it."""
        with self._recorded("get", request.path, request.reason, request) as notes:
            fetched = await super().get(request)
            notes.fetched_bytes, notes.etag = len(fetched.data), fetched.etag
            return fetched

    async def info(self, path: str) -> ObjectInfo:
        """Ask and record it."""
        with self._recorded("info", path, "size and storage class") as notes:
            found = await super().info(path)
            notes.etag, notes.storage_class = found.etag, found.storage_class
            return found

    async def list(self, path: str, *, first_page_only: bool = False) -> Listing:
        """List and record it."""
        with self._recorded("list", path, "listing"):
            return await super().list(path, first_page_only=first_page_only)

    async def list_between(self, path: str, *, start: str, stop: str) -> tuple[ObjectInfo, ...]:
        """List and record it."""
        with self._recorded("list", path, "listing of versions"):
            return await super().list_between(path, start=start, stop=stop)

    async def put(
        self, path: str, data: bytes, *, overwrite: bool, if_match: str | None = None, storage_class: str | None = None
    ) -> str | None:
        """Write and record it."""
        with self._recorded("put", path, f"write {len(data):,} bytes") as notes:
            notes.etag = await super().put(
                path, data, overwrite=overwrite, if_match=if_match, storage_class=storage_class
            )
            return notes.etag

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
        with self._recorded("finish upload", upload.path, f"join {len(parts):,} parts") as notes:
            notes.etag = await super().finish_upload(upload, parts, overwrite=overwrite)
            return notes.etag

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

    async def restore(self, path: str, *, days: int, tier: RestoreTier) -> None:
        """Ask for a restored copy and record it."""
        with self._recorded("restore", path, f"restore for {days:,} days, {tier}"):
            await super().restore(path, days=days, tier=tier)

    async def change_class(self, path: str, *, storage_class: str, if_match: str) -> str | None:
        """Move to another storage class and record it."""
        with self._recorded("change class", path, f"move to {storage_class}"):
            return await super().change_class(path, storage_class=storage_class, if_match=if_match)

    @contextmanager
    def _recorded(
        self, operation: Operation, path: str, reason: str, request: RangeRequest | None = None
    ) -> Iterator[RequestNotes]:
        """Record the request made inside; what it receives is noted in the object that it yields."""
        started_s = self._clock()
        if self._first_started_s is None:
            self._first_started_s = started_s
        zero_s = self._first_started_s
        notes = RequestNotes(self._clock)
        status = "ok"
        token = begin_request(notes)
        try:
            yield notes
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        except Exception as error:
            status = error.kind if isinstance(error, ColdParquetError) else type(error).__name__
            raise
        finally:
            end_request(token)
            self._add(
                RequestRecord(
                    operation=operation,
                    path=path,
                    byte_range=None if request is None else request.byte_range,
                    reason=reason,
                    started_s=started_s - zero_s,
                    finished_s=self._clock() - zero_s,
                    fetched_bytes=notes.fetched_bytes,
                    status=status,
                    etag=notes.etag,
                    attempt=1 if request is None else request.attempt,
                    role="metadata" if request is None else request.role,
                    is_hedge=request is not None and request.is_hedge,
                    waited_s=notes.waited_s,
                    first_byte_s=None if notes.first_byte_s is None else notes.first_byte_s - zero_s,
                    http_status=notes.http_status,
                    storage_class=_class_name(notes.storage_class),
                    http_requests=max(notes.answer_count, 1),
                )
            )

    def _add(self, record: RequestRecord) -> None:
        self._records.append(record)
        self._operation_counts[record.operation] += 1
        if self._observe is not None:
            self._observe(record)
        ledger = current_ledger()
        if ledger is not None:
            ledger.add(record)
        if telemetry.is_wanted():
            _emit_span(record)


def _class_name(told: str | None) -> str | None:
    """Return what may be the name of a storage class; None if nothing was told."""
    return told if told is None or _CLASS_NAME.fullmatch(told) else "unknown"


def _emit_span(record: RequestRecord) -> None:
    facts = {
        "coldparquet.path": record.path,
        "coldparquet.range": None if record.byte_range is None else str(record.byte_range),
        "coldparquet.reason": record.reason,
        "coldparquet.attempt": record.attempt,
        "coldparquet.is_hedge": record.is_hedge,
        "coldparquet.waited_s": record.waited_s,
        "coldparquet.fetched_bytes": record.fetched_bytes,
        "coldparquet.status": record.status,
        "coldparquet.storage_class": record.storage_class,
        "http.response.status_code": record.http_status,
    }
    telemetry.emit_request(
        f"coldparquet.{record.operation}",
        took_s=record.finished_s - record.started_s,
        attributes={name: value for name, value in facts.items() if value is not None},
        problem=None if record.status in ("ok", "cancelled") else record.status,
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
