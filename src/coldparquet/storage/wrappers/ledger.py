"""What requests tell while they are under way, and the ledger of the scan for which they are sent.

Both travel in context variables: a task has those of the task that started it. So the wrappers between a scan and its
store need not know of either, second attempts and hedges are charged to the scan that wanted the bytes, and scans of one
table that run at the same time are told apart.
"""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Token

    from coldparquet.storage.wrappers.trace import Operation, RequestRecord

KEPT_RECORDS = 16_384
"""Records that are kept, of the newest requests: about 8 MiB. What is summed up counts all requests."""


class RequestNotes:
    """What becomes known of one request while it is under way.

    Args:
        clock: Seconds that only grow.
    """

    __slots__ = (
        "answer_count",
        "clock",
        "etag",
        "fetched_bytes",
        "first_byte_s",
        "http_status",
        "storage_class",
        "waited_s",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.fetched_bytes = 0
        self.etag: str | None = None
        self.first_byte_s: float | None = None
        self.http_status: int | None = None
        self.storage_class: str | None = None
        self.answer_count = 0
        self.waited_s = 0.0


_request: ContextVar[RequestNotes | None] = ContextVar("coldparquet_request", default=None)
_turn: ContextVar[Turn | None] = ContextVar("coldparquet_turn", default=None)
_ledger: ContextVar[Ledger | None] = ContextVar("coldparquet_ledger", default=None)


def note_answer(*, http_status: int, storage_class: str | None = None) -> None:
    """Note that an answer has begun to arrive; whoever speaks HTTP calls this when it has the headers.

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
    """Note bytes that arrived before the request failed; whoever keeps them for another attempt calls this."""
    notes = _request.get()
    if notes is not None:
        notes.fetched_bytes += byte_count


class Turn:
    """The time for which a request waits for its turn, for ``with``: inside it waits, and is sent.

    Its record says how long it has waited; that of another attempt, how long after the one before. Where several limits
    follow each other, it waits from the first one on.
    """

    __slots__ = ("_since_s", "_token")

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._token: Token[Turn | None] | None = None

    def __enter__(self) -> None:
        if _turn.get() is None:
            self._since_s = monotonic()
            self._token = _turn.set(self)

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _turn.reset(self._token)
            self._token = None

    def taken(self) -> float:
        """Return for how many seconds it has waited: the request is sent. Hedges, sent meanwhile, have not waited."""
        since_s, self._since_s = self._since_s, None
        return 0.0 if since_s is None else monotonic() - since_s

    def over(self) -> None:
        """The request is over: another attempt waits from now on."""
        self._since_s = monotonic()


def begin_request(notes: RequestNotes) -> Token[RequestNotes | None]:
    """Let what is noted from now on belong to this request, and note for how long it has waited."""
    turn = _turn.get()
    if turn is not None:
        notes.waited_s = turn.taken()
    return _request.set(notes)


def end_request(token: Token[RequestNotes | None]) -> None:
    """What is noted from now on belongs to the request before, if to any."""
    _request.reset(token)
    turn = _turn.get()
    if turn is not None:
        turn.over()


def note_cache_hit(byte_count: int) -> None:
    """Note an answer that needed no request, because its bytes were kept or came with those of another request."""
    ledger = _ledger.get()
    if ledger is not None:
        ledger.totals.cache_hits += 1
        ledger.totals.cache_hit_bytes += byte_count


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
    """How long requests waited for a turn, all together."""
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


@dataclass(slots=True)
class BilledRequests:
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

    def add(self, record: RequestRecord) -> None:
        """Sum up one more request; they come in the order in which they finish."""
        totals = self.totals
        self._records.append(record)
        totals.request_count += record.http_requests
        totals.fetched_bytes += record.fetched_bytes
        totals.waited_s += record.waited_s
        totals.retries += record.attempt > 1
        totals.hedges_sent += record.is_hedge
        totals.hedges_won += record.is_hedge and record.status == "ok"
        if record.is_billed:
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
