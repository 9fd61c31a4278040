"""What requests tell: the ledger of the scan that sent them, the speed of the store, and a record of each request.

Both travel in context variables: a task has those of the task that started it. So the wrappers between a scan and its
store need not know of either, second attempts and hedges are charged to the scan that wanted the bytes, and scans of one
table that run at the same time are told apart.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, defaultdict, deque
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct

from coldparquet import telemetry
from coldparquet.errors import ColdParquetError
from coldparquet.plan.model import CONNECTION_BYTES_PER_S, FIRST_BYTE_S, MetadataRequest, StoreSpeed
from coldparquet.records import replace
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.requests import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextvars import Token

    from coldparquet.plan.model import MetadataOperation
    from coldparquet.ranges import ByteRange, SuffixRange
    from coldparquet.storage.base import Answer, Call, ObjectStore, Operation
    from coldparquet.storage.requests import FetchedRange, RangeRequest, Role


KEPT_RECORDS = 16_384
"""Records that are kept, of the newest requests: about 8 MiB. What is summed up counts all requests."""


class RequestNotes(Struct):
    """What becomes known of one request while it is under way; it ends as its :class:`RequestRecord`."""

    clock: Callable[[], float]
    waited_s: float
    fetched_bytes: int = 0
    etag: str | None = None
    first_byte_s: float | None = None
    http_status: int | None = None
    storage_class: str | None = None
    answer_count: int = 0


_request: ContextVar[RequestNotes | None] = ContextVar("coldparquet_request", default=None)
_slot_wait: ContextVar[SlotWait | None] = ContextVar("coldparquet_slot_wait", default=None)
_ledger: ContextVar[Ledger | None] = ContextVar("coldparquet_ledger", default=None)
_metadata: ContextVar[list[MetadataRequest] | None] = ContextVar("coldparquet_metadata", default=None)


def note_answer(*, http_status: int, storage_class: str | None = None) -> None:
    """Note that an answer has begun to arrive; a client of HTTP calls this when it has the headers.

    Args:
        http_status: Such as 206.
        storage_class: What the store says of the object, None if nothing, as S3 does for STANDARD.
    """
    notes = _request.get()
    if notes is None:
        return
    notes.answer_count += 1
    notes.http_status = http_status
    notes.storage_class = storage_class or notes.storage_class
    if notes.first_byte_s is None:
        notes.first_byte_s = notes.clock()


def note_received(byte_count: int) -> None:
    """Note bytes that arrived before the request failed; called where they are kept for another attempt."""
    notes = _request.get()
    if notes is not None:
        notes.fetched_bytes += byte_count


class SlotWait:
    """The time for which a request waits for a slot, for ``with``: inside it waits, and is sent.

    Its record says how long it has waited; that of another attempt, how long after the one before.
    """

    __slots__ = ("_since_s", "_token")

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._token: Token[SlotWait | None] | None = None

    def __enter__(self) -> None:
        if _slot_wait.get() is None:
            self._since_s = monotonic()
            self._token = _slot_wait.set(self)

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _slot_wait.reset(self._token)
            self._token = None

    def taken(self) -> float:
        """Return for how many seconds it has waited: the request is sent. Hedges, sent meanwhile, have not waited."""
        since_s, self._since_s = self._since_s, None
        return 0.0 if since_s is None else monotonic() - since_s

    def over(self) -> None:
        """The request is over: another attempt waits from now on."""
        self._since_s = monotonic()


def note_cache_hit(byte_count: int) -> None:
    """Note an answer that needed no request, because its bytes were kept or came with those of another request."""
    ledger = _ledger.get()
    if ledger is not None:
        ledger.totals.cache_hits += 1
        ledger.totals.cache_hit_bytes += byte_count


@contextmanager
def metadata_requests(into: list[MetadataRequest] | None = None) -> Iterator[list[MetadataRequest]]:
    """Collect what is noted inside, and in tasks that are started inside; what is around it collects none of that."""
    collected = [] if into is None else into
    token = _metadata.set(collected)
    try:
        yield collected
    finally:
        _metadata.reset(token)


def note_metadata(
    path: str,
    byte_range: ByteRange | SuffixRange | None,
    reason: str,
    *,
    fetched_bytes: int = 0,
    operation: MetadataOperation = "get",
) -> None:
    """Note a request that a plan needed: it is charged for it, however many attempts it took."""
    collected = _metadata.get()
    if collected is not None:
        collected.append(
            MetadataRequest(
                path=path, byte_range=byte_range, reason=reason, fetched_bytes=fetched_bytes, operation=operation
            )
        )


def note_metadata_answer(request: RangeRequest, answer: FetchedRange) -> None:
    """Note a request for metadata, unless a cache answered it."""
    if not answer.is_from_cache:
        note_metadata(request.path, request.byte_range, request.reason, fetched_bytes=len(answer.data))


async def get_metadata(store: ObjectStore, request: RangeRequest) -> FetchedRange:
    """Fetch a range and note the request. 1 request, none where a cache answers."""
    answer = await store.get(request)
    note_metadata_answer(request, answer)
    return answer


@dataclass(slots=True)
class LedgerTotals:
    """What a ledger has summed up so far."""

    request_count: int = 0
    """As sent: second attempts, hedges and the pages of a listing are requests of their own."""
    fetched_bytes: int = 0
    retries: int = 0
    hedges_sent: int = 0
    hedges_won: int = 0
    round_trips: int = 0
    waited_s: float = 0.0
    """How long requests waited for a slot, all together."""
    cache_hits: int = 0
    cache_hit_bytes: int = 0
    asked_bytes: int = 0
    """Length of the requests for data, gaps included; also of those that a cache answered."""
    wanted_bytes: int = 0
    """Those of them for which the rows have a use."""
    row_count: int = 0
    """Rows read that satisfy the predicate."""
    decode_s: float = 0.0
    """How long threads decoded, all together."""


class BilledRequests(Struct):
    """Requests of one kind that a store asks money for."""

    request_count: int = 0
    fetched_bytes: int = 0


class Ledger:
    """Sums up what one scan costs. Its memory does not grow with the number of requests."""

    def __init__(self) -> None:
        self.totals = LedgerTotals()
        self.billed: defaultdict[tuple[Operation, str | None], BilledRequests] = defaultdict(BilledRequests)
        """By operation and storage class."""
        self._records: deque[RequestRecord] = deque(maxlen=KEPT_RECORDS)
        self._free_at_s = float("-inf")
        self._running = 0
        self._running_since_s = 0.0
        self._elapsed_s = 0.0

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        """The newest requests that are over, in the order in which they started."""
        return tuple(sorted(self._records, key=lambda record: record.started_s))

    @property
    def elapsed_s(self) -> float:
        """For how long anything was going on."""
        return self._elapsed_s + (monotonic() - self._running_since_s if self._running else 0.0)

    def add(self, record: RequestRecord, *, has_price: bool = True) -> None:
        """Sum up one more request, of a store that asks money or not; they come in the order in which they finish."""
        totals = self.totals
        self._records.append(record)
        totals.request_count += record.http_requests
        totals.fetched_bytes += record.fetched_bytes
        totals.waited_s += record.waited_s
        totals.retries += record.attempt > 1
        totals.hedges_sent += record.is_hedge
        totals.hedges_won += record.is_hedge and record.status == "ok"
        if has_price and record.is_billed:
            billed = self.billed[record.operation, record.storage_class]
            billed.request_count += record.http_requests
            billed.fetched_bytes += record.fetched_bytes
        # The rule of `round_trips`: the longest chain takes requests as they finish.
        if record.started_s >= self._free_at_s:
            totals.round_trips += 1
            self._free_at_s = record.finished_s

    def begin(self) -> None:
        """Something begins for which the time counts; it may begin several times at once."""
        if not self._running:
            self._running_since_s = monotonic()
        self._running += 1

    def end(self) -> None:
        """Something that has begun is over."""
        self._running -= 1
        if not self._running:
            self._elapsed_s += monotonic() - self._running_since_s

    @contextmanager
    def current(self) -> Iterator[None]:
        """Charge to this ledger what is done inside, and in tasks that are started inside."""
        token = _ledger.set(self)
        try:
            yield
        finally:
            _ledger.reset(token)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Charge to this ledger what is done inside, and count its time."""
        self.begin()
        try:
            with self.current():
                yield
        finally:
            self.end()


