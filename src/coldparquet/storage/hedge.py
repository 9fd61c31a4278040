"""A second GET for what takes unusually long: when one is sent, and which answer counts.

When a GET is slow is learned from the newest ones. Only the slowest twentieth is worth it, as AnyBlob found for S3 (https://www.vldb.org/pvldb/vol16/p2769-durner.pdf). In a
partial outage everything is slow, and a second request for everything would double what the store suffers from.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, cast

from coldparquet.errors import ColdParquetError
from coldparquet.records import replace
from coldparquet.storage.base import StoreWrapper
from coldparquet.storage.retry import RetryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldparquet.storage.base import ObjectStore
    from coldparquet.storage.requests import FetchedRange, RangeRequest


SIZE_CLASSES_BYTES = (64 * 1024, 512 * 1024, 2 * 1024 * 1024)
"""Upper ends of the classes of GETs that are compared with each other; what is longer is a class of its own."""

LEAST_SAMPLES = 3
"""Nothing is known of a class before so many of its GETs were answered: the median of three stands where one was slow."""

BUDGET_SHARE = 0.05
"""Second requests per first one, in the long run."""

OUTAGE_SHARE = 0.1
"""Where more of the newest GETs than this were slow, slowness is no accident of single ones."""

_CREDIT_TOKENS, _MOST_SAVED_TOKENS = 1.0, 10.0
"""Second requests that may be sent before the first ones have paid for them, and that a quiet time saves up for."""

_SAMPLES = 256
"""Newest durations of a class that its percentiles are made of."""

_UPDATE_SHARE = 4
"""The percentiles are computed again when a quarter of the durations are new."""

_RESERVED_TOKENS, _RESERVED_FACTOR = 3.0, 1.3
"""The last saved ones are for GETs that take so many times as long: a twentieth of all is beyond the 95th percentile by its
nature, and would otherwise spend what the few that hang are in need of."""

_NEWEST, _LEAST_NEWEST = 100, 20
"""GETs, of all classes, that tell an outage from an accident; where there were fewer, as if the others had been in time."""

_SHORTEST_WAIT_S = 0.005
"""Timers and the event loop are not more exact than this."""

_LEAST_FACTOR = 1.3
"""What takes hardly longer than the median is not slow, though it may be slower than 95 %: where all take about the same time,
the budget would be spent on nothing, and be gone when one hangs."""

_MOST_FACTOR = 4.0
"""What takes this many times the median is slow, though more than 5 % may be: a few slow ones among the first samples would
otherwise set the measure. On S3 the 95th percentile is about 3 times the median."""


class HedgePace:
    """Decides over the second requests of one store."""

    def __init__(self) -> None:
        self._classes = [_SizeClass() for _ in range(len(SIZE_CLASSES_BYTES) + 1)]
        self._were_slow: deque[bool] = deque(maxlen=_NEWEST)
        self._slow_count = 0
        self._tokens = _CREDIT_TOKENS

    def slow_after_s(self, size_bytes: int) -> float | None:
        """Count a GET for so many bytes, and return after how long it is slow; None while that is not known."""
        self._tokens = min(_MOST_SAVED_TOKENS, self._tokens + BUDGET_SHARE)
        slow_after_s = self._class_of(size_bytes).slow_after_s
        if slow_after_s is None or self._tokens >= _RESERVED_TOKENS:
            return slow_after_s
        return slow_after_s * _RESERVED_FACTOR

    def note_answer(self, size_bytes: int, duration_s: float) -> None:
        """Learn from a GET that was answered; one that was slow by then has been noted with :meth:`may_hedge` as well."""
        self._class_of(size_bytes).add(duration_s)

    def note_in_time(self) -> None:
        """Note a GET that was answered before it was slow."""
        self._note(slow=False)

    def may_hedge(self) -> bool:
        """Note a GET that is slow, and tell whether a second one may be sent for it; if so, it is paid for."""
        self._note(slow=True)
        if self._slow_count > OUTAGE_SHARE * max(len(self._were_slow), _LEAST_NEWEST) or self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _note(self, *, slow: bool) -> None:
        if len(self._were_slow) == _NEWEST:
            self._slow_count -= self._were_slow[0]
        self._were_slow.append(slow)
        self._slow_count += slow

    def _class_of(self, size_bytes: int) -> _SizeClass:
        return self._classes[bisect_left(SIZE_CLASSES_BYTES, size_bytes)]


class _SizeClass:
    """The newest durations of GETs of about the same size."""

    __slots__ = ("_durations_s", "_since_update", "slow_after_s")

    def __init__(self) -> None:
        self._durations_s: deque[float] = deque(maxlen=_SAMPLES)
        self._since_update = 0
        self.slow_after_s: float | None = None
        """The 95th percentile of the durations, within bounds; None as long as there are too few."""

    def add(self, duration_s: float) -> None:
        self._durations_s.append(duration_s)
        self._since_update += 1
        wanted = LEAST_SAMPLES if self.slow_after_s is None else len(self._durations_s) // _UPDATE_SHARE
        if self._since_update >= wanted:
            self._since_update = 0
            ordered = sorted(self._durations_s)
            # The lower of two neighbours: the slowest one of a few dozen does not set the measure.
            percentile_s, median_s = ordered[(len(ordered) - 1) * 95 // 100], ordered[len(ordered) // 2]
            usual_s = min(max(percentile_s, _LEAST_FACTOR * median_s), _MOST_FACTOR * median_s)
            self.slow_after_s = max(usual_s, _SHORTEST_WAIT_S)


_ATTEMPTS_OF_SECOND = 2


class HedgedStore(StoreWrapper):
    """Send slow GETs a second time; see :mod:`coldparquet.storage.hedge` for which, and how many.

    The second request has ``is_hedge`` set: it goes over connections of its own, because those of a pool that went bad tend
    to hang together. Whichever is answered first wins; the other one is cancelled, and gone before the answer is
    returned. Where one of the two fails, the other one is waited for; a second one that is refused is tried once more, as
    the first is still as slow as before. Nothing but GETs is sent twice.

    Args:
        store: Where the requests go; it ``has_spare_connections``. Closing this store closes it.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._seconds = RetryStore(store, max_attempts=_ATTEMPTS_OF_SECOND)
        self._pace = HedgePace()
        self.sent_count = 0
        """Second requests that were sent."""
        self.won_count = 0
        """Second requests whose answers were taken."""

    async def get(self, request: RangeRequest) -> FetchedRange:
        """Fetch one range. 1 request; 2 where the first is slow."""
        loop = asyncio.get_running_loop()
        size_bytes = request.byte_range.length_bytes
        started_s = loop.time()
        slow_after_s = self._pace.slow_after_s(size_bytes)
        if slow_after_s is None:
            fetched = await self._store.get(request)
        else:
            race = _Race(self._store, self._seconds, request, may_start_second=self._pace.may_hedge)
            try:
                fetched = await race.run(loop.call_later(slow_after_s, race.start_second))
            finally:
                self.sent_count += race.has_second
            self.won_count += race.second_won
            if not race.was_slow:
                self._pace.note_in_time()
        self._pace.note_answer(size_bytes, loop.time() - started_s)
        return fetched


