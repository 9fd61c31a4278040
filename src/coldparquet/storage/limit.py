"""How many requests, for how many bytes, may be in flight: a limit that follows the store.

The rule is that of TCP, slow start, then additive increase and multiplicative decrease:
https://www.rfc-editor.org/rfc/rfc5681#section-3.1
"""

from __future__ import annotations

import asyncio
import heapq
import weakref
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from coldparquet.errors import ColdParquetError, InvalidInputError
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.log import current_ledger
from coldparquet.storage.retry import is_throttled

if TYPE_CHECKING:
    from types import TracebackType

    from coldparquet.storage.base import Answer, Call, ObjectStore
    from coldparquet.storage.requests import FetchedRange, RangeRequest


MAX_BYTES_IN_FLIGHT = 256 * 1024 * 1024
"""More than the 75 MB that fill a line of 20 Gbit/s with 30 ms to the first byte."""

SMALL_LIMIT = 8
"""So few requests are a burden for no store: up to here the limit grows with every success."""


class InFlightLimit:
    """Admits requests in order of arrival, so that each question gets its share.

    The places of a question go to its requests by their ranks:
    metadata first, then the rows that are needed next.

    While the first one does not fit, all behind it wait, even smaller ones: otherwise they could hold it back forever.

    A request that the store turns away because there were too many (503, 429) halves the number of those that fit, at most
    once per round trip: the others in flight were sent under the old one. As many successes as requests fit raise it by
    one again, up to ``max_requests``; below :data:`SMALL_LIMIT` every success does.

    Args:
        max_requests: Requests in flight at once, at least 1.
        max_bytes: Bytes that requests in flight may bring or send. One for more than that goes alone.
    """

    def __init__(self, *, max_requests: int, max_bytes: int = MAX_BYTES_IN_FLIGHT) -> None:
        self.max_requests = max_requests
        """Most requests that ever fit."""
        self._max_bytes = max_bytes
        self._places: deque[object] = deque()
        """One for each request that waits, in order of arrival: the question that it belongs to."""
        self._waiting: dict[object, list[_Waiting]] = {}
        """By question: a heap of its requests."""
        self._numbers = count()
        self._successes = 0
        """Since the limit last changed."""
        self._round = 0
        """Grows with every halving: what was sent before says nothing about the new limit."""
        self.limit = max_requests
        """Requests that fit now."""
        self.request_count = 0
        """Requests in flight."""
        self.byte_count = 0
        """Bytes that they may bring or send."""
        self.slowdown_count = 0
        """Requests that were turned away because there were too many."""

    def widen(self, max_requests: int) -> None:
        """Let so many requests fit, if those are more than before."""
        if max_requests > self.max_requests:
            if self.limit == self.max_requests:
                self.limit = max_requests
            self.max_requests = max_requests
            self._admit()

    async def enter(self, size_bytes: int, *, rank: int = 0, question: object = None) -> int:
        """Wait until a request fits and count it in; :meth:`leave` counts it out."""
        if self._places or not self._fits(size_bytes):
            await self._wait(size_bytes, rank, question)
        else:
            self._count_in(size_bytes)
        return self._round

    def leave(self, size_bytes: int, *, sent_in: int, error: BaseException | None) -> None:
        """Count a request out, and learn from what became of it."""
        if error is None:
            if sent_in == self._round and self.limit < self.max_requests:
                self._grow()
        elif isinstance(error, ColdParquetError) and is_throttled(error):
            self.slowdown_count += 1
            if sent_in == self._round:
                self._round += 1
                self._successes = 0
                self.limit = max(1, self.limit // 2)
        self._count_out(size_bytes)

    async def _wait(self, size_bytes: int, rank: int, question: object) -> None:
        waiting = _Waiting(rank, next(self._numbers), size_bytes, asyncio.get_running_loop().create_future())
        self._places.append(question)
        heapq.heappush(self._waiting.setdefault(question, []), waiting)
        self._admit()
        try:
            await waiting.admitted
        except asyncio.CancelledError:
            if waiting.admitted.cancelled():
                self._admit()  # the others behind it may have waited for this one alone
            else:  # admitted and cancelled in the same turn of the loop
                self._count_out(size_bytes)
            raise

    def _grow(self) -> None:
        self._successes += 1
        if self._successes >= self.limit or self.limit < SMALL_LIMIT:
            self._successes = 0
            self.limit += 1

    def _count_in(self, size_bytes: int) -> None:
        self.request_count += 1
        self.byte_count += size_bytes

    def _count_out(self, size_bytes: int) -> None:
        self.request_count -= 1
        self.byte_count -= size_bytes
        self._admit()

    def _fits(self, size_bytes: int) -> bool:
        if self.request_count == 0:
            return True
        return self.request_count < self.limit and self.byte_count + size_bytes <= self._max_bytes

    def _admit(self) -> None:
        while self._places:
            question = self._places[0]
            waiting = self._waiting[question][0]
            if not waiting.admitted.cancelled():
                if not self._fits(waiting.size_bytes):
                    return
                self._count_in(waiting.size_bytes)
                waiting.admitted.set_result(None)
            self._places.popleft()
            heapq.heappop(self._waiting[question])
            if not self._waiting[question]:
                del self._waiting[question]


@dataclass(order=True, frozen=True, slots=True)
class _Waiting:
    """A request that is held back."""

    rank: int
    number: int
    """Of requests of one rank the earlier one comes first."""
    size_bytes: int = field(compare=False)
    admitted: asyncio.Future[None] = field(compare=False)


class Slot:
    """One request's place among those in flight, for ``async with``. A generator would cost more than all the rest.

    Args:
        limit: Who admits it.
        own: Who admits it first, where those who share the limit ask for different ones.
        size_bytes: Bytes that it may bring or send.
        rank: Of one question, requests of lower ranks are admitted first.
    """

    __slots__ = ("_limit", "_own", "_question", "_rank", "_sent_in", "_size_bytes")

    def __init__(
        self, limit: InFlightLimit, size_bytes: int = 0, rank: int = 0, own: InFlightLimit | None = None
    ) -> None:
        self._limit = limit
        self._own = own
        self._question = current_ledger()
        self._size_bytes = size_bytes
        self._sent_in = 0
        self._rank = rank

    async def __aenter__(self) -> None:
        if self._own is not None:
            await self._own.enter(0, rank=self._rank, question=self._question)
        try:
            self._sent_in = await self._limit.enter(self._size_bytes, rank=self._rank, question=self._question)
        except asyncio.CancelledError:
            self._leave_own()
            raise

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._limit.leave(self._size_bytes, sent_in=self._sent_in, error=error)
        self._leave_own()

    def _leave_own(self) -> None:
        if self._own is not None:
            self._own.leave(0, sent_in=0, error=None)


_LimitsOfLoops: TypeAlias = "WeakKeyDictionary[asyncio.AbstractEventLoop, InFlightLimit]"
_of_stores: dict[int, tuple[weakref.ref[ObjectStore], _LimitsOfLoops]] = {}
"""By the identity of each store, as long as it is there."""


def limit_of(store: ObjectStore, max_requests: int) -> InFlightLimit:
    """Return the limit of a store, which all that read and write through it in this event loop share.

    It is as wide as the widest of them asks for.
    """
    place = id(store)
    try:
        loop = asyncio.get_running_loop()
        reference = weakref.ref(store, lambda _: _of_stores.pop(place, None))
    except (RuntimeError, TypeError):  # no event loop runs yet; or a caller's own store that takes no weak references
        return InFlightLimit(max_requests=max_requests)
    _, limits = _of_stores.setdefault(place, (reference, WeakKeyDictionary()))
    limit = limits.setdefault(loop, InFlightLimit(max_requests=max_requests))
    limit.widen(max_requests)
    return limit


class LimitedStore(StoreWrapper):
    """Hold back requests while too many are in flight, or too many bytes; see there for their order.

    It is the only limit of requests: neither scans nor pools of connections have one of their own. How many are too many
    follows the store, see :class:`~coldparquet.storage.limit.InFlightLimit`.

    Once closed it sends nothing any more, neither new requests nor those that it held back: the store within might
    open new connections for them, which would never be closed.

    Args:
        store: Where the requests go. Closing this store closes it.
        max_concurrency: Requests in flight at once that come through here, at least 1.
        in_flight: The limit that others share who use the store; None makes one.
    """

    def __init__(self, store: ObjectStore, *, max_concurrency: int, in_flight: InFlightLimit | None = None) -> None:
        super().__init__(store)
        self.in_flight = in_flight or InFlightLimit(max_requests=max_concurrency)
        """What is in flight now, and how much may be."""
        self._own = InFlightLimit(max_requests=max_concurrency)
        self._is_closed = False

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Wait for a free slot, then fetch."""
        async with self._slot(request.byte_range.length_bytes, request.rank):
            self._refuse_if_closed()
            return await self._store.get(request)

    async def send(self, call: Call[Answer]) -> Answer:
        """Wait for a free slot, then make the call."""
        async with self._slot(call.size_bytes):
            self._refuse_if_closed()
            return await call.make(self._store)

    async def aclose(self) -> None:
        """Close the store within."""
        self._is_closed = True
        await super().aclose()

    def _slot(self, size_bytes: int, rank: int = 0) -> Slot:
        is_narrower = self._own.max_requests < self.in_flight.max_requests
        return Slot(self.in_flight, size_bytes, rank, self._own if is_narrower else None)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise InvalidInputError("the store was closed; open it again to read from it", kind="StoreClosed")