def current_ledger() -> Ledger | None:
    """Return the ledger of the scan for which this task works; None where there is none."""
    return _ledger.get()


_SMALL_BYTES = 64 * 1024
"""Where it was not noted when the first byte came, requests up to this length tell how long it takes."""

_LEAST_ANSWERS, _KEPT_ANSWERS = 8, 128
"""So many first bytes make an estimate; the newest count."""

_LARGE_BYTES, _LEAST_LARGE, _KEPT_LARGE = 512 * 1024, 4, 64
"""Long requests tell how fast the bytes follow. Shorter ones may lie in a buffer before they are read."""

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


_TELLING_THEIR_ETAG = frozenset({"put", "finish upload"})
"""Writes whose answer is the ETag of what they wrote."""

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
    """How long it waited for a slot before it started."""
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

    def clear(self) -> None:
        """Forget all records and start the clock anew."""
        self._records.clear()
        self._operation_counts.clear()
        self._first_started_s = None

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range and record it."""
        with self._recorded("get", request.path, request.reason, request) as notes:
            fetched = await self._store.get(request)
            notes.fetched_bytes, notes.etag = len(fetched.data), fetched.etag
            return fetched

    async def send(self, call: Call[Answer]) -> Answer:
        """Make a call and record it, as one request however many it takes."""
        with self._recorded(call.operation, call.path, call.reason) as notes:
            answer = await call.make(self._store)
            if isinstance(answer, ObjectInfo):
                notes.etag, notes.storage_class = answer.etag, answer.storage_class
            elif isinstance(answer, str) and call.operation in _TELLING_THEIR_ETAG:
                notes.etag = answer
            return answer

    @contextmanager
    def _recorded(
        self, operation: Operation, path: str, reason: str, request: RangeRequest | None = None
    ) -> Iterator[RequestNotes]:
        """Record the request made inside; what it receives is noted in the object that it yields."""
        started_s = self._clock()
        if self._first_started_s is None:
            self._first_started_s = started_s
        zero_s = self._first_started_s
        wait = _slot_wait.get()
        notes = RequestNotes(self._clock, waited_s=0.0 if wait is None else wait.taken())
        status = "ok"
        token = _request.set(notes)  # what is noted belongs to this request
        try:
            yield notes
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        except Exception as error:
            status = error.kind if isinstance(error, ColdParquetError) else type(error).__name__
            raise
        finally:
            _request.reset(token)
            if wait is not None:
                wait.over()
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
            ledger.add(record, has_price=self.has_storage_classes)
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