class _Race:
    """One GET and, if it is slow, a second one for the same bytes.

    The first one runs in the caller's own task, so that a GET in time costs a timer and no task. The second one's answer ends
    it in the way of ``asyncio.timeout``: the task is cancelled and, once the cancellation has arrived, uncancelled.

    Args:
        store: Where the first one goes.
        seconds: Where the second one goes.
        request: The first one.
        may_start_second: Asked once, when the first is slow.
    """

    __slots__ = (
        "_cancelling",
        "_has_ended_first",
        "_is_first_running",
        "_may_start_second",
        "_request",
        "_second",
        "_seconds",
        "_store",
        "_task",
        "second_won",
        "was_slow",
    )

    def __init__(
        self, store: ObjectStore, seconds: ObjectStore, request: RangeRequest, *, may_start_second: Callable[[], bool]
    ) -> None:
        self._store = store
        self._seconds = seconds
        self._request = request
        self._may_start_second = may_start_second
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._cancelling = self._task.cancelling()
        self._is_first_running = True
        self._has_ended_first = False
        """Whether the task was cancelled here, and not uncancelled yet."""
        self._second: asyncio.Task[FetchedRange] | None = None
        self.was_slow = False
        self.second_won = False

    @property
    def has_second(self) -> bool:
        """Whether a second request was sent."""
        return self._second is not None

    async def run(self, timer: asyncio.TimerHandle) -> FetchedRange:
        """Return the first good answer, or raise the first one's error."""
        try:
            return await self._store.get(self._request)
        except asyncio.CancelledError:
            if not self._undo_cancellation() or self._second is None:
                raise
            return self._won_by(self._second)
        except ColdParquetError:
            self._is_first_running = False
            timer.cancel()
            if self._second is None or not await _succeeds(self._second):
                raise
            return self._won_by(self._second)
        finally:
            self._is_first_running = False
            timer.cancel()
            if self._second is not None:
                self._undo_cancellation()
                await _end(self._second)

    def start_second(self) -> None:
        """Note that the first is slow, and send the second if that may be."""
        self.was_slow = True
        if self._may_start_second():
            self._second = asyncio.create_task(self._seconds.get(replace(self._request, is_hedge=True)))
            self._second.add_done_callback(self._end_first)

    def _end_first(self, second: asyncio.Task[FetchedRange]) -> None:
        """Let the second one's answer end the first. An error of it is of no interest."""
        if not second.cancelled() and second.exception() is None and self._is_first_running:
            self._has_ended_first = True
            self._task.cancel()

    def _undo_cancellation(self) -> bool:
        """Take back the cancellation of the task, if it was cancelled here; tell whether it was cancelled only here."""
        if not self._has_ended_first:
            return False
        self._has_ended_first = False
        return self._task.uncancel() <= self._cancelling

    def _won_by(self, second: asyncio.Task[FetchedRange]) -> FetchedRange:
        self.second_won = True
        return second.result()


async def _succeeds(second: asyncio.Task[FetchedRange]) -> bool:
    await asyncio.wait([second])
    return not second.cancelled() and second.exception() is None


async def _end(second: asyncio.Task[FetchedRange]) -> None:
    """Cancel a request and wait until it is gone, also when cancelled meanwhile."""
    if second.done():
        return
    second.cancel()
    try:
        await asyncio.wait([second])
    except asyncio.CancelledError:
        await asyncio.wait([second])
        raise
